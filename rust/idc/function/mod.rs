// SPDX-License-Identifier: GPL-2.0 OR MIT

//! The functions that a drive applies to a stream of data: filter, encrypt, decrypt, checksum.
//!
//! A function is a state machine in the manner of zlib's `inflate`: it is handed what input there
//! is and what room there is for output, takes what it can, says how far it came and what it waits
//! for, and is called again. It may be cut off at any byte, so a stream may come in chunks of any
//! sizes, and what comes out never depends on where the cuts were.
//!
//! This module owns that interface ([`Function`], [`Step`], [`Crypto`]), its errors and its
//! outcomes. It never allocates, never sleeps, never touches a key, and never knows where input
//! and output live.

pub mod checksum;
pub mod crc32c;
pub mod ctr;
pub mod filter;
pub mod options;
pub mod registry;
pub mod state;

pub use options::{CipherParameters, FilterParameters, Parameters, ParametersError, Records};
pub use registry::{FunctionId, Functions, UnknownFunction};
pub use state::{scratch_len, FunctionState};

use core::fmt;

/// What a function waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Everything was consumed: call again with more input, or with `last` once there is no more.
    NeedInput,
    /// The output is full: call again with what was not consumed and with more room.
    NeedOutput,
    /// The stream is at its end: `last` was given, all input is consumed and all output produced.
    Done,
}

/// How far one call of [`Function::step`] came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct Step {
    /// Bytes of the input that were used up. The next call begins after them.
    pub consumed: usize,
    /// Bytes of the output that were filled, from its start.
    pub produced: usize,
    /// What the function waits for.
    pub status: Status,
}

impl Step {
    /// The step of a function whose output is as long as its input.
    fn passed(passed: usize, input: &[u8], last: bool) -> Self {
        let status = if passed < input.len() {
            Status::NeedOutput
        } else if last {
            Status::Done
        } else {
            Status::NeedInput
        };
        Self {
            consumed: passed,
            produced: passed,
            status,
        }
    }
}

/// Copies as much of `input` as fits to the start of `output` and returns that part of the input.
fn pass<'a>(input: &'a [u8], output: &mut [u8]) -> &'a [u8] {
    let len = input.len().min(output.len());
    match (input.get(..len), output.get_mut(..len)) {
        (Some(from), Some(to)) => {
            to.copy_from_slice(from);
            from
        }
        _ => &[],
    }
}

/// Moves a stream offset on by `bytes`. An offset has 64 bits, and so has a stream's length.
fn advance(offset: u64, bytes: usize) -> Result<u64, FunctionError> {
    offset
        .checked_add(bytes as u64)
        .ok_or(FunctionError::OffsetOverflow)
}

/// A function at work on one stream.
pub trait Function {
    /// Works on `input` until it, or the room in `output`, is used up.
    ///
    /// `input` begins with the first byte that no earlier call consumed. `last` says that nothing
    /// follows `input`; once given, it is given in every later call. `scratch` is memory that the
    /// function may keep data in between calls, [`scratch_len`] bytes or more, the same in every
    /// call and not touched by others in between. With `output` of at least one byte every call
    /// that returns [`Status::NeedOutput`] has made progress.
    ///
    /// # Errors
    /// The stream cannot be continued, and what the call left in `output` is void.
    fn step(
        &mut self,
        scratch: &mut [u8],
        input: &[u8],
        last: bool,
        output: &mut [u8],
        crypto: &mut dyn Crypto,
    ) -> Result<Step, FunctionError>;

    /// What came of the stream so far; final after [`Status::Done`].
    fn result(&self) -> Outcome;
}

/// The cipher behind `encrypt` and `decrypt`, supplied by whoever hosts the function: the kernel's
/// crypto API, a library, an engine of the drive. Keys stay behind it.
pub trait Crypto {
    /// XORs `data` with the AES-256-CTR keystream of the key in slot `key_slot`.
    ///
    /// The first 16 bytes of `data` go with the encryption of `counter_block`, the next 16 with
    /// that of `counter_block + 1` and so on; the counter is all 128 bits, big endian, and wraps.
    /// The length of `data` need not be a multiple of 16.
    ///
    /// # Errors
    /// - [`CryptoError::NoKey`]: the slot does not exist or holds no key.
    /// - [`CryptoError::Failed`]: the cipher could not be run.
    fn aes256_ctr(
        &mut self,
        key_slot: u16,
        counter_block: &[u8; ctr::BLOCK_LEN],
        data: &mut [u8],
    ) -> Result<(), CryptoError>;
}

/// Why a [`Crypto`] did not do its work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CryptoError {
    /// The key slot does not exist or holds no key.
    NoKey,
    /// The cipher could not be run.
    Failed,
}

