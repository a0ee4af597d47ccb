// SPDX-License-Identifier: GPL-2.0 OR MIT

//! The parameters of a stage as they travel from the host to the drive that runs it.
//!
//! Owns their encoding. IDC specification, "Stage parameters". Little endian, no padding but the
//! reserved fields, which are 0:
//!
//! ```text
//! offset  size
//!      0     2  function           FunctionId
//!      2     1  version            1
//!      3     1  reserved
//!      4     2  length             of all of it, header included
//!      6     2  reserved
//!
//! filter
//!      8     1  format             1: records of text that end in newline; 2: of a fixed size
//!      9     1  delimiter          format 1: any byte but newline; format 2: 0
//!     10     2  predicate length   1..=1024
//!     12     4  record size        format 1: 0; format 2: 1..=65536 bytes
//!     16     n  predicate          in the language of filter::predicate
//!
//! encrypt, decrypt
//!      8     2  key slot
//!     10     6  reserved
//!     16     8  offset             stream offset of the first byte
//!     24    16  iv                 counter block of stream offset 0, big endian
//!
//! checksum: the header only
//! ```

use super::filter::predicate::{self, PredicateError, MAX_PREDICATE_LEN};
use super::filter::{MAX_RECORD_LEN, NEWLINE};
use super::FunctionId;
use core::fmt;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};
use zerocopy_derive::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The version of the encoding.
pub const VERSION: u8 = 1;

/// The longest encoded parameters, in bytes.
pub const MAX_PARAMETERS_LEN: usize =
    size_of::<RawHeader>() + size_of::<RawFilter>() + MAX_PREDICATE_LEN;

/// The record format "text that ends in newline".
const FORMAT_LINES: u8 = 1;
/// The record format "every record has the same size".
const FORMAT_FIXED: u8 = 2;

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawHeader {
    function: U16,
    version: u8,
    reserved3: u8,
    length: U16,
    reserved6: U16,
}
const _: () = assert!(size_of::<RawHeader>() == 8);

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawFilter {
    format: u8,
    delimiter: u8,
    predicate_len: U16,
    record_size: U32,
}
const _: () = assert!(size_of::<RawFilter>() == 8);

/// How `filter` cuts a stream into records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Records {
    /// At each newline.
    Lines {
        /// The byte between two columns; not a newline.
        delimiter: u8,
    },
    /// Every so many bytes.
    Fixed {
        /// Bytes of a record, 1 to [`MAX_RECORD_LEN`].
        size: u32,
    },
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawCipher {
    key_slot: U16,
    reserved10: [u8; 6],
    offset: U64,
    iv: [u8; 16],
}
const _: () = assert!(size_of::<RawCipher>() == 32);

/// Parameters of `filter`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FilterParameters<'a> {
    /// What a record is.
    pub records: Records,
    /// What a record must satisfy to be kept; the language is [`predicate`]'s.
    pub predicate: &'a [u8],
}

impl<'a> FilterParameters<'a> {
    /// Those of a table of lines.
    #[must_use]
    pub const fn lines(delimiter: u8, predicate: &'a [u8]) -> Self {
        Self {
            records: Records::Lines { delimiter },
            predicate,
        }
    }
}

/// Parameters of `encrypt` and `decrypt`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CipherParameters {
    /// Which of the member's key slots holds the key. Keys themselves never travel with parameters.
    pub key_slot: u16,
    /// Stream offset of the first byte, 0 unless the stream is a part of a longer one.
    pub offset: u64,
    /// The counter block of stream offset 0, a 128-bit big-endian number.
    pub iv: [u8; 16],
}

/// Parameters of a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parameters<'a> {
    /// Of [`FunctionId::Filter`].
    Filter(FilterParameters<'a>),
    /// Of [`FunctionId::Encrypt`].
    Encrypt(CipherParameters),
    /// Of [`FunctionId::Decrypt`].
    Decrypt(CipherParameters),
    /// Of [`FunctionId::Checksum`], which has none.
    Checksum,
}

