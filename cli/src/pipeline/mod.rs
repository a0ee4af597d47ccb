// SPDX-License-Identifier: GPL-2.0

//! `csdctl pipeline`: functions that run drive to drive on the data of one drive.
//!
//! Owns the command line of `run` and `plan` and what both make of it; [`list`] has the other two
//! commands.

pub mod list;
pub mod options;
pub mod report;
pub mod run;
pub mod signature;
pub mod sink;
pub mod stages;
pub mod stream;
pub mod target;
mod values;

use crate::device::{Device, PipelineRequest, Sink};
use crate::failure::{Failure, Outcome};
use crate::names::{find_mesh, Drive, Drives, Mesh};
use crate::output::{Output, Table};
use crate::units::{count, parse_duration, parse_size, parse_size32, size};
use crate::World;
use clap::{Args, Subcommand};
use options::{CommonOptions, Stages};
use serde::Serialize;
use std::time::Duration;

/// The least and the most that a deadline may be.
const DEADLINES: (Duration, Duration) = (Duration::from_millis(1), Duration::from_secs(3600));

const STAGES_HELP: &str = "\
Stages in EBNF (ISO/IEC 14977), blanks between symbols mean nothing:
  stages   = stage , { \",\" , stage } ;
  stage    = function , [ \"(\" , [ option , { \",\" , option } ] , \")\" ] , [ \"@\" , drive ] ;
  option   = name , \"=\" , value ;
  value    = { quoted | group | ? byte other than \",\" \"(\" \")\" or '\"' ? } ;
  group    = \"(\" , { quoted | group | ? byte other than \"(\" \")\" or '\"' ? } , \")\" ;
  quoted   = '\"' , { ? byte other than '\"' or \"\\\" ? | \"\\\" , ? any byte ? } , '\"' ;

Functions and their options:
  filter     where=EXPR, delimiter=C or record-size=SIZE: keeps the records that match
  encrypt    key-file=FILE, iv=HEX, offset=SIZE: AES-256-CTR; offset is that of the first byte
             in the whole stream, 0 if not given
  decrypt    the same
  checksum   CRC-32C; passes its data on

Predicates of filter in EBNF, sp between any two symbols:
  predicate   = conjunction , { \"or\" , conjunction } ;
  conjunction = negation , { \"and\" , negation } ;
  negation    = { \"not\" } , ( comparison | \"(\" , predicate , \")\" ) ;
  comparison  = field , ( relation , ( text | number ) | search , text )
              | ( \"le\" | \"be\" ) , place , relation , number ;
  field       = \"col\" , \"(\" , digits , \")\" | \"bytes\" , place ;
  place       = \"(\" , digits , \",\" , digits , \")\" ;
  relation    = \"=\" | \"!=\" | \"<\" | \">\" ;
  search      = \"contains\" | \"prefix\" ;
  number      = [ \"+\" | \"-\" ] , digits , [ \".\" , digits ] ;
  text        = '\"' , { ? byte other than '\"' or \"\\\" ? | escape } , '\"' ;
  escape      = \"\\\" , ( \"\\\" | '\"' | \"t\" | \"r\" | \"n\" | \"x\" , hex , hex ) ;
Columns count from 1, col(0) is the record. bytes(OFFSET,LENGTH) are bytes of it from 0; le and be
are the unsigned integer that up to 8 of them make, little or big endian. Text compares as bytes, numbers as decimal numbers; a
column that is absent, or no number where one is asked for, makes its comparison false.

Files appear under their names when they are complete: until then they are .NAME.csdctl-PID.

Example:
  csdctl pipeline run 'filter(where=col(3) = \"Lu\",delimiter=;)@csd1,encrypt(key-file=k)@csd2' \\
      --from csd0 --length 2MiB --to out.bin";

/// Pipelines: run, plan, list, cancel
#[derive(Subcommand, Debug)]
pub enum PipelineCommand {
    /// Run stages on a range of a drive's namespace
    ///
    /// Stages run in order, each on the drive given for it, or on one that the first drive chooses.
    /// The result streams to a file, to standard output or to a drive. Ctrl-C cancels.
    #[command(after_long_help = concat_help())]
    Run(Box<RunArgs>),
    /// Show what run would do, and do nothing
    Plan(Box<PlanArgs>),
    /// List running and recently ended pipelines
    List,
    /// Cancel a running pipeline
    Cancel(list::CancelArgs),
}

fn concat_help() -> String {
    format!("{STAGES_HELP}\n\n{}", crate::failure::EXIT_CODES)
}

/// What a pipeline does, for `run` and `plan`
#[derive(Args, Debug)]
pub struct SourceArgs {
    /// What to do, such as filter,encrypt (--help has the grammar)
    #[arg(value_name = "STAGES")]
    pub stages: String,

    /// The drive that the data is on: name, NQN or PCI address
    #[arg(long, value_name = "DRIVE")]
    pub from: String,

    /// First byte
    #[arg(long, value_name = "SIZE", default_value = "0", value_parser = parse_size)]
    pub offset: u64,

    /// Bytes to read; up to the end of the namespace if not given
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub length: Option<u64>,

    /// Namespace id; the drive's first namespace if not given
    #[arg(long, value_name = "NSID", value_parser = clap::value_parser!(u32).range(1..))]
    pub namespace: Option<u32>,

    // A doc comment here would become the command's description.
    #[allow(missing_docs)]
    #[command(flatten)]
    pub common: CommonOptions,

    /// Bytes per chunk, a multiple of 4 KiB from 4 KiB to 1 MiB
    #[arg(long, value_name = "SIZE", value_parser = chunk_size)]
    pub chunk: Option<u32>,

    /// Bytes of the window that the result comes through, a multiple of 4 KiB from 64 KiB to 16 MiB
    #[arg(long, value_name = "SIZE", value_parser = window_size)]
    pub window: Option<u32>,

    /// Longest time without progress (500ms, 30s, 2m), at most 1h [default: 30s]
    #[arg(long, value_name = "TIME", value_parser = deadline)]
    pub deadline: Option<Duration>,

    /// The mesh; may be left out if there is only one
    #[arg(long)]
    pub mesh: Option<String>,
}

/// Arguments of `pipeline run`
#[derive(Args, Debug)]
pub struct RunArgs {
    #[command(flatten)]
    source: SourceArgs,

    /// Where the result goes: a file, - for standard output, or DRIVE:OFFSET
    #[arg(long, value_name = "FILE|-|DRIVE:OFFSET")]
    to: Option<String>,

    /// Namespace id of the drive that --to names; its first namespace if not given
    #[arg(long, value_name = "NSID", value_parser = clap::value_parser!(u32).range(1..))]
    to_namespace: Option<u32>,

    /// Overwrite what the drive that --to names holds there
    #[arg(long)]
    force: bool,

    /// Keep what there is of the result as FILE.partial if the pipeline fails
    #[arg(long)]
    keep_partial: bool,
}

/// Arguments of `pipeline plan`
#[derive(Args, Debug)]
pub struct PlanArgs {
    #[command(flatten)]
    source: SourceArgs,
}

fn stepped(text: &str, least: u32, most: u32) -> Result<u32, String> {
    let bytes = parse_size32(text)?;
    if bytes % 4096 == 0 && (least..=most).contains(&bytes) {
        Ok(bytes)
    } else {
        Err(format!(
            "not a multiple of 4 KiB from {} to {}",
            size(least.into()),
            size(most.into())
        ))
    }
}

fn chunk_size(text: &str) -> Result<u32, String> {
    stepped(text, 4 << 10, 1 << 20)
}

fn window_size(text: &str) -> Result<u32, String> {
    stepped(text, 64 << 10, 16 << 20)
}

fn deadline(text: &str) -> Result<Duration, String> {
    let time = parse_duration(text)?;
    if (DEADLINES.0..=DEADLINES.1).contains(&time) {
        Ok(time)
    } else {
        Err("a deadline is from 1 ms to 1 h".into())
    }
}

/// Runs a `pipeline` command.
///
/// # Errors
/// What was asked for was not done.
pub fn run(command: &PipelineCommand, world: &World<'_>, output: &mut Output<'_>) -> Outcome {
    match command {
        PipelineCommand::Run(args) => run::run(args, world, output),
        PipelineCommand::Plan(args) => plan(args, world, output),
        PipelineCommand::List => list::list(world, output),
        PipelineCommand::Cancel(args) => list::cancel(args, world, output),
    }
}

/// A pipeline that makes sense, with all that is needed to start it and to talk about it.
pub(crate) struct Prepared {
    pub device: Box<dyn Device>,
    pub drives: Drives,
    pub mesh: Mesh,
    pub source: Drive,
    pub nsid: u32,
    pub stages: Stages,
    pub request: PipelineRequest,
}

/// Makes a pipeline of arguments; its sink is the descriptor.
pub(crate) fn prepare(args: &SourceArgs, world: &World<'_>) -> Outcome<Prepared> {
    let specs =
        stages::parse(&args.stages).map_err(|error| error.failure("stages", &args.stages))?;
    let device = world.device()?;
    let mesh = find_mesh(&*device, args.mesh.as_deref())?;
    let drives = Drives::load(&*device)?;
    let source = member(&drives, &mesh, &args.from)?;
    let stages = options::resolve(&args.stages, &specs, &args.common, &drives, &mesh, world)?;
    let namespace = sink::namespace(&*device, &source, args.namespace)?;
    let length = range(args, &source, namespace.nsid, sink::bytes(&namespace))?;
    let request = PipelineRequest {
        mesh: mesh.info.mesh,
        source_drive: source.info.drive,
        source_nsid: namespace.nsid,
        source_offset: args.offset,
        source_length: length,
        stages: stages.requests.clone(),
        chunk_bytes: args.chunk.unwrap_or(0),
        window_bytes: args.window.unwrap_or(0),
        sink: Sink::Descriptor,
        deadline_ms: args.deadline.map_or(0, |time| {
            u32::try_from(time.as_millis()).unwrap_or(u32::MAX)
        }),
    };
    Ok(Prepared {
        device,
        drives,
        mesh,
        source,
        nsid: namespace.nsid,
        stages,
        request,
    })
}

/// The drive that `name` names, which is in the mesh.
pub(crate) fn member(drives: &Drives, mesh: &Mesh, name: &str) -> Outcome<Drive> {
    let drive = drives.find(name)?;
    if mesh.drives().any(|member| member == drive.info.drive) {
        return Ok(drive.clone());
    }
    Err(
        Failure::new(format!("{} is not in {}", drive.name(), mesh.name()))
            .drive(drive.name())
            .remedy(format!("csdctl mesh show {}", mesh.name())),
    )
}

/// Bytes to read, which all are in the namespace.
fn range(args: &SourceArgs, source: &Drive, nsid: u32, bytes: u64) -> Outcome<u64> {
    let beyond = |what: String| {
        Failure::new(format!(
            "{what} beyond namespace {nsid} of {}, which has {} bytes",
            source.name(),
            count(bytes)
        ))
        .drive(source.name())
        .remedy(format!(
            "--length {}, or none, which means up to the end",
            bytes.saturating_sub(args.offset)
        ))
    };
    let Some(left) = bytes.checked_sub(args.offset) else {
        return Err(beyond(format!("--offset {} is", count(args.offset)))
            .remedy(format!("csdctl drive show {}", source.name())));
    };
    match args.length {
        None => Ok(left),
        Some(length) if length <= left => Ok(length),
        Some(length) => Err(beyond(format!(
            "--offset {} --length {} goes {} bytes",
            count(args.offset),
            count(length),
            count(length - left)
        ))),
    }
}

#[derive(Serialize)]
struct PlanReport {
    mesh: String,
    source: SourceReport,
    stages: Vec<PlannedStage>,
    chunk_bytes: u32,
    window_bytes: u32,
}

/// Where the data comes from, as JSON has it.
#[derive(Serialize)]
pub(crate) struct SourceReport {
    pub drive: String,
    pub nsid: u32,
    pub offset: u64,
    pub length: u64,
}

#[derive(Serialize)]
struct PlannedStage {
    function: String,
    drive: String,
    chosen: bool,
}

impl Prepared {
    pub(crate) fn source_report(&self) -> SourceReport {
        SourceReport {
            drive: self.source.name(),
            nsid: self.nsid,
            offset: self.request.source_offset,
            length: self.request.source_length,
        }
    }
}

fn plan(args: &PlanArgs, world: &World<'_>, output: &mut Output<'_>) -> Outcome {
    let prepared = prepare(&args.source, world)?;
    let plan = prepared
        .device
        .pipeline_plan(&prepared.request)
        .map_err(|error| {
            report::not_started(error, &prepared.stages, &prepared.drives, &prepared.mesh)
        })?;
    let mut table = Table::new(&["STAGE", "FUNCTION", "DRIVE", "PLACED BY"]);
    let mut stages = Vec::new();
    for (index, (stage, drive)) in prepared.request.stages.iter().zip(&plan.drives).enumerate() {
        let chosen = stage.drive == crate::sys::abi::CSD_DRIVE_ANY;
        let planned = PlannedStage {
            function: crate::drive::report::function(stage.function),
            drive: crate::names::drive_name(*drive),
            chosen,
        };
        table.row([
            (index + 1).to_string(),
            planned.function.clone(),
            planned.drive.clone(),
            if chosen { "the first drive" } else { "hand" }.into(),
        ]);
        stages.push(planned);
    }
    output.line(&format!(
        "{}: {} of namespace {} of {} from byte {} on, in chunks of {}{}",
        prepared.mesh.name(),
        size(prepared.request.source_length),
        prepared.nsid,
        prepared.source.name(),
        count(prepared.request.source_offset),
        size(plan.chunk_bytes.into()),
        match plan.window_bytes {
            0 => String::new(),
            bytes => format!(", result through a window of {}", size(bytes.into())),
        }
    ))?;
    output.line(&table.to_string())?;
    output.json(&PlanReport {
        mesh: prepared.mesh.name(),
        source: prepared.source_report(),
        stages,
        chunk_bytes: plan.chunk_bytes,
        window_bytes: plan.window_bytes,
    })
}
