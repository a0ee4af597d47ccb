// SPDX-License-Identifier: GPL-2.0 OR MIT

//! What the tests of functions share: a caller that cuts a stream into chunks, a cipher from a
//! library, and readers of tests/vectors. Never holds an expected value.

// Every test file compiles this anew and uses a part of it.
#![allow(dead_code)]

use aes::cipher::{KeyIvInit, StreamCipher};
use idc::function::filter::MAX_RECORD_LEN;
use idc::function::{
    Crypto, CryptoError, FilterParameters, Function, FunctionError, FunctionState, Outcome,
    Parameters, Status,
};
use std::collections::HashMap;
use zerocopy::FromZeros;

/// AES-256-CTR with a 128-bit big-endian counter, by RustCrypto.
pub type Aes256Ctr = ctr::Ctr128BE<aes::Aes256>;

/// A [`Crypto`] over RustCrypto.
#[derive(Default)]
pub struct Library {
    pub keys: HashMap<u16, [u8; 32]>,
    pub calls: usize,
}

impl Library {
    pub fn with_key(slot: u16, key: [u8; 32]) -> Self {
        Self {
            keys: [(slot, key)].into(),
            calls: 0,
        }
    }
}

impl Crypto for Library {
    fn aes256_ctr(
        &mut self,
        key_slot: u16,
        counter_block: &[u8; 16],
        data: &mut [u8],
    ) -> Result<(), CryptoError> {
        self.calls += 1;
        let key = self.keys.get(&key_slot).ok_or(CryptoError::NoKey)?;
        Aes256Ctr::new(key.into(), counter_block.into()).apply_keystream(data);
        Ok(())
    }
}

/// Encoded parameters.
pub fn encode(parameters: &Parameters<'_>) -> Vec<u8> {
    let mut bytes = vec![0; parameters.encoded_len()];
    assert_eq!(parameters.encode(&mut bytes), Ok(bytes.len()));
    bytes
}

/// Encoded parameters of a filter.
pub fn filter(delimiter: u8, predicate: &str) -> Vec<u8> {
    encode(&Parameters::Filter(FilterParameters::lines(
        delimiter,
        predicate.as_bytes(),
    )))
}

/// Runs a function over `chunks`, with room for `room` bytes of output at a time.
///
/// Like a drive, it hands on what it has, keeps what was not consumed for the next call, and says
/// `last` only with the last chunk.
pub fn run(
    parameters: &[u8],
    chunks: &[&[u8]],
    room: usize,
    crypto: &mut dyn Crypto,
) -> Result<(Vec<u8>, Outcome), FunctionError> {
    let mut state = FunctionState::new_box_zeroed().expect("memory");
    state.start(parameters).expect("good parameters");
    let mut scratch = vec![0xa5; idc::function::scratch_len(parameters).expect("good parameters")];
    let mut output = Vec::new();
    let mut chunks = chunks.iter();
    let mut input = Vec::new();
    let mut last = false;
    loop {
        // Garbage where nothing was produced must not matter.
        let mut piece = vec![0x5a; room];
        let step = state.step(&mut scratch, &input, last, &mut piece, crypto)?;
        assert!(step.produced <= room && step.consumed <= input.len());
        output.extend_from_slice(&piece[..step.produced]);
        input.drain(..step.consumed);
        match step.status {
            Status::NeedInput => {
                assert!(!last && input.is_empty());
                match chunks.next() {
                    Some(chunk) => input.extend_from_slice(chunk),
                    None => last = true,
                }
                last |= chunks.len() == 0;
            }
            Status::NeedOutput => assert!(step.produced > 0, "no progress with room for output"),
            Status::Done => {
                assert!(last && input.is_empty());
                return Ok((output, state.result()));
            }
        }
    }
}

/// Runs a filter over a whole stream at once.
pub fn filtered(delimiter: u8, predicate: &str, table: &[u8]) -> Vec<u8> {
    let parameters = filter(delimiter, predicate);
    run(
        &parameters,
        &[table],
        table.len() + 1,
        &mut idc::function::NoCrypto,
    )
    .expect("no long records")
    .0
}

/// All ways to cut `bytes` into pieces that are not empty.
pub fn all_cuts(bytes: &[u8]) -> impl Iterator<Item = Vec<&[u8]>> {
    let places = bytes.len().saturating_sub(1);
    (0u32..1 << places).map(move |cut_after| {
        let mut pieces = Vec::new();
        let mut start = 0;
        for place in 0..places {
            if (cut_after >> place) & 1 != 0 {
                pieces.push(&bytes[start..=place]);
                start = place + 1;
            }
        }
        pieces.push(&bytes[start..]);
        pieces
    })
}

/// Cuts `bytes` after each of `lengths` in turn; the rest is the last piece.
pub fn cut<'a>(bytes: &'a [u8], lengths: &[usize]) -> Vec<&'a [u8]> {
    let mut rest = bytes;
    let mut pieces = Vec::new();
    for &len in lengths {
        let (piece, after) = rest.split_at(len.min(rest.len()));
        pieces.push(piece);
        rest = after;
    }
    pieces.push(rest);
    pieces
}

/// The `left = right` lines of a vector file.
pub fn pairs(vectors: &'static str) -> impl Iterator<Item = (&'static str, &'static str)> {
    vectors
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(|line| {
            let (left, right) = line
                .split_once('=')
                .expect("a line of a vector file has a =");
            (left.trim(), right.trim())
        })
}

/// The bytes that hexadecimal digits stand for.
pub fn hex(digits: &str) -> Vec<u8> {
    assert!(digits.len() % 2 == 0);
    (0..digits.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&digits[at..at + 2], 16).expect("hexadecimal digits"))
        .collect()
}

/// The longest record, as tests spell it: the issue says 64 KiB.
pub const LONGEST: usize = 64 * 1024;
const _: () = assert!(LONGEST == MAX_RECORD_LEN);
