// SPDX-License-Identifier: GPL-2.0

//! What one ring costs on the bus, exactly: by publication, by batch, by where it lies.

use csd_sim::pcie::{Class, Counts, Pcie, Refused};
use csd_sim::rng::Rng;
use idc::entry::Kind;
use idc::member::{Location, MemberId, MemoryId};
use idc::memory::{Fault, Memory};
use idc::ring::{Body, Publish, Receiver, RingFlags, RingLayout, Sender};
use zerocopy::FromZeros;

const SENDER: usize = 1;
const RECEIVER: usize = 2;
/// Cells lie below, entries above.
const ENTRIES: u64 = 4096;
const N: u32 = 64;

/// One member's way to the memories, at a time.
struct Wire<'a> {
    bus: &'a mut Pcie,
    me: usize,
    now: u64,
}

impl Wire<'_> {
    fn class(at: Location) -> Class {
        if at.offset < ENTRIES {
            Class::Cell
        } else {
            Class::Entry
        }
    }
}

fn fault(refused: Refused) -> Fault {
    match refused {
        Refused::NoMemory => Fault::NoMemory,
        Refused::OutOfRange => Fault::OutOfRange,
        Refused::Gone => Fault::Gone,
    }
}

impl Memory for Wire<'_> {
    fn read(&mut self, at: Location, buf: &mut [u8]) -> Result<(), Fault> {
        let memory = at.memory.index();
        let class = Self::class(at);
        let read = self
            .bus
            .read(self.me, memory, at.offset, buf, class, self.now);
        read.map_err(fault)
    }
    fn write(&mut self, at: Location, data: &[u8]) -> Result<(), Fault> {
        let memory = at.memory.index();
        let class = Self::class(at);
        let sent = self
            .bus
            .write(self.me, memory, at.offset, data, class, self.now);
        sent.map(|_| ()).map_err(fault)
    }
    fn load_u64(&mut self, at: Location) -> Result<u64, Fault> {
        let mut bytes = [0; 8];
        self.read(at, &mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }
    fn store_release_u64(&mut self, at: Location, value: u64) -> Result<(), Fault> {
        self.write(at, &value.to_le_bytes())
    }
    fn flush(&mut self, memory: MemoryId) -> Result<(), Fault> {
        self.bus
            .flush(self.me, memory.index(), self.now)
            .map_err(fault)
    }
    fn publish(&mut self, at: Location, entry: &[u8]) -> Result<(), Fault> {
        self.write(at, entry)
    }
}

fn id(member: usize) -> MemberId {
    MemberId::new(member as u16).unwrap()
}

/// Sends `messages` in batches of `batch` through a ring whose entries lie in `home`. Returns what
/// each of the two did to each of three memories.
fn exchange(
    publish: Publish,
    flags: RingFlags,
    home: usize,
    batch: u32,
    messages: u32,
) -> [[Counts; 3]; 2] {
    let mut bus = Pcie::new(Rng::new(7), 500);
    for memory in 0..3 {
        bus.lend(memory, 1 << 16);
    }
    let at = |memory, offset| Location::of(id(memory), offset);
    let layout = RingLayout {
        entries: N,
        entry_bytes: 64,
        epoch: 9,
        from: id(SENDER),
        to: id(RECEIVER),
        publish,
        flags,
        base: at(home, ENTRIES),
        credit: at(SENDER, 0),
        marks: at(SENDER, 64),
        tail: at(RECEIVER, 128),
        metadata: at(home, ENTRIES + 64 * u64::from(N)),
    };
    let mut sender = Sender::new_box_zeroed().unwrap();
    let mut receiver = Receiver::new_box_zeroed().unwrap();
    sender.attach(&layout).unwrap();
    receiver.attach(&layout).unwrap();
    let (mut sent, mut taken, mut now) = (0, 0, 0);
    let mut copy = [0; 64];
    while taken < messages {
        // Long enough for all that was sent to be there.
        now += 1_000_000;
        let bus = &mut bus;
        let mut wire = Wire {
            bus,
            me: SENDER,
            now,
        };
        for _ in 0..batch.min(messages - sent) {
            let header = [0; 16];
            let body = Body {
                kind: Kind::Request,
                flags: 0,
                header: &header,
                data: &[1; 36],
            };
            sender.push(&mut wire, &body).unwrap();
            sent += 1;
        }
        sender.announce(&mut wire).unwrap();
        now += 1_000_000;
        wire.me = RECEIVER;
        wire.now = now;
        while receiver.pop(&mut wire, &mut copy).unwrap().is_some() {
            taken += 1;
        }
    }
    assert_eq!(taken, messages);
    [SENDER, RECEIVER].map(|who| [0, 1, 2].map(|memory| *bus.counts(who, memory)))
}

