// SPDX-License-Identifier: GPL-2.0

//! A pipeline in words and in JSON: how far it is, how it ended, why it failed.
//!
//! Owns the meaning of progress reports and of a start's errors. It starts nothing.

use super::options::Stages;
use crate::device::StartError;
use crate::drive::report::function;
use crate::failure::{Exit, Failure};
use crate::names::{drive_name, mesh_name, Drive, Drives, Mesh};
use crate::sys::abi::*;
use crate::units::{count, size};
use idc::function::FunctionId;
use nix::errno::Errno;
use serde::Serialize;

/// A pipeline, as JSON has it.
#[derive(Clone, Debug, Serialize)]
pub struct PipelineReport {
    pipeline: u64,
    mesh: String,
    state: &'static str,
    errno: Option<String>,
    error_drive: Option<String>,
    error_stage: Option<u32>,
    error_offset: Option<u64>,
    nvme_status: u32,
    bytes_total: u64,
    bytes_in: u64,
    bytes_out: u64,
    messages: u64,
    host_cpu_bytes: u64,
    elapsed_ns: u64,
    chunk_bytes: u32,
    stages: Vec<StageReport>,
}

#[derive(Clone, Debug, Serialize)]
struct StageReport {
    function: String,
    drive: String,
    bytes_in: u64,
    bytes_out: u64,
    records_in: Option<u64>,
    records_out: Option<u64>,
    crc32c: Option<u32>,
}

/// The stages that there are reports of.
pub fn stages(progress: &csd_pipeline_progress) -> &[csd_stage_report] {
    let count = (progress.stage_count as usize).min(progress.stages.len());
    &progress.stages[..count]
}

/// `filter@csd0`
pub fn stage_name(stage: &csd_stage_report) -> String {
    format!("{}@{}", function(stage.function), drive_name(stage.drive))
}

/// `filter@csd0 → encrypt@csd1`
pub fn path(progress: &csd_pipeline_progress) -> String {
    let names: Vec<String> = stages(progress).iter().map(stage_name).collect();
    names.join(" → ")
}

fn is(stage: &csd_stage_report, id: FunctionId) -> bool {
    stage.function == u32::from(id.to_wire())
}

/// A pipeline's state in a word.
pub fn state(state: u32) -> &'static str {
    match state {
        CSD_PIPELINE_RUNNING => "running",
        CSD_PIPELINE_DONE => "done",
        CSD_PIPELINE_FAILED => "failed",
        CSD_PIPELINE_CANCELLED => "cancelled",
        _ => "unknown",
    }
}

/// The pipeline's error, if it has one.
pub fn error(progress: &csd_pipeline_progress) -> Option<Errno> {
    let code = i32::try_from(progress.error).ok()?;
    (code != 0).then(|| Errno::from_raw(code))
}

impl PipelineReport {
    /// A report of the pipeline with this number.
    pub fn new(pipeline: u64, mesh: u32, progress: &csd_pipeline_progress) -> Self {
        let failed = progress.error != 0;
        let stage_failed = failed && progress.error_stage < progress.stage_count;
        Self {
            pipeline,
            mesh: mesh_name(mesh),
            state: state(progress.state),
            errno: error(progress).map(|errno| format!("{errno:?}")),
            error_drive: (failed && progress.error_drive != CSD_MEMBER_HOST)
                .then(|| drive_name(progress.error_drive)),
            error_stage: stage_failed.then_some(progress.error_stage),
            error_offset: failed.then_some(progress.error_offset),
            nvme_status: progress.status,
            bytes_total: progress.bytes_total,
            bytes_in: progress.bytes_in,
            bytes_out: progress.bytes_out,
            messages: progress.messages,
            host_cpu_bytes: progress.host_cpu_bytes,
            elapsed_ns: progress.elapsed_ns,
            chunk_bytes: progress.chunk_bytes,
            stages: stages(progress)
                .iter()
                .map(|stage| {
                    let filter = is(stage, FunctionId::Filter);
                    StageReport {
                        function: function(stage.function),
                        drive: drive_name(stage.drive),
                        bytes_in: stage.bytes_in,
                        bytes_out: stage.bytes_out,
                        records_in: filter.then_some(stage.result2),
                        records_out: filter.then_some(stage.result),
                        // The ABI's member is wider than the checksum.
                        crc32c: is(stage, FunctionId::Checksum).then_some(stage.result as u32),
                    }
                })
                .collect(),
        }
    }
}

/// What stages found out, a line each: how many records match, what the checksum is.
pub fn findings(progress: &csd_pipeline_progress) -> Vec<String> {
    let finding = |stage: &csd_stage_report| {
        let name = stage_name(stage);
        if is(stage, FunctionId::Filter) {
            let (kept, all) = (count(stage.result), count(stage.result2));
            Some(format!("{name}: {kept} of {all} records"))
        } else if is(stage, FunctionId::Checksum) {
            let bytes = count(stage.result2);
            Some(format!(
                "{name}: CRC-32C {:08x} of {bytes} bytes",
                stage.result as u32
            ))
        } else {
            None
        }
    };
    stages(progress).iter().filter_map(finding).collect()
}

