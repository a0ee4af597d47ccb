// SPDX-License-Identifier: GPL-2.0

//! One queue pair: a submission queue, its completion queue and a table of commands in flight.
//!
//! Owns rings, slots, one 4 KiB page of DMA memory a slot (reply data of an admin command, PRP list
//! of an I/O command) and the doorbells. Never knows what a command means. A completion entry is
//! hostile: it is copied once and believed only if it names a command in flight.
//!
//! The host owns every submission slot between the controller's head and its own tail; as at most
//! `depth - 1` commands are in flight, the tail never catches up with the head.

use super::{
    counters::Counters,
    regs::{
        Doorbell,
        Registers, //
    },
    slots::{
        Outcome,
        Overdue,
        Slots,
        Waiter,
        MAX_SLOTS, //
    },
    spec::{
        CqeTail,
        Sqe,
        Status,
        CQE_BYTES,
        SQE_BYTES, //
    },
    watch::Watch, //
};
use crate::sys::{
    completion::Completion,
    dma::DmaBuffer,
    kthread::Kick,
    ratelimit::RateLimit, //
};
use kernel::{
    device::{
        self,
        Bound, //
    },
    new_spinlock_irq,
    prelude::*,
    sync::{
        aref::ARef,
        barrier,
        Arc,
        SpinLockIrq, //
    },
    time::Delta, //
};

/// Told how a command ended. Called exactly once for each command that was accepted.
///
/// Runs in hard interrupt context, or in process context with interrupts on when a reset or an
/// unbind ends the command: it must not sleep, must not call into the drive, and must not drop the
/// last reference of anything. The submitter keeps its own reference until all its commands are
/// back.
pub(crate) trait Complete: Send + Sync {
    /// `tag` is the submitter's; the errors are those of [`Status::to_result`], `ETIMEDOUT` for a
    /// command that was not done in time, `ECONNRESET` for one that a controller reset took with
    /// it, `ENODEV` if the drive went away.
    fn complete(&self, tag: u64, result: Result);
}

/// DMA memory of a queue pair; gone once the drive is unbound.
struct Rings {
    sq: DmaBuffer,
    cq: DmaBuffer,
    pages: KVec<DmaBuffer>,
}

struct Inner {
    rings: Option<Rings>,
    /// Why nothing may be submitted, if so.
    closed: Option<Error>,
    tail: u16,
    head: u16,
    phase: bool,
    slots: Slots,
}

/// Bytes of the page that each slot has.
pub(super) const PAGE_BYTES: usize = 4096;
/// How often a waiting thread looks whether the device is still there, in milliseconds.
const PRESENCE_MS: u32 = 100;
/// Commands reaped under one hold of the lock.
const BATCH: usize = 8;

/// A queue pair. See the module's comment.
#[pin_data]
pub(crate) struct Queue {
    id: u16,
    depth: u16,
    dev: ARef<device::Device>,
    regs: Arc<Registers>,
    counters: Arc<Counters>,
    watch: Arc<Watch>,
    limit: RateLimit,
    #[pin]
    inner: SpinLockIrq<Inner>,
    /// One for each slot; signalled when a [`Waiter::Thread`]'s command has ended.
    done: Pin<KBox<[Completion]>>,
}

