// SPDX-License-Identifier: GPL-2.0

//! A drive that breaks the protocol: besides what its firmware does, it writes what it likes wherever
//! the bus lets it.
//!
//! Owns the lies. It keeps to the places that it was given (its rings into others, the credit cells
//! that it owes, the windows granted to it, its own memory): against more only an IOMMU helps.

use crate::book::Book;
use crate::drive::member;
use crate::map::{Buffer, Place, Role};
use crate::rng::Rng;
use crate::sim::Sim;
use crate::world::{Power, World};
use idc::entry::DataBody;

/// A few lies of `liar`.
pub fn lie(sim: &Sim, rng: &mut Rng, book: &Book, liar: usize) {
    let tails: Vec<u32> = {
        let drive = sim.drives[liar - 1].borrow();
        let ipc = drive.firmware.ipc();
        let sent = |to| {
            ipc.counters(member(to))
                .map_or(0, |(out, _)| out.entries as u32)
        };
        (0..=sim.drives.len()).map(sent).collect()
    };
    let mut world = sim.world.borrow_mut();
    let agent = world.agents[liar];
    if !agent.lies || agent.exposed || agent.power != Power::On {
        return;
    }
    for _ in 0..rng.range(1, 4) {
        let to = rng.index(tails.len());
        if to == liar {
            continue;
        }
        match rng.below(5) {
            0 => noise(&mut world, rng, liar, to),
            1 | 2 => entry(&mut world, rng, book, liar, to, tails[to]),
            3 => cell(&mut world, rng, liar, to),
            _ => window(&mut world, rng, liar),
        }
    }
    let gap = rng.magnitude(2_000_000);
    world.after(gap, crate::world::Event::Lie(liar));
}

fn put(world: &mut World, liar: usize, memory: usize, at: u64, data: &[u8]) {
    // A memory that is gone hears no lies.
    let _ = world.write(liar, memory, at, data);
}

fn buffer(world: &World, from: usize, to: usize) -> Option<Buffer> {
    let number = world.map.between(from, to)?;
    world.map.buffers().get(number).copied()
}

/// Random bytes in the ring.
fn noise(world: &mut World, rng: &mut Rng, liar: usize, to: usize) {
    let Some(buffer) = buffer(world, liar, to) else {
        return;
    };
    let slot = rng.below(buffer.entries) * buffer.entry_bytes;
    let mut bytes = vec![0; rng.range(1, buffer.entry_bytes) as usize];
    rng.fill(&mut bytes);
    put(world, liar, buffer.memory, buffer.base + slot, &bytes);
}

/// An entry that looks right up to a point.
fn entry(world: &mut World, rng: &mut Rng, book: &Book, liar: usize, to: usize, tail: u32) {
    let Some(ring) = buffer(world, liar, to) else {
        return;
    };
    let size = ring.entry_bytes as usize;
    let mut bytes = vec![0; size];
    let stream = match book.jobs.len() {
        0 => rng.draw() as u32,
        jobs => 1 + rng.index(jobs) as u32,
    };
    let windows = world.map.windows();
    let window = if windows.is_empty() || rng.one_in(4) {
        rng.draw() as u32
    } else {
        windows[rng.index(windows.len())].id
    };
    let offset = rng.pick(&[0, 4096, 8192, 1, u64::MAX, u64::MAX - 4095]);
    let length = rng.pick(&[0, 1, 64, 4096, 4097, 12288, u32::MAX]);
    let body = DataBody::new(
        window,
        offset,
        length,
        rng.below(3) * 4096,
        rng.below(4) as u32,
    );
    if rng.one_in(3) {
        // A response to something.
        bytes[12..14].copy_from_slice(&(rng.below(64) as u16).to_le_bytes());
        let status = rng.pick(&[0_u16, 0x70b, 0x709, 0x281, 0xffff, 0x8000]);
        bytes[14..16].copy_from_slice(&status.to_le_bytes());
        bytes[10] = rng.pick(&[0, 16, 36, 200]);
        bytes[size - 10] = 2;
    } else {
        bytes[0] = rng.pick(&[0x01, 0x02, 0x03, 0x10, 0x11, 0x11, 0x12, 0x12, 0x13, 0x55]);
        bytes[2..4].copy_from_slice(&(rng.draw() as u16).to_le_bytes());
        bytes[4..8].copy_from_slice(&stream.to_le_bytes());
        bytes[8] = rng.pick(&[0, 1, 1, 2, 3]);
        bytes[10] = rng.pick(&[0, 8, 36, 255]);
        bytes[12] = rng.below(8) as u8;
        bytes[16..52].copy_from_slice(&body.as_data()[..36]);
        bytes[size - 10] = 1;
        bytes[size - 9] = rng.pick(&[0, 0, 0, 1, 2, 3, 4, 0xff]);
    }
    bytes[size - 12] = if rng.one_in(10) {
        rng.below(9) as u8
    } else {
        liar as u8
    };
    let sequence = if rng.one_in(6) {
        rng.draw() as u32
    } else {
        tail
    };
    bytes[size - 8..size - 4].copy_from_slice(&sequence.to_le_bytes());
    let epoch = world.traffic[liar][to].epoch;
    bytes[size - 4..].copy_from_slice(&epoch.to_le_bytes());
    let slot = u64::from(sequence) % ring.entries * ring.entry_bytes;
    put(world, liar, ring.memory, ring.base + slot, &bytes);
}

