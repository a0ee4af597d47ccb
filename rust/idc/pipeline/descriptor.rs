// SPDX-License-Identifier: GPL-2.0 OR MIT

//! The pipeline descriptor: what travels ahead of the data, from the host to the first drive and
//! from each drive to the next with the hops still to run.
//!
//! Owns its validation, and what the next hop gets of it. Never holds an address (places are
//! windows) or a key. IDC specification, "Pipeline descriptor".

pub use super::builder::Builder;

use super::super::function::options::MAX_PARAMETERS_LEN;
use super::super::function::FunctionId;
use super::super::member::MemberId;
use super::super::window::WindowRef;
use super::wire::{
    RawHeader, RawHop, RawStage, HEADER_BYTES, MAGIC, SINK_HOST_WINDOW, SINK_NAMESPACE, VERSION,
};
use super::{
    MAX_BUFFERS, MAX_CHUNK, MAX_DEADLINE_MS, MAX_DESCRIPTOR, MAX_HOPS, MAX_STAGES, MIN_BUFFERS,
    MIN_CHUNK,
};
use core::fmt;
use zerocopy::{FromBytes as _, IntoBytes as _};

/// What the size of a result window is a multiple of.
const RESULT_UNIT: u64 = MIN_CHUNK as u64;
/// Bytes of the largest result window: 64 MiB.
pub const MAX_RESULT_WINDOW: u64 = 64 << 20;

/// What is wrong with a descriptor, or with what one is built from.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum DescriptorError {
    /// Shorter or longer than it says, or than [`MAX_DESCRIPTOR`].
    Length,
    /// Not a descriptor, or of another version.
    Magic,
    /// A reserved field is set.
    Reserved,
    /// The stream is 0.
    Stream,
    /// The chunk size is no multiple of 4096 in range.
    Chunk,
    /// The deadline is 0 or more than an hour.
    Deadline,
    /// The number of hops, a hop's member, its buffers or its stages are impossible.
    Hops,
    /// The number of stages is impossible, or does not match the hops.
    Stages,
    /// An unknown function, or too many parameters.
    Function,
    /// The source's range is impossible.
    Source,
    /// The sink is impossible.
    Sink,
    /// The report area or a cell is not aligned.
    Place,
}

impl fmt::Display for DescriptorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            DescriptorError::Length => "its length is wrong",
            DescriptorError::Magic => "it is no pipeline descriptor of version 1",
            DescriptorError::Reserved => "a reserved field is set",
            DescriptorError::Stream => "its stream is 0",
            DescriptorError::Chunk => "the chunk size must be a multiple of 4096 up to 1 MiB",
            DescriptorError::Deadline => "the deadline must be 1 ms to 1 hour",
            DescriptorError::Hops => "its hops are impossible",
            DescriptorError::Stages => "its stages are impossible",
            DescriptorError::Function => "a function is unknown or its parameters too long",
            DescriptorError::Source => "the source range is impossible",
            DescriptorError::Sink => "the sink is impossible",
            DescriptorError::Place => "report area or cell is misplaced",
        })
    }
}

/// The bytes that a pipeline reads.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Source {
    /// Namespace of the first hop's drive.
    pub nsid: u32,
    /// First byte, any alignment.
    pub offset: u64,
    /// Bytes; may be 0.
    pub length: u64,
}

/// Where the result goes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Sink {
    /// A ring of bytes in the last hop's memory, from which the host takes.
    HostWindow {
        /// The ring, granted to the last hop's member (and to the host).
        ring: WindowRef,
        /// Its bytes, a multiple of 4096, at most [`MAX_RESULT_WINDOW`].
        length: u64,
        /// u64 cell in host memory: bytes written so far. The last hop is its only writer.
        produced: WindowRef,
        /// u64 cell in the last hop's memory: bytes taken so far. The host is its only writer.
        consumed: WindowRef,
    },
    /// A range of a namespace of the last hop's drive.
    Namespace {
        /// The namespace.
        nsid: u32,
        /// First byte, a multiple of the block size.
        offset: u64,
        /// Bytes that may be written at most.
        limit: u64,
        /// Buffers for the storage writes in the last hop's memory, granted to itself.
        buffers: WindowRef,
        /// How many, of the chunk size each.
        count: u16,
    },
}

