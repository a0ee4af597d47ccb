// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Members and a host that lie about a stream of their own: each lie is refused by name, and the
//! truth still gets through.

mod fabric;

use fabric::board::{member, Board, Job, Run, To};
use fabric::oracle::{checksum_params, table};
use fabric::trouble;
use idc::entry::{DataBody, Opcode, Request};
use idc::function::FunctionId;
use idc::ipc::{Arrival, Ipc};
use idc::member::MemberId;
use idc::pipeline::descriptor::Descriptor;
use idc::status::{StageId, Status};
use proptest::prelude::*;
use zerocopy::FromZeros;

fn job(length: u64) -> Job {
    Job {
        source: 1,
        offset: 0,
        length,
        stages: vec![(2, FunctionId::Checksum, checksum_params())],
        chunk: 4096,
        buffers: 2,
        to: To::Host(16384),
        deadline_ms: 1000,
        sip: usize::MAX,
    }
}

/// Drive 1, of which a test says every word, at the head of a pipeline over drive 2.
struct Liar {
    board: Board,
    ipc: Box<Ipc>,
    runs: [Run; 1],
    descriptor: Vec<u8>,
}

impl Liar {
    fn new() -> Self {
        let mut board = Board::new(3, 1 << 20, 1);
        let mut ipc = Ipc::new_box_zeroed().unwrap();
        ipc.init(member(1));
        let out = board.table.ring(member(1), member(2)).unwrap();
        let into = board.table.ring(member(2), member(1)).unwrap();
        ipc.attach(member(2), &out, &into).unwrap();
        board.drive(1).stopped = true;
        board.drive(1).firmware.detach_peer(member(2));
        let (run, whole) = board.prepare(&job(1 << 20));
        let rest = Descriptor::parse(&whole).unwrap().rest().unwrap();
        let descriptor = [&rest.header[..], rest.hops, rest.stages].concat();
        Liar {
            board,
            ipc,
            runs: [run],
            descriptor,
        }
    }

    /// Sends a request and returns the status of its answer, if it comes at once.
    fn ask(&mut self, request: &Request<'_>) -> Option<(Status, u64)> {
        let mut view = self.board.store.view(1);
        self.ipc.request(member(2), request, 0, &mut view).unwrap();
        self.board.settle(&mut self.runs);
        self.answer()
    }

    fn answer(&mut self) -> Option<(Status, u64)> {
        let mut view = self.board.store.view(1);
        let mut buffer = [0; 64];
        match self
            .ipc
            .receive(member(2), &mut view, &mut buffer)
            .unwrap()?
        {
            Arrival::Response { response, .. } => Some((response.status, response.result)),
            other => panic!("{other:?}"),
        }
    }

    fn window(&self) -> u32 {
        self.runs[0].windows[1]
    }

    fn open(&mut self, descriptor: &[u8]) -> Option<Status> {
        let start = self.runs[0].ranges[1].1.start;
        self.board.store.poke(2, start, descriptor);
        let body = DataBody::new(self.window(), 0, descriptor.len() as u32, 0, 0);
        let stream = self.runs[0].stream;
        let request = Request::stream(Opcode::OPEN, stream, 1, body.as_data());
        self.ask(&request).map(|(status, _)| status)
    }

    fn data(&mut self, body: DataBody, more: bool) -> Option<(Status, u64)> {
        let stream = self.runs[0].stream;
        let mut request = Request::stream(Opcode::DATA, stream, 1, body.as_data());
        request.more = more;
        self.ask(&request)
    }
}

