// SPDX-License-Identifier: GPL-2.0

//! Ioctl arguments: the size-first structure rule of `uapi/csd.h`, and arrays that they point to.
//!
//! Owns the one place where user memory becomes kernel values and back. Each byte is read once, so
//! what is checked is what is used. Never interprets a field apart from the size.

use crate::uapi::Abi;
use kernel::{
    bindings,
    error::code,
    prelude::*,
    uaccess::{
        UserPtr,
        UserSlice, //
    }, //
};

/// Structures larger than this are refused: no version of the ABI will need more.
const MAX_SIZE: usize = 4096;

/// A structure copied in from user space, and where it came from.
///
/// # Invariants
///
/// `user_size` is at least `T::MIN_SIZE`, and the `size` member of `value` equals it.
pub(crate) struct Argument<T: Abi> {
    value: KBox<T>,
    user: usize,
    user_size: usize,
}

impl<T: Abi> Argument<T> {
    /// Copies the structure at `user` in.
    ///
    /// # Errors
    ///
    /// - EINVAL if its size member is below the first published size,
    /// - E2BIG if it is larger than ours and the rest is not all zero (or beyond one page),
    /// - EFAULT if it cannot be read.
    pub(crate) fn read(user: usize) -> Result<Self> {
        let mut size = [0u8; 4];
        UserSlice::new(UserPtr::from_addr(user), size.len())
            .reader()
            .read_slice(&mut size)?;
        let user_size = u32::from_ne_bytes(size) as usize;
        if user_size < T::MIN_SIZE {
            return Err(EINVAL);
        }
        if user_size > MAX_SIZE {
            return Err(code::E2BIG);
        }

        let mut value = crate::sys::boxes::zeroed_box::<T>()?;
        let bytes = value.as_mut_bytes();
        let known = user_size.min(bytes.len());
        if let Some(head) = bytes.get_mut(..known) {
            UserSlice::new(UserPtr::from_addr(user), known)
                .reader()
                .read_slice(head)?;
        }
        // The size was read twice; the first reading counts.
        if let Some(field) = bytes.get_mut(..size.len()) {
            field.copy_from_slice(&size);
        }
        let beyond = user_size.saturating_sub(known);
        if beyond > 0 {
            check_zeroed(user.wrapping_add(known), beyond)?;
        }
        Ok(Self {
            value,
            user,
            user_size,
        })
    }

    /// The kernel's copy.
    pub(crate) fn get(&mut self) -> &mut T {
        &mut self.value
    }

    /// Copies the structure back, as much of it as the caller knows.
    ///
    /// # Errors
    ///
    /// - EFAULT if it cannot be written.
    pub(crate) fn write_back(&self) -> Result {
        let bytes = self.value.as_bytes();
        let known = self.user_size.min(bytes.len());
        let head = bytes.get(..known).ok_or(EFAULT)?;
        UserSlice::new(UserPtr::from_addr(self.user), known)
            .writer()
            .write_slice(head)
    }
}

/// Fails with E2BIG unless `len` bytes at `user` are zero.
fn check_zeroed(user: usize, len: usize) -> Result {
    // SAFETY: `check_zeroed_user` takes any user address and length and checks both itself.
    let zeroed =
        unsafe { bindings::check_zeroed_user(UserPtr::from_addr(user).as_const_ptr(), len) };
    match zeroed {
        1 => Ok(()),
        0 => Err(code::E2BIG),
        error => Err(Error::from_errno(error)),
    }
}

/// A user address out of a structure; 64 bits there on every machine.
///
/// # Errors
///
/// - EFAULT if it does not fit a pointer.
pub(crate) fn address(raw: u64) -> Result<usize> {
    usize::try_from(raw).map_err(|_| EFAULT)
}

/// Copies `out.len()` bytes in from `user`.
pub(crate) fn read_bytes(user: u64, out: &mut [u8]) -> Result {
    UserSlice::new(UserPtr::from_addr(address(user)?), out.len())
        .reader()
        .read_slice(out)
}

/// Copies `data` out to `user`.
pub(crate) fn write_bytes(user: u64, data: &[u8]) -> Result {
    UserSlice::new(UserPtr::from_addr(address(user)?), data.len())
        .writer()
        .write_slice(data)
}
