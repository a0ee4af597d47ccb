// SPDX-License-Identifier: GPL-2.0

//! `csdctl mesh reset`: the buffers between two members begin anew while the others carry on.
//!
//! Owns what is said of it. How it is done is the module's.

use super::pair::ordered_pair;
use crate::failure::{Failure, Outcome};
use crate::names::{find_mesh, member_name, Drives};
use crate::output::Output;
use crate::sys::abi::*;
use crate::sys::Abi;
use crate::units::{count, parse_duration, time};
use crate::World;
use clap::Args;
use nix::errno::Errno;
use serde::Serialize;
use std::time::Duration;

/// Arguments of `mesh reset`
#[derive(Args, Debug)]
pub struct ResetArgs {
    /// The mesh; may be left out if there is only one
    #[arg(value_name = "MESH")]
    mesh: Option<String>,

    /// The two members whose buffers are meant; a shared buffer is reset for all who have it
    #[arg(long, value_name = "MEMBER:MEMBER")]
    pair: String,

    /// Give up what is still under way when the time is over; without it the reset is given up
    #[arg(long)]
    abandon: bool,

    /// How long what is under way may take (500ms, 30s, 1m)
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = parse_duration)]
    timeout: Duration,
}

#[derive(Serialize)]
struct ResetReport {
    mesh: String,
    members: [String; 2],
    epoch: u32,
    stale: u64,
    abandoned: u64,
    reset_ns: u64,
}

pub(super) fn reset(args: &ResetArgs, world: &World<'_>, output: &mut Output<'_>) -> Outcome {
    let device = world.device()?;
    let mesh = find_mesh(&*device, args.mesh.as_deref())?;
    let (from, to) = ordered_pair(&args.pair, &Drives::load(&*device)?)?;
    let mut arg = csd_ring_reset::new();
    (arg.mesh, arg.from, arg.to) = (mesh.info.mesh, from, to);
    arg.flags = if args.abandon {
        CSD_RING_RESET_ABANDON
    } else {
        0
    };
    // 0 would mean the kernel's default.
    arg.timeout_ms = u32::try_from(args.timeout.as_millis())
        .unwrap_or(u32::MAX)
        .max(1);
    let what = format!(
        "{}: the buffers between {} and {}",
        mesh.name(),
        member_name(from),
        member_name(to)
    );
    let done = device.ring_reset(arg).map_err(|errno| {
        let failure = Failure::errno(format!("{what} cannot be reset"), errno);
        match errno {
            Errno::ETIMEDOUT => failure.remedy("a longer --timeout, or --abandon"),
            Errno::EPROTO => failure.remedy("--abandon, since they are fenced"),
            _ => failure.remedy(format!("csdctl mesh show --stats {}", mesh.name())),
        }
    })?;
    output.line(&format!(
        "{what} have epoch {}, {} stale, {} abandoned, {}",
        done.epoch,
        count(done.stale),
        count(done.abandoned),
        time(done.reset_ns)
    ))?;
    output.json(&ResetReport {
        mesh: mesh.name(),
        members: [member_name(from), member_name(to)],
        epoch: done.epoch,
        stale: done.stale,
        abandoned: done.abandoned,
        reset_ns: done.reset_ns,
    })
}
