// SPDX-License-Identifier: GPL-2.0

//! The device in memory.

use csdctl::device::*;
use csdctl::sys::abi::*;
use csdctl::sys::Abi;
use nix::errno::Errno;
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::time::Duration;

/// A drive: what the module would tell of it, and what is on its namespaces.
pub struct FakeDrive {
    pub info: csd_drive_info,
    pub block_bytes: u32,
    pub disks: Vec<Vec<u8>>,
}

/// How the next pipeline is to fail after it was started.
#[derive(Clone, Copy)]
pub struct Fault {
    pub errno: Errno,
    pub status: u32,
    pub drive: u32,
    pub stage: u32,
    pub offset: u64,
}

/// The state of the device.
#[derive(Default)]
pub struct Fake {
    /// Opening it gives this errno.
    pub missing: Option<i32>,
    pub drives: BTreeMap<u32, FakeDrive>,
    pub meshes: BTreeMap<u32, (csd_mesh_info, Vec<csd_mesh_member>)>,
    pub events: VecDeque<csd_event>,
    pub inbox: VecDeque<(u32, Received)>,
    pub pipelines: Vec<csd_pipeline_info>,
    pub cancelled: Vec<u64>,
    /// Members that do not answer.
    pub silent: Vec<u32>,
    pub mesh_error: Option<(Errno, u32)>,
    /// Why the next mesh is refused, and the drive and the pair that it is about.
    pub mesh_reason: Option<(Errno, u32, u32, u32)>,
    /// Pairs that differed in the last request.
    pub pairs: Vec<csd_mesh_pair>,
    pub resets: Vec<csd_ring_reset>,
    pub reset_error: Option<Errno>,
    pub start_error: Option<StartError>,
    pub fault: Option<Fault>,
    /// A signal comes instead of the result's end.
    pub interrupt: bool,
    pub requests: Vec<PipelineRequest>,
    /// Consent given, by drive.
    pub consents: Vec<u32>,
}

/// Fills a text of the ABI.
pub fn set_text(field: &mut [std::ffi::c_char], text: &str) {
    for (to, from) in field.iter_mut().zip(text.bytes()) {
        *to = from as std::ffi::c_char;
    }
}

impl Fake {
    /// A device with `count` drives of one namespace each: csd0 with CMB and PMR, csd1 with a PMR,
    /// csd2 with neither, and so on.
    pub fn with_drives(count: u32) -> Self {
        let mut fake = Self::default();
        for number in 0..count {
            fake.add_drive(number, &format!("0000:{:02x}:00.0", number + 3));
        }
        fake
    }

    pub fn add_drive(&mut self, number: u32, pci: &str) {
        let mut info = csd_drive_info::new();
        info.drive = number;
        info.state = CSD_DRIVE_READY;
        info.kind = CSD_DRIVE_PROXIED;
        info.mesh = CSD_MESH_NONE;
        (info.memory_flags, info.cmb_bytes, info.pmr_bytes) = match number % 3 {
            0 => (
                CSD_MEMORY_CMB | CSD_MEMORY_PMR | CSD_MEMORY_PMR_FOUND,
                64 << 20,
                64 << 20,
            ),
            1 => (CSD_MEMORY_PMR | CSD_MEMORY_PMR_FOUND, 0, 64 << 20),
            _ => (0, 0, 0),
        };
        info.memory_used = 4096;
        info.host_memory = 20_480;
        // filter, encrypt, decrypt, checksum; csd2 and the like: filter only
        info.functions = if number % 3 == 2 { 0b10 } else { 0b1_1110 };
        info.namespaces = 1;
        info.cntlid = number;
        info.numa_node = -1;
        info.nvme_version = 0x0001_0400;
        set_text(&mut info.pci, pci);
        let letter = char::from(b'a' + number as u8);
        set_text(&mut info.nqn, &format!("nqn.2019-08.org.qemu:csd-{letter}"));
        set_text(&mut info.model, "QEMU NVMe Ctrl");
        set_text(&mut info.serial, &format!("serial-{letter}"));
        set_text(&mut info.firmware, "11.1.3");
        info.counters.commands = 1234;
        info.counters.bytes_read = 5_678_000;
        let drive = FakeDrive {
            info,
            block_bytes: 512,
            disks: vec![vec![0; 1 << 20]],
        };
        self.drives.insert(number, drive);
    }

