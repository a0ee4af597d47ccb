// SPDX-License-Identifier: GPL-2.0 OR MIT

//! What is a predicate, what is not, and where a predicate goes wrong.

mod stream;

use idc::function::filter::predicate::{
    check, PredicateError, Reason, MAX_COMPARISONS, MAX_DEPTH, MAX_PREDICATE_LEN,
};
use idc::function::filter::program::Program;
use proptest::prelude::*;
use stream::filtered;
use zerocopy::FromZeros;

/// Where and why `predicate` is wrong, as the checker says it and as the compiler does.
fn error_of(predicate: &[u8]) -> Option<(u16, Reason)> {
    let mut program = Program::new_box_zeroed().expect("memory");
    program
        .compile(b"col(0) contains \"\"")
        .expect("a predicate");
    let compiled = program.compile(predicate);
    assert_eq!(check(predicate), compiled);
    if compiled.is_err() {
        assert!(
            !program.matches(b"", Some(b';')),
            "what is wrong matches nothing"
        );
    }
    compiled
        .err()
        .map(|PredicateError { offset, reason }| (offset, reason))
}

#[test]
fn space_may_stand_between_symbols_and_need_not_where_they_are_plain() {
    for predicate in [
        r#"col(3)="Lu""#,
        " \t\r\ncol ( 3 )\n=\t\"Lu\" ",
        r#"(col(3)="Lu")or(col(3)="Ll")"#,
        r#"not(col(3)="Lu")and not not col(00003)=1"#,
        r#"col(3)contains"Lu"or col(65535)prefix"x""#,
        "col(1)=-5 and col(1)<+5.25 or col(1)!=0",
        r#"((((col(0)>"")) and (col(1)=1)))"#,
    ] {
        assert_eq!(error_of(predicate.as_bytes()), None, "{predicate}");
    }
}

#[test]
fn a_mistake_is_reported_where_it_stands() {
    use Reason::*;
    for (predicate, offset, reason) in [
        ("", 0, ExpectedComparison),
        ("   ", 3, ExpectedComparison),
        ("3 = 3", 0, ExpectedComparison),
        ("\"Lu\" = col(3)", 0, ExpectedComparison),
        ("COL(3) = 1", 0, ExpectedComparison),
        ("col(1) = 1 and", 14, ExpectedComparison),
        ("col(1) = 1 or or", 14, ExpectedComparison),
        ("not", 3, ExpectedComparison),
        ("()", 1, ExpectedComparison),
        ("col 3 = 1", 4, ExpectedColumnOpen),
        ("col", 3, ExpectedColumnOpen),
        ("col()", 4, ExpectedColumnNumber),
        ("col(x)", 4, ExpectedColumnNumber),
        ("col(-1) = 1", 4, ExpectedColumnNumber),
        ("col(1.0) = 1", 4, ExpectedColumnNumber),
        ("col(65536) = 1", 4, ExpectedColumnNumber),
        ("col(3 = 1", 6, ExpectedColumnClose),
        ("col(3)", 6, ExpectedOperator),
        ("col(3) == 1", 8, ExpectedLiteral),
        ("col(3) <= 1", 8, ExpectedLiteral),
        ("col(3) ! 1", 7, UnexpectedByte),
        ("col(3) CONTAINS \"x\"", 7, ExpectedOperator),
        ("col(3) =", 8, ExpectedLiteral),
        ("col(3) = (1)", 9, ExpectedLiteral),
        ("col(3) = Lu", 9, BadNumber),
        ("col(3) = 'Lu'", 9, UnexpectedByte),
        ("col(3) = 1.0000000001", 9, BadNumber),
        ("col(3) = 9223372036854775808", 9, BadNumber),
        ("col(3) = 1or col(3) = 2", 9, BadNumber),
        ("col(3) contains 1", 16, ExpectedText),
        ("col(3) prefix", 13, ExpectedText),
        ("col(3) = \"Lu", 9, UnclosedText),
        ("col(3) = \"Lu\\\"", 9, UnclosedText),
        ("col(3) = \"a\\q\"", 11, BadEscape),
        ("col(3) = \"a\\x4\"", 11, BadEscape),
        ("col(3) = \"a\\xg0\"", 11, BadEscape),
        ("col(3) = \"a\\", 11, BadEscape),
        ("col(3) = 1 col(3) = 2", 11, ExpectedConnective),
        ("col(3) = 1 xor col(3) = 2", 11, ExpectedConnective),
        ("col(3) = 1 = 1", 11, ExpectedConnective),
        ("col(3) = 1 not", 11, ExpectedConnective),
        ("col(3) = \"a\" \"b\"", 13, ExpectedConnective),
        ("col(1) = 1 and (col(3) = 1", 15, UnclosedParenthesis),
        ("((col(3) = 1)", 0, UnclosedParenthesis),
        ("col(3) = 1)", 10, UnopenedParenthesis),
        ("(col(3) = 1))", 12, UnopenedParenthesis),
        ("col(3) = 1 && col(4) = 1", 11, UnexpectedByte),
        ("\u{e9}", 0, UnexpectedByte),
    ] {
        let error = error_of(predicate.as_bytes());
        assert_eq!(error, Some((offset, reason)), "{predicate}");
    }
}

#[test]
fn every_reason_can_be_read() {
    let error = check(b"col(3) = Lu").unwrap_err();
    assert_eq!(
        error.to_string(),
        "at byte 9 of the predicate: not a decimal number; text goes in double quotes"
    );
    assert!(Reason::TooLong
        .to_string()
        .contains(&MAX_PREDICATE_LEN.to_string()));
    assert!(Reason::TooManyComparisons
        .to_string()
        .contains(&MAX_COMPARISONS.to_string()));
    assert!(Reason::TooDeep.to_string().contains(&MAX_DEPTH.to_string()));
}

