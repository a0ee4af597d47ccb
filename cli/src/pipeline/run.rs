// SPDX-License-Identifier: GPL-2.0

//! `csdctl pipeline run`.
//!
//! Owns the order of things: nothing is created before the pipeline makes sense, nothing is left
//! behind by one that failed unless that was asked for.

use super::report::{findings, not_started, stages, PipelineReport};
use super::target::{self, Target};
use super::{member, prepare, sink, stream, Prepared, RunArgs, SourceReport};
use crate::device::Sink;
use crate::failure::{Failure, Outcome};
use crate::names::{drive_name, joined, Drive};
use crate::output::Output;
use crate::sys::abi::{csd_pipeline_progress, CSD_DRIVE_PROXIED};
use crate::units::{count, hex, size, time};
use crate::World;
use serde::Serialize;
use std::path::PathBuf;

/// What `run` reports, as JSON has it.
#[derive(Serialize)]
struct RunReport {
    source: SourceReport,
    sink: SinkReport,
    ivs: Vec<IvReport>,
    proxied: Vec<String>,
    pipeline: PipelineReport,
}

#[derive(Serialize)]
struct SinkReport {
    kind: &'static str,
    path: Option<String>,
    drive: Option<String>,
    nsid: Option<u32>,
    offset: Option<u64>,
    bytes: u64,
}

#[derive(Serialize)]
struct IvReport {
    stage: usize,
    iv: String,
    drawn: bool,
    file: Option<String>,
}

/// Runs a pipeline to its end.
///
/// # Errors
/// It makes no sense, cannot be started, fails, or is cancelled.
pub fn run(args: &RunArgs, world: &World<'_>, output: &mut Output<'_>) -> Outcome {
    let mut prepared = prepare(&args.source, world)?;
    let target = target(args, &prepared, world)?;
    prepared.request.sink = match &target {
        Target::Drive { drive, offset } => {
            let drive = member(&prepared.drives, &prepared.mesh, &drive_name(*drive))?;
            refuse_overlap(&prepared, &drive, args.to_namespace, *offset)?;
            sink::check(
                &*prepared.device,
                &prepared.drives,
                &prepared.mesh,
                &drive,
                (args.to_namespace, *offset),
                args.force,
            )?
        }
        Target::File(_) | Target::Stdout => Sink::Descriptor,
    };
    let mut file = match &target {
        Target::File(path) => Some(target::Output::create(path)?),
        Target::Drive { .. } | Target::Stdout => None,
    };
    match stream(&prepared, &target, file.as_mut(), world, output) {
        Ok((number, progress)) => {
            // Before the result gets its name: one without its IV would be worth nothing.
            let ivs = write_drawn_ivs(&prepared, &target, file.as_ref())?;
            if let Some(file) = file {
                file.finish()?;
            }
            report(&prepared, &target, number, &progress, ivs, output)
        }
        Err(mut failure) => {
            let kept = file
                .filter(|_| args.keep_partial)
                .and_then(target::Output::keep_partial);
            if let (Some(path), false) = (kept, failure.message.is_empty()) {
                failure.message +=
                    &format!("; what there is of the result is in {}", path.display());
            }
            Err(failure)
        }
    }
}

/// A result that overtook its own source would be made of itself. No function makes data longer,
/// but for the newline that filter may add and the block that is filled up.
fn refuse_overlap(prepared: &Prepared, drive: &Drive, nsid: Option<u32>, to: u64) -> Outcome {
    let sink = sink::namespace(&*prepared.device, drive, nsid)?;
    let (from, length) = (
        prepared.request.source_offset,
        prepared.request.source_length,
    );
    let longest = length
        .saturating_add(1)
        .checked_next_multiple_of(sink.block_bytes.max(1).into())
        .unwrap_or(u64::MAX);
    let same = drive.info.drive == prepared.source.info.drive && sink.nsid == prepared.nsid;
    if same && to < from.saturating_add(length) && from < to.saturating_add(longest) {
        let name = drive.name();
        return Err(Failure::refused(format!(
            "--to {name}: the result would overwrite what it is made from"
        ))
        .drive(name)
        .remedy("an offset beyond the source, another drive, or a file"));
    }
    Ok(())
}

/// Where the result goes.
fn target(args: &RunArgs, prepared: &Prepared, world: &World<'_>) -> Outcome<Target> {
    let target = match &args.to {
        Some(text) => target::parse(text, &prepared.drives)?,
        None if world.terminal.out => {
            return Err(Failure::usage("nothing says where the result goes")
                .remedy("--to FILE; --to - prints it on this terminal"));
        }
        None => Target::Stdout,
    };
    let drive = matches!(target, Target::Drive { .. });
    for (given, option) in [
        (args.force, "--force"),
        (args.to_namespace.is_some(), "--to-namespace"),
    ] {
        if given && !drive {
            return Err(
                Failure::usage(format!("{option} is for results that go to a drive")).remedy(
                    format!("the command without {option}, or --to DRIVE:OFFSET"),
                ),
            );
        }
    }
    Ok(target)
}

