// SPDX-License-Identifier: GPL-2.0

//! The ioctl ABI as Rust sees it: `uapi/csd.h` through bindgen at build time.
//!
//! Owns which of its structures an ioctl may carry ([`Abi`]) and what their first published sizes
//! are. Never declares a field of its own: `uapi/csd.h` is the single source.

use core::mem::size_of;

/// Everything bindgen made of `uapi/csd.h`.
#[allow(
    dead_code,
    missing_docs,
    non_camel_case_types,
    unreachable_pub,
    unused_qualifications,
    clippy::all,
    clippy::undocumented_unsafe_blocks
)]
mod generated {
    use zerocopy_derive::{
        FromBytes,
        Immutable,
        IntoBytes,
        KnownLayout, //
    };

    include!(env!("CSD_UAPI_RS"));
}

pub(crate) use generated::*;

/// A structure that travels through an ioctl: plain old data whose first member is its own size.
pub(crate) trait Abi:
    zerocopy::FromBytes + zerocopy::IntoBytes + zerocopy::KnownLayout + zerocopy::Immutable
{
    /// Size of the first published layout; a caller that passes less gets EINVAL.
    const MIN_SIZE: usize;
}

/// Declares the first published size of each structure and holds it: a layout may only grow.
macro_rules! abi {
    ($($name:ident: $min:literal,)*) => {
        $(
            impl Abi for $name {
                const MIN_SIZE: usize = $min;
            }
            const _: () = assert!(size_of::<$name>() >= $min);
            const _: () = assert!(core::mem::offset_of!($name, size) == 0);
        )*
    };
}

abi! {
    csd_info: 40,
    csd_drive_info: 536,
    csd_drive_set: 16,
    csd_drive_namespace: 32,
    csd_drive_probe_memory: 40,
    csd_mesh_create: 64,
    csd_mesh_destroy: 16,
    csd_mesh_info: 64,
    csd_ring_info: 96,
    csd_ring_reset: 56,
    csd_msg_call: 64,
    csd_msg_recv: 40,
    csd_pipeline_start: 104,
    csd_pipeline_progress: 408,
    csd_pipeline_info: 432,
    csd_pipeline_cancel: 16,
}

const _: () = assert!(size_of::<csd_event>() == 48);
const _: () = assert!(size_of::<csd_stage>() == 32);
const _: () = assert!(size_of::<csd_mesh_pair>() == 48);
const _: () = assert!(size_of::<csd_mesh_member>() == 24);
