// SPDX-License-Identifier: GPL-2.0

//! Whether somebody uses the block devices of a drive that the in-box driver has.
//!
//! Owns finding these devices, through NVMe multipath heads too, finding who uses them, and
//! holding them while the drive changes hands. It never changes anything.

use crate::failure::{Failure, Outcome};
use crate::sysfs::{attribute, names, Host, NvmeDevice};
use nix::fcntl::OFlag;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;

/// A block device in use, and by what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Use {
    /// Its node, `/dev/nvme0n1p1`.
    pub device: String,
    /// Completes "is …": `mounted on /srv`.
    pub by: String,
    /// Completes "try: ".
    pub remedy: String,
}

/// All namespaces of a drive, opened exclusively: nobody can mount them, swap to them or build
/// upon them until this is dropped.
///
/// A partition and its whole disk exclude each other in the kernel: while the whole is claimed its
/// partitions cannot be, and the other way round. So one exclusive descriptor for each namespace
/// holds all its partitions as well.
#[derive(Debug, Default)]
pub struct Claim {
    _files: Vec<File>,
}

/// A namespace's block device as users see it: `nvme0c1n2`, a path of a multipath device, stands
/// for its head `nvme0n2`. `None` if `name` is no namespace.
fn head(name: &str) -> Option<String> {
    let number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let (instance, namespace) = name.strip_prefix("nvme")?.rsplit_once('n')?;
    let instance = match instance.split_once('c') {
        Some((subsystem, path)) if number(path) => subsystem,
        Some(_) => return None,
        None => instance,
    };
    (number(instance) && number(namespace)).then(|| format!("nvme{instance}n{namespace}"))
}

/// Block devices of the drive's namespaces, multipath heads included.
fn namespaces(device: &NvmeDevice) -> Vec<String> {
    let Some(controller) = &device.controller else {
        return Vec::new();
    };
    let mut list: Vec<String> = names(&device.path.join("nvme").join(controller))
        .iter()
        .filter_map(|name| head(name))
        .collect();
    list.dedup();
    list
}

/// The mounts of this namespace of mounts: device number, source, mount point.
fn mounts(host: &Host) -> Vec<(String, String, String)> {
    let text = fs::read_to_string(host.proc.join("self/mountinfo")).unwrap_or_default();
    text.lines()
        .filter_map(|line| {
            // proc_pid_mountinfo(5): id parent major:minor root point options … - type source …
            let (first, second) = line.split_once(" - ")?;
            let mut first = first.split(' ');
            let number = first.nth(2)?;
            let point = first.nth(1)?;
            let source = second.split(' ').nth(1)?;
            Some((number.to_string(), unescape(source), unescape(point)))
        })
        .collect()
}

/// procfs writes blanks and the like as `\040`.
fn unescape(text: &str) -> String {
    let mut out = Vec::new();
    let mut bytes = text.as_bytes();
    while let [first, rest @ ..] = bytes {
        let code = text_code(bytes);
        out.push(code.unwrap_or(*first));
        bytes = if code.is_some() { &bytes[4..] } else { rest };
    }
    String::from_utf8_lossy(&out).into_owned()
}

fn text_code(bytes: &[u8]) -> Option<u8> {
    let [b'\\', digits @ ..] = bytes else {
        return None;
    };
    let digits = std::str::from_utf8(digits.get(..3)?).ok()?;
    u8::from_str_radix(digits, 8).ok()
}

/// Loop devices and what backs them. A loop device does not claim its backing device, so that an
/// exclusive descriptor does not keep clear of it.
fn loops(host: &Host) -> Vec<(String, String)> {
    let block = host.sys.join("class/block");
    names(&block)
        .into_iter()
        .filter_map(|name| {
            let file = attribute(&block.join(&name).join("loop/backing_file")).ok()?;
            Some((name, file))
        })
        .collect()
}

/// A path for the command line of a shell.
fn quoted(path: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:@".contains(c);
    if path.chars().all(plain) {
        path.to_string()
    } else {
        format!("'{}'", path.replace('\'', r"'\''"))
    }
}