/// All that `counts` say about memories that are not `own`.
fn across(counts: &[Counts; 3], own: usize) -> (u64, u64, u64, u64) {
    let others = || counts.iter().zip(0..).filter(|(_, memory)| *memory != own);
    let sum = |of: fn(&Counts) -> u64| others().map(|(counts, _)| of(counts)).sum();
    (
        sum(|counts| counts.writes[0]),
        sum(|counts| counts.writes[1] + counts.writes[2]),
        sum(|counts| counts.reads.iter().sum()),
        sum(|counts| counts.flushes),
    )
}

const M: u64 = 64 * 100;

#[test]
fn entry_publication_is_one_write_a_message() {
    for batch in [1, 5, 16] {
        let [sender, receiver] =
            exchange(Publish::Entry, RingFlags::NONE, RECEIVER, batch, M as u32);
        assert_eq!(across(&sender, SENDER), (M, 0, 0, 0));
        let (entries, credits, reads, flushes) = across(&receiver, RECEIVER);
        assert_eq!((entries, reads, flushes), (0, 0, 0));
        assert!(credits <= 4 * M / u64::from(N), "{credits} credits");
    }
}

#[test]
fn index_publication_is_two_writes_or_one_and_a_share_of_one() {
    for batch in [1, 2, 4, 8, 16] {
        let [sender, receiver] =
            exchange(Publish::Index, RingFlags::NONE, RECEIVER, batch, M as u32);
        assert_eq!(
            across(&sender, SENDER),
            (M, M / u64::from(batch), 0, 0),
            "batches of {batch}"
        );
        let (entries, credits, reads, flushes) = across(&receiver, RECEIVER);
        assert_eq!((entries, reads, flushes), (0, 0, 0));
        assert!(credits <= 4 * M / u64::from(N), "{credits} credits");
    }
}

/// Where announcement and entries part ways there is one flush a batch, and only there does the
/// receiver read across the bus.
#[test]
fn a_ring_elsewhere_costs_a_flush_a_batch() {
    for home in [0, SENDER] {
        for batch in [1, 8] {
            let [sender, receiver] =
                exchange(Publish::Index, RingFlags::NONE, home, batch, M as u32);
            let batches = M / u64::from(batch);
            let flushes: u64 = sender.iter().map(|counts| counts.flushes).sum();
            assert_eq!(flushes, batches);
            let (_, cells, reads, _) = across(&sender, SENDER);
            assert_eq!((cells, reads), (batches, 0));
            let (_, _, reads, flushes) = across(&receiver, RECEIVER);
            assert!(reads >= M, "{reads}");
            assert_eq!(flushes, 0);
        }
    }
}

/// Marks cost a write for each entry that is released by itself, and no read.
#[test]
fn marks_cost_at_most_a_write_each() {
    let [sender, receiver] = exchange(
        Publish::Entry,
        RingFlags::OUT_OF_ORDER,
        RECEIVER,
        8,
        M as u32,
    );
    assert_eq!(across(&sender, SENDER), (M, 0, 0, 0));
    let (entries, marks, reads, flushes) = across(&receiver, RECEIVER);
    assert_eq!((entries, reads, flushes), (0, 0, 0));
    assert!(marks <= M, "{marks} marks");
}
