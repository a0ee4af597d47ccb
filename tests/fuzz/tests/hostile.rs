// SPDX-License-Identifier: GPL-2.0

//! The real ends hold whatever lies are told; ends with a bug do not.

use csd_fuzz::corpus::{minimise, parse, to_text};
use csd_fuzz::search::Search;
use csd_fuzz::{run, Bug, Reached};
use std::time::{Duration, Instant};

fn corpus() -> Vec<Vec<u8>> {
    parse(include_str!("../corpus/reached.txt")).unwrap()
}

fn all() -> bool {
    std::env::var_os("CSD_CHECK_ALL").is_some()
}

fn hunt(search: &mut Search) -> Result<(), String> {
    // A fixed number of states first, then what time is left where all is asked for.
    let started = Instant::now();
    let time = Duration::from_secs(if all() { 240 } else { 0 });
    while search.states < 60_000_000 || started.elapsed() < time {
        search.step().map_err(|failure| {
            let small = minimise(&failure.input, |input| {
                run(input, Bug::None).violation.is_some()
            });
            format!("{}\n{}", failure.why, to_text(&small))
        })?;
    }
    Ok(())
}

#[test]
fn no_lie_breaks_what_must_hold() {
    let seed = if all() { std::process::id().into() } else { 1 };
    let mut search = Search::new(seed, Bug::None, corpus());
    if let Err(why) = hunt(&mut search) {
        panic!("seed {seed}: {why}");
    }
    println!(
        "{} inputs, {} states, {} lies",
        search.inputs, search.states, search.lies
    );
    assert!(search.lies > search.states / 200, "{} lies", search.lies);
}

#[test]
fn the_corpus_reaches_what_a_search_reaches() {
    let mut reached = Reached::default();
    for input in corpus() {
        let outcome = run(&input, Bug::None);
        assert_eq!(outcome.violation, None, "{}", to_text(&input));
        reached.add(&outcome.reached);
    }
    let mut search = Search::new(2, Bug::None, Vec::new());
    search.until(1_000_000).unwrap();
    let missing: Vec<u8> = search
        .reached
        .events()
        .filter(|event| reached.lacks(&Reached::only(*event)))
        .collect();
    assert!(missing.is_empty(), "{missing:x?}");
}

#[test]
fn each_planted_bug_is_found() {
    let bugs = [
        (Bug::Gullible, "taken as the sender's"),
        (Bug::Forgetful, "a fault"),
        (Bug::SecondLook, "reads"),
    ];
    for (bug, what) in bugs {
        let mut most = 0;
        for seed in 0..5 {
            let mut search = Search::new(seed, bug, Vec::new());
            let failure = search.until(10_000_000).expect_err("it must be found");
            assert!(failure.why.contains(what), "{bug:?}: {}", failure.why);
            // The input alone shows it again, and the product does not have it.
            let small = minimise(&failure.input, |input| run(input, bug).violation.is_some());
            assert!(run(&small, bug).violation.is_some());
            assert_eq!(run(&small, Bug::None).violation, None);
            most = most.max(search.states);
        }
        println!("{bug:?}: found in {most} states at most");
    }
}
