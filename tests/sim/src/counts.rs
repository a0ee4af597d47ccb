// SPDX-License-Identifier: GPL-2.0

//! What went over the bus, as a table: posted writes and non-posted reads of every initiator to every
//! memory, split into entries, cells and data.
//!
//! Owns the table. Counts nothing itself: `pcie` does.

use crate::pcie::{Counts, Pcie, MEMBERS};
use std::fmt;

/// The traffic of a run.
pub struct Table<'a>(pub &'a Pcie);

/// Writes that carry the relaxed ordering attribute, which IDC-ORD-1 forbids everywhere.
#[must_use]
pub fn relaxed(pcie: &Pcie) -> u64 {
    pairs(pcie).map(|(_, _, counts)| counts.relaxed).sum()
}

/// The sum over all that crosses the bus.
#[must_use]
pub fn across(pcie: &Pcie) -> Counts {
    let mut sum = Counts::default();
    for (_, _, counts) in pairs(pcie).filter(|(initiator, memory, _)| initiator != memory) {
        for class in 0..3 {
            sum.writes[class] += counts.writes[class];
            sum.bytes[class] += counts.bytes[class];
            sum.reads[class] += counts.reads[class];
        }
        sum.flushes += counts.flushes;
        sum.relaxed += counts.relaxed;
    }
    sum
}

fn pairs(pcie: &Pcie) -> impl Iterator<Item = (usize, usize, &Counts)> {
    let all = (0..MEMBERS).flat_map(|from| (0..MEMBERS).map(move |to| (from, to)));
    all.map(|(from, to)| (from, to, pcie.counts(from, to)))
}

impl fmt::Display for Table<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "initiator memory | posted writes                      | non-posted reads                   flushes"
        )?;
        writeln!(
            f,
            "                 |    entries       cells        data |    entries       cells        data"
        )?;
        let row = |f: &mut fmt::Formatter<'_>, name: String, counts: &Counts| {
            let Counts { writes, reads, .. } = counts;
            writeln!(
                f,
                "{name:<16} | {:>10}  {:>10}  {:>10} | {:>10}  {:>10}  {:>10}  {:>7}",
                writes[0], writes[1], writes[2], reads[0], reads[1], reads[2], counts.flushes
            )
        };
        for (from, to, counts) in pairs(self.0) {
            if from != to && *counts != Counts::default() {
                row(f, format!("{from:>9} {to:>6}"), counts)?;
            }
        }
        row(f, "across the bus".into(), &across(self.0))
    }
}
