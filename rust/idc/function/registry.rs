// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Which functions there are: their numbers on the wire, their names, and sets of them.
//!
//! Owns the numbers and the names. What a function does is in its own module.

use core::fmt;
use core::str::FromStr;
use zerocopy_derive::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// A function that a drive can apply to a stream. IDC specification, "Functions".
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u16)]
pub enum FunctionId {
    /// Keeps the records of a table that match a predicate.
    Filter = 1,
    /// AES-256-CTR.
    Encrypt = 2,
    /// AES-256-CTR, the same operation as [`FunctionId::Encrypt`] under the name that says what it is for.
    Decrypt = 3,
    /// Passes the stream on and keeps its CRC-32C and length.
    Checksum = 4,
}

impl FunctionId {
    /// Every function, in the order of the wire values.
    pub const ALL: [Self; 4] = [Self::Filter, Self::Encrypt, Self::Decrypt, Self::Checksum];

    /// The function with the wire value `value`, if there is one.
    pub fn from_wire(value: u16) -> Option<Self> {
        Self::ALL.into_iter().find(|id| id.to_wire() == value)
    }

    /// The value that stands for the function on the wire; 1..=31, never 0.
    pub const fn to_wire(self) -> u16 {
        self as u16
    }

    /// The name by which users and other programs know the function.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Filter => "filter",
            Self::Encrypt => "encrypt",
            Self::Decrypt => "decrypt",
            Self::Checksum => "checksum",
        }
    }

    /// This function's bit in a [`Functions`].
    const fn bit(self) -> u32 {
        1u32.wrapping_shl(self.to_wire() as u32)
    }
}

impl fmt::Display for FunctionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// No function has the name that was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownFunction;

impl fmt::Display for UnknownFunction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no such function; there are {}", Functions::ALL)
    }
}

impl core::error::Error for UnknownFunction {}

impl FromStr for FunctionId {
    type Err = UnknownFunction;

    fn from_str(name: &str) -> Result<Self, UnknownFunction> {
        Self::ALL
            .into_iter()
            .find(|id| id.name() == name)
            .ok_or(UnknownFunction)
    }
}

/// A set of functions, as a drive advertises it: bit `n` stands for the function with wire value `n`.
///
/// In memory it is the CPU's own `u32`; [`Functions::from_wire`] and [`Functions::to_wire`] stand
/// between it and a little-endian field.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(transparent)]
pub struct Functions(u32);

impl Functions {
    /// The empty set.
    pub const NONE: Self = Self(0);

    /// Every function that this crate implements.
    pub const ALL: Self = Self::NONE
        .with(FunctionId::Filter)
        .with(FunctionId::Encrypt)
        .with(FunctionId::Decrypt)
        .with(FunctionId::Checksum);

    /// This set and `id`.
    #[must_use]
    pub const fn with(self, id: FunctionId) -> Self {
        Self(self.0 | id.bit())
    }

    /// This set less `id`.
    #[must_use]
    pub const fn without(self, id: FunctionId) -> Self {
        Self(self.0 & !id.bit())
    }

    /// Whether `id` is in the set.
    pub const fn contains(self, id: FunctionId) -> bool {
        self.0 & id.bit() != 0
    }

    /// Whether the set is empty.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The set that a peer advertises. Functions that this crate does not know are left out: a
    /// newer drive may have them, and nobody here can ask for them.
    pub const fn from_wire(bits: u32) -> Self {
        Self(bits & Self::ALL.0)
    }

    /// The bits that stand for the set on the wire.
    pub const fn to_wire(self) -> u32 {
        self.0
    }

    /// The functions in the set, in the order of their wire values.
    pub fn iter(self) -> impl Iterator<Item = FunctionId> {
        FunctionId::ALL
            .into_iter()
            .filter(move |id| self.contains(*id))
    }
}

impl fmt::Display for Functions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, id) in self.iter().enumerate() {
            if index != 0 {
                f.write_str(" ")?;
            }
            f.write_str(id.name())?;
        }
        Ok(())
    }
}
