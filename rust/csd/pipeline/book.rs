// SPDX-License-Identifier: GPL-2.0

//! The pipelines of one mesh that hold any of its memory.
//!
//! Owns the list and what happens to all of them at once. Never holds its lock while it acts on a
//! member or a pipeline.

use super::{
    Phase,
    Pipeline, //
};
use crate::{
    idc::{
        firmware::STREAMS,
        member::{
            MemberId,
            MAX_MEMBERS, //
        },
        status::{
            Completion,
            Failure,
            StageId,
            Status, //
        }, //
    },
    mesh::{
        Member,
        Mesh, //
    },
    sys::time::Timer, //
};
use kernel::{
    new_condvar,
    new_mutex,
    prelude::*,
    sync::{
        Arc,
        CondVar,
        Mutex, //
    }, //
};

/// How often an emptying list is looked at, in milliseconds.
const STEP_MS: u32 = 20;

struct List {
    pipelines: KVec<Arc<Pipeline>>,
    /// Who waits for the list to be empty, or has seen it so: nobody new while there is one.
    closers: u32,
    last_window: u32,
    /// Stream slots in use, by member.
    hops: [u8; MAX_MEMBERS],
}

/// The pipelines of one mesh.
#[pin_data]
pub(crate) struct Book {
    #[pin]
    list: Mutex<List>,
    #[pin]
    shrunk: CondVar,
}

/// Stream slots that a pipeline has reserved, given back on drop.
pub(super) struct Seats {
    mesh: Arc<Mesh>,
    hops: KVec<MemberId>,
}

impl Drop for Seats {
    fn drop(&mut self) {
        let mut list = self.mesh.book.list.lock();
        for hop in self.hops.iter() {
            if let Some(count) = list.hops.get_mut(hop.index()) {
                *count = count.saturating_sub(1);
            }
        }
    }
}

