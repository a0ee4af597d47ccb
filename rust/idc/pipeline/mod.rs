// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Pipelines as they are described, placed and reported on.
//!
//! Owns the limits that all members share. Never runs anything: that is `firmware`'s work.

mod builder;
pub mod descriptor;
pub mod plan;
pub mod report;
mod wire;

/// The most stages of one pipeline.
pub const MAX_STAGES: usize = 8;
/// The most hops of one pipeline: a source hop, one for each stage, a sink hop.
pub const MAX_HOPS: usize = MAX_STAGES + 2;
/// The fewest input buffers of a hop.
pub const MIN_BUFFERS: u16 = 2;
/// The most input buffers of a hop.
pub const MAX_BUFFERS: u16 = 8;
/// Bytes of the smallest chunk; every chunk size is a multiple of it.
pub const MIN_CHUNK: u32 = 4096;
/// Bytes of the largest chunk.
pub const MAX_CHUNK: u32 = 1 << 20;
/// Bytes of the largest descriptor. It must also fit into the input buffers of every hop after the
/// first, together.
pub const MAX_DESCRIPTOR: usize = 12288;
/// The longest deadline, in milliseconds: one hour.
pub const MAX_DEADLINE_MS: u32 = 3_600_000;
