// SPDX-License-Identifier: GPL-2.0

//! The commands in flight on one queue pair.
//!
//! Owns the numbering of commands, who waits for each and since when. Pure bookkeeping: touches
//! neither memory that the device sees nor registers, and calls nobody.
//!
//! A command identifier is a slot's number with the slot's generation above it, so that a late
//! completion of an earlier command in the same slot is not taken for the present one's.

use super::{
    aen::AsyncEvents,
    queue::Complete,
    spec::Status, //
};
use kernel::{
    prelude::*,
    sync::Arc,
    time::{
        Delta,
        Instant,
        Monotonic, //
    }, //
};

/// Who waits for a command.
pub(super) enum Waiter {
    /// A thread, on the completion of the slot.
    Thread,
    /// Nobody any more; the thread gave up. The slot stays taken until the command ends, as the
    /// controller may still write to its page.
    Orphan,
    /// The asynchronous event machinery: an Asynchronous Event Request, which has no deadline.
    Event(Arc<AsyncEvents>),
    /// A submitter of storage commands.
    Callback {
        done: Arc<dyn Complete>,
        tag: u64,
        /// Counted on success.
        bytes: u32,
        /// Whether they count as written.
        write: bool,
    },
}

/// How a command ended: the status, or why there is none, and dword 0.
#[derive(Clone, Copy)]
pub(super) struct Outcome {
    pub(super) result: Result<Status>,
    pub(super) dw0: u32,
}

/// A command that was not done in time.
#[derive(Clone, Copy)]
pub(super) struct Overdue {
    pub(super) cid: u16,
    /// Whether an Abort was sent for it already.
    pub(super) aborted: bool,
}

enum State {
    Free,
    InFlight(Waiter),
    /// Ended; a thread still has to fetch the outcome.
    Done(Outcome),
}

struct Slot {
    state: State,
    generation: u16,
    /// When it was submitted, or aborted.
    since: Instant<Monotonic>,
    aborted: bool,
}

impl Slot {
    fn cid(&self, index: u16) -> u16 {
        (self.generation << SLOT_BITS) | index
    }
}

/// Slots are numbered in the low bits of a CID, their generation is above.
const SLOT_BITS: u32 = 10;
/// Most commands in flight.
pub(super) const MAX_SLOTS: u16 = 1 << SLOT_BITS;

/// The table of commands in flight.
pub(super) struct Slots {
    slots: KVec<Slot>,
    free: KVec<u16>,
}

impl Slots {
    /// A table of `count` free slots.
    ///
    /// # Errors
    ///
    /// - `EINVAL` for more than [`MAX_SLOTS`]; `ENOMEM`.
    pub(super) fn new(count: u16) -> Result<Self> {
        if count > MAX_SLOTS {
            return Err(EINVAL);
        }
        let mut slots = KVec::with_capacity(count.into(), GFP_KERNEL)?;
        let mut free = KVec::with_capacity(count.into(), GFP_KERNEL)?;
        for index in (0..count).rev() {
            free.push(index, GFP_KERNEL)?;
            slots.push(
                Slot {
                    state: State::Free,
                    generation: 0,
                    since: Instant::now(),
                    aborted: false,
                },
                GFP_KERNEL,
            )?;
        }
        Ok(Self { slots, free })
    }

    fn slot(&mut self, index: u16) -> Option<&mut Slot> {
        self.slots.get_mut(usize::from(index))
    }

    /// The slot that the next command will have, and its identifier. Takes nothing.
    ///
    /// # Errors
    ///
    /// - `EAGAIN` if every slot is taken.
    pub(super) fn peek(&self) -> Result<(u16, u16)> {
        let index = *self.free.last().ok_or(EAGAIN)?;
        let slot = self.slots.get(usize::from(index)).ok_or(EIO)?;
        let generation = slot.generation.wrapping_add(1);
        Ok((index, (generation << SLOT_BITS) | index))
    }

