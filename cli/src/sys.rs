// SPDX-License-Identifier: GPL-2.0

//! The system calls of the ABI: the one place of csdctl that says `unsafe`.
//!
//! Owns the generated types of `uapi/csd.h`, their construction, and the real [`Device`]. It never
//! interprets what a field means, and nothing outside it touches a raw pointer.
#![allow(unsafe_code)]

use crate::device::{
    Answer, Device, Message, Pipeline, PipelineRequest, Plan, Received, Sink, StartError, Wake,
};
use abi::*;
use nix::errno::Errno;
use nix::poll::{poll, PollFd, PollFlags, PollTimeout};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::SignalFd;
use std::fs::{File, OpenOptions};
use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

/// The ABI as bindgen reads it from `uapi/csd.h`.
#[allow(missing_docs, non_camel_case_types, non_upper_case_globals, dead_code)]
#[allow(unreachable_pub, clippy::all, clippy::pedantic)]
#[allow(clippy::undocumented_unsafe_blocks)] // not ours
pub mod abi {
    include!(concat!(env!("OUT_DIR"), "/abi.rs"));
}

/// Bytes of a key file.
pub const KEY_LEN: usize = CSD_KEY_BYTES as usize;

/// The longest payload that a ring entry can carry: entries are at most 4 KiB.
const PAYLOAD_ROOM: usize = 4096;

/// A structure of the ABI: integers and arrays of them, first member its own size.
pub trait Abi: Sized {
    /// All zero but for the size member.
    fn new() -> Self;
}

macro_rules! abi {
    ($($name:ident)*) => {$(
        impl Abi for $name {
            fn new() -> Self {
                // SAFETY: the structure consists of integers and arrays of integers, for which
                // all bits zero is a value.
                let mut it: Self = unsafe { zeroed() };
                it.size = size_of::<Self>() as u32;
                it
            }
        }
    )*};
}

abi! {
    csd_info csd_drive_info csd_drive_set csd_drive_namespace csd_drive_probe_memory
    csd_mesh_create csd_mesh_destroy csd_mesh_info csd_ring_info csd_ring_reset csd_msg_call
    csd_msg_recv
    csd_pipeline_start csd_pipeline_progress csd_pipeline_info csd_pipeline_cancel csd_event
}

/// Issues the ioctl `number`.
///
/// # Safety
/// `number` is the call that takes a `T`, and the pointers in `arg` are valid for the lengths
/// beside them, for reading or writing as the header says.
unsafe fn ioctl<T: Abi>(fd: BorrowedFd<'_>, number: u32, arg: &mut T) -> Result<(), Errno> {
    // SAFETY: the kernel touches `arg.size` bytes at `arg`, which `Abi::new` made the size of the
    // structure, and what its pointers cover, which the caller vouches for.
    let result = unsafe { nix::libc::ioctl(fd.as_raw_fd(), number as _, std::ptr::from_mut(arg)) };
    Errno::result(result).map(drop)
}

/// `/dev/csd`.
#[derive(Debug)]
pub struct CharDevice {
    file: File,
}