/// What is wrong with parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParametersError {
    /// The bytes are not as many as the header or the function says.
    Length,
    /// The version is not [`VERSION`].
    Version(u8),
    /// There is no function with this wire value.
    Function(u16),
    /// A reserved field is not 0.
    Reserved,
    /// The record format is unknown.
    Format(u8),
    /// The delimiter is a newline, which ends records.
    Delimiter,
    /// The size of a record is 0 or more than [`MAX_RECORD_LEN`].
    RecordSize,
    /// The predicate is not one.
    Predicate(PredicateError),
    /// The buffer to encode into is shorter than [`Parameters::encoded_len`].
    Room,
}

impl fmt::Display for ParametersError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length => f.write_str("the parameters do not have the length that they state"),
            Self::Version(version) => write!(f, "parameters of unknown version {version}"),
            Self::Function(function) => write!(f, "there is no function {function}"),
            Self::Reserved => f.write_str("a reserved field of the parameters is not 0"),
            Self::Format(format) => write!(f, "unknown record format {format}"),
            Self::Delimiter => f.write_str("a newline ends records and cannot separate columns"),
            Self::RecordSize => f.write_str("a record has 1 to 65536 bytes"),
            Self::Predicate(error) => error.fmt(f),
            Self::Room => f.write_str("no room for the parameters"),
        }
    }
}

impl core::error::Error for ParametersError {}

impl From<PredicateError> for ParametersError {
    fn from(error: PredicateError) -> Self {
        Self::Predicate(error)
    }
}

impl<'a> Parameters<'a> {
    /// Whose parameters they are.
    pub const fn function(&self) -> FunctionId {
        match self {
            Self::Filter(_) => FunctionId::Filter,
            Self::Encrypt(_) => FunctionId::Encrypt,
            Self::Decrypt(_) => FunctionId::Decrypt,
            Self::Checksum => FunctionId::Checksum,
        }
    }

    /// Bytes that [`Self::encode`] writes, at most [`MAX_PARAMETERS_LEN`] if it succeeds.
    pub const fn encoded_len(&self) -> usize {
        let body = match self {
            Self::Filter(filter) => size_of::<RawFilter>().saturating_add(filter.predicate.len()),
            Self::Encrypt(_) | Self::Decrypt(_) => size_of::<RawCipher>(),
            Self::Checksum => 0,
        };
        size_of::<RawHeader>().saturating_add(body)
    }

    /// Writes the parameters to the start of `buffer` and returns how many bytes that took.
    ///
    /// # Errors
    /// - [`ParametersError::Room`]: the buffer is too short.
    /// - [`ParametersError::Delimiter`], [`ParametersError::RecordSize`],
    ///   [`ParametersError::Predicate`]: [`Self::parse`] would refuse them.
    pub fn encode(&self, buffer: &mut [u8]) -> Result<usize, ParametersError> {
        if let Self::Filter(filter) = self {
            validate_filter(filter)?;
        }
        let len = self.encoded_len();
        let header = RawHeader {
            function: self.function().to_wire().into(),
            version: VERSION,
            reserved3: 0,
            // At most MAX_PARAMETERS_LEN, the predicate having been looked at.
            length: U16::new(len as u16),
            reserved6: U16::ZERO,
        };
        let buffer = buffer.get_mut(..len).ok_or(ParametersError::Room)?;
        let body = put(&header, buffer)?;
        match self {
            Self::Filter(filter) => {
                let (format, delimiter, size) = match filter.records {
                    Records::Lines { delimiter } => (FORMAT_LINES, delimiter, 0),
                    Records::Fixed { size } => (FORMAT_FIXED, 0, size),
                };
                let raw = RawFilter {
                    format,
                    delimiter,
                    predicate_len: U16::new(filter.predicate.len() as u16),
                    record_size: size.into(),
                };
                put(filter.predicate, put(&raw, body)?)?;
            }
            Self::Encrypt(cipher) | Self::Decrypt(cipher) => {
                let raw = RawCipher {
                    key_slot: cipher.key_slot.into(),
                    reserved10: [0; 6],
                    offset: cipher.offset.into(),
                    iv: cipher.iv,
                };
                put(&raw, body)?;
            }
            Self::Checksum => (),
        }
        Ok(len)
    }

