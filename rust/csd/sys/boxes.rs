// SPDX-License-Identifier: GPL-2.0

//! Zeroed boxes of large types, built in place.
//!
//! Kernel stacks are 16 KiB, so state of more than a few hundred bytes must never exist as a value
//! on the stack. These helpers allocate memory that is already zero and declare it initialised.

use kernel::prelude::*;
use zerocopy::FromZeros;

/// Allocates a physically contiguous box whose contents are all zero.
///
/// # Errors
///
/// - `ENOMEM` if the allocation fails.
pub(crate) fn zeroed_box<T: FromZeros>() -> Result<KBox<T>> {
    let slot = KBox::<T>::new_uninit(GFP_KERNEL | __GFP_ZERO)?;
    // SAFETY: The memory is zero by `__GFP_ZERO`, and `T: FromZeros` makes that a valid value.
    Ok(unsafe { slot.assume_init() })
}

/// Allocates a box that may be virtually contiguous only and whose contents are all zero.
///
/// # Errors
///
/// - `ENOMEM` if the allocation fails.
pub(crate) fn zeroed_vbox<T: FromZeros>() -> Result<KVBox<T>> {
    let slot = KVBox::<T>::new_uninit(GFP_KERNEL | __GFP_ZERO)?;
    // SAFETY: The memory is zero by `__GFP_ZERO`, and `T: FromZeros` makes that a valid value.
    Ok(unsafe { slot.assume_init() })
}