/// Who uses the drive's block devices, as far as sysfs and procfs tell.
pub fn uses(host: &Host, device: &NvmeDevice) -> Vec<Use> {
    let mounts = mounts(host);
    let swaps = fs::read_to_string(host.proc.join("swaps")).unwrap_or_default();
    let loops = loops(host);
    let mut uses = Vec::new();
    for namespace in namespaces(device) {
        let whole = host.sys.join("class/block").join(&namespace);
        let parts = names(&whole)
            .into_iter()
            .filter(|name| whole.join(name).join("partition").exists())
            .map(|name| (whole.join(&name), name));
        for (path, name) in std::iter::once((whole.clone(), namespace.clone())).chain(parts) {
            let node = format!("/dev/{name}");
            let number = attribute(&path.join("dev")).unwrap_or_default();
            for (mounted, source, point) in &mounts {
                // Some file systems (btrfs) have a device number of their own; the source tells.
                if *mounted == number || *source == node {
                    uses.push(Use {
                        device: node.clone(),
                        by: format!("mounted on {point}"),
                        remedy: format!("umount {}, or leave this drive alone", quoted(point)),
                    });
                }
            }
            if swaps
                .lines()
                .any(|line| line.split_whitespace().next() == Some(&*node))
            {
                uses.push(Use {
                    device: node.clone(),
                    by: "used as swap".into(),
                    remedy: format!("swapoff {node}, or leave this drive alone"),
                });
            }
            for name in loops
                .iter()
                .filter(|(_, file)| *file == node)
                .map(|(name, _)| name)
            {
                uses.push(Use {
                    device: node.clone(),
                    by: format!("the backing file of /dev/{name}"),
                    remedy: format!("losetup -d /dev/{name}, or leave this drive alone"),
                });
            }
            for holder in names(&path.join("holders")) {
                uses.push(Use {
                    device: node.clone(),
                    by: format!("held by {holder}"),
                    remedy: format!("take {holder} down, or leave this drive alone"),
                });
            }
        }
    }
    uses
}

/// Opens all namespaces of the drive exclusively.
///
/// # Errors
/// One of them is in use, named with what uses it.
pub fn claim(host: &Host, device: &NvmeDevice) -> Outcome<Claim> {
    let address = device.address.to_string();
    if let Some(first) = uses(host, device).into_iter().next() {
        let message = format!("{address} is in use: {} is {}", first.device, first.by);
        return Err(Failure::refused(message)
            .remedy(first.remedy)
            .drive(address));
    }
    let mut files = Vec::new();
    for name in namespaces(device) {
        let opened = OpenOptions::new()
            .read(true)
            .custom_flags(OFlag::O_EXCL.bits())
            .open(host.dev.join(&name));
        match opened {
            Ok(file) => files.push(file),
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
                let message = format!(
                    "{address} is in use: another program holds /dev/{name} or a partition of it"
                );
                return Err(Failure::refused(message)
                    .remedy(format!("fuser -v /dev/{name}*, and end what it shows"))
                    .drive(address));
            }
            Err(error) => {
                return Err(Failure::io(
                    format!("cannot make sure that {address} is not in use: /dev/{name}"),
                    &error,
                )
                .drive(address));
            }
        }
    }
    Ok(Claim { _files: files })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_of_a_multipath_device_stands_for_its_head() {
        assert_eq!(head("nvme0n1").as_deref(), Some("nvme0n1"));
        assert_eq!(head("nvme0c3n12").as_deref(), Some("nvme0n12"));
        for name in [
            "nvme0",
            "ng0n1",
            "nvme0n",
            "nvme0n1p1",
            "nvmen1",
            "nvme0cn1",
            "hwmon3",
            "power",
        ] {
            assert_eq!(head(name), None, "{name}");
        }
    }

    #[test]
    fn mount_points_with_blanks_are_read() {
        assert_eq!(unescape(r"/mnt/a\040b\134c"), r"/mnt/a b\c");
        assert_eq!(unescape(r"/mnt/a\04"), r"/mnt/a\04");
    }
}
