// SPDX-License-Identifier: GPL-2.0

//! Ioctls about one drive.
//!
//! Owns the translation of what the NVMe layer knows into the ABI, and the timing of the host's
//! own accesses to a drive's memory. Never sends a command.

use crate::{
    drive::{
        MemoryInfo,
        State, //
    },
    mesh::{
        registry::Registry,
        slot::{
            Lease,
            Slot, //
        }, //
    },
    nvme::memory::MemoryState,
    proxy::FUNCTIONS,
    sys::{
        region::MemoryKind,
        time::now_ns, //
    },
    uapi::{
        self,
        csd_drive_counters,
        csd_drive_info,
        csd_drive_namespace,
        csd_drive_probe_memory,
        csd_drive_set, //
    }, //
};
use kernel::{
    prelude::*,
    sync::{
        atomic::Relaxed,
        Arc, //
    }, //
};

/// Bytes that a probe may touch.
const PROBE_MIN: u64 = 4096;
const PROBE_MAX: u64 = 1 << 20;

/// Copies `text` into a zero-terminated array of the ABI, cut to fit.
fn put_text(to: &mut [::core::ffi::c_char], text: &str) {
    to.fill(0);
    let room = to.len().saturating_sub(1);
    for (place, byte) in to.iter_mut().take(room).zip(text.bytes()) {
        *place = byte as ::core::ffi::c_char;
    }
}

fn state(state: State) -> u32 {
    match state {
        State::Starting => uapi::CSD_DRIVE_STARTING,
        State::Ready => uapi::CSD_DRIVE_READY,
        State::Resetting => uapi::CSD_DRIVE_RESETTING,
        State::Failed => uapi::CSD_DRIVE_FAILED,
        State::Gone => uapi::CSD_DRIVE_GONE,
    }
}

fn memory_flags(cmb: &MemoryInfo, pmr: &MemoryInfo, signed: bool) -> u32 {
    let mut flags = 0;
    if cmb.state == MemoryState::Ready {
        flags |= uapi::CSD_MEMORY_CMB;
    }
    if pmr.state == MemoryState::Ready {
        flags |= uapi::CSD_MEMORY_PMR;
    }
    if pmr.state != MemoryState::Absent {
        flags |= uapi::CSD_MEMORY_PMR_FOUND;
    }
    if signed {
        flags |= uapi::CSD_MEMORY_PMR_SIGNED;
    }
    flags
}

/// Carries out `CSD_IOC_DRIVE_INFO`.
///
/// # Errors
///
/// - As `uapi/csd.h` says.
pub(super) fn info(registry: &Registry, info: &mut csd_drive_info) -> Result {
    if info.reserved != 0 {
        return Err(EOPNOTSUPP);
    }
    let slot = registry.slot(info.drive)?;
    let drive = &slot.drive;
    let cmb = drive.memory_info(MemoryKind::Cmb);
    let pmr = drive.memory_info(MemoryKind::Pmr);
    let mesh = slot.mesh();
    info.state = state(drive.state());
    info.kind = uapi::CSD_DRIVE_PROXIED;
    info.mesh = mesh.unwrap_or(uapi::CSD_MESH_NONE);
    info.memory_flags = memory_flags(&cmb, &pmr, slot.was_signed);
    info.cmb_bytes = cmb.len;
    info.pmr_bytes = pmr.len;
    info.memory_used = slot.used();
    info.functions = u64::from(FUNCTIONS.to_wire());
    info.namespaces = u32::try_from(usable(&slot)?.len())?;
    info.numa_node = crate::sys::device::numa_node(drive.device());
    put_text(&mut info.pci, drive.pci_address());
    info.critical_warning = slot.critical_warning.load(Relaxed);
    drive.with_info(|known| {
        // A drive that never told leaves them empty.
        info.cntlid = known.map_or(0, |known| u32::from(known.cntlid));
        info.nvme_version = known.map_or(0, |known| known.version);
        put_text(
            &mut info.nqn,
            known.map_or("", |known| known.subnqn.as_str()),
        );
        put_text(
            &mut info.model,
            known.map_or("", |known| known.model.as_str()),
        );
        put_text(
            &mut info.serial,
            known.map_or("", |known| known.serial.as_str()),
        );
        put_text(
            &mut info.firmware,
            known.map_or("", |known| known.firmware.as_str()),
        );
    });

    info.host_memory = slot.host_memory();
    let mut messages = (
        slot.totals.sent.load(Relaxed),
        slot.totals.received.load(Relaxed),
    );
    if let Some(mesh) = mesh.and_then(|number| registry.mesh(number).ok()) {
        info.host_memory = info
            .host_memory
            .saturating_add(mesh.member_bytes(info.drive));
        let (sent, received) = mesh.member_messages(info.drive);
        messages.0 = messages.0.wrapping_add(sent);
        messages.1 = messages.1.wrapping_add(received);
    }
    counters(&slot, messages, &mut info.counters);
    Ok(())
}

