// SPDX-License-Identifier: GPL-2.0

//! `csdctl drive`: which drives there are, and who has them.
//!
//! Owns `list` and `show`; [`bind`] has the commands that change something.

pub mod bind;
pub mod inuse;
pub mod report;

use crate::failure::Outcome;
use crate::names::{mesh_name, Drive, Drives};
use crate::output::{Output, Table};
use crate::sys::abi::{CSD_DRIVE_READY, CSD_MESH_NONE};
use crate::units::{count, size};
use crate::World;
use clap::{Args, Subcommand};
use report::DriveReport;
use serde::Serialize;

/// How many functions a row of the list names before it says that there are more.
const FUNCTIONS_SHOWN: usize = 4;

/// Drives: list, show, bind, unbind
#[derive(Subcommand, Debug)]
pub enum DriveCommand {
    /// List the drives that csd has
    List(ListArgs),
    /// Show all that is known about drives
    Show(ShowArgs),
    /// Take drives over from the in-box nvme driver
    ///
    /// A drive in use is refused: all its namespaces are opened exclusively, through the multipath
    /// head too, and held until csd has the drive. Drives are named csd0, csd1, ... in PCI order of
    /// binding. If a drive cannot be brought up the in-box driver gets it back.
    Bind(bind::BindArgs),
    /// Hand drives back to the in-box nvme driver
    Unbind(bind::UnbindArgs),
}

/// Arguments of `drive list`
#[derive(Args, Debug)]
pub struct ListArgs {
    /// Name all functions of each drive
    #[arg(long)]
    functions: bool,
}

/// Arguments of `drive show`
#[derive(Args, Debug)]
pub struct ShowArgs {
    /// Drives: name, NQN or PCI address
    #[arg(required = true, value_name = "DRIVE")]
    drives: Vec<String>,
}

#[derive(Serialize)]
struct DrivesReport {
    drives: Vec<DriveReport>,
}

/// Runs a `drive` command.
///
/// # Errors
/// What was asked for was not done.
pub fn run(command: &DriveCommand, world: &World<'_>, output: &mut Output<'_>) -> Outcome {
    match command {
        DriveCommand::List(args) => list(args, world, output),
        DriveCommand::Show(args) => show(args, world, output),
        DriveCommand::Bind(args) => bind::bind(args, world, output),
        DriveCommand::Unbind(args) => bind::unbind(args, world, output),
    }
}

fn list(args: &ListArgs, world: &World<'_>, output: &mut Output<'_>) -> Outcome {
    let device = world.device()?;
    let drives = Drives::load(&*device)?;
    let headings = [
        "DRIVE",
        "PCI",
        "NQN",
        "KIND",
        "MEMORY",
        "FUNCTIONS",
        "MESH",
        "STATE",
    ];
    let mut table = Table::new(&headings);
    let mut reports = Vec::new();
    for drive in drives.iter() {
        table.row(row(drive, args.functions));
        if output.is_json() {
            reports.push(report::drive(&*device, drive)?);
        }
    }
    output.line(&table.to_string())?;
    if drives.iter().next().is_none() {
        output.note("no drive is bound to csd; try: csdctl drive bind --all, or csdctl doctor");
    }
    output.json(&DrivesReport { drives: reports })
}

fn row(drive: &Drive, all_functions: bool) -> [String; 8] {
    let info = &drive.info;
    let mut functions = report::functions(info.functions);
    if functions.len() > FUNCTIONS_SHOWN && !all_functions {
        functions.truncate(FUNCTIONS_SHOWN - 1);
        functions.push("…".into());
    }
    let mesh = match info.mesh {
        CSD_MESH_NONE => "-".into(),
        mesh => mesh_name(mesh),
    };
    let mut state = report::state(info.state).to_string();
    if info.state == CSD_DRIVE_READY && !report::can_receive(info) {
        state += ", cannot receive";
    }
    if info.critical_warning != 0 {
        state += &format!(", SMART warning {:#04x}", info.critical_warning);
    }
    [
        drive.name(),
        drive.pci(),
        drive.nqn(),
        report::kind(info).into(),
        report::memory(info),
        functions.join(" "),
        mesh,
        state,
    ]
}

fn show(args: &ShowArgs, world: &World<'_>, output: &mut Output<'_>) -> Outcome {
    let device = world.device()?;
    let drives = Drives::load(&*device)?;
    let mut reports = Vec::new();
    for (index, name) in args.drives.iter().enumerate() {
        let drive = drives.find(name)?;
        let report = report::drive(&*device, drive)?;
        if index != 0 {
            output.line("")?;
        }
        output.line(&details(drive, &report))?;
        reports.push(report);
    }
    output.json(&DrivesReport { drives: reports })
}

fn details(drive: &Drive, report: &DriveReport) -> String {
    let info = &drive.info;
    let [name, pci, nqn, kind, memory, functions, mesh, state] = row(drive, true);
    let numa = u32::try_from(info.numa_node).map_or("unknown".into(), |node| node.to_string());
    let mut lines = vec![
        ("drive", name),
        ("state", state),
        ("mesh", mesh),
        ("kind", kind),
        ("PCI address", pci),
        ("NUMA node", numa),
        ("NQN", nqn),
        ("controller", info.cntlid.to_string()),
        ("model", crate::names::text(&info.model)),
        ("serial", crate::names::text(&info.serial)),
        ("firmware", crate::names::text(&info.firmware)),
        ("NVMe version", report.nvme_version.clone()),
        ("SMART warning", format!("{:#04x}", info.critical_warning)),
        ("functions", functions),
        ("memory", memory),
        ("  PMR signed", yes_no(report.memory.pmr_signed)),
        ("  used", size(report.memory.used_bytes)),
        ("  of the host", size(report.memory.host_bytes)),
    ];
    for namespace in &report.namespaces {
        lines.push((
            "namespace",
            format!(
                "{}: {}, {} blocks of {} B",
                namespace.nsid,
                size(namespace.bytes),
                count(namespace.blocks),
                namespace.block_bytes
            ),
        ));
    }
    lines.push(("counters", "since it was bound".into()));
    let counters = report.counters.list();
    let names: Vec<String> = counters
        .iter()
        .map(|(name, _)| format!("  {}", name.replace('_', " ")))
        .collect();
    lines.extend(
        names
            .iter()
            .zip(&counters)
            .map(|(name, (_, value))| (name.as_str(), count(*value))),
    );
    let width = lines
        .iter()
        .map(|(name, _)| name.chars().count())
        .max()
        .unwrap_or(0);
    lines
        .iter()
        .map(|(name, value)| format!("{name:<width$}  {value}"))
        .collect::<Vec<_>>()
        .join("\n")
}

fn yes_no(yes: bool) -> String {
    if yes { "yes" } else { "no" }.into()
}
