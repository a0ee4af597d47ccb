// SPDX-License-Identifier: GPL-2.0

//! What pipelines should give, computed without any code of idc: tables, predicates as trees, AES
//! from RustCrypto, CRC-32C from the crc crate.
//!
//! Owns the meaning of each function, from Documentation/functions.rst alone. Works on whole data,
//! never on chunks.

use crate::rng::Rng;
use aes::cipher::{KeyIvInit, StreamCipher, StreamCipherSeek};
use std::fmt;

/// The longest record of a filter.
const MAX_RECORD: usize = 65_536;

/// What a comparison compares with.
#[derive(Clone, Debug)]
enum Literal {
    Text(Vec<u8>),
    /// As it is written; compared as a number.
    Number(String),
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Relation {
    Equal,
    NotEqual,
    Less,
    Greater,
    Contains,
    Prefix,
}

/// A predicate as a tree.
#[derive(Clone, Debug)]
pub enum Predicate {
    #[doc(hidden)]
    Compare(Compare),
    /// Both hold.
    And(Box<Predicate>, Box<Predicate>),
    /// One holds.
    Or(Box<Predicate>, Box<Predicate>),
    /// It does not hold.
    Not(Box<Predicate>),
}

/// One comparison.
#[derive(Clone, Debug)]
pub struct Compare {
    column: usize,
    relation: Relation,
    literal: Literal,
}

/// A decimal number as billionths; `None` if the text is none, or beyond the limits.
fn number(text: &[u8]) -> Option<i128> {
    let text = std::str::from_utf8(text).ok()?;
    let (sign, rest) = match text.as_bytes().first()? {
        b'-' => (-1, &text[1..]),
        b'+' => (1, &text[1..]),
        _ => (1, text),
    };
    let (whole, part) = rest.split_once('.').unwrap_or((rest, "0"));
    let digits = |s: &str| !s.is_empty() && s.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(whole) || !digits(part) || part.len() > 9 {
        return None;
    }
    let whole = whole.trim_start_matches('0');
    if whole.len() > 19 {
        return None;
    }
    let whole = sign * whole.parse::<i128>().unwrap_or(0);
    i64::try_from(whole).ok()?;
    let part = format!("{part:0<9}").parse::<i128>().ok()?;
    Some(whole * 1_000_000_000 + sign * part)
}

impl Compare {
    fn random(rng: &mut Rng) -> Self {
        let column = rng.pick(&[0, 1, 1, 2, 3, 3, 3, 4, 9]);
        let texts: [&[u8]; 8] = [b"Lu", b"Ll", b"N", b"", b"x\"y", b"\\", b"7", b"NAME 1"];
        if rng.one_in(3) {
            let numbers = [
                "7",
                "-1.5",
                "0",
                "1000",
                "+3",
                "0.25",
                "9223372036854775807",
            ];
            let relations = [
                Relation::Equal,
                Relation::NotEqual,
                Relation::Less,
                Relation::Greater,
            ];
            return Compare {
                column,
                relation: rng.pick(&relations),
                literal: Literal::Number(rng.pick(&numbers).to_owned()),
            };
        }
        let relations = [
            Relation::Equal,
            Relation::Equal,
            Relation::NotEqual,
            Relation::Less,
            Relation::Greater,
            Relation::Contains,
            Relation::Prefix,
        ];
        Compare {
            column,
            relation: rng.pick(&relations),
            literal: Literal::Text(rng.pick(&texts).to_vec()),
        }
    }

