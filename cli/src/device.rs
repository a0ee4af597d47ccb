// SPDX-License-Identifier: GPL-2.0

//! What csdctl asks of the csd character device, as a trait: the real one is
//! [`crate::sys::CharDevice`], the tests have one of their own.
//!
//! Owns the shapes of requests and answers that carry pointers in the ABI; plain structures are
//! those of the ABI themselves. It decides nothing and prints nothing.

use crate::sys::abi::{
    csd_drive_info, csd_drive_namespace, csd_drive_probe_memory, csd_event, csd_info,
    csd_mesh_create, csd_mesh_info, csd_mesh_member, csd_mesh_pair, csd_pipeline_info,
    csd_pipeline_progress, csd_ring_info, csd_ring_reset,
};
use nix::errno::Errno;
use std::time::Duration;

/// A message to be sent, `CSD_IOC_MSG_CALL`.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a> {
    /// Mesh that it travels in.
    pub mesh: u32,
    /// Sender: drive number or `CSD_MEMBER_HOST`.
    pub from: u32,
    /// Receiver: drive number or `CSD_MEMBER_HOST`.
    pub to: u32,
    /// `CSD_MSG_*`.
    pub opcode: u32,
    /// `CSD_MSG_NO_RESPONSE` or 0.
    pub flags: u32,
    /// What it says.
    pub payload: &'a [u8],
    /// How long to wait for the answer; 0 means the kernel's default.
    pub timeout_ms: u32,
}

/// The answer to a [`Message`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// NVMe status field, SCT << 8 | SC, 0 is success.
    pub status: u32,
    /// Time from push to answer.
    pub rtt_ns: u64,
    /// What came back.
    pub payload: Vec<u8>,
}

/// A message taken from an inbox, `CSD_IOC_MSG_RECV`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Received {
    /// Sender: drive number or `CSD_MEMBER_HOST`.
    pub from: u32,
    /// What it says.
    pub payload: Vec<u8>,
    /// Messages lost before it because the inbox was full.
    pub dropped: u64,
}

/// One stage of a [`PipelineRequest`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StageRequest {
    /// Function id.
    pub function: u32,
    /// Drive number or `CSD_DRIVE_ANY`.
    pub drive: u32,
    /// Parameters, encoded as the IDC specification says.
    pub params: Vec<u8>,
    /// The key, for functions that use one.
    pub key: Option<[u8; crate::sys::KEY_LEN]>,
}

/// Where the result of a pipeline goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sink {
    /// To whoever reads the pipeline's descriptor.
    Descriptor,
    /// To a namespace.
    Namespace {
        /// Drive number.
        drive: u32,
        /// Namespace id, 0 means the drive's first.
        nsid: u32,
        /// Bytes from its start, a multiple of the block size.
        offset: u64,
        /// Bytes that may be written at most, 0: up to the end.
        length: u64,
    },
}

/// A pipeline to be started or planned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PipelineRequest {
    /// Mesh that it runs in.
    pub mesh: u32,
    /// The drive that reads.
    pub source_drive: u32,
    /// Its namespace, 0 means its first.
    pub source_nsid: u32,
    /// First byte.
    pub source_offset: u64,
    /// Bytes to read.
    pub source_length: u64,
    /// What is done with them, in order.
    pub stages: Vec<StageRequest>,
    /// Bytes per chunk, 0: chosen.
    pub chunk_bytes: u32,
    /// Bytes of the result window, 0: chosen.
    pub window_bytes: u32,
    /// Where the result goes.
    pub sink: Sink,
    /// Longest time without progress, 0: the default.
    pub deadline_ms: u32,
}

/// What `CSD_IOC_PIPELINE_PLAN` says would be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Drive of each stage.
    pub drives: Vec<u32>,
    /// Bytes per chunk.
    pub chunk_bytes: u32,
    /// Bytes of the result window.
    pub window_bytes: u32,
}

/// Why a pipeline was not started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StartError {
    /// What went wrong.
    pub errno: Errno,
    /// Which stage, counted from 0, if it was one.
    pub stage: Option<u32>,
}