/// All of a pipeline but its hops and stages.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct PipelineSpec {
    /// Its number in this mesh, not 0.
    pub stream: u32,
    /// Bytes of a chunk, a multiple of 4096 up to 1 MiB.
    pub chunk_bytes: u32,
    /// Longest time without progress, 1..=3,600,000.
    pub deadline_ms: u32,
    /// What is read.
    pub source: Source,
    /// Where the result goes.
    pub sink: Sink,
    /// The report slots in host memory, 64-byte aligned, granted to every hop's member.
    pub report: WindowRef,
}

/// One hop.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct HopSpec {
    /// The drive.
    pub member: MemberId,
    /// Its stages; 0 only at the first and the last hop.
    pub stage_count: u16,
    /// Its input buffers, 2..=8, of the chunk size each.
    pub buffers: u16,
    /// The first of them, in this drive's memory; the others follow. Granted to the hop before, at
    /// the first hop to the drive itself.
    pub input: WindowRef,
}

/// A stage of a descriptor.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Stage<'d> {
    /// The function.
    pub function: FunctionId,
    /// Its parameters, not yet validated.
    pub params: &'d [u8],
}

/// A valid descriptor in the caller's copy.
#[derive(Clone, Copy)]
pub struct Descriptor<'d> {
    header: &'d RawHeader,
    hops: &'d [RawHop],
    stages: &'d [u8],
}

/// The descriptor of the hops after the first, in three parts that follow one another.
pub struct Rest<'d> {
    /// The header.
    pub header: [u8; HEADER_BYTES],
    /// The hops.
    pub hops: &'d [u8],
    /// The stages.
    pub stages: &'d [u8],
}

impl Rest<'_> {
    /// Bytes of all three.
    #[must_use]
    pub fn len(&self) -> usize {
        HEADER_BYTES
            .saturating_add(self.hops.len())
            .saturating_add(self.stages.len())
    }

    /// Whether it is empty, which it never is.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Takes the first stage off `bytes`.
fn split_stage(bytes: &[u8]) -> Result<(Stage<'_>, &[u8]), DescriptorError> {
    let (raw, rest) = RawStage::ref_from_prefix(bytes).map_err(|_| DescriptorError::Stages)?;
    let length = usize::from(raw.params_len.get());
    let (params, rest) = rest
        .split_at_checked(length)
        .ok_or(DescriptorError::Stages)?;
    let function = FunctionId::from_wire(raw.function.get()).ok_or(DescriptorError::Function)?;
    if length > MAX_PARAMETERS_LEN {
        return Err(DescriptorError::Function);
    }
    Ok((Stage { function, params }, rest))
}

impl<'d> Descriptor<'d> {
    /// Takes a private copy of a descriptor apart. `copy` is exactly as long as it says.
    ///
    /// # Errors
    /// [`DescriptorError`].
    pub fn parse(copy: &'d [u8]) -> Result<Self, DescriptorError> {
        let (header, rest) =
            RawHeader::ref_from_prefix(copy).map_err(|_| DescriptorError::Length)?;
        if header.magic != MAGIC || header.version.get() != VERSION {
            return Err(DescriptorError::Magic);
        }
        if copy.len() > MAX_DESCRIPTOR || header.total_bytes.get() as usize != copy.len() {
            return Err(DescriptorError::Length);
        }
        let hop_count = usize::from(header.hop_count.get());
        let (hops, stages) = <[RawHop]>::ref_from_prefix_with_elems(rest, hop_count)
            .map_err(|_| DescriptorError::Length)?;
        let descriptor = Descriptor {
            header,
            hops,
            stages,
        };
        descriptor.check_numbers()?;
        descriptor.check_sink()?;
        descriptor.check_hops()?;
        descriptor.check_stages()?;
        Ok(descriptor)
    }

