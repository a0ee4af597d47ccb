// SPDX-License-Identifier: GPL-2.0

//! What the kernel crate does not say of or do with a device: uevents and the NUMA node.
//!
//! Owns the calls; never decides what is worth a uevent.

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

/// The NUMA node of `device`, -1 if unknown.
pub(crate) fn numa_node(device: &Device) -> i32 {
    #[cfg(CONFIG_NUMA)]
    {
        let raw = core::ptr::from_ref(device).cast::<bindings::device>();
        // SAFETY: `Device` is a transparent wrapper of `struct device`, which is alive while
        // borrowed; its node is set before a driver is bound.
        unsafe { (*raw).numa_node }
    }
    #[cfg(not(CONFIG_NUMA))]
    {
        let _ = device;
        -1
    }
}

/// Sends a `change` uevent of `device` with `variables` (each `KEY=value`). Sleeps.
///
/// # Errors
///
/// - E2BIG for more than 12 variables,
/// - what `kobject_uevent_env()` says.
pub(crate) fn send_change(device: &Device, variables: &[CString]) -> Result {
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
