// SPDX-License-Identifier: GPL-2.0

//! What a seed stands for: a mesh, its work, its troubles.
//!
//! Owns the distributions. Never looks at what happens: everything is decided before the run, or by
//! generators that are forked here.

use crate::book::Book;
use crate::drive::{member, zeroed, Drive};
use crate::host::Host;
use crate::job::{hops, random_work, Reader, Target, Task};
use crate::mutant::Mutant;
use crate::oracle;
use crate::pcie::{Pcie, MEMBERS};
use crate::rng::Rng;
use crate::sim::Sim;
use crate::trace::{Trace, KEPT};
use crate::world::{Event, World};
use idc::function::Functions;
use idc::member::Location;
use idc::mesh::{MeshShape, MeshTable};
use std::cell::RefCell;

/// What goes wrong in a run, besides delays.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Trouble {
    /// Drives stop for a while.
    pub pauses: bool,
    /// Storage requests fail.
    pub storage: bool,
    /// Storage requests take longer than the deadline.
    pub stalls: bool,
    /// Working memory is short.
    pub scratch: bool,
    /// Users close results.
    pub cancels: bool,
    /// A drive stops for good.
    pub hangs: bool,
    /// A drive loses its power.
    pub crashes: bool,
    /// Rings are re-established.
    pub resets: bool,
    /// A drive lies.
    pub lies: bool,
}

impl Trouble {
    fn random(rng: &mut Rng) -> Self {
        let mut trouble = Trouble::default();
        match rng.below(11) {
            0 | 1 => {}
            2 => trouble.pauses = true,
            3 => trouble.storage = true,
            4 => trouble.cancels = true,
            5 => trouble.hangs = true,
            6 => trouble.crashes = true,
            7 => trouble.resets = true,
            8 => trouble.lies = true,
            9 => trouble.stalls = true,
            _ => {
                trouble.pauses = rng.one_in(2);
                trouble.storage = rng.one_in(3);
                trouble.scratch = rng.one_in(3);
                trouble.stalls = rng.one_in(4);
                trouble.cancels = rng.one_in(2);
                trouble.hangs = rng.one_in(4);
                trouble.crashes = rng.one_in(3);
                trouble.resets = rng.one_in(2);
                trouble.lies = rng.one_in(4);
            }
        }
        trouble
    }
}

/// All that is decided before a run.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Where it all comes from.
    pub seed: u64,
    /// What goes wrong.
    pub trouble: Trouble,
    /// Drives.
    pub drives: usize,
    /// Entries of a ring.
    pub entries: u32,
    /// Bytes of an entry.
    pub entry_bytes: u32,
    /// A planted bug.
    pub mutant: Option<Mutant>,
    /// Records of the trace to keep.
    pub trace: usize,
    /// No pipelines, but so many messages.
    pub only_calls: Option<u64>,
    rng: Rng,
}