    /// Reads parameters that are all of `bytes`, and validates them: `bytes` may come from anybody,
    /// but must not change meanwhile.
    ///
    /// # Errors
    /// What is wrong with them.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, ParametersError> {
        let parameters = Self::parse_layout(bytes)?;
        if let Self::Filter(filter) = &parameters {
            validate_filter(filter)?;
        }
        Ok(parameters)
    }

    /// [`Self::parse`] less the predicate, for whoever is about to compile it anyway.
    pub(super) fn parse_layout(bytes: &'a [u8]) -> Result<Self, ParametersError> {
        let (header, body) = take::<RawHeader>(bytes)?;
        if header.version != VERSION {
            return Err(ParametersError::Version(header.version));
        }
        let function = FunctionId::from_wire(header.function.get())
            .ok_or(ParametersError::Function(header.function.get()))?;
        if header.reserved3 != 0 || header.reserved6 != U16::ZERO {
            return Err(ParametersError::Reserved);
        }
        if usize::from(header.length.get()) != bytes.len() {
            return Err(ParametersError::Length);
        }
        let (parameters, rest) = match function {
            FunctionId::Filter => {
                let (filter, rest) = parse_filter(body)?;
                (Self::Filter(filter), rest)
            }
            FunctionId::Encrypt => {
                let (cipher, rest) = parse_cipher(body)?;
                (Self::Encrypt(cipher), rest)
            }
            FunctionId::Decrypt => {
                let (cipher, rest) = parse_cipher(body)?;
                (Self::Decrypt(cipher), rest)
            }
            FunctionId::Checksum => (Self::Checksum, body),
        };
        if !rest.is_empty() {
            return Err(ParametersError::Length);
        }
        Ok(parameters)
    }
}

fn parse_filter(body: &[u8]) -> Result<(FilterParameters<'_>, &[u8]), ParametersError> {
    let (raw, text) = take::<RawFilter>(body)?;
    let records = match raw.format {
        FORMAT_LINES if raw.record_size == U32::ZERO => Records::Lines {
            delimiter: raw.delimiter,
        },
        FORMAT_FIXED if raw.delimiter == 0 => Records::Fixed {
            size: raw.record_size.get(),
        },
        FORMAT_LINES | FORMAT_FIXED => return Err(ParametersError::Reserved),
        format => return Err(ParametersError::Format(format)),
    };
    validate_records(records)?;
    let (predicate, rest) = text
        .split_at_checked(raw.predicate_len.get().into())
        .ok_or(ParametersError::Length)?;
    let filter = FilterParameters { records, predicate };
    Ok((filter, rest))
}

fn parse_cipher(body: &[u8]) -> Result<(CipherParameters, &[u8]), ParametersError> {
    let (raw, rest) = take::<RawCipher>(body)?;
    if raw.reserved10 != [0; 6] {
        return Err(ParametersError::Reserved);
    }
    let cipher = CipherParameters {
        key_slot: raw.key_slot.get(),
        offset: raw.offset.get(),
        iv: raw.iv,
    };
    Ok((cipher, rest))
}

fn validate_records(records: Records) -> Result<(), ParametersError> {
    match records {
        Records::Lines { delimiter: NEWLINE } => Err(ParametersError::Delimiter),
        Records::Fixed { size } if size == 0 || size as usize > MAX_RECORD_LEN => {
            Err(ParametersError::RecordSize)
        }
        _ => Ok(()),
    }
}

fn validate_filter(filter: &FilterParameters<'_>) -> Result<(), ParametersError> {
    validate_records(filter.records)?;
    predicate::check(filter.predicate)?;
    Ok(())
}

/// The `T` at the start of `bytes`, and what follows it.
fn take<T: FromBytes + Immutable + KnownLayout + Unaligned>(
    bytes: &[u8],
) -> Result<(&T, &[u8]), ParametersError> {
    T::ref_from_prefix(bytes).map_err(|_| ParametersError::Length)
}

/// Writes `value` to the start of `buffer` and returns the rest of it.
fn put<'b, T: IntoBytes + Immutable + ?Sized>(
    value: &T,
    buffer: &'b mut [u8],
) -> Result<&'b mut [u8], ParametersError> {
    let bytes = value.as_bytes();
    let (place, rest) = buffer
        .split_at_mut_checked(bytes.len())
        .ok_or(ParametersError::Room)?;
    place.copy_from_slice(bytes);
    Ok(rest)
}
