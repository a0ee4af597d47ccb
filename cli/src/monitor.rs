// SPDX-License-Identifier: GPL-2.0

//! `csdctl monitor`: what happens, as it happens.
//!
//! Owns the wording of events. It shows what the module tells after it was started and keeps
//! nothing.

use crate::failure::{Failure, Outcome};
use crate::names::{drive_name, mesh_name};
use crate::output::Output;
use crate::sys::abi::*;
use crate::units::{count, parse_duration};
use crate::World;
use clap::Args;
use nix::errno::Errno;
use serde::Serialize;
use std::time::{Duration, Instant};

/// Arguments of `monitor`
#[derive(Args, Debug)]
pub struct MonitorArgs {
    /// End after this many events
    #[arg(long, value_name = "N")]
    count: Option<u64>,

    /// End after this time (500ms, 30s, 2m), whatever has come
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    timeout: Option<Duration>,
}

/// An event, as JSON has it: one a line.
#[derive(Debug, Serialize)]
struct EventReport {
    event: &'static str,
    number: u64,
    time_ns: u64,
    drive: Option<String>,
    mesh: Option<String>,
    peer: Option<String>,
    pipeline: Option<u64>,
    lost: Option<u64>,
    errno: Option<String>,
    aen: Option<AenReport>,
    detail: u64,
}

/// An NVMe asynchronous event: completion dword 0 taken apart (NVMe Base specification,
/// "Asynchronous Event Request command").
#[derive(Debug, Serialize)]
struct AenReport {
    r#type: u8,
    information: u8,
    log_page: u8,
}

/// Prints events until told to stop.
///
/// # Errors
/// The module does not answer.
pub fn run(args: &MonitorArgs, world: &World<'_>, output: &mut Output<'_>) -> Outcome {
    let device = world.device()?;
    let end = args.timeout.map(|timeout| Instant::now() + timeout);
    let mut seen = 0;
    while args.count.is_none_or(|count| seen < count) {
        let left = end.map(|end| end.saturating_duration_since(Instant::now()));
        match device.event(left) {
            Ok(Some(event)) => {
                let report = EventReport::new(&event);
                output.line(&line(&report, &event))?;
                output.json(&report)?;
                seen += 1;
            }
            Ok(None) => break,
            Err(Errno::EINTR | Errno::EAGAIN) => {}
            Err(errno) => return Err(Failure::errno("events of csd", errno)),
        }
    }
    Ok(())
}

impl EventReport {
    fn new(event: &csd_event) -> Self {
        let pipeline = matches!(
            event.type_,
            CSD_EVENT_PIPELINE_DONE | CSD_EVENT_PIPELINE_FAILED | CSD_EVENT_PIPELINE_CANCELLED
        );
        let name = |number: u32| (number != CSD_MEMBER_HOST).then(|| drive_name(number));
        Self {
            event: match event.type_ {
                CSD_EVENT_OVERFLOW => "overflow",
                CSD_EVENT_DRIVE_BOUND => "drive-bound",
                CSD_EVENT_DRIVE_GONE => "drive-gone",
                CSD_EVENT_DRIVE_RESET => "drive-reset",
                CSD_EVENT_AEN => "aen",
                CSD_EVENT_MESH_CREATED => "mesh-created",
                CSD_EVENT_MESH_DESTROYED => "mesh-destroyed",
                CSD_EVENT_PEER_LOST => "peer-lost",
                CSD_EVENT_RING_FAULT => "ring-fault",
                CSD_EVENT_RING_RESET => "ring-reset",
                CSD_EVENT_PIPELINE_DONE => "pipeline-done",
                CSD_EVENT_PIPELINE_FAILED => "pipeline-failed",
                CSD_EVENT_PIPELINE_CANCELLED => "pipeline-cancelled",
                _ => "unknown",
            },
            number: event.number,
            time_ns: event.time_ns,
            drive: name(event.drive),
            mesh: (event.mesh != CSD_MESH_NONE).then(|| mesh_name(event.mesh)),
            peer: name(event.peer),
            pipeline: pipeline.then_some(event.detail),
            lost: (event.type_ == CSD_EVENT_OVERFLOW).then_some(event.detail),
            errno: (event.status != 0).then(|| format!("{:?}", errno(event.status))),
            aen: (event.type_ == CSD_EVENT_AEN).then(|| {
                let [kind, information, log_page, _] = (event.detail as u32).to_le_bytes();
                AenReport {
                    r#type: kind & 7,
                    information,
                    log_page,
                }
            }),
            detail: event.detail,
        }
    }
}

