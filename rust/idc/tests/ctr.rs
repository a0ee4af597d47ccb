// SPDX-License-Identifier: GPL-2.0 OR MIT

//! `encrypt` and `decrypt` against NIST's vectors and against the `ctr` crate.

mod stream;

use aes::cipher::{KeyIvInit, StreamCipher, StreamCipherSeek};
use idc::function::{
    ctr, CipherParameters, CryptoError, FunctionError, NoCrypto, Outcome, Parameters,
};
use proptest::prelude::*;
use stream::{all_cuts, cut, encode, hex, pairs, run, Aes256Ctr, Library};

struct Nist {
    key: [u8; 32],
    iv: [u8; 16],
    plaintext: Vec<u8>,
    ciphertext: Vec<u8>,
}

fn nist() -> Nist {
    let field = |name: &str| {
        pairs(include_str!("../../../tests/vectors/aes256-ctr.txt"))
            .find(|(left, _)| *left == name)
            .map(|(_, right)| hex(right))
            .expect("the vector has this field")
    };
    Nist {
        key: field("key").try_into().expect("32 bytes"),
        iv: field("iv").try_into().expect("16 bytes"),
        plaintext: field("plaintext"),
        ciphertext: field("ciphertext"),
    }
}

fn cipher(key_slot: u16, offset: u64, iv: [u8; 16]) -> CipherParameters {
    CipherParameters {
        key_slot,
        offset,
        iv,
    }
}

#[test]
fn nist_f_5_5_encrypts_wherever_it_is_cut() {
    let nist = nist();
    let parameters = encode(&Parameters::Encrypt(cipher(3, 0, nist.iv)));
    let mut crypto = Library::with_key(3, nist.key);
    for first in 0..=nist.plaintext.len() {
        for second in 0..=nist.plaintext.len() - first {
            let chunks = cut(&nist.plaintext, &[first, second]);
            let (output, outcome) = run(&parameters, &chunks, 23, &mut crypto).unwrap();
            assert_eq!(output, nist.ciphertext);
            assert_eq!(outcome, Outcome::Cipher { bytes: 64 });
        }
    }
}

#[test]
fn nist_f_5_6_decrypts_wherever_it_is_cut() {
    let nist = nist();
    let parameters = encode(&Parameters::Decrypt(cipher(0, 0, nist.iv)));
    let mut crypto = Library::with_key(0, nist.key);
    for chunks in all_cuts(&nist.ciphertext[..12]) {
        let (output, _) = run(&parameters, &chunks, 5, &mut crypto).unwrap();
        assert_eq!(output, nist.plaintext[..12]);
    }
    let (output, _) = run(&parameters, &[&nist.ciphertext], 64, &mut crypto).unwrap();
    assert_eq!(output, nist.plaintext);
}

#[test]
fn a_part_of_the_stream_decrypts_from_its_offset_alone() {
    let nist = nist();
    let mut crypto = Library::with_key(0, nist.key);
    for offset in 0..64 {
        for end in offset..=64 {
            let mut part = nist.ciphertext[offset..end].to_vec();
            ctr::apply(&mut crypto, 0, &nist.iv, offset as u64, &mut part).unwrap();
            assert_eq!(part, nist.plaintext[offset..end]);

            let parameters = encode(&Parameters::Encrypt(cipher(0, offset as u64, nist.iv)));
            let (output, outcome) = run(
                &parameters,
                &[&nist.plaintext[offset..end]],
                64,
                &mut crypto,
            )
            .unwrap();
            assert_eq!(output, nist.ciphertext[offset..end]);
            let bytes = (end - offset) as u64;
            assert_eq!(outcome, Outcome::Cipher { bytes });
        }
    }
}

#[test]
fn an_aligned_chunk_takes_one_call_of_the_cipher_and_an_unaligned_one_two() {
    let nist = nist();
    let mut crypto = Library::with_key(0, nist.key);
    let mut data = [0; 64];
    ctr::apply(&mut crypto, 0, &nist.iv, 32, &mut data).unwrap();
    assert_eq!(crypto.calls, 1);
    ctr::apply(&mut crypto, 0, &nist.iv, 33, &mut data).unwrap();
    assert_eq!(crypto.calls, 3);
    ctr::apply(&mut crypto, 0, &nist.iv, 33, &mut []).unwrap();
    assert_eq!(crypto.calls, 3);
}

#[test]
fn the_counter_carries_across_64_bits_and_wraps_at_128() {
    let key = [7; 32];
    let mut crypto = Library::with_key(0, key);
    for iv in [
        u128::from(u64::MAX) - 1,
        u128::from(u64::MAX),
        u128::MAX - 1,
        u128::MAX,
    ] {
        let iv = iv.to_be_bytes();
        let mut expected = [0x11; 80];
        Aes256Ctr::new(&key.into(), &iv.into()).apply_keystream(&mut expected);
        for cut_at in 0..80 {
            let mut data = [0x11; 80];
            let (head, tail) = data.split_at_mut(cut_at);
            ctr::apply(&mut crypto, 0, &iv, cut_at as u64, tail).unwrap();
            ctr::apply(&mut crypto, 0, &iv, 0, head).unwrap();
            assert_eq!(data, expected, "iv {iv:02x?}, cut at {cut_at}");
        }
    }
}

#[test]
fn an_empty_key_slot_is_an_error_of_the_stream() {
    let parameters = encode(&Parameters::Encrypt(cipher(1, 0, [0; 16])));
    let no_key = Err(FunctionError::Crypto(CryptoError::NoKey));
    assert_eq!(run(&parameters, &[b"text"], 9, &mut NoCrypto), no_key);
    let mut crypto = Library::with_key(2, [0; 32]);
    assert_eq!(run(&parameters, &[b"text"], 9, &mut crypto), no_key);
}

#[test]
fn a_stream_may_end_at_the_last_offset_but_not_pass_it() {
    let parameters = encode(&Parameters::Encrypt(cipher(0, u64::MAX - 3, [9; 16])));
    let mut crypto = Library::with_key(0, [1; 32]);
    assert!(run(&parameters, &[b"abc"], 9, &mut crypto).is_ok());
    assert_eq!(
        run(&parameters, &[b"abcd"], 9, &mut crypto),
        Err(FunctionError::OffsetOverflow)
    );
}

proptest! {
    #[test]
    fn any_part_at_any_offset_is_what_the_ctr_crate_makes_of_it(
        key: [u8; 32],
        iv: [u8; 16],
        // The crate cannot seek to the last bytes of its 2^132, we cannot go beyond 2^64.
        offset in 0..u64::MAX - 1000,
        data in proptest::collection::vec(any::<u8>(), 0..200),
        cuts in proptest::collection::vec(0usize..50, 0..6),
        room in 1usize..70,
    ) {
        let mut expected = data.clone();
        let mut reference = Aes256Ctr::new(&key.into(), &iv.into());
        reference.seek(offset);
        reference.apply_keystream(&mut expected);

        let mut crypto = Library::with_key(0, key);
        let parameters = encode(&Parameters::Encrypt(cipher(0, offset, iv)));
        let (output, _) = run(&parameters, &cut(&data, &cuts), room, &mut crypto).unwrap();
        prop_assert_eq!(output, expected);
    }
}
