// SPDX-License-Identifier: GPL-2.0

//! `csdctl pipeline list` and `csdctl pipeline cancel`.
//!
//! Owns walking the pipelines that the module remembers.

use super::report::{self, PipelineReport};
use crate::failure::{Failure, Outcome};
use crate::names::mesh_name;
use crate::output::{Output, Table};
use crate::units::{size, time};
use crate::World;
use clap::Args;
use nix::errno::Errno;
use serde::Serialize;

/// Arguments of `pipeline cancel`
#[derive(Args, Debug)]
pub struct CancelArgs {
    /// Numbers of pipelines, as list shows them
    #[arg(required = true, value_name = "PIPELINE")]
    pipelines: Vec<u64>,
}

#[derive(Serialize)]
struct PipelinesReport {
    pipelines: Vec<PipelineReport>,
}

#[derive(Serialize)]
struct CancelReport {
    pipelines: Vec<u64>,
}

/// Lists running and recently ended pipelines.
///
/// # Errors
/// The module does not answer.
pub fn list(world: &World<'_>, output: &mut Output<'_>) -> Outcome {
    let device = world.device()?;
    let headings = [
        "PIPELINE", "MESH", "STATE", ">IN", ">OF", ">OUT", ">TIME", "STAGES",
    ];
    let mut table = Table::new(&headings);
    let mut pipelines = Vec::new();
    let mut after = 0;
    loop {
        let info = match device.pipeline_after(after) {
            Ok(info) if info.pipeline > after => info,
            // The last one; and an answer that leads nowhere must not make this endless.
            Ok(_) | Err(Errno::ENXIO) => break,
            Err(errno) => return Err(Failure::errno("pipelines of csd", errno)),
        };
        after = info.pipeline;
        let progress = &info.progress;
        let state = report::state(progress.state);
        table.row([
            info.pipeline.to_string(),
            mesh_name(info.mesh),
            match report::error(progress) {
                Some(errno) => format!("{state} ({errno:?})"),
                None => state.into(),
            },
            size(progress.bytes_in),
            size(progress.bytes_total),
            size(progress.bytes_out),
            time(progress.elapsed_ns),
            report::path(progress),
        ]);
        pipelines.push(PipelineReport::new(info.pipeline, info.mesh, progress));
    }
    output.line(&table.to_string())?;
    output.json(&PipelinesReport { pipelines })
}

/// Cancels pipelines.
///
/// # Errors
/// One of them is not there or has ended; those before it are cancelled.
pub fn cancel(args: &CancelArgs, world: &World<'_>, output: &mut Output<'_>) -> Outcome {
    let device = world.device()?;
    for number in &args.pipelines {
        device.pipeline_cancel(*number).map_err(|errno| {
            let mut failure = Failure::errno(format!("pipeline {number}"), errno);
            failure.message = match errno {
                Errno::ENXIO => format!("there is no pipeline {number}"),
                Errno::EALREADY => format!("pipeline {number} has ended already"),
                _ => failure.message,
            };
            failure.remedy("csdctl pipeline list")
        })?;
    }
    output.json(&CancelReport {
        pipelines: args.pipelines.clone(),
    })
}
