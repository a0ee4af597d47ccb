// SPDX-License-Identifier: GPL-2.0

//! Planted bugs: what a careless platform or firmware would do instead.
//!
//! Owns their list. Each changes one access of every drive and nothing else; the simulator must find
//! every one of them.

/// A bug.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Mutant {
    /// The last 8 bytes of an entry are stored before the rest.
    TrailerFirst,
    /// The result is announced without the flush.
    NoFlush,
    /// Whatever epoch an entry has, it is taken for the ring's.
    AnyEpoch,
    /// The sender does not wait for credit.
    NoCredit,
    /// All writes have the relaxed ordering attribute.
    Relaxed,
    /// The result is announced without a notification of the host.
    SilentResult,
}

impl Mutant {
    /// All of them.
    pub const ALL: [Mutant; 6] = [
        Mutant::TrailerFirst,
        Mutant::NoFlush,
        Mutant::AnyEpoch,
        Mutant::NoCredit,
        Mutant::Relaxed,
        Mutant::SilentResult,
    ];
}
