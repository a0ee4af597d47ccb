// SPDX-License-Identifier: GPL-2.0

//! Bring-up, recovery and teardown of a controller (NVM Express Base Specification 2.0, section 3.5
//! to 3.7).
//!
//! Owns the order in which hardware is touched. Everything here runs under the control lock, in a
//! thread that may sleep, and ends within CAP.TO and the command timeout whatever the drive does.

use super::{
    admin::{
        Cns,
        CreateCompletionQueue,
        CreateSubmissionQueue,
        DeleteCompletionQueue,
        DeleteSubmissionQueue,
        Identify,
        SetAsyncEvents,
        SetQueueCount, //
    },
    controller::{
        Control,
        Controller,
        Patience,
        State, //
    },
    identify::{
        self,
        ControllerInfo,
        Namespace, //
    },
    memory::MemoryState,
    prp,
    queue::Queue,
    regs::{
        ACQ,
        AQA,
        ASQ,
        CC, //
    },
    spec::{
        CQE_SHIFT,
        SQE_SHIFT, //
    }, //
};
use kernel::{
    device::{
        self,
        Bound, //
    },
    io::poll::read_poll_timeout,
    pci,
    prelude::*,
    sync::atomic::{
        Acquire,
        Relaxed,
        Release, //
    },
    time::{
        delay::fsleep,
        Delta, //
    }, //
};

/// Namespaces of a drive that are looked at.
pub(super) const NAMESPACES: usize = 16;
/// Attempts to bring a controller up again before it is given up.
const ATTEMPTS: u32 = 3;
/// Time that commands get to end by themselves when the drive is to stop, in milliseconds.
const DRAIN_MS: u32 = 1000;
/// CC.SHN for a normal shutdown, and CSTS.SHST when it is complete.
const SHUTDOWN_NORMAL: u32 = 1;
const SHUTDOWN_COMPLETE: u32 = 2;

impl Controller {
    /// Brings the controller up for the first time and finds its memory.
    ///
    /// # Errors
    ///
    /// - `ENODEV` if the device is gone; `ETIMEDOUT`, `EIO`, `EPROTO` if it does not come up. The
    ///   caller must tear down.
    pub(crate) fn start(&self, pdev: &pci::Device<Bound>) -> Result {
        let mut control = self.control.lock();
        self.bring_up()?;
        self.memory.discover(&mut control.memory, &self.regs, pdev);
        self.set_state(State::Ready);
        self.arm_events();
        Ok(())
    }

    /// From any state of the hardware to one that takes commands.
    fn bring_up(&self) -> Result {
        self.disable()?;
        self.admin.fail_all(ECONNRESET);
        for queue in &self.io {
            queue.fail_all(ECONNRESET);
        }
        self.enable()?;
        let step = |what| {
            move |error: &Error| {
                if *error != ECANCELED {
                    dev_err!(self.device(), "{}: {:?}\n", what, error);
                }
            }
        };
        let info = self
            .admin(
                &Identify {
                    cns: Cns::Controller,
                    nsid: 0,
                    parse: ControllerInfo::parse,
                },
                Patience::Bounded,
            )
            .inspect_err(step("Identify Controller failed"))?;
        self.facts.lock().info = Some(info);
        self.max_transfer
            .store(info.max_transfer.min(prp::MAX_BYTES), Relaxed);
        self.create_queues()
            .inspect_err(step("I/O queues cannot be created"))?;
        self.learn_namespaces(Patience::Bounded)
            .inspect_err(step("namespaces cannot be read"))?;
        let mask = info.async_events;
        if let Err(error) = self.admin(&SetAsyncEvents { mask }, Patience::Bounded) {
            // Not worth the drive: it then reports what it reports by default.
            dev_warn!(
                self.device(),
                "cannot choose asynchronous events: {:?}\n",
                error
            );
        }
        Ok(())
    }

