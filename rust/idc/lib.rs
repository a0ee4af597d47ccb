// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Inter-drive communication (IDC): what travels between computational storage drives, and how.
//!
//! This file owns the crate's attributes as cargo sees it and nothing else. The kernel module
//! compiles the same sources as a module of its own crate (`#[path = "../idc/mod.rs"] mod idc;`),
//! so everything else hangs below `mod.rs`, names its siblings by `super::`, and never asks for
//! `std`, an allocator, an unstable feature or a panic.

#![no_std]
#![forbid(unsafe_code)]
#![warn(missing_docs)]
#![cfg_attr(
    not(test),
    deny(
        clippy::arithmetic_side_effects,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::panic,
        clippy::todo,
        clippy::unimplemented,
        clippy::unreachable,
        clippy::unwrap_used
    )
)]

#[cfg(test)]
extern crate std;

#[path = "mod.rs"]
mod root;

pub use root::*;
