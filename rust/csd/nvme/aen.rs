// SPDX-License-Identifier: GPL-2.0

//! Asynchronous events: what the drive reports without being asked.
//!
//! Owns the count of armed requests and the events that arrived and wait for the supervisor.
//! Never reads a log page and never sleeps. A drive that sends events without pause is slowed down
//! by the supervisor, which re-arms a request only after it has dealt with the event.

use super::slots::Outcome;
use crate::sys::kthread::Kick;
use kernel::{
    new_spinlock_irq,
    prelude::*,
    sync::{
        Arc,
        SpinLockIrq, //
    }, //
};

/// Requests kept armed, as far as the controller allows.
pub(super) const ARMED: u16 = 4;

/// An event as dword 0 of the completion gives it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct AsyncEvent {
    /// Type: 0 error, 1 SMART or health, 2 notice, 6 I/O command set, 7 vendor specific.
    pub(crate) kind: u8,
    /// Information, whose meaning depends on the type.
    pub(crate) info: u8,
    /// The log page that tells more, and whose reading unmasks the type; 0 if none.
    pub(crate) log_page: u8,
}

impl AsyncEvent {
    fn new(dw0: u32) -> Self {
        Self {
            kind: (dw0 & 7) as u8,
            info: (dw0 >> 8) as u8,
            log_page: (dw0 >> 16) as u8,
        }
    }
}

struct Pending {
    armed: u16,
    events: [Option<AsyncEvent>; ARMED as usize],
}

/// The requests of one controller. At most [`ARMED`] events can be pending, as each used up a request.
#[pin_data]
pub(super) struct AsyncEvents {
    #[pin]
    pending: SpinLockIrq<Pending>,
    kick: Arc<Kick>,
}

impl AsyncEvents {
    /// No request armed; `kick` wakes the supervisor.
    pub(super) fn new(kick: Arc<Kick>) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                pending <- new_spinlock_irq!(Pending {
                    armed: 0,
                    events: [None; ARMED as usize],
                }, "csd::AsyncEvents"),
                kick,
            }),
            GFP_KERNEL,
        )
    }

    /// Takes the right to send one more request, if fewer than `limit` are out or unserved.
    pub(super) fn arm(&self, limit: u16) -> bool {
        let mut pending = self.pending.lock();
        let unserved = pending.events.iter().flatten().count();
        let free =
            usize::from(pending.armed).saturating_add(unserved) < usize::from(limit.min(ARMED));
        if free {
            pending.armed = pending.armed.saturating_add(1);
        }
        free
    }

    /// Takes back the right when the request could not be sent.
    pub(super) fn disarm(&self) {
        let mut pending = self.pending.lock();
        pending.armed = pending.armed.saturating_sub(1);
    }

    /// A request ended: with an event, or because the controller rejected it or was stopped.
    pub(super) fn arrived(&self, outcome: Outcome) {
        {
            let mut pending = self.pending.lock();
            pending.armed = pending.armed.saturating_sub(1);
            if !outcome
                .result
                .is_ok_and(|status| status.to_result().is_ok())
            {
                return;
            }
            if let Some(free) = pending.events.iter_mut().find(|event| event.is_none()) {
                *free = Some(AsyncEvent::new(outcome.dw0));
            }
        }
        self.kick.kick();
    }

    /// The next event to deal with.
    pub(super) fn take(&self) -> Option<AsyncEvent> {
        self.pending.lock().events.iter_mut().find_map(Option::take)
    }
}