    /// Waits until CSTS.RDY is `ready`.
    fn wait_ready(&self, ready: bool) -> Result {
        let csts = read_poll_timeout(
            || self.worth_waiting(),
            |csts| csts.rdy() == ready || (ready && csts.cfs()),
            Delta::from_millis(1),
            Delta::from_millis(self.regs.ready_timeout_ms().into()),
        )
        .inspect_err(|&error| {
            if error == ETIMEDOUT {
                dev_err!(
                    self.device(),
                    "CSTS.RDY did not become {} within {} ms\n",
                    u32::from(ready),
                    self.regs.ready_timeout_ms()
                );
            }
        })?;
        if ready && csts.cfs() {
            dev_err!(self.device(), "fatal status while being enabled\n");
            return Err(EIO);
        }
        Ok(())
    }

    /// Clears CC.EN and waits until the controller has stopped: it then touches no queue any more.
    fn disable(&self) -> Result {
        // What a device that is gone answers would read as a configuration: look at the status first.
        self.status()?;
        let cc = self.regs.cc()?;
        if cc.en() {
            self.regs.set_cc(cc.with_en(false).with_const_shn::<0>())?;
        }
        self.wait_ready(false)
    }

    /// Gives the controller its admin queue and enables it.
    fn enable(&self) -> Result {
        self.function.enable_master();
        self.admin.rewind()?;
        let (sq, cq) = self.admin.addresses()?;
        let entries = u32::from(self.admin.depth()).saturating_sub(1);
        self.regs.set_aqa(
            AQA::zeroed()
                .try_with_asqs(entries)?
                .try_with_acqs(entries)?,
        )?;
        self.regs.set_asq(ASQ::zeroed().with_address(sq))?;
        self.regs.set_acq(ACQ::zeroed().with_address(cq))?;
        let all_sets = self.regs.cap().css().get() & 0x40 != 0;
        let cc = CC::zeroed()
            .try_with_css(if all_sets { 6u32 } else { 0 })?
            .with_const_iosqes::<SQE_SHIFT>()
            .with_const_iocqes::<CQE_SHIFT>()
            .with_en(true);
        self.regs.set_cc(cc)?;
        self.wait_ready(true)?;
        self.admin.open();
        Ok(())
    }

    fn create_queues(&self) -> Result {
        let wanted = u16::try_from(self.io.len()).unwrap_or(u16::MAX);
        let pairs = self.admin(&SetQueueCount { pairs: wanted }, Patience::Bounded)?;
        let mut live = 0;
        for queue in self.io.iter().take(pairs.into()) {
            if let Err(error) = self.create_queue(queue) {
                if live == 0 {
                    return Err(error);
                }
                dev_warn!(
                    self.device(),
                    "goes on with {} I/O queues: {:?}\n",
                    live,
                    error
                );
                break;
            }
            live = u32::saturating_add(live, 1);
        }
        self.live.store(live, Relaxed);
        Ok(())
    }

    fn create_queue(&self, queue: &Queue) -> Result {
        queue.rewind()?;
        let (sq, cq) = queue.addresses()?;
        let (qid, depth) = (queue.id(), queue.depth());
        self.admin(
            &CreateCompletionQueue {
                qid,
                depth,
                vector: vector_of(qid, self.vectors),
                address: cq,
            },
            Patience::Bounded,
        )?;
        self.admin(
            &CreateSubmissionQueue {
                qid,
                depth,
                address: sq,
            },
            Patience::Bounded,
        )?;
        queue.open();
        Ok(())
    }

