// SPDX-License-Identifier: GPL-2.0

//! Whole meshes with and without trouble: seeds that are always the same, and fresh ones.

use csd_sim::scenario::Scenario;
use csd_sim::world::Tally;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// No run of these is so long.
const LONGEST: u64 = 5_000_000;

fn run(seed: u64) -> Tally {
    match csd_sim::run(&Scenario::new(seed), LONGEST) {
        Ok(tally) => tally,
        Err(broken) => panic!("\n{broken}"),
    }
}

fn add(sum: &mut Tally, tally: &Tally) {
    sum.events += tally.events;
    for (status, count) in &tally.ends {
        *sum.ends.entry(status).or_default() += count;
    }
    sum.calls += tally.calls;
    sum.faults += tally.faults;
    sum.stale += tally.stale;
}

#[test]
fn known_seeds_hold() {
    let mut sum = Tally::default();
    for seed in 1..=300 {
        add(&mut sum, &run(seed));
    }
    println!("{sum:?}");
    // They are worth something only if a lot happens in them.
    let ends = [
        "ok",
        "cancelled",
        "deadline",
        "peer-lost",
        "storage-error",
        "no-memory",
        "sink-full",
        "function-error",
    ];
    for status in ends {
        let count = sum.ends.get(status).copied().unwrap_or(0);
        assert!(count != 0, "{status}: {sum:?}");
    }
    assert!(
        sum.calls > 20_000 && sum.faults > 50 && sum.stale > 3,
        "{sum:?}"
    );
}

/// With `make check-all` no two runs try the same; `make check` goes through one range in order, so
/// that a submission is not held up by what an earlier one broke.
#[test]
fn seeds_nobody_chose_hold() {
    let drawn = std::env::var_os("CSD_CHECK_ALL").is_some();
    let first = if drawn {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        now.as_nanos() as u64
    } else {
        1_000_000
    };
    let start = Instant::now();
    let mut sum = Tally::default();
    let mut seed = first;
    while start.elapsed() < Duration::from_secs(5) {
        add(&mut sum, &run(seed));
        seed = seed.wrapping_add(1);
    }
    println!(
        "{} runs from seed {first}: {sum:?}",
        seed.wrapping_sub(first)
    );
}

#[test]
fn a_seed_gives_the_same_run_each_time() {
    for seed in [3, 1 << 40, 77] {
        assert_eq!(run(seed), run(seed), "seed {seed}");
    }
}
