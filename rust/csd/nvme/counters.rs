// SPDX-License-Identifier: GPL-2.0

//! Counters of one drive. They only ever grow, and survive resets and the loss of the drive.

use kernel::sync::atomic::{
    Atomic,
    Relaxed, //
};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// The counters, updated from any context.
        pub(crate) struct Counters {
            $($(#[$doc])* pub(crate) $name: Counter,)*
        }

        /// A copy of the counters; not one moment's view of all of them.
        #[derive(Clone, Copy, Default)]
        pub(crate) struct CountersSnapshot {
            $($(#[$doc])* pub(crate) $name: u64,)*
        }

        impl Counters {
            /// All zero.
            pub(crate) fn new() -> Self {
                Self { $($name: Counter::new(),)* }
            }

            /// Reads all of them.
            pub(crate) fn snapshot(&self) -> CountersSnapshot {
                CountersSnapshot { $($name: self.$name.get(),)* }
            }
        }
    };
}

counters! {
    /// Admin commands submitted, Asynchronous Event Requests included.
    admin_commands,
    /// I/O commands submitted.
    io_commands,
    /// Commands that completed with an error status or were ended without one, and completions that
    /// matched no command.
    errors,
    /// Bytes that READ commands were asked to move into drive memory and did.
    read_bytes,
    /// Bytes that WRITE commands moved out of drive memory.
    written_bytes,
    /// Commands that were not done in time.
    timeouts,
    /// Abort commands sent.
    aborts,
    /// Controller resets.
    resets,
    /// Asynchronous events received.
    async_events,
}

/// One counter.
pub(crate) struct Counter(Atomic<u64>);

impl Counter {
    fn new() -> Self {
        Self(Atomic::new(0))
    }

    /// Adds one.
    pub(crate) fn hit(&self) {
        self.0.add(1, Relaxed);
    }

    /// Adds `n`.
    pub(crate) fn add(&self, n: u64) {
        self.0.add(n, Relaxed);
    }

    /// The current value.
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}
