// SPDX-License-Identifier: GPL-2.0

//! `drive bind` and `drive unbind`: drives change hands between the in-box driver and csd.
//!
//! Owns the order of the steps and the way back when one fails. A drive in use never changes
//! hands.

use super::inuse::{self, Claim};
use super::report::{self, DriveReport};
use crate::failure::{Exit, Failure, Outcome};
use crate::names::{joined, mesh_name, Drive, Drives};
use crate::output::Output;
use crate::sys::abi::{CSD_DRIVE_FAILED, CSD_DRIVE_READY, CSD_DRIVE_SET_USE_PMR, CSD_MESH_NONE};
use crate::sysfs::{NvmeDevice, PciAddress, CSD_DRIVER};
use crate::World;
use clap::Args;
use nix::errno::Errno;
use serde::Serialize;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The longest that a controller may take to get ready is CAP.TO, 8 bits in units of 500 ms (NVMe
/// Base specification, "Controller Capabilities").
const READY_TIMEOUT: Duration = Duration::from_millis(255 * 500);

/// How often to look whether it is.
const READY_POLL: Duration = Duration::from_millis(20);

/// Arguments of `drive bind`
#[derive(Args, Debug)]
pub struct BindArgs {
    /// Drives: PCI address, NQN, or the in-box driver's name of the controller (nvme0)
    #[arg(required_unless_present = "all", value_name = "DRIVE")]
    drives: Vec<String>,

    /// All NVMe drives that have no driver or the in-box one and are not in use
    #[arg(long, conflicts_with = "drives")]
    all: bool,

    /// Consent to overwrite what their persistent memory regions (PMR) hold
    #[arg(long)]
    use_pmr: bool,
}

/// Arguments of `drive unbind`
#[derive(Args, Debug)]
pub struct UnbindArgs {
    /// Drives: name, NQN or PCI address
    #[arg(required_unless_present = "all", value_name = "DRIVE")]
    drives: Vec<String>,

    /// All drives that csd has
    #[arg(long, conflicts_with = "drives")]
    all: bool,

    /// Also drives that are in a mesh: what runs in it ends with ENODEV
    #[arg(long)]
    force: bool,
}

#[derive(Serialize)]
struct BindReport {
    drives: Vec<DriveReport>,
    skipped: Vec<Skipped>,
}

#[derive(Serialize)]
struct Skipped {
    pci: String,
    reason: String,
}

#[derive(Serialize)]
struct UnbindReport {
    drives: Vec<Unbound>,
}

#[derive(Serialize)]
struct Unbound {
    name: String,
    pci: String,
    driver: Option<String>,
}

/// Runs `drive bind`.
///
/// # Errors
/// A drive is unknown, in use, or cannot be brought up. Drives before it stay bound.
pub fn bind(args: &BindArgs, world: &World<'_>, output: &mut Output<'_>) -> Outcome {
    if !world.host.has_csd() {
        return Err(Failure::new("the csd module is not loaded")
            .remedy("modprobe csd")
            .exit(Exit::NoDevice));
    }
    let mut skipped = Vec::new();
    let chosen = if args.all {
        world
            .host
            .nvme_devices()
            .into_iter()
            .filter_map(|device| match claim(world, &device) {
                Ok(claim) => Some((device, claim)),
                Err(failure) => {
                    output.note(&format!("skipped: {}", failure.message));
                    skipped.push(Skipped {
                        pci: device.address.to_string(),
                        reason: failure.message,
                    });
                    None
                }
            })
            .collect()
    } else {
        let mut devices = args
            .drives
            .iter()
            .map(|name| find(world, name))
            .collect::<Outcome<Vec<_>>>()?;
        devices.sort_by_key(|device| device.address);
        devices.dedup_by_key(|device| device.address);
        let claims = devices
            .iter()
            .map(|device| claim(world, device))
            .collect::<Outcome<Vec<_>>>()?;
        devices.into_iter().zip(claims).collect::<Vec<_>>()
    };
    if chosen.is_empty() && !skipped.is_empty() {
        return Err(Failure::refused("no drive is free to be bound").remedy("csdctl doctor"));
    }

    let mut drives = Vec::new();
    for (device, claim) in chosen {
        let drive = take(world, &device, args.use_pmr)?;
        drop(claim);
        output.line(&format!(
            "{}  {}  {}",
            drive.name(),
            drive.pci(),
            drive.nqn()
        ))?;
        drives.push(report::drive(&*world.device()?, &drive)?);
    }
    output.json(&BindReport { drives, skipped })
}

/// The NVMe controller that `name` names, whoever has it.
fn find(world: &World<'_>, name: &str) -> Outcome<NvmeDevice> {
    let missing = |message: String| {
        Failure::new(message)
            .drive(name)
            .remedy("csdctl doctor, which lists all NVMe drives with their PCI addresses")
    };
    if let Ok(address) = name.parse::<PciAddress>() {
        return world
            .host
            .nvme_device(address)
            .ok_or_else(|| missing(format!("there is no NVMe drive at {address}")));
    }
    // csd's own names are names too, for drives that it has already.
    if let Some(address) = world
        .device()
        .and_then(|device| Ok(Drives::load(&*device)?.find(name)?.pci()))
        .ok()
        .and_then(|pci| pci.parse().ok())
    {
        return world
            .host
            .nvme_device(address)
            .ok_or_else(|| missing(format!("there is no NVMe drive at {address}")));
    }
    let mut found: Vec<NvmeDevice> = world
        .host
        .nvme_devices()
        .into_iter()
        .filter(|device| {
            device.controller.as_deref() == Some(name) || device.nqn.as_deref() == Some(name)
        })
        .collect();
    match found.len() {
        1 => Ok(found.remove(0)),
        0 => Err(missing(format!("no NVMe drive answers to {name:?}"))),
        _ => Err(Failure::new(format!(
            "{name:?} names several drives: {}",
            joined(found.iter().map(|device| device.address.to_string()))
        ))
        .remedy("the PCI address of the one that is meant")),
    }
}

/// Makes sure that nobody uses the drive, and that nobody begins to while the claim lives.
fn claim(world: &World<'_>, device: &NvmeDevice) -> Outcome<Claim> {
    match device.driver.as_deref() {
        None | Some(CSD_DRIVER) => Ok(Claim::default()),
        Some("nvme") => inuse::claim(world.host, device),
        Some(other) => Err(
            Failure::refused(format!("{} is bound to {other}", device.address))
                .remedy(format!(
                    "echo {} > /sys/bus/pci/drivers/{other}/unbind, if {other} need not have it",
                    device.address
                ))
                .drive(device.address.to_string()),
        ),
    }
}

/// Binds the drive to csd and waits until it is ready. If that fails the in-box driver gets it
/// back. A drive that csd has already is only told about consent.
fn take(world: &World<'_>, device: &NvmeDevice, use_pmr: bool) -> Outcome<Drive> {
    if device.is_csd() {
        return settle(world, device.address, use_pmr);
    }
    let taken = world
        .host
        .hand_over(device.address, Some(CSD_DRIVER))
        .and_then(|()| settle(world, device.address, use_pmr));
    taken.map_err(|mut failure| {
        match world.host.hand_over(device.address, None) {
            Ok(()) => {
                let driver = world.host.driver(device.address);
                failure.message += &match driver {
                    Some(driver) => format!("; {} is back with {driver}", device.address),
                    None => format!("; {} has no driver now", device.address),
                };
            }
            Err(second) => {
                failure.message += &format!(
                    "; and {} could not be given back: {}",
                    device.address, second.message
                );
            }
        }
        failure
    })
}

/// Waits until the drive at `address` is ready, and gives consent to use its PMR if asked to.
fn settle(world: &World<'_>, address: PciAddress, use_pmr: bool) -> Outcome<Drive> {
    let look_at_log = "dmesg | grep csd, which says why";
    let failed = |message: String| {
        Failure::new(message)
            .drive(address.to_string())
            .remedy(look_at_log)
    };
    if world.host.driver(address).as_deref() != Some(CSD_DRIVER) {
        return Err(failed(format!("csd does not take {address}")));
    }
    let started = Instant::now();
    let device = world.device()?;
    let drive = loop {
        let drives = Drives::load(&*device)?;
        let found = drives
            .iter()
            .find(|drive| drive.pci() == address.to_string());
        match found {
            Some(drive) if drive.info.state == CSD_DRIVE_READY => break drive.clone(),
            Some(drive) if drive.info.state == CSD_DRIVE_FAILED => {
                return Err(failed(format!(
                    "{} ({address}) failed to start",
                    drive.name()
                )));
            }
            _ if started.elapsed() > READY_TIMEOUT => {
                return Err(failed(format!(
                    "{address} is not ready after {} s",
                    READY_TIMEOUT.as_secs()
                ))
                .exit(Exit::Timeout));
            }
            _ => sleep(READY_POLL),
        }
    };
    if use_pmr {
        match device.drive_set(drive.info.drive, CSD_DRIVE_SET_USE_PMR) {
            // Consent to use what is not there does no harm.
            Ok(()) | Err(Errno::EOPNOTSUPP) => {}
            // Its PMR is in use already if it is in a mesh.
            Err(Errno::EBUSY) if drive.info.mesh != CSD_MESH_NONE => {}
            Err(errno) => {
                return Err(
                    Failure::errno(format!("{}: cannot use its PMR", drive.name()), errno)
                        .drive(drive.name())
                        .remedy(look_at_log),
                );
            }
        }
    }
    let info = device
        .drive_info(drive.info.drive)
        .map_err(|errno| Failure::errno(drive.name(), errno).drive(drive.name()))?;
    Ok(Drive { info })
}

/// Runs `drive unbind`.
///
/// # Errors
/// A drive is unknown or in a mesh, or sysfs refuses.
pub fn unbind(args: &UnbindArgs, world: &World<'_>, output: &mut Output<'_>) -> Outcome {
    let device = world.device()?;
    let all = Drives::load(&*device)?;
    let chosen = if args.all {
        all.iter().collect()
    } else {
        args.drives
            .iter()
            .map(|name| all.find(name))
            .collect::<Outcome<Vec<_>>>()?
    };
    let member = chosen.iter().find(|drive| drive.info.mesh != CSD_MESH_NONE);
    if let (Some(drive), false) = (member, args.force) {
        let (name, mesh) = (drive.name(), mesh_name(drive.info.mesh));
        return Err(Failure::refused(format!("{name} is in {mesh}"))
            .remedy(format!("csdctl mesh destroy {mesh}, or --force"))
            .drive(name));
    }
    let mut drives = Vec::new();
    for drive in chosen {
        let address: PciAddress = drive
            .pci()
            .parse()
            .map_err(|_| Failure::new(format!("{}: odd PCI address", drive.name())))?;
        // Named twice, and gone after the first time.
        if world.host.driver(address).as_deref() != Some(CSD_DRIVER) {
            continue;
        }
        world
            .host
            .hand_over(address, None)
            .map_err(|failure| failure.drive(drive.name()))?;
        drives.push(Unbound {
            name: drive.name(),
            pci: drive.pci(),
            driver: world.host.driver(address),
        });
    }
    output.json(&UnbindReport { drives })
}
