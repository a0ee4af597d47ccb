// SPDX-License-Identifier: GPL-2.0

//! What drives and meshes are called.
//!
//! Owns the way from a name, an NQN or a PCI address to a drive, and back. It never guesses: two
//! drives that answer to a name are an error that names both.

use crate::device::Device;
use crate::failure::{Failure, Outcome};
use crate::sys::abi::{csd_drive_info, csd_mesh_info, csd_mesh_member, CSD_MEMBER_HOST};
use crate::sysfs::PciAddress;
use nix::errno::Errno;
use std::ffi::c_char;

/// The host, where a member of a mesh is expected.
pub const HOST: &str = "host";

/// Text of the ABI: up to the first NUL, with what would upset a terminal replaced, since drives
/// choose it freely.
pub fn text(field: &[c_char]) -> String {
    let bytes: Vec<u8> = field
        .iter()
        .map(|unit| *unit as u8)
        .take_while(|byte| *byte != 0)
        .collect();
    String::from_utf8_lossy(&bytes)
        .chars()
        .map(|c| {
            if c.is_control() {
                char::REPLACEMENT_CHARACTER
            } else {
                c
            }
        })
        .collect()
}

/// Name of the drive with this number.
pub fn drive_name(number: u32) -> String {
    format!("csd{number}")
}

/// Name of a member: a drive, or the host.
pub fn member_name(number: u32) -> String {
    if number == CSD_MEMBER_HOST {
        HOST.into()
    } else {
        drive_name(number)
    }
}

/// Name of the mesh with this number.
pub fn mesh_name(number: u32) -> String {
    format!("mesh{number}")
}

/// The number at the end of `text`, if the rest is `stem`.
fn numbered(text: &str, stem: &str) -> Option<u32> {
    let digits = text.strip_prefix(stem)?;
    let plain = digits.bytes().all(|byte| byte.is_ascii_digit());
    (plain && (digits == "0" || !digits.starts_with('0'))).then(|| digits.parse().ok())?
}

/// The numbers of the bits set in `mask`.
pub fn bits(mask: u64) -> impl Iterator<Item = u32> {
    (0..u64::BITS).filter(move |bit| mask & (1 << bit) != 0)
}

/// A bound drive.
#[derive(Clone, Debug)]
pub struct Drive {
    /// What the module tells about it.
    pub info: csd_drive_info,
}

impl Drive {
    /// `csd0`
    pub fn name(&self) -> String {
        drive_name(self.info.drive)
    }

    /// `0000:03:00.0`
    pub fn pci(&self) -> String {
        text(&self.info.pci)
    }

    /// Its subsystem's NQN.
    pub fn nqn(&self) -> String {
        text(&self.info.nqn)
    }

    fn answers_to(&self, name: &str) -> bool {
        self.name() == name
            || self.nqn() == name
            || name
                .parse::<PciAddress>()
                .is_ok_and(|address| address.to_string() == self.pci())
    }
}

/// All bound drives, by number.
#[derive(Clone, Debug)]
pub struct Drives {
    list: Vec<Drive>,
}

impl Drives {
    /// Asks the module for them.
    ///
    /// # Errors
    /// The module does not answer.
    pub fn load(device: &dyn Device) -> Outcome<Self> {
        let info = device
            .info()
            .map_err(|errno| Failure::errno("csd", errno))?;
        let mut list = Vec::new();
        for number in bits(info.drives) {
            match device.drive_info(number) {
                Ok(info) => list.push(Drive { info }),
                // It went away between the two calls.
                Err(Errno::ENXIO | Errno::ENODEV) => {}
                Err(errno) => {
                    let name = drive_name(number);
                    return Err(Failure::errno(&name, errno).drive(name));
                }
            }
        }
        Ok(Self { list })
    }

    /// In the order of their numbers.
    pub fn iter(&self) -> impl Iterator<Item = &Drive> {
        self.list.iter()
    }

    /// The drive with this number.
    pub fn number(&self, number: u32) -> Option<&Drive> {
        self.list.iter().find(|drive| drive.info.drive == number)
    }

    /// The drive that answers to `name`: its name, its NQN or its PCI address.
    ///
    /// # Errors
    /// None does, or several do.
    pub fn find(&self, name: &str) -> Outcome<&Drive> {
        let found: Vec<&Drive> = self
            .list
            .iter()
            .filter(|drive| drive.answers_to(name))
            .collect();
        match found[..] {
            [drive] => Ok(drive),
            [] => Err(self.unknown(name)),
            _ => Err(Failure::new(format!(
                "{name:?} names several drives: {}",
                joined(found.iter().map(|drive| drive.name()))
            ))
            .remedy("the name or the PCI address of the one that is meant")),
        }
    }

