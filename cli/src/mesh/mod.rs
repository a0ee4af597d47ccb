// SPDX-License-Identifier: GPL-2.0

//! `csdctl mesh`: drives that can send each other messages.
//!
//! Owns how meshes are made, shown and taken down. How rings are laid out is decided elsewhere.

pub mod report;

use crate::failure::{Failure, Outcome};
use crate::names::{bits, find_mesh, joined, mesh_name, meshes, Drives};
use crate::output::Output;
use crate::sys::abi::*;
use crate::sys::Abi;
use crate::units::parse_size32;
use crate::World;
use clap::{Args, Subcommand, ValueEnum};
use nix::errno::Errno;
use report::{headline, members_table, report_mesh, rings, rings_table, MeshesReport};
use serde::Serialize;

/// Meshes: create, show, destroy
#[derive(Subcommand, Debug)]
pub enum MeshCommand {
    /// Make a mesh of drives, by default of all that are in none
    Create(CreateArgs),
    /// Show meshes, by default all
    Show(ShowArgs),
    /// Take a mesh down; its rings are scrubbed
    Destroy(DestroyArgs),
}

/// Arguments of `mesh create`
#[derive(Args, Debug)]
pub struct CreateArgs {
    /// Members: name, NQN or PCI address; all bound drives that are in no mesh if none is given
    #[arg(value_name = "DRIVE")]
    drives: Vec<String>,

    /// Entries per ring, a power of two, 4 to 4096 [default: 64]
    #[arg(long, value_name = "N", value_parser = entries)]
    entries: Option<u32>,

    /// Bytes per entry, a power of two, 64 to 4096 [default: 64]
    #[arg(long, value_name = "SIZE", value_parser = entry_size)]
    entry_size: Option<u32>,

    /// Which memory of the drives the rings go to
    #[arg(long, value_enum, default_value = "auto")]
    memory: MemoryChoice,
}

/// Which of a drive's memories
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum MemoryChoice {
    /// The PMR where it may be used, else the CMB
    Auto,
    /// The persistent memory region
    Pmr,
    /// The controller memory buffer
    Cmb,
}

/// Arguments of `mesh show`
#[derive(Args, Debug)]
pub struct ShowArgs {
    /// The mesh; all of them if none is given
    #[arg(value_name = "MESH")]
    mesh: Option<String>,

    /// Also show each ring with its counters
    #[arg(long)]
    stats: bool,
}

/// Arguments of `mesh destroy`
#[derive(Args, Debug)]
pub struct DestroyArgs {
    /// The mesh; may be left out if there is only one
    #[arg(value_name = "MESH")]
    mesh: Option<String>,

    /// Cancel pipelines that run in it
    #[arg(long)]
    force: bool,
}

fn entries(text: &str) -> Result<u32, String> {
    let number: u32 = text.parse().map_err(|_| "not a number".to_string())?;
    power_of_two(number, 4, 4096)
}

fn entry_size(text: &str) -> Result<u32, String> {
    power_of_two(parse_size32(text)?, 64, 4096)
}

fn power_of_two(number: u32, least: u32, most: u32) -> Result<u32, String> {
    if number.is_power_of_two() && (least..=most).contains(&number) {
        Ok(number)
    } else {
        Err(format!("not a power of two from {least} to {most}"))
    }
}

/// Runs a `mesh` command.
///
/// # Errors
/// What was asked for was not done.
pub fn run(command: &MeshCommand, world: &World<'_>, output: &mut Output<'_>) -> Outcome {
    match command {
        MeshCommand::Create(args) => create(args, world, output),
        MeshCommand::Show(args) => show(args, world, output),
        MeshCommand::Destroy(args) => destroy(args, world, output),
    }
}

fn create(args: &CreateArgs, world: &World<'_>, output: &mut Output<'_>) -> Outcome {
    let device = world.device()?;
    let drives = Drives::load(&*device)?;
    let mut arg = csd_mesh_create::new();
    for name in &args.drives {
        arg.drives |= 1 << drives.find(name)?.info.drive;
    }
    if args.drives.is_empty() {
        require_free_drives(&drives)?;
    }
    arg.entries = args.entries.unwrap_or(0);
    arg.entry_bytes = args.entry_size.unwrap_or(0);
    arg.placement = CSD_PLACE_RECEIVER;
    arg.publish = CSD_PUBLISH_ENTRY;
    arg.memory = match args.memory {
        MemoryChoice::Auto => CSD_MESH_MEMORY_AUTO,
        MemoryChoice::Pmr => CSD_MESH_MEMORY_PMR,
        MemoryChoice::Cmb => CSD_MESH_MEMORY_CMB,
    };
    arg.busy_drive = CSD_MEMBER_HOST;
    device
        .mesh_create(&mut arg)
        .map_err(|errno| not_created(errno, &arg, args.memory, &drives))?;
    let mesh = find_mesh(&*device, Some(&mesh_name(arg.mesh)))?;
    output.line(&headline(&mesh))?;
    output.json(&MeshesReport {
        meshes: vec![report_mesh(&*device, &mesh)?],
    })
}