impl Queue {
    /// Allocates a queue pair of `depth` entries, closed.
    ///
    /// # Errors
    ///
    /// - `EINVAL` for a depth outside 2..=[`MAX_SLOTS`]; `ENOMEM`.
    pub(super) fn new(
        dev: &device::Device<Bound>,
        regs: &Arc<Registers>,
        counters: &Arc<Counters>,
        watch: &Arc<Watch>,
        id: u16,
        depth: u16,
    ) -> Result<Arc<Self>> {
        if !(2..=MAX_SLOTS).contains(&depth) {
            return Err(EINVAL);
        }
        let count = depth.wrapping_sub(1);
        let entries = usize::from(depth);
        let mut pages = KVec::with_capacity(usize::from(count), GFP_KERNEL)?;
        for _ in 0..count {
            pages.push(DmaBuffer::new(dev, PAGE_BYTES)?, GFP_KERNEL)?;
        }
        let slots = Slots::new(count)?;
        let rings = Rings {
            sq: DmaBuffer::new(dev, entries.wrapping_mul(SQE_BYTES))?,
            cq: DmaBuffer::new(dev, entries.wrapping_mul(CQE_BYTES))?,
            pages,
        };
        let done = KBox::pin_slice(|_| Completion::new(), usize::from(count), GFP_KERNEL)?;
        Arc::pin_init(
            pin_init!(Self {
                id,
                depth,
                dev: dev.into(),
                regs: regs.clone(),
                counters: counters.clone(),
                watch: watch.clone(),
                limit: RateLimit::new(),
                inner <- new_spinlock_irq!(Inner {
                    rings: Some(rings),
                    closed: Some(EBUSY),
                    tail: 0,
                    head: 0,
                    phase: true,
                    slots,
                }, "csd::Queue"),
                done,
            }),
            GFP_KERNEL,
        )
    }

    /// Queue identifier; 0 is the admin queue.
    pub(super) fn id(&self) -> u16 {
        self.id
    }

    /// Entries of each of the two queues.
    pub(crate) fn depth(&self) -> u16 {
        self.depth
    }

    /// Bus addresses of the submission and the completion queue.
    ///
    /// # Errors
    ///
    /// - `ENODEV` once the queue was released.
    pub(super) fn addresses(&self) -> Result<(u64, u64)> {
        let inner = self.inner.lock();
        let rings = inner.rings.as_ref().ok_or(ENODEV)?;
        Ok((rings.sq.bus_address(), rings.cq.bus_address()))
    }

    /// Prepares the rings for a controller that knows nothing of this queue yet. While closed only.
    pub(super) fn rewind(&self) -> Result {
        let mut inner = self.inner.lock();
        let rings = inner.rings.as_ref().ok_or(ENODEV)?;
        rings.cq.clear(rings.cq.len());
        inner.tail = 0;
        inner.head = 0;
        inner.phase = true;
        Ok(())
    }

    /// Lets commands in.
    pub(super) fn open(&self) {
        self.inner.lock().closed = None;
    }

    /// Refuses commands from now on with `reason`; those in flight stay.
    pub(super) fn close(&self, reason: Error) {
        self.inner.lock().closed = Some(reason);
    }

    /// Closes the queue and ends every command in flight: overdue ones with `ETIMEDOUT`, others with
    /// `reason`. The controller must have been stopped from completing any, and from writing to what
    /// they name: their submitters give that memory to others. Process context.
    pub(super) fn fail_all(&self, reason: Error) {
        self.close(reason);
        for index in 0..self.depth.wrapping_sub(1) {
            let mut inner = self.inner.lock();
            let outcome = inner.slots.failure(index, reason);
            let waiter = inner.slots.finish(index, outcome);
            drop(inner);
            if let Some(waiter) = waiter {
                self.deliver(index, waiter, outcome);
            }
        }
    }

    /// Gives the DMA memory back. The controller must be stopped and `fail_all` done.
    pub(super) fn release(&self) {
        let rings = self.inner.lock().rings.take();
        drop(rings);
    }

