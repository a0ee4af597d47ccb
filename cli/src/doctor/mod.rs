// SPDX-License-Identifier: GPL-2.0

//! `csdctl doctor`: what works on this machine, what does not, and what to do about it.
//!
//! Owns the checks and their wording; [`topology`] knows how drives are connected. It changes
//! nothing: the one thing that it does to a drive is to time reads of its memory.

pub mod topology;

use crate::device::Device;
use crate::drive::{inuse, report};
use crate::failure::{Exit, Failure, Outcome};
use crate::names::{Drive, Drives};
use crate::output::{Output, Tone};
use crate::sys::abi::*;
use crate::sysfs::NvmeDevice;
use crate::units::{per_second, rate, size};
use crate::World;
use clap::Args;
use serde::Serialize;
use topology::Path;

/// Bytes that are read to time a drive's memory: enough for a figure, and over in a moment even
/// where every read crosses the bus alone.
const PROBE_BYTES: u64 = 64 << 10;

/// Host reads slower than this make the host the bottleneck of a proxied drive.
const SLOW_BYTES_PER_SECOND: u64 = 200 << 20;

/// Arguments of `doctor`
#[derive(Args, Debug)]
pub struct DoctorArgs {
    /// Do not time reads of the drives' memory
    #[arg(long)]
    no_probe: bool,
}

/// How a check came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Verdict {
    Ok,
    Warn,
    Fail,
}

/// One check.
#[derive(Debug, Serialize)]
struct Finding {
    verdict: Verdict,
    check: &'static str,
    subject: String,
    text: String,
    remedy: Option<String>,
    bytes_per_second: Option<u64>,
}

#[derive(Serialize)]
struct DoctorReport {
    checks: Vec<Finding>,
    failed: usize,
    warned: usize,
}

/// Collects findings.
#[derive(Default)]
struct Findings(Vec<Finding>);

impl Findings {
    fn add(
        &mut self,
        verdict: Verdict,
        check: &'static str,
        subject: impl Into<String>,
        text: impl Into<String>,
    ) -> &mut Finding {
        let index = self.0.len();
        self.0.push(Finding {
            verdict,
            check,
            subject: subject.into(),
            text: text.into(),
            remedy: None,
            bytes_per_second: None,
        });
        &mut self.0[index]
    }
}

impl Finding {
    fn remedy(&mut self, remedy: impl Into<String>) {
        self.remedy = Some(remedy.into());
    }

    fn count(list: &[Self], verdict: Verdict) -> usize {
        list.iter()
            .filter(|finding| finding.verdict == verdict)
            .count()
    }
}

/// Checks everything and says what it found.
///
/// # Errors
/// Something fails; the findings say what.
pub fn run(args: &DoctorArgs, world: &World<'_>, output: &mut Output<'_>) -> Outcome {
    let mut findings = Findings::default();
    let opened = module(world, &mut findings);
    let drives = opened
        .as_ref()
        .and_then(|device| Drives::load(&**device).ok());
    let devices = world.host.nvme_devices();
    if devices.is_empty() {
        findings
            .add(
                Verdict::Fail,
                "drives",
                "drives",
                "there is no NVMe drive on PCI",
            )
            .remedy("lspci -d ::0108");
    }
    for device in &devices {
        let drive = drives.as_ref().and_then(|drives| at(drives, device));
        bound(world, device, drive, &mut findings);
        if let (Some(drive), Some(opened)) = (drive, &opened) {
            memory(drive, &mut findings);
            if !args.no_probe {
                probe(&**opened, drive, &mut findings);
            }
        }
    }
    iommu(world, &devices, drives.as_ref(), &mut findings);
    pairs(world, &devices, drives.as_ref(), &mut findings);
    finish(findings.0, output)
}

fn finish(checks: Vec<Finding>, output: &mut Output<'_>) -> Outcome {
    let width = checks
        .iter()
        .map(|finding| finding.subject.chars().count())
        .max()
        .unwrap_or(0);
    for finding in &checks {
        let (word, tone) = match finding.verdict {
            Verdict::Ok => ("ok  ", Tone::Good),
            Verdict::Warn => ("warn", Tone::Warning),
            Verdict::Fail => ("fail", Tone::Bad),
        };
        let word = output.toned(word, tone);
        output.line(&format!(
            "{word}  {:<width$}  {}",
            finding.subject, finding.text
        ))?;
        if let Some(remedy) = &finding.remedy {
            output.line(&format!("      {:<width$}    try: {remedy}", ""))?;
        }
    }
    let failed = Finding::count(&checks, Verdict::Fail);
    let report = DoctorReport {
        failed,
        warned: Finding::count(&checks, Verdict::Warn),
        checks,
    };
    output.json(&report)?;
    match failed {
        0 => Ok(()),
        // The lines have said all there is to say.
        _ => Err(Failure::new("").exit(Exit::Failure)),
    }
}

