// SPDX-License-Identifier: GPL-2.0

//! The event queue: what drives announced and what the module found out, numbered, bounded.
//!
//! Owns the queue, the place of every reader in it and the uevents. A reader that falls behind
//! loses the oldest events and is told how many. Never waits for a reader, and never decides what
//! an event means.
//!
//! May be called from any process context, with any of the module's other locks held: the queue's
//! lock is the innermost sleeping one (`mesh/mod.rs` has the order). Uevents go out after it is
//! dropped.

mod name;

use crate::{
    sys::{
        self,
        chardev,
        ratelimit::RateLimit,
        time::realtime_ns, //
    },
    uapi::{
        self,
        csd_event, //
    },
};
use kernel::{
    device::Device,
    fs::File,
    new_mutex,
    new_poll_condvar,
    prelude::*,
    str::CString,
    sync::{
        aref::ARef,
        poll::{
            PollCondVar,
            PollTable, //
        },
        Arc,
        Mutex, //
    },
    uaccess::UserSliceWriter, //
};
use zerocopy::{
    FromZeros,
    IntoBytes, //
};

/// Events kept for readers; 48 KiB.
const CAPACITY: usize = 1024;
const _: () = assert!(CAPACITY.is_power_of_two());
const EVENT_BYTES: usize = size_of::<csd_event>();

/// What happened. Built with [`Event::new`] and the `with_` methods.
#[derive(Clone, Copy)]
pub(crate) struct Event {
    kind: u32,
    drive: u32,
    mesh: u32,
    peer: u32,
    status: u32,
    detail: u64,
}

impl Event {
    /// An event of `kind` (`CSD_EVENT_*`) about nothing in particular.
    pub(crate) fn new(kind: u32) -> Self {
        Self {
            kind,
            drive: uapi::CSD_MEMBER_HOST,
            mesh: uapi::CSD_MESH_NONE,
            peer: uapi::CSD_MEMBER_HOST,
            status: 0,
            detail: 0,
        }
    }

    /// The drive it is about.
    pub(crate) fn drive(self, drive: u32) -> Self {
        Self { drive, ..self }
    }

    /// The mesh it is about.
    pub(crate) fn mesh(self, mesh: u32) -> Self {
        Self { mesh, ..self }
    }

    /// The other drive concerned.
    pub(crate) fn peer(self, peer: u32) -> Self {
        Self { peer, ..self }
    }

    /// A positive errno.
    pub(crate) fn status(self, status: u32) -> Self {
        Self { status, ..self }
    }

    /// The type's own detail.
    pub(crate) fn detail(self, detail: u64) -> Self {
        Self { detail, ..self }
    }
}

/// The last `CAPACITY` events.
struct Queue {
    /// Event number `n` is at `n % CAPACITY`.
    ring: KVVec<csd_event>,
    /// The number that the next event gets; the first is 1.
    next: u64,
}

impl Queue {
    /// Number of the oldest event still there.
    fn oldest(&self) -> u64 {
        self.next.saturating_sub(CAPACITY as u64).max(1)
    }

    fn slot(number: u64) -> usize {
        // A power of two, so that the slots follow on where the numbers wrap.
        (number & (CAPACITY as u64).wrapping_sub(1)) as usize
    }

    /// The event that a reader at `cursor` sees next, and its cursor after it.
    fn after(&self, cursor: u64) -> Option<(csd_event, u64)> {
        let oldest = self.oldest();
        if cursor < oldest {
            let mut event = csd_event::new_zeroed();
            event.size = EVENT_BYTES as u32;
            event.type_ = uapi::CSD_EVENT_OVERFLOW;
            event.number = oldest.saturating_sub(1);
            event.time_ns = realtime_ns();
            event.drive = uapi::CSD_MEMBER_HOST;
            event.mesh = uapi::CSD_MESH_NONE;
            event.peer = uapi::CSD_MEMBER_HOST;
            event.detail = oldest.saturating_sub(cursor);
            return Some((event, oldest));
        }
        if cursor >= self.next {
            return None;
        }
        let event = self.ring.get(Self::slot(cursor))?;
        Some((*event, cursor.saturating_add(1)))
    }
}

/// The queue of this module.
#[pin_data]
pub(crate) struct Events {
    #[pin]
    queue: Mutex<Queue>,
    #[pin]
    readable: PollCondVar,
    /// The device whose uevents these are, while it is registered.
    #[pin]
    device: Mutex<Option<ARef<Device>>>,
    complaints: RateLimit,
}

impl Events {
    /// An empty queue.
    ///
    /// # Errors
    ///
    /// - ENOMEM.
    pub(crate) fn new() -> Result<Arc<Self>> {
        let mut ring = KVVec::with_capacity(CAPACITY, GFP_KERNEL)?;
        ring.extend_with(CAPACITY, csd_event::new_zeroed(), GFP_KERNEL)?;
        Arc::pin_init(
            pin_init!(Self {
                queue <- new_mutex!(Queue { ring, next: 1 }, "csd_events"),
                readable <- new_poll_condvar!("csd_events"),
                device <- new_mutex!(None, "csd_events_device"),
                complaints: RateLimit::new(),
            }),
            GFP_KERNEL,
        )
    }

    /// From now on events are uevents of `device` too; `None` before it is unregistered.
    pub(crate) fn announce_on(&self, device: Option<ARef<Device>>) {
        let old = core::mem::replace(&mut *self.device.lock(), device);
        drop(old);
    }

