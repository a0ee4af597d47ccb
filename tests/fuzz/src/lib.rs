// SPDX-License-Identifier: GPL-2.0

//! A fuzzer for the ends of rings and linked lists over memory that lies.
//!
//! Bytes decide everything: the form of the buffer, what its two ends do, and when a liar changes
//! which word. [`run`] does what they say and checks after each step what must hold whatever lies are
//! told. Bytes come from a seed ([`search`]), without coverage: what an input reached is known by the
//! calls and their results. So it needs no nightly compiler and no library. Owns no code of the protocol.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod checks;
pub mod corpus;
mod list;
mod ring;
pub mod search;
pub mod world;

use std::panic::{catch_unwind, AssertUnwindSafe};
use world::{Honest, World};

/// A bug of a receiver, planted around the real one, that the fuzzer must find.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Bug {
    /// None: the product as it is.
    #[default]
    None,
    /// It does not compare who an entry says that it is from.
    Gullible,
    /// It goes on after a fault as if nothing had happened.
    Forgetful,
    /// It looks at an entry's size again after having checked it.
    SecondLook,
}

/// What was called.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Call {
    Push,
    Announce,
    Refresh,
    Peek,
    Take,
    Metadata,
    Release,
}

/// Which calls had which results, for both forms: a set of events.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Reached([u64; 4]);

impl Reached {
    fn note(&mut self, event: u8) {
        self.0[usize::from(event / 64)] |= 1 << (event % 64);
    }

    /// Whether `other` has events that this has not.
    #[must_use]
    pub fn lacks(&self, other: &Reached) -> bool {
        self.0.iter().zip(other.0).any(|(a, b)| b & !a != 0)
    }

    /// Takes in those of `other`.
    pub fn add(&mut self, other: &Reached) {
        for (a, b) in self.0.iter_mut().zip(other.0) {
            *a |= b;
        }
    }

    /// All events, by number.
    pub fn events(&self) -> impl Iterator<Item = u8> + '_ {
        (0..=255).filter(|event| self.0[usize::from(event / 64)] & 1 << (event % 64) != 0)
    }

    /// Only this one.
    #[must_use]
    pub fn only(event: u8) -> Self {
        let mut only = Reached::default();
        only.note(event);
        only
    }
}

/// What an input came to.
pub struct Outcome {
    /// Points at which the liar could act: before each access, and between calls.
    pub states: u64,
    /// Of these, those at which it did.
    pub lies: u64,
    /// What happened.
    pub reached: Reached,
    /// What must not happen and did.
    pub violation: Option<String>,
}

/// Does what the bytes say.
#[must_use]
pub fn run(bytes: &[u8], bug: Bug) -> Outcome {
    let mut world = World::new(bytes, bug);
    let result = catch_unwind(AssertUnwindSafe(|| {
        if world.byte() & 1 == 0 {
            ring::run(&mut world)
        } else {
            list::run(&mut world)
        }
    }));
    let violation = match result {
        Ok(Ok(())) => None,
        Ok(Err(why)) => Some(why),
        Err(panic) => {
            let why = panic.downcast_ref::<String>().map(String::as_str);
            let why = why.or(panic.downcast_ref::<&str>().copied());
            Some(format!("panic: {}", why.unwrap_or("?")))
        }
    };
    Outcome {
        states: world.states,
        lies: world.lies,
        reached: world.reached,
        violation,
    }
}

/// Whose words the bytes let the liar change.
pub(crate) fn honest(choice: u8) -> Honest {
    match choice & 3 {
        0 => Honest::Nobody,
        1 => Honest::Sender,
        2 => Honest::Receiver,
        _ => Honest::Both,
    }
}
