// SPDX-License-Identifier: GPL-2.0 OR MIT

//! What both ends of a ring have in common: the layout, the counters, the fence.
//!
//! Owns attach and detach. Never touches the ring.

use super::super::memory::Fault;
use super::{PeerFault, RingCounters, RingError, RingLayout};
use zerocopy_derive::{FromZeros, Immutable, KnownLayout};

/// What an end keeps for its part in the ring.
pub trait Role {
    /// Starts anew with `index`, in place.
    fn begin(&mut self, index: u32);
}

/// An end of a ring: [`Sender`](super::Sender) or [`Receiver`](super::Receiver).
#[derive(Clone, Debug, Eq, Hash, PartialEq, FromZeros, Immutable, KnownLayout)]
pub struct End<R> {
    pub(super) layout: RingLayout,
    pub(super) fenced: bool,
    pub(super) counters: RingCounters,
    pub(super) role: R,
}

impl<R: Role> End<R> {
    /// Begins at index 0. All parts of the ring must have been zeroed.
    ///
    /// # Errors
    /// [`RingError`]; the end is then detached.
    pub fn attach(&mut self, layout: &RingLayout) -> Result<(), RingError> {
        self.attach_at(layout, 0)
    }

    /// Begins at `index`, as the other end does: how tests reach the 32-bit wrap.
    ///
    /// # Errors
    /// As [`attach`](Self::attach).
    pub fn attach_at(&mut self, layout: &RingLayout, index: u32) -> Result<(), RingError> {
        self.detach();
        layout.check()?;
        self.layout = *layout;
        self.role.begin(index);
        Ok(())
    }

    /// Ends here; counters stay.
    pub fn detach(&mut self) {
        self.layout = RingLayout::default();
        self.fenced = false;
        self.role.begin(0);
    }

    /// Whether there is a ring.
    #[must_use]
    pub const fn is_attached(&self) -> bool {
        self.layout.epoch != 0
    }

    /// Whether an earlier fault ended it.
    #[must_use]
    pub const fn is_fenced(&self) -> bool {
        self.fenced
    }

    /// The ring.
    #[must_use]
    pub const fn layout(&self) -> &RingLayout {
        &self.layout
    }

    /// What was counted.
    #[must_use]
    pub const fn counters(&self) -> &RingCounters {
        &self.counters
    }

    /// Counts from zero again.
    pub fn reset_counters(&mut self) {
        self.counters = RingCounters::default();
    }

    /// Stops believing the peer for a reason that lies above the ring.
    pub fn fence_for(&mut self, fault: PeerFault) -> PeerFault {
        self.fenced = true;
        self.counters.faults = self.counters.faults.wrapping_add(1);
        fault
    }

    /// Refuses to go on without a ring or behind the fence.
    pub(super) const fn check(&self) -> Result<(), PeerFault> {
        if self.fenced || !self.is_attached() {
            Err(PeerFault::Fenced)
        } else {
            Ok(())
        }
    }

    /// Fences the end if `result` is a fault.
    pub(super) fn guard<T, E: Into<PeerFault>>(
        &mut self,
        result: Result<T, E>,
    ) -> Result<T, PeerFault> {
        match result {
            Ok(value) => Ok(value),
            Err(fault) => Err(self.fence_for(fault.into())),
        }
    }
}

impl From<Fault> for PeerFault {
    fn from(fault: Fault) -> Self {
        PeerFault::Memory(fault)
    }
}
