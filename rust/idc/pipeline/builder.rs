// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Writes pipeline descriptors, at the host.
//!
//! Owns the order in which a descriptor is put together. What it accepts is what `descriptor` finds
//! valid: the finished bytes are parsed.

use super::super::function::options::MAX_PARAMETERS_LEN;
use super::super::function::FunctionId;
use super::super::window::WindowRef;
use super::descriptor::{Descriptor, DescriptorError, HopSpec, PipelineSpec, Sink};
use super::wire::{
    RawHeader, RawHop, RawRef, RawStage, HEADER_BYTES, MAGIC, SINK_HOST_WINDOW, SINK_NAMESPACE,
    VERSION,
};
use zerocopy::byteorder::little_endian::{U16, U32, U64};
use zerocopy::IntoBytes as _;

/// Writes a descriptor: first all hops, then all stages, then [`Builder::finish`].
pub struct Builder<'b> {
    buffer: &'b mut [u8],
    spec: PipelineSpec,
    hops: u16,
    stages_wanted: u16,
    stages: u16,
    at: usize,
}

impl<'b> Builder<'b> {
    /// Begins in `buffer`.
    ///
    /// # Errors
    /// [`DescriptorError::Length`] if not even the header fits.
    pub fn new(buffer: &'b mut [u8], spec: &PipelineSpec) -> Result<Self, DescriptorError> {
        if buffer.len() < HEADER_BYTES {
            return Err(DescriptorError::Length);
        }
        Ok(Builder {
            buffer,
            spec: *spec,
            hops: 0,
            stages_wanted: 0,
            stages: 0,
            at: HEADER_BYTES,
        })
    }

    fn append(&mut self, bytes: &[u8]) -> Result<(), DescriptorError> {
        let end = self.at.saturating_add(bytes.len());
        let room = self.buffer.get_mut(self.at..end);
        room.ok_or(DescriptorError::Length)?.copy_from_slice(bytes);
        self.at = end;
        Ok(())
    }

    /// Adds a hop.
    ///
    /// # Errors
    /// [`DescriptorError::Hops`] after a stage; [`DescriptorError::Length`] if the buffer is full.
    pub fn hop(&mut self, hop: &HopSpec) -> Result<(), DescriptorError> {
        if self.stages != 0 {
            return Err(DescriptorError::Hops);
        }
        let raw = RawHop {
            member: hop.member.get().into(),
            stage_count: hop.stage_count.into(),
            buffers: hop.buffers.into(),
            zero: U16::ZERO,
            input: RawRef::new(hop.input),
            reserved: U64::ZERO,
        };
        self.append(raw.as_bytes())?;
        self.hops = self.hops.saturating_add(1);
        self.stages_wanted = self.stages_wanted.saturating_add(hop.stage_count);
        Ok(())
    }

    /// Adds a stage.
    ///
    /// # Errors
    /// [`DescriptorError::Function`] if `params` are too long; [`DescriptorError::Length`] if the
    /// buffer is full.
    pub fn stage(&mut self, function: FunctionId, params: &[u8]) -> Result<(), DescriptorError> {
        if params.len() > MAX_PARAMETERS_LEN {
            return Err(DescriptorError::Function);
        }
        let raw = RawStage {
            function: function.to_wire().into(),
            params_len: (params.len() as u16).into(),
        };
        self.append(raw.as_bytes())?;
        self.append(params)?;
        self.stages = self.stages.saturating_add(1);
        Ok(())
    }

    /// Writes the header and checks the whole. Returns its bytes.
    ///
    /// # Errors
    /// [`DescriptorError`].
    pub fn finish(self) -> Result<usize, DescriptorError> {
        let spec = &self.spec;
        let total = u32::try_from(self.at).map_err(|_| DescriptorError::Length)?;
        let mut header = RawHeader {
            magic: MAGIC,
            version: VERSION.into(),
            zero: U16::ZERO,
            total_bytes: total.into(),
            stream: spec.stream.into(),
            chunk_bytes: spec.chunk_bytes.into(),
            deadline_ms: spec.deadline_ms.into(),
            first_hop: U16::ZERO,
            hop_count: self.hops.into(),
            first_stage: U16::ZERO,
            stage_count: self.stages.into(),
            all_stages: self.stages.into(),
            sink_kind: SINK_HOST_WINDOW,
            zero2: 0,
            source_nsid: spec.source.nsid.into(),
            source_offset: spec.source.offset.into(),
            source_length: spec.source.length.into(),
            report: RawRef::new(spec.report),
            sink_nsid: U32::ZERO,
            sink_buffers: U16::ZERO,
            zero3: U16::ZERO,
            sink_offset: U64::ZERO,
            sink_length: U64::ZERO,
            sink_data: RawRef::new(WindowRef::default()),
            produced: RawRef::new(WindowRef::default()),
            consumed: RawRef::new(WindowRef::default()),
        };
        match spec.sink {
            Sink::HostWindow {
                ring,
                length,
                produced,
                consumed,
            } => {
                header.sink_length = length.into();
                header.sink_data = RawRef::new(ring);
                header.produced = RawRef::new(produced);
                header.consumed = RawRef::new(consumed);
            }
            Sink::Namespace {
                nsid,
                offset,
                limit,
                buffers,
                count,
            } => {
                header.sink_kind = SINK_NAMESPACE;
                header.sink_nsid = nsid.into();
                header.sink_offset = offset.into();
                header.sink_length = limit.into();
                header.sink_data = RawRef::new(buffers);
                header.sink_buffers = count.into();
            }
        }
        let room = self.buffer.get_mut(..HEADER_BYTES);
        room.ok_or(DescriptorError::Length)?
            .copy_from_slice(header.as_bytes());
        let written = self.buffer.get(..self.at);
        Descriptor::parse(written.ok_or(DescriptorError::Length)?)?;
        Ok(self.at)
    }
}