#[test]
fn a_peer_that_lies_about_its_data_is_refused_and_the_truth_passes() {
    let mut liar = Liar::new();
    let descriptor = liar.descriptor.clone();
    assert_eq!(liar.open(&descriptor), Some(Status::OK));
    assert_eq!(
        liar.open(&descriptor),
        Some(Status::BAD_DESCRIPTOR),
        "twice"
    );
    let w = liar.window();
    let (ring, consumed) = (liar.runs[0].windows[3], 16384);
    let lies = [
        (
            "another window",
            DataBody::new(ring, consumed, 8, 0, 0),
            true,
            Status::NOT_GRANTED,
        ),
        (
            "no window",
            DataBody::new(0, 0, 8, 0, 0),
            true,
            Status::NOT_GRANTED,
        ),
        (
            "past the end",
            DataBody::new(w, 8000, 4096, 0, 0),
            true,
            Status::NOT_GRANTED,
        ),
        (
            "past 64 bits",
            DataBody::new(w, u64::MAX, 2, 0, 0),
            true,
            Status::NOT_GRANTED,
        ),
        (
            "longer than a chunk",
            DataBody::new(w, 0, 4097, 0, 0),
            true,
            Status::BAD_ENTRY,
        ),
        (
            "empty with more",
            DataBody::new(w, 0, 0, 0, 0),
            true,
            Status::BAD_ENTRY,
        ),
        (
            "chunk 1 before 0",
            DataBody::new(w, 0, 8, 0, 1),
            true,
            Status::BAD_ENTRY,
        ),
        (
            "a gap in the stream",
            DataBody::new(w, 0, 8, 1, 0),
            true,
            Status::BAD_ENTRY,
        ),
    ];
    for (what, body, more, status) in lies {
        assert_eq!(liar.data(body, more), Some((status, 0)), "{what}");
    }
    let data = table(100, 1);
    let start = liar.runs[0].ranges[1].1.start;
    liar.board.store.poke(2, start, &data[..4096]);
    assert_eq!(
        liar.data(DataBody::new(w, 0, 4096, 0, 0), true),
        Some((Status::OK, 0))
    );
    liar.board.store.poke(2, start + 4096, &data[4096..4200]);
    let last = DataBody::new(w, 4096, 104, 4096, 1);
    assert_eq!(liar.data(last, false), Some((Status::OK, 4200)));
    assert_eq!(liar.runs[0].output, data[..4200]);
    assert_eq!(
        liar.data(last, false),
        Some((Status::NO_STREAM, 0)),
        "after the end"
    );
    liar.board.drive(2).firmware.detach_peer(member(1));
    liar.board.assert_idle();
}

/// With the reader stopped nothing is consumed: more chunks than buffers are too many.
#[test]
fn a_peer_that_sends_more_chunks_than_it_has_buffers_is_refused() {
    let mut liar = Liar::new();
    let descriptor = liar.descriptor.clone();
    assert_eq!(liar.open(&descriptor), Some(Status::OK));
    liar.runs[0].reader_stopped = true;
    let w = liar.window();
    let (mut taken, mut waiting) = (0, 0);
    let refused = loop {
        let sequence = taken + waiting;
        let body = DataBody::new(w, 0, 4096, u64::from(sequence) * 4096, sequence);
        match liar.data(body, true) {
            Some((Status::OK, _)) => taken += 1,
            None => waiting += 1,
            Some((status, _)) => break status,
        }
        assert!(sequence < 100);
    };
    assert_eq!((refused, waiting), (Status::BAD_ENTRY, 2), "after {taken}");
    // What it cancels it gets back: both chunks, and the answer to its cancel.
    let stream = liar.runs[0].stream;
    let request = Request::stream(Opcode::CANCEL, stream, 1, &[]);
    let mut answers = vec![liar.ask(&request).unwrap().0];
    while let Some((status, _)) = liar.answer() {
        answers.push(status);
    }
    assert_eq!(answers, [Status::CANCELLED, Status::CANCELLED, Status::OK]);
    liar.board.assert_idle();
}

#[test]
fn a_descriptor_that_is_not_for_this_hop_is_refused() {
    let mut liar = Liar::new();
    let good = liar.descriptor.clone();
    // Offsets from the specification: stream 12, first hop 24, hops from 144: member, window at +8.
    for (at, value) in [(12, 99), (24, 2), (144, 3), (152, 1), (0, 0), (8, 0)] {
        let mut bad = good.clone();
        bad[at] = value;
        let status = liar.open(&bad).unwrap();
        let expected = if at == 152 {
            Status::NOT_GRANTED
        } else {
            Status::BAD_DESCRIPTOR
        };
        assert_eq!(status, expected, "byte {at} = {value}");
    }
    liar.board.assert_idle();
    assert_eq!(liar.open(&good), Some(Status::OK));
}

#[test]
fn a_host_that_takes_more_than_there_is_fails_the_pipeline() {
    for lie in [1_u64 << 40, u64::MAX] {
        let data = table(3000, 2);
        let mut board = Board::new(2, 1 << 20, 2);
        board.set_disk(1, &data);
        let mut runs = [board.start(&job(data.len() as u64)).unwrap()];
        board.settle(&mut runs[..0]);
        let consumed = runs[0].consumed;
        board
            .store
            .poke(consumed.memory.get(), consumed.offset, &lie.to_le_bytes());
        runs[0].reader_stopped = true;
        board.settle(&mut runs);
        let failure = runs[0].completion.unwrap().failure;
        assert_eq!(failure.status, Status::BAD_ENTRY);
        assert!(failure.member.is_host());
        assert_eq!(failure.stage, StageId::SINK);
        board.finish(&runs);
    }
}

