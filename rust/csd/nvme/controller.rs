// SPDX-License-Identifier: GPL-2.0

//! One NVMe controller: what is known of it and the ways to give it commands.
//!
//! Owns registers, queues, counters and the memory of one drive from probe to unbind, and what was
//! learnt of it for as long as somebody holds a reference. Bring-up, recovery and teardown are in
//! [`super::lifecycle`]; the thread that watches it is in [`super::supervisor`].

use super::{
    admin::{
        self,
        AdminCommand,
        GetLogPage, //
    },
    aen::{
        AsyncEvents,
        ARMED, //
    },
    counters::Counters,
    identify::{
        ControllerInfo,
        Namespace, //
    },
    lifecycle::vector_of,
    log::{
        self,
        SmartHealth, //
    },
    memory::{
        Memory,
        MemoryControl,
        MemoryInfo, //
    },
    queue::{
        Queue,
        VectorHandler, //
    },
    regs::{
        Registers,
        CSTS, //
    },
    slots::Waiter,
    spec::Sqe,
    watch::Watch, //
};
use crate::sys::{
    kthread::Kick,
    pci::Function,
    region::{
        MemoryKind,
        Region, //
    }, //
};
use kernel::{
    device::{
        self,
        Bound, //
    },
    new_mutex,
    new_spinlock,
    pci,
    prelude::*,
    sync::{
        aref::ARef,
        atomic::{
            Acquire,
            Atomic,
            AtomicFlag,
            Relaxed,
            Release, //
        },
        Arc,
        Mutex,
        SpinLock, //
    }, //
};

/// Where a controller is in its life.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub(crate) enum State {
    /// Being brought up for the first time.
    Starting = 0,
    /// Takes commands.
    Ready = 1,
    /// Being reset; commands get `EBUSY`.
    Resetting = 2,
    /// Recovery failed; commands get `EIO`. Unbind and bind to try again.
    Failed = 3,
    /// Unbound or unplugged; commands get `ENODEV`. Final.
    Gone = 4,
}

/// Settings of a controller, from the module's parameters.
#[derive(Clone, Copy)]
pub(crate) struct Settings {
    /// Time that a command may take, and again after it was aborted, in milliseconds.
    pub(crate) command_timeout_ms: u32,
    /// I/O queue pairs asked for.
    pub(crate) io_queues: u16,
    /// Entries of an I/O queue.
    pub(crate) io_depth: u16,
    /// Recognises a PMR that this protocol has formatted before.
    pub(crate) pmr_signature: fn(&Region) -> bool,
}

/// Entries of the admin queue.
const ADMIN_DEPTH: u16 = 16;

/// How long a thread waits for an admin command.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Patience {
    /// As long as a command may take; for the threads that do the recovery themselves.
    Bounded,
    /// Until the supervisor ends it.
    Supervised,
}

/// What storage commands need to know.
pub(super) struct Facts {
    pub(super) info: Option<ControllerInfo>,
    pub(super) namespaces: KVec<Namespace>,
}

/// What only one thread at a time may do to the hardware.
pub(super) struct Control {
    pub(super) memory: MemoryControl,
}

/// One controller. See the module's comment.
#[pin_data]
pub(crate) struct Controller {
    pub(super) dev: ARef<device::Device>,
    pub(super) settings: Settings,
    pub(super) function: Function,
    pub(super) regs: Arc<Registers>,
    pub(super) admin: Arc<Queue>,
    pub(super) io: KVec<Arc<Queue>>,
    pub(super) vectors: u16,
    pub(super) counters: Arc<Counters>,
    pub(super) events: Arc<AsyncEvents>,
    pub(super) watch: Arc<Watch>,
    state: Atomic<u32>,
    /// Set once teardown has begun: recovery gives way.
    pub(super) stopping: AtomicFlag,
    pub(super) max_transfer: Atomic<u32>,
    /// I/O queue pairs that exist in the controller.
    pub(super) live: Atomic<u32>,
    #[pin]
    pub(super) control: Mutex<Control>,
    #[pin]
    pub(super) facts: SpinLock<Facts>,
    #[pin]
    pub(super) memory: Memory,
}

