// SPDX-License-Identifier: GPL-2.0

//! How two PCI devices are connected, as sysfs tells.
//!
//! Owns walking up from both to what they have in common, and reading the two capabilities that
//! matter on the way: what kind of port a bridge is, and what its access controls (ACS) do to
//! requests between peers.

use crate::sysfs::{Host, PciAddress};
use std::fs;
use std::path::Path as FilePath;

/// The way between two devices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Path {
    /// They are below one switch.
    Switch {
        /// Its upstream port.
        upstream: PciAddress,
        /// Ports between it and the devices whose ACS sends requests between peers upwards.
        redirecting: Vec<String>,
    },
    /// They meet at a root complex only.
    Root {
        /// Its name in sysfs, such as `pci0000:00`.
        bridge: String,
    },
    /// They have nothing in common, or are not in sysfs as they should be.
    Unknown,
}

/// PCI Express capability, "Device/Port Type" field of its capabilities register (PCI Express Base
/// specification, 7.5.3.2).
const PORT_TYPE_UPSTREAM: u8 = 5;
const PORT_TYPE_DOWNSTREAM: u8 = 6;

/// What the walk needs of a function's configuration space.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Config {
    port_type: Option<u8>,
    acs_control: Option<u16>,
}

fn u16_at(bytes: &[u8], offset: usize) -> Option<u16> {
    let pair = bytes.get(offset..offset.checked_add(2)?)?;
    Some(u16::from_le_bytes([pair[0], pair[1]]))
}

fn u32_at(bytes: &[u8], offset: usize) -> Option<u32> {
    Some(
        u32::from(u16_at(bytes, offset)?)
            | (u32::from(u16_at(bytes, offset.checked_add(2)?)?) << 16),
    )
}

impl Config {
    /// Takes a configuration space apart. Users without rights see its first 64 bytes only, and
    /// nothing is known then.
    fn parse(bytes: &[u8]) -> Self {
        const CAPABILITY_POINTER: usize = 0x34;
        const CAPABILITY_EXPRESS: u8 = 0x10;
        const EXTENDED_START: usize = 0x100;
        const EXTENDED_ACS: u32 = 0x000d;
        const ACS_CONTROL: usize = 6;

        let mut config = Self::default();
        // Lists are at most as long as there is room for; a loop in one ends there.
        let mut at = usize::from(bytes.get(CAPABILITY_POINTER).copied().unwrap_or(0) & 0xfc);
        for _ in 0..48 {
            let (Some(id), Some(next)) = (bytes.get(at), bytes.get(at + 1)) else {
                break;
            };
            if at == 0 {
                break;
            }
            if *id == CAPABILITY_EXPRESS {
                config.port_type =
                    u16_at(bytes, at + 2).map(|register| ((register >> 4) & 0xf) as u8);
            }
            at = usize::from(next & 0xfc);
        }
        let mut at = EXTENDED_START;
        for _ in 0..480 {
            let Some(header) = u32_at(bytes, at) else {
                break;
            };
            if header & 0xffff == EXTENDED_ACS {
                config.acs_control = u16_at(bytes, at + ACS_CONTROL);
            }
            at = ((header >> 20) & 0xffc) as usize;
            if at < EXTENDED_START {
                break;
            }
        }
        config
    }

    fn read(device: &FilePath) -> Self {
        Self::parse(&fs::read(device.join("config")).unwrap_or_default())
    }

    /// Whether this downstream port sends requests between peers to the root complex: P2P Request
    /// Redirect, P2P Completion Redirect or P2P Egress Control is on, as the kernel's own test
    /// pci_bridge_has_acs_redir() in drivers/pci/p2pdma.c has it.
    fn redirects(self) -> bool {
        const REDIRECT: u16 = (1 << 2) | (1 << 3) | (1 << 5);
        self.acs_control
            .is_some_and(|control| control & REDIRECT != 0)
    }
}

/// The way between the devices with these (resolved) sysfs directories.
pub fn between(host: &Host, one: &FilePath, other: &FilePath) -> Path {
    let root =
        fs::canonicalize(host.sys.join("devices")).unwrap_or_else(|_| host.sys.join("devices"));
    let ancestors = |device: &FilePath| -> Option<Vec<String>> {
        let rest = device.strip_prefix(&root).ok()?;
        Some(
            rest.iter()
                .map(|part| part.to_string_lossy().into_owned())
                .collect(),
        )
    };
    let (Some(first), Some(second)) = (ancestors(one), ancestors(other)) else {
        return Path::Unknown;
    };
    let common = first
        .iter()
        .zip(&second)
        .take_while(|(a, b)| a == b)
        .count();
    // Devices outside PCI that both hang from, such as a VMD controller's, come before the root.
    let Some(bridge) = first[..common].iter().find(|name| name.starts_with("pci")) else {
        return Path::Unknown;
    };
    let directory = |parts: &[String]| root.join(parts.iter().collect::<std::path::PathBuf>());
    // The deepest common bridge of a switch is its upstream port.
    for depth in (1..=common).rev() {
        let Ok(upstream) = first[depth - 1].parse::<PciAddress>() else {
            continue;
        };
        if Config::read(&directory(&first[..depth])).port_type != Some(PORT_TYPE_UPSTREAM) {
            continue;
        }
        let mut redirecting = Vec::new();
        for way in [&first, &second] {
            for end in depth + 1..way.len() {
                let config = Config::read(&directory(&way[..end]));
                let name = &way[end - 1];
                let downstream = config.port_type == Some(PORT_TYPE_DOWNSTREAM);
                if downstream && config.redirects() && !redirecting.contains(name) {
                    redirecting.push(name.clone());
                }
            }
        }
        return Path::Switch {
            upstream,
            redirecting,
        };
    }
    Path::Root {
        bridge: bridge.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A configuration space with a PCI Express capability at 0x40 behind another one at 0x60, and
    /// ACS at 0x148 behind another extended capability at 0x100.
    fn config(port_type: u8, acs: u16) -> Vec<u8> {
        let mut bytes = vec![0; 4096];
        bytes[0x34] = 0x60;
        bytes[0x60..0x62].copy_from_slice(&[0x05, 0x40]);
        bytes[0x40..0x44].copy_from_slice(&[0x10, 0x00, 0x02 | (port_type << 4), 0x00]);
        bytes[0x100..0x104].copy_from_slice(&0x1481_0001_u32.to_le_bytes());
        bytes[0x148..0x14c].copy_from_slice(&0x0001_000d_u32.to_le_bytes());
        bytes[0x14e..0x150].copy_from_slice(&acs.to_le_bytes());
        bytes
    }

    #[test]
    fn port_type_and_access_control_are_found_in_their_lists() {
        let found = Config::parse(&config(6, 0x001d));
        assert_eq!(found.port_type, Some(6));
        assert_eq!(found.acs_control, Some(0x1d));
        assert!(found.redirects());
        assert!(!Config::parse(&config(6, 0x0011)).redirects());
    }

    #[test]
    fn a_cut_off_or_looping_configuration_space_is_survived() {
        assert_eq!(Config::parse(&[]), Config::default());
        assert_eq!(Config::parse(&config(5, 0)[..64]), Config::default());
        let mut looping = config(5, 0);
        looping[0x41] = 0x60;
        looping[0x148..0x14c].copy_from_slice(&0x1001_000d_u32.to_le_bytes());
        assert_eq!(Config::parse(&looping).port_type, Some(5));
        assert_eq!(Config::parse(&vec![0xff; 4096]).acs_control, None);
    }
}
