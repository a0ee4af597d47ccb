// SPDX-License-Identifier: GPL-2.0

//! A mesh in words and in JSON.
//!
//! Owns the shape that all commands which report meshes share, and the walk over a mesh's rings.

use super::choices::*;
use super::draw::{Drawing, Edge, Node};
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
    place_drive: Option<String>,
    publish: &'static str,
    form: &'static str,
    share: &'static str,
    flags: Vec<&'static str>,
    memory: &'static str,
    establish: &'static str,
    establish_drive: Option<String>,
    notify: &'static str,
    select: &'static str,
    pairs: u32,
    buffers: u32,
    digest: u32,
    resets: u64,
    establish_ns: u64,
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
    buffer: u32,
    form: &'static str,
    share: &'static str,
    publish: &'static str,
    placement: &'static str,
    flags: Vec<&'static str>,
    established_by: String,
    arbiter: Option<String>,
    entries: u32,
    entry_bytes: u32,
    sent: u64,
    announcements: u64,
    flushes: u64,
}

#[derive(Serialize)]
pub(super) struct MeshesReport {
    pub meshes: Vec<MeshReport>,
}

/// `mesh0: 3 drives, 6 peer rings of 64 x 64 B (in the receiver's PMR), 6 host rings, 3 ms`, and in
/// a second line what was asked for beside that.
pub(super) fn headline(mesh: &Mesh) -> String {
    let info = &mesh.info;
    let drives = mesh.drives().count();
    let of = format!("of {} x {} B", info.entries, info.entry_bytes);
    let kind = match info.form {
        CSD_FORM_LIST => "list",
        _ => "ring",
    };
    let (peer, host) = (count(info.peer_rings.into()), count(info.host_rings.into()));
    let what = match info.share {
        CSD_SHARE_NONE => {
            let places = places(mesh);
            format!("{peer} peer {kind}s {of}{places}, {host} host {kind}s")
        }
        share => {
            let who = match share {
                CSD_SHARE_WRITERS => "for the writers of each receiver",
                CSD_SHARE_READERS => "for the readers of each sender",
                CSD_SHARE_PAIR => "for both directions of each pair",
                _ => "for all",
            };
            let noun = if info.buffers == 1 {
                "buffer"
            } else {
                "buffers"
            };
            let (buffers, places) = (count(info.buffers.into()), places(mesh));
            format!("{buffers} {noun} {of} {who}{places}, {peer} peer and {host} host pairs")
        }
    };
    let mut text = format!(
        "{}: {} {}, {what}, {}",
        mesh.name(),
        drives,
        if drives == 1 { "drive" } else { "drives" },
        time(info.create_ns)
    );
    let choices = choices(info);
    if !choices.is_empty() {
        text.push_str("\n  ");
        text.push_str(&joined(choices));
    }
    text
}

/// What was asked for other than by default.
fn choices(info: &csd_mesh_info) -> Vec<String> {
    let mut list = Vec::new();
    let drive = |name: &str, drive: u32| match name {
        "member" => member_name(drive),
        _ => name.to_string(),
    };
    if info.publish != CSD_PUBLISH_ENTRY {
        list.push(format!("published by {}", publish_name(info.publish)));
    }
    list.extend(flag_names(info.ring_flags).into_iter().map(String::from));
    if info.establish != CSD_ESTABLISH_HOST {
        let who = match info.establish {
            CSD_ESTABLISH_DISCOVER => "discovery".into(),
            other => drive(establish_name(other), info.establish_drive),
        };
        list.push(format!("established by {who}"));
    }
    if info.notify != CSD_NOTIFY_HOST {
        list.push(format!("told by {}", notify_name(info.notify)));
    }
    if info.select != CSD_SELECT_ROUND_ROBIN {
        list.push(format!("{} first", select_name(info.select)));
    }
    match info.pair_count {
        0 => {}
        1 => list.push("1 pair differs".into()),
        many => list.push(format!("{} pairs differ", count(many.into()))),
    }
    list
}

/// In whose memory the peer rings are.
fn places(mesh: &Mesh) -> String {
    let info = &mesh.info;
    match info.placement {
        CSD_PLACE_RECEIVER => lent_by(mesh, "receiver"),
        CSD_PLACE_SENDER => lent_by(mesh, "sender"),
        CSD_PLACE_HOST => " (in host memory)".into(),
        _ => {
            let hub = mesh
                .members
                .iter()
                .find(|member| member.drive == info.place_drive);
            let memory = hub.map_or(0, |member| member.memory);
            format!(
                " (in {}'s {})",
                member_name(info.place_drive),
                memory_name(memory)
            )
        }
    }
}

