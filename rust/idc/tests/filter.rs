// SPDX-License-Identifier: GPL-2.0 OR MIT

//! `filter` against a plain oracle and against awk, wherever the stream is cut.

#[path = "stream/oracle.rs"]
mod oracle;
mod stream;

use idc::function::filter::{number::Number, scan};
use idc::function::{Function, FunctionError, FunctionState, NoCrypto, Outcome, Status};
use oracle::{any_expr, any_number, any_table, Expr};
use proptest::prelude::*;
use std::io::Write;
use std::process::{Command, Stdio};
use stream::{all_cuts, cut, filter, filtered, run, LONGEST};
use zerocopy::FromZeros;

/// Runs a predicate over a stream in pieces and compares with the oracle.
fn agrees(expr: &Expr, table: &[u8], chunks: &[&[u8]], room: usize) -> Result<(), TestCaseError> {
    let parameters = filter(b';', &expr.to_predicate());
    let expected = expr.filter(table, b';');
    let (output, outcome) = run(&parameters, chunks, room, &mut NoCrypto).unwrap();
    prop_assert_eq!(output, expected.output);
    let (records_in, records_out) = (expected.records_in, expected.records_out);
    let expected = Outcome::Filter {
        records_in,
        records_out,
    };
    prop_assert_eq!(outcome, expected);
    Ok(())
}

/// What awk prints of `table` with `pattern`.
fn awk(pattern: &str, table: &[u8]) -> Vec<u8> {
    let mut awk = Command::new("awk")
        .args(["-F", ";", pattern])
        .env("LC_ALL", "C")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the tests need awk");
    let mut stdin = awk.stdin.take().unwrap();
    let table = table.to_vec();
    let writer = std::thread::spawn(move || stdin.write_all(&table));
    let output = awk.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    assert!(output.status.success(), "{pattern}");
    output.stdout
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn all_cuts_of_a_small_table_give_what_the_oracle_says(
        expr in any_expr(),
        table in any_table(5).prop_map(|mut table| { table.truncate(9); table }),
    ) {
        for chunks in all_cuts(&table) {
            for room in [1, 2, 5, 64] {
                agrees(&expr, &table, &chunks, room)?;
            }
        }
    }
}

proptest! {
    #[test]
    fn random_cuts_of_a_large_table_give_what_the_oracle_says(
        expr in any_expr(),
        table in any_table(200),
        cuts in proptest::collection::vec(0usize..200, 0..40),
        room in 1usize..300,
    ) {
        agrees(&expr, &table, &cut(&table, &cuts), room)?;
    }

    #[test]
    fn awk_agrees_with_any_predicate(expr in any_expr(), table in any_table(60)) {
        let predicate = expr.to_predicate();
        let ours = filtered(b';', &predicate, &table);
        let pattern = expr.to_awk();
        let theirs = awk(&pattern, &table);
        prop_assert!(ours == theirs, "{predicate} | {pattern}");
    }

    #[test]
    fn numbers_are_what_128_bit_arithmetic_says(
        left in prop_oneof![any_number(), "[-+]?0{0,3}[0-9]{0,20}(\\.[0-9]{0,11})?", "[-+.0-9 e]{0,6}"],
        right in any_number(),
    ) {
        let ours = Number::parse(left.as_bytes());
        let theirs = oracle::billionths(left.as_bytes());
        prop_assert_eq!(ours.is_some(), theirs.is_some());
        if let (Some(ours), Some(theirs)) = (ours, theirs) {
            let other = Number::parse(right.as_bytes()).unwrap();
            prop_assert_eq!(ours.cmp(&other), theirs.cmp(&oracle::billionths(right.as_bytes()).unwrap()));
            prop_assert_eq!(Number::from_bytes(&ours.to_bytes()), ours);
        }
    }

    #[test]
    fn a_word_at_a_time_finds_what_a_byte_at_a_time_does(
        bytes in proptest::collection::vec(prop_oneof![0u8..4, 0x7eu8..0x83, any::<u8>()], 0..150),
        byte in prop_oneof![0u8..4, 0x7eu8..0x83],
        text in proptest::collection::vec(proptest::sample::select(&b"ab;"[..]), 0..4),
        hay in proptest::collection::vec(proptest::sample::select(&b"ab;"[..]), 0..80),
    ) {
        prop_assert_eq!(scan::find_byte(byte, &bytes), bytes.iter().position(|&b| b == byte));
        let plain = text.is_empty() || hay.windows(text.len()).any(|window| window == text);
        prop_assert_eq!(scan::contains(&hay, &text), plain);
    }
}