#[test]
fn a_predicate_has_at_most_1024_bytes() {
    let mut predicate = b"col(1) = \"".to_vec();
    predicate.resize(1023, b'x');
    predicate.push(b'"');
    assert_eq!(error_of(&predicate), None);
    predicate.push(b' ');
    assert_eq!(error_of(&predicate), Some((1024, Reason::TooLong)));
    assert_eq!(error_of(&[b'('; 100_000]), Some((1024, Reason::TooLong)));
}

#[test]
fn a_predicate_has_at_most_64_comparisons_and_the_last_one_counts() {
    let mut predicate = "col(1)=0".to_string();
    for value in 1..64 {
        predicate += &format!("or\tcol(1)={value}");
    }
    predicate = predicate.replace("or\t", " or ");
    assert_eq!(error_of(predicate.as_bytes()), None);
    assert_eq!(filtered(b';', &predicate, b"63\n64\n0\n"), b"63\n0\n");
    let offset = predicate.len() as u16 + 4;
    predicate += " or col(1)=64";
    let error = Some((offset, Reason::TooManyComparisons));
    assert_eq!(error_of(predicate.as_bytes()), error);
}

#[test]
fn parentheses_nest_32_deep_and_not_deeper() {
    let nested = |depth: usize| format!("{}col(1)=1{}", "(".repeat(depth), ")".repeat(depth));
    assert_eq!(error_of(nested(32).as_bytes()), None);
    assert_eq!(filtered(b';', &nested(32), b"1\n2\n"), b"1\n");
    let error = error_of(nested(33).as_bytes());
    assert_eq!(error, Some((32, Reason::TooDeep)));
}

/// Whether to keep a record whose three columns are 1.
type Keep = fn(bool, bool, bool) -> bool;

// The conditions are spelled as the predicates are, not as short as can be.
#[allow(clippy::nonminimal_bool)]
#[test]
fn not_binds_tighter_than_and_and_and_tighter_than_or() {
    // Every combination of three columns, as 000 .. 111.
    let table: Vec<u8> = (0..8u8)
        .flat_map(|bits| {
            let digit = |bit: u8| b'0' + ((bits >> bit) & 1);
            [digit(2), b';', digit(1), b';', digit(0), b'\n']
        })
        .collect();
    let expected = |keep: Keep| -> Vec<u8> {
        table
            .chunks(6)
            .filter(|line| keep(line[0] == b'1', line[2] == b'1', line[4] == b'1'))
            .flatten()
            .copied()
            .collect()
    };
    let cases: &[(&str, Keep)] = &[
        ("A or B and C", |a, b, c| a || (b && c)),
        ("A and B or C", |a, b, c| (a && b) || c),
        ("(A or B) and C", |a, b, c| (a || b) && c),
        ("not A and B or C", |a, b, c| ((!a) && b) || c),
        ("not (A and B) or C", |a, b, c| !(a && b) || c),
        ("not (A or B and not C)", |a, b, c| !(a || (b && !c))),
        ("not not A and not (not B or C)", |a, b, c| a && !(!b || c)),
        ("A and not (B or not (C and A))", |a, b, c| {
            a && !(b || !(c && a))
        }),
        ("not (not (not (A or B)) and C)", |a, b, c| !((a || b) && c)),
    ];
    for (pattern, keep) in cases {
        let predicate = pattern
            .replace('A', "col(1) = 1")
            .replace('B', "col(2) = 1")
            .replace('C', "col(3) = 1");
        assert_eq!(
            filtered(b';', &predicate, &table),
            expected(*keep),
            "{pattern}"
        );
    }
}

#[test]
fn escapes_stand_for_the_bytes_that_they_name() {
    let table = b"a\"b\\c\td\re\x00f\xffg\n";
    let predicate = r#"col(0) = "a\"b\\c\td\re\x00f\xFfg""#;
    assert_eq!(filtered(b';', predicate, table), table);
    // A newline can be written, and is in no record.
    assert_eq!(filtered(b';', r#"col(0) contains "\n""#, b"a\nb\n"), b"");
    assert_eq!(filtered(b';', r#"col(0) < "b\n""#, b"a\nb\nc\n"), b"a\nb\n");
}

#[test]
fn bytes_that_are_not_ascii_need_no_escape() {
    let predicate = "col(1) = \"\u{e9}\"".as_bytes();
    assert_eq!(error_of(predicate), None);
    assert_eq!(
        filtered(b';', "col(1) = \"\u{e9}\"", b"\xc3\xa9\n"),
        b"\xc3\xa9\n"
    );
}

const SYMBOLS: &[&str] = &[
    "col", "(", ")", "col(1)", "col(2)=1", "=", "!=", "<", ">", "contains", "prefix", "and", "or",
    "not", "1", "-1.5", "\"x\"", "\"", "\\", "\\x41", " ", "\n", "!", "999999",
];

proptest! {
    #[test]
    fn random_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..1100)) {
        if let Some((offset, _)) = error_of(&bytes) {
            prop_assert!(usize::from(offset) <= bytes.len());
        }
    }

    #[test]
    fn random_symbols_never_panic(
        symbols in proptest::collection::vec(proptest::sample::select(SYMBOLS), 0..200),
        record in proptest::collection::vec(any::<u8>(), 0..50),
    ) {
        let text = symbols.join(" ");
        let mut program = Program::new_box_zeroed().expect("memory");
        match program.compile(text.as_bytes()) {
            Ok(()) => { program.matches(&record, Some(b';')); }
            Err(error) => prop_assert!(usize::from(error.offset) <= text.len()),
        }
    }
}
