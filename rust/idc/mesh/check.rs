// SPDX-License-Identifier: GPL-2.0 OR MIT

//! What can be combined. IDC specification, "What cannot be combined".
//!
//! Owns the rules. Never looks at a memory: that a hub lends one is for the table to find.

use super::super::entry::{MAX_ENTRY_BYTES, MIN_ENTRY_BYTES};
use super::super::member::{MemberId, MAX_DRIVES};
use super::super::ring::{Publish, RingError, RingFlags, MAX_ENTRIES, MIN_ENTRIES};
use super::error::MeshError;
use super::policy::{Establish, Form, PairPolicy, Place, Policy, Share};

/// Fewest nodes of a list: the dummy and one for a message.
pub const MIN_LIST_ENTRIES: u32 = 2;
/// Most nodes of a list, and most entries of a shared buffer.
pub const MAX_MARKED_ENTRIES: u32 = 256;

/// What was refused.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Refusal {
    /// Why.
    pub error: MeshError,
    /// The index of the override that it is about; `None`: it is about the mesh.
    pub pair: Option<usize>,
}

/// Refuses with `error` if `wrong`.
fn refuse(wrong: bool, error: MeshError) -> Result<(), MeshError> {
    if wrong {
        Err(error)
    } else {
        Ok(())
    }
}

impl Policy {
    /// Checks that a mesh of `drives` drives can be like this, with `pairs` as overrides. Numbers
    /// that are 0, and so the shape's, are not checked.
    ///
    /// # Errors
    /// The first [`MeshError`] found.
    pub fn check(&self, pairs: &[PairPolicy], drives: u16) -> Result<(), MeshError> {
        match self.refusal(pairs, drives) {
            Some(refusal) => Err(refusal.error),
            None => Ok(()),
        }
    }

    /// As [`check`](Self::check), and says which override it is that cannot be.
    #[must_use]
    pub fn refusal(&self, pairs: &[PairPolicy], drives: u16) -> Option<Refusal> {
        if let Err(error) = self.check_mesh(drives) {
            return Some(Refusal { error, pair: None });
        }
        pairs.iter().enumerate().find_map(|(index, pair)| {
            let before = pairs.get(..index).unwrap_or_default();
            let error = self.check_pair(pair, before, drives).err()?;
            Some(Refusal {
                error,
                pair: Some(index),
            })
        })
    }

    /// The rules for the mesh as a whole.
    fn check_mesh(&self, drives: u16) -> Result<(), MeshError> {
        refuse(
            drives == 0 || usize::from(drives) > MAX_DRIVES,
            MeshError::Drives,
        )?;
        if let Establish::Member(member) = self.establish {
            refuse(member.get() > drives, MeshError::EstablishMember)?;
        }
        let several_receivers = matches!(self.share, Share::Readers | Share::Both);
        let several_senders = matches!(self.share, Share::Writers | Share::Both);
        let (place, establish) = (self.place, self.establish);
        refuse(
            several_receivers && place == Place::Receiver,
            MeshError::SharePlaceReceiver,
        )?;
        refuse(
            several_senders && place == Place::Sender,
            MeshError::SharePlaceSender,
        )?;
        refuse(
            several_receivers && establish == Establish::Receiver,
            MeshError::ShareEstablishReceiver,
        )?;
        refuse(
            several_senders && establish == Establish::Sender,
            MeshError::ShareEstablishSender,
        )?;
        self.check_buffer(drives)
    }

    fn check_pair(
        &self,
        pair: &PairPolicy,
        before: &[PairPolicy],
        drives: u16,
    ) -> Result<(), MeshError> {
        refuse(self.share != Share::None, MeshError::PairShared)?;
        let known = |member: MemberId| member.get() <= drives;
        let is_pair = known(pair.from) && known(pair.to) && pair.from != pair.to;
        refuse(!is_pair, MeshError::PairMember)?;
        let same = |other: &PairPolicy| other.from == pair.from && other.to == pair.to;
        refuse(before.iter().any(same), MeshError::PairTwice)?;
        // 0 stands for the shape's number in the mesh's policy only.
        refuse(pair.entries == Some(0), MeshError::Ring(RingError::Entries))?;
        refuse(
            pair.entry_bytes == Some(0),
            MeshError::Ring(RingError::EntryBytes),
        )?;
        pair.over(self).check_buffer(drives)
    }

    /// The rules for any one buffer.
    pub(super) fn check_buffer(&self, drives: u16) -> Result<(), MeshError> {
        if let Place::Member(member) = self.place {
            refuse(member.get() > drives, MeshError::HubMember)?;
        }
        let (entries, bytes) = (self.entries, self.entry_bytes);
        let sizes = MIN_ENTRY_BYTES as u32..=MAX_ENTRY_BYTES as u32;
        refuse(
            bytes != 0 && !(bytes.is_power_of_two() && sizes.contains(&bytes)),
            MeshError::Ring(RingError::EntryBytes),
        )?;
        let index = self.publish == Publish::Index;
        let has = |flag: RingFlags| self.flags.contains(flag);
        if self.share != Share::None {
            refuse(self.form == Form::List, MeshError::ListShared)?;
            refuse(index, MeshError::ShareIndex)?;
            refuse(has(RingFlags::OUT_OF_ORDER), MeshError::ShareOutOfOrder)?;
            refuse(has(RingFlags::DOORBELL), MeshError::ShareDoorbell)?;
            refuse(has(RingFlags::METADATA), MeshError::ShareMetadata)?;
            let counts = MIN_ENTRIES..=MAX_MARKED_ENTRIES;
            let good = entries == 0 || entries.is_power_of_two() && counts.contains(&entries);
            return refuse(!good, MeshError::ShareEntries);
        }
        if self.form == Form::List {
            refuse(index, MeshError::ListIndex)?;
            refuse(has(RingFlags::OUT_OF_ORDER), MeshError::ListOutOfOrder)?;
            refuse(has(RingFlags::DOORBELL), MeshError::ListDoorbell)?;
            refuse(has(RingFlags::METADATA), MeshError::ListMetadata)?;
            let counts = MIN_LIST_ENTRIES..=MAX_MARKED_ENTRIES;
            return refuse(
                entries != 0 && !counts.contains(&entries),
                MeshError::ListEntries,
            );
        }
        refuse(index && has(RingFlags::DOORBELL), MeshError::IndexDoorbell)?;
        let counts = MIN_ENTRIES..=MAX_ENTRIES;
        let good = entries == 0 || entries.is_power_of_two() && counts.contains(&entries);
        refuse(!good, MeshError::Ring(RingError::Entries))
    }
}
