// SPDX-License-Identifier: GPL-2.0

//! Uevents: what udev and `udevadm monitor` see.
//!
//! Owns the call; never decides what is worth one.

use kernel::{
    bindings,
    device::Device,
    error::to_result,
    ffi,
    prelude::*,
    str::CString, //
};

/// Variables that one uevent may carry.
const MAX_VARIABLES: usize = 12;

/// Sends a `change` uevent of `device` with `variables` (each `KEY=value`). Sleeps.
///
/// # Errors
///
/// - E2BIG for more than 12 variables,
/// - what `kobject_uevent_env()` says.
pub(crate) fn change(device: &Device, variables: &[CString]) -> Result {
    let mut pointers = [core::ptr::null_mut::<ffi::c_char>(); MAX_VARIABLES + 1];
    if variables.len() > MAX_VARIABLES {
        return Err(E2BIG);
    }
    for (pointer, variable) in pointers.iter_mut().zip(variables) {
        *pointer = variable.as_char_ptr().cast_mut();
    }
    let raw = core::ptr::from_ref(device).cast::<bindings::device>();
    // SAFETY: `Device` is a transparent wrapper of `struct device`, which is alive while borrowed.
    let kobject = unsafe { core::ptr::addr_of!((*raw).kobj) }.cast_mut();
    // SAFETY: The strings and the null-terminated table live until the call returns, which only
    // reads them; `kobject_uevent_env()` does its own locking.
    to_result(unsafe {
        bindings::kobject_uevent_env(
            kobject,
            bindings::kobject_action_KOBJ_CHANGE,
            pointers.as_mut_ptr(),
        )
    })
}
