// SPDX-License-Identifier: GPL-2.0 OR MIT

//! The pauses of a receiver that polls: how much latency they add, and what they cost.

use idc::backoff::{Backoff, LEAST_NS, MOST_NS};
use proptest::prelude::*;

#[test]
fn the_documented_examples() {
    let backoff = Backoff::default();
    for (silence, pause) in [
        (0, 1_000),
        (7_999, 1_000),
        (80_000, 10_000),
        (800_000, 100_000),
        (8_000_000, 1_000_000),
        (u64::MAX, 1_000_000),
    ] {
        assert_eq!(backoff.pause(silence), pause, "after {silence} ns");
    }
}

/// How often a receiver looks in a silence of `span` ns.
fn looks(backoff: &Backoff, span: u64) -> u64 {
    let (mut now, mut looks) = (0, 0);
    while now < span {
        now = backoff.next_look(now);
        looks += 1;
    }
    looks
}

#[test]
fn silence_costs_a_thousand_looks_a_second() {
    let backoff = Backoff::default();
    let first = looks(&backoff, 1_000_000_000);
    assert!((1000..1100).contains(&first), "{first}");
    let ten = looks(&backoff, 10_000_000_000);
    assert_eq!(ten - first, 9000);
}

#[test]
fn an_arrival_starts_it_over() {
    let mut backoff = Backoff::new(500, 50_000, 1_000_000);
    assert_eq!(backoff.pause(9_000_000), 50_000);
    backoff.heard(9_000_000);
    assert_eq!(backoff.next_look(9_000_000), 9_000_500);
    assert_eq!(backoff.pause(9_080_000), 10_000);
    // A clock that seems to go back is no reason to look less often.
    backoff.heard(1);
    assert_eq!(backoff.pause(9_080_000), 10_000);
    assert_eq!(backoff.pause(0), 500);
}

#[test]
fn odd_limits_are_put_in_order() {
    assert_eq!(Backoff::new(5000, 10, 0).pause(u64::MAX), 5000);
    assert_eq!(Backoff::new(5000, 10, 0).pause(0), 5000);
    assert_eq!(Backoff::new(0, 0, 0), Backoff::default());
    assert_eq!(Backoff::default().next_look(u64::MAX), u64::MAX);
}

proptest! {
    /// Whenever something comes, it waits for an eighth of the silence before it at most, but for the
    /// shortest pause; and never longer than the longest.
    #[test]
    fn what_comes_waits_for_its_share_of_the_silence(
        least in 1_u64..10_000,
        more in 1_u64..1000,
        gaps in proptest::collection::vec(0_u64..100_000_000, 1..20),
    ) {
        let most = least * more;
        let mut backoff = Backoff::new(least, most, 0);
        let (mut now, mut last) = (0, 0);
        for gap in gaps {
            let arrives = last + gap;
            while now < arrives {
                now = backoff.next_look(now);
            }
            let waited = now - arrives;
            prop_assert!(waited <= least.max(gap / 8).min(most.max(least)), "{waited} after {gap}");
            backoff.heard(now);
            last = now;
        }
    }
}

#[test]
fn the_defaults_are_a_microsecond_and_a_millisecond() {
    assert_eq!((LEAST_NS, MOST_NS), (1_000, 1_000_000));
}
