// SPDX-License-Identifier: GPL-2.0

//! Pipelines as the host sees them: started, watched, read, ended.
//!
//! Owns a pipeline's memory, windows and keys from start to end, and the descriptor of its result.
//! All or none of them are taken, and all go back whatever ends it: success, failure, cancel, close,
//! loss of a drive, the end of the mesh. Never moves data from drive to drive: it hands one command
//! to the first drive and hears once that it has ended.
//!
//! # Life
//!
//! `Running` until the first drive completes the command, a drive is lost or the mesh goes; then for
//! ever one of `Done`, `Failed`, `Cancelled`. Buffers go back as soon as no member's firmware holds
//! the stream any more ([`Book::reap`]); the result's window stays until it was read or the
//! descriptor closed.

mod arguments;
mod book;
mod history;
mod progress;
mod reader;
mod resources;
mod start;

pub(crate) use book::Book;
pub(crate) use history::{
    cancel,
    info,
    History, //
};
pub(crate) use start::{
    plan,
    start, //
};

use crate::{
    events::Event,
    idc::{
        function::FunctionId,
        member::{
            MemberId,
            MemberSet, //
        },
        status::{
            Failure,
            Status, //
        }, //
    },
    mesh::Mesh,
    sys::time::now_ns,
    uapi::{
        self,
        csd_pipeline_progress, //
    }, //
};
use kernel::{
    prelude::*,
    sync::{
        atomic::Atomic,
        poll::PollCondVarBox,
        Arc,
        Mutex, //
    }, //
};
use resources::{
    Resources,
    ResultRing, //
};

/// How far a pipeline is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// It runs.
    Running,
    /// All of the result was produced.
    Done,
    /// It failed.
    Failed,
    /// Somebody did not want it any more.
    Cancelled,
}

impl Phase {
    fn to_abi(self) -> u32 {
        match self {
            Phase::Running => uapi::CSD_PIPELINE_RUNNING,
            Phase::Done => uapi::CSD_PIPELINE_DONE,
            Phase::Failed => uapi::CSD_PIPELINE_FAILED,
            Phase::Cancelled => uapi::CSD_PIPELINE_CANCELLED,
        }
    }
}

/// One stage, as progress shows it.
#[derive(Clone, Copy)]
struct StageInfo {
    function: FunctionId,
    drive: u32,
}

/// What changes.
struct State {
    phase: Phase,
    /// Whoever starts it is not through with that: nothing of it may go.
    launching: bool,
    /// Why it failed.
    failure: Failure,
    ended_ns: u64,
    /// Buffers, windows, keys, host memory: until no firmware holds the stream.
    resources: Option<Arc<Resources>>,
    /// The result: until it was read or is not wanted.
    result: Option<Arc<ResultRing>>,
    /// Bytes of the result that were produced, once that is final.
    produced: Option<u64>,
    /// Bytes of the result that were read.
    consumed: u64,
    /// Somebody reads just now, without the lock.
    reading: bool,
    /// The descriptor is open.
    open: bool,
    /// The mesh ended before the result was read.
    abandoned: bool,
    /// Its members drop it without a word to each other, for this reason.
    aborting: Option<Status>,
    /// Progress as it was when the reports went; there from the start, so that keeping it cannot
    /// fail.
    last: Option<KBox<csd_pipeline_progress>>,
}

/// A pipeline.
#[pin_data]
pub(crate) struct Pipeline {
    /// Its number, never used twice.
    pub(crate) number: u64,
    /// Its number in messages between drives.
    stream: u32,
    /// Its mesh's number.
    mesh: u32,
    /// The drive that has the command.
    first: MemberId,
    /// The drive that produces the result.
    last: MemberId,
    /// All drives that take part.
    members: MemberSet,
    source_length: u64,
    chunk_bytes: u32,
    stages: KVec<StageInfo>,
    /// The drives of its members.
    drives: KVec<(MemberId, u32)>,
    /// Data bytes that the host's processor touched for it.
    touched: Arc<Atomic<u64>>,
    started_ns: u64,
    #[pin]
    state: Mutex<State>,
    changed: PollCondVarBox,
}

impl Pipeline {
    fn is_running(&self) -> bool {
        self.state.lock().phase == Phase::Running
    }

