// SPDX-License-Identifier: GPL-2.0

//! The thread that watches a controller.
//!
//! Owns the policy of recovery: a command that takes too long is aborted, and if that does not end it
//! in the same time again, the controller is reset; so it is when it reports fatal status. Deals with
//! asynchronous events. Never talks to a user.

use super::{
    admin::{
        Abort,
        GetLogPage, //
    },
    aen::AsyncEvent,
    controller::{
        Controller,
        Patience,
        State, //
    },
    log::{
        self,
        SmartHealth, //
    },
    queue::Queue, //
};
use crate::sys::{
    kthread::{
        Kick,
        Wake, //
    },
    ratelimit::RateLimit, //
};
use kernel::{
    prelude::*,
    sync::{
        atomic::Relaxed,
        Arc, //
    },
    time::{
        delay::fsleep,
        Delta, //
    }, //
};

/// What the supervisor reports.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Notice {
    /// The controller changed its state.
    State(State),
    /// The drive sent an asynchronous event; its log page was read.
    Event {
        event: AsyncEvent,
        /// The critical warnings, for events of type SMART.
        critical_warning: u8,
    },
    /// The list of namespaces was read again.
    Namespaces,
}

/// Longest sleep between two looks at commands in flight, in milliseconds.
const TICK_MS: u32 = 10_000;
/// Pause between two events: what a drive that reports without end is slowed down to.
const EVENT_PAUSE_MS: i64 = 10;

/// The body of the supervisor's thread; returns when it is to stop.
pub(crate) fn run(controller: &Arc<Controller>, kick: &Kick, notify: &dyn Fn(Notice)) {
    let changed = |state| notify(Notice::State(state));
    let limit = RateLimit::new();
    while kick.wait_timeout(nap(controller)) != Wake::Stop {
        controller.watch.get_up();
        if controller.state() != State::Ready || controller.stopping.load(Relaxed) {
            continue;
        }
        match controller.status() {
            Err(_) => {
                controller.lost(&changed);
                continue;
            }
            Ok(csts) if csts.cfs() => {
                controller.recover("it reports fatal status", &changed);
                continue;
            }
            Ok(csts) if !csts.rdy() => {
                controller.recover("it stopped by itself", &changed);
                continue;
            }
            Ok(_) => (),
        }
        if let Err(reason) = watch_commands(controller) {
            controller.recover(reason, &changed);
            continue;
        }
        while let Some(event) = controller.events.take() {
            if kick.should_stop() {
                return;
            }
            handle_event(controller, event, &limit, notify);
        }
        controller.arm_events();
    }
}

/// How long the supervisor may sleep, in milliseconds; without limit while there is nothing to time.
fn nap(controller: &Controller) -> u32 {
    controller.watch.lie_down();
    let idle = Iterator::chain(core::iter::once(&controller.admin), &controller.io)
        .all(|queue| queue.in_flight() == 0);
    if idle {
        return u32::MAX;
    }
    controller.watch.get_up();
    (controller.settings.command_timeout_ms / 3).clamp(50, TICK_MS)
}

/// Aborts commands that took too long; an error says why only a reset helps.
fn watch_commands(controller: &Controller) -> Result<(), &'static str> {
    watch_queue(controller, &controller.admin)?;
    for queue in &controller.io {
        watch_queue(controller, queue)?;
    }
    Ok(())
}

fn watch_queue(controller: &Controller, queue: &Queue) -> Result<(), &'static str> {
    let limit = Delta::from_millis(controller.settings.command_timeout_ms.into());
    // A lost interrupt must not look like a lost command.
    if queue.overdue(limit).is_some() {
        queue.reap();
    }
    // Each pass ends with a command that is not overdue any more, and a queue holds a bounded number.
    for _ in 0..queue.depth() {
        let Some(overdue) = queue.overdue(limit) else {
            return Ok(());
        };
        controller.counters.timeouts.hit();
        if overdue.aborted {
            return Err("a command outlived its abort");
        }
        dev_warn!(
            controller.device(),
            "queue {}: command {:#x} took longer than {} ms, aborting it\n",
            queue.id(),
            overdue.cid,
            controller.settings.command_timeout_ms
        );
        controller.counters.aborts.hit();
        let abort = Abort {
            qid: queue.id(),
            cid: overdue.cid,
        };
        if !queue.mark_aborted(overdue.cid) {
            continue;
        }
        if controller.admin(&abort, Patience::Bounded).is_err() {
            return Err("an abort failed");
        }
    }
    Ok(())
}

/// Reads the log page that an event points to, which unmasks its type, and reports the event.
fn handle_event(
    controller: &Controller,
    event: AsyncEvent,
    limit: &RateLimit,
    notify: &dyn Fn(Notice),
) {
    controller.counters.async_events.hit();
    let tell = limit.allow();
    let mut critical_warning = 0;
    let read = match event.log_page {
        0 => Ok(()),
        log::SMART => controller
            .admin(
                &GetLogPage::<{ log::SMART_BYTES }, _> {
                    lid: log::SMART,
                    parse: SmartHealth::parse,
                },
                Patience::Bounded,
            )
            .map(|health| critical_warning = health.critical_warning),
        log::CHANGED_NAMESPACES => unmask::<4096>(controller, event.log_page),
        log::ERROR => unmask::<64>(controller, event.log_page),
        log::FIRMWARE_SLOTS => unmask::<512>(controller, event.log_page),
        other => unmask::<512>(controller, other),
    };
    if tell {
        dev_info!(
            controller.device(),
            "asynchronous event: type {}, information {:#x}, log page {:#x}\n",
            event.kind,
            event.info,
            event.log_page
        );
        if let Err(error) = read {
            dev_warn!(
                controller.device(),
                "log page {:#x} of an event cannot be read: {:?}\n",
                event.log_page,
                error
            );
        }
    }
    notify(Notice::Event {
        event,
        critical_warning,
    });
    if event.log_page == log::CHANGED_NAMESPACES
        && controller.learn_namespaces(Patience::Bounded).is_ok()
    {
        notify(Notice::Namespaces);
    }
    fsleep(Delta::from_millis(EVENT_PAUSE_MS));
}

fn unmask<const BYTES: usize>(controller: &Controller, lid: u8) -> Result {
    controller.admin(
        &GetLogPage::<BYTES, _> {
            lid,
            parse: |_: &[u8]| Ok(()),
        },
        Patience::Bounded,
    )
}
