// SPDX-License-Identifier: GPL-2.0 OR MIT

//! `filter` on records of a fixed size, held against a plain oracle over every cut.

use idc::function::filter::predicate::{check, Reason};
use idc::function::{
    FilterParameters, Function, FunctionState, NoCrypto, Parameters, ParametersError, Records,
    Status,
};
use proptest::prelude::*;
use zerocopy::FromZeros;

fn encoded(records: Records, predicate: &str) -> Result<Vec<u8>, ParametersError> {
    let parameters = Parameters::Filter(FilterParameters {
        records,
        predicate: predicate.as_bytes(),
    });
    let mut bytes = vec![0; parameters.encoded_len()];
    parameters.encode(&mut bytes).map(|_| bytes)
}

/// What `filter` makes of `chunks`, leaving in pieces of at most `room` bytes.
fn filtered(records: Records, predicate: &str, chunks: &[&[u8]], room: usize) -> Vec<u8> {
    let mut state = FunctionState::new_box_zeroed().unwrap();
    state.start(&encoded(records, predicate).unwrap()).unwrap();
    let mut scratch = vec![0; 65536];
    let mut output = vec![0; room];
    let mut result = Vec::new();
    for (index, chunk) in chunks.iter().enumerate() {
        let last = index + 1 == chunks.len();
        let mut rest = *chunk;
        loop {
            let step = state
                .step(&mut scratch, rest, last, &mut output, &mut NoCrypto)
                .unwrap();
            result.extend_from_slice(&output[..step.produced]);
            rest = &rest[step.consumed..];
            match step.status {
                Status::NeedOutput => {}
                Status::NeedInput | Status::Done => break,
            }
        }
        assert!(rest.is_empty());
    }
    result
}

/// Records of 6 bytes: a number of 2 bytes little endian, one of 3 big endian, a letter.
fn table() -> Vec<u8> {
    let rows: [(u16, u32, u8); 5] = [
        (1, 70_000, b'a'),
        (258, 3, b'\n'),
        (65_535, 16_777_215, b'a'),
        (10, 2_570, b'b'),
        (0, 0, b'a'),
    ];
    let mut table = Vec::new();
    for (little, big, letter) in rows {
        table.extend_from_slice(&little.to_le_bytes());
        table.extend_from_slice(&big.to_be_bytes()[1..]);
        table.push(letter);
    }
    table
}

fn kept(table: &[u8], keep: impl Fn(u16, u32, u8) -> bool) -> Vec<u8> {
    let rows = table.chunks(6).filter(|row| {
        let little = u16::from(row[0]) + 256 * u16::from(row[1]);
        let big = 65_536 * u32::from(row[2]) + 256 * u32::from(row[3]) + u32::from(row[4]);
        keep(little, big, row[5])
    });
    rows.flatten().copied().collect()
}

#[test]
fn integers_and_bytes_of_fixed_records_compare_as_they_are_over_every_cut() {
    let table = table();
    let fixed = Records::Fixed { size: 6 };
    type Keep = fn(u16, u32, u8) -> bool;
    let cases: [(&str, Keep); 6] = [
        ("le(0,2) > 9", |little, _, _| little > 9),
        ("be(2,3) = 2570", |_, big, _| big == 2570),
        ("bytes(5,1) = \"a\"", |_, _, letter| letter == b'a'),
        (
            "not bytes(5,1) = \"\\n\" and le(0,2) < 258",
            |little, _, letter| letter != b'\n' && little < 258,
        ),
        (
            "col(0) contains \"\\n\" or be( 2 , 3 ) != 0",
            |little, big, letter| {
                // No other byte of the table is 0Ah but the low byte of 10, and of 2570 both.
                letter == b'\n' || big != 0 || little == 10
            },
        ),
        (
            "col(1) = \"a\" or bytes(6,1) != \"x\" or le(5,2) < 9",
            |_, _, _| false,
        ),
    ];
    for (predicate, keep) in cases {
        let expected = kept(&table, keep);
        for cut in 0..=table.len() {
            let chunks = [&table[..cut], &table[cut..]];
            for room in [1, 4, 64] {
                let result = filtered(fixed, predicate, &chunks, room);
                assert_eq!(result, expected, "{predicate} cut at {cut}, room {room}");
            }
        }
    }
}

