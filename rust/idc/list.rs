// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Linked-list buffers: nodes from a pool, joined by links that only the sender writes.
//!
//! Owns what makes a link, a mark or a head believable, and when a node may be used again. Unlike a
//! ring's slots, nodes are freed in any order: one that stays in use for long holds up nobody.
//! Never interprets entries, and never waits: an end that finds nothing says so. Each call follows at
//! most one link. IDC specification, "Linked-list buffers".

mod layout;
mod receiver;
mod sender;
mod word;

pub use layout::{ListError, ListLayout, MAX_NODES, MIN_NODES};
pub use receiver::ListReceiver;
pub use sender::ListSender;

use super::entry::Entry;

/// An entry that was taken; its node is still held.
#[derive(Clone, Copy, Debug)]
pub struct ListTaken<'c> {
    /// What [`ListReceiver::release`] gives back.
    pub node: u32,
    /// The entry, in the caller's copy: the node may be released at any time.
    pub entry: Entry<'c>,
    /// Nodes were given back: the sender may have waited for them.
    pub credited: bool,
}

/// An entry that was taken, and its node released.
#[derive(Clone, Copy, Debug)]
pub struct ListPopped<'c> {
    /// The entry, in the caller's copy.
    pub entry: Entry<'c>,
    /// Nodes were given back: the sender may have waited for them.
    pub credited: bool,
}
