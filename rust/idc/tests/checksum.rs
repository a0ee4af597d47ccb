// SPDX-License-Identifier: GPL-2.0 OR MIT

//! CRC-32C against RFC 3720's examples and against long division, and `checksum` as a stage.

mod stream;

use idc::function::{crc32c, NoCrypto, Outcome, Parameters};
use proptest::prelude::*;
use stream::{all_cuts, encode, hex, pairs, run};

/// CRC-32C as the RFC defines it: the remainder of a division of polynomials, a bit at a time, not
/// reflected.
fn by_division(data: &[u8]) -> u32 {
    let mut remainder = u32::MAX;
    for byte in data {
        for bit in 0..8 {
            let feedback = (remainder >> 31) ^ u32::from((byte >> bit) & 1);
            remainder <<= 1;
            if feedback != 0 {
                remainder ^= 0x1edc_6f41;
            }
        }
    }
    !remainder.reverse_bits()
}

#[test]
fn the_examples_of_rfc_3720_come_out() {
    let mut seen = 0;
    for (data, crc) in pairs(include_str!("../../../tests/vectors/crc32c.txt")) {
        let crc = u32::from_str_radix(crc, 16).unwrap();
        assert_eq!(crc32c::update(0, &hex(data)), crc, "{data}");
        seen += 1;
    }
    assert_eq!(seen, 6);
}

#[test]
fn checksum_passes_the_stream_on_and_keeps_digest_and_length_wherever_it_is_cut() {
    let parameters = encode(&Parameters::Checksum);
    for chunks in all_cuts(b"123456789") {
        for room in [1, 4, 100] {
            let (output, outcome) = run(&parameters, &chunks, room, &mut NoCrypto).unwrap();
            assert_eq!(output, b"123456789");
            let (crc32c, bytes) = (0xe306_9283, 9);
            assert_eq!(outcome, Outcome::Checksum { crc32c, bytes });
        }
    }
}

#[test]
fn checksum_of_an_empty_stream_is_0() {
    let parameters = encode(&Parameters::Checksum);
    let (output, outcome) = run(&parameters, &[], 1, &mut NoCrypto).unwrap();
    assert!(output.is_empty());
    let (crc32c, bytes) = (0, 0);
    assert_eq!(outcome, Outcome::Checksum { crc32c, bytes });
}

proptest! {
    #[test]
    fn the_tables_agree_with_long_division(data: Vec<u8>, cut: prop::sample::Index) {
        let (head, tail) = data.split_at(cut.index(data.len() + 1));
        let crc = crc32c::update(crc32c::update(0, head), tail);
        prop_assert_eq!(crc, by_division(&data));
    }
}