fn errno(code: u32) -> Errno {
    Errno::from_raw(i32::try_from(code).unwrap_or(0))
}

/// An event as people read it: `12:03:04.567  csd1  SMART or health: …`.
fn line(report: &EventReport, event: &csd_event) -> String {
    let drive = report.drive.as_deref().unwrap_or("a drive");
    let mesh = report.mesh.as_deref().unwrap_or("a mesh");
    let because = match event.status {
        0 => String::new(),
        code => format!(": {} ({:?})", errno(code).desc(), errno(code)),
    };
    let text = match event.type_ {
        CSD_EVENT_OVERFLOW => format!("{} events were lost", count(event.detail)),
        CSD_EVENT_DRIVE_BOUND => format!("{drive} is bound"),
        CSD_EVENT_DRIVE_GONE => format!("{drive} is gone"),
        CSD_EVENT_DRIVE_RESET => match event.detail {
            0 => format!("{drive} was reset and is back"),
            code => format!("{drive} was reset and failed: {:?}", errno(code as u32)),
        },
        CSD_EVENT_AEN => aen(drive, report.aen.as_ref()),
        CSD_EVENT_MESH_CREATED => format!("{mesh} was created"),
        CSD_EVENT_MESH_DESTROYED => format!("{mesh} was destroyed"),
        CSD_EVENT_PEER_LOST => format!("{mesh}: {drive} is lost{because}"),
        CSD_EVENT_RING_FAULT => format!(
            "{mesh}: ring {} to {drive} broke the protocol, reason {}",
            report.peer.as_deref().unwrap_or("host"),
            event.detail
        ),
        CSD_EVENT_RING_RESET => format!(
            "{mesh}: the buffers between {} and {} {}",
            report.drive.as_deref().unwrap_or("host"),
            report.peer.as_deref().unwrap_or("host"),
            match event.status {
                0 => format!("were reset, epoch {}", event.detail),
                _ => format!("could not be reset{because}"),
            }
        ),
        CSD_EVENT_PIPELINE_DONE => format!("{mesh}: pipeline {} is done", event.detail),
        CSD_EVENT_PIPELINE_FAILED => {
            let at = report
                .drive
                .as_ref()
                .map_or(String::new(), |drive| format!(" on {drive}"));
            format!("{mesh}: pipeline {} failed{at}{because}", event.detail)
        }
        CSD_EVENT_PIPELINE_CANCELLED => format!("{mesh}: pipeline {} was cancelled", event.detail),
        _ => format!("event of type {}, detail {}", event.type_, event.detail),
    };
    format!("{}  {text}", clock(event.time_ns))
}

/// An asynchronous event in words (NVMe Base specification, figures "Asynchronous Event
/// Information").
fn aen(drive: &str, report: Option<&AenReport>) -> String {
    let Some(aen) = report else {
        return format!("{drive} reports an event");
    };
    let what = match (aen.r#type, aen.information) {
        (0, 0) => "write to an invalid doorbell register",
        (0, 1) => "invalid doorbell write value",
        (0, 2) => "diagnostic failure",
        (0, 3) => "persistent internal error",
        (0, 4) => "transient internal error",
        (0, 5) => "firmware image load error",
        (0, _) => "error",
        (1, 0) => "SMART: reliability is degraded",
        (1, 1) => "SMART: temperature threshold",
        (1, 2) => "SMART: spare below threshold",
        (1, _) => "SMART or health",
        (2, 0) => "a namespace attribute changed",
        (2, 1) => "firmware activation starts",
        (2, _) => "notice",
        (6, _) => "event of a command set",
        (7, _) => "vendor event",
        _ => "event",
    };
    format!(
        "{drive} reports: {what} (type {}, information {:#04x}, log page {:#04x})",
        aen.r#type, aen.information, aen.log_page
    )
}

/// Time of day in UTC, with milliseconds: `2026-12-01T15:04:05.678Z` without the date.
fn clock(time_ns: u64) -> String {
    let milliseconds = time_ns / 1_000_000 % 86_400_000;
    let (seconds, rest) = (milliseconds / 1000, milliseconds % 1000);
    format!(
        "{:02}:{:02}:{:02}.{rest:03}Z",
        seconds / 3600,
        seconds / 60 % 60,
        seconds % 60
    )
}