/// The bound drive at a device's address.
fn at<'a>(drives: &'a Drives, device: &NvmeDevice) -> Option<&'a Drive> {
    let address = device.address.to_string();
    drives.iter().find(|drive| drive.pci() == address)
}

/// What the drive is called: `csd0`, or its address if csd does not have it.
fn name(drives: Option<&Drives>, device: &NvmeDevice) -> String {
    drives
        .and_then(|drives| at(drives, device))
        .map_or_else(|| device.address.to_string(), Drive::name)
}

fn module(world: &World<'_>, findings: &mut Findings) -> Option<Box<dyn Device>> {
    match world.device() {
        Ok(device) => match device.info() {
            Ok(info) if info.abi == CSD_ABI_VERSION => {
                let idc = format!("{}.{}", info.idc_version >> 16, info.idc_version & 0xffff);
                let text = format!("loaded, ABI {}, inter-drive protocol {idc}", info.abi);
                findings.add(Verdict::Ok, "module", "csd", text);
                Some(device)
            }
            Ok(info) => {
                let text = format!(
                    "loaded with ABI {}; csdctl speaks {CSD_ABI_VERSION}",
                    info.abi
                );
                findings
                    .add(Verdict::Fail, "module", "csd", text)
                    .remedy("module and csdctl of the same version");
                None
            }
            Err(errno) => {
                let text = format!("does not answer: {} ({errno:?})", errno.desc());
                findings
                    .add(Verdict::Fail, "module", "csd", text)
                    .remedy("dmesg | grep csd");
                None
            }
        },
        Err(failure) => {
            findings
                .add(Verdict::Fail, "module", "csd", failure.message)
                .remedy(failure.remedy.unwrap_or_default());
            None
        }
    }
}

fn bound(world: &World<'_>, device: &NvmeDevice, drive: Option<&Drive>, findings: &mut Findings) {
    let address = device.address.to_string();
    if let Some(drive) = drive {
        let state = report::state(drive.info.state);
        let text = format!("{address} bound to csd, {state}");
        let ready = drive.info.state == CSD_DRIVE_READY;
        let verdict = if ready { Verdict::Ok } else { Verdict::Fail };
        let finding = findings.add(verdict, "driver", drive.name(), text);
        if !ready {
            finding.remedy("dmesg | grep csd; csdctl drive unbind and bind start it anew");
        }
        if drive.info.critical_warning != 0 {
            let text = format!(
                "SMART critical warning {:#04x}",
                drive.info.critical_warning
            );
            findings
                .add(Verdict::Warn, "health", drive.name(), text)
                .remedy("csdctl drive unbind, and nvme smart-log, which tells more");
        }
        return;
    }
    match device.driver.as_deref() {
        None => findings
            .add(Verdict::Warn, "driver", &address, "no driver has it")
            .remedy(format!("csdctl drive bind {address}")),
        Some("nvme") => match inuse::uses(world.host, device).into_iter().next() {
            Some(found) => {
                let text = format!("bound to nvme, {} is {}", found.device, found.by);
                findings
                    .add(Verdict::Fail, "driver", &address, text)
                    .remedy(found.remedy);
            }
            None => findings
                .add(
                    Verdict::Warn,
                    "driver",
                    &address,
                    "bound to nvme, not in use",
                )
                .remedy(format!("csdctl drive bind {address}")),
        },
        Some("csd") => findings
            .add(
                Verdict::Warn,
                "driver",
                &address,
                "bound to csd, which cannot be asked about it",
            )
            .remedy("the same as root"),
        Some(other) => findings
            .add(
                Verdict::Fail,
                "driver",
                &address,
                format!("bound to {other}"),
            )
            .remedy(format!(
                "echo {address} > /sys/bus/pci/drivers/{other}/unbind, or leave this drive alone"
            )),
    }
}

fn memory(drive: &Drive, findings: &mut Findings) {
    let info = &drive.info;
    let name = drive.name();
    let (cmb, pmr) = (info.cmb_bytes, info.pmr_bytes);
    if cmb == 0 && pmr == 0 {
        findings
            .add(
                Verdict::Warn,
                "memory",
                &name,
                "no CMB or PMR: peers cannot send to it, so it cannot be in a mesh",
            )
            .remedy("a drive with a CMB or a PMR");
    }
    let state = |on: bool| if on { "on" } else { "off" };
    let cmb_on = info.memory_flags & CSD_MEMORY_CMB != 0;
    let pmr_on = info.memory_flags & CSD_MEMORY_PMR != 0;
    if cmb != 0 {
        let verdict = if cmb_on || pmr_on {
            Verdict::Ok
        } else {
            Verdict::Fail
        };
        let text = format!("CMB of {}, {}", size(cmb), state(cmb_on));
        let finding = findings.add(verdict, "memory", &name, text);
        if verdict == Verdict::Fail {
            finding.remedy("dmesg | grep csd, which says why it could not be enabled");
        }
    }
    if pmr != 0 {
        // Without a CMB it is the only memory there is.
        let verdict = match (pmr_on, cmb_on) {
            (true, _) => Verdict::Ok,
            (false, true) => Verdict::Warn,
            (false, false) => Verdict::Fail,
        };
        let text = format!("PMR of {}, {}", size(pmr), state(pmr_on));
        let finding = findings.add(verdict, "memory", &name, text);
        if verdict != Verdict::Ok {
            finding.remedy(format!(
                "csdctl drive bind --use-pmr {name}, if what it holds may be overwritten"
            ));
        }
    }
}