    fn holds(&self, record: &[u8], delimiter: u8) -> bool {
        let column = match self.column {
            0 => Some(record),
            n => record.split(|byte| *byte == delimiter).nth(n - 1),
        };
        let Some(column) = column else {
            return false;
        };
        let order = match &self.literal {
            Literal::Text(text) => match self.relation {
                Relation::Contains => {
                    return text.is_empty() || column.windows(text.len()).any(|part| part == text)
                }
                Relation::Prefix => return column.starts_with(text),
                _ => column.cmp(text),
            },
            Literal::Number(text) => match (number(column), number(text.as_bytes())) {
                (Some(one), Some(other)) => one.cmp(&other),
                _ => return false,
            },
        };
        match self.relation {
            Relation::Equal => order.is_eq(),
            Relation::NotEqual => order.is_ne(),
            Relation::Less => order.is_lt(),
            _ => order.is_gt(),
        }
    }
}

impl Predicate {
    /// A random predicate of at most `depth` levels.
    pub fn random(rng: &mut Rng, depth: u32) -> Self {
        if depth == 0 || rng.one_in(2) {
            return Predicate::Compare(Compare::random(rng));
        }
        let one = Box::new(Self::random(rng, depth - 1));
        match rng.below(3) {
            0 => Predicate::Not(one),
            1 => Predicate::And(one, Box::new(Self::random(rng, depth - 1))),
            _ => Predicate::Or(one, Box::new(Self::random(rng, depth - 1))),
        }
    }

    fn holds(&self, record: &[u8], delimiter: u8) -> bool {
        match self {
            Predicate::Compare(compare) => compare.holds(record, delimiter),
            Predicate::And(one, other) => {
                one.holds(record, delimiter) && other.holds(record, delimiter)
            }
            Predicate::Or(one, other) => {
                one.holds(record, delimiter) || other.holds(record, delimiter)
            }
            Predicate::Not(one) => !one.holds(record, delimiter),
        }
    }
}

impl fmt::Display for Predicate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Predicate::Compare(compare) => {
                let word = match compare.relation {
                    Relation::Equal => "=",
                    Relation::NotEqual => "!=",
                    Relation::Less => "<",
                    Relation::Greater => ">",
                    Relation::Contains => "contains",
                    Relation::Prefix => "prefix",
                };
                write!(f, "col({}) {word} ", compare.column)?;
                match &compare.literal {
                    Literal::Number(number) => f.write_str(number),
                    Literal::Text(text) => {
                        let text = String::from_utf8_lossy(text);
                        let text = text.replace('\\', "\\\\").replace('"', "\\\"");
                        write!(f, "\"{text}\"")
                    }
                }
            }
            Predicate::And(one, other) => write!(f, "(({one}) and ({other}))"),
            Predicate::Or(one, other) => write!(f, "(({one}) or ({other}))"),
            Predicate::Not(one) => write!(f, "not ({one})"),
        }
    }
}

/// A stage and all its options.
#[derive(Clone, Debug)]
pub enum Work {
    /// Keeps the records that match.
    Filter {
        /// Between two columns.
        delimiter: u8,
        /// What is kept.
        predicate: Predicate,
    },
    /// AES-256-CTR, either way.
    Cipher {
        /// Called decrypt instead of encrypt.
        decrypt: bool,
        /// The key.
        key: [u8; 32],
        /// Counter block of offset 0.
        iv: [u8; 16],
        /// Offset of the first byte.
        offset: u64,
    },
    /// CRC-32C.
    Checksum,
}

/// What a stage made of its input.
pub struct Made {
    /// What came out, up to the failure if there was one.
    pub output: Vec<u8>,
    /// The two results, as reports carry them.
    pub results: [u64; 2],
    /// Where a record began that was too long.
    pub too_long: Option<u64>,
}

const CASTAGNOLI: crc::Crc<u32> = crc::Crc::<u32>::new(&crc::CRC_32_ISCSI);

impl Work {
    /// Does it all at once.
    #[must_use]
    pub fn apply(&self, input: &[u8]) -> Made {
        match self {
            Work::Filter {
                delimiter,
                predicate,
            } => filter(input, *delimiter, predicate),
            Work::Cipher {
                key, iv, offset, ..
            } => {
                let mut cipher = ctr::Ctr128BE::<aes::Aes256>::new(key.into(), iv.into());
                let mut output = input.to_vec();
                cipher.seek(*offset);
                cipher.apply_keystream(&mut output);
                Made {
                    results: [output.len() as u64, 0],
                    output,
                    too_long: None,
                }
            }
            Work::Checksum => Made {
                output: input.to_vec(),
                results: [input.len() as u64, CASTAGNOLI.checksum(input).into()],
                too_long: None,
            },
        }
    }
}