impl Controller {
    /// Maps the registers and allocates the queues; the hardware is only read.
    ///
    /// # Errors
    ///
    /// - `ENODEV` if the device is gone, `EOPNOTSUPP` if it needs pages or queues that this driver
    ///   has not, `EBUSY` or `ENOMEM` for resources.
    pub(crate) fn new(
        pdev: &pci::Device<Bound>,
        settings: Settings,
        vectors: usize,
        kick: Arc<Kick>,
    ) -> Result<Arc<Self>> {
        let dev: &device::Device<Bound> = pdev.as_ref();
        let regs = Arc::new(Registers::new(pdev)?, GFP_KERNEL)?;
        let cap = regs.cap();
        if cap.mpsmin().get() != 0 {
            dev_err!(dev, "needs memory pages larger than 4 KiB\n");
            return Err(EOPNOTSUPP);
        }
        if cap.css().get() & 0x41 == 0 {
            dev_err!(
                dev,
                "has no NVM command set (CAP.CSS {:#x})\n",
                cap.css().get()
            );
            return Err(EOPNOTSUPP);
        }
        let pairs = settings.io_queues;
        if !regs.has_doorbells(pairs) {
            dev_err!(dev, "doorbells of {} queues lie outside BAR 0\n", pairs);
            return Err(EINVAL);
        }
        let largest = u16::try_from(cap.mqes().get())
            .unwrap_or(u16::MAX)
            .saturating_add(1);
        if largest < 2 {
            dev_err!(
                dev,
                "its queues are too short (CAP.MQES {})\n",
                cap.mqes().get()
            );
            return Err(EOPNOTSUPP);
        }
        let depth = settings.io_depth.min(largest);
        let counters = Arc::new(Counters::new(), GFP_KERNEL)?;
        let watch = Arc::new(Watch::new(kick.clone()), GFP_KERNEL)?;
        let admin = Queue::new(dev, &regs, &counters, &watch, 0, ADMIN_DEPTH)?;
        let mut io = KVec::with_capacity(pairs.into(), GFP_KERNEL)?;
        for qid in 1..=pairs {
            let queue = Queue::new(dev, &regs, &counters, &watch, qid, depth)?;
            io.push(queue, GFP_KERNEL)?;
        }
        let events = AsyncEvents::new(kick)?;
        Arc::pin_init(
            pin_init!(Self {
                dev: dev.into(),
                settings,
                function: Function::new(pdev),
                regs,
                admin,
                io,
                vectors: vectors.min(64) as u16,
                counters,
                events,
                watch,
                state: Atomic::new(State::Starting as u32),
                stopping: AtomicFlag::new(false),
                max_transfer: Atomic::new(0),
                live: Atomic::new(0),
                control <- new_mutex!(Control {
                    memory: MemoryControl::new(),
                }, "csd::Control"),
                facts <- new_spinlock!(Facts {
                    info: None,
                    namespaces: KVec::new(),
                }, "csd::Facts"),
                memory <- Memory::new(settings.pmr_signature),
            }),
            GFP_KERNEL,
        )
    }

    /// The state. Another thread may change it at any time.
    pub(crate) fn state(&self) -> State {
        match self.state.load(Acquire) {
            0 => State::Starting,
            1 => State::Ready,
            2 => State::Resetting,
            3 => State::Failed,
            _ => State::Gone,
        }
    }

    /// Changes the state unless the controller is gone; returns whether it did.
    pub(super) fn set_state(&self, state: State) -> bool {
        // Both writers, recovery and teardown, hold the control lock, so this cannot race.
        if self.state() == State::Gone {
            return false;
        }
        self.state.store(state as u32, Release);
        true
    }

    /// Whether commands may be sent by others than recovery.
    ///
    /// # Errors
    ///
    /// - `EBUSY` while starting or resetting, `EIO` after recovery failed, `ENODEV` if gone.
    pub(super) fn check_ready(&self) -> Result {
        match self.state() {
            State::Ready => Ok(()),
            State::Starting | State::Resetting => Err(EBUSY),
            State::Failed => Err(EIO),
            State::Gone => Err(ENODEV),
        }
    }

    /// Reads CSTS and makes sure that it is the device which answered.
    ///
    /// # Errors
    ///
    /// - `ENODEV` if the device is gone.
    pub(super) fn status(&self) -> Result<CSTS> {
        let csts = self.regs.csts()?;
        // All ones is what most platforms answer for a device that is gone, but some give zeros,
        // which look like a controller that is not ready.
        if !csts.rdy() && !self.function.is_present() {
            return Err(ENODEV);
        }
        Ok(csts)
    }

    /// Like [`Self::status`], for waits that give way to teardown.
    ///
    /// # Errors
    ///
    /// - `ENODEV` if the device is gone, `ECANCELED` if teardown waits for a reset to end.
    pub(super) fn worth_waiting(&self) -> Result<CSTS> {
        if self.stopping.load(Acquire) && self.state() == State::Resetting {
            return Err(ECANCELED);
        }
        self.status()
    }

