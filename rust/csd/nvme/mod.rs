// SPDX-License-Identifier: GPL-2.0

//! The NVMe host side: one controller per drive, driven by nothing but this module.
//!
//! Owns registers, queues, the admin command set, the memory that a controller exposes, and
//! recovery. Knows no numbering of drives, no mesh and no user; [`crate::drive`] is its face.
//!
//! # Locks, outermost first
//!
//! 1. `Controller::control` (mutex): bring-up, reset, PMR consent, teardown.
//! 2. `Controller::facts`, `Controller::memory` (spinlocks, process context): what was learnt.
//! 3. `Queue::state` (IRQ spinlock): slots and rings of one queue pair. Completions are delivered
//!    after it was released.
//! 4. `AsyncEvents::pending`, `Kick` (IRQ spinlocks).

pub(crate) mod admin;
pub(crate) mod aen;
pub(crate) mod controller;
pub(crate) mod counters;
pub(crate) mod identify;
pub(crate) mod lifecycle;
pub(crate) mod log;
pub(crate) mod memory;
pub(crate) mod prp;
pub(crate) mod queue;
pub(crate) mod regs;
pub(crate) mod slots;
pub(crate) mod spec;
pub(crate) mod storage;
pub(crate) mod supervisor;
mod watch;