fn filter(input: &[u8], delimiter: u8, predicate: &Predicate) -> Made {
    let mut made = Made {
        output: Vec::new(),
        results: [0; 2],
        too_long: None,
    };
    let mut start = 0;
    while start < input.len() {
        let rest = &input[start..];
        let length = rest.iter().position(|byte| *byte == b'\n');
        let record = &rest[..length.unwrap_or(rest.len())];
        if record.len() > MAX_RECORD {
            made.too_long = Some(start as u64);
            break;
        }
        made.results[0] += 1;
        if predicate.holds(record, delimiter) {
            made.results[1] += 1;
            made.output.extend_from_slice(record);
            made.output.push(b'\n');
        }
        start += record.len() + 1;
    }
    made
}

/// A table of about `bytes` bytes, with odd records among good ones.
pub fn table(rng: &mut Rng, bytes: usize, delimiter: u8) -> Vec<u8> {
    let mut data = Vec::with_capacity(bytes + 128);
    let mut record = 0_u64;
    while data.len() < bytes {
        record += 1;
        let columns = rng.pick(&[1, 3, 3, 4, 4, 4, 12]);
        for column in 1..=columns {
            if column > 1 {
                data.push(delimiter);
            }
            match rng.below(6) {
                0 => data.extend_from_slice(format!("{record:04X}").as_bytes()),
                1 => data.extend_from_slice(format!("NAME {record}").as_bytes()),
                2 => data.extend_from_slice(
                    rng.pick(&["Lu", "Ll", "Nd", "L", "x\"y", "a\\b"])
                        .as_bytes(),
                ),
                3 => {
                    let number =
                        rng.pick(&["7", "-1.50", "007", "1e3", "0", "-0", "12.345678901", ".5"]);
                    data.extend_from_slice(number.as_bytes());
                }
                4 => {}
                _ => data.extend(std::iter::repeat_n(b'x', rng.index(40))),
            }
        }
        if rng.one_in(50) {
            data.push(b'\r');
        }
        data.push(b'\n');
        if rng.one_in(1000) {
            data.extend(std::iter::repeat_n(
                b'y',
                rng.pick(&[5000, 20_000, MAX_RECORD, MAX_RECORD + 1]),
            ));
            data.push(b'\n');
        }
    }
    data.truncate(bytes);
    data
}

#[cfg(test)]
mod tests {
    use super::*;

    fn equal(column: usize, text: &[u8]) -> Predicate {
        Predicate::Compare(Compare {
            column,
            relation: Relation::Equal,
            literal: Literal::Text(text.to_vec()),
        })
    }

    /// printf 'a;Lu\nb;Ll\nc;Lu' | LC_ALL=C awk -F';' '$2 == "Lu"'
    #[test]
    fn filter_is_what_awk_does() {
        let made = filter(b"a;Lu\nb;Ll\nc;Lu", b';', &equal(2, b"Lu"));
        assert_eq!(made.output, b"a;Lu\nc;Lu\n");
        assert_eq!(made.results, [3, 2]);
        assert_eq!(made.too_long, None);
    }

    #[test]
    fn numbers_compare_exactly_and_only_where_they_are_numbers() {
        assert_eq!(number(b"-1.50"), Some(-1_500_000_000));
        assert_eq!(number(b"+007"), number(b"7.0"));
        assert_eq!(
            number(b"9223372036854775807.999999999").map(|n| n > 0),
            Some(true)
        );
        for none in [
            "",
            "1e3",
            ".5",
            "5.",
            "1 ",
            "9223372036854775808",
            "1.0000000000",
        ] {
            assert_eq!(number(none.as_bytes()), None, "{none}");
        }
    }

    /// RFC 3720, B.4: 32 bytes of zeros.
    #[test]
    fn checksum_is_castagnoli() {
        assert_eq!(Work::Checksum.apply(&[0; 32]).results, [32, 0x8a91_36aa]);
    }

    #[test]
    fn predicates_are_accepted_as_they_are_written() {
        let mut rng = Rng::new(1);
        for _ in 0..2000 {
            let text = Predicate::random(&mut rng, 4).to_string();
            if text.len() <= 1024 {
                let checked = idc::function::filter::predicate::check(text.as_bytes());
                assert!(checked.is_ok(), "{text}: {checked:?}");
            }
        }
    }
}
