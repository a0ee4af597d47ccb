// SPDX-License-Identifier: GPL-2.0

//! The simulator by itself: for longer runs, and to replay a seed that failed.

use clap::Parser;
use csd_sim::counts::{across, Table};
use csd_sim::scenario::Scenario;
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Simulates meshes of IDC firmwares from seeds.
#[derive(Parser)]
struct Options {
    /// Run only this seed, and say what it stands for.
    #[arg(long)]
    seed: Option<u64>,
    /// Show so many of the last things that happened.
    #[arg(long, default_value_t = csd_sim::trace::KEPT)]
    trace: usize,
    /// Begin with this seed instead of a fresh one.
    #[arg(long, conflicts_with = "seed")]
    from: Option<u64>,
    /// Go on for so long.
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// Go on until so many events were simulated.
    #[arg(long)]
    events: Option<u64>,
    /// Show what messages alone cost on the bus, in a mesh without troubles.
    #[arg(long, conflicts_with = "seed")]
    counts: bool,
    /// Go on after a failure, and show only the failures' reasons.
    #[arg(long)]
    survey: bool,
}

/// Events after which one run is given up.
const LONGEST: u64 = 20_000_000;

/// Messages between three members, and what they cost.
fn counts() -> ExitCode {
    let sim = Scenario::messages(1, 3000).build();
    csd_sim::drive(&sim, u64::MAX);
    let world = sim.world.borrow();
    if let Some(why) = &world.violation {
        println!("{why}");
        return ExitCode::FAILURE;
    }
    print!("{}", Table(&world.pcie));
    let sum = across(&world.pcie);
    let messages = sum.writes[0];
    println!(
        "{messages} messages: {:.3} entries, {:.3} cells and {:.3} reads each",
        1.0,
        sum.writes[1] as f64 / messages as f64,
        sum.reads.iter().sum::<u64>() as f64 / messages as f64
    );
    ExitCode::SUCCESS
}

fn main() -> ExitCode {
    let options = Options::parse();
    let fresh = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |time| time.as_nanos() as u64);
    if let Some(seed) = options.seed {
        let mut scenario = Scenario::new(seed);
        scenario.trace = options.trace;
        println!("{scenario:?}");
        return match csd_sim::run(&scenario, LONGEST) {
            Ok(tally) => {
                println!("{tally:?}");
                ExitCode::SUCCESS
            }
            Err(broken) => {
                println!("{broken}");
                ExitCode::FAILURE
            }
        };
    }
    if options.counts {
        return counts();
    }
    let mut seed = options.from.unwrap_or(fresh);
    let start = Instant::now();
    let (mut events, mut runs, mut broken_runs) = (0, 0_u64, 0_u64);
    let mut done = 0;
    loop {
        let over = match options.events {
            Some(most) => events >= most,
            None => start.elapsed() >= Duration::from_secs(options.seconds),
        };
        if over {
            break;
        }
        match csd_sim::run(&Scenario::new(seed), LONGEST) {
            Ok(tally) => {
                events += tally.events;
                done += tally.ends.get("ok").copied().unwrap_or(0);
            }
            Err(broken) if options.survey => {
                println!(
                    "seed {}: {} ({} events)",
                    broken.seed, broken.why, broken.events
                );
                events += broken.events;
                broken_runs += 1;
            }
            Err(broken) => {
                println!("{broken}");
                return ExitCode::FAILURE;
            }
        }
        runs += 1;
        seed = seed.wrapping_add(1);
    }
    println!(
        "{runs} runs, {done} pipelines done, {events} events in {:.1} s, {broken_runs} failures; next seed {seed}",
        start.elapsed().as_secs_f64()
    );
    if broken_runs == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