impl CharDevice {
    /// Opens the character device at `path`.
    ///
    /// # Errors
    /// `NotFound` if the module is not loaded, `PermissionDenied` without the rights.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        Ok(Self { file })
    }

    /// An ioctl whose argument holds no pointers.
    fn plain<T: Abi>(&self, number: u32, mut arg: T) -> Result<T, Errno> {
        // SAFETY: the callers pair each number with its structure, none of which has pointers.
        unsafe { ioctl(self.file.as_fd(), number, &mut arg) }?;
        Ok(arg)
    }

    /// Start and plan: the same argument, both answer in it.
    fn pipeline(
        &self,
        number: u32,
        request: &PipelineRequest,
    ) -> Result<(csd_pipeline_start, Vec<u32>), StartError> {
        let mut stages: Vec<csd_stage> = request
            .stages
            .iter()
            .map(|stage| csd_stage {
                function: stage.function,
                drive: stage.drive,
                params_len: stage.params.len() as u32,
                key_len: stage.key.map_or(0, |key| key.len() as u32),
                params: stage.params.as_ptr() as u64,
                key: stage.key.as_ref().map_or(0, |key| key.as_ptr() as u64),
            })
            .collect();
        let mut arg = csd_pipeline_start::new();
        arg.mesh = request.mesh;
        arg.source_drive = request.source_drive;
        arg.source_nsid = request.source_nsid;
        arg.source_offset = request.source_offset;
        arg.source_length = request.source_length;
        arg.stages = stages.as_mut_ptr() as u64;
        arg.stage_count = stages.len() as u32;
        arg.chunk_bytes = request.chunk_bytes;
        arg.window_bytes = request.window_bytes;
        arg.deadline_ms = request.deadline_ms;
        arg.error_stage = u32::MAX;
        arg.fd = -1;
        match request.sink {
            Sink::Descriptor => arg.sink = CSD_SINK_FD,
            Sink::Namespace {
                drive,
                nsid,
                offset,
                length,
            } => {
                arg.sink = CSD_SINK_NAMESPACE;
                arg.sink_drive = drive;
                arg.sink_nsid = nsid;
                arg.sink_offset = offset;
                arg.sink_length = length;
            }
        }
        // SAFETY: `stages` lives until the end of this function and is as long as stage_count
        // says, and its params and keys are owned by `request`.
        unsafe { ioctl(self.file.as_fd(), number, &mut arg) }.map_err(|errno| StartError {
            errno,
            stage: (arg.error_stage < arg.stage_count).then_some(arg.error_stage),
        })?;
        Ok((arg, stages.iter().map(|stage| stage.drive).collect()))
    }
}

impl Device for CharDevice {
    fn info(&self) -> Result<csd_info, Errno> {
        self.plain(CSD_NUMBER_INFO, csd_info::new())
    }

    fn drive_info(&self, drive: u32) -> Result<csd_drive_info, Errno> {
        let mut arg = csd_drive_info::new();
        arg.drive = drive;
        self.plain(CSD_NUMBER_DRIVE_INFO, arg)
    }

    fn drive_set(&self, drive: u32, flags: u32) -> Result<(), Errno> {
        let mut arg = csd_drive_set::new();
        arg.drive = drive;
        arg.flags = flags;
        self.plain(CSD_NUMBER_DRIVE_SET, arg).map(drop)
    }

    fn drive_namespace(&self, drive: u32, index: u32) -> Result<csd_drive_namespace, Errno> {
        let mut arg = csd_drive_namespace::new();
        arg.drive = drive;
        arg.index = index;
        self.plain(CSD_NUMBER_DRIVE_NAMESPACE, arg)
    }

    fn probe_memory(
        &self,
        drive: u32,
        memory: u32,
        bytes: u64,
    ) -> Result<csd_drive_probe_memory, Errno> {
        let mut arg = csd_drive_probe_memory::new();
        arg.drive = drive;
        arg.memory = memory;
        arg.bytes = bytes;
        self.plain(CSD_NUMBER_DRIVE_PROBE_MEMORY, arg)
    }

    fn mesh_create(
        &self,
        mesh: &mut csd_mesh_create,
        pairs: &[csd_mesh_pair],
    ) -> Result<(), Errno> {
        mesh.pair_count = u32::try_from(pairs.len()).map_err(|_| Errno::E2BIG)?;
        mesh.pairs = pairs.as_ptr() as u64;
        // SAFETY: `pairs` outlives the call, which only reads the `pair_count` elements of it.
        let result = unsafe { ioctl(self.file.as_fd(), CSD_NUMBER_MESH_CREATE, mesh) };
        mesh.pairs = 0;
        result
    }

    fn mesh_destroy(&self, mesh: u32, flags: u32) -> Result<(), Errno> {
        let mut arg = csd_mesh_destroy::new();
        arg.mesh = mesh;
        arg.flags = flags;
        self.plain(CSD_NUMBER_MESH_DESTROY, arg).map(drop)
    }