    /// Puts `bytes` on the first namespace of a drive.
    pub fn put(&mut self, drive: u32, offset: usize, bytes: &[u8]) {
        let disk = &mut self.drives.get_mut(&drive).unwrap().disks[0];
        disk[offset..offset + bytes.len()].copy_from_slice(bytes);
    }

    /// A mesh of all drives that are in none, as the module would make it.
    pub fn create_mesh(&mut self) {
        let mut arg = csd_mesh_create::new();
        self.mesh_create(&mut arg, &[]).unwrap();
    }

    fn mesh_create(
        &mut self,
        arg: &mut csd_mesh_create,
        pairs: &[csd_mesh_pair],
    ) -> Result<(), Errno> {
        self.pairs = pairs.to_vec();
        if let Some((errno, reason, drive, pair)) = self.mesh_reason.take() {
            (arg.reason, arg.reason_drive, arg.reason_pair) = (reason, drive, pair);
            return Err(errno);
        }
        (arg.reason_drive, arg.reason_pair) = (CSD_MEMBER_HOST, CSD_PAIR_NONE);
        if let Some((errno, busy)) = self.mesh_error {
            arg.busy_drive = busy;
            return Err(errno);
        }
        let number = (0..)
            .find(|number| !self.meshes.contains_key(number))
            .unwrap();
        let mask = arg.drives;
        let mut info = csd_mesh_info::new();
        let mut members = vec![member(CSD_MEMBER_HOST, 0, 0, 8192)];
        for (drive, state) in &mut self.drives {
            let wanted = match mask {
                0 => state.info.mesh == CSD_MESH_NONE,
                _ => mask & (1 << drive) != 0,
            };
            if wanted {
                if state.info.mesh != CSD_MESH_NONE {
                    arg.busy_drive = *drive;
                    return Err(Errno::EBUSY);
                }
                state.info.mesh = number;
                let flags = state.info.memory_flags;
                let memory = [CSD_MEMORY_PMR, CSD_MEMORY_CMB]
                    .into_iter()
                    .find(|flag| flags & flag != 0);
                members.push(member(
                    *drive,
                    members.len() as u32,
                    memory.unwrap_or(0),
                    24_576,
                ));
            }
        }
        let drives = members.len() as u32 - 1;
        info.mesh = number;
        info.entries = if arg.entries == 0 { 64 } else { arg.entries };
        info.entry_bytes = if arg.entry_bytes == 0 {
            64
        } else {
            arg.entry_bytes
        };
        info.peer_rings = drives * drives.saturating_sub(1);
        info.host_rings = 2 * drives;
        (info.placement, info.place_drive) = (arg.placement, arg.place_drive);
        (info.publish, info.form, info.share) = (arg.publish, arg.form, arg.share);
        (info.ring_flags, info.select) = (arg.ring_flags, arg.select);
        (info.establish, info.establish_drive) = (arg.establish, arg.establish_drive);
        (info.notify, info.memory) = (arg.notify, arg.memory);
        if arg.placement != CSD_PLACE_MEMBER {
            info.place_drive = CSD_MEMBER_HOST;
        }
        if arg.establish != CSD_ESTABLISH_MEMBER {
            info.establish_drive = CSD_MEMBER_HOST;
        }
        info.pair_count = pairs.len() as u32;
        info.buffers = match arg.share {
            CSD_SHARE_NONE => (drives + 1) * drives,
            CSD_SHARE_PAIR => (drives + 1) * drives / 2,
            CSD_SHARE_BOTH => 1,
            _ => drives + 1,
        };
        info.digest = 0x1234_5678;
        info.establish_ns = 1_000_000;
        info.host_bytes = 8192;
        info.create_ns = 3_000_000;
        info.member_count = members.len() as u32;
        arg.mesh = number;
        self.meshes.insert(number, (info, members));
        Ok(())
    }
}

fn member(drive: u32, member: u32, memory: u32, ring_bytes: u64) -> csd_mesh_member {
    csd_mesh_member {
        drive,
        member,
        state: CSD_MEMBER_ATTACHED,
        memory,
        ring_bytes,
    }
}

/// The device as csdctl opens it.
pub struct Handle(pub Rc<RefCell<Fake>>);

impl Device for Handle {
    fn info(&self) -> Result<csd_info, Errno> {
        let fake = self.0.borrow();
        let mut info = csd_info::new();
        info.abi = CSD_ABI_VERSION;
        info.drives = fake
            .drives
            .keys()
            .fold(0, |mask, drive| mask | (1 << drive));
        info.meshes = fake.meshes.keys().fold(0, |mask, mesh| mask | (1 << mesh));
        info.functions = 0b1_1110;
        info.idc_version = 1 << 16;
        Ok(info)
    }