/// A word that the liar owes a peer: not earned, taken back, of another epoch, or anything.
fn cell(world: &mut World, rng: &mut Rng, liar: usize, peer: usize) {
    let pair = [(peer, liar), (liar, peer)];
    let (from, to) = rng.pick(&pair);
    let Some(buffer) = world.map.between(from, to) else {
        return;
    };
    let mine = |part: &(usize, u64, u64, Option<(Role, usize, usize)>)| {
        part.3.is_some_and(|(_, writer, _)| writer == liar)
    };
    let cells: Vec<_> = world.map.parts(buffer).filter(mine).collect();
    if cells.is_empty() {
        return;
    }
    let (memory, start, len, _) = cells[rng.index(cells.len())];
    let at = start
        + if rng.one_in(2) {
            0
        } else {
            rng.below(len / 8) * 8
        };
    let there = world.pcie.peek(memory, at as usize, 8).try_into();
    let there = u64::from_le_bytes(there.unwrap_or_default());
    let flow = &world.flows[buffer];
    let sent = flow.start.wrapping_add(flow.sent);
    let near = match rng.below(4) {
        0 => rng.draw() as u32,
        1 => sent,
        2 => sent.wrapping_add(rng.below(64) as u32),
        _ => sent.wrapping_sub(rng.below(64) as u32),
    };
    let epoch = if rng.one_in(4) {
        rng.draw() as u32
    } else {
        flow.epoch
    };
    let word = match rng.below(4) {
        0 => there ^ (1 << rng.below(64)),
        1 => rng.draw(),
        _ => (u64::from(epoch) << 32) | u64::from(near),
    };
    put(world, liar, memory, at, &word.to_le_bytes());
}

/// Random or near bytes in a window that it was granted, in its own memory too.
fn window(world: &mut World, rng: &mut Rng, liar: usize) {
    let granted: Vec<_> = world
        .map
        .windows()
        .iter()
        .filter(|lent| lent.grantees & (1 << liar) != 0 || lent.memory == liar)
        .copied()
        .collect();
    if granted.is_empty() {
        return;
    }
    let lent = granted[rng.index(granted.len())];
    let len = rng.pick(&[8, 8, 64, 144, 512]).min(lent.end - lent.start);
    let slack = lent.end - lent.start - len;
    let anywhere = rng.below(slack + 1) & !7;
    let at = lent.start + rng.pick(&[0, 64.min(slack), slack, anywhere]);
    let mut bytes = vec![0; len as usize];
    if rng.one_in(2) {
        rng.fill(&mut bytes);
    } else {
        bytes[..8].copy_from_slice(&rng.magnitude(1 << 40).to_le_bytes());
    }
    if lent.memory == liar {
        let place = world.map.find(liar, at, len);
        debug_assert!(matches!(place, Place::Window(_)));
        world.pcie.own(liar)[at as usize..][..len as usize].copy_from_slice(&bytes);
        world.inspect();
    } else {
        put(world, liar, lent.memory, at, &bytes);
    }
}