/// As [`places`] where each ring lies with one of its ends: all that one member has are in one
/// memory.
fn lent_by(mesh: &Mesh, end: &str) -> String {
    let lenders = |memory: u32| {
        let all = mesh
            .members
            .iter()
            .filter(|member| member.drive != CSD_MEMBER_HOST);
        all.filter(|member| member.memory == memory)
            .map(|member| member_name(member.drive))
            .collect::<Vec<_>>()
    };
    let each = mesh.drives().count().saturating_sub(1);
    let kinds = [
        (lenders(CSD_MEMORY_PMR), format!("in the {end}'s PMR")),
        (lenders(CSD_MEMORY_CMB), format!("in the {end}'s CMB")),
        (lenders(0), "in host memory".to_string()),
    ];
    let used: Vec<_> = kinds.iter().filter(|(list, _)| !list.is_empty()).collect();
    match used[..] {
        _ if each == 0 => String::new(),
        [(_, text)] => format!(" ({text})"),
        _ => {
            let parts = used.iter().map(|(list, text)| {
                let rings = list.len() * each;
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
        "OF",
        "BY",
        "STATE",
        ">MESSAGES",
        ">BYTES",
        ">CREDITS",
        ">TOLD",
        ">FLUSHES",
        ">STALLS",
        ">STALE",
        ">FAULTS",
    ]);
    for ring in rings {
        table.row([
            member_name(ring.from),
            member_name(ring.to),
            place(ring),
            buffer(ring),
            member_name(ring.establisher),
            ring_state(ring.state).into(),
            count(ring.messages),
            count(ring.message_bytes),
            count(ring.credit_writes),
            count(ring.announcements),
            count(ring.flushes),
            count(ring.stalls),
            count(ring.stale),
            count(ring.faults),
        ]);
    }
    table
}

/// `csd1 PMR`
fn place(ring: &csd_ring_info) -> String {
    match ring.memory {
        0 => "host memory".into(),
        memory => format!("{} {}", member_name(ring.where_), memory_name(memory)),
    }
}

/// `64x64`, `list 32x64`, `#3 64x64` for what others use too.
fn buffer(ring: &csd_ring_info) -> String {
    let kind = match (ring.share, ring.form) {
        (CSD_SHARE_NONE, CSD_FORM_LIST) => "list ".into(),
        (CSD_SHARE_NONE, _) => String::new(),
        _ => format!("#{} ", ring.buffer),
    };
    format!("{kind}{}x{}", ring.entries, ring.entry_bytes)
}

/// What [`Drawing`] draws of a mesh.
pub(super) fn drawing(mesh: &Mesh, rings: &[csd_ring_info]) -> Drawing {
    let nodes = mesh.members.iter().map(|member| Node {
        name: member_name(member.drive),
        memory: memory_name(member.memory),
        lost: member.state == CSD_MEMBER_LOST,
    });
    let at = |drive: u32| {
        let mut members = mesh.members.iter();
        members.position(|member| member.drive == drive)
    };
    let edges = rings.iter().filter_map(|ring| {
        Some(Edge {
            from: at(ring.from)?,
            to: at(ring.to)?,
            buffer: ring.buffer,
            shared: ring.share != CSD_SHARE_NONE,
            what: format!(
                "{} {} x {} B in {}",
                form_name(ring.form),
                ring.entries,
                ring.entry_bytes,
                place(ring)
            ),
            messages: ring.messages,
            broken: ring.state != CSD_RING_ATTACHED,
        })
    });
    Drawing {
        name: mesh.name(),
        nodes: nodes.collect(),
        edges: edges.collect(),
    }
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
    let drive = |number: u32| (number != CSD_MEMBER_HOST).then(|| member_name(number));
    Ok(MeshReport {
        name: mesh.name(),
        number: info.mesh,
        entries: info.entries,
        entry_bytes: info.entry_bytes,
        placement: place_name(info.placement),
        place_drive: drive(info.place_drive),
        publish: publish_name(info.publish),
        form: form_name(info.form),
        share: share_name(info.share),
        flags: flag_names(info.ring_flags),
        memory: memory_choice_name(info.memory),
        establish: establish_name(info.establish),
        establish_drive: drive(info.establish_drive),
        notify: notify_name(info.notify),
        select: select_name(info.select),
        pairs: info.pair_count,
        buffers: info.buffers,
        digest: info.digest,
        resets: info.resets,
        establish_ns: info.establish_ns,
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
                buffer: ring.buffer,
                form: form_name(ring.form),
                share: share_name(ring.share),
                publish: publish_name(ring.publish),
                placement: place_name(ring.place),
                flags: flag_names(ring.flags),
                established_by: member_name(ring.establisher),
                arbiter: (ring.share != CSD_SHARE_NONE).then(|| member_name(ring.arbiter)),
                entries: ring.entries,
                entry_bytes: ring.entry_bytes,
                sent: ring.sent,
                announcements: ring.announcements,
                flushes: ring.flushes,
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
        CSD_RING_RESETTING => "resetting",
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
