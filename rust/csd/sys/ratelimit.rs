// SPDX-License-Identifier: GPL-2.0

//! A limit on how often a line may be logged where a device or a user can provoke it.

use kernel::{
    sync::atomic::{
        Atomic,
        Relaxed, //
    },
    time::{
        Instant,
        Monotonic, //
    }, //
};

/// Allows [`Self::BURST`] lines in each interval of [`Self::INTERVAL_MS`].
pub(crate) struct RateLimit {
    window: Atomic<u64>,
    used: Atomic<u32>,
    epoch: Instant<Monotonic>,
}

impl RateLimit {
    const INTERVAL_MS: u64 = 5000;
    const BURST: u32 = 5;

    /// A limiter with its whole burst left.
    pub(crate) fn new() -> Self {
        Self {
            window: Atomic::new(0),
            used: Atomic::new(0),
            epoch: Instant::now(),
        }
    }

    /// Whether a line may be printed now. Any context. Under a race a few lines more may pass.
    pub(crate) fn allow(&self) -> bool {
        let ms = u64::try_from(self.epoch.elapsed().as_millis()).unwrap_or(0);
        let window = ms / Self::INTERVAL_MS;
        if self.window.xchg(window, Relaxed) != window {
            self.used.store(0, Relaxed);
        }
        self.used.fetch_add(1, Relaxed) < Self::BURST
    }
}
