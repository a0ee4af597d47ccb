// SPDX-License-Identifier: GPL-2.0 OR MIT

//! The rooms of IDC. This file owns the list of them; it never holds code.

pub mod backoff;
pub mod entry;
pub mod firmware;
pub mod function;
pub mod ipc;
pub mod list;
pub mod marks;
pub mod member;
pub mod memory;
pub mod mesh;
pub mod pipeline;
pub mod range;
pub mod ring;
pub mod select;
pub mod status;
pub mod superblock;
pub mod window;

/// Version of the protocol, major << 16 | minor.
pub const VERSION: u32 = 1 << 16;
