// SPDX-License-Identifier: GPL-2.0 OR MIT

//! The stages of one hop, one behind the other, with a small buffer between each two.
//!
//! Owns the buffers in the stream's scratch memory and the order in which stages step. Never
//! touches shared memory: input is put in and output taken out by the caller. The scratch memory
//! holds the buffers first ([`STEP`] bytes each) and the functions' own memory behind them.

use super::super::function::{Crypto, Function as _, FunctionError, FunctionState, Status};
use super::super::pipeline::MAX_STAGES;
use zerocopy_derive::{FromZeros, Immutable, KnownLayout};

/// Bytes of one buffer: what a stage works on at a time.
pub(super) const STEP: usize = 16384;
/// Stages at work at a time on one member.
pub(super) const POOL: usize = 24;

/// The function states of all streams of a member.
#[derive(FromZeros, Immutable, KnownLayout)]
pub(super) struct Pool {
    states: [FunctionState; POOL],
    used: [bool; POOL],
}

impl Pool {
    fn take(&mut self) -> Option<usize> {
        let free = self.used.iter_mut().enumerate().find(|(_, used)| !**used);
        let (index, used) = free?;
        *used = true;
        Some(index)
    }

    fn give(&mut self, index: usize) {
        if let Some(used) = self.used.get_mut(index) {
            *used = false;
        }
    }

    pub(super) fn get(&mut self, index: usize) -> Option<&mut FunctionState> {
        self.states.get_mut(index)
    }

    /// States in use.
    pub(super) fn in_use(&self) -> usize {
        self.used.iter().filter(|used| **used).count()
    }
}

/// A buffer: the bytes from `start` to `end` wait.
#[derive(Clone, Copy, Default, FromZeros, Immutable, KnownLayout)]
#[repr(C)]
struct Fifo {
    start: u32,
    end: u32,
}

impl Fifo {
    const fn len(self) -> usize {
        self.end.wrapping_sub(self.start) as usize
    }

    fn data(self, buffer: &[u8]) -> &[u8] {
        buffer
            .get(self.start as usize..self.end as usize)
            .unwrap_or_default()
    }

    /// The room behind the data, after the data was moved to the front if that is worth it.
    fn room(&mut self, buffer: &mut [u8]) -> core::ops::Range<usize> {
        let (start, end) = (self.start as usize, self.end as usize);
        if start == end {
            *self = Fifo::default();
        } else if start > STEP >> 1 && end <= buffer.len() {
            buffer.copy_within(start..end, 0);
            self.end = self.end.wrapping_sub(self.start);
            self.start = 0;
        }
        self.end as usize..STEP
    }

    fn put(&mut self, bytes: usize) {
        let end = (self.end as usize).saturating_add(bytes);
        self.end = end.min(STEP) as u32;
    }

    fn take(&mut self, bytes: usize) {
        let start = (self.start as usize).saturating_add(bytes);
        self.start = start.min(self.end as usize) as u32;
    }
}

/// One stage at work.
#[derive(Clone, Copy, Default, FromZeros, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct Stage {
    /// Bytes that went in.
    pub(super) bytes_in: u64,
    /// Bytes that came out.
    pub(super) bytes_out: u64,
    /// Where its memory begins in the scratch memory, and its bytes.
    memory: u32,
    memory_len: u32,
    /// Its state in the pool.
    pub(super) state: u16,
    /// It has seen the end and given all out.
    pub(super) done: bool,
    /// It has more to give out without new input.
    has_more: bool,
}

/// A function failed.
pub(super) struct StageError {
    /// The stage, counted from the hop's first.
    pub(super) stage: usize,
    pub(super) error: FunctionError,
}

/// The stages of one hop.
#[derive(FromZeros, Immutable, KnownLayout)]
pub(super) struct Chain {
    count: u16,
    memory_len: u32,
    stages: [Stage; MAX_STAGES],
    fifos: [Fifo; MAX_STAGES + 1],
}

/// Why a stage could not be added.
pub(super) enum AddError {
    /// No state is free.
    Busy,
    /// Its parameters are invalid.
    Parameters,
}

impl Chain {
    /// Empties the chain; its states go back.
    pub(super) fn clear(&mut self, pool: &mut Pool) {
        for stage in self.stages() {
            pool.give(usize::from(stage.state));
        }
        self.count = 0;
        self.memory_len = 0;
        self.stages.fill(Stage::default());
        self.fifos.fill(Fifo::default());
    }

    /// The stages.
    pub(super) fn stages(&self) -> &[Stage] {
        self.stages
            .get(..usize::from(self.count))
            .unwrap_or_default()
    }

