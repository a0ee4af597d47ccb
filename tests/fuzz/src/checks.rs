// SPDX-License-Identifier: GPL-2.0

//! What must hold after every call, whatever lies were told.
//!
//! Owns the rules and the order of messages between honest ends. Knows nothing of the forms.

use crate::world::{Honest, World, EPOCH, RECEIVER, SENDER};
use crate::{Bug, Call};
use idc::entry::{Entry, Kind, Request};
use idc::ring::{Body, PeerFault};
use std::collections::VecDeque;
use zerocopy::IntoBytes;

/// What the rules remember of one buffer.
pub struct Checks {
    list: bool,
    honest: Honest,
    /// More accesses than this no call makes.
    most: u32,
    /// The sender and the receiver have found a fault.
    faulty: [bool; 2],
    /// What was sent and not taken, if all are honest.
    sent: VecDeque<u16>,
    next: u16,
}

fn has(condition: bool, why: impl FnOnce() -> String) -> Result<(), String> {
    if condition {
        Ok(())
    } else {
        Err(why())
    }
}

impl Checks {
    pub fn new(list: bool, honest: Honest, most: u32) -> Self {
        Checks {
            list,
            honest,
            most,
            faulty: [false; 2],
            sent: VecDeque::new(),
            next: 0,
        }
    }

    /// The next message: its bytes go to `push`, which says whether they were taken.
    pub fn send<T>(&mut self, length: usize, push: impl FnOnce(&Body<'_>) -> T) -> T {
        let data = [self.next as u8; 256];
        let data = &data[..length.min(data.len())];
        let header = Request::ping(data).header(self.next);
        push(&Body {
            kind: Kind::Request,
            flags: 0,
            header: header.as_bytes().try_into().expect("16 bytes"),
            data,
        })
    }

    /// It was sent.
    pub fn sent(&mut self) {
        self.sent.push_back(self.next);
        self.next = self.next.wrapping_add(1);
    }

    /// After a call of `actor` that came to `result`; `asked` says that it had to look at the fence.
    pub fn call(
        &mut self,
        world: &mut World,
        call: Call,
        result: Result<bool, PeerFault>,
        asked: bool,
    ) -> Result<(), String> {
        world.note(self.list, call, &result);
        if let Some(why) = world.breach.take() {
            return Err(format!("{call:?}: {why}"));
        }
        let accesses = world.accesses;
        has(accesses <= self.most, || {
            format!("{call:?}: {accesses} accesses, at most {}", self.most)
        })?;
        let faulty = &mut self.faulty[usize::from(world.actor == RECEIVER)];
        let fenced = matches!(result, Err(PeerFault::Fenced));
        has(fenced == (*faulty && asked), || {
            format!("{call:?}: {result:?} after a fault: {faulty}")
        })?;
        has(!*faulty || accesses == 0, || {
            format!("{call:?}: accesses behind the fence")
        })?;
        *faulty |= result.is_err();
        has(self.honest != Honest::Both || result.is_ok(), || {
            format!("{call:?}: {result:?} though nobody lied")
        })?;
        world.accesses = 0;
        world.point();
        Ok(())
    }

    /// An end that is fenced stands still, and another is not fenced.
    pub fn fence(&self, receiver: bool, fenced: bool, same: bool) -> Result<(), String> {
        let faulty = self.faulty[usize::from(receiver)];
        has(faulty == fenced, || {
            format!("receiver {receiver}: a fault {faulty}, but fenced {fenced}")
        })?;
        has(!faulty || same, || "changes behind the fence".into())
    }

    /// An entry was taken as number `index`: it must be what the memory gave, and from who sends here.
    /// Bytes as in the specification.
    pub fn taken(&mut self, world: &World, index: u32, entry: &Entry<'_>) -> Result<(), String> {
        let (head, trailer) = world.given;
        let word = |at: usize| u32::from_le_bytes([0, 1, 2, 3].map(|i| trailer[at + i]));
        has(
            trailer[0] == SENDER as u8 && trailer[1] == RECEIVER as u8,
            || {
                format!(
                    "taken as the sender's: from {} to {}",
                    trailer[0], trailer[1]
                )
            },
        )?;
        has(word(4) == index && word(8) == EPOCH, || {
            format!("taken as {index}: {} of epoch {}", word(4), word(8))
        })?;
        let (cid, said) = match entry {
            Entry::Request { cid, .. } => (*cid, u16::from_le_bytes([head[2], head[3]])),
            Entry::Response(response) => (response.cid, u16::from_le_bytes([head[12], head[13]])),
        };
        has(cid == said, || format!("cid {cid} where {said} was read"))?;
        let first = self.sent.pop_front();
        has(self.honest != Honest::Both || first == Some(cid), || {
            format!("{cid} came where {first:?} was due")
        })
    }

    /// Whether a planted bug undoes a fault.
    pub fn forgets(world: &World, result: &Result<bool, PeerFault>) -> bool {
        world.bug == Bug::Forgetful && world.actor == RECEIVER && result.is_err()
    }
}