    fn mesh_info(&self, mesh: u32) -> Result<(csd_mesh_info, Vec<csd_mesh_member>), Errno> {
        let empty = csd_mesh_member {
            drive: 0,
            member: 0,
            state: 0,
            memory: 0,
            ring_bytes: 0,
        };
        // Members and the host.
        let mut members = vec![empty; CSD_MAX_MEMBERS as usize + 1];
        let mut arg = csd_mesh_info::new();
        arg.mesh = mesh;
        arg.member_count = members.len() as u32;
        arg.members = members.as_mut_ptr() as u64;
        // SAFETY: `members` outlives the call and has room for `member_count`.
        unsafe { ioctl(self.file.as_fd(), CSD_NUMBER_MESH_INFO, &mut arg) }?;
        members.truncate(arg.member_count as usize);
        arg.members = 0;
        Ok((arg, members))
    }

    fn ring_info(&self, mesh: u32, from: u32, to: u32) -> Result<csd_ring_info, Errno> {
        let mut arg = csd_ring_info::new();
        arg.mesh = mesh;
        arg.from = from;
        arg.to = to;
        self.plain(CSD_NUMBER_RING_INFO, arg)
    }

    fn ring_reset(&self, reset: csd_ring_reset) -> Result<csd_ring_reset, Errno> {
        self.plain(CSD_NUMBER_RING_RESET, reset)
    }

    fn message(&self, message: &Message<'_>) -> Result<Answer, (Errno, Answer)> {
        let mut room = vec![0; PAYLOAD_ROOM];
        let mut arg = csd_msg_call::new();
        arg.mesh = message.mesh;
        arg.from = message.from;
        arg.to = message.to;
        arg.opcode = message.opcode;
        arg.flags = message.flags;
        arg.payload_len = message.payload.len() as u32;
        arg.payload = message.payload.as_ptr() as u64;
        arg.response_len = room.len() as u32;
        arg.response = room.as_mut_ptr() as u64;
        arg.timeout_ms = message.timeout_ms;
        // SAFETY: the payload is borrowed, `room` is owned, both for longer than the call and as
        // long as the lengths say.
        let result = unsafe { ioctl(self.file.as_fd(), CSD_NUMBER_MSG_CALL, &mut arg) };
        room.truncate(arg.response_len as usize);
        let mut answer = Answer {
            status: arg.status,
            rtt_ns: arg.rtt_ns,
            payload: room,
        };
        result.map_err(|errno| {
            // Without an answer the kernel leaves the room's length as it was.
            answer.payload.clear();
            (errno, answer.clone())
        })?;
        Ok(answer)
    }

    fn receive(&self, mesh: u32, at: u32, timeout_ms: u32) -> Result<Received, Errno> {
        let mut room = vec![0; PAYLOAD_ROOM];
        let mut arg = csd_msg_recv::new();
        arg.mesh = mesh;
        arg.at = at;
        arg.timeout_ms = timeout_ms;
        arg.payload_len = room.len() as u32;
        arg.payload = room.as_mut_ptr() as u64;
        // SAFETY: `room` outlives the call and is as long as payload_len says.
        unsafe { ioctl(self.file.as_fd(), CSD_NUMBER_MSG_RECV, &mut arg) }?;
        room.truncate(arg.payload_len as usize);
        Ok(Received {
            from: arg.from,
            payload: room,
            dropped: arg.dropped,
        })
    }

    fn pipeline_start(
        &self,
        request: &PipelineRequest,
    ) -> Result<(u64, Box<dyn Pipeline>), StartError> {
        let plain = |errno| StartError { errno, stage: None };
        // Before the start, so that a signal from now on cancels in order.
        let mut mask = SigSet::empty();
        mask.add(Signal::SIGINT);
        mask.add(Signal::SIGTERM);
        mask.thread_block().map_err(plain)?;
        let signals = SignalFd::new(&mask).map_err(plain)?;
        let (arg, _) = self.pipeline(CSD_NUMBER_PIPELINE_START, request)?;
        if arg.fd < 0 {
            return Err(plain(Errno::EBADF));
        }
        // SAFETY: the call succeeded, so the kernel made this descriptor for us alone.
        let fd = unsafe { OwnedFd::from_raw_fd(arg.fd) };
        Ok((arg.pipeline, Box::new(CharPipeline { fd, signals })))
    }

