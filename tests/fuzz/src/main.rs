// SPDX-License-Identifier: GPL-2.0

//! The fuzzer by itself: longer runs, replay of an input, and making the corpus.

use clap::{Parser, Subcommand};
use csd_fuzz::corpus::{minimise, parse, to_text};
use csd_fuzz::search::{Failure, Search};
use csd_fuzz::{run, Bug, Reached};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Lies to the ends of rings and lists.
#[derive(Parser)]
enum Options {
    /// Look for what must not happen.
    Run {
        /// Go on for so many states.
        #[arg(long)]
        states: Option<u64>,
        /// Go on for so long.
        #[arg(long, default_value_t = 10)]
        seconds: u64,
        /// Where to begin.
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
    #[command(flatten)]
    One(One),
}

#[derive(Subcommand)]
enum One {
    /// Run the inputs of a file again.
    Replay {
        /// One input a line.
        file: PathBuf,
    },
    /// Print the smallest inputs found that reach each call's each result.
    Corpus {
        /// Look through so many states.
        #[arg(long, default_value_t = 20_000_000)]
        states: u64,
    },
}

fn report(search: &Search, time: Duration) {
    let rate = search.states as f64 / time.as_secs_f64() / 1e6;
    println!(
        "{} inputs, {} states, {} lies, {} kinds of results, {:.1} s, {rate:.1} million states/s",
        search.inputs,
        search.states,
        search.lies,
        search.reached.events().count(),
        time.as_secs_f64()
    );
}

fn fail(failure: &Failure) -> ExitCode {
    let small = minimise(&failure.input, |input| {
        run(input, Bug::None).violation.is_some()
    });
    let why = run(&small, Bug::None).violation;
    println!(
        "{} # {}",
        to_text(&small),
        why.as_deref().unwrap_or(&failure.why)
    );
    ExitCode::FAILURE
}

fn replay(file: &PathBuf) -> Result<(), String> {
    let text = std::fs::read_to_string(file).map_err(|error| error.to_string())?;
    for input in parse(&text)? {
        let outcome = run(&input, Bug::None);
        println!(
            "{}: {} states, {} lies",
            to_text(&input),
            outcome.states,
            outcome.lies
        );
        if let Some(why) = outcome.violation {
            return Err(why);
        }
    }
    Ok(())
}

/// The smallest input for each event that the search reached.
fn corpus(states: u64) -> ExitCode {
    let mut search = Search::new(1, Bug::None, Vec::new());
    if let Err(failure) = search.until(states) {
        return fail(&failure);
    }
    let mut small: Vec<Vec<u8>> = Vec::new();
    let mut reached = Reached::default();
    for event in search.reached.events() {
        let wanted = Reached::only(event);
        let reaches = |input: &[u8]| !run(input, Bug::None).reached.lacks(&wanted);
        let found = search.pool().iter().find(|input| reaches(input));
        if let (true, Some(input)) = (reached.lacks(&wanted), found) {
            let input = minimise(input, reaches);
            reached.add(&run(&input, Bug::None).reached);
            small.push(input);
        }
    }
    for input in small {
        println!("{}", to_text(&input));
    }
    ExitCode::SUCCESS
}

fn main() -> ExitCode {
    match Options::parse() {
        Options::Run {
            states,
            seconds,
            seed,
        } => {
            let mut search = Search::new(seed, Bug::None, Vec::new());
            let started = Instant::now();
            let going = |search: &Search| match states {
                Some(states) => search.states < states,
                None => started.elapsed().as_secs() < seconds,
            };
            while going(&search) {
                if let Err(failure) = search.step() {
                    report(&search, started.elapsed());
                    return fail(&failure);
                }
            }
            report(&search, started.elapsed());
            ExitCode::SUCCESS
        }
        Options::One(One::Replay { file }) => match replay(&file) {
            Ok(()) => ExitCode::SUCCESS,
            Err(why) => {
                println!("{why}");
                ExitCode::FAILURE
            }
        },
        Options::One(One::Corpus { states }) => corpus(states),
    }
}