#[test]
fn what_follows_the_last_whole_record_is_a_shorter_record() {
    let fixed = Records::Fixed { size: 4 };
    let chunks: [&[u8]; 1] = [b"abcdefghij"];
    assert_eq!(filtered(fixed, "bytes(0,1) > \"e\"", &chunks, 64), b"ij");
    assert_eq!(
        filtered(fixed, "bytes(3,1) > \"\"", &chunks, 64),
        b"abcdefgh"
    );
}

#[test]
fn bytes_may_be_taken_of_lines_too() {
    let lines = Records::Lines { delimiter: b';' };
    let chunks: [&[u8]; 1] = [b"17;x\n170;y\n9"];
    assert_eq!(
        filtered(lines, "bytes(0,2) = 17", &chunks, 64),
        b"17;x\n170;y\n"
    );
    assert_eq!(filtered(lines, "be(0,1) = 57", &chunks, 64), b"9\n");
}

#[test]
fn an_integer_that_no_number_holds_never_matches() {
    let fixed = Records::Fixed { size: 8 };
    let chunks: [&[u8]; 1] = [&[0xff; 8]];
    assert_eq!(
        filtered(fixed, "le(0,8) > 0 or le(0,8) != 0", &chunks, 64),
        b""
    );
    assert_eq!(
        filtered(fixed, "le(0,7) = 72057594037927935", &chunks, 64),
        [0xff; 8]
    );
}

#[test]
fn sizes_out_of_range_and_bad_places_are_refused() {
    for size in [0, 65_537, u32::MAX] {
        assert_eq!(
            encoded(Records::Fixed { size }, "be(0,1) = 0"),
            Err(ParametersError::RecordSize)
        );
    }
    for (predicate, offset, reason) in [
        ("le(0,9) = 1", 5, Reason::IntegerLength),
        ("be(0,0) = 1", 5, Reason::IntegerLength),
        ("le(0,2) = \"1\"", 10, Reason::ExpectedNumber),
        ("le(0,2) prefix \"1\"", 8, Reason::ExpectedNumber),
        ("bytes(0) = \"1\"", 7, Reason::ExpectedComma),
        ("bytes(65536,1) = \"1\"", 6, Reason::ExpectedPlace),
        ("bytes 0,1) = \"1\"", 6, Reason::ExpectedColumnOpen),
        ("bytes(0,1 = \"1\"", 10, Reason::ExpectedColumnClose),
    ] {
        let error = check(predicate.as_bytes()).unwrap_err();
        assert_eq!(
            (error.offset, error.reason),
            (offset, reason),
            "{predicate}"
        );
    }
    // A record size belongs to records of a fixed size, a delimiter to the others.
    let mut lines = encoded(Records::Lines { delimiter: b';' }, "col(0) = 1").unwrap();
    lines[12] = 1;
    assert_eq!(Parameters::parse(&lines), Err(ParametersError::Reserved));
    let mut fixed = encoded(Records::Fixed { size: 5 }, "col(0) = 1").unwrap();
    fixed[9] = b';';
    assert_eq!(Parameters::parse(&fixed), Err(ParametersError::Reserved));
    fixed[9] = 0;
    fixed[8] = 3;
    assert_eq!(Parameters::parse(&fixed), Err(ParametersError::Format(3)));
}

proptest! {
    #[test]
    fn any_table_in_any_chunks_keeps_what_it_should(
        table in prop::collection::vec(0u8..4, 0..200),
        size in 1u32..20,
        cuts in prop::collection::vec(0usize..200, 0..6),
        room in 1usize..30,
    ) {
        let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(table.len())).collect();
        cuts.extend([0, table.len()]);
        cuts.sort_unstable();
        let chunks: Vec<&[u8]> = cuts.windows(2).map(|pair| &table[pair[0]..pair[1]]).collect();
        let expected: Vec<u8> = table
            .chunks(size as usize)
            .filter(|record| record[0] > 1)
            .flatten()
            .copied()
            .collect();
        let result = filtered(Records::Fixed { size }, "le(0,1) > 1", &chunks, room);
        prop_assert_eq!(result, expected);
    }
}
