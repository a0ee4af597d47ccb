// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Windows: the parts of a memory that members let each other use.
//!
//! Messages and descriptors carry (window, offset, length), never addresses. Owns the one table by
//! which a member turns these into places, and the check that makes a confused peer harmless. Never
//! takes a window from a peer: only the host fills the table. IDC specification, "Windows".

use super::member::{Location, MemberId, MemberSet};
use core::fmt;
use zerocopy_derive::{FromZeros, Immutable, KnownLayout};

/// Windows that one member knows at a time, its own and those granted to it.
pub const MAX_WINDOWS: usize = 64;

/// What a grantee may do.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, FromZeros, Immutable, KnownLayout)]
#[repr(transparent)]
pub struct Rights(u32);

impl Rights {
    /// Read.
    pub const READ: Rights = Rights(1);
    /// Write.
    pub const WRITE: Rights = Rights(2);
    /// Both.
    pub const READ_WRITE: Rights = Rights(3);

    /// Whether all of `wanted` is allowed.
    #[must_use]
    pub const fn allow(self, wanted: Rights) -> bool {
        self.0 & wanted.0 == wanted.0
    }

    /// Bit 0 read, bit 1 write; `None` if another is set.
    #[must_use]
    pub const fn from_wire(bits: u32) -> Option<Self> {
        if bits & !3 == 0 {
            Some(Rights(bits))
        } else {
            None
        }
    }

    /// Bit 0 read, bit 1 write.
    #[must_use]
    pub const fn to_wire(self) -> u32 {
        self.0
    }
}

/// A part of `owner`'s memory that the grantees may use.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, FromZeros, Immutable, KnownLayout)]
#[repr(C)]
pub struct Window {
    /// Its name, not 0 and unique in the mesh.
    pub id: u32,
    /// What grantees may do.
    pub rights: Rights,
    /// Who lends it.
    pub owner: MemberId,
    /// Where it begins, as the member sees it that holds this table.
    pub base: Location,
    /// Bytes.
    pub length: u64,
    /// Who may use it. The owner only if it is named too.
    pub grantees: MemberSet,
}

/// Why a window was not entered.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum WindowError {
    /// Its id is 0, it is empty, or it reaches past the 64-bit end.
    Invalid,
    /// The id is in use for another window.
    Exists,
    /// The table is full.
    Full,
}

impl fmt::Display for WindowError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            WindowError::Invalid => "the window is empty or has no id",
            WindowError::Exists => "the window's id is in use",
            WindowError::Full => "the window table is full",
        })
    }
}

/// The range is not in a window granted for that use.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct NotGranted;

/// A place named by window and offset.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, FromZeros, Immutable, KnownLayout)]
#[repr(C)]
pub struct WindowRef {
    /// The window's id.
    pub window: u32,
    /// Bytes from its start.
    pub offset: u64,
}

/// The windows that a member owns and those granted to it.
#[derive(FromZeros, Immutable, KnownLayout)]
pub struct WindowTable {
    windows: [Window; MAX_WINDOWS],
}

impl WindowTable {
    /// Enters a window. Entering the very same again changes nothing.
    ///
    /// # Errors
    /// [`WindowError`]; the table is unchanged.
    pub fn grant(&mut self, window: &Window) -> Result<(), WindowError> {
        let end = window.base.at(window.length);
        if window.id == 0 || window.length == 0 || end.is_none() {
            return Err(WindowError::Invalid);
        }
        if let Some(known) = self.windows.iter().find(|known| known.id == window.id) {
            return if known == window {
                Ok(())
            } else {
                Err(WindowError::Exists)
            };
        }
        let free = self.windows.iter_mut().find(|known| known.id == 0);
        *free.ok_or(WindowError::Full)? = *window;
        Ok(())
    }

    /// Removes a window; an unknown id is no matter.
    pub fn revoke(&mut self, id: u32) {
        for window in self.windows.iter_mut().filter(|window| window.id == id) {
            *window = Window::default();
        }
    }

    /// How many windows it holds.
    #[must_use]
    pub fn len(&self) -> usize {
        self.windows.iter().filter(|window| window.id != 0).count()
    }

    /// Whether it holds none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn find(&self, place: WindowRef, length: u64) -> Result<(&Window, Location), NotGranted> {
        let window = self
            .windows
            .iter()
            .find(|window| window.id == place.window && window.id != 0)
            .ok_or(NotGranted)?;
        let end = place.offset.checked_add(length).ok_or(NotGranted)?;
        if end > window.length {
            return Err(NotGranted);
        }
        let location = window.base.at(place.offset).ok_or(NotGranted)?;
        Ok((window, location))
    }

    /// Where `length` bytes at `place` lie that `by` may use in `wanted` ways, whoever owns them.
    ///
    /// # Errors
    /// [`NotGranted`].
    pub fn resolve(
        &self,
        by: MemberId,
        place: WindowRef,
        length: u64,
        wanted: Rights,
    ) -> Result<Location, NotGranted> {
        let (window, location) = self.find(place, length)?;
        if window.grantees.contains(by) && window.rights.allow(wanted) {
            Ok(location)
        } else {
            Err(NotGranted)
        }
    }

    /// Where `length` bytes at `place` lie that `owner` lends, and that `by` was granted to write.
    ///
    /// # Errors
    /// [`NotGranted`].
    pub fn resolve_owned(
        &self,
        owner: MemberId,
        by: MemberId,
        place: WindowRef,
        length: u64,
    ) -> Result<Location, NotGranted> {
        let (window, location) = self.find(place, length)?;
        let granted = window.grantees.contains(by) && window.rights.allow(Rights::WRITE);
        if granted && window.owner == owner {
            Ok(location)
        } else {
            Err(NotGranted)
        }
    }
}
