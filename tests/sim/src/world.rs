// SPDX-License-Identifier: GPL-2.0

//! What all agents share: the memories, the clock, what is due when, and (in `checks`) what holds at
//! every access.
//!
//! Owns the clock and the queue of events. Time passes with each access; what is due then may run in
//! the middle of somebody else's poll. The first check that fails ends the run.

mod checks;

use crate::map::Map;
use crate::mutant::Mutant;
use crate::pcie::{Arrived, Pcie, Refused, MEMBERS};
use crate::rng::Rng;
use crate::trace::{Happened, Trace, KEPT};
use idc::status::{Completion, Status};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap};

/// Virtual nanoseconds.
pub type Ns = u64;

/// Something that is due.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Event {
    /// A member polls, because of what came.
    Poll(usize),
    /// A member polls, because it is time.
    Timer(usize),
    /// A storage request of a drive ends.
    Storage(usize, u64),
    /// The host looks at its rings and at what ended.
    Serve,
    /// The host sends a message.
    Call,
    /// The host gives up waiting for the answer to a call.
    GiveUp(u64),
    /// A pipeline starts.
    Start(usize),
    /// The reader of a pipeline's result looks.
    Read(usize),
    /// The host cancels a pipeline.
    Cancel(usize),
    /// A user takes a drive's messages.
    Drain(usize),
    /// A drive stops for a while.
    Pause(usize),
    /// A drive stops for good, its memory stays.
    Hang(usize),
    /// A drive loses its power between two accesses.
    Crash(usize),
    /// The host finds that a drive is lost.
    Lose(usize),
    /// A drive is told that another is lost, or that their rings are reset.
    Detach(usize, usize),
    /// The host ends what a lost drive took part in.
    Bury(usize),
    /// A lost drive comes back, as new.
    Rejoin(usize),
    /// The rings between two members are re-established: begins.
    Reset(usize, usize),
    /// The rings between two members are cleared, and the first of them joins.
    Join(usize, usize),
    /// A member joins its rings to another.
    Attach(usize, usize),
    /// A lying drive writes what it likes where it can.
    Lie(usize),
}

/// How a member's power is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Power {
    /// It polls.
    On,
    /// It does nothing any more.
    Hung,
    /// It is off, and nothing of it counts any more.
    Off,
}

/// What is counted over a run.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Tally {
    /// Accesses, arrivals, polls, storage requests and host actions together.
    pub events: u64,
    /// Memory accesses of agents.
    pub accesses: u64,
    /// Posted writes that arrived.
    pub arrivals: u64,
    /// Polls of drives.
    pub polls: u64,
    /// Pipelines by the name of the status with which they ended.
    pub ends: BTreeMap<&'static str, u64>,
    /// Messages that the host sent.
    pub calls: u64,
    /// Entries of an old epoch that came late.
    pub stale: u64,
    /// Crashes, hangs, resets.
    pub faults: u64,
}

/// What goes from one member to another, as the bus sees it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Traffic {
    /// The epoch that is in force for the receiver; 0: none.
    pub epoch: u32,
    /// Entries that arrived under this epoch.
    pub arrived: u64,
    /// Of these, entries that the receiver can know of.
    pub announced: u64,
    /// Entries that were taken.
    pub taken: u64,
}

/// One buffer, as the bus sees it.
#[derive(Clone, Debug, Default)]
pub struct Flow {
    /// The epoch that is in force.
    pub epoch: u32,
    /// The index at which it began.
    pub start: u32,
    /// Entries that were sent under this epoch.
    pub sent: u32,
    /// The slots.
    pub slots: Vec<Slot>,
}

/// One slot.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Slot {
    /// The entry that lies there and was not taken: from whom, to whom.
    pub held: Option<(usize, usize)>,
    /// The sequence of the last entry that was taken here.
    pub taken: Option<u32>,
    /// It was taken before the last of its bytes, which were the same in the entry before, had come.
    pub early: bool,
}

