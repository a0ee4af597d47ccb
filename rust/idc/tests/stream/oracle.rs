// SPDX-License-Identifier: GPL-2.0 OR MIT

//! A filter as plain as can be, to hold the real one against: predicates are trees, records are
//! lists of columns, numbers are 128-bit integers. It shares no code with the filter; it writes
//! predicates in the filter's language and in awk's.

use proptest::prelude::*;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    Equal,
    NotEqual,
    Less,
    Greater,
    Contains,
    Prefix,
}

#[derive(Clone, Debug)]
pub enum Expr {
    Text(u16, Op, Vec<u8>),
    Number(u16, Op, String),
    Not(Box<Expr>),
    And(Box<Expr>, Box<Expr>),
    Or(Box<Expr>, Box<Expr>),
}

/// The number that `text` spells, in billionths.
pub fn billionths(text: &[u8]) -> Option<i128> {
    let text = std::str::from_utf8(text).ok()?;
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    let (whole, fraction) = match digits.split_once('.') {
        Some((_, "")) => return None,
        Some(parts) => parts,
        None => (digits, "0"),
    };
    let all_digits = |digits: &str| digits.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !all_digits(whole) || !all_digits(fraction) || fraction.len() > 9 {
        return None;
    }
    let sign = if text.starts_with('-') { -1 } else { 1 };
    let whole: i128 = whole.parse().ok()?;
    i64::try_from(sign * whole).ok()?;
    let fraction: i128 = format!("{fraction:0<9}").parse().ok()?;
    Some(sign * (whole * 1_000_000_000 + fraction))
}

impl Expr {
    pub fn matches(&self, record: &[u8], delimiter: u8) -> bool {
        let column = |number: u16| match number {
            0 => Some(record),
            _ => record
                .split(|&byte| byte == delimiter)
                .nth(usize::from(number) - 1),
        };
        match self {
            Self::Text(number, op, text) => column(*number).is_some_and(|column| match op {
                Op::Equal => column == text,
                Op::NotEqual => column != text,
                Op::Less => column < &text[..],
                Op::Greater => column > &text[..],
                Op::Contains => (0..=column.len()).any(|at| column[at..].starts_with(text)),
                Op::Prefix => column.starts_with(text),
            }),
            Self::Number(number, op, literal) => {
                let literal = billionths(literal.as_bytes()).expect("a number");
                let value = column(*number).and_then(billionths);
                value.is_some_and(|value| match op {
                    Op::Equal => value == literal,
                    Op::NotEqual => value != literal,
                    Op::Less => value < literal,
                    Op::Greater => value > literal,
                    Op::Contains | Op::Prefix => unreachable!("these take text"),
                })
            }
            Self::Not(inner) => !inner.matches(record, delimiter),
            Self::And(left, right) => {
                left.matches(record, delimiter) && right.matches(record, delimiter)
            }
            Self::Or(left, right) => {
                left.matches(record, delimiter) || right.matches(record, delimiter)
            }
        }
    }

    /// What a filter should make of `table`.
    pub fn filter(&self, table: &[u8], delimiter: u8) -> Filtered {
        let mut filtered = Filtered::default();
        if table.is_empty() {
            return filtered;
        }
        let body = table.strip_suffix(b"\n").unwrap_or(table);
        for record in body.split(|&byte| byte == b'\n') {
            filtered.records_in += 1;
            if self.matches(record, delimiter) {
                filtered.records_out += 1;
                filtered.output.extend_from_slice(record);
                filtered.output.push(b'\n');
            }
        }
        filtered
    }

    /// The predicate in the filter's language, with no more parentheses than it needs.
    pub fn to_predicate(&self) -> String {
        let mut text = String::new();
        self.write_predicate(0, &mut text);
        text
    }

    /// Writes the predicate where everything around it binds as `around` says: or 0, and 1, not 2.
    fn write_predicate(&self, around: u8, text: &mut String) {
        let binding = match self {
            Self::Or(..) => 0,
            Self::And(..) => 1,
            _ => 2,
        };
        if binding < around {
            text.push('(');
        }
        match self {
            Self::Text(column, op, literal) => {
                *text += &format!("col({column}){}\"", spelled(*op));
                for &byte in literal {
                    match byte {
                        b'"' | b'\\' => *text += &format!("\\{}", byte as char),
                        b'\r' => *text += "\\r",
                        0x20..=0x7e => text.push(byte as char),
                        _ => *text += &format!("\\x{byte:02X}"),
                    }
                }
                text.push('"');
            }
            Self::Number(column, op, literal) => {
                *text += &format!("col( {column} ){}{literal}", spelled(*op));
            }
            Self::Not(inner) => {
                *text += "not ";
                inner.write_predicate(2, text);
            }
            Self::And(left, right) => {
                left.write_predicate(1, text);
                *text += " and ";
                right.write_predicate(1, text);
            }
            Self::Or(left, right) => {
                left.write_predicate(0, text);
                *text += "\tor ";
                right.write_predicate(0, text);
            }
        }
        if binding < around {
            text.push(')');
        }
    }