/// Why [`Pipeline::wait`] came back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    /// There is something to read, an error included.
    Readable,
    /// It has ended and there is nothing to read.
    Ended,
    /// The time is up.
    Timeout,
    /// SIGINT or SIGTERM came.
    Interrupted,
}

/// A running pipeline. Dropping it cancels it.
pub trait Pipeline {
    /// Waits until there is something to do or `timeout` is over.
    ///
    /// # Errors
    /// Those of poll(2).
    fn wait(&mut self, timeout: Duration) -> Result<Wake, Errno>;

    /// Reads what there is of the result; 0 at its end.
    ///
    /// # Errors
    /// The pipeline's own error.
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize, Errno>;

    /// How far it is.
    ///
    /// # Errors
    /// Those that `uapi/csd.h` lists.
    fn progress(&self) -> Result<csd_pipeline_progress, Errno>;
}

/// The csd character device. Every method is the ioctl of its name; errors are those that
/// `uapi/csd.h` lists for it.
#[allow(clippy::missing_errors_doc)] // said once, above
pub trait Device {
    /// `CSD_IOC_INFO`.
    fn info(&self) -> Result<csd_info, Errno>;
    /// `CSD_IOC_DRIVE_INFO`.
    fn drive_info(&self, drive: u32) -> Result<csd_drive_info, Errno>;
    /// `CSD_IOC_DRIVE_SET`.
    fn drive_set(&self, drive: u32, flags: u32) -> Result<(), Errno>;
    /// `CSD_IOC_DRIVE_NAMESPACE`.
    fn drive_namespace(&self, drive: u32, index: u32) -> Result<csd_drive_namespace, Errno>;
    /// `CSD_IOC_DRIVE_PROBE_MEMORY`.
    fn probe_memory(
        &self,
        drive: u32,
        memory: u32,
        bytes: u64,
    ) -> Result<csd_drive_probe_memory, Errno>;
    /// `CSD_IOC_MESH_CREATE`; members that go out are filled in, also with an error. `pairs` are
    /// those that differ.
    fn mesh_create(&self, mesh: &mut csd_mesh_create, pairs: &[csd_mesh_pair])
        -> Result<(), Errno>;
    /// `CSD_IOC_MESH_DESTROY`.
    fn mesh_destroy(&self, mesh: u32, flags: u32) -> Result<(), Errno>;
    /// `CSD_IOC_MESH_INFO`.
    fn mesh_info(&self, mesh: u32) -> Result<(csd_mesh_info, Vec<csd_mesh_member>), Errno>;
    /// `CSD_IOC_RING_INFO`.
    fn ring_info(&self, mesh: u32, from: u32, to: u32) -> Result<csd_ring_info, Errno>;
    /// `CSD_IOC_RING_RESET`.
    fn ring_reset(&self, reset: csd_ring_reset) -> Result<csd_ring_reset, Errno>;
    /// `CSD_IOC_MSG_CALL`; with EIO the answer tells the status.
    fn message(&self, message: &Message<'_>) -> Result<Answer, (Errno, Answer)>;
    /// `CSD_IOC_MSG_RECV`.
    fn receive(&self, mesh: u32, at: u32, timeout_ms: u32) -> Result<Received, Errno>;
    /// `CSD_IOC_PIPELINE_START`; the number and the running pipeline.
    fn pipeline_start(
        &self,
        request: &PipelineRequest,
    ) -> Result<(u64, Box<dyn Pipeline>), StartError>;
    /// `CSD_IOC_PIPELINE_PLAN`.
    fn pipeline_plan(&self, request: &PipelineRequest) -> Result<Plan, StartError>;
    /// `CSD_IOC_PIPELINE_INFO`.
    fn pipeline_after(&self, after: u64) -> Result<csd_pipeline_info, Errno>;
    /// `CSD_IOC_PIPELINE_CANCEL`.
    fn pipeline_cancel(&self, pipeline: u64) -> Result<(), Errno>;
    /// Waits for one event; `None` when `timeout` is over first.
    fn event(&self, timeout: Option<Duration>) -> Result<Option<csd_event>, Errno>;
}
