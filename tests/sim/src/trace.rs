// SPDX-License-Identifier: GPL-2.0

//! The last things that happened, for whoever reads a failure.
//!
//! Owns a short ring of small records; turns them into text only when asked.

use std::collections::VecDeque;
use std::fmt;

/// Records kept when nobody asks for more.
pub const KEPT: usize = 120;

/// One thing that happened.
#[derive(Clone, Debug)]
pub enum Happened {
    /// A member stored or sent bytes: memory, offset, length, the first 8 bytes.
    Wrote(usize, u64, usize, u64),
    /// A member read a peer's memory, or took an entry: memory, offset, length.
    Read(usize, u64, usize),
    /// A member flushed a path to a memory.
    Flushed(usize),
    /// A member polled.
    Polled,
    /// Anything rare, in words.
    Said(String),
}

/// The last things that happened.
pub struct Trace {
    kept: usize,
    last: VecDeque<(u64, u64, usize, Happened)>,
}

impl Trace {
    /// Keeps the last `kept` records.
    #[must_use]
    pub fn new(kept: usize) -> Self {
        Trace {
            kept,
            last: VecDeque::new(),
        }
    }

    /// Notes what `member` did at `now`, as event number `event`.
    pub fn note(&mut self, event: u64, now: u64, member: usize, happened: Happened) {
        if self.last.len() >= self.kept {
            self.last.pop_front();
        }
        self.last.push_back((event, now, member, happened));
    }
}

impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (event, now, member, happened) in &self.last {
            let (us, ns) = (now / 1000, now % 1000);
            write!(f, "  {event:>9} {us:>9}.{ns:03} us  member {member}: ")?;
            match happened {
                Happened::Wrote(memory, offset, len, first) => {
                    writeln!(
                        f,
                        "writes {len} bytes to {memory}:{offset:#x} ({first:#018x})"
                    )?;
                }
                Happened::Read(memory, offset, len) => {
                    writeln!(f, "reads {len} bytes of {memory}:{offset:#x}")?;
                }
                Happened::Flushed(memory) => writeln!(f, "flushes {memory}")?,
                Happened::Polled => writeln!(f, "polls")?,
                Happened::Said(words) => writeln!(f, "{words}")?,
            }
        }
        Ok(())
    }
}