    /// The predicate as an awk pattern that needs no locale and no arithmetic beyond 15 digits.
    pub fn to_awk(&self) -> String {
        // An empty record has no fields in awk and one empty column here.
        let present = |column: u16| match column {
            0 | 1 => "1".to_string(),
            _ => format!("NF >= {column}"),
        };
        match self {
            Self::Text(column, op, text) => {
                let octal: Vec<_> = text.iter().map(|byte| format!("\\{byte:03o}")).collect();
                let quoted = octal.concat();
                let test = match op {
                    Op::Equal => format!("(${column} \"\") == \"{quoted}\""),
                    Op::NotEqual => format!("(${column} \"\") != \"{quoted}\""),
                    Op::Less => format!("(${column} \"\") < \"{quoted}\""),
                    Op::Greater => format!("(${column} \"\") > \"{quoted}\""),
                    // awk does not find the empty text in anything.
                    Op::Contains | Op::Prefix if text.is_empty() => "1".to_string(),
                    Op::Contains => format!("index(${column}, \"{quoted}\") > 0"),
                    Op::Prefix => format!("substr(${column}, 1, {}) == \"{quoted}\"", text.len()),
                };
                format!("({} && {test})", present(*column))
            }
            Self::Number(column, op, literal) => {
                let op = match op {
                    Op::Equal => "==",
                    other => spelled(*other),
                };
                // Quoted, as some awks take 010 in a program for octal.
                format!(
                    "({} && ${column} ~ /^[-+]?[0-9]+(\\.[0-9]+)?$/ && ${column} + 0 {op} \"{literal}\" + 0)",
                    present(*column)
                )
            }
            Self::Not(inner) => format!("(! {})", inner.to_awk()),
            Self::And(left, right) => format!("({} && {})", left.to_awk(), right.to_awk()),
            Self::Or(left, right) => format!("({} || {})", left.to_awk(), right.to_awk()),
        }
    }
}

/// An operator, with as much space as makes a difference to the parser.
fn spelled(op: Op) -> &'static str {
    match op {
        Op::Equal => " = ",
        Op::NotEqual => "!=",
        Op::Less => "<",
        Op::Greater => " >",
        Op::Contains => "contains",
        Op::Prefix => " prefix ",
    }
}

#[derive(Debug, Default, PartialEq, Eq)]
pub struct Filtered {
    pub output: Vec<u8>,
    pub records_in: u64,
    pub records_out: u64,
}

/// Bytes that are likely to mean something.
const BYTES: &[u8] = b"ab0195.-+; \"\\\r\xe9";

pub fn any_text() -> impl Strategy<Value = Vec<u8>> {
    proptest::collection::vec(proptest::sample::select(BYTES), 0..4)
}

pub fn any_number() -> impl Strategy<Value = String> {
    "[-+]?[0-9]{1,3}(\\.[0-9]{1,2})?"
}

pub fn any_expr() -> impl Strategy<Value = Expr> {
    use proptest::sample::select;
    const RELATIONS: &[Op] = &[Op::Equal, Op::NotEqual, Op::Less, Op::Greater];
    const ALL: &[Op] = &[
        Op::Equal,
        Op::NotEqual,
        Op::Less,
        Op::Greater,
        Op::Contains,
        Op::Prefix,
    ];
    let leaf = prop_oneof![
        (0u16..5, select(ALL), any_text()).prop_map(|(c, op, text)| Expr::Text(c, op, text)),
        (0u16..5, select(RELATIONS), any_number()).prop_map(|(c, op, n)| Expr::Number(c, op, n)),
    ];
    leaf.prop_recursive(4, 12, 2, |inner| {
        prop_oneof![
            inner.clone().prop_map(|expr| Expr::Not(expr.into())),
            (inner.clone(), inner.clone())
                .prop_map(|(left, right)| Expr::And(left.into(), right.into())),
            (inner.clone(), inner).prop_map(|(left, right)| Expr::Or(left.into(), right.into())),
        ]
    })
}

/// Tables, `;` between columns, with numbers among the texts, empty records, and sometimes no
/// newline at the end.
pub fn any_table(records: usize) -> impl Strategy<Value = Vec<u8>> {
    let column = prop_oneof![any_text(), any_number().prop_map(String::into_bytes)];
    let record = proptest::collection::vec(column, 0..5).prop_map(|columns| columns.join(&b';'));
    let table = proptest::collection::vec(record, 0..records);
    (table, any::<bool>()).prop_map(|(records, ended)| {
        let mut table = records.join(&b'\n');
        if ended && !records.is_empty() {
            table.push(b'\n');
        }
        table
    })
}
