// SPDX-License-Identifier: GPL-2.0 OR MIT

//! The `encrypt` and `decrypt` functions: AES-256 in counter mode (NIST SP 800-38A, section 6.5).
//!
//! Owns the arithmetic of the counter: which counter block belongs to which byte of a stream. It
//! never sees a key and never runs a cipher; those are behind [`Crypto`].
//!
//! The counter block of the byte at stream offset `o` is `IV + o / 16`, as a 128-bit big-endian
//! number that wraps, and the byte is XORed with byte `o % 16` of the encrypted block. So every
//! byte's keystream follows from its offset alone, chunks may be cut anywhere and taken in any
//! order, and decryption is encryption again.

use super::options::CipherParameters;
use super::{Crypto, CryptoError, Function, FunctionError, Outcome, Step};
use zerocopy_derive::{FromZeros, Immutable, KnownLayout};

/// The size of an AES block and of a counter block, in bytes.
pub const BLOCK_LEN: usize = 16;

/// [`BLOCK_LEN`] as stream offsets are counted.
const BLOCK: u64 = BLOCK_LEN as u64;

/// The counter block for the 16 bytes that hold stream offset `offset`.
pub fn counter_block(iv: &[u8; BLOCK_LEN], offset: u64) -> [u8; BLOCK_LEN] {
    u128::from_be_bytes(*iv)
        .wrapping_add(u128::from(offset / BLOCK))
        .to_be_bytes()
}

/// Encrypts or decrypts `data`, the part of a stream that begins at stream offset `offset`, in place.
///
/// # Errors
/// What `crypto` returns. `data` is then garbage, in part or as a whole.
pub fn apply(
    crypto: &mut dyn Crypto,
    key_slot: u16,
    iv: &[u8; BLOCK_LEN],
    offset: u64,
    data: &mut [u8],
) -> Result<(), CryptoError> {
    let skip = (offset % BLOCK) as usize;
    // How far `offset` is from the next block boundary: 0 where it is on one.
    let to_boundary = BLOCK_LEN.wrapping_sub(skip) % BLOCK_LEN;
    let (head, aligned) = match data.split_at_mut_checked(to_boundary) {
        Some(parts) => parts,
        None => (data, &mut [] as &mut [u8]),
    };
    if !head.is_empty() {
        // The cipher only starts at block boundaries: give it the whole block, keep our part.
        let mut block = [0u8; BLOCK_LEN];
        for (inside, byte) in block.iter_mut().skip(skip).zip(head.iter()) {
            *inside = *byte;
        }
        crypto.aes256_ctr(key_slot, &counter_block(iv, offset), &mut block)?;
        for (byte, inside) in head.iter_mut().zip(block.iter().skip(skip)) {
            *byte = *inside;
        }
    }
    if aligned.is_empty() {
        return Ok(());
    }
    // `offset / 16 + 1` cannot be had from the sum of the offsets where that passes 2^64.
    let mut counter = counter_block(iv, offset);
    if to_boundary != 0 {
        counter = counter_block(&counter, BLOCK);
    }
    crypto.aes256_ctr(key_slot, &counter, aligned)
}

/// A stream being encrypted or decrypted.
#[derive(FromZeros, Immutable, KnownLayout)]
#[repr(C)]
pub struct Cipher {
    iv: [u8; BLOCK_LEN],
    /// Stream offset of the next byte.
    offset: u64,
    /// Bytes done since the start, which may have been at an offset other than 0.
    bytes: u64,
    key_slot: u16,
    reserved: [u8; 6],
}

impl Cipher {
    /// Begins a new stream, or a new part of one.
    pub fn start(&mut self, parameters: &CipherParameters) {
        self.iv = parameters.iv;
        self.offset = parameters.offset;
        self.bytes = 0;
        self.key_slot = parameters.key_slot;
        self.reserved = [0; 6];
    }
}

impl Function for Cipher {
    fn step(
        &mut self,
        _scratch: &mut [u8],
        input: &[u8],
        last: bool,
        output: &mut [u8],
        crypto: &mut dyn Crypto,
    ) -> Result<Step, FunctionError> {
        let passed = super::pass(input, output).len();
        let offset = super::advance(self.offset, passed)?;
        if let Some(data) = output.get_mut(..passed) {
            apply(crypto, self.key_slot, &self.iv, self.offset, data)?;
        }
        self.offset = offset;
        // Never more than the offset grew, so this does not wrap either.
        self.bytes = self.bytes.wrapping_add(passed as u64);
        Ok(Step::passed(passed, input, last))
    }

    fn result(&self) -> Outcome {
        Outcome::Cipher { bytes: self.bytes }
    }
}
