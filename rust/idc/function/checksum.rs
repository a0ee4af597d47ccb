// SPDX-License-Identifier: GPL-2.0 OR MIT

//! The `checksum` function: passes the stream on unchanged and keeps its CRC-32C and length.
//!
//! Owns the running digest of one stream; the arithmetic is [`super::crc32c`]'s.

use super::{crc32c, Crypto, Function, FunctionError, Outcome, Step};
use zerocopy_derive::{FromZeros, Immutable, KnownLayout};

/// A stream being summed. All zero is the state before the first byte.
#[derive(FromZeros, Immutable, KnownLayout)]
#[repr(C)]
pub struct Checksum {
    bytes: u64,
    crc32c: u32,
    reserved: u32,
}

impl Checksum {
    /// Begins a new stream.
    pub fn start(&mut self) {
        self.bytes = 0;
        self.crc32c = 0;
        self.reserved = 0;
    }
}

impl Function for Checksum {
    fn step(
        &mut self,
        _scratch: &mut [u8],
        input: &[u8],
        last: bool,
        output: &mut [u8],
        _crypto: &mut dyn Crypto,
    ) -> Result<Step, FunctionError> {
        let passed = super::pass(input, output);
        let bytes = super::advance(self.bytes, passed.len())?;
        self.crc32c = crc32c::update(self.crc32c, passed);
        self.bytes = bytes;
        Ok(Step::passed(passed.len(), input, last))
    }

    fn result(&self) -> Outcome {
        Outcome::Checksum {
            crc32c: self.crc32c,
            bytes: self.bytes,
        }
    }
}
