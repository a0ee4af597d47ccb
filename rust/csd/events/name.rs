// SPDX-License-Identifier: GPL-2.0

//! Names of events as uevents carry them. Owns the list; never a number.

use crate::uapi;

/// The name of an event type (`CSD_EVENT_*`).
pub(super) fn of(kind: u32) -> &'static str {
    match kind {
        uapi::CSD_EVENT_OVERFLOW => "overflow",
        uapi::CSD_EVENT_DRIVE_BOUND => "drive-bound",
        uapi::CSD_EVENT_DRIVE_GONE => "drive-gone",
        uapi::CSD_EVENT_DRIVE_RESET => "drive-reset",
        uapi::CSD_EVENT_AEN => "aen",
        uapi::CSD_EVENT_MESH_CREATED => "mesh-created",
        uapi::CSD_EVENT_MESH_DESTROYED => "mesh-destroyed",
        uapi::CSD_EVENT_PEER_LOST => "peer-lost",
        uapi::CSD_EVENT_RING_FAULT => "ring-fault",
        uapi::CSD_EVENT_PIPELINE_DONE => "pipeline-done",
        uapi::CSD_EVENT_PIPELINE_FAILED => "pipeline-failed",
        uapi::CSD_EVENT_PIPELINE_CANCELLED => "pipeline-cancelled",
        uapi::CSD_EVENT_RING_RESET => "ring-reset",
        _ => "unknown",
    }
}