    fn pipeline_plan(&self, request: &PipelineRequest) -> Result<Plan, StartError> {
        let (arg, drives) = self.pipeline(CSD_NUMBER_PIPELINE_PLAN, request)?;
        Ok(Plan {
            drives,
            chunk_bytes: arg.chunk_bytes,
            window_bytes: arg.window_bytes,
        })
    }

    fn pipeline_after(&self, after: u64) -> Result<csd_pipeline_info, Errno> {
        let mut arg = csd_pipeline_info::new();
        arg.after = after;
        arg.progress = csd_pipeline_progress::new();
        self.plain(CSD_NUMBER_PIPELINE_INFO, arg)
    }

    fn pipeline_cancel(&self, pipeline: u64) -> Result<(), Errno> {
        let mut arg = csd_pipeline_cancel::new();
        arg.pipeline = pipeline;
        self.plain(CSD_NUMBER_PIPELINE_CANCEL, arg).map(drop)
    }

    fn event(&self, timeout: Option<Duration>) -> Result<Option<csd_event>, Errno> {
        let mut polled = [PollFd::new(self.file.as_fd(), PollFlags::POLLIN)];
        if poll(&mut polled, poll_timeout(timeout))? == 0 {
            return Ok(None);
        }
        let mut buffer = [0_u8; size_of::<csd_event>()];
        if nix::unistd::read(&self.file, &mut buffer)? < buffer.len() {
            return Err(Errno::EIO);
        }
        // SAFETY: the buffer is as long as the structure, which consists of integers, for which
        // any bits are a value; the read does not ask for alignment.
        Ok(Some(unsafe {
            std::ptr::read_unaligned(buffer.as_ptr().cast::<csd_event>())
        }))
    }
}

/// poll(2)'s timeout, rounded up to milliseconds so that it does not spin.
fn poll_timeout(timeout: Option<Duration>) -> PollTimeout {
    let Some(timeout) = timeout else {
        return PollTimeout::NONE;
    };
    let milliseconds = timeout.as_nanos().div_ceil(1_000_000);
    PollTimeout::try_from(milliseconds).unwrap_or(PollTimeout::MAX)
}

/// A pipeline's descriptor.
struct CharPipeline {
    fd: OwnedFd,
    signals: SignalFd,
}

impl Pipeline for CharPipeline {
    fn wait(&mut self, timeout: Duration) -> Result<Wake, Errno> {
        let mut polled = [
            PollFd::new(self.fd.as_fd(), PollFlags::POLLIN),
            PollFd::new(self.signals.as_fd(), PollFlags::POLLIN),
        ];
        poll(&mut polled, poll_timeout(Some(timeout)))?;
        let [pipeline, signals] = polled.map(|fd| fd.revents().unwrap_or(PollFlags::empty()));
        Ok(if !signals.is_empty() {
            Wake::Interrupted
        } else if pipeline.intersects(PollFlags::POLLIN | PollFlags::POLLERR) {
            Wake::Readable
        } else if pipeline.contains(PollFlags::POLLHUP) {
            Wake::Ended
        } else {
            Wake::Timeout
        })
    }

    fn read(&mut self, buffer: &mut [u8]) -> Result<usize, Errno> {
        nix::unistd::read(&self.fd, buffer)
    }

    fn progress(&self) -> Result<csd_pipeline_progress, Errno> {
        let mut arg = csd_pipeline_progress::new();
        // SAFETY: the number is that of the structure, which has no pointers.
        unsafe { ioctl(self.fd.as_fd(), CSD_NUMBER_PIPELINE_PROGRESS, &mut arg) }?;
        Ok(arg)
    }
}
