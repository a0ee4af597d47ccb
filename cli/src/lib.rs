// SPDX-License-Identifier: GPL-2.0

//! csdctl: makes NVMe drives that compute work together.
//!
//! Owns the command line and the world that commands see, which tests replace. Commands are one
//! file (or directory) a noun; only [`sys`] makes system calls of the ABI.

#![deny(unsafe_code, missing_docs)]
#![warn(clippy::undocumented_unsafe_blocks)]

pub mod device;
pub mod doctor;
pub mod drive;
pub mod failure;
pub mod mesh;
pub mod monitor;
pub mod msg;
pub mod names;
pub mod output;
pub mod pages;
pub mod pipeline;
pub mod sys;
pub mod sysfs;
pub mod units;

use clap::{CommandFactory, Parser, Subcommand};
use device::Device;
use failure::{Exit, Failure, Outcome, EXIT_CODES};
use output::{Format, Output, Terminal};
use std::ffi::OsString;
use std::io::{self, IsTerminal, Write};
use sysfs::Host;

/// Makes NVMe computational storage drives work together
///
/// Drives that csd has taken over form meshes: they put messages and data into each other's
/// memory, and run pipelines such as filter,encrypt from drive to drive.
///
/// Wherever a drive is expected its name (csd0), its NQN or its PCI address will do. Sizes are bytes,
/// or take KiB, MiB, GiB, TiB.
#[derive(Parser, Debug)]
#[command(name = "csdctl", version, after_help = EXIT_CODES, after_long_help = EXIT_CODES)]
#[command(subcommand_required = true, arg_required_else_help = true)]
pub struct Cli {
    /// For whom the output is
    #[arg(
        short,
        long,
        global = true,
        value_enum,
        default_value = "human",
        value_name = "FORMAT"
    )]
    output: Format,

    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Drives: list, show, bind, unbind
    #[command(subcommand)]
    Drive(drive::DriveCommand),
    /// Meshes: create, show, reset, destroy
    #[command(subcommand)]
    Mesh(mesh::MeshCommand),
    /// Messages: ping, send, recv
    #[command(subcommand)]
    Msg(msg::MsgCommand),
    /// Pipelines: run, plan, list, cancel
    #[command(subcommand)]
    Pipeline(pipeline::PipelineCommand),
    /// Print events as they come
    Monitor(monitor::MonitorArgs),
    /// Tell what works on this machine, what does not, and what to do about it
    Doctor(doctor::DoctorArgs),
    /// Print a completion script for a shell
    Completions(pages::CompletionsArgs),
    /// Print the manual page, or write those of all commands to a directory
    Man(pages::ManArgs),
}

/// The machine as commands see it. Tests build their own.
pub struct World<'a> {
    /// sysfs and the like.
    pub host: &'a Host,
    /// Opens the character device.
    pub open: &'a dyn Fn() -> io::Result<Box<dyn Device>>,
    /// Fills a buffer with bytes fit for cryptography.
    pub random: &'a dyn Fn(&mut [u8]) -> io::Result<()>,
    /// What the output streams are connected to.
    pub terminal: Terminal,
}

impl World<'_> {
    /// Opens the character device.
    ///
    /// # Errors
    /// The module is not loaded, or the user may not.
    pub fn device(&self) -> Outcome<Box<dyn Device>> {
        (self.open)().map_err(|error| {
            let failure = Failure::io("/dev/csd", &error).exit(Exit::NoDevice);
            match error.kind() {
                io::ErrorKind::NotFound => failure.remedy("modprobe csd"),
                io::ErrorKind::PermissionDenied => {
                    failure.remedy("the same as root, or as a member of the group csd")
                }
                _ => failure.remedy("dmesg | grep csd"),
            }
        })
    }
}

/// Runs csdctl on this machine with the arguments of the process.
pub fn run_here() -> Exit {
    let host = Host::default();
    let node = host.dev.join("csd");
    let world = World {
        host: &host,
        open: &|| Ok(Box::new(sys::CharDevice::open(&node)?)),
        random: &|buffer| getrandom::fill(buffer).map_err(io::Error::other),
        terminal: Terminal {
            out: io::stdout().is_terminal(),
            err: io::stderr().is_terminal(),
            color: std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()),
        },
    };
    // Standard error is not locked: the progress bar writes there too.
    run(
        std::env::args_os(),
        &world,
        &mut io::stdout().lock(),
        &mut io::stderr(),
    )
}

/// Runs csdctl with these arguments, the program's name first, and returns what it exits with.
pub fn run(
    args: impl IntoIterator<Item = OsString>,
    world: &World<'_>,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> Exit {
    let args: Vec<OsString> = args.into_iter().collect();
    let cli = match Cli::try_parse_from(&args) {
        Ok(cli) => cli,
        Err(error) => return unparsed(&error, wants_json(&args), world, out, err),
    };
    let mut output = Output::new(cli.output, world.terminal, out, err);
    let draws = matches!(&cli.command, Command::Mesh(mesh::MeshCommand::Show(_)));
    if cli.output.is_drawing() && !draws {
        let failure = Failure::usage("only mesh show draws: -o dot, -o svg").remedy("-o json");
        output.failure(&failure);
        return failure.exit;
    }
    match dispatch(&cli.command, world, &mut output) {
        Ok(()) => Exit::Success,
        Err(failure) => {
            output.failure(&failure);
            failure.exit
        }
    }
}

fn dispatch(command: &Command, world: &World<'_>, output: &mut Output<'_>) -> Outcome {
    match command {
        Command::Drive(command) => drive::run(command, world, output),
        Command::Mesh(command) => mesh::run(command, world, output),
        Command::Msg(command) => msg::run(command, world, output),
        Command::Pipeline(command) => pipeline::run(command, world, output),
        Command::Monitor(args) => monitor::run(args, world, output),
        Command::Doctor(args) => doctor::run(args, world, output),
        Command::Completions(args) => pages::completions(args, &Cli::command(), output),
        Command::Man(args) => pages::man(args, Cli::command(), output),
    }
}

/// Whether a command line that cannot be parsed asks for JSON, as far as one can tell.
fn wants_json(args: &[OsString]) -> bool {
    let args: Vec<_> = args.iter().map(|arg| arg.to_string_lossy()).collect();
    let one = |arg: &str| matches!(arg, "-ojson" | "-o=json" | "--output=json");
    let two = |pair: &[std::borrow::Cow<'_, str>]| {
        matches!(&*pair[0], "-o" | "--output") && pair[1] == "json"
    };
    args.iter().any(|arg| one(arg)) || args.windows(2).any(two)
}

/// Help, the version, or a usage error.
fn unparsed(
    error: &clap::Error,
    json: bool,
    world: &World<'_>,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> Exit {
    let rendered = error.render();
    let color = |terminal: bool| terminal && world.terminal.color;
    if !error.use_stderr() {
        let _ = match color(world.terminal.out) {
            true => write!(out, "{}", rendered.ansi()),
            false => write!(out, "{rendered}"),
        };
        return Exit::Success;
    }
    if json {
        let text = rendered.to_string();
        let message = text.trim().trim_start_matches("error: ").to_string();
        Output::new(Format::Json, world.terminal, out, err).failure(&Failure::usage(message));
    } else {
        let _ = match color(world.terminal.err) {
            true => write!(err, "{}", rendered.ansi()),
            false => write!(err, "{rendered}"),
        };
    }
    Exit::Usage
}
