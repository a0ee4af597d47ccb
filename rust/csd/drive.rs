// SPDX-License-Identifier: GPL-2.0

//! Drives: NVMe controllers with a number, and the registry of those that are bound.
//!
//! This is the face of the NVMe layer for everything above it (meshes, proxies, the char device).
//! Owns numbering, the registry and the one [`Observer`]; hardware is [`crate::nvme`]'s.
//!
//! # Life of a drive
//!
//! A [`Drive`] is always behind an [`Arc`] and outlives its binding: an open file may keep it for as
//! long as it likes. Once unbound, its state is [`State::Gone`], every command gives `ENODEV`, and
//! every access to its memory through a [`Region`] does too. Its counters and what it said of itself
//! stay readable.
//!
//! An observer hears of a drive in this order: [`Observer::bound`], any number of
//! [`Observer::event`], [`Observer::removing`] (commands and memory still work unless the drive was
//! pulled out; everything that uses the drive must end here). A drive that vanishes reports
//! [`State::Gone`] first if that is noticed before the PCI core unbinds it.
//!
//! # Locks
//!
//! The registry's lock is taken before any lock of the NVMe layer and is never held while an observer
//! is called.

use crate::nvme::{
    controller::Controller,
    counters::CountersSnapshot,
    identify::Text,
    supervisor::Notice, //
};
use crate::sys::{
    global,
    ratelimit::RateLimit,
    region::Region, //
};
use kernel::{
    device,
    fmt,
    prelude::*,
    sync::Arc, //
};

pub(crate) use crate::nvme::{
    controller::State,
    identify::{
        ControllerInfo,
        Namespace, //
    },
    log::SmartHealth,
    memory::MemoryInfo,
    queue::Complete,
    storage::{
        StorageOp,
        StorageRequest, //
    }, //
};
pub(crate) use crate::sys::region::MemoryKind;

/// Whether a PMR carries this protocol's signature, so that it may be used without being asked for.
///
/// Called with the PMR mapped and not yet published; it must only read.
pub(crate) const PMR_SIGNATURE: fn(&Region) -> bool = crate::mesh::signed;

/// Something that happened to a drive.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum DriveEvent {
    /// It entered this state.
    State(State),
    /// It sent a real asynchronous event; its log page was read.
    Async {
        /// Type: 0 error, 1 SMART or health, 2 notice, 6 I/O command set, 7 vendor specific.
        kind: u8,
        /// Information, whose meaning depends on the type.
        info: u8,
        /// The log page that tells more; 0 if none.
        log_page: u8,
        /// The critical warnings in the SMART page, for events of type 1.
        critical_warning: u8,
    },
    /// Its list of namespaces was read again.
    NamespacesChanged,
}

/// Hears of drives coming, going and reporting. Process context; may sleep; no lock is held.
pub(crate) trait Observer: Send + Sync {
    /// The drive is ready. With an error it is not bound after all.
    fn bound(&self, drive: &Arc<Drive>) -> Result;
    /// The drive is about to go.
    fn removing(&self, drive: &Arc<Drive>);
    /// Something happened.
    fn event(&self, drive: &Arc<Drive>, event: &DriveEvent);
}

/// A drive. See the module's comment.
pub(crate) struct Drive {
    index: u32,
    address: Text<16>,
    controller: Arc<Controller>,
    limit: RateLimit,
}

impl Drive {
    /// Gives a controller the lowest free number.
    ///
    /// # Errors
    ///
    /// - `ENOSPC` with 64 drives bound; `ENOMEM`.
    pub(crate) fn new(controller: Arc<Controller>) -> Result<Arc<Self>> {
        let address = Text::new(controller.device().name().to_bytes());
        let index = global::with_registry(Registry::take_number).ok_or(ENOSPC)?;
        Arc::new(
            Self {
                index,
                address,
                controller,
                limit: RateLimit::new(),
            },
            GFP_KERNEL,
        )
        .map_err(|error| {
            global::with_registry(|registry| registry.give_number(index));
            error.into()
        })
    }

    /// N of csdN.
    pub(crate) fn index(&self) -> u32 {
        self.index
    }

    /// Domain, bus, device and function, as in `0000:03:00.0`.
    pub(crate) fn pci_address(&self) -> &str {
        self.address.as_str()
    }

    /// The device, for messages and as a parent of others.
    pub(crate) fn device(&self) -> &device::Device {
        self.controller.device()
    }

    /// The state at this moment.
    pub(crate) fn state(&self) -> State {
        self.controller.state()
    }

    /// What the drive said of itself. `f` runs under a spinlock.
    pub(crate) fn with_info<R>(&self, f: impl FnOnce(Option<&ControllerInfo>) -> R) -> R {
        self.controller.with_info(f)
    }

    /// Active namespaces, those that cannot be used included.
    ///
    /// # Errors
    ///
    /// - `ENOMEM`.
    pub(crate) fn namespaces(&self) -> Result<KVec<Namespace>> {
        self.controller.namespaces()
    }

    /// A namespace that can be used.
    ///
    /// # Errors
    ///
    /// - `ENOENT` if it is not active, `EOPNOTSUPP` if it cannot be used.
    pub(crate) fn namespace(&self, nsid: u32) -> Result<Namespace> {
        self.controller.namespace(nsid)
    }