    fn drive_info(&self, drive: u32) -> Result<csd_drive_info, Errno> {
        Ok(self.0.borrow().drives.get(&drive).ok_or(Errno::ENXIO)?.info)
    }

    fn drive_set(&self, drive: u32, flags: u32) -> Result<(), Errno> {
        assert_eq!(flags, CSD_DRIVE_SET_USE_PMR);
        let mut fake = self.0.borrow_mut();
        let info = &mut fake.drives.get_mut(&drive).ok_or(Errno::ENXIO)?.info;
        if info.pmr_bytes == 0 {
            return Err(Errno::EOPNOTSUPP);
        }
        info.memory_flags |= CSD_MEMORY_PMR;
        fake.consents.push(drive);
        Ok(())
    }

    fn drive_namespace(&self, drive: u32, index: u32) -> Result<csd_drive_namespace, Errno> {
        let fake = self.0.borrow();
        let drive = fake.drives.get(&drive).ok_or(Errno::ENXIO)?;
        let disk = drive.disks.get(index as usize).ok_or(Errno::ENXIO)?;
        let mut namespace = csd_drive_namespace::new();
        namespace.nsid = index + 1;
        namespace.block_bytes = drive.block_bytes;
        namespace.blocks = disk.len() as u64 / u64::from(drive.block_bytes);
        Ok(namespace)
    }

    fn probe_memory(
        &self,
        _: u32,
        memory: u32,
        bytes: u64,
    ) -> Result<csd_drive_probe_memory, Errno> {
        let mut probe = csd_drive_probe_memory::new();
        probe.bytes = bytes;
        // 64 KiB in 13 ms and in 50 µs: a crawling CMB, a quick PMR.
        (probe.read_ns, probe.write_ns) = match memory {
            CSD_MEMORY_CMB => (13_107_200, 655_360),
            _ => (50_000, 50_000),
        };
        Ok(probe)
    }

    fn mesh_create(&self, arg: &mut csd_mesh_create, pairs: &[csd_mesh_pair]) -> Result<(), Errno> {
        self.0.borrow_mut().mesh_create(arg, pairs)
    }

    fn ring_reset(&self, mut reset: csd_ring_reset) -> Result<csd_ring_reset, Errno> {
        let mut fake = self.0.borrow_mut();
        fake.resets.push(reset);
        if let Some(errno) = fake.reset_error {
            return Err(errno);
        }
        (reset.epoch, reset.stale, reset.abandoned) = (2, 1, 3);
        reset.reset_ns = 250_000;
        Ok(reset)
    }

    fn mesh_destroy(&self, mesh: u32, flags: u32) -> Result<(), Errno> {
        let mut fake = self.0.borrow_mut();
        let pipelines = fake.meshes.get(&mesh).ok_or(Errno::ENXIO)?.0.pipelines;
        if pipelines != 0 && flags & CSD_MESH_DESTROY_FORCE == 0 {
            return Err(Errno::EBUSY);
        }
        fake.meshes.remove(&mesh);
        for drive in fake
            .drives
            .values_mut()
            .filter(|drive| drive.info.mesh == mesh)
        {
            drive.info.mesh = CSD_MESH_NONE;
        }
        Ok(())
    }

    fn mesh_info(&self, mesh: u32) -> Result<(csd_mesh_info, Vec<csd_mesh_member>), Errno> {
        self.0
            .borrow()
            .meshes
            .get(&mesh)
            .cloned()
            .ok_or(Errno::ENXIO)
    }