/// What an agent is like.
#[derive(Clone, Copy, Debug)]
pub struct Agent {
    /// How it is.
    pub power: Power,
    /// It breaks the protocol on purpose, or did.
    pub lies: bool,
    /// It was given up once, and has stopped to lie.
    pub exposed: bool,
    /// Accesses left until its power fails.
    pub fuse: Option<u64>,
    /// Time of one access, and between two polls.
    pub access: Ns,
    /// Time between two polls.
    pub gap: Ns,
    /// It writes an entry with one posted write, else as a processor stores it.
    pub dma: bool,
    /// It does not poll before this time.
    pub paused: Ns,
    /// When it wants to be woken by the clock.
    timer: Ns,
}

/// All that agents share.
pub struct World {
    /// The memories.
    pub pcie: Pcie,
    /// What lies where.
    pub map: Map,
    /// The time.
    pub now: Ns,
    /// Choices.
    pub rng: Rng,
    queue: BinaryHeap<Reverse<(Ns, u64, Event)>>,
    queued: u64,
    /// Nested runs of other agents in the middle of accesses.
    pub depth: u32,
    /// How deep they may nest.
    pub max_depth: u32,
    /// The members.
    pub agents: [Agent; MEMBERS],
    /// Members are woken only by notifications, else by whatever arrives for them.
    pub by_notice: bool,
    /// Storage requests may fail.
    pub storage_errors: bool,
    /// Storage requests may take longer than any deadline.
    pub storage_stalls: bool,
    /// There may be no scratch memory.
    pub scratch_errors: bool,
    /// Members that lie, hang or lose their power sooner or later.
    pub troubled: [bool; MEMBERS],
    /// Members that the host knows to be lost.
    pub lost: [bool; MEMBERS],
    /// Pairs whose rings were reset.
    pub resets: Vec<(usize, usize)>,
    /// A planted bug.
    pub mutant: Option<Mutant>,
    /// What went wrong first.
    pub violation: Option<String>,
    /// What happened last.
    pub trace: Trace,
    /// Counters.
    pub tally: Tally,
    /// Traffic by sender and receiver.
    pub traffic: [[Traffic; MEMBERS]; MEMBERS],
    /// Buffers, by their numbers in the map.
    pub flows: Vec<Flow>,
    /// Pipelines that ended at their first drive and were not told to the host's books yet.
    pub completed: Vec<(usize, u32, Completion)>,
    /// Messages by their number: how often executed, and the epoch that its last ring had.
    pub messages: HashMap<u64, Message>,
    arrived: Vec<Arrived>,
    wakes: [Vec<Ns>; MEMBERS],
}

/// What became of a message.
#[derive(Clone, Copy, Debug, Default)]
pub struct Message {
    /// How often it came to an inbox.
    pub executed: u32,
    /// From whom to whom it last went, under which epoch.
    pub sent: (usize, usize, u32),
}

impl World {
    /// A world at time 1.
    #[must_use]
    pub fn new(pcie: Pcie, map: Map, rng: Rng) -> Self {
        let agent = Agent {
            power: Power::On,
            lies: false,
            exposed: false,
            fuse: None,
            access: 20,
            gap: 100,
            dma: true,
            paused: 0,
            timer: Ns::MAX,
        };
        let flows = vec![Flow::default(); map.buffers().len()];
        World {
            pcie,
            map,
            now: 1,
            rng,
            queue: BinaryHeap::new(),
            queued: 0,
            depth: 0,
            max_depth: 0,
            agents: [agent; MEMBERS],
            by_notice: false,
            storage_errors: false,
            storage_stalls: false,
            scratch_errors: false,
            troubled: [false; MEMBERS],
            lost: [false; MEMBERS],
            resets: Vec::new(),
            mutant: None,
            violation: None,
            trace: Trace::new(KEPT),
            tally: Tally::default(),
            traffic: [[Traffic::default(); MEMBERS]; MEMBERS],
            flows,
            completed: Vec::new(),
            messages: HashMap::new(),
            arrived: Vec::new(),
            wakes: Default::default(),
        }
    }

    /// A pipeline has ended with `status`.
    pub fn count_end(&mut self, status: Status) {
        *self.tally.ends.entry(status.name()).or_default() += 1;
    }

    /// Whether anything is wrong with any member or ring.
    #[must_use]
    pub fn is_troubled(&self) -> bool {
        !self.resets.is_empty() || self.troubled.contains(&true)
    }

