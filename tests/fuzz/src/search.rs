// SPDX-License-Identifier: GPL-2.0

//! Where inputs come from: a seed, and inputs that reached something before.
//!
//! Owns the random numbers and the choice. The same seed and pool lead to the same inputs.

use crate::{run, Bug, Reached};

/// Steele, Lea and Flood's SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }

    fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.next() as u8).collect()
    }
}

/// Inputs longer than this are cut.
const LONGEST: usize = 1024;

/// A search and what it came to so far.
pub struct Search {
    random: Random,
    bug: Bug,
    pool: Vec<Vec<u8>>,
    /// Inputs run.
    pub inputs: u64,
    /// States: points at which the liar could act.
    pub states: u64,
    /// Lies told.
    pub lies: u64,
    /// What was reached, and by which input first.
    pub reached: Reached,
}

/// An input that must not come to what it came to.
#[derive(Debug)]
pub struct Failure {
    /// The input.
    pub input: Vec<u8>,
    /// What happened.
    pub why: String,
}

impl Search {
    /// Begins with a seed and the inputs of `pool`.
    #[must_use]
    pub fn new(seed: u64, bug: Bug, pool: Vec<Vec<u8>>) -> Self {
        Search {
            random: Random(seed),
            bug,
            pool,
            inputs: 0,
            states: 0,
            lies: 0,
            reached: Reached::default(),
        }
    }

    /// Runs one input.
    ///
    /// # Errors
    /// [`Failure`].
    pub fn step(&mut self) -> Result<(), Failure> {
        let input = self.choose();
        let outcome = run(&input, self.bug);
        self.inputs += 1;
        self.states += outcome.states;
        self.lies += outcome.lies;
        if let Some(why) = outcome.violation {
            return Err(Failure { input, why });
        }
        if self.reached.lacks(&outcome.reached) {
            self.reached.add(&outcome.reached);
            self.pool.push(input);
        }
        Ok(())
    }

    /// Goes on until that many states.
    ///
    /// # Errors
    /// [`Failure`].
    pub fn until(&mut self, states: u64) -> Result<(), Failure> {
        while self.states < states {
            self.step()?;
        }
        Ok(())
    }

    /// The inputs that reached something new.
    #[must_use]
    pub fn pool(&self) -> &[Vec<u8>] {
        &self.pool
    }

    fn choose(&mut self) -> Vec<u8> {
        let random = &mut self.random;
        if self.pool.is_empty() || random.below(2) == 0 {
            let count = 8 + random.below(LONGEST / 2);
            return random.bytes(count);
        }
        let mut input = self.pool[random.below(self.pool.len())].clone();
        for _ in 0..1 + random.below(8) {
            let at = random.below(input.len());
            match random.below(5) {
                0 => {
                    let value = random.next() as u8;
                    if let Some(byte) = input.get_mut(at) {
                        *byte = value;
                    }
                }
                1 => drop(input.drain(at..(at + 1 + random.below(8)).min(input.len()))),
                2 => {
                    let count = 1 + random.below(16);
                    let more = random.bytes(count);
                    input.splice(at..at, more);
                }
                3 => {
                    let other = &self.pool[random.below(self.pool.len())];
                    let from = random.below(other.len());
                    input.truncate(at);
                    input.extend(&other[from..]);
                }
                _ => {
                    let count = random.below(64);
                    let more = random.bytes(count);
                    input.extend(more);
                }
            }
        }
        input.truncate(LONGEST);
        input
    }
}
