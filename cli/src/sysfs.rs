// SPDX-License-Identifier: GPL-2.0

//! What the kernel tells about PCI devices and block devices in sysfs and procfs.
//!
//! Owns reading these trees and the driver-binding files. It never judges: whether a drive is in
//! use, or well connected, is decided by those who ask.

use crate::failure::{Failure, Outcome};
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// PCI class code of an NVM Express I/O controller: mass storage, non-volatile memory, NVMe
/// (PCI Code and ID Assignment Specification, class 01h).
const CLASS_NVME: u32 = 0x01_08_02;

/// Name of the module's PCI driver.
pub const CSD_DRIVER: &str = "csd";

/// Where the kernel's trees are: `/sys`, `/proc` and `/dev`, or stand-ins for them in tests.
pub struct Host {
    /// sysfs
    pub sys: PathBuf,
    /// procfs
    pub proc: PathBuf,
    /// device nodes
    pub dev: PathBuf,
    /// Writes an attribute. Tests put a small kernel here that acts upon what is written.
    pub write: Write,
}

/// Writes text to an attribute.
pub type Write = Box<dyn Fn(&Path, &str) -> io::Result<()>>;

impl Default for Host {
    fn default() -> Self {
        Self {
            sys: "/sys".into(),
            proc: "/proc".into(),
            dev: "/dev".into(),
            write: Box::new(|path, text| fs::write(path, text)),
        }
    }
}

/// A PCI address. Ordered as the buses are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PciAddress {
    domain: u32,
    bus: u8,
    device: u8,
    function: u8,
}

impl fmt::Display for PciAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:04x}:{:02x}:{:02x}.{:x}",
            self.domain, self.bus, self.device, self.function
        )
    }
}

/// Not a PCI address.
#[derive(Debug, PartialEq, Eq)]
pub struct NotPci;

impl FromStr for PciAddress {
    type Err = NotPci;

    /// Reads `0000:03:00.0`; the domain may be left out.
    fn from_str(text: &str) -> Result<Self, NotPci> {
        let hex = |digits: &str, most: usize| {
            let good = (1..=most).contains(&digits.len())
                && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
            good.then(|| u32::from_str_radix(digits, 16).ok())
                .flatten()
                .ok_or(NotPci)
        };
        let (rest, function) = text.rsplit_once('.').ok_or(NotPci)?;
        let (rest, device) = rest.rsplit_once(':').ok_or(NotPci)?;
        let (domain, bus) = rest.rsplit_once(':').unwrap_or(("0", rest));
        let (device, function) = (hex(device, 2)?, hex(function, 1)?);
        if device > 0x1f || function > 7 {
            return Err(NotPci);
        }
        Ok(Self {
            domain: hex(domain, 8)?,
            bus: hex(bus, 2)? as u8,
            device: device as u8,
            function: function as u8,
        })
    }
}

/// Reads a sysfs attribute without the newline at its end.
pub fn attribute(path: &Path) -> io::Result<String> {
    Ok(fs::read_to_string(path)?.trim_end().to_string())
}

