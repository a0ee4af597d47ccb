// SPDX-License-Identifier: GPL-2.0

//! What the buffers of a mesh are to be like: options of `mesh create`, and what they are called.
//!
//! Owns the words for the module's choices, both ways. What can be combined is decided by the
//! module, with `idc`'s rules.

use super::pair::PairChoice;
use crate::failure::{Failure, Outcome};
use crate::names::Drives;
use crate::sys::abi::*;
use crate::units::parse_size32;
use clap::{Args, ValueEnum};

/// Options of `mesh create` that say what its buffers are like
#[derive(Args, Debug)]
#[command(next_help_heading = "Buffers")]
pub struct BufferOptions {
    /// Entries per buffer, a power of two, 4 to 4096; shared buffers 4 to 256, lists 2 to 256 nodes [default: 64]
    #[arg(long, value_name = "N", value_parser = entries)]
    entries: Option<u32>,

    /// Bytes per entry, a power of two, 64 to 4096 [default: 64]
    #[arg(long, value_name = "SIZE", value_parser = entry_size)]
    entry_size: Option<u32>,

    /// Which memory of the drives buffers go to
    #[arg(long, value_enum, default_value = "auto")]
    pub memory: MemoryChoice,

    /// In whose memory entries lie: receiver, sender, host or member=DRIVE, a hub
    #[arg(long, value_name = "WHERE", default_value = "receiver", value_parser = place)]
    place: Place,

    /// What tells the receiver that an entry is there
    #[arg(long, value_enum, default_value = "entry")]
    publish: Publish,

    /// What a buffer is made of
    #[arg(long, value_enum, default_value = "ring")]
    form: Form,

    /// Who has a buffer together
    #[arg(long, value_enum, default_value = "none")]
    share: Share,

    /// Entries are consumed in any order, by bitmaps with one writer each
    #[arg(long)]
    out_of_order: bool,

    /// A word for each sender in the receiver's memory says that there is more
    #[arg(long)]
    doorbell: bool,

    /// Sender, receiver and length of each entry also in an array of their own
    #[arg(long)]
    metadata: bool,

    /// Who lays the buffers out: host, receiver, sender, member=DRIVE, or discover, which leaves it
    /// to the one of both that advertises more free memory
    #[arg(long, value_name = "WHO", default_value = "host", value_parser = establish)]
    establish: Establish,

    /// Who tells the members of the layout
    #[arg(long, value_enum, default_value = "host")]
    notify: Notify,

    /// Which sender a member turns to
    #[arg(long, value_enum, default_value = "round-robin")]
    select: Select,

    /// How one ordered pair differs: FROM:TO, then any of place=, publish=, entries=, entry-size=,
    /// form=, and flags= with out-of-order, doorbell, metadata joined by +, or none
    #[arg(long = "pair", value_name = "FROM:TO,KEY=VALUE…", value_parser = PairChoice::parse)]
    pairs: Vec<PairChoice>,
}

/// Which of a drive's memories
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum MemoryChoice {
    /// The PMR where it may be used, else the CMB
    Auto,
    /// The persistent memory region
    Pmr,
    /// The controller memory buffer
    Cmb,
}

impl MemoryChoice {
    /// `CSD_MESH_MEMORY_*`.
    pub fn code(self) -> u32 {
        match self {
            Self::Auto => CSD_MESH_MEMORY_AUTO,
            Self::Pmr => CSD_MESH_MEMORY_PMR,
            Self::Cmb => CSD_MESH_MEMORY_CMB,
        }
    }
}

/// What tells that an entry is there
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Publish {
    /// The entry itself, by its last 8 bytes
    Entry,
    /// A tail index written after it, once for a batch
    Index,
}

/// What a buffer is made of
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Form {
    /// Slots in a circle
    Ring,
    /// Nodes from a pool, linked in the order of sending
    List,
}

/// Who has a buffer together
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Share {
    /// Nobody: a buffer for each ordered pair
    None,
    /// All that send to one receiver
    Writers,
    /// All that receive from one sender
    Readers,
    /// All members
    Both,
    /// Two members, for both directions
    Pair,
}

/// Who tells the members of the layout
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Notify {
    /// The host tells everybody
    Host,
    /// Members read each other's offers
    Peer,
}

