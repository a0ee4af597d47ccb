// SPDX-License-Identifier: GPL-2.0

//! The descriptor of a pipeline: read, poll, progress, close.
//!
//! Owns the host's side of the result's ring: how far it was produced is what the last hop says,
//! checked; how far it was consumed is what the host says. Copies go by way of a bounce buffer, as
//! nothing may copy from a drive's memory to a user directly.

use super::{
    error_of,
    resources::ResultRing,
    Phase,
    Pipeline,
    State, //
};
use crate::{
    chardev,
    idc::status::{
        Failure,
        StageId,
        Status, //
    },
    mesh::Mesh,
    sys::{
        chardev::{
            OpenFile,
            ERROR,
            HANGUP,
            READABLE, //
        }, //
    },
    uapi::{
        self,
        csd_pipeline_progress, //
    }, //
};
use kernel::{
    fs::File,
    pr_warn_once,
    prelude::*,
    sync::{
        atomic::Relaxed,
        poll::PollTable,
        Arc,
        ArcBorrow, //
    },
    uaccess::UserSliceWriter, //
};

/// Bytes copied at once.
const BOUNCE: usize = 64 * 1024;

/// An open descriptor of a pipeline.
pub(super) struct PipelineFile {
    pipeline: Arc<Pipeline>,
    mesh: Arc<Mesh>,
}

impl PipelineFile {
    pub(super) fn new(pipeline: &Arc<Pipeline>, mesh: &Arc<Mesh>) -> Result<Arc<Self>> {
        let file = Self {
            pipeline: pipeline.clone(),
            mesh: mesh.clone(),
        };
        Ok(Arc::new(file, GFP_KERNEL)?)
    }
}

/// A part of the ring that is ready to be read.
struct Ready {
    /// Keeps the memory, whatever becomes of the pipeline meanwhile.
    ring: Arc<ResultRing>,
    consumed: u64,
    produced: u64,
}

/// What a reader finds.
enum Found {
    Data(Ready),
    Nothing,
    End,
}

impl State {
    /// How much of the result was produced; `None` if that cannot be true.
    fn produced(&self) -> Option<u64> {
        let Some(ring) = &self.result else {
            return Some(self.consumed);
        };
        let produced = match (self.produced, &self.resources) {
            (Some(produced), _) => produced,
            (None, Some(resources)) => resources.produced(),
            (None, None) => self.consumed,
        };
        let ready = produced.checked_sub(self.consumed)?;
        (ready <= ring.len).then_some(produced)
    }

    fn find(&self, pipeline: &Pipeline) -> Result<Found> {
        // The phase first: what was produced before the end is then seen.
        let phase = self.phase;
        if phase == Phase::Failed {
            return Err(error_of(self.failure.status));
        }
        if phase == Phase::Cancelled || self.abandoned {
            return Err(ECANCELED);
        }
        let produced = self.produced().ok_or_else(|| {
            pr_warn_once!(
                "pipeline {}: its last drive claims more of the result than there is room for\n",
                pipeline.number
            );
            EIO
        })?;
        if produced > self.consumed {
            let ring = self.result.as_ref().ok_or(EIO)?;
            return Ok(Found::Data(Ready {
                ring: ring.clone(),
                consumed: self.consumed,
                produced,
            }));
        }
        Ok(match phase {
            Phase::Done => Found::End,
            _ => Found::Nothing,
        })
    }
}

impl Pipeline {
    /// Waits for a part of the result and takes the right to read it.
    fn claim(&self, nonblock: bool) -> Result<Option<Ready>> {
        let mut state = self.state.lock();
        loop {
            if !state.reading {
                match state.find(self)? {
                    Found::Data(ready) => {
                        state.reading = true;
                        return Ok(Some(ready));
                    }
                    Found::End => return Ok(None),
                    Found::Nothing => {}
                }
            }
            if nonblock {
                return Err(EAGAIN);
            }
            if self.changed.wait_interruptible(&mut state) {
                return Err(ERESTARTSYS);
            }
        }
    }

