// SPDX-License-Identifier: GPL-2.0

//! A mesh in words and in JSON.
//!
//! Owns the shape that all commands which report meshes share, and the walk over a mesh's rings.

use crate::device::Device;
use crate::failure::{Failure, Outcome};
use crate::names::{joined, member_name, Mesh};
use crate::output::Table;
use crate::sys::abi::*;
use crate::units::{count, size, time};
use nix::errno::Errno;
use serde::Serialize;

/// A mesh, as JSON has it.
#[derive(Serialize)]
pub(super) struct MeshReport {
    name: String,
    number: u32,
    entries: u32,
    entry_bytes: u32,
    placement: &'static str,
    publish: &'static str,
    peer_rings: u32,
    host_rings: u32,
    pipelines: u32,
    host_bytes: u64,
    create_ns: u64,
    members: Vec<MemberReport>,
    rings: Vec<RingReport>,
}

#[derive(Serialize)]
struct MemberReport {
    name: String,
    member: u32,
    state: &'static str,
    memory: &'static str,
    ring_bytes: u64,
}

#[derive(Serialize)]
struct RingReport {
    from: String,
    to: String,
    r#where: String,
    memory: &'static str,
    state: &'static str,
    epoch: u32,
    tail: u32,
    head: u32,
    bytes: u64,
    messages: u64,
    message_bytes: u64,
    credit_writes: u64,
    stalls: u64,
    stale: u64,
    faults: u64,
}

#[derive(Serialize)]
pub(super) struct MeshesReport {
    pub meshes: Vec<MeshReport>,
}

/// `mesh0: 3 drives, 6 peer rings of 64 x 64 B (in the receiver's PMR), 6 host rings, 3 ms`
pub(super) fn headline(mesh: &Mesh) -> String {
    let info = &mesh.info;
    let drives = mesh.drives().count();
    format!(
        "{}: {} {}, {} peer rings of {} x {} B{}, {} host rings, {}",
        mesh.name(),
        drives,
        if drives == 1 { "drive" } else { "drives" },
        count(info.peer_rings.into()),
        info.entries,
        info.entry_bytes,
        places(mesh),
        count(info.host_rings.into()),
        time(info.create_ns)
    )
}

/// In whose memory the peer rings are. A receiver's incoming ones are all in one memory.
fn places(mesh: &Mesh) -> String {
    let receivers = |memory: u32| {
        let all = mesh
            .members
            .iter()
            .filter(|member| member.drive != CSD_MEMBER_HOST);
        all.filter(|member| member.memory == memory)
            .map(|member| member_name(member.drive))
            .collect::<Vec<_>>()
    };
    let per_receiver = mesh.drives().count().saturating_sub(1);
    let kinds = [
        (receivers(CSD_MEMORY_PMR), "in the receiver's PMR"),
        (receivers(CSD_MEMORY_CMB), "in the receiver's CMB"),
        (receivers(0), "in host memory"),
    ];
    let used: Vec<_> = kinds.iter().filter(|(list, _)| !list.is_empty()).collect();
    match used[..] {
        _ if per_receiver == 0 => String::new(),
        [(_, text)] => format!(" ({text})"),
        _ => {
            let parts = used.iter().map(|(list, text)| {
                let rings = list.len() * per_receiver;
                let whose = if *text == "in host memory" {
                    format!(": {} without own", joined(list.iter().cloned()))
                } else {
                    String::new()
                };
                format!("{rings} {text}{whose}")
            });
            format!(" ({})", joined(parts))
        }
    }
}

pub(super) fn members_table(mesh: &Mesh) -> Table {
    let mut table = Table::new(&["MEMBER", ">ID", "STATE", "RINGS IN", ">RING BYTES"]);
    for member in &mesh.members {
        table.row([
            member_name(member.drive),
            member.member.to_string(),
            member_state(member.state).into(),
            memory_name(member.memory).into(),
            size(member.ring_bytes),
        ]);
    }
    table
}