/// Which sender a member turns to
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Select {
    /// Each in turn
    RoundRobin,
    /// The one whose entry was seen first
    Oldest,
}

/// Whose memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Receiver,
    Sender,
    Host,
    Member(String),
}

/// Who lays buffers out.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Establish {
    Host,
    Receiver,
    Sender,
    Member(String),
    Discover,
}

pub(super) fn entries(text: &str) -> Result<u32, String> {
    let number: u32 = text.parse().map_err(|_| "not a number".to_string())?;
    // Lists need no power of two; what does is told by the module, which knows the form.
    if (2..=4096).contains(&number) {
        Ok(number)
    } else {
        Err("not from 2 to 4096".into())
    }
}

pub(super) fn entry_size(text: &str) -> Result<u32, String> {
    let number = parse_size32(text)?;
    if number.is_power_of_two() && (64..=4096).contains(&number) {
        Ok(number)
    } else {
        Err("not a power of two from 64 to 4096".into())
    }
}

/// `member=DRIVE`
fn member(text: &str) -> Option<String> {
    let name = text.strip_prefix("member=")?;
    (!name.is_empty()).then(|| name.to_string())
}

pub(super) fn place(text: &str) -> Result<Place, String> {
    match text {
        "receiver" => Ok(Place::Receiver),
        "sender" => Ok(Place::Sender),
        "host" => Ok(Place::Host),
        _ => member(text)
            .map(Place::Member)
            .ok_or_else(|| "not receiver, sender, host or member=DRIVE".into()),
    }
}

fn establish(text: &str) -> Result<Establish, String> {
    match text {
        "host" => Ok(Establish::Host),
        "receiver" => Ok(Establish::Receiver),
        "sender" => Ok(Establish::Sender),
        "discover" => Ok(Establish::Discover),
        _ => member(text)
            .map(Establish::Member)
            .ok_or_else(|| "not host, receiver, sender, discover or member=DRIVE".into()),
    }
}

impl Place {
    /// `CSD_PLACE_*` and the drive.
    pub(super) fn resolve(&self, drives: &Drives) -> Outcome<(u32, u32)> {
        Ok(match self {
            Self::Receiver => (CSD_PLACE_RECEIVER, 0),
            Self::Sender => (CSD_PLACE_SENDER, 0),
            Self::Host => (CSD_PLACE_HOST, 0),
            Self::Member(name) => (CSD_PLACE_MEMBER, drives.find(name)?.info.drive),
        })
    }
}

impl Publish {
    pub(super) fn code(self) -> u32 {
        match self {
            Self::Entry => CSD_PUBLISH_ENTRY,
            Self::Index => CSD_PUBLISH_INDEX,
        }
    }
}

impl Form {
    pub(super) fn code(self) -> u32 {
        match self {
            Self::Ring => CSD_FORM_RING,
            Self::List => CSD_FORM_LIST,
        }
    }
}

impl BufferOptions {
    /// Fills in what is asked for, and returns how pairs are to differ.
    ///
    /// # Errors
    /// A drive that is named is not there.
    pub(super) fn fill(
        &self,
        arg: &mut csd_mesh_create,
        drives: &Drives,
    ) -> Outcome<Vec<csd_mesh_pair>> {
        let entries = self.entries.unwrap_or(0);
        if self.form == Form::Ring && entries != 0 && !(entries.is_power_of_two() && entries >= 4) {
            return Err(Failure::usage(format!(
                "--entries {entries}: not a power of two from 4 to 4096"
            )));
        }
        arg.entries = entries;
        arg.entry_bytes = self.entry_size.unwrap_or(0);
        arg.memory = self.memory.code();
        (arg.placement, arg.place_drive) = self.place.resolve(drives)?;
        arg.publish = self.publish.code();
        arg.form = self.form.code();
        arg.share = match self.share {
            Share::None => CSD_SHARE_NONE,
            Share::Writers => CSD_SHARE_WRITERS,
            Share::Readers => CSD_SHARE_READERS,
            Share::Both => CSD_SHARE_BOTH,
            Share::Pair => CSD_SHARE_PAIR,
        };
        for (wanted, flag) in [
            (self.out_of_order, CSD_RING_FLAG_OUT_OF_ORDER),
            (self.doorbell, CSD_RING_FLAG_DOORBELL),
            (self.metadata, CSD_RING_FLAG_METADATA),
        ] {
            arg.ring_flags |= if wanted { flag } else { 0 };
        }
        (arg.establish, arg.establish_drive) = match &self.establish {
            Establish::Host => (CSD_ESTABLISH_HOST, 0),
            Establish::Receiver => (CSD_ESTABLISH_RECEIVER, 0),
            Establish::Sender => (CSD_ESTABLISH_SENDER, 0),
            Establish::Member(name) => (CSD_ESTABLISH_MEMBER, drives.find(name)?.info.drive),
            Establish::Discover => (CSD_ESTABLISH_DISCOVER, 0),
        };
        arg.notify = match self.notify {
            Notify::Host => CSD_NOTIFY_HOST,
            Notify::Peer => CSD_NOTIFY_PEER,
        };
        arg.select = match self.select {
            Select::RoundRobin => CSD_SELECT_ROUND_ROBIN,
            Select::Oldest => CSD_SELECT_OLDEST,
        };
        self.pairs.iter().map(|pair| pair.resolve(drives)).collect()
    }