/// A window that the host took away is closed at once, whatever was agreed before.
#[test]
fn a_window_that_was_revoked_takes_no_more_data() {
    let mut liar = Liar::new();
    let descriptor = liar.descriptor.clone();
    assert_eq!(liar.open(&descriptor), Some(Status::OK));
    let w = liar.window();
    liar.board.drive(2).firmware.revoke(w);
    let refused = liar.data(DataBody::new(w, 0, 8, 0, 0), true);
    assert_eq!(refused, Some((Status::NOT_GRANTED, 0)));
}

/// What a lying peer may have put into a request.
fn lies() -> impl Strategy<Value = (u8, u32, u16, u16, u32, bool, Vec<u8>)> {
    let opcode = prop_oneof![
        Just(0x10_u8),
        Just(0x11),
        Just(0x12),
        Just(0x13),
        any::<u8>()
    ];
    let stream = prop_oneof![Just(1_u32), any::<u32>()];
    let window = prop_oneof![100_u32..110, any::<u32>()];
    let offset = prop_oneof![0_u64..20_000, any::<u64>()];
    let length = prop_oneof![0_u32..9000, any::<u32>()];
    let body = (window, length, offset, 0_u64..9000, 0_u32..4).prop_map(
        |(window, length, offset, stream_offset, sequence)| {
            let body = idc::entry::DataBody::new(window, offset, length, stream_offset, sequence);
            body.as_data().to_vec()
        },
    );
    (
        opcode,
        stream,
        0_u16..4,
        any::<u16>(),
        any::<u32>(),
        any::<bool>(),
        body,
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// A member of the mesh that sends whatever it likes, while a pipeline runs through its
    /// neighbours, makes nobody panic or write where the host granted nothing; the pipeline ends.
    #[test]
    fn lies_do_no_harm(
        lies in proptest::collection::vec(lies(), 1..40),
        noise in proptest::collection::vec((0_u64..8192, any::<[u8; 8]>()), 0..20),
        seed in any::<u64>(),
    ) {
        let data = table(200, 1);
        let mut board = trouble::board(3, &data, seed);
        board.store.0.borrow_mut().posted = false;
        let stages = vec![
            trouble::filter_at(1),
            trouble::encrypt_at(2),
            trouble::checksum_at(1),
        ];
        let mut runs = [board.start(&trouble::job(data.len() as u64, stages)).unwrap()];
        let mut allowed = Vec::new();
        for member in MemberId::all(3) {
            let block = board.table.block(member).unwrap().offset;
            allowed.push((member.get(), block, block + board.table.shape().block_bytes()));
        }
        allowed.extend(runs[0].ranges.iter().map(|(id, range)| (*id, range.start, range.start + range.len)));
        board.store.0.borrow_mut().allowed = Some(allowed);
        // Drive 3 lies.
        board.drive(3).stopped = true;
        let mut liar = zerocopy::FromZeros::new_box_zeroed().unwrap();
        let ipc: &mut idc::ipc::Ipc = &mut liar;
        ipc.init(member(3));
        for peer in [0, 1, 2] {
            let out = board.table.ring(member(3), member(peer)).unwrap();
            let into = board.table.ring(member(peer), member(3)).unwrap();
            ipc.attach(member(peer), &out, &into).unwrap();
        }
        let mut buffer = vec![0; 4096];
        for (opcode, stream, hop, arg16, arg32, more, data) in &lies {
            for peer in [1, 2] {
                let request = Request {
                    opcode: Opcode(*opcode),
                    stream: *stream,
                    hop: *hop,
                    arg16: *arg16,
                    arg32: *arg32,
                    more: *more,
                    data,
                };
                let mut view = board.store.view(3);
                let _ = ipc.request(member(peer), &request, 0, &mut view);
                while let Ok(Some(_)) = ipc.receive(member(peer), &mut view, &mut buffer) {}
            }
            for _ in 0..60 {
                board.step(&mut runs);
            }
        }
        // Then it writes noise into its rings to the others.
        for (at, bytes) in noise {
            for to in [1, 2] {
                let ring = board.table.ring(member(3), member(to)).unwrap();
                board.store.poke(to, ring.base.offset + at % ring.bytes(), &bytes[..]);
            }
            for _ in 0..20 {
                board.step(&mut runs);
            }
        }
        board.drive(1).firmware.detach_peer(member(3));
        board.drive(2).firmware.detach_peer(member(3));
        trouble::wait(&mut board, &mut runs);
        prop_assert_eq!(trouble::failure(&runs[0]).status, Status::OK);
        board.drive(3).firmware.detach_peer(member(1));
        board.drive(3).firmware.detach_peer(member(2));
        board.finish(&runs);
    }
}