    /// Runs an admin command and returns its reply. Sleeps.
    ///
    /// # Errors
    ///
    /// - Those of [`super::spec::Status::to_result`]; `ETIMEDOUT`, `ECONNRESET` or `ENODEV` if there
    ///   was no completion; `EAGAIN` if the queue is full; `EPROTO` for an impossible reply.
    pub(super) fn admin<C: AdminCommand>(
        &self,
        command: &C,
        patience: Patience,
    ) -> Result<C::Reply> {
        let slot = self.admin.submit(Waiter::Thread, |page, put| {
            let mut sqe = Sqe::new(C::OPCODE);
            if C::REPLY_BYTES > 0 {
                // A reply that the controller does not write must not be an earlier one.
                for word in 0..C::REPLY_BYTES.div_ceil(8) {
                    put(word, 0)?;
                }
                sqe.prp1 = page.into();
            }
            command.encode(&mut sqe);
            Ok(sqe)
        })?;
        let mut data = KVec::from_elem(0u8, C::REPLY_BYTES, GFP_KERNEL);
        let limit = match patience {
            Patience::Bounded => Some(self.settings.command_timeout_ms),
            Patience::Supervised => None,
        };
        let buffer: &mut [u8] = match &mut data {
            Ok(data) => data,
            Err(_) => &mut [],
        };
        let outcome = self
            .admin
            .wait(slot, limit, buffer, &|| self.worth_waiting().map(|_| ()))?;
        outcome.result?.to_result()?;
        command.reply(outcome.dw0, &data?)
    }

    /// Sends Asynchronous Event Requests until as many are armed as the controller allows. A
    /// controller that rejects them is asked again at the next call, not at once.
    pub(super) fn arm_events(&self) {
        let limit = self
            .facts
            .lock()
            .info
            .map_or(0, |info| info.async_event_limit);
        for _ in 0..ARMED {
            if !self.events.arm(limit) {
                return;
            }
            let waiter = Waiter::Event(self.events.clone());
            if self
                .admin
                .submit(waiter, |_, _| Ok(Sqe::new(admin::ASYNC_EVENT_REQUEST)))
                .is_err()
            {
                self.events.disarm();
                return;
            }
        }
    }

    /// Most bytes of one storage command.
    pub(crate) fn max_transfer(&self) -> u32 {
        self.max_transfer.load(Relaxed)
    }

    /// A namespace that can be used.
    ///
    /// # Errors
    ///
    /// - `ENOENT` if it is not active, `EOPNOTSUPP` if it is refused.
    pub(crate) fn namespace(&self, nsid: u32) -> Result<Namespace> {
        let facts = self.facts.lock();
        let namespace = facts
            .namespaces
            .iter()
            .find(|n| n.nsid == nsid)
            .ok_or(ENOENT)?;
        if namespace.refused.is_some() {
            return Err(EOPNOTSUPP);
        }
        Ok(*namespace)
    }

    /// All active namespaces, refused ones included.
    ///
    /// # Errors
    ///
    /// - `ENOMEM`.
    pub(crate) fn namespaces(&self) -> Result<KVec<Namespace>> {
        let mut copy = KVec::with_capacity(super::lifecycle::NAMESPACES, GFP_KERNEL)?;
        for namespace in self.facts.lock().namespaces.iter() {
            copy.push_within_capacity(*namespace).map_err(|_| ENOMEM)?;
        }
        Ok(copy)
    }

    /// What the controller said of itself; `None` before it was asked.
    pub(crate) fn with_info<R>(&self, f: impl FnOnce(Option<&ControllerInfo>) -> R) -> R {
        f(self.facts.lock().info.as_ref())
    }

    /// The memory of one kind, if it can be used.
    pub(crate) fn region(&self, kind: MemoryKind) -> Option<Region> {
        self.memory.region(kind)
    }

    /// What is known of one kind of memory.
    pub(crate) fn memory_info(&self, kind: MemoryKind) -> MemoryInfo {
        self.memory.info(kind)
    }

    /// Enables the PMR for use (its contents are nobody's any more), or stops using it. Sleeps.
    ///
    /// # Errors
    ///
    /// - Those of [`Memory::use_pmr`]; `EBUSY` or `EIO` in a state that takes no commands.
    pub(crate) fn use_pmr(&self, consent: bool) -> Result {
        let control = self.control.lock();
        self.check_ready()?;
        if consent {
            self.memory
                .use_pmr(&control.memory, &self.regs, &self.dev, true)
        } else {
            self.memory.drop_pmr(&control.memory, &self.regs);
            Ok(())
        }
    }

    /// Reads the SMART log page. Sleeps.
    ///
    /// # Errors
    ///
    /// - Those of an admin command.
    pub(crate) fn smart(&self) -> Result<SmartHealth> {
        self.check_ready()?;
        self.admin(
            &GetLogPage::<{ log::SMART_BYTES }, _> {
                lid: log::SMART,
                parse: SmartHealth::parse,
            },
            Patience::Supervised,
        )
    }

    /// What the interrupt handler of `vector` serves.
    ///
    /// # Errors
    ///
    /// - `ENOMEM`.
    pub(crate) fn vector_handler(&self, vector: usize) -> Result<VectorHandler> {
        let mut queues = KVec::new();
        for queue in Iterator::chain(core::iter::once(&self.admin), &self.io) {
            if usize::from(vector_of(queue.id(), self.vectors)) == vector {
                queues.push(queue.clone(), GFP_KERNEL)?;
            }
        }
        Ok(VectorHandler::new(queues))
    }

    /// The counters.
    pub(crate) fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The device, for messages.
    pub(crate) fn device(&self) -> &device::Device {
        &self.dev
    }
}