impl Scenario {
    /// What `seed` stands for.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        Scenario {
            seed,
            trouble: Trouble::random(&mut rng),
            drives: match rng.below(60) {
                0 => rng.range(8, 16) as usize,
                _ => rng.pick(&[2, 3, 3, 4, 5]),
            },
            entries: rng.pick(&[4, 8, 16, 64, 64]),
            entry_bytes: rng.pick(&[64, 64, 64, 64, 128, 256]),
            mutant: None,
            trace: KEPT,
            only_calls: None,
            rng,
        }
    }

    /// The same with a planted bug, and the troubles in which it can show.
    #[must_use]
    pub fn with_mutant(mut self, mutant: Mutant) -> Self {
        self.mutant = Some(mutant);
        self.trouble = Trouble {
            resets: mutant == Mutant::AnyEpoch,
            ..Trouble::default()
        };
        self
    }

    /// The same without any trouble.
    #[must_use]
    pub fn healthy(mut self) -> Self {
        self.trouble = Trouble::default();
        self
    }

    /// A mesh of two drives with rings of the default shape, on which nothing but messages go.
    #[must_use]
    pub fn messages(seed: u64, calls: u64) -> Self {
        let mut scenario = Self::new(seed).healthy();
        scenario.drives = 2;
        scenario.entries = 64;
        scenario.entry_bytes = 64;
        scenario.only_calls = Some(calls);
        scenario
    }

    /// Builds the mesh and puts everything in the queue that is to happen.
    #[must_use]
    pub fn build(&self) -> Sim {
        let mut rng = self.rng.clone();
        let trouble = self.trouble;
        let memory = 1_u64 << 19;
        let shape = MeshShape {
            drives: self.drives as u16,
            entries: self.entries,
            entry_bytes: self.entry_bytes,
        };
        let mut table: Box<MeshTable> = zeroed();
        let epoch = 1 + rng.below(1 << 20) as u32;
        let mut blocks = [0; MEMBERS];
        let mut placed = table.init(&shape, epoch).is_ok();
        for (id, block) in blocks.iter_mut().enumerate().take(self.drives + 1) {
            *block = 4096 * rng.range(1, 4);
            placed &= table
                .place(member(id), Location::of(member(id), *block))
                .is_ok();
            table.set_functions(member(id), Functions::ALL);
        }
        assert!(placed, "{shape:?}");
        let latency = rng.range(50, 3000);
        let mut pcie = Pcie::new(rng.fork(), latency);
        for id in 0..=self.drives {
            pcie.lend(id, memory as usize);
            if self.mutant == Some(Mutant::Relaxed) {
                pcie.relax(id);
            }
        }
        let map = crate::layout::map(&table, self.drives);
        let mut world = World::new(pcie, map, rng.fork());
        world.max_depth = rng.pick(&[1, 2, 3]);
        world.by_notice = rng.one_in(2) || self.mutant == Some(Mutant::SilentResult);
        world.mutant = self.mutant;
        world.trace = Trace::new(self.trace);
        world.storage_errors = trouble.storage;
        world.scratch_errors = trouble.scratch;
        world.storage_stalls = trouble.stalls;
        for agent in &mut world.agents {
            let slow = rng.magnitude(30);
            agent.access = 10 * slow;
            agent.gap = 100 * rng.magnitude(100);
            agent.dma = !rng.one_in(3) || self.only_calls.is_some();
        }
        let mut drives = Vec::new();
        let mut disks = Vec::new();
        for id in 1..=self.drives {
            let mut drive = Drive::new(id, rng.fork());
            let bytes = rng.magnitude(150_000) as usize;
            let mut disk = oracle::table(&mut rng, bytes, b';');
            disks.push(disk.len() as u64);
            // Room behind the data for what sinks write.
            disk.resize(disk.len().next_multiple_of(4096) + SINK_ROOM * SINKS, 0xee);
            drive.hands.disk = disk;
            drive.hands.storage_errors = if trouble.storage { 40 } else { 0 };
            drive.hands.storage_stalls = if trouble.stalls { 60 } else { 0 };
            drive.hands.scratch_errors = if trouble.scratch { 10 } else { 0 };
            drives.push(RefCell::new(drive));
        }
        let short = trouble.hangs || trouble.crashes || trouble.lies || trouble.stalls;
        let mut tasks = Vec::new();
        let count = if self.only_calls.is_some() {
            0
        } else {
            rng.range(1, 6)
        };
        for index in 0..count as usize {
            tasks.push(self.task(&mut rng, index, &disks, short));
        }
        self.plan_troubles(&mut rng, &mut world);
        let count = tasks.len();
        for index in 0..count {
            let time = if rng.one_in(2) {
                1
            } else {
                rng.magnitude(20_000_000)
            };
            world.at(time, Event::Start(index));
        }
        let book = Book::new(&table, memory, tasks, rng.fork());
        let mut host = Host::new(table, book, rng.fork());
        let calls = rng.pick(&[0, 20, 100, 400]);
        host.calls_left = self.only_calls.unwrap_or(calls);
        host.call_gap = rng.pick(&[200, 5_000, 500_000]);
        host.rejoin = rng.one_in(2);
        world.at(1, Event::Call);
        for id in 1..=self.drives {
            for _ in 0..20 {
                world.at(rng.magnitude(100_000_000), Event::Drain(id));
            }
        }
        let sim = Sim {
            world: RefCell::new(world),
            drives,
            host: RefCell::new(host),
        };
        sim.host.borrow_mut().attach_all(&sim);
        sim
    }

    fn task(&self, rng: &mut Rng, index: usize, disks: &[u64], short: bool) -> Task {
        let source = 1 + rng.index(self.drives);
        let room = disks[source - 1];
        let offset = if rng.one_in(2) {
            0
        } else {
            rng.below(room + 1)
        };
        let length = if rng.one_in(2) {
            room - offset
        } else {
            rng.below(room - offset + 1)
        };
        let count = rng.pick(&[1, 1, 2, 2, 3, 4, 8]);
        let stages: Vec<_> = (0..count)
            .map(|_| (1 + rng.index(self.drives), random_work(rng)))
            .collect();
        let chunk = 4096 * rng.pick(&[1, 1, 1, 2, 4]);
        let target = if rng.one_in(4) && index < SINKS {
            let drive = 1 + rng.index(self.drives);
            let base = disks[drive - 1].next_multiple_of(4096);
            let limit = if rng.one_in(6) {
                rng.below(20_000)
            } else {
                SINK_ROOM as u64
            };
            Target::Disk(drive, base + (index * SINK_ROOM) as u64, limit)
        } else {
            Target::Window(4096 * rng.magnitude(8))
        };
        let never = self.trouble.cancels && rng.one_in(3);
        let cancel = (never || self.trouble.cancels && rng.one_in(2))
            .then(|| rng.magnitude(if never { 3_000_000_000 } else { 60_000_000 }));
        let mut task = Task {
            source,
            offset,
            length,
            stages,
            target,
            chunk,
            buffers: Vec::new(),
            deadline_ms: if short {
                rng.pick(&[400, 1000])
            } else {
                rng.pick(&[1000, 30_000])
            },
            reader: Reader {
                sip: rng.pick(&[1000, 4096, 1 << 20]),
                pace: rng.magnitude(100_000),
                from: if rng.one_in(4) {
                    rng.magnitude(4_000_000_000)
                } else {
                    0
                },
                never,
            },
            cancel,
            force: rng.one_in(3),
        };
        // The descriptor must fit into the buffers of each hop.
        let least = if chunk == 4096 { 3 } else { 2 };
        task.buffers = hops(&task)
            .iter()
            .map(|_| rng.range(least, 8) as u16)
            .collect();
        task
    }

    fn plan_troubles(&self, rng: &mut Rng, world: &mut World) {
        let trouble = self.trouble;
        let anyone = |rng: &mut Rng| 1 + rng.index(self.drives);
        if trouble.pauses {
            for _ in 0..rng.range(1, 20) {
                let who = anyone(rng);
                world.at(rng.magnitude(200_000_000), Event::Pause(who));
            }
        }
        if trouble.hangs {
            let who = anyone(rng);
            world.troubled[who] = true;
            world.at(rng.magnitude(50_000_000), Event::Hang(who));
        }
        if trouble.crashes {
            for _ in 0..rng.range(1, 2) {
                let who = anyone(rng);
                world.troubled[who] = true;
                world.at(rng.magnitude(50_000_000), Event::Crash(who));
            }
        }
        if trouble.resets {
            for _ in 0..rng.range(1, 5) {
                let one = rng.index(self.drives + 1);
                let other = rng.index(self.drives + 1);
                if one != other {
                    let time = rng.magnitude(50_000_000);
                    world.at(time, Event::Reset(one, other));
                }
            }
        }
        if trouble.lies {
            let liar = anyone(rng);
            world.troubled[liar] = true;
            world.agents[liar].lies = true;
            world.at(rng.magnitude(20_000_000), Event::Lie(liar));
            world.at(rng.magnitude(4_000_000_000) + 1_000_000, Event::Lose(liar));
        }
    }
}

/// Namespace sinks of one mesh, and bytes that each may write.
const SINKS: usize = 6;
const SINK_ROOM: usize = 256 << 10;