    /// Reads the active namespaces.
    pub(super) fn learn_namespaces(&self, patience: Patience) -> Result {
        let ids = self.admin(
            &Identify {
                cns: Cns::ActiveNamespaces,
                nsid: 0,
                parse: |data: &[u8]| {
                    let mut ids = KVec::with_capacity(NAMESPACES, GFP_KERNEL)?;
                    let mut ignored = 0u32;
                    identify::active_namespaces(data, |nsid| {
                        if ids.push_within_capacity(nsid).is_err() {
                            ignored = ignored.saturating_add(1);
                        }
                        Ok(())
                    })?;
                    if ignored > 0 {
                        dev_warn!(self.device(), "{} namespaces ignored\n", ignored);
                    }
                    Ok(ids)
                },
            },
            patience,
        )?;
        let mut namespaces = KVec::with_capacity(NAMESPACES, GFP_KERNEL)?;
        for &nsid in &ids {
            let namespace = self.admin(
                &Identify {
                    cns: Cns::Namespace,
                    nsid,
                    parse: |data: &[u8]| Namespace::parse(nsid, data),
                },
                patience,
            );
            let namespace = match namespace {
                Ok(Some(namespace)) => namespace,
                // Gone since it was listed.
                Ok(None) => continue,
                Err(error) if [EINVAL, ENOENT, EOPNOTSUPP].contains(&error) => {
                    // One of another command set; the others are as good as ever.
                    dev_warn!(self.device(), "namespace {} ignored: {:?}\n", nsid, error);
                    continue;
                }
                Err(error) => return Err(error),
            };
            if let Some(reason) = namespace.refused {
                dev_warn!(self.device(), "namespace {} refused: {}\n", nsid, reason);
            }
            namespaces
                .push_within_capacity(namespace)
                .map_err(|_| ENOMEM)?;
        }
        let old = core::mem::replace(&mut self.facts.lock().namespaces, namespaces);
        drop(old);
        Ok(())
    }

    /// Resets the controller and brings it up again, or fails it for good. Only the supervisor calls
    /// this. `changed` is told of each new state, with no lock held.
    pub(super) fn recover(&self, reason: &str, changed: &dyn Fn(State)) {
        {
            let _control = self.control.lock();
            if self.stopping.load(Acquire) || !self.set_state(State::Resetting) {
                return;
            }
            dev_warn!(self.device(), "resetting the controller: {}\n", reason);
            self.counters.resets.hit();
            self.admin.close(EBUSY);
            for queue in &self.io {
                queue.close(EBUSY);
            }
        }
        changed(State::Resetting);
        let state = {
            let control = self.control.lock();
            self.rebuild(&control)
        };
        if let Some(state) = state {
            changed(state);
        }
    }

    /// The state in which a reset left the controller; `None` if it gave way to teardown.
    fn rebuild(&self, control: &Control) -> Option<State> {
        for attempt in 1..=ATTEMPTS {
            if self.stopping.load(Acquire) {
                return None;
            }
            let Err(error) = self.bring_up() else {
                self.memory.restore(&self.regs, &self.dev);
                self.set_state(State::Ready);
                self.arm_events();
                dev_info!(self.device(), "ready again\n");
                return Some(State::Ready);
            };
            if error == ENODEV {
                return Some(self.vanish(control));
            }
            if error == ECANCELED {
                return None;
            }
            dev_err!(
                self.device(),
                "reset {} of {} failed: {:?}\n",
                attempt,
                ATTEMPTS,
                error
            );
            fsleep(Delta::from_millis(500));
        }
        self.set_state(State::Failed);
        // It may still work on commands: it must reach neither memory before their submitters hear.
        self.function.disable_master();
        self.memory
            .shut_down(&control.memory, &self.regs, MemoryState::Failed, true);
        self.fail_queues(EIO);
        dev_err!(self.device(), "given up; unbind and bind it to try again\n");
        Some(State::Failed)
    }

    /// The device is gone: ends everything. Unbind will follow. Only the supervisor calls this.
    pub(super) fn lost(&self, changed: &dyn Fn(State)) {
        {
            let control = self.control.lock();
            if self.stopping.load(Acquire) || self.state() == State::Gone {
                return;
            }
            self.vanish(&control);
        }
        changed(State::Gone);
    }

