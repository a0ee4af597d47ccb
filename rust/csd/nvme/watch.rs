// SPDX-License-Identifier: GPL-2.0

//! Whether the supervisor has a reason to look at the clock.
//!
//! Owns one flag: with no command in flight the supervisor sleeps without a timer, so that an idle
//! drive wakes no processor, and the next command wakes it. Never looks at a queue itself.

use crate::sys::kthread::Kick;
use kernel::sync::{
    atomic::{
        AtomicFlag,
        Relaxed, //
    },
    Arc, //
};

/// The flag and the bell of one controller's supervisor.
pub(super) struct Watch {
    kick: Arc<Kick>,
    asleep: AtomicFlag,
}

impl Watch {
    /// The supervisor that `kick` wakes is awake.
    pub(super) fn new(kick: Arc<Kick>) -> Self {
        Self {
            kick,
            asleep: AtomicFlag::new(false),
        }
    }

    /// The supervisor wants to sleep. It must look at every queue after this: either it then sees a
    /// command, or whoever submits one later sees the flag, as both hold the queue's lock for that.
    pub(super) fn lie_down(&self) {
        self.asleep.store(true, Relaxed);
    }

    /// The supervisor is awake.
    pub(super) fn get_up(&self) {
        self.asleep.store(false, Relaxed);
    }

    /// A command was submitted; its queue's lock is held. Any context.
    pub(super) fn submitted(&self) {
        if self.asleep.load(Relaxed) && self.asleep.xchg(false, Relaxed) {
            self.kick.kick();
        }
    }
}