    fn ring_info(&self, mesh: u32, from: u32, to: u32) -> Result<csd_ring_info, Errno> {
        let fake = self.0.borrow();
        let (info, members) = fake.meshes.get(&mesh).ok_or(Errno::ENXIO)?;
        let receiver = members
            .iter()
            .find(|member| member.drive == to)
            .ok_or(Errno::ENXIO)?;
        let mut ring = csd_ring_info::new();
        (ring.mesh, ring.from, ring.to, ring.epoch) = (mesh, from, to, 1);
        let home = match info.placement {
            CSD_PLACE_SENDER => from,
            CSD_PLACE_HOST => CSD_MEMBER_HOST,
            CSD_PLACE_MEMBER => info.place_drive,
            _ => to,
        };
        let home = members.iter().find(|member| member.drive == home);
        ring.memory = home.map_or(0, |home| home.memory);
        ring.where_ = match home {
            Some(home) if ring.memory != 0 => home.drive,
            _ => CSD_MEMBER_HOST,
        };
        (ring.entries, ring.entry_bytes) = (info.entries, info.entry_bytes);
        (ring.form, ring.share, ring.publish) = (info.form, info.share, info.publish);
        (ring.place, ring.flags) = (info.placement, info.ring_flags);
        ring.establisher = match info.establish {
            CSD_ESTABLISH_RECEIVER => to,
            CSD_ESTABLISH_SENDER => from,
            CSD_ESTABLISH_MEMBER => info.establish_drive,
            _ => CSD_MEMBER_HOST,
        };
        ring.arbiter = to;
        ring.buffer = match info.share {
            CSD_SHARE_NONE => from.wrapping_mul(64).wrapping_add(to) & 0xfff,
            CSD_SHARE_WRITERS => receiver.member,
            _ => 0,
        };
        (ring.sent, ring.announcements, ring.flushes) = (7, 3, 1);
        ring.bytes = u64::from(info.entries * info.entry_bytes) + 64;
        (ring.tail, ring.head) = (7, 7);
        (ring.messages, ring.message_bytes) = (7, 448);
        Ok(ring)
    }

    fn message(&self, message: &Message<'_>) -> Result<Answer, (Errno, Answer)> {
        let mut fake = self.0.borrow_mut();
        let failed = |errno| Err((errno, Answer::default()));
        let room = fake.meshes[&message.mesh].0.entry_bytes as usize - 28;
        if message.payload.len() > room {
            return failed(Errno::EMSGSIZE);
        }
        if fake.silent.contains(&message.to) && message.flags & CSD_MSG_NO_RESPONSE == 0 {
            return failed(Errno::ETIMEDOUT);
        }
        let mut answer = Answer {
            status: 0,
            rtt_ns: 41_200,
            payload: Vec::new(),
        };
        match message.opcode {
            CSD_MSG_PING => answer.payload = message.payload.to_vec(),
            CSD_MSG_SEND => {
                let received = Received {
                    from: message.from,
                    payload: message.payload.to_vec(),
                    dropped: 0,
                };
                fake.inbox.push_back((message.to, received));
            }
            _ => return failed(Errno::EOPNOTSUPP),
        }
        Ok(answer)
    }

    fn receive(&self, _: u32, at: u32, timeout_ms: u32) -> Result<Received, Errno> {
        let mut fake = self.0.borrow_mut();
        let index = fake.inbox.iter().position(|(to, _)| *to == at);
        match index.and_then(|index| fake.inbox.remove(index)) {
            Some((_, received)) => Ok(received),
            None if timeout_ms == 0 => Err(Errno::EAGAIN),
            None => Err(Errno::ETIMEDOUT),
        }
    }

    fn pipeline_start(
        &self,
        request: &PipelineRequest,
    ) -> Result<(u64, Box<dyn Pipeline>), StartError> {
        let (number, pipeline) = self.0.borrow_mut().start(request)?;
        Ok((number, Box::new(pipeline)))
    }

    fn pipeline_plan(&self, request: &PipelineRequest) -> Result<Plan, StartError> {
        Ok(Plan {
            drives: self.0.borrow().place(request)?,
            chunk_bytes: 65_536,
            window_bytes: 1 << 20,
        })
    }

    fn pipeline_after(&self, after: u64) -> Result<csd_pipeline_info, Errno> {
        let fake = self.0.borrow();
        let found = fake.pipelines.iter().find(|info| info.pipeline > after);
        found.copied().ok_or(Errno::ENXIO)
    }

    fn pipeline_cancel(&self, pipeline: u64) -> Result<(), Errno> {
        let mut fake = self.0.borrow_mut();
        let found = fake
            .pipelines
            .iter_mut()
            .find(|info| info.pipeline == pipeline);
        let info = found.ok_or(Errno::ENXIO)?;
        if info.progress.state != CSD_PIPELINE_RUNNING {
            return Err(Errno::EALREADY);
        }
        info.progress.state = CSD_PIPELINE_CANCELLED;
        info.progress.error = Errno::ECANCELED as u32;
        fake.cancelled.push(pipeline);
        Ok(())
    }

    fn event(&self, _: Option<Duration>) -> Result<Option<csd_event>, Errno> {
        Ok(self.0.borrow_mut().events.pop_front())
    }
}
