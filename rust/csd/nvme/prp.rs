// SPDX-License-Identifier: GPL-2.0

//! Physical Region Page entries (NVM Express Base Specification 2.0, section 4.1.1).
//!
//! Pure arithmetic: knows neither queues nor memory.

use kernel::prelude::*;

/// Bytes of a memory page, as CC.MPS = 0 says.
pub(crate) const PAGE: u64 = 4096;
/// Entries of the one list page that a command may have.
pub(crate) const LIST_ENTRIES: u64 = PAGE / 8;
/// Most bytes that the entries of one command reach, whatever the offset in the first page.
pub(crate) const MAX_BYTES: u32 = (LIST_ENTRIES * PAGE) as u32;

/// Describes `len` bytes of contiguous bus addresses from `address`; returns PRP1 and PRP2.
///
/// `put` stores an entry of the list page, whose own address is `list`; it is called only if more
/// than two pages are touched.
///
/// # Errors
///
/// - `EINVAL` if `address` is not a multiple of 4 or `len` is zero; `ERANGE` if one list page is not
///   enough or addresses overflow; errors of `put`.
pub(crate) fn build(
    address: u64,
    len: u32,
    list: u64,
    mut put: impl FnMut(usize, u64) -> Result,
) -> Result<(u64, u64)> {
    if address % 4 != 0 || len == 0 {
        return Err(EINVAL);
    }
    address.checked_add(u64::from(len)).ok_or(ERANGE)?;
    let first = PAGE.wrapping_sub(address % PAGE);
    let rest = u64::from(len).saturating_sub(first);
    if rest == 0 {
        return Ok((address, 0));
    }
    let second = address.wrapping_add(first);
    if rest <= PAGE {
        return Ok((address, second));
    }
    let entries = rest.div_ceil(PAGE);
    if entries > LIST_ENTRIES {
        return Err(ERANGE);
    }
    for index in 0..entries {
        put(
            index as usize,
            second.wrapping_add(index.wrapping_mul(PAGE)),
        )?;
    }
    Ok((address, list))
}
