// SPDX-License-Identifier: GPL-2.0

//! A linked list, its two ends, and the liar between them.
//!
//! Owns how bytes become a list and calls of its ends.

use crate::checks::Checks;
use crate::world::{member, Part, World, EPOCH, MEMORIES, RECEIVER, SENDER};
use crate::{honest, Bug, Call};
use idc::list::{ListLayout, ListReceiver, ListSender};
use idc::member::Location;
use idc::ring::{PeerFault, PushError};
use zerocopy::FromZeros;

fn layout(world: &mut World) -> ListLayout {
    let (form, places, size) = (world.byte(), world.byte(), world.byte());
    let at = |memory: u8, offset| Location::of(member(u16::from(memory) % MEMORIES), offset);
    ListLayout {
        nodes: 2 + u32::from(size) % 63,
        node_bytes: if form & 16 != 0 { 256 } else { 64 },
        epoch: EPOCH,
        from: member(SENDER),
        to: member(RECEIVER),
        base: at(places, 4096),
        links: at(places >> 2, 1024),
        credit: at(places >> 4, 128),
        marks: at(places >> 4, 192),
    }
}

fn parts(layout: &ListLayout) -> Vec<Part> {
    let part = |at, bytes, unit, writer, entries| Part {
        at,
        bytes,
        unit,
        writer,
        entries,
    };
    vec![
        part(
            layout.base,
            layout.bytes(),
            layout.node_bytes.into(),
            SENDER,
            true,
        ),
        part(layout.links, u64::from(layout.nodes) * 8, 8, SENDER, false),
        part(layout.credit, 8, 8, RECEIVER, false),
        part(layout.marks, layout.marks_bytes(), 8, RECEIVER, false),
    ]
}

/// Does what the bytes say.
pub fn run(world: &mut World) -> Result<(), String> {
    let layout = layout(world);
    let choice = world.byte();
    let honest = honest(choice);
    let start = if choice & 4 != 0 { u32::MAX - 3 } else { 0 };
    let (mut sender, mut receiver) = (ListSender::new_zeroed(), ListReceiver::new_zeroed());
    sender
        .attach_at(&layout, start)
        .map_err(|e| e.to_string())?;
    receiver
        .attach_at(&layout, start)
        .map_err(|e| e.to_string())?;
    world.begin(parts(&layout), honest);
    // All marks and the head; an old link, an entry in three parts, a link; or a flush and a link.
    let mut checks = Checks::new(true, honest, layout.nodes.div_ceil(32) + 1 + 5);
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
        if sender.free() > layout.capacity() || receiver.held() > layout.nodes {
            return Err(format!("{} free, {} held", sender.free(), receiver.held()));
        }
    }
    Ok(())
}

type Result_ = Result<bool, PeerFault>;

fn send(
    world: &mut World,
    checks: &mut Checks,
    sender: &mut ListSender,
    step: u8,
) -> (Call, Result_) {
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
    receiver: &mut ListReceiver,
    step: u8,
) -> Result<(), String> {
    let keep = receiver.is_fenced() || world.bug == Bug::Forgetful;
    let before = keep.then(|| receiver.clone());
    let mut copy = [0; 256];
    let head = receiver.head();
    let (call, result) = match step % 16 {
        7 => (Call::Peek, receiver.peek(world)),
        8..=12 => {
            let result = match receiver.take(world, &mut copy) {
                Ok(Some(taken)) => {
                    checks.taken(world, head, &taken.entry)?;
                    Ok(true)
                }
                Ok(None) => Ok(false),
                Err(fault) => Err(fault),
            };
            (Call::Take, result)
        }
        _ => {
            let last = receiver.head_node();
            let node = if step & 16 != 0 {
                last
            } else {
                world.byte().into()
            };
            (Call::Release, receiver.release(world, node))
        }
    };
    let forgets = Checks::forgets(world, &result);
    checks.call(world, call, result, true)?;
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