    /// Ends it, unless it has ended; `false` if it had. The event goes out here.
    fn end(&self, mesh: &Mesh, phase: Phase, failure: Failure) -> bool {
        {
            let mut state = self.state.lock();
            if state.phase != Phase::Running {
                return false;
            }
            state.phase = phase;
            state.failure = failure;
            state.ended_ns = now_ns();
        }
        let (kind, status) = match phase {
            Phase::Running => return false,
            Phase::Done => (uapi::CSD_EVENT_PIPELINE_DONE, 0),
            Phase::Failed => (
                uapi::CSD_EVENT_PIPELINE_FAILED,
                u32::from(failure.status.errno()),
            ),
            Phase::Cancelled => (
                uapi::CSD_EVENT_PIPELINE_CANCELLED,
                ECANCELED.to_errno().unsigned_abs(),
            ),
        };
        let first = mesh.drive_of(self.first);
        let event: Event = mesh.event(kind).status(status).detail(self.number);
        mesh.events.post(match phase {
            // Where it failed is what matters; the first drive is the other one concerned.
            Phase::Failed => event.drive(mesh.drive_of(failure.member)).peer(first),
            _ => event.drive(first),
        });
        self.changed.notify_all();
        true
    }

    /// The number of the drive that a member is.
    fn drive_of(&self, id: MemberId) -> u32 {
        self.drives
            .iter()
            .find(|(member, _)| *member == id)
            .map_or(uapi::CSD_MEMBER_HOST, |(_, drive)| *drive)
    }

    /// The result will not be read to its end: the mesh goes.
    fn abandon(&self) {
        self.state.lock().abandoned = true;
        self.changed.notify_all();
    }

    /// Asks the first drive to end it; the end comes later.
    fn cancel(&self, mesh: &Mesh) {
        if let Some(member) = mesh.member(self.first) {
            member
                .proxy
                .turn(mesh, |firmware, _| firmware.cancel(self.stream));
            member.proxy.kick();
        }
    }

    /// Makes every member drop the stream at once, without a word to its peers. A member that takes
    /// an OPEN after that, which was under way, drops it when it is looked at the next time
    /// ([`Pipeline::release`]).
    fn abort(&self, mesh: &Mesh, status: Status) {
        self.state.lock().aborting = Some(status);
        self.abort_members(mesh, status);
    }

    fn abort_members(&self, mesh: &Mesh, status: Status) {
        for id in self.members.iter() {
            if let Some(member) = mesh.member(id).filter(|member| !member.is_lost()) {
                let found = member
                    .proxy
                    .turn(mesh, |firmware, _| firmware.abort(self.stream, status));
                if found {
                    member.proxy.kick();
                }
            }
        }
    }

    /// Whether any member's firmware still holds the stream.
    fn is_active(&self, mesh: &Mesh) -> bool {
        self.members.iter().any(|id| {
            mesh.member(id).is_some_and(|member| {
                !member.is_lost()
                    && member
                        .proxy
                        .inspect(|firmware| firmware.is_active(self.stream))
            })
        })
    }

    /// Gives back what nobody uses any more. `true` once nothing is left.
    fn release(&self, mesh: &Mesh) -> bool {
        let (resources, aborting) = {
            let state = self.state.lock();
            if state.phase == Phase::Running || state.launching {
                return false;
            }
            (state.resources.clone(), state.aborting)
        };
        if let Some(resources) = resources {
            if self.is_active(mesh) {
                if let Some(status) = aborting {
                    self.abort_members(mesh, status);
                }
                return false;
            }
            // An OPEN may still be under way in a ring. Without windows it comes to nothing; one that
            // was faster is dropped, and the memory stays until then.
            resources.revoke(mesh);
            if self.is_active(mesh) {
                self.abort(mesh, Status::CANCELLED);
                return false;
            }
            let mut state = self.state.lock();
            // Whoever comes first keeps what the reports say; then they go.
            if state.resources.is_some() {
                state.produced = Some(resources.produced());
                if let Some(mut last) = state.last.take() {
                    self.fill(&state, &mut last);
                    state.last = Some(last);
                }
                state.resources = None;
            }
        }
        self.drop_result();
        self.state.lock().result.is_none()
    }

    /// Gives the result's ring back if nobody will begin to read from it any more.
    fn drop_result(&self) {
        let result = {
            let mut state = self.state.lock();
            // The last hop may still write into it while it holds the stream.
            if state.phase == Phase::Running || state.launching || state.resources.is_some() {
                return;
            }
            let wanted = state.open
                && !state.abandoned
                && state.phase == Phase::Done
                && state
                    .produced
                    .is_some_and(|produced| state.consumed < produced);
            if wanted {
                return;
            }
            state.result.take()
        };
        drop(result);
    }
}

/// An errno of IDC as a kernel error.
fn error_of(status: Status) -> Error {
    Error::from_errno(0i32.wrapping_sub(i32::from(status.errno())))
}
