// SPDX-License-Identifier: GPL-2.0

//! `csdctl completions` and `csdctl man`: made from the one description of the command line.
//!
//! Owns how these pages are generated and named; their words are those of the help texts.

use crate::failure::{Failure, Outcome, EXIT_CODES};
use crate::output::Output;
use clap::{Args, Command};
use clap_complete::Shell;
use clap_mangen::roff::{roman, Roff};
use clap_mangen::Man;
use std::fs;
use std::path::{Path, PathBuf};

/// Arguments of `completions`
#[derive(Args, Debug)]
pub struct CompletionsArgs {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

/// Arguments of `man`
#[derive(Args, Debug)]
pub struct ManArgs {
    /// Write the pages of csdctl and of all its commands to this directory
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,

    /// The command whose page is printed, such as "pipeline run"; csdctl's own if none is given
    #[arg(value_name = "COMMAND", conflicts_with = "dir")]
    command: Vec<String>,
}

/// Prints a completion script.
///
/// # Errors
/// Standard output cannot be written.
pub fn completions(args: &CompletionsArgs, command: &Command, output: &mut Output<'_>) -> Outcome {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command.clone(), "csdctl", &mut script);
    output.raw(&script)
}

/// Prints a manual page, or writes all of them.
///
/// # Errors
/// There is no such command, or a file cannot be written.
pub fn man(args: &ManArgs, command: Command, output: &mut Output<'_>) -> Outcome {
    let mut command = command.disable_help_subcommand(true);
    command.build();
    if let Some(dir) = &args.dir {
        return write_all(&command, "csdctl", dir);
    }
    let mut wanted = &command;
    let mut name = "csdctl".to_string();
    for word in &args.command {
        wanted = wanted.find_subcommand(word).ok_or_else(|| {
            Failure::usage(format!("{name} has no command {word:?}")).remedy("csdctl --help")
        })?;
        name = format!("{name}-{word}");
    }
    output.raw(&page(wanted, &name)?)
}

fn page(command: &Command, name: &str) -> Outcome<Vec<u8>> {
    let rendered = |result: std::io::Result<()>| {
        result.map_err(|error| Failure::io(format!("page of {name}"), &error))
    };
    // What follows the long help becomes sections of their own, below.
    let after = command
        .get_after_long_help()
        .map(ToString::to_string)
        .unwrap_or_default();
    let details = after.replace(EXIT_CODES, "");
    let command = command
        .clone()
        .name(name.to_string())
        .display_name(name.to_string())
        .after_help("")
        .after_long_help("");
    let man = Man::new(command).section("8").manual("csd").source("csd");
    let mut page = Vec::new();
    rendered(man.render(&mut page))?;
    let mut rest = Roff::new();
    if !details.trim().is_empty() {
        rest.control("SH", ["DETAILS"]);
        rest.control("nf", []);
        for line in details.trim().lines() {
            rest.text([roman(line)]);
        }
        rest.control("fi", []);
    }
    rest.control("SH", ["EXIT STATUS"]);
    for line in EXIT_CODES.lines().skip(1) {
        rest.control("TP", []);
        let (code, meaning) = line.trim().split_once(' ').unwrap_or((line, ""));
        rest.text([roman(code)]);
        rest.text([roman(meaning.trim())]);
    }
    rendered(rest.to_writer(&mut page))?;
    Ok(page)
}

fn write_all(command: &Command, name: &str, dir: &Path) -> Outcome {
    let path = dir.join(format!("{name}.8"));
    let page = page(command, name)?;
    fs::create_dir_all(dir)
        .and_then(|()| fs::write(&path, page))
        .map_err(|error| Failure::io(path.display(), &error))?;
    for child in command.get_subcommands() {
        write_all(child, &format!("{name}-{}", child.get_name()), dir)?;
    }
    Ok(())
}