impl fmt::Display for CryptoError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoKey => "the key slot holds no key",
            Self::Failed => "the cipher could not be run",
        })
    }
}

impl core::error::Error for CryptoError {}

/// The [`Crypto`] of a host that has no cipher: every slot is empty.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoCrypto;

impl Crypto for NoCrypto {
    fn aes256_ctr(
        &mut self,
        _key_slot: u16,
        _counter_block: &[u8; ctr::BLOCK_LEN],
        _data: &mut [u8],
    ) -> Result<(), CryptoError> {
        Err(CryptoError::NoKey)
    }
}

/// Why a stream cannot be continued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FunctionError {
    /// The function was not started.
    NotStarted,
    /// The stream was already at its end, or had already failed.
    Ended,
    /// The scratch memory is smaller than [`scratch_len`] says.
    Scratch,
    /// A record is longer than [`filter::MAX_RECORD_LEN`].
    RecordTooLong {
        /// Where in the function's input the record begins, in bytes from the start of the stream.
        offset: u64,
    },
    /// The stream would reach beyond offset 2^64 - 1.
    OffsetOverflow,
    /// The cipher did not do its work.
    Crypto(CryptoError),
}

impl FunctionError {
    /// The number that stands for the kind of error on the wire; never 0.
    pub const fn code(self) -> u16 {
        match self {
            Self::NotStarted => 1,
            Self::Ended => 2,
            Self::Scratch => 3,
            Self::RecordTooLong { .. } => 4,
            Self::OffsetOverflow => 5,
            Self::Crypto(CryptoError::NoKey) => 6,
            Self::Crypto(CryptoError::Failed) => 7,
        }
    }

    /// What goes with [`Self::code`]: the offset of a record that is too long, else 0.
    pub const fn detail(self) -> u64 {
        match self {
            Self::RecordTooLong { offset } => offset,
            _ => 0,
        }
    }

    /// The error that a peer reports with a code and its detail, if the code is known.
    pub const fn from_wire(code: u16, detail: u64) -> Option<Self> {
        Some(match code {
            1 => Self::NotStarted,
            2 => Self::Ended,
            3 => Self::Scratch,
            4 => Self::RecordTooLong { offset: detail },
            5 => Self::OffsetOverflow,
            6 => Self::Crypto(CryptoError::NoKey),
            7 => Self::Crypto(CryptoError::Failed),
            _ => return None,
        })
    }
}

impl fmt::Display for FunctionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotStarted => f.write_str("the function was not started"),
            Self::Ended => f.write_str("the stream is at its end"),
            Self::Scratch => f.write_str("the scratch memory is too small"),
            Self::RecordTooLong { offset } => write!(
                f,
                "the record at offset {offset} is longer than {} bytes",
                filter::MAX_RECORD_LEN
            ),
            Self::OffsetOverflow => f.write_str("the stream reaches beyond offset 2^64 - 1"),
            Self::Crypto(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for FunctionError {}

impl From<CryptoError> for FunctionError {
    fn from(error: CryptoError) -> Self {
        Self::Crypto(error)
    }
}

/// What came of a stream, besides its output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing: no function was started.
    None,
    /// Of `filter`.
    Filter {
        /// Records read.
        records_in: u64,
        /// Records that matched.
        records_out: u64,
    },
    /// Of `encrypt` and `decrypt`.
    Cipher {
        /// Bytes encrypted or decrypted.
        bytes: u64,
    },
    /// Of `checksum`.
    Checksum {
        /// The CRC-32C of the stream.
        crc32c: u32,
        /// The length of the stream in bytes.
        bytes: u64,
    },
}

impl Outcome {
    /// The two numbers that stand for the outcome on the wire, beside the function's id.
    pub fn to_wire(self) -> [u64; 2] {
        match self {
            Self::None => [0, 0],
            Self::Filter {
                records_in,
                records_out,
            } => [records_in, records_out],
            Self::Cipher { bytes } => [bytes, 0],
            Self::Checksum { crc32c, bytes } => [bytes, u64::from(crc32c)],
        }
    }

    /// The outcome of `function` that `words` stand for.
    pub const fn from_wire(function: FunctionId, words: [u64; 2]) -> Self {
        let [first, second] = words;
        match function {
            FunctionId::Filter => Self::Filter {
                records_in: first,
                records_out: second,
            },
            FunctionId::Encrypt | FunctionId::Decrypt => Self::Cipher { bytes: first },
            FunctionId::Checksum => Self::Checksum {
                crc32c: second as u32,
                bytes: first,
            },
        }
    }
}