/// Every kind of comparison, as a user would write it here and in awk. The columns are those of
/// Unicode's character table.
const AS_IN_AWK: &[(&str, &str)] = &[
    (r#"col(3) = "Lu""#, r#"$3 == "Lu""#),
    (r#"col(3) != "Lu""#, r#"NF >= 3 && $3 != "Lu""#),
    (r#"not col(3) = "Lu""#, r#"$3 != "Lu""#),
    (r#"col(1) < "0100""#, r#"($1 "") < "0100""#),
    (r#"col(1) > "0100""#, r#"($1 "") > "0100""#),
    (r#"col(2) contains "LETTER""#, r#"index($2, "LETTER")"#),
    (r#"col(2) prefix "LATIN ""#, r#"$2 ~ /^LATIN /"#),
    (r#"col(0) contains ";Lu;""#, r#"/;Lu;/"#),
    ("col(9) > 9", r#"$9 ~ /^[0-9]+$/ && $9 > 9"#),
    ("col(9) = 1.5", r#"$9 ~ /^[0-9]+(\.[0-9]+)?$/ && $9 == 1.5"#),
    (
        "col(9) < -0.25",
        r#"$9 ~ /^-[0-9]+(\.[0-9]+)?$/ && $9 < -0.25"#,
    ),
    ("col(9) != 0", r#"$9 ~ /^-?[0-9]+(\.[0-9]+)?$/ && $9 != 0"#),
    ("col(15) = \"\"", r#"NF >= 15 && $15 == """#),
    (
        r#"(col(3) = "Lu" or col(3) = "Ll") and not col(2) contains "GREEK""#,
        r#"($3 == "Lu" || $3 == "Ll") && $2 !~ /GREEK/"#,
    ),
    (
        r#"col(3) = "Lu" or col(3) = "Ll" and col(2) contains "GREEK""#,
        r#"$3 == "Lu" || ($3 == "Ll" && $2 ~ /GREEK/)"#,
    ),
];

/// A table of the shape of UnicodeData.txt, drawn from `seed`.
fn table_like_unicode_data(seed: u64, records: usize) -> Vec<u8> {
    let mut state = seed;
    let mut draw = move |below: usize| {
        // Knuth's MMIX generator; its high bits are good.
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    };
    let mut table = Vec::new();
    for code in 0..records {
        let script = ["LATIN", "GREEK", "CYRILLIC", "", "G\u{e9}ORGIAN"][draw(5)];
        let kind = ["Lu", "Ll", "Lo", "Nd", ""][draw(5)];
        let number = ["", "0", "7", "10", "1.5", "1.50", "-0.5", "1/2", "9 "][draw(9)];
        let line = format!(
            "{code:04X};{script} LETTER {};{kind};0;L;;;;{number};N;;;;;{}",
            draw(1000),
            ["", "0061"][draw(2)],
        );
        // Some records are cut short: absent columns.
        let len = if draw(4) == 0 {
            draw(line.len() + 1)
        } else {
            line.len()
        };
        table.extend_from_slice(&line.as_bytes()[..len]);
        table.extend_from_slice(["\n", "\r\n"][draw(10) / 9].as_bytes());
    }
    table
}

#[test]
fn awk_agrees_on_a_table_like_unicode_data() {
    for seed in 0..3 {
        let mut table = table_like_unicode_data(seed, 1500);
        if seed == 2 {
            table.pop();
        }
        for (predicate, pattern) in AS_IN_AWK {
            let theirs = awk(pattern, &table);
            assert!(
                !theirs.is_empty(),
                "{pattern} keeps something, else it tests nothing"
            );
            assert!(filtered(b';', predicate, &table) == theirs, "{predicate}");
            let chunks: Vec<_> = table.chunks(4096 + seed as usize).collect();
            let parameters = filter(b';', predicate);
            let (ours, _) = run(&parameters, &chunks, 1000, &mut NoCrypto).unwrap();
            assert!(ours == theirs, "{predicate}, in chunks");
        }
    }
}

#[test]
fn the_last_record_gets_a_newline_and_an_empty_stream_has_no_record() {
    assert_eq!(filtered(b';', "not col(2) = 1", b"a\n\nb"), b"a\n\nb\n");
    assert_eq!(filtered(b';', "not col(2) = 1", b"a\n"), b"a\n");
    assert_eq!(filtered(b';', "not col(2) = 1", b"\n"), b"\n");
    assert_eq!(filtered(b';', "not col(2) = 1", b""), b"");
}

#[test]
fn a_carriage_return_is_data() {
    assert_eq!(filtered(b';', r#"col(2) = "x""#, b"1;x\r\n2;x\n"), b"2;x\n");
    assert_eq!(
        filtered(b';', r#"col(2) = "x\r""#, b"1;x\r\n2;x\n"),
        b"1;x\r\n"
    );
}

#[test]
fn quotes_in_the_data_mean_nothing() {
    let table = b"\"a;b\";c\n";
    assert_eq!(filtered(b';', r#"col(2) = "b\"""#, table), table);
}

#[test]
fn an_absent_column_makes_every_comparison_false() {
    for comparison in [
        "= 1",
        "!= 1",
        "< 1",
        "> 1",
        "= \"\"",
        "!= \"x\"",
        "< \"x\"",
        "> \"\"",
        "contains \"\"",
        "prefix \"\"",
    ] {
        assert_eq!(
            filtered(b';', &format!("col(3) {comparison}"), b"1;2\n"),
            b""
        );
        assert_eq!(
            filtered(b';', &format!("not col(3) {comparison}"), b"1;2\n"),
            b"1;2\n"
        );
        assert_eq!(
            filtered(b';', &format!("col(65535) {comparison}"), b"1;2\n"),
            b""
        );
    }
}

#[test]
fn an_empty_record_has_one_empty_column() {
    assert_eq!(filtered(b';', "col(1) = \"\"", b"\n"), b"\n");
    assert_eq!(filtered(b';', "not col(2) = \"\"", b"\n"), b"\n");
    assert_eq!(filtered(b';', "col(2) = \"\"", b";\n"), b";\n");
}

#[test]
fn numbers_compare_exactly_up_to_the_last_digit() {
    let cases = [
        ("= 1", "1.000000000", true),
        ("= 1", "1.0000000000", false),
        ("> 1", "1.000000001", true),
        ("< -1", "-1.000000001", true),
        ("< 0", "-0.000000001", true),
        ("= 0", "-0", true),
        ("= -0.0", "+00", true),
        ("= 9223372036854775807", "9223372036854775807", true),
        (
            "> 9223372036854775806.999999999",
            "9223372036854775807",
            true,
        ),
        ("> 0", "9223372036854775808", false),
        ("< 0", "9223372036854775808", false),
        ("= -9223372036854775808", "-9223372036854775808", true),
        (
            "> -9223372036854775808",
            "-9223372036854775807.999999999",
            true,
        ),
        ("< 0", "-9223372036854775809", false),
        ("!= 5", "five", false),
        ("!= 5", "", false),
        ("= 5", " 5", false),
        ("= 5", "5 ", false),
        ("= 5", "5\r", false),
        ("= 5", "5.", false),
        ("= 0.5", ".5", false),
        ("= 5", "0x5", false),
        ("= 5", "5e0", false),
        ("= 5", "--5", false),
    ];
    for (comparison, column, matches) in cases {
        let table = format!("{column}\n");
        let output = filtered(b';', &format!("col(1) {comparison}"), table.as_bytes());
        assert_eq!(!output.is_empty(), matches, "{column:?} {comparison}");
    }
}

#[test]
fn any_byte_but_newline_may_separate_columns() {
    for delimiter in (0..=255u8).filter(|&byte| byte != b'\n') {
        let table = [b'A' ^ delimiter & 1, delimiter, b'Z', b'\n'];
        let expected = if table[0] == delimiter || delimiter == b'Z' {
            &[][..]
        } else {
            &table
        };
        assert_eq!(
            filtered(delimiter, "col(2) = \"Z\"", &table),
            expected,
            "{delimiter}"
        );
    }
}

#[test]
fn a_record_may_have_64_kib_wherever_it_is_cut() {
    let mut table = b"x;1\n".to_vec();
    table.resize(4 + LONGEST - 2, b'y');
    table.extend_from_slice(b";1\nz;1");
    let expected = [&table[..], b"\n"].concat();
    let parameters = filter(b';', "col(2) = 1");
    for cuts in [
        &[][..],
        &[4],
        &[5],
        &[4 + LONGEST],
        &[4 + LONGEST - 1, 2],
        &[3, 2, 40000],
    ] {
        for room in [777, 1 << 20] {
            let chunks = cut(&table, cuts);
            let (output, outcome) = run(&parameters, &chunks, room, &mut NoCrypto).unwrap();
            assert!(output == expected, "cut at {cuts:?}");
            let (records_in, records_out) = (3, 3);
            assert_eq!(
                outcome,
                Outcome::Filter {
                    records_in,
                    records_out
                }
            );
        }
    }
}

#[test]
fn a_longer_record_is_an_error_that_says_where_it_begins() {
    for ended in [true, false] {
        let mut table = b"x;1\n\n".to_vec();
        table.resize(5 + LONGEST + 1, b'y');
        if ended {
            table.push(b'\n');
        }
        let parameters = filter(b';', "col(2) = 1");
        for cuts in [
            &[][..],
            &[5],
            &[6],
            &[5 + LONGEST],
            &[5 + LONGEST + 1],
            &[1, 1, 1, 1, 1, 9],
        ] {
            let result = run(&parameters, &cut(&table, cuts), 100, &mut NoCrypto);
            let expected = FunctionError::RecordTooLong { offset: 5 };
            assert_eq!(result, Err(expected), "cut at {cuts:?}");
        }
    }
}

#[test]
fn the_examples_of_the_documentation_hold() {
    // Documentation/functions.rst, "The predicate language".
    for (record, predicate, kept) in [
        ("0041;A;Lu", r#"col(3) = "Lu""#, true),
        ("0041;A;Lu", r#"col(4) != "x""#, false),
        ("0041;A;Lu", r#"not col(4) = "x""#, true),
        ("0041;A;Lu", r#"col(0) contains ";A;""#, true),
        ("0041;A;Lu", r#"col(1) prefix "00" and col(2) < "B""#, true),
        ("7;-1.50", "col(2) = -1.5", true),
        ("7;-1.50", r#"col(2) = "-1.5""#, false),
        ("7;1e3", "col(2) != 5", false),
        ("7;x\r", r#"col(2) = "x\r""#, true),
        ("", r#"col(1) = """#, true),
    ] {
        let table = format!("{record}\n");
        let output = filtered(b';', predicate, table.as_bytes());
        assert_eq!(!output.is_empty(), kept, "{record}: {predicate}");
    }
}

#[test]
fn a_caller_that_shows_less_of_the_input_than_before_gets_the_same_output() {
    let mut state = FunctionState::new_box_zeroed().expect("memory");
    let mut scratch = vec![0; LONGEST];
    let mut output = [0; 3];
    let mut step = |state: &mut FunctionState, input: &[u8], last| {
        let step = state.step(&mut scratch, input, last, &mut output, &mut NoCrypto);
        let step = step.unwrap();
        let produced = output[..step.produced].to_vec();
        (step.consumed, produced, step.status)
    };
    // All of the record is seen, so it is judged in place; then there is no room for it.
    state.start(&filter(b';', "col(1) = 1")).unwrap();
    let first = step(&mut state, b"1;abc\n", false);
    assert_eq!(first, (3, b"1;a".to_vec(), Status::NeedOutput));
    let second = step(&mut state, b"b", false);
    assert_eq!(second, (1, b"b".to_vec(), Status::NeedInput));
    let third = step(&mut state, b"c\n", true);
    assert_eq!(third, (2, b"c\n".to_vec(), Status::Done));

    // And where what was seen never comes again, the record still ends as records do.
    state.start(&filter(b';', "col(1) = 1")).unwrap();
    let first = step(&mut state, b"1;abc\n", false);
    assert_eq!(first, (3, b"1;a".to_vec(), Status::NeedOutput));
    let second = step(&mut state, b"b", true);
    assert_eq!(second, (1, b"b\n".to_vec(), Status::Done));
}