    fn check_numbers(&self) -> Result<(), DescriptorError> {
        let header = self.header;
        let reserved = [header.zero.get(), header.zero2.into(), header.zero3.get()];
        if reserved != [0; 3] || header.report.zero.get() != 0 {
            return Err(DescriptorError::Reserved);
        }
        if header.stream.get() == 0 {
            return Err(DescriptorError::Stream);
        }
        let chunk = header.chunk_bytes.get();
        if chunk % MIN_CHUNK != 0 || !(MIN_CHUNK..=MAX_CHUNK).contains(&chunk) {
            return Err(DescriptorError::Chunk);
        }
        if !(1..=MAX_DEADLINE_MS).contains(&header.deadline_ms.get()) {
            return Err(DescriptorError::Deadline);
        }
        let source = self.source();
        if source.offset.checked_add(source.length).is_none() {
            return Err(DescriptorError::Source);
        }
        if header.report.offset.get() % 64 != 0 {
            return Err(DescriptorError::Place);
        }
        Ok(())
    }

    fn check_sink(&self) -> Result<(), DescriptorError> {
        let header = self.header;
        let length = header.sink_length.get();
        let refs = [&header.sink_data, &header.produced, &header.consumed];
        if refs.iter().any(|place| place.zero.get() != 0) {
            return Err(DescriptorError::Reserved);
        }
        match header.sink_kind {
            SINK_HOST_WINDOW => {
                let unused = header.sink_nsid.get() == 0
                    && header.sink_buffers.get() == 0
                    && header.sink_offset.get() == 0;
                let cells = [&header.produced, &header.consumed];
                if cells.iter().any(|cell| cell.offset.get() % 8 != 0) {
                    return Err(DescriptorError::Place);
                }
                let whole = length % RESULT_UNIT == 0;
                if !unused || !whole || length == 0 || length > MAX_RESULT_WINDOW {
                    return Err(DescriptorError::Sink);
                }
            }
            SINK_NAMESPACE => {
                let unused = header.produced.is_null() && header.consumed.is_null();
                let end = header.sink_offset.get().checked_add(length);
                let buffers = (MIN_BUFFERS..=MAX_BUFFERS).contains(&header.sink_buffers.get());
                if !unused || !buffers || end.is_none() {
                    return Err(DescriptorError::Sink);
                }
            }
            _ => return Err(DescriptorError::Sink),
        }
        Ok(())
    }

    fn check_hops(&self) -> Result<(), DescriptorError> {
        let first = usize::from(self.header.first_hop.get());
        let count = self.hops.len();
        if count == 0 || first.saturating_add(count) > MAX_HOPS {
            return Err(DescriptorError::Hops);
        }
        let mut before = None;
        for (index, hop) in self.hops.iter().enumerate() {
            if hop.zero.get() != 0 || hop.reserved.get() != 0 || hop.input.zero.get() != 0 {
                return Err(DescriptorError::Reserved);
            }
            let member = MemberId::new(hop.member.get()).filter(|member| !member.is_host());
            let buffers = hop.buffers.get();
            let end = index == 0 && first == 0 || index.saturating_add(1) == count;
            let idle = hop.stage_count.get() == 0;
            let room = u64::from(buffers).saturating_mul(u64::from(self.chunk_bytes()));
            if member.is_none()
                || member == before
                || !(MIN_BUFFERS..=MAX_BUFFERS).contains(&buffers)
                || (idle && !end)
                || room < u64::from(self.header.total_bytes.get())
            {
                return Err(DescriptorError::Hops);
            }
            before = member;
        }
        Ok(())
    }

    fn check_stages(&self) -> Result<(), DescriptorError> {
        let header = self.header;
        let all = header.all_stages.get();
        let after = header
            .first_stage
            .get()
            .checked_add(header.stage_count.get());
        if all == 0 || usize::from(all) > MAX_STAGES || after != Some(all) {
            return Err(DescriptorError::Stages);
        }
        let of_hops = self.hops.iter().fold(0_u32, |sum, hop| {
            sum.saturating_add(hop.stage_count.get().into())
        });
        if of_hops != u32::from(header.stage_count.get()) {
            return Err(DescriptorError::Stages);
        }
        let mut rest = self.stages;
        for _ in 0..of_hops {
            (_, rest) = split_stage(rest)?;
        }
        if rest.is_empty() {
            Ok(())
        } else {
            Err(DescriptorError::Length)
        }
    }

