// SPDX-License-Identifier: GPL-2.0

//! The only home of `unsafe` code and of raw C bindings in the module.
//!
//! Every submodule wraps one kernel facility that the safe abstractions of the `kernel` crate do
//! not reach, behind an interface that cannot be misused. Nothing here knows NVMe, meshes or users.

pub(crate) mod boxes;
pub(crate) mod chardev;
pub(crate) mod completion;
pub(crate) mod crypto;
pub(crate) mod device;
pub(crate) mod dma;
pub(crate) mod global;
pub(crate) mod irq;
pub(crate) mod kthread;
pub(crate) mod pci;
pub(crate) mod ratelimit;
pub(crate) mod region;
pub(crate) mod time;
pub(crate) mod uaccess;
