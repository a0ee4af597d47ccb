// SPDX-License-Identifier: GPL-2.0

//! A ring of any form, its two ends, and the liar between them.
//!
//! Owns how bytes become a ring and calls of its ends.

use crate::checks::Checks;
use crate::world::{member, Part, World, EPOCH, MEMORIES, RECEIVER, SENDER};
use crate::{honest, Bug, Call};
use idc::member::Location;
use idc::memory::Memory;
use idc::ring::{Publish, PushError, Receiver, RingFlags, RingLayout, Sender};
use zerocopy::FromZeros;

fn layout(world: &mut World) -> RingLayout {
    let (form, places, size) = (world.byte(), world.byte(), world.byte());
    let at = |memory: u8, offset| Location::of(member(u16::from(memory) % MEMORIES), offset);
    RingLayout {
        entries: 4 << (size % 5),
        entry_bytes: if form & 16 != 0 { 256 } else { 64 },
        epoch: EPOCH,
        from: member(SENDER),
        to: member(RECEIVER),
        publish: if form & 8 != 0 {
            Publish::Index
        } else {
            Publish::Entry
        },
        flags: RingFlags::from_wire(form & 7).expect("known flags"),
        base: at(places, 4096),
        credit: at(places >> 4, 64),
        tail: at(places >> 2, 128),
        marks: at(places >> 4, 192),
        metadata: at(places, 512),
    }
}

fn parts(layout: &RingLayout) -> Vec<Part> {
    let part = |at, bytes, unit, writer, entries| Part {
        at,
        bytes,
        unit,
        writer,
        entries,
    };
    let mut parts = vec![part(
        layout.base,
        layout.bytes(),
        layout.entry_bytes.into(),
        SENDER,
        true,
    )];
    if layout.has_tail() {
        parts.push(part(layout.tail, 8, 8, SENDER, false));
    }
    if layout.has_metadata() {
        parts.push(part(
            layout.metadata,
            layout.metadata_bytes(),
            8,
            SENDER,
            false,
        ));
    }
    parts.push(if layout.out_of_order() {
        part(layout.marks, layout.marks_bytes(), 8, RECEIVER, false)
    } else {
        part(layout.credit, 8, 8, RECEIVER, false)
    });
    parts
}

/// Does what the bytes say.
pub fn run(world: &mut World) -> Result<(), String> {
    let layout = layout(world);
    let choice = world.byte();
    let honest = honest(choice);
    let start = if choice & 4 != 0 { u32::MAX - 3 } else { 0 };
    let (mut sender, mut receiver) = (Sender::new_zeroed(), Receiver::new_zeroed());
    sender
        .attach_at(&layout, start)
        .map_err(|e| e.to_string())?;
    receiver
        .attach_at(&layout, start)
        .map_err(|e| e.to_string())?;
    world.begin(parts(&layout), honest);
    // Marks of all slots, read in order from within one cell; then metadata, an entry in four parts.
    let mut checks = Checks::new(false, honest, layout.entries.div_ceil(32) + 1 + 5);
    while !world.is_over() {
        let step = world.byte();
        world.near = receiver.head();
        if step % 16 < 7 {
            let before = sender.is_fenced().then(|| sender.clone());
            world.actor = SENDER;
            let (call, result) = send(world, &mut checks, &mut sender, step);
            checks.call(world, call, result, true)?;
            let same = before.is_none_or(|before| before == sender);
            checks.fence(false, sender.is_fenced(), same)?;
        } else {
            world.actor = RECEIVER;
            receive(world, &mut checks, &mut receiver, step)?;
        }
        let used = sender.tail().wrapping_sub(sender.acknowledged());
        if used > layout.entries || receiver.held() > layout.entries {
            return Err(format!("{used} used, {} held", receiver.held()));
        }
    }
    Ok(())
}

type Result_ = Result<bool, idc::ring::PeerFault>;

fn send(world: &mut World, checks: &mut Checks, sender: &mut Sender, step: u8) -> (Call, Result_) {
    match step % 16 {
        5 => (Call::Announce, sender.announce(world)),
        6 => (Call::Refresh, sender.refresh(world).map(|()| true)),
        _ => {
            let most = sender.layout().inline_capacity().min(200);
            let length = if sender.is_fenced() {
                0
            } else {
                usize::from(step) % (most + 1)
            };
            let result = match checks.send(length, |body| sender.push(world, body)) {
                Ok(()) => {
                    checks.sent();
                    Ok(true)
                }
                Err(PushError::Fault(fault)) => Err(fault),
                Err(PushError::Full | PushError::TooLong) => Ok(false),
            };
            (Call::Push, result)
        }
    }
}

fn receive(
    world: &mut World,
    checks: &mut Checks,
    receiver: &mut Receiver,
    step: u8,
) -> Result<(), String> {
    let keep = receiver.is_fenced() || world.bug == Bug::Forgetful;
    let before = keep.then(|| receiver.clone());
    let mut copy = [0; 256];
    let head = receiver.head();
    let mut asked = true;
    let (call, result) = match step % 16 {
        7 => (Call::Peek, receiver.peek(world)),
        8 => {
            asked = receiver.layout().has_metadata();
            (
                Call::Metadata,
                receiver.metadata(world).map(|found| found.is_some()),
            )
        }
        9..=12 => {
            let result = match receiver.take(world, &mut copy) {
                Ok(Some(taken)) => {
                    if taken.index != head {
                        return Err(format!("took {} at {head}", taken.index));
                    }
                    checks.taken(world, taken.index, &taken.entry)?;
                    look_again(world, receiver.layout(), head);
                    Ok(true)
                }
                Ok(None) => Ok(false),
                Err(fault) => Err(fault),
            };
            (Call::Take, result)
        }
        _ => {
            let behind = if step & 16 != 0 { 1 } else { world.byte() % 70 };
            let index = head.wrapping_sub(behind.into());
            (Call::Release, receiver.release(world, index))
        }
    };
    let forgets = Checks::forgets(world, &result);
    checks.call(world, call, result, asked)?;
    match before {
        Some(before) if forgets => *receiver = before,
        Some(before) => {
            let same = before == *receiver;
            return checks.fence(true, receiver.is_fenced(), same || !before.is_fenced());
        }
        None => return checks.fence(true, receiver.is_fenced(), true),
    }
    Ok(())
}

/// The planted bug: what the entry's size is now, and that many bytes of it.
fn look_again(world: &mut World, layout: &RingLayout, index: u32) {
    if world.bug == Bug::SecondLook {
        let slot = u64::from(index % layout.entries) * u64::from(layout.entry_bytes);
        let from = layout.base.at(slot).expect("within the ring");
        let size = from.at(u64::from(layout.entry_bytes) - 12).expect("within");
        let mut trailer = [0; 12];
        let read = world.read(size, &mut trailer);
        let bytes = usize::from(trailer[3]) * 64;
        let _ = read.and_then(|()| world.read(from, &mut vec![0; bytes.max(1)]));
    }
}
