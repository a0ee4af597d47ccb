// SPDX-License-Identifier: GPL-2.0

//! A ring between two pinned threads, against other queues and against a bare cache line.
//!
//! Owns what is measured: 64-byte messages one after the other, and there and back, for each queue;
//! and what a mesh of 32 drives takes. tools/bench/ring runs it several times and compares.

use criterion::{criterion_group, criterion_main, Criterion};
use crossbeam_queue::ArrayQueue;
use csd_native::Native;
use idc::entry::{Kind, Request};
use idc::member::{Location, MemberId};
use idc::memory::Memory;
use idc::mesh::{MeshShape, MeshTable};
use idc::ring::{Body, Publish, Receiver, RingFlags, RingLayout, Sender};
use ringbuf::traits::{Consumer, Producer, Split};
use std::hint::{black_box, spin_loop};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};
use zerocopy::{FromZeros, IntoBytes};

const ENTRIES: u32 = 256;
type Message = [u8; 64];

/// The sending end of a queue.
trait Send64: Send + 'static {
    fn send(&mut self, number: u64) -> bool;
}

/// The receiving end.
trait Receive64: Send + 'static {
    fn receive(&mut self) -> Option<u64>;
}

fn message(number: u64) -> Message {
    let mut message = [0; 64];
    message[..8].copy_from_slice(&number.to_le_bytes());
    message
}

