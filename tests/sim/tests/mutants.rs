// SPDX-License-Identifier: GPL-2.0

//! The simulator finds bugs: each of these is planted, and found.

use csd_sim::mutant::Mutant;
use csd_sim::scenario::Scenario;

/// Events that are enough to find any of them.
const ENOUGH: u64 = 3_000_000;

fn hunt(mutant: Mutant) {
    let mut events = 0;
    for seed in 1.. {
        let scenario = Scenario::new(seed).with_mutant(mutant);
        match csd_sim::run(&scenario, ENOUGH) {
            Ok(tally) => events += tally.events,
            Err(broken) => {
                events += broken.events;
                // Without the bug nothing is wrong with that run.
                let mut control = scenario.clone();
                control.mutant = None;
                if csd_sim::run(&control, ENOUGH).is_ok() {
                    println!(
                        "{mutant:?}: found after {events} events in {seed} runs: {}",
                        broken.why
                    );
                    return;
                }
            }
        }
        assert!(
            events < ENOUGH,
            "{mutant:?} was not found in {events} events"
        );
    }
}

#[test]
fn a_trailer_before_its_body_is_found() {
    hunt(Mutant::TrailerFirst);
}

#[test]
fn a_missing_flush_is_found() {
    hunt(Mutant::NoFlush);
}

#[test]
fn an_epoch_that_nobody_looks_at_is_found() {
    hunt(Mutant::AnyEpoch);
}

#[test]
fn a_sender_without_credit_is_found() {
    hunt(Mutant::NoCredit);
}

#[test]
fn relaxed_ordering_is_found() {
    hunt(Mutant::Relaxed);
}

#[test]
fn a_lost_wake_up_is_found() {
    hunt(Mutant::SilentResult);
}