    /// The pair with that index, as it was written.
    pub(super) fn pair(&self, index: u32) -> Option<&str> {
        let pair = self.pairs.get(usize::try_from(index).ok()?);
        pair.map(|pair| pair.text())
    }
}

pub(super) const FLAGS: [(u32, &str); 3] = [
    (CSD_RING_FLAG_OUT_OF_ORDER, "out-of-order"),
    (CSD_RING_FLAG_DOORBELL, "doorbell"),
    (CSD_RING_FLAG_METADATA, "metadata"),
];

const UNKNOWN: &str = "unknown";

/// The word for a code of the ABI.
fn named(code: u32, words: &'static [&'static str]) -> &'static str {
    words.get(code as usize).copied().unwrap_or(UNKNOWN)
}

pub(super) fn place_name(code: u32) -> &'static str {
    named(code, &["receiver", "sender", "host", "member"])
}

pub(super) fn publish_name(code: u32) -> &'static str {
    named(code, &["entry", "index"])
}

pub(super) fn form_name(code: u32) -> &'static str {
    named(code, &["ring", "list"])
}

pub(super) fn share_name(code: u32) -> &'static str {
    named(code, &["none", "writers", "readers", "both", "pair"])
}

pub(super) fn establish_name(code: u32) -> &'static str {
    named(code, &["host", "receiver", "sender", "member", "discover"])
}

pub(super) fn notify_name(code: u32) -> &'static str {
    named(code, &["host", "peer"])
}

pub(super) fn select_name(code: u32) -> &'static str {
    named(code, &["round-robin", "oldest"])
}

pub(super) fn memory_choice_name(code: u32) -> &'static str {
    named(code, &["auto", "pmr", "cmb"])
}

pub(super) fn flag_names(flags: u32) -> Vec<&'static str> {
    let set = FLAGS.iter().filter(|(flag, _)| flags & flag != 0);
    set.map(|(_, name)| *name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_have_the_numbers_of_the_abi() {
        assert_eq!(place_name(CSD_PLACE_MEMBER), "member");
        assert_eq!(publish_name(CSD_PUBLISH_INDEX), "index");
        assert_eq!(form_name(CSD_FORM_LIST), "list");
        assert_eq!(share_name(CSD_SHARE_WRITERS), "writers");
        assert_eq!(share_name(CSD_SHARE_READERS), "readers");
        assert_eq!(share_name(CSD_SHARE_BOTH), "both");
        assert_eq!(share_name(CSD_SHARE_PAIR), "pair");
        assert_eq!(establish_name(CSD_ESTABLISH_RECEIVER), "receiver");
        assert_eq!(establish_name(CSD_ESTABLISH_SENDER), "sender");
        assert_eq!(establish_name(CSD_ESTABLISH_DISCOVER), "discover");
        assert_eq!(notify_name(CSD_NOTIFY_PEER), "peer");
        assert_eq!(select_name(CSD_SELECT_OLDEST), "oldest");
        assert_eq!(memory_choice_name(CSD_MESH_MEMORY_CMB), "cmb");
        assert_eq!(share_name(99), UNKNOWN);
    }
}
