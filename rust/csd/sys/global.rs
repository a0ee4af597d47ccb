// SPDX-License-Identifier: GPL-2.0

//! The module's one global lock: probe and ioctl handlers have no other way to find each other.

use crate::drive::Registry;
use kernel::{
    prelude::*,
    sync::atomic::{
        AtomicFlag,
        Relaxed, //
    }, //
};

kernel::sync::global_lock! {
    // SAFETY: `init` runs first thing when the module is loaded, before anything can lock it.
    unsafe(uninit) static REGISTRY: Mutex<Registry> = Registry::new();
}

static INITIALISED: AtomicFlag = AtomicFlag::new(false);

/// Makes the lock usable; later calls do nothing. To be called before anything is registered.
pub(crate) fn init() {
    if !INITIALISED.xchg(true, Relaxed) {
        // SAFETY: The flag lets only one caller through.
        unsafe { REGISTRY.init() };
    }
}

/// Runs `f` with the registry locked. `f` may sleep but must not lock the registry again.
pub(crate) fn with_registry<R>(f: impl FnOnce(&mut Registry) -> R) -> R {
    f(&mut REGISTRY.lock())
}