    /// Adds a stage behind the others. Scratch memory is sized after the last.
    pub(super) fn add(
        &mut self,
        function: super::super::function::FunctionId,
        params: &[u8],
        pool: &mut Pool,
    ) -> Result<(), AddError> {
        let memory_len = super::super::function::scratch_len(params)
            .ok()
            .and_then(|bytes| u32::try_from(bytes).ok())
            .ok_or(AddError::Parameters)?;
        let slot = self.stages.get_mut(usize::from(self.count));
        let slot = slot.ok_or(AddError::Busy)?;
        let index = pool.take().ok_or(AddError::Busy)?;
        let started = pool
            .get(index)
            .is_some_and(|state| state.start(params).is_ok() && state.id() == Some(function));
        if !started {
            pool.give(index);
            return Err(AddError::Parameters);
        }
        *slot = Stage {
            state: index as u16,
            memory: self.memory_len,
            memory_len,
            ..Stage::default()
        };
        self.memory_len = self.memory_len.saturating_add(memory_len);
        self.count = self.count.saturating_add(1);
        Ok(())
    }

    fn fifos_len(&self) -> usize {
        usize::from(self.count)
            .saturating_add(1)
            .saturating_mul(STEP)
    }

    /// Bytes of scratch memory that the chain needs.
    pub(super) fn scratch_len(&self) -> usize {
        self.fifos_len().saturating_add(self.memory_len as usize)
    }

    /// Where the next input goes; empty if there is no room.
    pub(super) fn input<'s>(&mut self, scratch: &'s mut [u8]) -> &'s mut [u8] {
        let buffer = scratch.get_mut(..STEP).unwrap_or_default();
        let [first, ..] = &mut self.fifos;
        let room = first.room(buffer);
        buffer.get_mut(room).unwrap_or_default()
    }

    /// `bytes` bytes of input were put in.
    pub(super) fn put(&mut self, bytes: usize) {
        let [first, ..] = &mut self.fifos;
        first.put(bytes);
    }

    /// The output that waits.
    pub(super) fn output<'s>(&self, scratch: &'s [u8]) -> &'s [u8] {
        let last = usize::from(self.count);
        let start = last.saturating_mul(STEP);
        let buffer = scratch.get(start..start.saturating_add(STEP));
        let fifo = self.fifos.get(last).copied().unwrap_or_default();
        fifo.data(buffer.unwrap_or_default())
    }

    /// `bytes` bytes of output were taken out.
    pub(super) fn take(&mut self, bytes: usize) {
        if let Some(fifo) = self.fifos.get_mut(usize::from(self.count)) {
            fifo.take(bytes);
        }
    }

    /// Whether all has been given out, `last` saying that all input was put in.
    pub(super) fn is_done(&self, last: bool) -> bool {
        let ended = self.stages().last().map_or(last, |stage| stage.done);
        let waiting = self.fifos.get(usize::from(self.count));
        ended && waiting.is_none_or(|fifo| fifo.len() == 0)
    }

    /// Lets every stage work once. Returns whether any did something.
    pub(super) fn step(
        &mut self,
        scratch: &mut [u8],
        last: bool,
        pool: &mut Pool,
        crypto: &mut dyn Crypto,
    ) -> Result<bool, StageError> {
        let fifos_len = self.fifos_len().min(scratch.len());
        let (buffers, memories) = scratch.split_at_mut(fifos_len);
        let mut before_done = last;
        let mut any = false;
        let count = usize::from(self.count);
        let stages = self.stages.iter_mut().take(count).enumerate();
        for (index, stage) in stages {
            let ended = core::mem::replace(&mut before_done, stage.done);
            if stage.done {
                continue;
            }
            let Some((_, rest)) = self.fifos.split_at_mut_checked(index) else {
                break;
            };
            let [from, to, ..] = rest else { break };
            let at = index.saturating_mul(STEP);
            let pair = buffers
                .get_mut(at..)
                .and_then(|rest| rest.split_at_mut_checked(STEP));
            let Some((input, output)) = pair else { break };
            let Some(output) = output.get_mut(..STEP) else {
                break;
            };
            let room = to.room(output);
            let input = from.data(input);
            if room.is_empty() || (input.is_empty() && !ended && !stage.has_more) {
                continue;
            }
            let start = stage.memory as usize;
            let memory = start..start.saturating_add(stage.memory_len as usize);
            let memory = memories.get_mut(memory).unwrap_or_default();
            let output = output.get_mut(room).unwrap_or_default();
            let Some(state) = pool.get(usize::from(stage.state)) else {
                break;
            };
            let step = state
                .step(memory, input, ended, output, crypto)
                .map_err(|error| StageError {
                    stage: index,
                    error,
                })?;
            from.take(step.consumed);
            to.put(step.produced);
            stage.bytes_in = stage.bytes_in.wrapping_add(step.consumed as u64);
            stage.bytes_out = stage.bytes_out.wrapping_add(step.produced as u64);
            stage.done = step.status == Status::Done;
            stage.has_more = step.status == Status::NeedOutput;
            before_done = stage.done;
            any |= step.consumed != 0 || step.produced != 0 || stage.done;
        }
        Ok(any)
    }
}
