// SPDX-License-Identifier: GPL-2.0

//! From what members are told at their attach to the map that the checks go by.
//!
//! Owns the enumeration of everything that a buffer consists of. Never places anything.

use crate::drive::member;
use crate::map::{only, Buffer, Map, Role};
use idc::mesh::MeshTable;
use idc::ring::RingLayout;

/// The map of a mesh.
///
/// # Panics
/// If the table has no such ring: the scenario placed all blocks.
#[must_use]
pub fn map(table: &MeshTable, drives: usize) -> Map {
    let everybody = (1 << (drives + 1)) - 1;
    let mut map = Map::new(everybody);
    for from in 0..=drives {
        for to in (0..=drives).filter(|to| *to != from) {
            match table.ring(member(from), member(to)) {
                Ok(ring) => add_ring(&mut map, &ring),
                Err(error) => panic!("no ring from {from} to {to}: {error}"),
            }
        }
    }
    map
}

fn add_ring(map: &mut Map, ring: &RingLayout) {
    let (from, to) = (ring.from.index(), ring.to.index());
    let number = map.add(Buffer {
        memory: ring.base.memory.index(),
        base: ring.base.offset,
        entries: ring.entries.into(),
        entry_bytes: ring.entry_bytes.into(),
        writers: only(from),
        readers: only(to),
        is_self_announcing: true,
    });
    let credit = (ring.credit.memory.index(), ring.credit.offset);
    map.add_cell(number, Role::Credit, credit, 64, (to, from));
}
