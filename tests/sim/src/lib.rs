// SPDX-License-Identifier: GPL-2.0

//! Deterministic simulation of whole meshes of IDC firmwares.
//!
//! Every run is decided by one seed: the mesh, the delays and reorderings of PCI Express, whose turn it
//! is (also in the middle of another's poll), the pipelines and messages, who hangs, dies, lies or comes
//! back, and when. Checks at every access hold the firmware to the specification; results are compared
//! with oracles that share no code with it. The same seed gives the same run, event for event.
//!
//! This file owns the way from a seed to a verdict.
//!
//! What it can see: lost, doubled or stale messages, lost wake-ups, stuck pipelines, leaks of slots,
//! buffers and windows, writes outside of what is granted or after it was taken back, data that is
//! announced before it is there, wrong results, wrong culprits. What it cannot: data races inside one
//! member (the firmware has no threads), orders of a processor's own loads (each load here is atomic),
//! and anything that needs more than a few seconds of virtual time.

pub mod book;
pub mod counts;
pub mod drive;
pub mod host;
pub mod job;
pub mod layout;
pub mod lie;
pub mod map;
pub mod mutant;
pub mod oracle;
pub mod pcie;
pub mod rng;
pub mod scenario;
pub mod sim;
pub mod trace;
pub mod world;

use scenario::Scenario;
use sim::Sim;
use std::fmt;
use std::panic::{catch_unwind, AssertUnwindSafe};
use world::{Power, Tally};

/// A run that broke a check.
#[derive(Clone, Debug)]
pub struct Broken {
    /// Replays it.
    pub seed: u64,
    /// The check.
    pub why: String,
    /// Events up to then.
    pub events: u64,
    /// What happened last.
    pub trace: String,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.trace)?;
        writeln!(
            f,
            "seed {} broke a check after {} events:",
            self.seed, self.events
        )?;
        writeln!(f, "{}", self.why)?;
        write!(
            f,
            "replay: cargo run --release -p csd-sim -- --seed {}",
            self.seed
        )
    }
}

/// Virtual time by which every run is over: 5 minutes. The last planned event of any is before 15 s,
/// the longest deadline with all allowances is 64 s.
const HORIZON: u64 = 300_000_000_000;

/// Runs a scenario to its end, which must come within `events` events.
///
/// # Errors
/// [`Broken`].
pub fn run(scenario: &Scenario, events: u64) -> Result<Tally, Broken> {
    let sim = scenario.build();
    let outcome = catch_unwind(AssertUnwindSafe(|| drive(&sim, events)));
    let mut world = match sim.world.try_borrow_mut() {
        Ok(world) => world,
        Err(_) => {
            return Err(Broken {
                seed: scenario.seed,
                why: "a panic in the middle of an access".into(),
                events: 0,
                trace: String::new(),
            })
        }
    };
    if let Err(panic) = outcome {
        let words = panic.downcast_ref::<String>().cloned().or_else(|| {
            panic
                .downcast_ref::<&str>()
                .map(|words| (*words).to_owned())
        });
        world.violate(|| format!("panic: {}", words.unwrap_or_default()));
    }
    match world.violation.take() {
        None => Ok(world.tally.clone()),
        Some(why) => Err(Broken {
            seed: scenario.seed,
            why,
            events: world.tally.events,
            trace: world.trace.to_string(),
        }),
    }
}

/// Lets a mesh run to its end, which must come within `events` events; then everything must be over.
pub fn drive(sim: &Sim, events: u64) {
    while sim.step(u64::MAX) {
        let mut world = sim.world.borrow_mut();
        if world.now > HORIZON || world.tally.events > events {
            let waits = sim.host.borrow().waits_for();
            world.violate(|| format!("there is no end to it; still open:{waits}"));
            return;
        }
    }
    if sim.world.borrow().violation.is_some() {
        return;
    }
    // Nothing is due any more: everything must be over.
    let waits = sim.host.borrow().waits_for();
    let mut world = sim.world.borrow_mut();
    let relaxed = counts::relaxed(&world.pcie);
    if relaxed != 0 && world.mutant != Some(mutant::Mutant::Relaxed) {
        world.violate(|| format!("{relaxed} writes have the relaxed ordering attribute"));
    }
    if !waits.is_empty() {
        world.violate(|| format!("nothing is due any more, and still open:{waits}"));
    }
    for (drive, id) in sim.drives.iter().zip(1..) {
        if world.agents[id].power != Power::On {
            continue;
        }
        let drive = drive.borrow();
        let held = drive.held();
        if !held.is_empty() {
            world.violate(|| format!("member {id} still holds{held}"));
        }
        for peer in drive.firmware.ipc().peers().iter() {
            let other = world.agents[peer.index()];
            if other.power != Power::On || other.lies || world.agents[id].lies {
                continue;
            }
            let ipc = drive.firmware.ipc();
            let (open, owed) = (ipc.open_requests(peer), ipc.unanswered(peer));
            if (open, owed) != (0, 0) {
                world.violate(|| {
                    format!("member {id} waits for {open} answers of {peer} and owes {owed}")
                });
            }
        }
    }
}