    /// The member that answers to `name`: the host or a drive.
    ///
    /// # Errors
    /// As [`Drives::find`].
    pub fn find_member(&self, name: &str) -> Outcome<u32> {
        if name == HOST {
            return Ok(CSD_MEMBER_HOST);
        }
        Ok(self.find(name)?.info.drive)
    }

    fn unknown(&self, name: &str) -> Failure {
        let mut failure = Failure::new(if self.list.is_empty() {
            format!("no drive {name:?}: none is bound to csd")
        } else {
            let known = joined(self.list.iter().map(Drive::name));
            format!("no drive {name:?}: bound to csd are {known}")
        });
        failure.drive = Some(name.to_string());
        failure.errno = Some(Errno::ENXIO);
        failure.remedy(if self.list.is_empty() {
            "csdctl drive bind --all, or csdctl doctor"
        } else {
            "csdctl drive list"
        })
    }
}

/// A mesh and its members.
#[derive(Clone, Debug)]
pub struct Mesh {
    /// What the module tells about it.
    pub info: csd_mesh_info,
    /// Its members, the host included.
    pub members: Vec<csd_mesh_member>,
}

impl Mesh {
    /// `mesh0`
    pub fn name(&self) -> String {
        mesh_name(self.info.mesh)
    }

    /// The drives in it, by number; not the host.
    pub fn drives(&self) -> impl Iterator<Item = u32> + '_ {
        self.members
            .iter()
            .map(|member| member.drive)
            .filter(|drive| *drive != CSD_MEMBER_HOST)
    }
}

/// All meshes, by number.
///
/// # Errors
/// The module does not answer.
pub fn meshes(device: &dyn Device) -> Outcome<Vec<Mesh>> {
    let info = device
        .info()
        .map_err(|errno| Failure::errno("csd", errno))?;
    let mut list = Vec::new();
    for number in bits(info.meshes) {
        match device.mesh_info(number) {
            Ok((info, members)) => list.push(Mesh { info, members }),
            Err(Errno::ENXIO) => {}
            Err(errno) => return Err(Failure::errno(mesh_name(number), errno)),
        }
    }
    Ok(list)
}

/// The mesh that `name` names; without a name the only one there is.
///
/// # Errors
/// There is none of this name; or no name was given, and there is none or more than one.
pub fn find_mesh(device: &dyn Device, name: Option<&str>) -> Outcome<Mesh> {
    let mut list = meshes(device)?;
    let known = joined(list.iter().map(Mesh::name));
    let missing = |message: String| {
        let mut failure = Failure::new(message);
        failure.errno = Some(Errno::ENXIO);
        failure
    };
    if list.is_empty() {
        return Err(missing("there is no mesh".into()).remedy("csdctl mesh create"));
    }
    let Some(name) = name else {
        return match list.len() {
            1 => Ok(list.remove(0)),
            _ => Err(Failure::usage(format!("there are several meshes: {known}"))
                .remedy("the name of the one that is meant, with --mesh for msg and pipeline")),
        };
    };
    let number = numbered(name, "mesh").or_else(|| numbered(name, ""));
    list.into_iter()
        .find(|mesh| Some(mesh.info.mesh) == number)
        .ok_or_else(|| {
            missing(format!("no mesh {name:?}: there are {known}")).remedy("csdctl mesh show")
        })
}

/// `a, b, c`
pub fn joined(items: impl IntoIterator<Item = String>) -> String {
    items.into_iter().collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_no_leading_zeros_and_no_signs() {
        assert_eq!(numbered("mesh0", "mesh"), Some(0));
        assert_eq!(numbered("mesh12", "mesh"), Some(12));
        for text in ["mesh", "mesh01", "mesh+1", "mesh-1", "mesh1x", "meshes"] {
            assert_eq!(numbered(text, "mesh"), None, "{text:?}");
        }
    }

    #[test]
    fn text_ends_at_the_first_nul_and_cannot_upset_a_terminal() {
        let field: Vec<c_char> = b"a\x1b[31mb\0c"
            .iter()
            .map(|byte| *byte as c_char)
            .collect();
        assert_eq!(text(&field), "a\u{fffd}[31mb");
    }
}
