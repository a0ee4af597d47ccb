// SPDX-License-Identifier: GPL-2.0

//! Keys and the kernel's AES.
//!
//! Owns every key while it is in the module: a [`Key`] on its way in, a [`Cipher`] in a key slot.
//! Both are zeroed when they go. Never logs, copies or hands out a key.

use core::ptr::NonNull;
use kernel::{
    ffi,
    prelude::*, //
};

/// Bytes of a key; AES-256 is all there is.
pub(crate) const KEY_BYTES: usize = crate::uapi::CSD_KEY_BYTES as usize;

extern "C" {
    fn csd_cipher_new(key: *const u8, len: usize) -> *mut ffi::c_void;
    fn csd_cipher_free(cipher: *mut ffi::c_void);
    fn csd_cipher_ctr(cipher: *const ffi::c_void, counter: *const u8, data: *mut u8, len: usize);
    fn csd_wipe(data: *mut ffi::c_void, len: usize);
}

/// A raw key; zeroed on drop.
pub(crate) struct Key(KBox<[u8; KEY_BYTES]>);

impl Key {
    /// Copies a key in from user space.
    ///
    /// # Errors
    ///
    /// - EFAULT if it cannot be read, ENOMEM.
    pub(crate) fn from_user(user: u64) -> Result<Self> {
        let mut key = Self(KBox::new([0; KEY_BYTES], GFP_KERNEL)?);
        super::uaccess::read_bytes(user, &mut key.0[..])?;
        Ok(key)
    }
}

impl Drop for Key {
    fn drop(&mut self) {
        // SAFETY: The box holds this many bytes and nobody else refers to them.
        unsafe { csd_wipe(self.0.as_mut_ptr().cast(), KEY_BYTES) };
    }
}

/// A key prepared for AES-256-CTR; zeroed on drop.
///
/// # Invariants
///
/// The pointer is a prepared key from `csd_cipher_new`, which this value owns.
pub(crate) struct Cipher(NonNull<ffi::c_void>);

// SAFETY: A prepared key is plain memory without ties to a thread.
unsafe impl Send for Cipher {}
// SAFETY: `&self` only reads it.
unsafe impl Sync for Cipher {}

impl Cipher {
    /// Prepares `key`.
    ///
    /// # Errors
    ///
    /// - ENOMEM.
    pub(crate) fn new(key: &Key) -> Result<Self> {
        // SAFETY: The key is `KEY_BYTES` long and is only read.
        let cipher = unsafe { csd_cipher_new(key.0.as_ptr(), KEY_BYTES) };
        NonNull::new(cipher).map(Self).ok_or(ENOMEM)
    }

    /// XORs `data` with the key stream that starts at the 128-bit big-endian `counter`.
    pub(crate) fn ctr(&self, counter: &[u8; 16], data: &mut [u8]) {
        // SAFETY: By the invariant the key is prepared; counter and data are valid for the lengths
        // given and do not overlap.
        unsafe {
            csd_cipher_ctr(
                self.0.as_ptr(),
                counter.as_ptr(),
                data.as_mut_ptr(),
                data.len(),
            )
        };
    }
}

impl Drop for Cipher {
    fn drop(&mut self) {
        // SAFETY: By the invariant it is ours, and this is its last use.
        unsafe { csd_cipher_free(self.0.as_ptr()) };
    }
}
