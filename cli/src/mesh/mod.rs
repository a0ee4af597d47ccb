// SPDX-License-Identifier: GPL-2.0

//! `csdctl mesh`: drives that can send each other messages.
//!
//! Owns how meshes are shown and taken down. How buffers are laid out is decided elsewhere.

pub mod choices;
pub mod create;
mod draw;
mod pair;
pub mod report;
pub mod reset;

use crate::failure::{Failure, Outcome};
use crate::names::{find_mesh, meshes};
use crate::output::{Format, Output};
use crate::sys::abi::*;
use crate::World;
use clap::{Args, Subcommand};
use create::CreateArgs;
use nix::errno::Errno;
use report::{drawing, headline, members_table, report_mesh, rings, rings_table, MeshesReport};
use reset::ResetArgs;
use serde::Serialize;

/// Meshes: create, show, reset, destroy
#[derive(Subcommand, Debug)]
pub enum MeshCommand {
    /// Make a mesh of drives, by default of all that are in none
    Create(CreateArgs),
    /// Show meshes, by default all; -o dot and -o svg draw one
    Show(ShowArgs),
    /// Begin the buffers between two members anew while the others carry on
    Reset(ResetArgs),
    /// Take a mesh down; its rings are scrubbed
    Destroy(DestroyArgs),
}

/// Arguments of `mesh show`
#[derive(Args, Debug)]
pub struct ShowArgs {
    /// The mesh; all of them if none is given
    #[arg(value_name = "MESH")]
    mesh: Option<String>,

    /// Also show each ring (or what a pair has of a shared buffer) with its counters
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

/// Runs a `mesh` command.
///
/// # Errors
/// What was asked for was not done.
pub fn run(command: &MeshCommand, world: &World<'_>, output: &mut Output<'_>) -> Outcome {
    match command {
        MeshCommand::Create(args) => create::create(args, world, output),
        MeshCommand::Show(args) => show(args, world, output),
        MeshCommand::Reset(args) => reset::reset(args, world, output),
        MeshCommand::Destroy(args) => destroy(args, world, output),
    }
}

fn show(args: &ShowArgs, world: &World<'_>, output: &mut Output<'_>) -> Outcome {
    let device = world.device()?;
    if output.format.is_drawing() {
        let mesh = find_mesh(&*device, args.mesh.as_deref())?;
        let drawing = drawing(&mesh, &rings(&*device, &mesh)?);
        return output.raw(
            match output.format {
                Format::Dot => drawing.dot(),
                _ => drawing.svg(),
            }
            .as_bytes(),
        );
    }
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