    /// Submits the command that `build` makes, given the bus address of the slot's page and a way to
    /// write words into that page. Returns the slot.
    ///
    /// # Errors
    ///
    /// - `EAGAIN` if as many commands are in flight as the queue holds.
    /// - The reason for which the queue is closed; errors of `build`.
    pub(super) fn submit(
        &self,
        waiter: Waiter,
        build: impl FnOnce(u64, &mut dyn FnMut(usize, u64) -> Result) -> Result<Sqe>,
    ) -> Result<u16> {
        let mut guard = self.inner.lock();
        let inner = &mut *guard;
        if let Some(reason) = inner.closed {
            return Err(reason);
        }
        let rings = inner.rings.as_ref().ok_or(ENODEV)?;
        let (index, cid) = inner.slots.peek()?;
        let page = rings.pages.get(usize::from(index)).ok_or(EIO)?;
        let mut sqe = build(page.bus_address(), &mut |word, value| {
            page.write(word, value)
        })?;
        sqe.cid = cid.into();
        let base = usize::from(inner.tail).wrapping_mul(SQE_BYTES / 8);
        for (offset, word) in sqe.words().into_iter().enumerate() {
            rings.sq.write(base.wrapping_add(offset), word)?;
        }
        let tail = match inner.tail.wrapping_add(1) {
            end if end == self.depth => 0,
            next => next,
        };
        if matches!(waiter, Waiter::Thread) {
            if let Some(done) = self.done.get(usize::from(index)) {
                done.rearm();
            }
        }
        // The entry must be in memory before the controller hears of it.
        barrier::dma_mb(barrier::Write);
        self.regs.ring(self.id, Doorbell::Submission, tail)?;
        inner.tail = tail;
        // A request for events may take for ever: nobody looks after it.
        let timed = !matches!(waiter, Waiter::Event(_));
        inner.slots.start(waiter);
        if timed {
            self.watch.submitted();
        }
        if self.id == 0 {
            self.counters.admin_commands.hit();
        } else {
            self.counters.io_commands.hit();
        }
        Ok(index)
    }

    /// Waits for the command of a [`Waiter::Thread`] in `slot`, for `ms` milliseconds (`None`: until
    /// the supervisor ends it), or until `alive` says otherwise. Copies the slot's page to `data`
    /// and frees the slot.
    ///
    /// # Errors
    ///
    /// - `ETIMEDOUT` if the time ran out, or the error of `alive`; the slot then stays taken until the
    ///   command ends.
    /// - Why the command ended without a completion.
    pub(super) fn wait(
        &self,
        slot: u16,
        ms: Option<u32>,
        data: &mut [u8],
        alive: &dyn Fn() -> Result,
    ) -> Result<Outcome> {
        let done = self.done.get(usize::from(slot)).ok_or(EIO)?;
        let mut left = ms;
        loop {
            let slice = left.map_or(PRESENCE_MS, |left| left.min(PRESENCE_MS));
            let given_up = if done.wait_timeout(slice) {
                None
            } else {
                left = left.map(|left| left.saturating_sub(slice));
                match alive() {
                    Err(error) => Some(error),
                    Ok(()) if left == Some(0) => Some(ETIMEDOUT),
                    Ok(()) => None,
                }
            };
            let mut inner = self.inner.lock();
            match (inner.slots.fetch(slot), given_up) {
                (Some(outcome), _) => {
                    let copied = if outcome.result.is_ok() {
                        inner.copy_page(slot, data)
                    } else {
                        Ok(())
                    };
                    inner.slots.put_free(slot);
                    return copied.map(|()| outcome);
                }
                // Not yet, or a signal for the slot's previous command, which had been given up.
                (None, None) => (),
                (None, Some(error)) => {
                    inner.slots.orphan(slot);
                    return Err(error);
                }
            }
        }
    }

    /// Reaps what the controller has completed. Any context; meant for the interrupt handler.
    ///
    /// At most as many entries as the queue has: a controller that posts without end must not keep a
    /// processor in interrupt context. Entries that a busy one posts meanwhile have an interrupt of
    /// their own.
    pub(super) fn reap(&self) {
        for _ in 0..usize::from(self.depth).div_ceil(BATCH) {
            let mut batch: [Option<(u16, Waiter, Outcome)>; BATCH] = [const { None }; BATCH];
            let mut more = false;
            {
                let mut guard = self.inner.lock();
                let inner = &mut *guard;
                let mut consumed = false;
                for entry in &mut batch {
                    let Some((tail, dw0)) = inner.next_completion(self.depth) else {
                        more = false;
                        break;
                    };
                    more = true;
                    consumed = true;
                    let outcome = Outcome {
                        result: Ok(tail.status()),
                        dw0,
                    };
                    let index = match tail.sqid() == self.id {
                        true => inner.slots.claim(tail.cid()),
                        false => None,
                    };
                    match index {
                        Some(index) => {
                            let waiter = inner.slots.finish(index, outcome);
                            *entry = waiter.map(|waiter| (index, waiter, outcome));
                        }
                        None => {
                            self.counters.errors.hit();
                            if self.limit.allow() {
                                dev_warn!(
                                    &*self.dev,
                                    "queue {}: completion for no command (cid {:#x}, sq {})\n",
                                    self.id,
                                    tail.cid(),
                                    tail.sqid()
                                );
                            }
                        }
                    }
                }
                if consumed {
                    // Fails only if the drive is gone, and then nobody cares.
                    let _ = self.regs.ring(self.id, Doorbell::Completion, inner.head);
                }
            }
            for (index, waiter, outcome) in batch.into_iter().flatten() {
                self.deliver(index, waiter, outcome);
            }
            if !more {
                return;
            }
        }
    }