fn stream(
    prepared: &Prepared,
    target: &Target,
    mut file: Option<&mut target::Output>,
    world: &World<'_>,
    output: &mut Output<'_>,
) -> Outcome<(u64, csd_pipeline_progress)> {
    // A bar on the terminal that the result is printed on would spoil both.
    let bar = world.terminal.err
        && !output.is_json()
        && !(*target == Target::Stdout && world.terminal.out);
    stream::run(
        &*prepared.device,
        &prepared.request,
        bar,
        &|error| not_started(error, &prepared.stages, &prepared.drives, &prepared.mesh),
        &mut |bytes| match &mut file {
            Some(file) => file.write(bytes),
            None => output.raw(bytes),
        },
    )
}

/// Writes the IVs that were drawn beside the result, if that is a file with a place beside it.
fn write_drawn_ivs(
    prepared: &Prepared,
    target: &Target,
    result: Option<&target::Output>,
) -> Outcome<Vec<IvReport>> {
    let drawn: Vec<[u8; 16]> = prepared
        .stages
        .ivs
        .iter()
        .flatten()
        .filter(|iv| iv.drawn)
        .map(|iv| iv.iv)
        .collect();
    let file = match target {
        Target::File(path)
            if !drawn.is_empty() && result.is_some_and(target::Output::is_regular) =>
        {
            Some(target::write_ivs(path, &drawn)?)
        }
        _ => None,
    };
    let shown = |path: &PathBuf| path.display().to_string();
    let ivs = prepared.stages.ivs.iter().enumerate();
    Ok(ivs
        .filter_map(|(stage, iv)| {
            let iv = (*iv)?;
            Some(IvReport {
                stage,
                iv: hex(&iv.iv),
                drawn: iv.drawn,
                file: file.as_ref().filter(|_| iv.drawn).map(shown),
            })
        })
        .collect())
}

fn report(
    prepared: &Prepared,
    target: &Target,
    number: u64,
    progress: &csd_pipeline_progress,
    ivs: Vec<IvReport>,
    output: &mut Output<'_>,
) -> Outcome {
    let mut drives = vec![prepared.source.info.drive];
    drives.extend(stages(progress).iter().map(|stage| stage.drive));
    let mut sink = SinkReport {
        kind: "stdout",
        path: None,
        drive: None,
        nsid: None,
        offset: None,
        bytes: progress.bytes_out,
    };
    match (target, prepared.request.sink) {
        (Target::File(path), _) => {
            sink.kind = "file";
            sink.path = Some(path.display().to_string());
        }
        (
            _,
            Sink::Namespace {
                drive,
                nsid,
                offset,
                ..
            },
        ) => {
            sink.kind = "namespace";
            sink.drive = Some(drive_name(drive));
            sink.nsid = Some(nsid);
            sink.offset = Some(offset);
            drives.push(drive);
        }
        (Target::Stdout | Target::Drive { .. }, Sink::Descriptor) => {}
    }
    drives.sort_unstable();
    drives.dedup();
    let proxied: Vec<String> = drives
        .iter()
        .filter_map(|number| prepared.drives.number(*number))
        .filter(|drive| drive.info.kind == CSD_DRIVE_PROXIED)
        .map(Drive::name)
        .collect();
    let text = summary(progress, &sink, &ivs, &proxied);
    let report = RunReport {
        source: prepared.source_report(),
        sink,
        ivs,
        proxied,
        pipeline: PipelineReport::new(number, prepared.mesh.info.mesh, progress),
    };
    if *target == Target::Stdout {
        return output.aside(&text, &report);
    }
    output.line(&text)?;
    output.json(&report)
}

/// What people are told: figures, findings, where the result is, IVs that were drawn.
fn summary(
    progress: &csd_pipeline_progress,
    sink: &SinkReport,
    ivs: &[IvReport],
    proxied: &[String],
) -> String {
    let why = match proxied {
        [] => String::new(),
        [one] => format!(" ({one} is proxied)"),
        many => format!(" ({} are proxied)", joined(many.iter().cloned())),
    };
    let mut lines = vec![format!(
        "{} in, {} out, {}. Messages: {}. Through the host's CPU: {}{why}.",
        size(progress.bytes_in),
        size(progress.bytes_out),
        time(progress.elapsed_ns),
        count(progress.messages),
        size(progress.host_cpu_bytes)
    )];
    lines.extend(findings(progress));
    if let (Some(drive), Some(nsid), Some(offset)) = (&sink.drive, sink.nsid, sink.offset) {
        lines.push(format!(
            "Result: {} bytes from byte {} of namespace {nsid} of {drive} on; the rest of the last block is zeroed.",
            count(sink.bytes),
            count(offset)
        ));
    }
    for iv in ivs.iter().filter(|iv| iv.drawn) {
        let also = iv
            .file
            .as_ref()
            .map_or(String::new(), |file| format!(", also in {file}"));
        lines.push(format!("IV (drawn{also}): {}", iv.iv));
    }
    lines.join("\n")
}