fn probe(device: &dyn Device, drive: &Drive, findings: &mut Findings) {
    let name = drive.name();
    for (flag, memory) in [(CSD_MEMORY_CMB, "CMB"), (CSD_MEMORY_PMR, "PMR")] {
        if drive.info.memory_flags & flag == 0 {
            continue;
        }
        match device.probe_memory(drive.info.drive, flag, PROBE_BYTES) {
            Ok(probe) => {
                let speed = per_second(probe.bytes, probe.read_ns);
                let slow = speed.is_some_and(|speed| speed < SLOW_BYTES_PER_SECOND);
                // Rings and buffers go to the PMR where there is one.
                let spare = flag == CSD_MEMORY_CMB && drive.info.memory_flags & CSD_MEMORY_PMR != 0;
                let proxied = drive.info.kind == CSD_DRIVE_PROXIED;
                let (verdict, remark) = match (slow && proxied, spare) {
                    (false, _) => (Verdict::Ok, ""),
                    (true, true) => (Verdict::Ok, "; its PMR is used instead"),
                    (true, false) => (
                        Verdict::Warn,
                        ": that bounds what it does while it is proxied",
                    ),
                };
                let text = format!(
                    "the host reads its {memory} at {}, writes it at {}{remark}",
                    rate(probe.bytes, probe.read_ns),
                    rate(probe.bytes, probe.write_ns)
                );
                let finding = findings.add(verdict, "speed", &name, text);
                finding.bytes_per_second = speed;
                if verdict == Verdict::Warn {
                    finding.remedy(match (memory, drive.info.pmr_bytes) {
                        ("CMB", 1..) => "its PMR: csdctl drive bind --use-pmr",
                        _ => "a drive with firmware of its own, if that is too slow",
                    });
                }
            }
            Err(errno) => {
                let text = format!("its {memory} cannot be timed: {} ({errno:?})", errno.desc());
                findings
                    .add(Verdict::Warn, "speed", &name, text)
                    .remedy("dmesg | grep csd");
            }
        }
    }
}

fn iommu(
    world: &World<'_>,
    devices: &[NvmeDevice],
    drives: Option<&Drives>,
    findings: &mut Findings,
) {
    for device in devices {
        let name = name(drives, device);
        match world.host.iommu_group(&device.path) {
            Some((group, kind)) if kind == "identity" => findings
                .add(
                    Verdict::Warn,
                    "iommu",
                    name,
                    format!("IOMMU group {group}, passed through: it can write anywhere"),
                )
                .remedy("the kernel without iommu=pt, if drives are not to be trusted"),
            Some((group, kind)) => {
                findings.add(
                    Verdict::Ok,
                    "iommu",
                    name,
                    format!("IOMMU group {group}, {kind}"),
                );
            }
            None => findings
                .add(
                    Verdict::Warn,
                    "iommu",
                    name,
                    "no IOMMU: it can write anywhere in the host's memory",
                )
                .remedy(
                    "intel_iommu=on or the firmware's setting, if drives are not to be trusted",
                ),
        }
    }
}

/// Each pair once: the way between two drives is the same in both directions.
fn pairs(
    world: &World<'_>,
    devices: &[NvmeDevice],
    drives: Option<&Drives>,
    findings: &mut Findings,
) {
    for (index, one) in devices.iter().enumerate() {
        for other in &devices[index + 1..] {
            let subject = format!("{} ↔ {}", name(drives, one), name(drives, other));
            match topology::between(world.host, &one.path, &other.path) {
                Path::Switch { upstream, redirecting } if redirecting.is_empty() => {
                    let text = format!("peer writes pass below switch {upstream}");
                    findings.add(Verdict::Ok, "path", subject, text);
                }
                Path::Switch { upstream, redirecting } => {
                    let text = format!(
                        "ACS at {} sends peer writes up from switch {upstream} to the root complex",
                        redirecting.join(", ")
                    );
                    findings.add(Verdict::Warn, "path", subject, text).remedy(format!(
                        "the kernel with pci=disable_acs_redir={}, if drives may reach each other unchecked",
                        redirecting.join(";")
                    ));
                }
                Path::Root { bridge } => findings
                    .add(
                        Verdict::Warn,
                        "path",
                        subject,
                        format!("no switch in common: peer writes pass the root complex {bridge}, if it lets them"),
                    )
                    .remedy("slots below one PCIe switch"),
                Path::Unknown => findings
                    .add(Verdict::Warn, "path", subject, "nothing in common: peer writes do not pass")
                    .remedy("slots below one PCIe switch"),
            }
        }
    }
}