impl Book {
    /// An empty book.
    pub(crate) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            list <- new_mutex!(List {
                pipelines: KVec::new(),
                closers: 0,
                last_window: 0,
                hops: [0; MAX_MEMBERS],
            }, "csd_book"),
            shrunk <- new_condvar!("csd_book"),
        })
    }

    /// Pipelines that run.
    pub(crate) fn running(&self) -> u32 {
        let list = self.list.lock();
        let count = list
            .pipelines
            .iter()
            .filter(|pipeline| pipeline.is_running())
            .count();
        count as u32
    }

    /// Reserves a stream slot in `mesh` for each of `wanted`.
    ///
    /// # Errors
    ///
    /// - EBUSY if a member has no free slot, ECANCELED while the mesh is being destroyed, ENOMEM.
    pub(super) fn reserve(
        mesh: &Arc<Mesh>,
        wanted: impl Iterator<Item = MemberId>,
    ) -> Result<Seats> {
        let mut hops = KVec::new();
        for hop in wanted {
            hops.push(hop, GFP_KERNEL)?;
        }
        let mut list = mesh.book.list.lock();
        if list.closers != 0 {
            return Err(ECANCELED);
        }
        let mut taken = list.hops;
        for hop in hops.iter() {
            let count = taken.get_mut(hop.index()).ok_or(EINVAL)?;
            if usize::from(*count) >= STREAMS {
                return Err(EBUSY);
            }
            *count = count.saturating_add(1);
        }
        list.hops = taken;
        drop(list);
        Ok(Seats {
            mesh: mesh.clone(),
            hops,
        })
    }

    /// A window id that no window of this mesh has.
    pub(super) fn window(&self) -> u32 {
        let mut list = self.list.lock();
        list.last_window = list.last_window.wrapping_add(1).max(1);
        list.last_window
    }

    /// Enters a pipeline.
    ///
    /// # Errors
    ///
    /// - ECANCELED while the mesh is being destroyed, ENOMEM.
    pub(super) fn enter(&self, pipeline: Arc<Pipeline>) -> Result {
        let mut list = self.list.lock();
        if list.closers != 0 {
            return Err(ECANCELED);
        }
        Ok(list.pipelines.push(pipeline, GFP_KERNEL)?)
    }

    /// Runs `f` on every pipeline that `chosen` picks, without the lock.
    fn each(&self, chosen: impl Fn(&Pipeline) -> bool, mut f: impl FnMut(&Arc<Pipeline>)) {
        // A pipeline entered meanwhile is at the end of the list; one that goes is not looked for.
        let mut after = 0;
        loop {
            let next = {
                let list = self.list.lock();
                list.pipelines
                    .iter()
                    .filter(|pipeline| pipeline.number > after)
                    .min_by_key(|pipeline| pipeline.number)
                    .cloned()
            };
            let Some(pipeline) = next else {
                return;
            };
            after = pipeline.number;
            if chosen(&pipeline) {
                f(&pipeline);
            }
        }
    }

    /// `from` rang the host's bell: results of which it is the producer may have grown.
    pub(crate) fn wake_readers(&self, from: MemberId) {
        let list = self.list.lock();
        for pipeline in list.pipelines.iter() {
            if pipeline.last == from {
                // A reader that has just found nothing holds this lock until it waits.
                drop(pipeline.state.lock());
                pipeline.changed.notify_all();
            }
        }
    }

    /// A first drive has completed the command of stream `stream`.
    pub(crate) fn ended(&self, mesh: &Mesh, stream: u32, completion: &Completion) {
        let failure = completion.failure;
        let phase = if failure.status.is_ok() {
            Phase::Done
        } else if failure.status == Status::CANCELLED {
            Phase::Cancelled
        } else {
            Phase::Failed
        };
        self.each(
            |pipeline| pipeline.stream == stream,
            |pipeline| {
                if pipeline.end(mesh, phase, failure) && phase == Phase::Failed {
                    mesh.complain(pipeline.number, &failure);
                }
            },
        );
    }

    /// A member is lost: what it takes part in fails.
    pub(crate) fn fail_member(&self, mesh: &Mesh, member: &Member, status: Status) {
        self.each(
            |pipeline| pipeline.members.contains(member.id),
            |pipeline| {
                let failure = Failure::new(status, member.id, StageId::NONE);
                if pipeline.end(mesh, Phase::Failed, failure) {
                    mesh.complain(pipeline.number, &failure);
                }
                pipeline.abort(mesh, status);
            },
        );
    }

    /// Gives back what ended pipelines do not need any more.
    pub(crate) fn reap(&self, mesh: &Mesh) {
        if self.list.lock().pipelines.is_empty() {
            return;
        }
        let mut gone = false;
        self.each(
            |pipeline| !pipeline.is_running(),
            |pipeline| {
                if pipeline.release(mesh) {
                    let mut list = self.list.lock();
                    list.pipelines.retain(|other| !Arc::ptr_eq(other, pipeline));
                    gone = true;
                }
            },
        );
        if gone {
            self.shrunk.notify_all();
        }
    }

    /// Lets nobody in any more and waits until the list is empty, with `force` by cancelling.
    ///
    /// # Errors
    ///
    /// - EBUSY if there are pipelines, without `force`; EINTR. The book is then as before.
    pub(crate) fn close(&self, mesh: &Mesh, force: bool) -> Result {
        {
            let mut list = self.list.lock();
            if !list.pipelines.is_empty() && !force {
                return Err(EBUSY);
            }
            list.closers = list.closers.saturating_add(1);
        }
        self.cancel_all(mesh);
        let mut timer = Timer::start(u32::MAX);
        loop {
            self.reap(mesh);
            let mut list = self.list.lock();
            if list.pipelines.is_empty() {
                return Ok(());
            }
            if let Err(error) = timer.wait_step(&self.shrunk, &mut list, STEP_MS) {
                list.closers = list.closers.saturating_sub(1);
                return Err(error);
            }
        }
    }

    /// Ends all pipelines at once, read or not.
    pub(crate) fn cancel_all(&self, mesh: &Mesh) {
        self.each(
            |_| true,
            |pipeline| {
                let failure = Failure::new(Status::CANCELLED, MemberId::HOST, StageId::NONE);
                pipeline.end(mesh, Phase::Cancelled, failure);
                pipeline.abandon();
                pipeline.abort(mesh, Status::CANCELLED);
            },
        );
    }
}