    /// Gives the right to read back.
    fn unclaim(&self, consumed: u64) {
        let mut state = self.state.lock();
        state.consumed = consumed;
        state.reading = false;
        drop(state);
        self.changed.notify_all();
    }
}

impl PipelineFile {
    /// Copies as much of `ready` as fits; returns the bytes, and the error that stopped it.
    fn copy(&self, ready: &mut Ready, out: &mut UserSliceWriter) -> (usize, Result) {
        let mut copied = 0usize;
        let Ok(mut bounce) = KVVec::from_elem(0u8, BOUNCE.min(out.len()), GFP_KERNEL) else {
            return (0, Err(ENOMEM));
        };
        while ready.consumed < ready.produced && !out.is_empty() {
            let within = ready.consumed.checked_rem(ready.ring.len).unwrap_or(0);
            let piece = ready
                .produced
                .saturating_sub(ready.consumed)
                .min(ready.ring.len.saturating_sub(within))
                .min(bounce.len() as u64)
                .min(out.len() as u64);
            let at = ready.ring.start().saturating_add(within);
            let Some(buffer) = bounce.get_mut(..piece as usize) else {
                break;
            };
            let region = ready.ring.region();
            let result = region
                .read(at, buffer)
                .and_then(|()| out.write_slice(buffer));
            if let Err(error) = result {
                return (copied, Err(error));
            }
            ready.consumed = ready.consumed.saturating_add(piece);
            copied = copied.saturating_add(piece as usize);
            self.pipeline.touched.fetch_add(piece, Relaxed);
            // The place may be written again from here on.
            region.write_barrier();
            if let Err(error) = region.write_u64(ready.ring.consumed_cell(), ready.consumed) {
                return (copied, Err(error));
            }
            self.mesh.bus.kick(self.pipeline.last);
        }
        (copied, Ok(()))
    }
}

impl OpenFile for PipelineFile {
    fn read(&self, out: &mut UserSliceWriter, nonblock: bool) -> Result<usize> {
        if out.is_empty() {
            return Ok(0);
        }
        let Some(mut ready) = self.pipeline.claim(nonblock)? else {
            return Ok(0);
        };
        let (copied, result) = self.copy(&mut ready, out);
        self.pipeline.unclaim(ready.consumed);
        self.mesh.reap();
        match result {
            Err(error) if copied == 0 => Err(error),
            _ => Ok(copied),
        }
    }

    fn poll(&self, file: &File, table: &PollTable<'_>) -> u32 {
        table.register_wait(file, &self.pipeline.changed);
        let state = self.pipeline.state.lock();
        match state.find(&self.pipeline) {
            Ok(Found::Data(_)) => READABLE,
            Ok(Found::Nothing) => 0,
            Ok(Found::End) => READABLE | HANGUP,
            Err(_) => READABLE | HANGUP | ERROR,
        }
    }

    fn ioctl(self: ArcBorrow<'_, Self>, command: u32, user: usize) -> Result {
        match command {
            uapi::CSD_NUMBER_PIPELINE_PROGRESS => {
                chardev::with(user, |to: &mut csd_pipeline_progress| {
                    self.pipeline.progress(to);
                    Ok(())
                })
            }
            _ => Err(ENOTTY),
        }
    }

    fn release(&self) {
        self.pipeline.state.lock().open = false;
        if self.pipeline.is_running() {
            self.pipeline.cancel(&self.mesh);
        }
        self.mesh.reap();
    }
}

impl Pipeline {
    /// It was not started after all: nothing of it is wanted, and nobody is told.
    pub(super) fn never_ran(&self) {
        let mut state = self.state.lock();
        if state.phase == Phase::Running {
            state.phase = Phase::Cancelled;
            state.failure = Failure::new(
                Status::CANCELLED,
                crate::idc::member::MemberId::HOST,
                StageId::NONE,
            );
        }
        state.open = false;
    }
}
