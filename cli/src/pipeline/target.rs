// SPDX-License-Identifier: GPL-2.0

//! Where the result of a pipeline goes: a file, standard output, or a drive.
//!
//! Owns reading `--to` and writing files. A file appears under its name only when it is complete:
//! until then it is `.NAME.csdctl-PID` beside it. Pipes and devices are written directly.

use crate::failure::{Failure, Outcome};
use crate::names::Drives;
use crate::sysfs::PciAddress;
use crate::units::{hex, parse_size};
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// What `--to` says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// Standard output.
    Stdout,
    /// A file.
    File(PathBuf),
    /// A drive's namespace, from this byte on.
    Drive {
        /// Drive number.
        drive: u32,
        /// Bytes from the namespace's start.
        offset: u64,
    },
}

/// Reads `--to`: `-`, `DRIVE:OFFSET` or the path of a file. What looks like a drive is one; a file
/// of such a name is given as `./NAME`.
///
/// # Errors
/// It looks like a drive that is not there.
pub fn parse(text: &str, drives: &Drives) -> Outcome<Target> {
    if text == "-" {
        return Ok(Target::Stdout);
    }
    if let Some((name, offset)) = text.rsplit_once(':') {
        let drive_like = name.starts_with("nqn.")
            || name.parse::<PciAddress>().is_ok()
            || name.strip_prefix("csd").is_some_and(|digits| {
                !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit())
            });
        if let (true, Ok(offset)) = (drive_like, parse_size(offset)) {
            let drive = drives.find(name)?.info.drive;
            return Ok(Target::Drive { drive, offset });
        }
    }
    if drives.find(text).is_ok() {
        return Err(
            Failure::usage(format!("--to {text}: a drive takes data at an offset")).remedy(
                format!("--to {text}:OFFSET, or --to ./{text} for a file of this name"),
            ),
        );
    }
    Ok(Target::File(text.into()))
}

/// A file being written.
#[derive(Debug)]
pub struct Output {
    path: PathBuf,
    /// Where the bytes are until the file is complete, if not at `path`.
    temporary: Option<PathBuf>,
    file: File,
}

impl Output {
    /// Begins to write the file at `path`.
    ///
    /// # Errors
    /// It, or a file beside it, cannot be created.
    pub fn create(path: &Path) -> Outcome<Self> {
        let failed = |path: &Path, error: &io::Error| Failure::io(path.display(), error);
        // Through symbolic links, so that they stay.
        let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
        let direct = fs::metadata(&path).is_ok_and(|found| !found.is_file());
        if direct {
            let file = OpenOptions::new()
                .write(true)
                .open(&path)
                .map_err(|error| failed(&path, &error))?;
            return Ok(Self {
                path,
                temporary: None,
                file,
            });
        }
        let mut name = OsString::from(".");
        name.push(path.file_name().ok_or_else(|| {
            Failure::usage(format!("{} is not the name of a file", path.display()))
        })?);
        name.push(format!(".csdctl-{}", std::process::id()));
        let temporary = path.with_file_name(name);
        let file = File::create_new(&temporary).map_err(|error| failed(&path, &error))?;
        if let Ok(found) = fs::metadata(&path) {
            // As if the file had been written in place.
            file.set_permissions(found.permissions())
                .map_err(|error| failed(&path, &error))?;
        }
        Ok(Self {
            path,
            temporary: Some(temporary),
            file,
        })
    }

    /// Whether it is a file that keeps what is written, not a pipe or a device.
    pub fn is_regular(&self) -> bool {
        self.temporary.is_some()
    }

    /// Appends.
    ///
    /// # Errors
    /// Those of write(2).
    pub fn write(&mut self, bytes: &[u8]) -> Outcome {
        self.file.write_all(bytes).map_err(|error| {
            let failure = Failure::io(self.path.display(), &error);
            match error.kind() {
                io::ErrorKind::StorageFull => failure.remedy("--to a place with more room"),
                _ => failure,
            }
        })
    }

    /// The file is complete: it gets its name.
    ///
    /// # Errors
    /// Those of rename(2).
    pub fn finish(mut self) -> Outcome {
        if let Some(temporary) = self.temporary.take() {
            fs::rename(&temporary, &self.path).map_err(|error| {
                let _ = fs::remove_file(&temporary);
                Failure::io(self.path.display(), &error)
            })?;
        }
        Ok(())
    }

    /// Keeps what there is, as `NAME.partial`, and returns that name.
    pub fn keep_partial(mut self) -> Option<PathBuf> {
        let temporary = self.temporary.take()?;
        let partial = suffixed(&self.path, ".partial");
        match fs::rename(&temporary, &partial) {
            Ok(()) => Some(partial),
            Err(_) => Some(temporary),
        }
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        if let Some(temporary) = &self.temporary {
            // What cannot be removed cannot be helped.
            let _ = fs::remove_file(temporary);
        }
    }
}

fn suffixed(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_os_string();
    name.push(suffix);
    name.into()
}

/// Writes the IVs that were drawn to `FILE.iv`, in hex, one a line in the order of their stages.
///
/// # Errors
/// The file cannot be written.
pub fn write_ivs(result: &Path, ivs: &[[u8; 16]]) -> Outcome<PathBuf> {
    let path = suffixed(result, ".iv");
    let text: String = ivs.iter().map(|iv| hex(iv) + "\n").collect();
    fs::write(&path, text).map_err(|error| Failure::io(path.display(), &error))?;
    Ok(path)
}
