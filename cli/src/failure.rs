// SPDX-License-Identifier: GPL-2.0

//! How csdctl fails: a message that names the drive and the stage, a remedy, an exit code.
//!
//! Owns exit codes and the wording of errno values. It never prints; [`crate::output`] does.

use nix::errno::Errno;
use std::fmt;

/// How a run of csdctl ended. The numbers are part of its interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// All went well.
    Success = 0,
    /// What was asked for was not done, or `doctor` found a failure.
    Failure = 1,
    /// The command line makes no sense.
    Usage = 2,
    /// The csd module is not loaded, or its device may not be opened.
    NoDevice = 3,
    /// The time allowed is over.
    Timeout = 4,
    /// A drive, a memory or a file is in use, or would be overwritten.
    Refused = 5,
    /// SIGINT or SIGTERM; what was running is cancelled.
    Interrupted = 130,
}

/// The exit codes as help texts and the manual page give them.
pub const EXIT_CODES: &str = "\
Exit codes:
  0    done
  1    failed; doctor: at least one line says fail
  2    the command line makes no sense
  3    the csd module is not loaded, or /dev/csd may not be opened
  4    timed out
  5    refused: in use, or data would be overwritten
  130  cancelled by Ctrl-C or SIGTERM";

/// Why a command did not do what was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What went wrong, naming what it went wrong with.
    pub message: String,
    /// What to do about it: completes "try: ".
    pub remedy: Option<String>,
    /// The drive concerned, by name.
    pub drive: Option<String>,
    /// The pipeline stage concerned, `function@drive`.
    pub stage: Option<String>,
    /// The kernel's reason.
    pub errno: Option<Errno>,
    /// What csdctl exits with.
    pub exit: Exit,
}

/// What commands return.
pub type Outcome<T = ()> = Result<T, Failure>;

impl Failure {
    /// A failure that says `message`.
    pub fn new(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            remedy: None,
            drive: None,
            stage: None,
            errno: None,
            exit: Exit::Failure,
        }
    }

    /// A command line that makes no sense.
    pub fn usage(message: impl Into<String>) -> Self {
        Self::new(message).exit(Exit::Usage)
    }

    /// Something that is in use or would be overwritten.
    pub fn refused(message: impl Into<String>) -> Self {
        Self::new(message).exit(Exit::Refused)
    }

    /// `what` failed with `errno`.
    pub fn errno(what: impl fmt::Display, errno: Errno) -> Self {
        let exit = match errno {
            Errno::ETIMEDOUT => Exit::Timeout,
            Errno::EBUSY => Exit::Refused,
            Errno::EINTR => Exit::Interrupted,
            _ => Exit::Failure,
        };
        let mut failure = Self::new(format!("{what}: {}", describe(errno))).exit(exit);
        failure.errno = Some(errno);
        failure
    }

    /// `what` failed with an error of the standard library.
    pub fn io(what: impl fmt::Display, error: &std::io::Error) -> Self {
        match error.raw_os_error() {
            Some(code) => Self::errno(what, Errno::from_raw(code)),
            None => Self::new(format!("{what}: {error}")),
        }
    }

    /// With what to do about it.
    #[must_use]
    pub fn remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = Some(remedy.into());
        self
    }

    /// With the drive that it is about.
    #[must_use]
    pub fn drive(mut self, drive: impl Into<String>) -> Self {
        self.drive = Some(drive.into());
        self
    }

    /// With the stage that it is about.
    #[must_use]
    pub fn stage(mut self, stage: impl Into<String>) -> Self {
        self.stage = Some(stage.into());
        self
    }

    /// With another exit code.
    #[must_use]
    pub fn exit(mut self, exit: Exit) -> Self {
        self.exit = exit;
        self
    }
}

/// What an errno means, in the words of the C library.
fn describe(errno: Errno) -> String {
    // "No such file" and the like are for files; the ABI uses these two for drives.
    match errno {
        Errno::ENODEV => "the drive is gone or not ready (ENODEV)".into(),
        Errno::ENXIO => "there is none (ENXIO)".into(),
        _ => format!("{} ({errno:?})", errno.desc()),
    }
}
