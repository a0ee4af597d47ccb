// SPDX-License-Identifier: GPL-2.0

//! A drive in words and in JSON.
//!
//! Owns the shape that all commands which report drives share. It asks the module for namespaces
//! and for nothing else.

use crate::device::Device;
use crate::failure::{Failure, Outcome};
use crate::names::{bits, drive_name, mesh_name, text, Drive};
use crate::sys::abi::*;
use crate::units::size;
use idc::function::FunctionId;
use nix::errno::Errno;
use serde::Serialize;

/// A drive, as JSON has it.
#[derive(Debug, Serialize)]
pub struct DriveReport {
    name: String,
    number: u32,
    pci: String,
    nqn: String,
    model: String,
    serial: String,
    firmware: String,
    kind: &'static str,
    state: &'static str,
    mesh: Option<String>,
    cntlid: u32,
    pub(super) nvme_version: String,
    numa_node: Option<u32>,
    critical_warning: u32,
    functions: Vec<String>,
    pub(super) memory: MemoryReport,
    pub(super) namespaces: Vec<NamespaceReport>,
    pub(super) counters: Counters,
}

/// A drive's memory, and the host's for it.
#[derive(Debug, Serialize)]
pub(super) struct MemoryReport {
    pub cmb_bytes: u64,
    pub cmb_enabled: bool,
    pub pmr_bytes: u64,
    pub pmr_enabled: bool,
    pub pmr_signed: bool,
    pub used_bytes: u64,
    pub host_bytes: u64,
}

/// A namespace of a drive.
#[derive(Debug, Serialize)]
pub(super) struct NamespaceReport {
    pub nsid: u32,
    pub block_bytes: u32,
    pub blocks: u64,
    pub bytes: u64,
}

macro_rules! counters {
    ($($name:ident),*) => {
        /// What a drive counts since it was bound.
        #[derive(Debug, Serialize)]
        pub(super) struct Counters { $($name: u64),* }

        impl Counters {
            fn new(from: &csd_drive_counters) -> Self {
                Self { $($name: from.$name),* }
            }

            /// Names and values, in order.
            pub fn list(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name)),*]
            }
        }
    };
}

counters! {
    commands, bytes_read, bytes_written, errors, timeouts, aborts, resets, aens, messages_sent,
    messages_received, host_cpu_bytes
}

/// A drive as JSON has it, its namespaces asked for.
///
/// # Errors
/// The module does not answer.
pub fn drive(device: &dyn Device, drive: &Drive) -> Outcome<DriveReport> {
    let info = &drive.info;
    let mut namespaces = Vec::new();
    for index in 0..info.namespaces.min(CSD_MAX_NAMESPACES) {
        match device.drive_namespace(info.drive, index) {
            Ok(found) => namespaces.push(NamespaceReport {
                nsid: found.nsid,
                block_bytes: found.block_bytes,
                blocks: found.blocks,
                bytes: found.blocks.saturating_mul(found.block_bytes.into()),
            }),
            // A drive that is being reset or goes away has none to tell of.
            Err(Errno::ENODEV | Errno::ENXIO) => break,
            Err(errno) => {
                return Err(Failure::errno(drive.name(), errno).drive(drive.name()));
            }
        }
    }
    Ok(DriveReport {
        name: drive.name(),
        number: info.drive,
        pci: drive.pci(),
        nqn: drive.nqn(),
        model: text(&info.model),
        serial: text(&info.serial),
        firmware: text(&info.firmware),
        kind: kind(info),
        state: state(info.state),
        mesh: (info.mesh != CSD_MESH_NONE).then(|| mesh_name(info.mesh)),
        cntlid: info.cntlid,
        nvme_version: nvme_version(info.nvme_version),
        numa_node: u32::try_from(info.numa_node).ok(),
        critical_warning: info.critical_warning,
        functions: functions(info.functions),
        memory: MemoryReport {
            cmb_bytes: info.cmb_bytes,
            cmb_enabled: info.memory_flags & CSD_MEMORY_CMB != 0,
            pmr_bytes: info.pmr_bytes,
            pmr_enabled: info.memory_flags & CSD_MEMORY_PMR != 0,
            pmr_signed: info.memory_flags & CSD_MEMORY_PMR_SIGNED != 0,
            used_bytes: info.memory_used,
            host_bytes: info.host_memory,
        },
        namespaces,
        counters: Counters::new(&info.counters),
    })
}

/// The VS register: major version in bits 31:16, minor in 15:08, tertiary in 07:00, which is left
/// out where it is 0, as in the specification's own name ("1.4").
fn nvme_version(register: u32) -> String {
    let (major, minor, tertiary) = (register >> 16, (register >> 8) & 0xff, register & 0xff);
    match tertiary {
        0 => format!("{major}.{minor}"),
        _ => format!("{major}.{minor}.{tertiary}"),
    }
}

/// Who runs the drive's firmware logic.
pub fn kind(info: &csd_drive_info) -> &'static str {
    match info.kind {
        CSD_DRIVE_PROXIED => "proxied",
        CSD_DRIVE_FIRMWARE => "firmware",
        _ => "unknown",
    }
}

/// `csd_drive_info.state` as a word.
pub fn state(state: u32) -> &'static str {
    match state {
        CSD_DRIVE_STARTING => "starting",
        CSD_DRIVE_READY => "ready",
        CSD_DRIVE_RESETTING => "resetting",
        CSD_DRIVE_FAILED => "failed",
        CSD_DRIVE_GONE => "gone",
        _ => "unknown",
    }
}

/// Name of the function with this id.
pub fn function(id: u32) -> String {
    u16::try_from(id)
        .ok()
        .and_then(FunctionId::from_wire)
        .map_or_else(
            || format!("function{id}"),
            |function| function.name().to_string(),
        )
}

/// Names of the functions in a mask, bit N being function id N.
pub fn functions(mask: u64) -> Vec<String> {
    bits(mask).map(function).collect()
}

/// Whether peers can send to the drive: it needs memory of its own for that.
pub fn can_receive(info: &csd_drive_info) -> bool {
    info.memory_flags & (CSD_MEMORY_CMB | CSD_MEMORY_PMR) != 0
}

/// The drive's own memory in one cell: `PMR 64 MiB, CMB 64 MiB off`.
pub fn memory(info: &csd_drive_info) -> String {
    let part = |name: &str, bytes: u64, flag: u32| {
        let off = if info.memory_flags & flag == 0 {
            " off"
        } else {
            ""
        };
        (bytes != 0).then(|| format!("{name} {}{off}", size(bytes)))
    };
    let parts: Vec<String> = [
        part("CMB", info.cmb_bytes, CSD_MEMORY_CMB),
        part("PMR", info.pmr_bytes, CSD_MEMORY_PMR),
    ]
    .into_iter()
    .flatten()
    .collect();
    if parts.is_empty() {
        "none".into()
    } else {
        parts.join(", ")
    }
}

/// Name of whoever has this number, with `-` for nobody.
pub fn drive_or_none(number: u32) -> Option<String> {
    (number != CSD_MEMBER_HOST).then(|| drive_name(number))
}