    /// The drive's memory of one kind; `None` if there is none, or none that may be used.
    pub(crate) fn region(&self, kind: MemoryKind) -> Option<Region> {
        self.controller.region(kind)
    }

    /// What is known of the drive's memory of one kind.
    pub(crate) fn memory_info(&self, kind: MemoryKind) -> MemoryInfo {
        self.controller.memory_info(kind)
    }

    /// Takes the PMR into use, whose contents are nobody's any more, or stops using it. Sleeps.
    ///
    /// The caller knows whether anything lies in it; regions handed out give `ENODEV` afterwards.
    ///
    /// # Errors
    ///
    /// - `ENODEV` no PMR, or the drive is gone; `ETIMEDOUT` it does not become ready; `EIO` it is not
    ///   healthy; `EBUSY` the drive is being reset.
    pub(crate) fn use_pmr(&self, consent: bool) -> Result {
        self.controller.use_pmr(consent).inspect_err(|error| {
            if self.limit.allow() {
                dev_warn!(
                    self.device(),
                    "csd{}: PMR not changed: {:?}\n",
                    self.index,
                    error
                );
            }
        })
    }

    /// Most bytes that one [`StorageRequest`] may move.
    pub(crate) fn max_transfer(&self) -> u32 {
        self.controller.max_transfer()
    }

    /// Submits a storage command. Never sleeps; may be completed before this returns.
    ///
    /// # Errors
    ///
    /// Those of the controller's method of the same name; `request.done` is then not called.
    pub(crate) fn submit(&self, request: StorageRequest) -> Result {
        self.controller.submit(request)
    }

    /// Reads the SMART log page. Sleeps.
    ///
    /// # Errors
    ///
    /// - Those of an admin command.
    pub(crate) fn smart(&self) -> Result<SmartHealth> {
        self.controller.smart()
    }

    /// The counters.
    pub(crate) fn counters(&self) -> CountersSnapshot {
        self.controller.counters().snapshot()
    }

    /// Puts the drive into the registry and tells the observer.
    ///
    /// # Errors
    ///
    /// - `ENOMEM`: nobody knows the drive then.
    pub(crate) fn announce(self: &Arc<Self>) -> Result {
        global::with_registry(|registry| registry.insert(self.clone()))?;
        observer()
            .map_or(Ok(()), |observer| observer.bound(self))
            .inspect_err(|_| {
                global::with_registry(|registry| registry.remove(self.index));
            })
    }

    /// Takes the drive out of the registry and tells the observer.
    pub(crate) fn withdraw(self: &Arc<Self>) {
        let found = global::with_registry(|registry| registry.remove(self.index));
        if found.is_some() {
            if let Some(observer) = observer() {
                observer.removing(self);
            }
        }
    }

    /// Passes on what the supervisor reports.
    pub(crate) fn notice(self: &Arc<Self>, notice: Notice) {
        let event = match notice {
            Notice::State(state) => DriveEvent::State(state),
            Notice::Event {
                event,
                critical_warning,
            } => DriveEvent::Async {
                kind: event.kind,
                info: event.info,
                log_page: event.log_page,
                critical_warning,
            },
            Notice::Namespaces => DriveEvent::NamespacesChanged,
        };
        if let Some(observer) = observer() {
            observer.event(self, &event);
        }
    }
}

impl fmt::Display for Drive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "csd{}", self.index)
    }
}

/// Bound drives and who hears of them.
pub(crate) struct Registry {
    drives: KVec<Arc<Drive>>,
    /// Numbers in use, one bit each; a number is freed only when its drive was torn down.
    numbers: u64,
    observer: Option<Arc<dyn Observer>>,
}

impl Registry {
    pub(crate) const fn new() -> Self {
        Self {
            drives: KVec::new(),
            numbers: 0,
            observer: None,
        }
    }

    fn take_number(&mut self) -> Option<u32> {
        let number = self.numbers.trailing_ones();
        self.numbers |= 1u64.checked_shl(number)?;
        Some(number)
    }

    fn give_number(&mut self, number: u32) {
        self.numbers &= !1u64.checked_shl(number).unwrap_or(0);
    }

    fn insert(&mut self, drive: Arc<Drive>) -> Result {
        self.drives.reserve(1, GFP_KERNEL)?;
        let at = self
            .drives
            .iter()
            .take_while(|other| other.index < drive.index)
            .count();
        self.drives
            .insert_within_capacity(at, drive)
            .map_err(|_| ENOMEM)
    }

    fn remove(&mut self, index: u32) -> Option<Arc<Drive>> {
        let at = self.drives.iter().position(|drive| drive.index == index)?;
        let drive = self.drives.remove(at).ok();
        if self.drives.is_empty() {
            // Nobody drops a static: its memory would stay behind when the module goes.
            self.drives = KVec::new();
        }
        drive
    }
}

/// Frees the number of a drive that was torn down.
pub(crate) fn retire(drive: &Drive) {
    global::with_registry(|registry| registry.give_number(drive.index));
}

fn observer() -> Option<Arc<dyn Observer>> {
    global::with_registry(|registry| registry.observer.clone())
}

/// Chooses who hears of drives. To be set before the driver is registered and cleared after it was
/// unregistered.
pub(crate) fn set_observer(observer: Option<Arc<dyn Observer>>) {
    let old =
        global::with_registry(|registry| core::mem::replace(&mut registry.observer, observer));
    drop(old);
}