pub(super) fn rings_table(rings: &[csd_ring_info]) -> Table {
    let mut table = Table::new(&[
        "FROM",
        "TO",
        "IN",
        "STATE",
        ">MESSAGES",
        ">BYTES",
        ">CREDITS",
        ">STALLS",
        ">STALE",
        ">FAULTS",
    ]);
    for ring in rings {
        let place = match ring.memory {
            0 => "host memory".into(),
            memory => format!("{} {}", member_name(ring.where_), memory_name(memory)),
        };
        table.row([
            member_name(ring.from),
            member_name(ring.to),
            place,
            ring_state(ring.state).into(),
            count(ring.messages),
            count(ring.message_bytes),
            count(ring.credit_writes),
            count(ring.stalls),
            count(ring.stale),
            count(ring.faults),
        ]);
    }
    table
}

/// All rings of the mesh: those between drives, then those from and to the host.
pub(super) fn rings(device: &dyn Device, mesh: &Mesh) -> Outcome<Vec<csd_ring_info>> {
    let mut drives: Vec<u32> = mesh.drives().collect();
    drives.sort_unstable();
    let mut pairs: Vec<(u32, u32)> = Vec::new();
    for from in &drives {
        pairs.extend(
            drives
                .iter()
                .filter(|to| *to != from)
                .map(|to| (*from, *to)),
        );
    }
    pairs.extend(drives.iter().map(|to| (CSD_MEMBER_HOST, *to)));
    pairs.extend(drives.iter().map(|from| (*from, CSD_MEMBER_HOST)));
    let mut rings = Vec::new();
    for (from, to) in pairs {
        match device.ring_info(mesh.info.mesh, from, to) {
            Ok(ring) => rings.push(ring),
            // No ring between these two.
            Err(Errno::ENXIO) => {}
            Err(errno) => {
                let what = format!(
                    "{}: ring {} to {}",
                    mesh.name(),
                    member_name(from),
                    member_name(to)
                );
                return Err(Failure::errno(what, errno));
            }
        }
    }
    Ok(rings)
}

pub(super) fn report_mesh(device: &dyn Device, mesh: &Mesh) -> Outcome<MeshReport> {
    let info = &mesh.info;
    Ok(MeshReport {
        name: mesh.name(),
        number: info.mesh,
        entries: info.entries,
        entry_bytes: info.entry_bytes,
        placement: match info.placement {
            CSD_PLACE_RECEIVER => "receiver",
            _ => "unknown",
        },
        publish: match info.publish {
            CSD_PUBLISH_ENTRY => "entry",
            _ => "unknown",
        },
        peer_rings: info.peer_rings,
        host_rings: info.host_rings,
        pipelines: info.pipelines,
        host_bytes: info.host_bytes,
        create_ns: info.create_ns,
        members: mesh
            .members
            .iter()
            .map(|member| MemberReport {
                name: member_name(member.drive),
                member: member.member,
                state: member_state(member.state),
                memory: memory_name(member.memory),
                ring_bytes: member.ring_bytes,
            })
            .collect(),
        rings: rings(device, mesh)?
            .iter()
            .map(|ring| RingReport {
                from: member_name(ring.from),
                to: member_name(ring.to),
                r#where: member_name(ring.where_),
                memory: memory_name(ring.memory),
                state: ring_state(ring.state),
                epoch: ring.epoch,
                tail: ring.tail,
                head: ring.head,
                bytes: ring.bytes,
                messages: ring.messages,
                message_bytes: ring.message_bytes,
                credit_writes: ring.credit_writes,
                stalls: ring.stalls,
                stale: ring.stale,
                faults: ring.faults,
            })
            .collect(),
    })
}

fn member_state(state: u32) -> &'static str {
    match state {
        CSD_MEMBER_ATTACHED => "attached",
        CSD_MEMBER_LOST => "lost",
        _ => "unknown",
    }
}

fn ring_state(state: u32) -> &'static str {
    match state {
        CSD_RING_ATTACHED => "attached",
        CSD_RING_FENCED => "fenced",
        CSD_RING_DETACHED => "detached",
        _ => "unknown",
    }
}

fn memory_name(memory: u32) -> &'static str {
    match memory {
        CSD_MEMORY_CMB => "CMB",
        CSD_MEMORY_PMR => "PMR",
        _ => "host",
    }
}