    /// Tells the waiter. The queue's lock is not held.
    fn deliver(&self, index: u16, waiter: Waiter, outcome: Outcome) {
        let result = outcome.result.and_then(Status::to_result);
        if result.is_err() && !matches!(waiter, Waiter::Event(_)) {
            self.counters.errors.hit();
        }
        match waiter {
            Waiter::Thread => {
                if let Some(done) = self.done.get(usize::from(index)) {
                    done.complete();
                }
            }
            Waiter::Orphan => (),
            Waiter::Event(events) => events.arrived(outcome),
            Waiter::Callback {
                done,
                tag,
                bytes,
                write,
            } => {
                if result.is_ok() {
                    if write {
                        self.counters.written_bytes.add(bytes.into());
                    } else {
                        self.counters.read_bytes.add(bytes.into());
                    }
                }
                done.complete(tag, result);
            }
        }
    }

    /// Commands in flight, Asynchronous Event Requests aside.
    pub(super) fn in_flight(&self) -> usize {
        self.inner.lock().slots.in_flight()
    }

    /// A command that has been in flight for longer than `limit`, if any.
    pub(super) fn overdue(&self, limit: Delta) -> Option<Overdue> {
        self.inner.lock().slots.overdue(limit)
    }

    /// Notes that an Abort is sent for `cid`. Returns whether it is still in flight.
    pub(super) fn mark_aborted(&self, cid: u16) -> bool {
        self.inner.lock().slots.mark_aborted(cid)
    }
}

impl Inner {
    /// The next completion entry if its phase says that it is new.
    fn next_completion(&mut self, depth: u16) -> Option<(CqeTail, u32)> {
        let rings = self.rings.as_ref()?;
        let base = usize::from(self.head).wrapping_mul(CQE_BYTES / 8);
        let tail = CqeTail(rings.cq.read(base.wrapping_add(1)).ok()?);
        if tail.phase() != self.phase {
            return None;
        }
        // Dword 0 was written with the phase or before it: read it after.
        barrier::dma_mb(barrier::Read);
        let dw0 = rings.cq.read(base).ok()? as u32;
        self.head = self.head.wrapping_add(1);
        if self.head == depth {
            self.head = 0;
            self.phase = !self.phase;
        }
        Some((tail, dw0))
    }

    fn copy_page(&self, index: u16, data: &mut [u8]) -> Result {
        let rings = self.rings.as_ref().ok_or(ENODEV)?;
        rings
            .pages
            .get(usize::from(index))
            .ok_or(EIO)?
            .copy_to(data)
    }
}

/// What the interrupt of one vector serves.
pub(crate) struct VectorHandler {
    queues: KVec<Arc<Queue>>,
}

impl VectorHandler {
    /// A handler for `queues`.
    pub(super) fn new(queues: KVec<Arc<Queue>>) -> Self {
        Self { queues }
    }
}

impl kernel::irq::Handler for VectorHandler {
    fn handle(&self) -> kernel::irq::IrqReturn {
        for queue in &self.queues {
            queue.reap();
        }
        kernel::irq::IrqReturn::Handled
    }
}

/// Rings the bell of a thread when told of a completion. For submitters that poll their own state.
impl Complete for Kick {
    fn complete(&self, _tag: u64, _result: Result) {
        self.kick();
    }
}
