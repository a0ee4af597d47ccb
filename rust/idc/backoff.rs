// SPDX-License-Identifier: GPL-2.0 OR MIT

//! How long a receiver that nobody notifies may sleep between two looks at its memory.
//!
//! Owns the trade between latency and work. Pure: it has no clock and no thread. IDC specification,
//! "Receiving".
//!
//! The pause grows with the time that nothing came: it is 1/2^*shift* of that time, at least *least*
//! and at most *most*. So an entry waits at most that share of the silence before it, and never
//! longer than *most*: whoever is busy is looked at at once, whoever has been silent for long costs
//! little. With the defaults an entry after 80 us of silence waits for 10 us at most and after
//! 8 ms or more for 1 ms; the first second of silence costs about 1,060 looks, every further
//! one 1,000. An arrival starts it all over.

use zerocopy_derive::{FromZeros, Immutable, KnownLayout};

/// The shortest pause, in ns, unless set otherwise.
pub const LEAST_NS: u64 = 1_000;
/// The longest pause, in ns, unless set otherwise.
pub const MOST_NS: u64 = 1_000_000;
/// The share of the silence that a pause is, as a power of 1/2, unless set otherwise.
pub const SHIFT: u32 = 3;

/// The pauses of one receiver. All zeros has the default limits and heard something at time 0.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq, FromZeros, Immutable, KnownLayout)]
#[repr(C)]
pub struct Backoff {
    /// When something came last.
    heard: u64,
    /// The limits; 0: the default.
    least: u64,
    most: u64,
}

impl Backoff {
    /// Pauses of `least` to `most` ns; 0 stands for [`LEAST_NS`] and [`MOST_NS`]. A `most` below
    /// `least` counts as `least`. Something came at `now`.
    #[must_use]
    pub const fn new(least: u64, most: u64, now: u64) -> Self {
        Backoff {
            heard: now,
            least,
            most,
        }
    }

    /// Something came at `now`, or was begun that makes it likely soon.
    pub fn heard(&mut self, now: u64) {
        self.heard = self.heard.max(now);
    }

    /// How long to pause after a look at `now` that found nothing, in ns.
    #[must_use]
    pub fn pause(&self, now: u64) -> u64 {
        let least = if self.least == 0 {
            LEAST_NS
        } else {
            self.least
        };
        let most = if self.most == 0 { MOST_NS } else { self.most };
        let silence = now.saturating_sub(self.heard);
        (silence >> SHIFT).min(most).max(least)
    }

    /// When to look next, after a look at `now` that found nothing.
    #[must_use]
    pub fn next_look(&self, now: u64) -> u64 {
        now.saturating_add(self.pause(now))
    }
}