fn number(message: &[u8]) -> u64 {
    message
        .first_chunk()
        .map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

struct Ours<E> {
    memory: Native,
    end: Box<E>,
}

impl Send64 for Ours<Sender> {
    #[inline]
    fn send(&mut self, number: u64) -> bool {
        let mut data = [0; 36];
        data[..8].copy_from_slice(&number.to_le_bytes());
        let header = Request::send(&data).header(number as u16);
        let body = Body {
            kind: Kind::Request,
            flags: 0,
            header: header.as_bytes().try_into().unwrap(),
            data: &data,
        };
        let sent = self.end.push(&mut self.memory, &body).is_ok();
        if sent && self.end.layout().has_tail() {
            self.end.announce(&mut self.memory).unwrap();
        }
        sent
    }
}

impl Receive64 for Ours<Receiver> {
    #[inline]
    fn receive(&mut self) -> Option<u64> {
        let mut copy = [0; 64];
        let popped = self.end.pop(&mut self.memory, &mut copy).unwrap()?;
        match popped.entry {
            idc::entry::Entry::Request { request, .. } => Some(number(request.data)),
            idc::entry::Entry::Response(_) => None,
        }
    }
}

fn ours(publish: Publish) -> (Ours<Sender>, Ours<Receiver>) {
    let member = |id| MemberId::new(id).unwrap();
    let at = |offset| Location::of(member(0), offset);
    let layout = RingLayout {
        entries: ENTRIES,
        entry_bytes: 64,
        epoch: 1,
        from: member(1),
        to: member(2),
        publish,
        flags: RingFlags::NONE,
        base: at(4096),
        credit: at(0),
        tail: at(1024),
        marks: at(2048),
        metadata: at(2048),
    };
    let memory = Native::new(1, 4096 + layout.bytes() as usize);
    let mut sender = Sender::new_box_zeroed().unwrap();
    let mut receiver = Receiver::new_box_zeroed().unwrap();
    sender.attach(&layout).unwrap();
    receiver.attach(&layout).unwrap();
    let sender = Ours {
        memory: memory.clone(),
        end: sender,
    };
    let receiver = Ours {
        memory,
        end: receiver,
    };
    (sender, receiver)
}

impl Send64 for rtrb::Producer<Message> {
    #[inline]
    fn send(&mut self, number: u64) -> bool {
        self.push(message(number)).is_ok()
    }
}

impl Receive64 for rtrb::Consumer<Message> {
    #[inline]
    fn receive(&mut self) -> Option<u64> {
        self.pop().ok().map(|message| number(&message))
    }
}

impl Send64 for Arc<ArrayQueue<Message>> {
    #[inline]
    fn send(&mut self, number: u64) -> bool {
        self.push(message(number)).is_ok()
    }
}

impl Receive64 for Arc<ArrayQueue<Message>> {
    #[inline]
    fn receive(&mut self) -> Option<u64> {
        self.pop().map(|message| number(&message))
    }
}

fn crossbeam() -> (Arc<ArrayQueue<Message>>, Arc<ArrayQueue<Message>>) {
    let queue = Arc::new(ArrayQueue::new(ENTRIES as usize));
    (queue.clone(), queue)
}

impl Send64 for ringbuf::HeapProd<Message> {
    #[inline]
    fn send(&mut self, number: u64) -> bool {
        self.try_push(message(number)).is_ok()
    }
}

impl Receive64 for ringbuf::HeapCons<Message> {
    #[inline]
    fn receive(&mut self) -> Option<u64> {
        self.try_pop().map(|message| number(&message))
    }
}

/// A cache line that one side writes and the other waits for: no queue is faster.
#[repr(align(128))]
struct Line(AtomicU64);

struct LineReader(Arc<Line>, u64);

impl Send64 for Arc<Line> {
    #[inline]
    fn send(&mut self, number: u64) -> bool {
        self.0.store(number + 1, Ordering::Release);
        true
    }
}

impl Receive64 for LineReader {
    #[inline]
    fn receive(&mut self) -> Option<u64> {
        let value = self.0 .0.load(Ordering::Acquire);
        if value == self.1 {
            return None;
        }
        self.1 = value;
        Some(value - 1)
    }
}

fn line() -> (Arc<Line>, LineReader) {
    let line = Arc::new(Line(AtomicU64::new(0)));
    (line.clone(), LineReader(line, 0))
}

fn pin(core: usize) {
    core_affinity::set_for_current(core_affinity::CoreId { id: core });
}

fn get(queue: &mut impl Receive64) -> u64 {
    loop {
        if let Some(number) = queue.receive() {
            return number;
        }
        spin_loop();
    }
}

fn put(queue: &mut impl Send64, number: u64) {
    while !queue.send(number) {
        spin_loop();
    }
}

/// Time until the other thread has taken `count` messages.
fn stream<S: Send64, R: Receive64>((mut send, mut receive): (S, R), count: u64) -> Duration {
    let start = Arc::new(Barrier::new(2));
    let ready = start.clone();
    let receiving = std::thread::spawn(move || {
        pin(1);
        ready.wait();
        for due in 0..count {
            assert_eq!(get(&mut receive), due);
        }
        Instant::now()
    });
    pin(0);
    start.wait();
    let started = Instant::now();
    for number in 0..count {
        put(&mut send, number);
    }
    receiving.join().unwrap() - started
}

/// Half the time of `count` messages there and back.
fn one_way<S: Send64, R: Receive64>(there: (S, R), back: (S, R), count: u64) -> Duration {
    let (mut send, mut echo_in) = there;
    let (mut echo_out, mut receive) = back;
    let start = Arc::new(Barrier::new(2));
    let ready = start.clone();
    let echoing = std::thread::spawn(move || {
        pin(1);
        ready.wait();
        for _ in 0..count {
            let number = get(&mut echo_in);
            put(&mut echo_out, number);
        }
    });
    pin(0);
    start.wait();
    let started = Instant::now();
    for number in 0..count {
        put(&mut send, number);
        assert_eq!(get(&mut receive), number);
    }
    let time = started.elapsed();
    echoing.join().unwrap();
    time / 2
}

fn streams(c: &mut Criterion) {
    let mut group = c.benchmark_group("stream");
    group.bench_function("idc-entry", |b| {
        b.iter_custom(|n| stream(ours(Publish::Entry), n))
    });
    group.bench_function("idc-index", |b| {
        b.iter_custom(|n| stream(ours(Publish::Index), n))
    });
    group.bench_function("rtrb", |b| {
        b.iter_custom(|n| stream(rtrb::RingBuffer::new(ENTRIES as usize), n))
    });
    group.bench_function("crossbeam", |b| b.iter_custom(|n| stream(crossbeam(), n)));
    group.bench_function("ringbuf", |b| {
        b.iter_custom(|n| stream(ringbuf::HeapRb::new(ENTRIES as usize).split(), n))
    });
    group.finish();
}

fn latencies(c: &mut Criterion) {
    let mut group = c.benchmark_group("one-way");
    group.bench_function("line", |b| b.iter_custom(|n| one_way(line(), line(), n)));
    group.bench_function("idc-entry", |b| {
        b.iter_custom(|n| one_way(ours(Publish::Entry), ours(Publish::Entry), n))
    });
    group.bench_function("idc-index", |b| {
        b.iter_custom(|n| one_way(ours(Publish::Index), ours(Publish::Index), n))
    });
    let few = ENTRIES as usize;
    group.bench_function("rtrb", |b| {
        b.iter_custom(|n| one_way(rtrb::RingBuffer::new(few), rtrb::RingBuffer::new(few), n))
    });
    group.bench_function("crossbeam", |b| {
        b.iter_custom(|n| one_way(crossbeam(), crossbeam(), n))
    });
    group.bench_function("ringbuf", |b| {
        let queue = || ringbuf::HeapRb::new(few).split();
        b.iter_custom(|n| one_way(queue(), queue(), n))
    });
    group.finish();
}

/// Lays out and attaches both ends of every peer ring; returns how many, and bytes of shared memory
/// and of the ends.
fn establish(drives: u16) -> (u32, u64, u64) {
    let shape = MeshShape {
        drives,
        entries: 64,
        entry_bytes: 64,
    };
    let mut table = MeshTable::new_box_zeroed().unwrap();
    table.init(&shape, 1).unwrap();
    let mut bytes = 0;
    let mut most = 0;
    for member in MemberId::all(drives) {
        let block = table.block_bytes(member);
        table.place(member, Location::of(member, 0)).unwrap();
        bytes += block;
        most = most.max(block);
    }
    let mut memory: Native = Native::new(usize::from(drives) + 1, most as usize);
    let mut ends = Vec::new();
    for (from, to) in shape.rings() {
        if from.is_host() || to.is_host() {
            continue;
        }
        let ring = table.ring(from, to).unwrap();
        memory.zero(ring.base, ring.bytes()).unwrap();
        memory.zero(ring.credit, 64).unwrap();
        let mut sender = Sender::new_box_zeroed().unwrap();
        let mut receiver = Receiver::new_box_zeroed().unwrap();
        sender.attach(&ring).unwrap();
        receiver.attach(&ring).unwrap();
        ends.push((sender, receiver));
    }
    let each = (size_of::<Sender>() + size_of::<Receiver>()) as u64;
    (ends.len() as u32, bytes, each * ends.len() as u64)
}

fn growth(c: &mut Criterion) {
    let mut group = c.benchmark_group("establish");
    for drives in [2, 8, 32] {
        let (rings, shared, ends) = establish(drives);
        println!(
            "establish/{drives}: {rings} peer rings, {shared} bytes shared, {ends} bytes of ends"
        );
        group.bench_function(drives.to_string(), |b| {
            b.iter(|| black_box(establish(drives)))
        });
    }
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(10).warm_up_time(Duration::from_millis(200)).measurement_time(Duration::from_millis(800));
    targets = streams, latencies, growth
}
criterion_main!(benches);
