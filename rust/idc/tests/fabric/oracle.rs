// SPDX-License-Identifier: GPL-2.0 OR MIT

//! What a pipeline must come to, computed in the plainest way and without any code of ours.

use super::rng::Rng;
use aes::cipher::{KeyIvInit, StreamCipher};
use idc::function::{CipherParameters, FilterParameters, Parameters};

pub const KEY: [u8; 32] = *b"0123456789abcdef0123456789abcdef";
pub const IV: [u8; 16] = [0xff; 16];

/// Lines like UnicodeData's: number, name, category, a filler of random length.
pub fn table(records: usize, seed: u64) -> Vec<u8> {
    let mut rng = Rng::new(seed);
    let mut data = Vec::new();
    for record in 0..records {
        let category = ["Lu", "Ll", "Nd", "L"][rng.below(4)];
        let filler = "x".repeat(rng.below(60));
        data.extend_from_slice(
            format!("{record:04X};NAME {record};{category};{filler}\n").as_bytes(),
        );
    }
    data
}

/// Records whose third column is `category`, each with a newline.
pub fn filter(data: &[u8], category: &str) -> Vec<u8> {
    let text = std::str::from_utf8(data).unwrap();
    let mut out = String::new();
    for line in text.lines() {
        if line.split(';').nth(2) == Some(category) {
            out.push_str(line);
            out.push('\n');
        }
    }
    out.into_bytes()
}

pub fn encrypt(data: &[u8]) -> Vec<u8> {
    let mut out = data.to_vec();
    ctr::Ctr128BE::<aes::Aes256>::new(&KEY.into(), &IV.into()).apply_keystream(&mut out);
    out
}

fn encode(parameters: &Parameters<'_>) -> Vec<u8> {
    let mut bytes = vec![0; parameters.encoded_len()];
    parameters.encode(&mut bytes).unwrap();
    bytes
}

pub fn filter_params(predicate: &str) -> Vec<u8> {
    encode(&Parameters::Filter(FilterParameters::lines(
        b';',
        predicate.as_bytes(),
    )))
}

pub fn encrypt_params(key_slot: u16) -> Vec<u8> {
    encode(&Parameters::Encrypt(CipherParameters {
        key_slot,
        offset: 0,
        iv: IV,
    }))
}

pub fn decrypt_params(key_slot: u16) -> Vec<u8> {
    encode(&Parameters::Decrypt(CipherParameters {
        key_slot,
        offset: 0,
        iv: IV,
    }))
}

pub fn checksum_params() -> Vec<u8> {
    encode(&Parameters::Checksum)
}
