// SPDX-License-Identifier: GPL-2.0

//! Kernel threads that sleep until they are kicked.
//!
//! Owns the creation and the joining of `kthread`s and the bell that wakes them. Never runs
//! anything in interrupt context; only [`Kick::kick`] may be called there.

use super::completion::Completion;
use kernel::{
    bindings,
    error::from_err_ptr,
    new_condvar,
    new_spinlock_irq,
    prelude::*,
    sync::{
        Arc,
        CondVar,
        CondVarTimeoutResult,
        SpinLockIrq, //
    },
    time::msecs_to_jiffies, //
};

/// Why a wait ended.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wake {
    /// [`Kick::kick`] was called since the last wait.
    Kicked,
    /// The time ran out.
    Timeout,
    /// The thread is being joined and must return.
    Stop,
}

struct Bell {
    kicked: bool,
    stop: bool,
}

/// The bell of one worker: rung by anybody, heard by one thread.
///
/// A kick is remembered until the next wait, so none is lost between a check and a sleep.
#[pin_data]
pub(crate) struct Kick {
    #[pin]
    bell: SpinLockIrq<Bell>,
    #[pin]
    rung: CondVar,
}

impl Kick {
    /// Allocates a silent bell.
    ///
    /// # Errors
    ///
    /// - `ENOMEM`.
    pub(crate) fn new() -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                bell <- new_spinlock_irq!(Bell { kicked: false, stop: false }, "csd::Kick"),
                rung <- new_condvar!("csd::Kick"),
            }),
            GFP_KERNEL,
        )
    }

    /// Wakes the thread, or makes its next wait return at once. Any context.
    pub(crate) fn kick(&self) {
        let mut bell = self.bell.lock();
        if !bell.kicked {
            bell.kicked = true;
            self.rung.notify_all();
        }
    }

    /// Sleeps until kicked or stopped, at most `ms` milliseconds (`u32::MAX`: no limit). The sleep is
    /// interruptible, so it does not count as load.
    pub(crate) fn wait_timeout(&self, ms: u32) -> Wake {
        let forever = ms == u32::MAX;
        let mut left = msecs_to_jiffies(ms);
        let mut bell = self.bell.lock();
        loop {
            if bell.stop {
                return Wake::Stop;
            }
            if bell.kicked {
                bell.kicked = false;
                return Wake::Kicked;
            }
            if !forever && left == 0 {
                return Wake::Timeout;
            }
            left = match self.rung.wait_interruptible_timeout(
                &mut bell,
                if forever {
                    msecs_to_jiffies(i32::MAX as u32)
                } else {
                    left
                },
            ) {
                CondVarTimeoutResult::Timeout => 0,
                CondVarTimeoutResult::Woken { jiffies }
                | CondVarTimeoutResult::Signal { jiffies } => jiffies,
            };
        }
    }

    /// Whether the thread is being joined.
    pub(crate) fn should_stop(&self) -> bool {
        self.bell.lock().stop
    }

    fn stop(&self) {
        let mut bell = self.bell.lock();
        bell.stop = true;
        self.rung.notify_all();
    }
}

struct Start<F> {
    kick: Arc<Kick>,
    done: Arc<Completion>,
    body: F,
}

/// A running kernel thread. Dropping it tells the thread to stop and waits until it has returned.
///
/// `kthread_stop` is not used: a thread that is stopped before it first ran never enters its
/// function, which would leak the closure. Here every thread runs its closure and ends by itself.
pub(crate) struct KThread {
    kick: Arc<Kick>,
    done: Arc<Completion>,
}

impl KThread {
    /// Starts a thread called `name` (at most 15 bytes are shown) that runs `body`.
    ///
    /// `body` must return soon after a wait gave [`Wake::Stop`]; it may return earlier.
    ///
    /// # Errors
    ///
    /// - `ENOMEM`, or `EINTR` if the calling process is being killed.
    pub(crate) fn spawn<F>(name: &CStr, kick: Arc<Kick>, body: F) -> Result<Self>
    where
        F: FnOnce(&Kick) + Send + 'static,
    {
        let done = Arc::pin_init(Completion::new(), GFP_KERNEL)?;
        let start = KBox::new(
            Start {
                kick: kick.clone(),
                done: done.clone(),
                body,
            },
            GFP_KERNEL,
        )?;
        let start = KBox::into_raw(start);
        // SAFETY: `main::<F>` takes ownership of `start`, which is a `Start<F>`; the format and its
        // one argument are valid C strings for the duration of the call.
        let task = from_err_ptr(unsafe {
            bindings::kthread_create_on_node(
                Some(Self::main::<F>),
                start.cast(),
                bindings::NUMA_NO_NODE,
                c"%s".as_char_ptr(),
                name.as_char_ptr(),
            )
        })
        .inspect_err(|_| {
            // SAFETY: The thread was not created, so nobody else owns `start`.
            drop(unsafe { KBox::from_raw(start) });
        })?;
        // SAFETY: A thread that was not woken yet cannot have exited, so `task` is alive.
        unsafe { bindings::wake_up_process(task) };
        // Only now: dropping it waits for the thread.
        Ok(Self { kick, done })
    }

    extern "C" fn main<F: FnOnce(&Kick)>(data: *mut c_void) -> c_int {
        // SAFETY: `data` is the box that `spawn` released for this thread.
        let start = unsafe { KBox::from_raw(data.cast::<Start<F>>()) };
        let Start { kick, done, body } = KBox::into_inner(start);
        body(&kick);
        drop(kick);
        let raw = done.as_raw();
        drop(done);
        // SAFETY: `KThread` holds its own reference to the completion until it was signalled. The
        // exit runs in the core kernel, so the module may be unloaded as soon as it is.
        unsafe { bindings::kthread_complete_and_exit(raw, 0) }
    }
}

impl Drop for KThread {
    fn drop(&mut self) {
        self.kick.stop();
        self.done.wait();
    }
}
