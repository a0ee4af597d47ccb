// SPDX-License-Identifier: GPL-2.0

//! The module's state: bound drives, meshes, pipelines, events.
//!
//! Owns the lists and what the drive layer reports. Never lives in a global: the device node, the
//! drive layer's observer and every open file hold a reference.

use super::{
    slot::Slot,
    Mesh, //
};
use crate::{
    drive::{
        Drive,
        DriveEvent,
        Observer,
        State, //
    },
    events::{
        Event,
        Events, //
    },
    pipeline::History,
    uapi, //
};
use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc,
        Mutex, //
    }, //
};

/// Meshes at once; `csd_info.meshes` has a bit for each.
const MAX_MESHES: usize = 64;

/// The module's state.
#[pin_data]
pub(crate) struct Registry {
    pub(crate) events: Arc<Events>,
    /// Serialises what changes the lists and takes long.
    #[pin]
    pub(super) changing: Mutex<()>,
    /// By number.
    #[pin]
    slots: Mutex<KVec<Arc<Slot>>>,
    /// By number.
    #[pin]
    meshes: Mutex<KVec<Option<Arc<Mesh>>>>,
    #[pin]
    pub(crate) history: History,
    /// The newest epoch that any mesh had.
    pub(super) last_epoch: Atomic<u32>,
}

impl Registry {
    /// The state of a module that was just loaded.
    ///
    /// # Errors
    ///
    /// - ENOMEM.
    pub(crate) fn new() -> Result<Arc<Self>> {
        let events = Events::new()?;
        Arc::pin_init(
            pin_init!(Self {
                events,
                changing <- new_mutex!((), "csd_changing"),
                slots <- new_mutex!(KVec::new(), "csd_slots"),
                meshes <- new_mutex!(KVec::new(), "csd_meshes"),
                history <- History::new(),
                last_epoch: Atomic::new(0),
            }),
            GFP_KERNEL,
        )
    }

    /// The bound drive `index`.
    ///
    /// # Errors
    ///
    /// - ENXIO if there is none.
    pub(crate) fn slot(&self, index: u32) -> Result<Arc<Slot>> {
        let slots = self.slots.lock();
        slots
            .iter()
            .find(|slot| slot.drive.index() == index)
            .cloned()
            .ok_or(ENXIO)
    }

    /// All bound drives, by number.
    ///
    /// # Errors
    ///
    /// - ENOMEM.
    pub(crate) fn slots(&self) -> Result<KVec<Arc<Slot>>> {
        let slots = self.slots.lock();
        let mut copy = KVec::with_capacity(slots.len(), GFP_KERNEL)?;
        for slot in slots.iter() {
            copy.push(slot.clone(), GFP_KERNEL)?;
        }
        Ok(copy)
    }

    /// The mesh `number`.
    ///
    /// # Errors
    ///
    /// - ENXIO if there is none.
    pub(crate) fn mesh(&self, number: u32) -> Result<Arc<Mesh>> {
        let meshes = self.meshes.lock();
        let index = usize::try_from(number)?;
        meshes
            .get(index)
            .and_then(Option::as_ref)
            .cloned()
            .ok_or(ENXIO)
    }

    /// Bit N: mesh N exists.
    pub(crate) fn mesh_bits(&self) -> u64 {
        let meshes = self.meshes.lock();
        meshes
            .iter()
            .enumerate()
            .filter(|(_, mesh)| mesh.is_some())
            .filter_map(|(number, _)| 1u64.checked_shl(number as u32))
            .fold(0, |bits, bit| bits | bit)
    }

    /// A number for a new mesh, with room for it in the list. `changing` is held.
    ///
    /// # Errors
    ///
    /// - EMFILE if there are too many, ENOMEM.
    pub(super) fn free_number(&self) -> Result<u32> {
        let mut meshes = self.meshes.lock();
        if let Some(number) = meshes.iter().position(Option::is_none) {
            return Ok(number as u32);
        }
        if meshes.len() >= MAX_MESHES {
            return Err(EMFILE);
        }
        let number = meshes.len() as u32;
        meshes.push(None, GFP_KERNEL)?;
        Ok(number)
    }