    /// Takes the slot of the last [`Self::peek`] for a command that was submitted.
    pub(super) fn start(&mut self, waiter: Waiter) {
        if let Some(slot) = self.free.pop().and_then(|index| self.slot(index)) {
            slot.generation = slot.generation.wrapping_add(1);
            slot.since = Instant::now();
            slot.aborted = false;
            slot.state = State::InFlight(waiter);
        }
    }

    /// The slot of the command in flight that is called `cid`, if there is one.
    pub(super) fn claim(&self, cid: u16) -> Option<u16> {
        let index = cid & (MAX_SLOTS - 1);
        let slot = self.slots.get(usize::from(index))?;
        (matches!(slot.state, State::InFlight(_)) && slot.cid(index) == cid).then_some(index)
    }

    /// Ends the command in `index` if one is in flight there, and returns who waits for it. Frees the
    /// slot unless a thread has yet to [`Self::fetch`] the outcome.
    pub(super) fn finish(&mut self, index: u16, outcome: Outcome) -> Option<Waiter> {
        let slot = self.slot(index)?;
        match core::mem::replace(&mut slot.state, State::Free) {
            State::InFlight(Waiter::Thread) => {
                slot.state = State::Done(outcome);
                Some(Waiter::Thread)
            }
            State::InFlight(waiter) => {
                self.put_free(index);
                Some(waiter)
            }
            other => {
                slot.state = other;
                None
            }
        }
    }

    /// How the command in `index` ends when the controller is stopped for `reason`.
    pub(super) fn failure(&self, index: u16, reason: Error) -> Outcome {
        let aborted = self
            .slots
            .get(usize::from(index))
            .is_some_and(|slot| slot.aborted);
        Outcome {
            result: Err(if aborted { ETIMEDOUT } else { reason }),
            dw0: 0,
        }
    }

    /// The outcome that a thread waits for, once there is one. [`Self::put_free`] must follow.
    pub(super) fn fetch(&mut self, index: u16) -> Option<Outcome> {
        let slot = self.slot(index)?;
        match slot.state {
            State::Done(outcome) => {
                slot.state = State::Free;
                Some(outcome)
            }
            _ => None,
        }
    }

    /// The thread that waited for `index` has given up.
    pub(super) fn orphan(&mut self, index: u16) {
        if let Some(slot) = self.slot(index) {
            slot.state = State::InFlight(Waiter::Orphan);
        }
    }

    /// Makes a fetched slot available again.
    pub(super) fn put_free(&mut self, index: u16) {
        // The capacity holds every slot, so this cannot fail.
        let _ = self.free.push_within_capacity(index);
    }

    fn timed(&self) -> impl Iterator<Item = (u16, &Slot)> {
        self.slots
            .iter()
            .enumerate()
            .filter(|(_, slot)| match &slot.state {
                State::InFlight(waiter) => !matches!(waiter, Waiter::Event(_)),
                _ => false,
            })
            .map(|(index, slot)| (index as u16, slot))
    }

    /// Commands in flight, Asynchronous Event Requests aside.
    pub(super) fn in_flight(&self) -> usize {
        self.timed().count()
    }

    /// A command that has been in flight for longer than `limit`, if any.
    pub(super) fn overdue(&self, limit: Delta) -> Option<Overdue> {
        let (index, slot) = self
            .timed()
            .find(|(_, slot)| slot.since.elapsed() > limit)?;
        Some(Overdue {
            cid: slot.cid(index),
            aborted: slot.aborted,
        })
    }

    /// Notes that an Abort is sent for `cid` and gives the command the same time once more. Returns
    /// whether it is still in flight.
    pub(super) fn mark_aborted(&mut self, cid: u16) -> bool {
        match self.claim(cid).and_then(|index| self.slot(index)) {
            Some(slot) => {
                slot.aborted = true;
                slot.since = Instant::now();
                true
            }
            None => false,
        }
    }
}