    fn vanish(&self, control: &Control) -> State {
        dev_err!(self.device(), "does not answer any more\n");
        self.set_state(State::Gone);
        self.memory
            .shut_down(&control.memory, &self.regs, MemoryState::Absent, false);
        self.fail_queues(ENODEV);
        State::Gone
    }

    fn fail_queues(&self, reason: Error) {
        self.admin.fail_all(reason);
        for queue in &self.io {
            queue.fail_all(reason);
        }
    }

    /// Ends all commands with `ENODEV`, shuts the drive down in order if it still answers, and gives
    /// back its memory. Idempotent. Queue memory stays until [`Self::release`].
    pub(crate) fn stop(&self) {
        self.stopping.store(true, Release);
        let control = self.control.lock();
        if self.state() == State::Gone && self.status().is_err() {
            // Should it only be out of reach, it must not come back to memory that is freed next.
            self.function.disable_master();
            return;
        }
        let was = self.state();
        self.set_state(State::Gone);
        for queue in &self.io {
            queue.close(ENODEV);
        }
        let reachable = self.status().is_ok();
        if reachable {
            let stopped = self
                .drain(was == State::Ready)
                .and_then(|()| self.notify_shutdown())
                .and_then(|()| self.disable());
            if let Err(error) = stopped {
                dev_warn!(self.device(), "did not shut down in order: {:?}\n", error);
            }
        }
        self.memory
            .shut_down(&control.memory, &self.regs, MemoryState::Absent, reachable);
        // Whatever the controller thinks, from here on it reaches no memory.
        self.function.disable_master();
        self.fail_queues(ENODEV);
    }

    /// Gets the controller to a state without I/O queues: by deleting them, or by a reset if commands
    /// hang, as deleting a queue waits for its commands.
    fn drain(&self, ready: bool) -> Result {
        let idle = || self.io.iter().all(|queue| queue.in_flight() == 0);
        let drained = read_poll_timeout(
            || self.status().map(|_| idle()),
            |idle| *idle,
            Delta::from_millis(2),
            Delta::from_millis(self.settings.command_timeout_ms.min(DRAIN_MS).into()),
        );
        if ready && drained.is_ok() {
            self.delete_queues();
            return Ok(());
        }
        if drained == Err(ENODEV) {
            return Err(ENODEV);
        }
        self.disable()?;
        self.fail_queues(ENODEV);
        self.enable()
    }

    fn delete_queues(&self) {
        let live = self.live.load(Relaxed) as usize;
        for queue in self.io.iter().take(live) {
            let qid = queue.id();
            let deleted = self
                .admin(&DeleteSubmissionQueue(qid), Patience::Bounded)
                .and_then(|()| self.admin(&DeleteCompletionQueue(qid), Patience::Bounded));
            if deleted.is_err() {
                return;
            }
        }
    }

    /// CC.SHN and the wait for CSTS.SHST.
    fn notify_shutdown(&self) -> Result {
        let cc = self.regs.cc()?;
        if !cc.en() {
            return Ok(());
        }
        self.regs.set_cc(cc.try_with_shn(SHUTDOWN_NORMAL)?)?;
        let limit = self.facts.lock().info.map_or(5000, |info| info.shutdown_ms);
        read_poll_timeout(
            || self.status(),
            |csts| csts.shst().get() == SHUTDOWN_COMPLETE,
            Delta::from_millis(1),
            Delta::from_millis(limit.into()),
        )?;
        Ok(())
    }

    /// Gives the queues' memory and the BARs back. After [`Self::stop`], while the device is bound.
    pub(crate) fn release(&self, _dev: &device::Device<Bound>) {
        self.admin.release();
        for queue in &self.io {
            queue.release();
        }
        self.control.lock().memory.release();
    }
}

/// The interrupt vector of queue `qid` when there are `vectors`: the admin queue has the first, and
/// I/O queues share the last if there are too few.
pub(super) fn vector_of(qid: u16, vectors: u16) -> u16 {
    qid.min(vectors.saturating_sub(1))
}