    /// The pipeline's number.
    #[must_use]
    pub fn stream(&self) -> u32 {
        self.header.stream.get()
    }

    /// Bytes of a chunk.
    #[must_use]
    pub fn chunk_bytes(&self) -> u32 {
        self.header.chunk_bytes.get()
    }

    /// Longest time without progress, in milliseconds.
    #[must_use]
    pub fn deadline_ms(&self) -> u32 {
        self.header.deadline_ms.get()
    }

    /// The number of the first hop in here, counted from the pipeline's first.
    #[must_use]
    pub fn first_hop(&self) -> u16 {
        self.header.first_hop.get()
    }

    /// The number of the first stage in here, counted from the pipeline's first.
    #[must_use]
    pub fn first_stage(&self) -> u16 {
        self.header.first_stage.get()
    }

    /// Stages of the whole pipeline.
    #[must_use]
    pub fn all_stages(&self) -> u16 {
        self.header.all_stages.get()
    }

    /// What is read.
    #[must_use]
    pub fn source(&self) -> Source {
        Source {
            nsid: self.header.source_nsid.get(),
            offset: self.header.source_offset.get(),
            length: self.header.source_length.get(),
        }
    }

    /// Where the result goes.
    #[must_use]
    pub fn sink(&self) -> Sink {
        let header = self.header;
        if header.sink_kind == SINK_NAMESPACE {
            Sink::Namespace {
                nsid: header.sink_nsid.get(),
                offset: header.sink_offset.get(),
                limit: header.sink_length.get(),
                buffers: header.sink_data.get(),
                count: header.sink_buffers.get(),
            }
        } else {
            Sink::HostWindow {
                ring: header.sink_data.get(),
                length: header.sink_length.get(),
                produced: header.produced.get(),
                consumed: header.consumed.get(),
            }
        }
    }

    /// The report slots.
    #[must_use]
    pub fn report(&self) -> WindowRef {
        self.header.report.get()
    }

    /// Hops in here.
    #[must_use]
    pub fn hop_count(&self) -> usize {
        self.hops.len()
    }

    /// Hop `index`, counted from the first in here.
    #[must_use]
    pub fn hop(&self, index: usize) -> Option<HopSpec> {
        let raw = self.hops.get(index)?;
        Some(HopSpec {
            member: MemberId::new(raw.member.get())?,
            stage_count: raw.stage_count.get(),
            buffers: raw.buffers.get(),
            input: raw.input.get(),
        })
    }

    /// The stages of the first hop in here.
    pub fn own_stages(&self) -> impl Iterator<Item = Stage<'d>> {
        let count = self.hops.first().map_or(0, |hop| hop.stage_count.get());
        let mut rest = self.stages;
        (0..count).map_while(move |_| {
            let (stage, after) = split_stage(rest).ok()?;
            rest = after;
            Some(stage)
        })
    }

    /// The descriptor of the hops after the first; `None` if there are none.
    #[must_use]
    pub fn rest(&self) -> Option<Rest<'d>> {
        let (own, hops) = self.hops.split_first()?;
        if hops.is_empty() {
            return None;
        }
        let own_stages = own.stage_count.get();
        let mut stages = self.stages;
        for _ in 0..own_stages {
            (_, stages) = split_stage(stages).ok()?;
        }
        let mut rest = Rest {
            header: [0; HEADER_BYTES],
            hops: hops.as_bytes(),
            stages,
        };
        let before = self.header;
        let mut header = *before;
        header.total_bytes = u32::try_from(rest.len()).ok()?.into();
        header.first_hop = before.first_hop.get().checked_add(1)?.into();
        header.hop_count = u16::try_from(hops.len()).ok()?.into();
        header.first_stage = before.first_stage.get().checked_add(own_stages)?.into();
        header.stage_count = before.stage_count.get().checked_sub(own_stages)?.into();
        rest.header.copy_from_slice(header.as_bytes());
        Some(rest)
    }
}