    /// A check has failed.
    pub fn violate(&mut self, why: impl FnOnce() -> String) {
        if self.violation.is_none() {
            let why = why();
            self.say(0, format!("VIOLATION: {why}"));
            self.violation = Some(why);
        }
    }

    /// Notes something rare.
    pub fn say(&mut self, member: usize, words: String) {
        self.trace
            .note(self.tally.events, self.now, member, Happened::Said(words));
    }

    /// Puts `event` in the queue.
    pub fn at(&mut self, time: Ns, event: Event) {
        self.queued += 1;
        self.queue.push(Reverse((time, self.queued, event)));
    }

    /// Puts `event` in the queue, `delay` from now.
    pub fn after(&mut self, delay: Ns, event: Event) {
        self.at(self.now + delay, event);
    }

    /// When the next event is due.
    #[must_use]
    pub fn next_due(&self) -> Option<Ns> {
        self.queue.peek().map(|Reverse((time, ..))| *time)
    }

    /// Takes the next event, if it is due by `until`; time is then at least its.
    pub fn pop(&mut self, until: Ns) -> Option<Event> {
        while let Some(Reverse((time, ..))) = self.queue.peek() {
            if *time > until {
                return None;
            }
            let Reverse((time, _, event)) = self.queue.pop()?;
            self.now = self.now.max(time);
            match event {
                Event::Poll(member) => self.wakes[member].retain(|wake| *wake > time),
                Event::Serve => self.wakes[0].retain(|wake| *wake > time),
                Event::Timer(member) if self.agents[member].timer != time => continue,
                Event::Timer(member) => self.agents[member].timer = Ns::MAX,
                _ => {}
            }
            self.tally.events += 1;
            return Some(event);
        }
        None
    }

    /// `member` looks again at `time`.
    pub fn wake(&mut self, member: usize, time: Ns) {
        if self.agents[member].power != Power::On {
            return;
        }
        let time = time.max(self.now).max(self.agents[member].paused);
        // One look is enough for what comes at nearly the same time.
        let known = |wake: &Ns| (time..time + 100).contains(wake);
        if !self.wakes[member].iter().any(known) {
            self.wakes[member].push(time);
            let event = if member == 0 {
                Event::Serve
            } else {
                Event::Poll(member)
            };
            self.at(time, event);
        }
    }

    /// `member` wants to look again at `time`, and not at the time that it asked for before.
    pub fn set_timer(&mut self, member: usize, time: Option<Ns>) {
        let time = time.map_or(Ns::MAX, |time| time.max(self.now + 1));
        if self.agents[member].timer != time {
            self.agents[member].timer = time;
            if time != Ns::MAX {
                self.at(time, Event::Timer(member));
            }
        }
    }

    /// Something was stored for `to`, and `from` says so.
    pub fn notify(&mut self, from: usize, to: usize) {
        if self.agents[from].power == Power::Off {
            return;
        }
        // The bell goes the way of the data, behind it.
        let there = self.pcie.arrival(from, to).max(self.now);
        let reaction = self.reaction();
        self.wake(to, there + reaction);
    }

    fn reaction(&mut self) -> Ns {
        if self.rng.one_in(100) {
            self.rng.magnitude(100_000)
        } else {
            self.rng.range(1, 500)
        }
    }

    /// Time passes for an access of `member`. `Err` if it is off.
    ///
    /// # Errors
    /// [`Refused::Gone`].
    pub fn spend(&mut self, member: usize) -> Result<(), Refused> {
        self.tally.events += 1;
        self.tally.accesses += 1;
        let agent = &mut self.agents[member];
        self.now += agent.access;
        if let Some(left) = &mut agent.fuse {
            *left = left.saturating_sub(1);
            if *left == 0 {
                agent.fuse = None;
                agent.power = Power::Off;
                self.pcie.cut(member);
                if self.rng.one_in(2) {
                    // Pulled out; else only its processor is dead.
                    self.pcie.set_gone(member, true);
                }
                self.say(member, "loses its power".into());
            }
        }
        if self.agents[member].power == Power::Off {
            return Err(Refused::Gone);
        }
        Ok(())
    }
}
