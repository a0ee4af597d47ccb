// SPDX-License-Identifier: GPL-2.0

//! A reusable completion with a bounded wait.
//!
//! The `kernel` crate's `Completion` can be waited for without a limit only and cannot be used a
//! second time; commands to a device need both.

use kernel::{
    bindings,
    prelude::*,
    time::msecs_to_jiffies,
    types::Opaque, //
};

/// One event that one thread waits for, signalled from any context.
#[pin_data]
pub(crate) struct Completion {
    #[pin]
    inner: Opaque<bindings::completion>,
}

// SAFETY: A `struct completion` may be used from any thread.
unsafe impl Send for Completion {}
// SAFETY: All operations on a `struct completion` take its internal lock.
unsafe impl Sync for Completion {}

impl Completion {
    /// Initialises a completion that is not done.
    pub(crate) fn new() -> impl PinInit<Self, Error> {
        try_pin_init!(Self {
            inner <- Opaque::ffi_init(|slot: *mut bindings::completion| {
                // SAFETY: `slot` is valid for writes and stays pinned.
                unsafe { bindings::init_completion(slot) };
            }),
        }? Error)
    }

    /// The C object, for an API that signals it.
    pub(super) fn as_raw(&self) -> *mut bindings::completion {
        self.inner.get()
    }

    /// Signals the waiter. Any context, including hard interrupts.
    pub(crate) fn complete(&self) {
        // SAFETY: `inner` was initialised by `new`.
        unsafe { bindings::complete(self.inner.get()) };
    }

    /// Consumes one signal, waiting without limit and uninterruptibly.
    pub(crate) fn wait(&self) {
        // SAFETY: `inner` was initialised by `new`.
        unsafe { bindings::wait_for_completion(self.inner.get()) };
    }

    /// Consumes one signal if it comes within `ms` milliseconds; returns whether it did.
    pub(crate) fn wait_timeout(&self, ms: u32) -> bool {
        // SAFETY: `inner` was initialised by `new`.
        unsafe {
            bindings::wait_for_completion_timeout(self.inner.get(), msecs_to_jiffies(ms)) != 0
        }
    }

    /// Forgets a signal that nobody consumed. Only while nobody can signal.
    pub(crate) fn rearm(&self) {
        // SAFETY: `inner` was initialised by `new`.
        while unsafe { bindings::try_wait_for_completion(self.inner.get()) } {}
    }
}
