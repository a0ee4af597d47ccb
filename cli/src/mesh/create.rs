// SPDX-License-Identifier: GPL-2.0

//! `csdctl mesh create`.
//!
//! Owns the way from a command line to a mesh, and the words for why there is none. The rules of
//! what can be combined are `idc`'s; the module applies them, here they are only told.

use super::choices::{BufferOptions, MemoryChoice};
use super::report::{headline, report_mesh, MeshesReport};
use crate::failure::{Exit, Failure, Outcome};
use crate::names::{bits, find_mesh, joined, member_name, mesh_name, Drives};
use crate::output::Output;
use crate::sys::abi::*;
use crate::sys::Abi;
use crate::World;
use clap::Args;
use idc::mesh::MeshError;
use nix::errno::Errno;

/// Arguments of `mesh create`
#[derive(Args, Debug)]
pub struct CreateArgs {
    /// Members: name, NQN or PCI address; all bound drives that are in no mesh if none is given
    #[arg(value_name = "DRIVE")]
    drives: Vec<String>,

    #[command(flatten)]
    buffers: BufferOptions,
}

pub(super) fn create(args: &CreateArgs, world: &World<'_>, output: &mut Output<'_>) -> Outcome {
    let device = world.device()?;
    let drives = Drives::load(&*device)?;
    let mut arg = csd_mesh_create::new();
    for name in &args.drives {
        arg.drives |= 1 << drives.find(name)?.info.drive;
    }
    let pairs = args.buffers.fill(&mut arg, &drives)?;
    if args.drives.is_empty() {
        require_free_drives(&drives)?;
    }
    arg.busy_drive = CSD_MEMBER_HOST;
    device
        .mesh_create(&mut arg, &pairs)
        .map_err(|errno| not_created(errno, &arg, &args.buffers, &drives))?;
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

const FAILED: &str = "the mesh cannot be created";

/// Why a mesh was not created, naming what is in the way.
fn not_created(
    errno: Errno,
    arg: &csd_mesh_create,
    buffers: &BufferOptions,
    drives: &Drives,
) -> Failure {
    if let Some(failure) = not_combined(errno, arg, buffers) {
        return failure;
    }
    let (culprits, why, remedy) = match errno {
        Errno::EBUSY => busy(arg, drives),
        Errno::EOPNOTSUPP => (
            concerned(arg, drives, &|info| {
                info.memory_flags & flags(buffers.memory) == 0
            }),
            "without memory that buffers may go to".into(),
            "csdctl drive bind --use-pmr with these drives, if what their PMRs hold may be \
             overwritten; or --place host"
                .into(),
        ),
        Errno::ENODEV => (
            concerned(arg, drives, &|info| info.state != CSD_DRIVE_READY),
            "not ready".into(),
            "csdctl drive list, and dmesg | grep csd".into(),
        ),
        Errno::ENOSPC => (
            Vec::new(),
            String::new(),
            "fewer --entries, a smaller --entry-size, or another --place".into(),
        ),
        _ => (Vec::new(), String::new(), "csdctl drive list".into()),
    };
    let mut failure = Failure::errno(FAILED, errno).remedy(remedy);
    if let [first, ..] = &culprits[..] {
        let verb = if culprits.len() == 1 { "is" } else { "are" };
        let list = joined(culprits.iter().cloned());
        failure.message = format!("{FAILED}: {list} {verb} {why}");
        failure.drive = Some(first.clone());
    } else if errno == Errno::ENOSPC {
        let whose = match (arg.reason, arg.reason_drive) {
            (CSD_REASON_SPACE, CSD_MEMBER_HOST) => "the host's memory".to_string(),
            (CSD_REASON_SPACE, drive) => {
                failure.drive = Some(member_name(drive));
                format!("the memory of {}", member_name(drive))
            }
            _ => "a drive's memory".into(),
        };
        failure.message = format!("{FAILED}: {whose} is too small for its buffers, or too full");
    }
    failure
}

/// The failure if the module says that the choices do not go together.
fn not_combined(errno: Errno, arg: &csd_mesh_create, buffers: &BufferOptions) -> Option<Failure> {
    // These two are the module's own.
    if matches!(arg.reason, CSD_REASON_NO_MEMORY | CSD_REASON_SPACE) {
        return None;
    }
    let reason = MeshError::from_code(arg.reason)?;
    let mut message = format!("{FAILED}: {reason}");
    if let Some(pair) = buffers.pair(arg.reason_pair) {
        message.push_str(&format!(" (--pair {pair})"));
    }
    let mut failure = Failure::errno(FAILED, errno);
    failure.message = message;
    if arg.reason_drive != CSD_MEMBER_HOST {
        failure.drive = Some(member_name(arg.reason_drive));
    }
    Some(match errno {
        Errno::EINVAL => failure.exit(Exit::Usage),
        Errno::ETIMEDOUT => failure.remedy("csdctl drive list, and dmesg | grep csd"),
        _ => failure,
    })
}

/// The memories that a choice means, `CSD_MEMORY_*`.
fn flags(choice: MemoryChoice) -> u32 {
    match choice {
        MemoryChoice::Auto => CSD_MEMORY_CMB | CSD_MEMORY_PMR,
        MemoryChoice::Pmr => CSD_MEMORY_PMR,
        MemoryChoice::Cmb => CSD_MEMORY_CMB,
    }
}

/// Which of the drives that are asked for are such, by name.
fn concerned(
    arg: &csd_mesh_create,
    drives: &Drives,
    such: &dyn Fn(&csd_drive_info) -> bool,
) -> Vec<String> {
    let wanted = |info: &csd_drive_info| match arg.drives {
        0 => info.mesh == CSD_MESH_NONE,
        mask => bits(mask).any(|number| number == info.drive),
    };
    drives
        .iter()
        .filter(|drive| wanted(&drive.info) && such(&drive.info))
        .map(crate::names::Drive::name)
        .collect()
}

/// Who is in another mesh, what is wrong with that, and the remedy.
fn busy(arg: &csd_mesh_create, drives: &Drives) -> (Vec<String>, String, String) {
    let drive = drives.number(arg.busy_drive);
    let culprits = drive.map(crate::names::Drive::name).into_iter().collect();
    match drive.map_or(CSD_MESH_NONE, |drive| drive.info.mesh) {
        CSD_MESH_NONE => (
            culprits,
            "in a mesh already".to_string(),
            "csdctl mesh show".into(),
        ),
        mesh => {
            let mesh = mesh_name(mesh);
            let remedy = format!("csdctl mesh destroy {mesh}, or leave that drive out");
            (culprits, format!("in {mesh} already"), remedy)
        }
    }
}