    /// Puts an event into the queue and sends its uevent.
    pub(crate) fn post(&self, event: Event) {
        let time_ns = realtime_ns();
        let number = {
            let mut queue = self.queue.lock();
            let number = queue.next;
            queue.next = number.wrapping_add(1);
            if let Some(slot) = queue.ring.get_mut(Queue::slot(number)) {
                slot.size = EVENT_BYTES as u32;
                slot.type_ = event.kind;
                slot.number = number;
                slot.time_ns = time_ns;
                slot.drive = event.drive;
                slot.mesh = event.mesh;
                slot.peer = event.peer;
                slot.status = event.status;
                slot.detail = event.detail;
            }
            number
        };
        self.readable.notify_all();

        let device = self.device.lock().clone();
        if let Some(device) = device {
            // A lost uevent is no reason to fail: the queue has the event.
            if let Err(error) = uevent(&device, number, &event) {
                if self.complaints.allow() {
                    pr_warn!(
                        "uevent of event {} not sent: error {}\n",
                        number,
                        error.to_errno()
                    );
                }
            }
        }
    }

    /// A reader that sees what happens from now on.
    pub(crate) fn reader(self: &Arc<Self>) -> Result<Pin<KBox<Reader>>> {
        let cursor = self.queue.lock().next;
        KBox::pin_init(
            pin_init!(Reader {
                events: self.clone(),
                cursor <- new_mutex!(cursor, "csd_events_cursor"),
            }),
            GFP_KERNEL,
        )
    }
}

/// Sends `event` as a uevent: `CSD_EVENT=name` and what else applies.
fn uevent(device: &Device, number: u64, event: &Event) -> Result {
    let mut variables: KVec<CString> = KVec::with_capacity(8, GFP_KERNEL)?;
    let mut add = |variable: Result<CString>| -> Result {
        variables.push(variable?, GFP_KERNEL)?;
        Ok(())
    };
    add(CString::try_from_fmt(fmt!(
        "CSD_EVENT={}",
        name::of(event.kind)
    )))?;
    add(CString::try_from_fmt(fmt!("CSD_NUMBER={number}")))?;
    if event.drive != uapi::CSD_MEMBER_HOST {
        add(CString::try_from_fmt(fmt!("CSD_DRIVE=csd{}", event.drive)))?;
    }
    if event.mesh != uapi::CSD_MESH_NONE {
        add(CString::try_from_fmt(fmt!("CSD_MESH={}", event.mesh)))?;
    }
    if event.peer != uapi::CSD_MEMBER_HOST {
        add(CString::try_from_fmt(fmt!("CSD_PEER=csd{}", event.peer)))?;
    }
    add(CString::try_from_fmt(fmt!("CSD_STATUS={}", event.status)))?;
    add(CString::try_from_fmt(fmt!("CSD_DETAIL={}", event.detail)))?;
    sys::device::send_change(device, &variables)
}

/// One open file's place in the queue.
#[pin_data]
pub(crate) struct Reader {
    events: Arc<Events>,
    /// Number of the next event to be read. Held while reading, so that two readers of one file
    /// never get the same event.
    #[pin]
    cursor: Mutex<u64>,
}

impl Reader {
    /// Reads whole events into `out`; waits for the first unless `nonblock`.
    ///
    /// # Errors
    ///
    /// - EINVAL if not even one fits, EAGAIN if there is none and `nonblock`, ERESTARTSYS,
    /// - EFAULT (the event then stays).
    pub(crate) fn read(&self, out: &mut UserSliceWriter, nonblock: bool) -> Result<usize> {
        if out.len() < EVENT_BYTES {
            return Err(EINVAL);
        }
        let mut copied = 0usize;
        while out.len() >= EVENT_BYTES {
            let cursor = *self.cursor.lock();
            let Some((event, next)) = self.next(cursor, nonblock || copied > 0)? else {
                break;
            };
            // Another reader of this file may have been faster; then look again.
            {
                let mut place = self.cursor.lock();
                if *place != cursor {
                    continue;
                }
                *place = next;
            }
            if let Err(error) = out.write_slice(event.as_bytes()) {
                if copied == 0 {
                    self.put_back(cursor, next);
                    return Err(error);
                }
                self.put_back(cursor, next);
                break;
            }
            copied = copied.saturating_add(EVENT_BYTES);
        }
        if copied == 0 {
            return Err(EAGAIN);
        }
        Ok(copied)
    }

    /// An event that could not be delivered is the next one again, unless somebody went on.
    fn put_back(&self, cursor: u64, next: u64) {
        let mut place = self.cursor.lock();
        if *place == next {
            *place = cursor;
        }
    }

    /// The event at `cursor`; waits for it unless `nonblock`, `None` if there is none.
    fn next(&self, cursor: u64, nonblock: bool) -> Result<Option<(csd_event, u64)>> {
        let mut queue = self.events.queue.lock();
        loop {
            if let Some(found) = queue.after(cursor) {
                return Ok(Some(found));
            }
            if nonblock {
                return Ok(None);
            }
            if self.events.readable.wait_interruptible(&mut queue) {
                return Err(ERESTARTSYS);
            }
        }
    }

    /// Registers with `table`; [`chardev::READABLE`] if there is an event.
    pub(crate) fn poll(&self, file: &File, table: &PollTable<'_>) -> u32 {
        table.register_wait(file, &self.events.readable);
        let cursor = *self.cursor.lock();
        if cursor < self.events.queue.lock().next {
            chardev::READABLE
        } else {
            0
        }
    }
}