/// Why the module would say no to "all drives that are in no mesh", in words.
fn require_free_drives(drives: &Drives) -> Outcome {
    if drives.iter().any(|drive| drive.info.mesh == CSD_MESH_NONE) {
        return Ok(());
    }
    Err(match drives.iter().next() {
        None => Failure::new("no drive is bound to csd")
            .remedy("csdctl drive bind --all, or csdctl doctor"),
        Some(_) => Failure::refused("all drives are in a mesh already")
            .remedy("csdctl mesh show; csdctl mesh destroy frees the drives of one"),
    })
}

/// Why a mesh was not created, naming the drive that is in the way.
fn not_created(
    errno: Errno,
    arg: &csd_mesh_create,
    choice: MemoryChoice,
    drives: &Drives,
) -> Failure {
    let wanted = |drive: &&crate::names::Drive| {
        let info = &drive.info;
        match arg.drives {
            0 => info.mesh == CSD_MESH_NONE,
            mask => bits(mask).any(|number| number == info.drive),
        }
    };
    let of = |test: &dyn Fn(&csd_drive_info) -> bool| {
        let list: Vec<String> = drives
            .iter()
            .filter(wanted)
            .filter(|drive| test(&drive.info))
            .map(crate::names::Drive::name)
            .collect();
        list
    };
    let flags = match choice {
        MemoryChoice::Auto => CSD_MEMORY_CMB | CSD_MEMORY_PMR,
        MemoryChoice::Pmr => CSD_MEMORY_PMR,
        MemoryChoice::Cmb => CSD_MEMORY_CMB,
    };
    let (culprits, why, remedy) = match errno {
        Errno::EBUSY => {
            let busy = drives.number(arg.busy_drive);
            let mesh = busy.map_or(CSD_MESH_NONE, |drive| drive.info.mesh);
            let culprits = busy.map(crate::names::Drive::name).into_iter().collect();
            if mesh == CSD_MESH_NONE {
                (culprits, "in a mesh already".to_string(), "csdctl mesh show".into())
            } else {
                let mesh = mesh_name(mesh);
                let remedy = format!("csdctl mesh destroy {mesh}, or leave that drive out");
                (culprits, format!("in {mesh} already"), remedy)
            }
        }
        Errno::EOPNOTSUPP => (
            of(&|info| info.memory_flags & flags == 0),
            "without memory that rings may go to".into(),
            "csdctl drive bind --use-pmr with these drives, if what their PMRs hold may be overwritten"
                .into(),
        ),
        Errno::ENODEV => (
            of(&|info| info.state != CSD_DRIVE_READY),
            "not ready".into(),
            "csdctl drive list, and dmesg | grep csd".into(),
        ),
        Errno::ENOSPC => (
            Vec::new(),
            String::new(),
            "fewer --entries or a smaller --entry-size".into(),
        ),
        _ => (Vec::new(), String::new(), "csdctl drive list".into()),
    };
    let mut failure = Failure::errno("the mesh cannot be created", errno).remedy(remedy);
    if let [first, ..] = &culprits[..] {
        let verb = if culprits.len() == 1 { "is" } else { "are" };
        failure.message = format!(
            "the mesh cannot be created: {} {verb} {why}",
            joined(culprits.iter().cloned())
        );
        failure.drive = Some(first.clone());
    } else if errno == Errno::ENOSPC {
        failure.message =
            "the mesh cannot be created: a drive's memory is too small for its rings".into();
    }
    failure
}

fn show(args: &ShowArgs, world: &World<'_>, output: &mut Output<'_>) -> Outcome {
    let device = world.device()?;
    let list = match &args.mesh {
        Some(name) => vec![find_mesh(&*device, Some(name))?],
        None => meshes(&*device)?,
    };
    if list.is_empty() {
        output.note("there is no mesh; try: csdctl mesh create");
    }
    let mut reports = Vec::new();
    for (index, mesh) in list.iter().enumerate() {
        if output.is_json() {
            reports.push(report_mesh(&*device, mesh)?);
            continue;
        }
        if index != 0 {
            output.line("")?;
        }
        output.line(&headline(mesh))?;
        output.line(&members_table(mesh).to_string())?;
        if args.stats {
            output.line("")?;
            output.line(&rings_table(&rings(&*device, mesh)?).to_string())?;
        }
        if mesh.info.pipelines != 0 {
            output.line(&format!("pipelines running: {}", mesh.info.pipelines))?;
        }
    }
    output.json(&MeshesReport { meshes: reports })
}

fn destroy(args: &DestroyArgs, world: &World<'_>, output: &mut Output<'_>) -> Outcome {
    let device = world.device()?;
    let mesh = find_mesh(&*device, args.mesh.as_deref())?;
    let flags = if args.force {
        CSD_MESH_DESTROY_FORCE
    } else {
        0
    };
    device
        .mesh_destroy(mesh.info.mesh, flags)
        .map_err(|errno| {
            let failure = Failure::errno(format!("{} cannot be destroyed", mesh.name()), errno);
            match errno {
                Errno::EBUSY => Failure {
                    message: format!(
                        "{} cannot be destroyed: a pipeline is running in it",
                        mesh.name()
                    ),
                    ..failure
                }
                .remedy("csdctl pipeline list, or --force, which cancels what runs"),
                _ => failure.remedy("csdctl mesh show"),
            }
        })?;
    output.json(&Destroyed { mesh: mesh.name() })
}

#[derive(Serialize)]
struct Destroyed {
    mesh: String,
}
