// SPDX-License-Identifier: GPL-2.0

//! Clocks and bounded interruptible waits.
//!
//! Owns the arithmetic between milliseconds, jiffies and nanoseconds. Contains no unsafe code;
//! lives here because every waiter needs it.

use kernel::{
    prelude::*,
    sync::{
        lock::{
            Backend,
            Guard, //
        },
        CondVar,
        CondVarTimeoutResult, //
    },
    time::{
        msecs_to_jiffies,
        ClockSource,
        Jiffies,
        Monotonic,
        RealTime, //
    }, //
};

/// Monotonic time in nanoseconds; the clock that `idc::firmware` is driven with.
pub(crate) fn now_ns() -> u64 {
    u64::try_from(Monotonic::ktime_get()).unwrap_or(0)
}

/// Wall-clock time in nanoseconds since 1970, for what users read.
pub(crate) fn realtime_ns() -> u64 {
    u64::try_from(RealTime::ktime_get()).unwrap_or(0)
}

/// What is left of a timeout over several waits.
pub(crate) struct Timer {
    left: Option<Jiffies>,
}

impl Timer {
    /// Runs from now for `timeout_ms`; `u32::MAX` is for ever.
    pub(crate) fn start(timeout_ms: u32) -> Self {
        Self {
            left: (timeout_ms != u32::MAX).then(|| msecs_to_jiffies(timeout_ms)),
        }
    }

    /// Waits for `condvar` once; the caller looks at its condition again afterwards.
    ///
    /// # Errors
    ///
    /// - ETIMEDOUT if the time was up before, EINTR on a signal.
    pub(crate) fn wait<T: ?Sized, B: Backend>(
        &mut self,
        condvar: &CondVar,
        guard: &mut Guard<'_, T, B>,
    ) -> Result {
        match self.left {
            None => {
                if condvar.wait_interruptible(guard) {
                    return Err(EINTR);
                }
            }
            Some(0) => return Err(ETIMEDOUT),
            Some(left) => match condvar.wait_interruptible_timeout(guard, left) {
                CondVarTimeoutResult::Timeout => self.left = Some(0),
                CondVarTimeoutResult::Woken { jiffies } => self.left = Some(jiffies),
                CondVarTimeoutResult::Signal { .. } => return Err(EINTR),
            },
        }
        Ok(())
    }

    /// Like [`Timer::wait`], but wakes after `step_ms` at the latest.
    pub(crate) fn wait_step<T: ?Sized, B: Backend>(
        &mut self,
        condvar: &CondVar,
        guard: &mut Guard<'_, T, B>,
        step_ms: u32,
    ) -> Result {
        let step = msecs_to_jiffies(step_ms).max(1);
        match self.left {
            Some(left) if left <= step => self.wait(condvar, guard),
            _ => match condvar.wait_interruptible_timeout(guard, step) {
                CondVarTimeoutResult::Signal { .. } => Err(EINTR),
                CondVarTimeoutResult::Timeout => {
                    self.left = self.left.map(|left| left.saturating_sub(step));
                    Ok(())
                }
                CondVarTimeoutResult::Woken { jiffies } => {
                    let slept = step.saturating_sub(jiffies);
                    self.left = self.left.map(|left| left.saturating_sub(slept));
                    Ok(())
                }
            },
        }
    }
}
