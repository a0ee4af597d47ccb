// SPDX-License-Identifier: GPL-2.0

//! Proxied drives: the module runs a stock drive's firmware logic for it.
//!
//! Owns one [`Firmware`] for each member of a mesh and the thread that polls it. The thread sleeps
//! until it is kicked or until the time that the firmware asked for: an idle mesh costs no CPU.
//! Ioctls act on a firmware directly, under the same lock, for a bounded time. Never keeps that
//! lock while it waits, copies to users or does something for another member.

mod platform;
mod storage;

pub(crate) use platform::{
    Effects,
    Hands, //
};

use crate::{
    idc::{
        firmware::Firmware,
        function::Functions,
        member::MemberId,
        mesh::MeshTable, //
    },
    mesh::{
        bus::Bus,
        inbox::Inbox,
        slot::Slot, //
    },
    sys::{
        boxes::zeroed_vbox,
        kthread::{
            Kick,
            Wake, //
        },
        region::MemoryKind,
        time::now_ns, //
    }, //
};
use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        Arc,
        Mutex, //
    },
    task::might_sleep, //
};
use storage::Storage;

/// Functions that a proxied drive offers: all that the module has.
pub(crate) const FUNCTIONS: Functions = Functions::ALL;

/// How soon a worker looks again at a command queue that was full, in milliseconds.
const STALL_MS: u32 = 1;

/// Who does what a turn of one member means to others.
pub(crate) trait Settle {
    /// Does it. No member's lock is held.
    fn settle(&self, from: MemberId, effects: Effects);
}

struct Body {
    firmware: KVBox<Firmware>,
    hands: Hands,
}

/// One proxied member.
#[pin_data]
pub(crate) struct Proxy {
    me: MemberId,
    kick: Arc<Kick>,
    /// Messages sent to the drive.
    pub(crate) inbox: Arc<Inbox>,
    #[pin]
    body: Mutex<Body>,
}

/// When a worker has to look again.
enum Next {
    Now,
    After(u32),
    WhenKicked,
}

impl Proxy {
    /// The member `me` of the mesh `table`, whose memory is clear: `slot`'s drive, lending `kind`.
    ///
    /// # Errors
    ///
    /// - ENOMEM, EINVAL if the table is not complete.
    pub(crate) fn new(
        me: MemberId,
        table: &MeshTable,
        bus: &Arc<Bus>,
        slot: &Arc<Slot>,
        kind: MemoryKind,
        kick: &Arc<Kick>,
    ) -> Result<Arc<Self>> {
        let mut firmware = zeroed_vbox::<Firmware>()?;
        firmware.init(me, FUNCTIONS);
        firmware.attach(table).map_err(|_| EINVAL)?;
        let inbox = Arc::pin_init(Inbox::new(), GFP_KERNEL)?;
        let storage = Storage::new(slot.drive.clone(), kind, kick.clone())?;
        let hands = Hands::new(bus.clone(), slot.clone(), inbox.clone(), storage)?;
        Arc::pin_init(
            pin_init!(Self {
                me,
                kick: kick.clone(),
                inbox,
                body <- new_mutex!(Body { firmware, hands }, "csd_proxy"),
            }),
            GFP_KERNEL,
        )
    }

    /// Runs `f` on the member's firmware, then does what it means to others.
    pub(crate) fn turn<R>(
        &self,
        others: &dyn Settle,
        f: impl FnOnce(&mut Firmware, &mut Hands) -> R,
    ) -> R {
        let mut guard = self.body.lock();
        let Body { firmware, hands } = &mut *guard;
        let result = f(firmware, hands);
        let effects = hands.take_effects();
        drop(guard);
        others.settle(self.me, effects);
        result
    }

    /// Runs `f` on the member's firmware where that cannot concern others.
    pub(crate) fn inspect<R>(&self, f: impl FnOnce(&Firmware) -> R) -> R {
        f(&self.body.lock().firmware)
    }

    /// Makes the worker look again.
    pub(crate) fn kick(&self) {
        self.kick.kick();
    }

    /// Host memory of the member, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        let body = self.body.lock();
        (size_of::<Firmware>() as u64)
            .saturating_add(size_of::<Self>() as u64)
            .saturating_add(body.hands.bytes())
    }

    /// One turn of the worker.
    fn poll(&self, others: &dyn Settle) -> Next {
        self.turn(others, |firmware, hands| {
            hands
                .storage
                .finished(|tag, result| firmware.storage_done(tag, result));
            let now = now_ns();
            let poll = firmware.poll(now, hands);
            if poll.progressed {
                return Next::Now;
            }
            let timer = poll.wake_at.map(|at| {
                let ms = at.saturating_sub(now).div_ceil(1_000_000);
                // u32::MAX would be for ever.
                u32::try_from(ms).unwrap_or(u32::MAX).min(u32::MAX - 1)
            });
            let stall = hands.storage.is_stalled().then_some(STALL_MS);
            match (timer, stall) {
                (None, None) => Next::WhenKicked,
                (Some(ms), None) | (None, Some(ms)) => Next::After(ms),
                (Some(a), Some(b)) => Next::After(a.min(b)),
            }
        })
    }

    /// The worker: polls until it is stopped. `idle` runs before each sleep.
    pub(crate) fn run(&self, kick: &Kick, others: &dyn Settle, idle: impl Fn()) {
        loop {
            match self.poll(others) {
                Next::Now => {
                    // Gives the processor away where the kernel is not preemptible.
                    might_sleep();
                    if kick.should_stop() {
                        return;
                    }
                }
                next => {
                    idle();
                    let ms = match next {
                        // A time that has passed must not make a turn out of every wait.
                        Next::After(ms) => ms.max(1),
                        _ => u32::MAX,
                    };
                    if kick.wait_timeout(ms) == Wake::Stop {
                        return;
                    }
                }
            }
        }
    }
}
