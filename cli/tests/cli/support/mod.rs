// SPDX-License-Identifier: GPL-2.0

//! A machine to run csdctl on without one: a device that keeps drives, meshes and pipelines in
//! memory, trees that look like sysfs and procfs, and transcripts to compare with.
//!
//! The device is a stand-in for the module, not a copy of it: it answers as `uapi/csd.h` says and
//! runs pipelines with the functions of `idc`, so that parameters which csdctl encodes wrongly
//! give a wrong result.

pub mod device;
pub mod golden;
pub mod kernel;
mod pipeline;
pub mod schema;

use csdctl::failure::Exit;
use csdctl::output::Terminal;
use csdctl::sysfs::Host;
use csdctl::World;
use device::{Fake, Handle};
use std::cell::RefCell;
use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::rc::Rc;

/// A machine: a device that may be missing, trees, and what the streams are connected to.
pub struct Machine {
    pub fake: Rc<RefCell<Fake>>,
    pub host: Host,
    pub terminal: Terminal,
    pub dir: tempfile::TempDir,
}

/// What a run of csdctl left.
#[derive(Debug)]
pub struct Ran {
    pub exit: Exit,
    pub out: Vec<u8>,
    pub err: String,
}

impl Machine {
    /// A machine with this device and empty trees.
    pub fn new(fake: Fake) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let fake = Rc::new(RefCell::new(fake));
        let host = Host {
            sys: dir.path().join("sys"),
            proc: dir.path().join("proc"),
            dev: dir.path().join("dev"),
            write: Box::new(|_, _| Err(io::ErrorKind::NotFound.into())),
        };
        Self {
            fake,
            host,
            terminal: Terminal::default(),
            dir,
        }
    }

    /// Runs csdctl with these arguments.
    pub fn run(&self, args: &[&str]) -> Ran {
        let open = || -> io::Result<Box<dyn csdctl::device::Device>> {
            match self.fake.borrow().missing {
                Some(code) => Err(io::Error::from_raw_os_error(code)),
                None => Ok(Box::new(Handle(Rc::clone(&self.fake)))),
            }
        };
        let world = World {
            host: &self.host,
            open: &open,
            // Not random, so that what comes of it is known.
            random: &|buffer| {
                buffer.fill(0xa5);
                Ok(())
            },
            terminal: self.terminal,
        };
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let args = std::iter::once("csdctl").chain(args.iter().copied());
        let exit = csdctl::run(args.map(OsString::from), &world, &mut out, &mut err);
        Ran {
            exit,
            out,
            err: String::from_utf8(err).unwrap(),
        }
    }

    pub fn path(&self, name: &str) -> String {
        self.dir.path().join(name).to_str().unwrap().to_string()
    }

    pub fn write(&self, name: &str, bytes: &[u8]) {
        write(&self.dir.path().join(name), bytes);
    }
}

/// Writes a file and makes the directories that it is in.
pub fn write(path: &Path, bytes: &[u8]) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, bytes).unwrap();
}