/// Why a pipeline did not do its work, from its last progress report; `errno` is what reading its
/// result gave, where the report says nothing.
pub fn failure(
    pipeline: u64,
    progress: &csd_pipeline_progress,
    errno: Option<Errno>,
    deadline: &str,
) -> Failure {
    let errno = error(progress).or(errno).unwrap_or(Errno::EIO);
    let stage = (progress.error_stage < progress.stage_count)
        .then(|| stages(progress).get(progress.error_stage as usize))
        .flatten();
    let drive = (progress.error_drive != CSD_MEMBER_HOST).then(|| drive_name(progress.error_drive));
    let place = match (stage, &drive) {
        (Some(stage), _) => stage_name(stage),
        (None, Some(drive)) => drive.clone(),
        (None, None) => format!("pipeline {pipeline}"),
    };
    let whose = drive.clone().unwrap_or_else(|| "csd0".into());
    let offset = count(progress.error_offset);
    let status = progress.status;
    let (why, remedy) = match errno {
        Errno::ETIMEDOUT => (
            format!("no progress within {deadline}"),
            format!("a longer --deadline; csdctl drive show {whose} tells how the drive is"),
        ),
        Errno::ENODEV => (
            "the drive was lost".into(),
            "csdctl drive list, and dmesg | grep csd".into(),
        ),
        Errno::EIO => (
            format!(
                "error near byte {offset}, NVMe status type {}, code {:#04x}",
                (status >> 8) & 7,
                status & 0xff
            ),
            format!("csdctl drive show {whose}, and dmesg | grep csd"),
        ),
        Errno::EMSGSIZE => (
            format!("the record at byte {offset} is longer than 64 KiB"),
            "data whose records end in newlines, or another --offset and --length".into(),
        ),
        Errno::ENOSPC => (
            "the range that the result goes to is full".into(),
            "--to with a smaller offset or another drive, or less data".into(),
        ),
        Errno::ECANCELED => (
            "cancelled".into(),
            "csdctl monitor, to see who does that".into(),
        ),
        Errno::ENOKEY => (
            "its key is gone".into(),
            "the same again; dmesg | grep csd if that fails too".into(),
        ),
        _ => (errno.desc().to_string(), "dmesg | grep csd".into()),
    };
    let mut failure = Failure::errno("", errno).remedy(remedy);
    failure.message = format!(
        "{place}: {why} ({errno:?}), after {} in",
        size(progress.bytes_in)
    );
    failure.drive = drive;
    failure.stage = stage.map(stage_name);
    if errno == Errno::ECANCELED {
        failure.exit = Exit::Failure;
    }
    failure
}

/// Why a pipeline was not started.
pub fn not_started(error: StartError, stages: &Stages, drives: &Drives, mesh: &Mesh) -> Failure {
    let StartError { errno, stage } = error;
    let index = stage.map(|stage| stage as usize);
    let request = index.and_then(|index| stages.requests.get(index));
    let place = index.map(|index| stages.name(index));
    let what = place.clone().unwrap_or_else(|| "the pipeline".into());
    let mut failure = Failure::errno(format!("{what} cannot be started"), errno);
    failure.stage = place;
    if let Some(stage) = request.filter(|stage| stage.drive != CSD_DRIVE_ANY) {
        failure.drive = Some(drive_name(stage.drive));
    }
    match (errno, request) {
        (Errno::EOPNOTSUPP, Some(stage)) => {
            failure.message = not_offered(stage.function, stage.drive, drives, mesh);
            failure.remedy("csdctl drive list --functions, or add a drive that has it to the mesh")
        }
        (Errno::ENOSPC, _) => {
            failure.message = format!(
                "{what} cannot be started: not enough free drive memory for its buffers (ENOSPC)"
            );
            failure
                .remedy("a smaller --chunk or --window; csdctl pipeline list shows what else runs")
        }
        (Errno::EBUSY, _) => {
            failure.message =
                format!("{what} cannot be started: too many pipelines on a drive (EBUSY)");
            failure.remedy("csdctl pipeline list, and wait for one of them or cancel it")
        }
        (Errno::ERANGE, _) => {
            failure.message = format!(
                "{what} cannot be started: source or sink is beyond its namespace (ERANGE)"
            );
            failure.remedy("csdctl drive show, for the size of the namespaces")
        }
        (Errno::ENODEV, _) => failure.remedy("csdctl drive list, and csdctl mesh show"),
        (Errno::EINVAL, Some(_)) => failure.remedy("other options for this stage"),
        _ => failure.remedy("csdctl mesh show, and dmesg | grep csd"),
    }
}

/// `no drive in mesh0 offers "decrypt" (csd0: filter encrypt; csd2: filter)`
fn not_offered(id: u32, wanted: u32, drives: &Drives, mesh: &Mesh) -> String {
    let name = function(id);
    let offers = |drive: &Drive| {
        let list = crate::drive::report::functions(drive.info.functions).join(" ");
        if list.is_empty() {
            "nothing".into()
        } else {
            list
        }
    };
    if let Some(drive) = drives.number(wanted) {
        return format!(
            "{} does not offer {name:?}, it offers: {}",
            drive.name(),
            offers(drive)
        );
    }
    let members: Vec<String> = mesh
        .drives()
        .filter_map(|number| drives.number(number))
        .map(|drive| format!("{}: {}", drive.name(), offers(drive)))
        .collect();
    format!(
        "no drive in {} offers {name:?} ({})",
        mesh.name(),
        members.join("; ")
    )
}