fn counters(slot: &Slot, messages: (u64, u64), to: &mut csd_drive_counters) {
    let nvme = slot.drive.counters();
    to.commands = nvme.admin_commands.wrapping_add(nvme.io_commands);
    to.bytes_read = nvme.read_bytes;
    to.bytes_written = nvme.written_bytes;
    to.errors = nvme.errors;
    to.timeouts = nvme.timeouts;
    to.aborts = nvme.aborts;
    to.resets = nvme.resets;
    to.aens = nvme.async_events;
    to.messages_sent = messages.0;
    to.messages_received = messages.1;
    to.host_cpu_bytes = slot.totals.touched.load(Relaxed);
}

/// Carries out `CSD_IOC_DRIVE_SET`.
///
/// # Errors
///
/// - As `uapi/csd.h` says.
pub(super) fn set(registry: &Registry, set: &csd_drive_set) -> Result {
    if set.reserved != 0 || set.flags & !uapi::CSD_DRIVE_SET_USE_PMR != 0 {
        return Err(EOPNOTSUPP);
    }
    let slot = registry.slot(set.drive)?;
    let _claim = slot.change()?;
    let wanted = set.flags & uapi::CSD_DRIVE_SET_USE_PMR != 0;
    match slot.drive.memory_info(MemoryKind::Pmr).state {
        MemoryState::Absent if wanted => return Err(EOPNOTSUPP),
        MemoryState::Absent => return Ok(()),
        MemoryState::Ready if wanted => return Ok(()),
        _ => {}
    }
    slot.drive.use_pmr(wanted)
}

/// The namespaces of a drive that can be used.
pub(crate) fn usable(slot: &Slot) -> Result<KVec<crate::drive::Namespace>> {
    let mut namespaces = slot.drive.namespaces()?;
    namespaces.retain(|namespace| namespace.refused.is_none());
    namespaces.truncate(uapi::CSD_MAX_NAMESPACES as usize);
    Ok(namespaces)
}

/// Carries out `CSD_IOC_DRIVE_NAMESPACE`.
///
/// # Errors
///
/// - As `uapi/csd.h` says; ENXIO also for an index beyond the last namespace.
pub(super) fn namespace(registry: &Registry, info: &mut csd_drive_namespace) -> Result {
    if info.reserved != 0 {
        return Err(EOPNOTSUPP);
    }
    let slot = registry.slot(info.drive)?;
    let namespaces = usable(&slot)?;
    let namespace = namespaces.get(usize::try_from(info.index)?).ok_or(ENXIO)?;
    info.nsid = namespace.nsid;
    info.block_bytes = namespace.block_size;
    info.blocks = namespace.blocks;
    Ok(())
}

/// Carries out `CSD_IOC_DRIVE_PROBE_MEMORY`.
///
/// # Errors
///
/// - As `uapi/csd.h` says; ENOSPC without that much free memory.
pub(super) fn probe_memory(registry: &Registry, probe: &mut csd_drive_probe_memory) -> Result {
    if probe.reserved != 0 {
        return Err(EOPNOTSUPP);
    }
    if !(PROBE_MIN..=PROBE_MAX).contains(&probe.bytes) {
        return Err(EINVAL);
    }
    let kind = match probe.memory {
        uapi::CSD_MEMORY_CMB => MemoryKind::Cmb,
        uapi::CSD_MEMORY_PMR => MemoryKind::Pmr,
        other if other & !(uapi::CSD_MEMORY_CMB | uapi::CSD_MEMORY_PMR) != 0 => {
            return Err(EOPNOTSUPP);
        }
        _ => return Err(EINVAL),
    };
    let slot: Arc<Slot> = registry.slot(probe.drive)?;
    // Outside a mesh nobody may switch the memory off meanwhile; inside one nobody can.
    let _claim = match slot.change() {
        Err(error) if error == EBUSY && slot.mesh().is_some() => None,
        claim => Some(claim?),
    };
    let lease = slot.alloc(kind, probe.bytes)?;
    let (read_ns, write_ns) = time_accesses(&lease)?;
    probe.read_ns = read_ns;
    probe.write_ns = write_ns;
    Ok(())
}

/// Nanoseconds to read all of `lease`, and to write the same back.
fn time_accesses(lease: &Lease) -> Result<(u64, u64)> {
    let region = lease.region();
    let mut contents = KVVec::from_elem(0u8, usize::try_from(lease.len())?, GFP_KERNEL)?;
    let started = now_ns();
    region.read(lease.start(), &mut contents)?;
    let read = now_ns();
    region.write(lease.start(), &contents)?;
    // Writes are posted; a read back tells when they have arrived.
    region.write_barrier();
    region.read_u64(lease.start())?;
    let written = now_ns();
    Ok((read.saturating_sub(started), written.saturating_sub(read)))
}