/// The names in a directory, sorted; none if there is no such directory.
pub fn names(path: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(path)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

/// The last part of what a symbolic link points to.
fn link_name(path: &Path) -> Option<String> {
    let target = fs::read_link(path).ok()?;
    Some(target.file_name()?.to_string_lossy().into_owned())
}

/// An NVMe controller on PCI, whoever has it.
#[derive(Clone, Debug)]
pub struct NvmeDevice {
    /// Where it is.
    pub address: PciAddress,
    /// Its driver, if it has one.
    pub driver: Option<String>,
    /// Its sysfs directory, symbolic links resolved.
    pub path: PathBuf,
    /// What the in-box driver calls it (`nvme0`), while it has it.
    pub controller: Option<String>,
    /// Its subsystem's NQN as the in-box driver tells it.
    pub nqn: Option<String>,
}

impl NvmeDevice {
    /// Whether csd has it.
    pub fn is_csd(&self) -> bool {
        self.driver.as_deref() == Some(CSD_DRIVER)
    }
}

impl Host {
    /// A directory or file below `/sys/bus/pci`.
    pub fn pci(&self, rest: impl AsRef<Path>) -> PathBuf {
        self.sys.join("bus/pci").join(rest)
    }

    /// Directory of a PCI device, as a path that ends in a symbolic link.
    pub fn device(&self, address: PciAddress) -> PathBuf {
        self.pci("devices").join(address.to_string())
    }

    /// All NVMe controllers, in PCI order.
    pub fn nvme_devices(&self) -> Vec<NvmeDevice> {
        let mut devices: Vec<NvmeDevice> = names(&self.pci("devices"))
            .iter()
            .filter_map(|name| name.parse().ok())
            .filter_map(|address| self.nvme_device(address))
            .collect();
        devices.sort_by_key(|device| device.address);
        devices
    }

    /// The NVMe controller at `address`, if there is one.
    pub fn nvme_device(&self, address: PciAddress) -> Option<NvmeDevice> {
        let path = fs::canonicalize(self.device(address)).ok()?;
        let class = attribute(&path.join("class")).ok()?;
        let class = u32::from_str_radix(class.trim_start_matches("0x"), 16).ok()?;
        if class != CLASS_NVME {
            return None;
        }
        let controller = names(&path.join("nvme")).into_iter().next();
        let nqn = controller
            .as_ref()
            .and_then(|name| attribute(&path.join("nvme").join(name).join("subsysnqn")).ok());
        Some(NvmeDevice {
            address,
            driver: self.driver(address),
            path,
            controller,
            nqn,
        })
    }

    /// The driver that has the device at `address`.
    pub fn driver(&self, address: PciAddress) -> Option<String> {
        link_name(&self.device(address).join("driver"))
    }

    /// Whether the csd module is there to bind drives to.
    pub fn has_csd(&self) -> bool {
        self.pci("drivers").join(CSD_DRIVER).is_dir()
    }

    /// Number of the device's IOMMU group, and the group's type (`DMA`, `DMA-FQ`, `identity`).
    pub fn iommu_group(&self, device: &Path) -> Option<(u32, String)> {
        let number = link_name(&device.join("iommu_group"))?;
        let path = self.sys.join("kernel/iommu_groups").join(&number);
        let kind = attribute(&path.join("type")).unwrap_or_else(|_| "unknown".into());
        Some((number.parse().ok()?, kind))
    }

    /// Takes the device from whatever driver has it and lets `driver` alone, or whichever driver
    /// wants it if there is none given, have it.
    ///
    /// # Errors
    /// One of the files cannot be written; the message names it.
    pub fn hand_over(&self, address: PciAddress, driver: Option<&str>) -> Outcome {
        let device = self.device(address);
        // An empty line clears the override.
        self.set(&device.join("driver_override"), driver.unwrap_or(""))?;
        if device.join("driver").exists() {
            self.set(&device.join("driver/unbind"), &address.to_string())?;
        }
        self.set(&self.pci("drivers_probe"), &address.to_string())
    }

    fn set(&self, path: &Path, text: &str) -> Outcome {
        (self.write)(path, &format!("{text}\n")).map_err(|error| {
            let failure = Failure::io(path.display(), &error);
            match error.kind() {
                io::ErrorKind::PermissionDenied => failure.remedy("the same as root"),
                _ => failure,
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pci_address_may_lack_its_domain() {
        let full: PciAddress = "0000:0a:1f.7".parse().unwrap();
        assert_eq!("0A:1F.7".parse(), Ok(full));
        assert_eq!(full.to_string(), "0000:0a:1f.7");
        assert_eq!(
            "10000:e1:00.0".parse::<PciAddress>().unwrap().to_string(),
            "10000:e1:00.0"
        );
    }

    #[test]
    fn what_is_no_pci_address_is_refused() {
        for text in [
            "",
            "csd0",
            "03:00",
            "3.0",
            "0000:03:20.0",
            "0000:03:00.8",
            "0000:100:00.0",
            ":03:00.0",
            "+1:00.0",
        ] {
            assert_eq!(text.parse::<PciAddress>(), Err(NotPci), "{text:?}");
        }
    }

    #[test]
    fn pci_addresses_order_as_buses_do() {
        let parse = |text: &str| text.parse::<PciAddress>().unwrap();
        assert!(parse("0000:0a:00.0") < parse("0001:01:00.0"));
        assert!(parse("ffff:01:00.0") < parse("10000:01:00.0"));
    }
}