    /// Puts a mesh into the list or takes it out. `changing` is held.
    pub(super) fn set_mesh(&self, number: u32, mesh: Option<Arc<Mesh>>) {
        let mut meshes = self.meshes.lock();
        let old = match meshes.get_mut(number as usize) {
            Some(place) => core::mem::replace(place, mesh),
            None => None,
        };
        drop(meshes);
        drop(old);
    }

    /// Every mesh there is.
    fn each_mesh(&self, mut f: impl FnMut(&Arc<Mesh>)) {
        for number in 0..MAX_MESHES as u32 {
            if let Ok(mesh) = self.mesh(number) {
                f(&mesh);
            }
        }
    }

    /// The drive cannot take part any more.
    fn lose(&self, drive: &Arc<Drive>) {
        let _changing = self.changing.lock();
        self.each_mesh(|mesh| {
            for member in mesh.members.iter() {
                if Arc::ptr_eq(&member.slot.drive, drive) {
                    mesh.lose(member);
                }
            }
        });
    }

    /// Ends all meshes: the module goes.
    pub(crate) fn shut_down(&self) {
        let _changing = self.changing.lock();
        self.each_mesh(|mesh| {
            mesh.book.cancel_all(mesh);
            mesh.reap();
            mesh.dissolve();
            self.set_mesh(mesh.number, None);
        });
        self.events.announce_on(None);
    }

    /// Posts an event.
    pub(crate) fn post(&self, event: Event) {
        self.events.post(event);
    }
}

impl Observer for Registry {
    fn bound(&self, drive: &Arc<Drive>) -> Result {
        let slot = Slot::new(drive.clone())?;
        {
            let mut slots = self.slots.lock();
            slots.reserve(1, GFP_KERNEL)?;
            let before = slots
                .iter()
                .take_while(|other| other.drive.index() < drive.index())
                .count();
            slots
                .insert_within_capacity(before, slot)
                .map_err(|_| ENOMEM)?;
        }
        self.post(Event::new(uapi::CSD_EVENT_DRIVE_BOUND).drive(drive.index()));
        Ok(())
    }

    fn removing(&self, drive: &Arc<Drive>) {
        let mut gone = None;
        {
            let mut slots = self.slots.lock();
            if let Some(position) = slots
                .iter()
                .position(|slot| Arc::ptr_eq(&slot.drive, drive))
            {
                gone = slots.remove(position).ok();
            }
        }
        if let Some(slot) = &gone {
            slot.retire();
        }
        self.lose(drive);
        if gone.is_some() {
            self.post(Event::new(uapi::CSD_EVENT_DRIVE_GONE).drive(drive.index()));
        }
    }

    fn event(&self, drive: &Arc<Drive>, event: &DriveEvent) {
        let about = |kind| Event::new(kind).drive(drive.index());
        match event {
            DriveEvent::State(State::Ready) => self.post(about(uapi::CSD_EVENT_DRIVE_RESET)),
            DriveEvent::State(State::Failed) => {
                let errno = EIO.to_errno().unsigned_abs();
                self.post(
                    about(uapi::CSD_EVENT_DRIVE_RESET)
                        .status(errno)
                        .detail(u64::from(errno)),
                );
                self.lose(drive);
            }
            DriveEvent::State(_) | DriveEvent::NamespacesChanged => {}
            DriveEvent::Async {
                kind,
                info,
                log_page,
                critical_warning,
            } => {
                // Type 1: the log page that was read is the SMART page.
                if *kind == 1 {
                    if let Ok(slot) = self.slot(drive.index()) {
                        slot.critical_warning
                            .store(u32::from(*critical_warning), Relaxed);
                    }
                }
                let dword =
                    u64::from(*kind & 7) | u64::from(*info) << 8 | u64::from(*log_page) << 16;
                self.post(about(uapi::CSD_EVENT_AEN).detail(dword));
            }
        }
    }
}
