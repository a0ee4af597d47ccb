// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Requests and responses between members, and the credits that keep them from locking up.

mod fabric;

use fabric::rng::Rng;
use fabric::Shared;
use idc::entry::{Opcode, Request, Response};
use idc::ipc::{
    Abandoned, Arrival, Ipc, SendError, MAX_MESSAGES, MAX_REQUESTS, MAX_STREAM_REQUESTS,
};
use idc::member::{Location, MemberId};
use idc::mesh::{MeshShape, MeshTable};
use idc::ring::PeerFault;
use idc::status::Status;
use std::collections::{HashMap, VecDeque};
use zerocopy::FromZeros;

fn member(id: u16) -> MemberId {
    MemberId::new(id).unwrap()
}

struct Mesh {
    store: Shared,
    table: Box<MeshTable>,
    ends: Vec<Box<Ipc>>,
}

fn mesh(drives: u16, entries: u32, entry_bytes: u32) -> Mesh {
    let shape = MeshShape {
        drives,
        entries,
        entry_bytes,
    };
    let store = Shared::new();
    let mut table = MeshTable::new_box_zeroed().unwrap();
    table.init(&shape, 3).unwrap();
    for member in MemberId::all(drives) {
        store.add(member.get(), 4096 + shape.block_bytes() as usize);
        table.place(member, Location::of(member, 4096)).unwrap();
    }
    let ends = MemberId::all(drives).map(|me| {
        let mut ipc = Ipc::new_box_zeroed().unwrap();
        ipc.init(me);
        for peer in MemberId::all(drives).filter(|peer| *peer != me) {
            let (out, into) = (table.ring(me, peer).unwrap(), table.ring(peer, me).unwrap());
            ipc.attach(peer, &out, &into).unwrap();
        }
        ipc
    });
    let ends = ends.collect();
    Mesh { store, table, ends }
}

#[derive(Debug, PartialEq)]
enum Got {
    Request(u16, Vec<u8>),
    Response(u64, Status, Vec<u8>),
    Late,
}

impl Mesh {
    fn request(&mut self, from: u16, to: u16, tag: u64, data: &[u8]) -> Result<u16, SendError> {
        let mut view = self.store.view(from);
        self.ends[usize::from(from)].request(member(to), &Request::ping(data), tag, &mut view)
    }

    fn respond(&mut self, from: u16, to: u16, cid: u16, inline: &[u8]) -> Result<(), SendError> {
        let mut view = self.store.view(from);
        let response = Response {
            cid,
            status: Status::OK,
            result: 0,
            inline,
        };
        self.ends[usize::from(from)].respond(member(to), &response, &mut view)
    }

    fn receive(&mut self, at: u16, from: u16) -> Result<Option<Got>, PeerFault> {
        let mut buffer = vec![0; 4096];
        let mut view = self.store.view(at);
        let got = self.ends[usize::from(at)].receive(member(from), &mut view, &mut buffer)?;
        Ok(got.map(|got| match got {
            Arrival::Request { cid, request, .. } => {
                assert_eq!(request.opcode, Opcode::PING);
                Got::Request(cid, request.payload().unwrap().to_vec())
            }
            Arrival::Response { tag, response, .. } => {
                Got::Response(tag, response.status, response.inline.to_vec())
            }
            Arrival::Late => Got::Late,
        }))
    }
}

#[test]
fn an_answer_finds_its_request_in_any_order() {
    let mut mesh = mesh(2, 64, 64);
    for tag in 0..3 {
        mesh.request(1, 2, tag, &[tag as u8]).unwrap();
    }
    let mut cids = Vec::new();
    while let Some(Got::Request(cid, data)) = mesh.receive(2, 1).unwrap() {
        cids.push((cid, data));
    }
    for (cid, data) in cids.iter().rev() {
        mesh.respond(2, 1, *cid, data).unwrap();
    }
    for tag in [2, 1, 0] {
        let expected = Got::Response(tag, Status::OK, vec![tag as u8]);
        assert_eq!(mesh.receive(1, 2).unwrap(), Some(expected));
    }
    assert_eq!(mesh.ends[1].open_requests(member(2)), 0);
}

#[test]
fn messages_and_streams_have_credits_of_their_own() {
    let mut mesh = mesh(2, 128, 64);
    for tag in 0..u64::from(MAX_MESSAGES) {
        mesh.request(1, 2, tag, b"").unwrap();
    }
    assert_eq!(mesh.request(1, 2, 99, b""), Err(SendError::NoCredit));
    let mut view = mesh.store.view(1);
    let data = Request::stream(Opcode::DATA, 1, 1, &[]);
    for tag in 0..u64::from(MAX_STREAM_REQUESTS) {
        let sent = mesh.ends[1].request(member(2), &data, tag, &mut view);
        sent.unwrap();
    }
    let refused = mesh.ends[1].request(member(2), &data, 99, &mut view);
    assert_eq!(refused, Err(SendError::NoCredit));
    let Some(Got::Request(cid, _)) = mesh.receive(2, 1).unwrap() else {
        panic!()
    };
    mesh.respond(2, 1, cid, b"").unwrap();
    mesh.receive(1, 2).unwrap().unwrap();
    let refused = mesh.ends[1].request(member(2), &data, 99, &mut view);
    assert_eq!(
        refused,
        Err(SendError::NoCredit),
        "a message has ended, no stream request"
    );
    mesh.request(1, 2, 99, b"").unwrap();
}

#[test]
fn a_notice_leaves_a_quarter_of_the_ring_to_others() {
    let mut mesh = mesh(2, 16, 64);
    let mut sent = 0;
    let mut view = mesh.store.view(1);
    let hold = Request::stream(Opcode::HOLD, 1, 0, &[]);
    while mesh.ends[1].notice(member(2), &hold, &mut view).is_ok() {
        sent += 1;
    }
    assert_eq!(sent, 12);
    for tag in 0..4 {
        mesh.request(1, 2, tag, b"").unwrap();
    }
}

/// A member that owes answers pays before it asks.
#[test]
fn responses_go_ahead_of_requests() {
    let mut mesh = mesh(2, 4, 64);
    mesh.request(1, 2, 1, b"x").unwrap();
    let Some(Got::Request(cid, _)) = mesh.receive(2, 1).unwrap() else {
        panic!()
    };
    for tag in 0..4 {
        mesh.request(2, 1, tag, b"").unwrap();
    }
    mesh.respond(2, 1, cid, b"x").unwrap();
    assert!(mesh.ends[2].owes());
    assert_eq!(mesh.request(2, 1, 5, b""), Err(SendError::NoCredit));
    for _ in 0..4 {
        assert!(matches!(mesh.receive(1, 2), Ok(Some(Got::Request(..)))));
    }
    mesh.request(2, 1, 5, b"").unwrap();
    let answer = Got::Response(1, Status::OK, b"x".to_vec());
    assert_eq!(mesh.receive(1, 2), Ok(Some(answer)));
    assert!(matches!(mesh.receive(1, 2), Ok(Some(Got::Request(..)))));
}

#[test]
fn one_answer_too_many_is_refused_and_one_that_nobody_asked_for_fences() {
    let mut mesh = mesh(2, 16, 64);
    let unmatched = SendError::Fault(PeerFault::Unmatched);
    assert_eq!(mesh.respond(2, 1, 0, b""), Err(unmatched));
    mesh.request(1, 2, 0, b"").unwrap();
    let Some(Got::Request(cid, _)) = mesh.receive(2, 1).unwrap() else {
        panic!()
    };
    mesh.respond(2, 1, cid ^ 1, b"").unwrap();
    assert_eq!(mesh.receive(1, 2), Err(PeerFault::Unmatched));
    assert_eq!(mesh.receive(1, 2), Err(PeerFault::Fenced));
}

#[test]
fn a_request_beyond_the_limit_fences_its_sender() {
    let mut mesh = mesh(2, 16, 64);
    // A peer that does not keep count: bare entries on its ring.
    let out = mesh.table.ring(member(1), member(2)).unwrap();
    let mut sender = idc::ring::Sender::new_zeroed();
    sender.attach(&out).unwrap();
    for cid in 0..=MAX_REQUESTS as u16 {
        let header = Request::ping(b"").header(cid);
        let body = idc::ring::Body {
            kind: idc::entry::Kind::Request,
            flags: 0,
            header: zerocopy::IntoBytes::as_bytes(&header).try_into().unwrap(),
            data: &[],
        };
        sender.push(&mut mesh.store.view(1), &body).unwrap();
        let got = mesh.receive(2, 1);
        if usize::from(cid) < MAX_REQUESTS {
            assert!(matches!(got, Ok(Some(Got::Request(..)))), "{cid}");
        } else {
            assert_eq!(got, Err(PeerFault::TooManyRequests));
        }
    }
}

#[test]
fn a_forgotten_request_is_answered_to_nobody() {
    let mut mesh = mesh(2, 16, 64);
    let cid = mesh.request(1, 2, 7, b"x").unwrap();
    mesh.ends[1].forget(member(2), cid);
    assert_eq!(mesh.ends[1].open_requests(member(2)), 1);
    let Some(Got::Request(cid, _)) = mesh.receive(2, 1).unwrap() else {
        panic!()
    };
    mesh.respond(2, 1, cid, b"").unwrap();
    assert_eq!(mesh.receive(1, 2).unwrap(), Some(Got::Late));
    assert_eq!(mesh.ends[1].open_requests(member(2)), 0);
}

#[test]
fn detaching_a_peer_abandons_what_was_asked_of_it() {
    let mut mesh = mesh(3, 16, 64);
    mesh.request(1, 2, 20, b"").unwrap();
    mesh.request(1, 2, 21, b"").unwrap();
    mesh.request(1, 3, 30, b"").unwrap();
    mesh.ends[1].detach(member(2));
    assert_eq!(mesh.request(1, 2, 22, b""), Err(SendError::NotAttached));
    let mut tags = Vec::new();
    while let Some(Abandoned { peer, tag }) = mesh.ends[1].take_abandoned() {
        assert_eq!(peer, member(2));
        tags.push(tag);
    }
    assert_eq!(tags, [20, 21]);
    assert_eq!(mesh.ends[1].open_requests(member(3)), 1);
}

#[test]
fn a_long_answer_goes_at_once_or_says_busy() {
    let mut mesh = mesh(2, 4, 256);
    let long = vec![5; 228];
    mesh.request(1, 2, 0, &long).unwrap();
    let Some(Got::Request(cid, data)) = mesh.receive(2, 1).unwrap() else {
        panic!()
    };
    assert_eq!(data, long);
    mesh.respond(2, 1, cid, &data).unwrap();
    assert_eq!(
        mesh.receive(1, 2).unwrap(),
        Some(Got::Response(0, Status::OK, long.clone()))
    );
    // Fill 2 -> 1 with notices, which nobody drains, so that the next answer must wait.
    let mut view = mesh.store.view(2);
    let hold = Request::stream(Opcode::HOLD, 1, 0, &[]);
    while mesh.ends[2].notice(member(1), &hold, &mut view).is_ok() {}
    mesh.request(2, 1, 9, b"").unwrap();
    mesh.request(1, 2, 1, &long).unwrap();
    let Some(Got::Request(cid, _)) = mesh.receive(2, 1).unwrap() else {
        panic!()
    };
    mesh.respond(2, 1, cid, &long).unwrap();
    assert!(mesh.ends[2].owes());
    assert!(!mesh.ends[2].service(&mut mesh.store.view(2)));
    let mut buffer = vec![0; 4096];
    let mut answers = Vec::new();
    for _ in 0..8 {
        let mut view = mesh.store.view(1);
        while let Some(got) = mesh.ends[1]
            .receive(member(2), &mut view, &mut buffer)
            .unwrap()
        {
            if let Arrival::Response { tag, response, .. } = got {
                answers.push((tag, response.status, response.inline.len()));
            }
        }
        mesh.ends[2].service(&mut mesh.store.view(2));
    }
    assert_eq!(answers, [(1, Status::BUSY, 0)]);
    assert!(!mesh.ends[2].owes());
}

/// Members that ask each other as fast as they can, draining in random order with late writes,
/// never lock up, and every request gets its own answer.
#[test]
fn a_busy_mesh_never_locks_up() {
    for seed in 0..20 {
        let mut rng = Rng::new(seed);
        let drives = 3;
        let mut mesh = mesh(drives, [4, 8, 64][seed as usize % 3], 64);
        mesh.store.0.borrow_mut().posted = true;
        let mut waiting: HashMap<(u16, u64), Vec<u8>> = HashMap::new();
        let mut owed: HashMap<u16, VecDeque<(u16, u16, Vec<u8>)>> = HashMap::new();
        let (mut tag, mut answered) = (0_u64, 0_u64);
        for _ in 0..20_000 {
            let me = rng.below(usize::from(drives) + 1) as u16;
            let peer = rng.below(usize::from(drives) + 1) as u16;
            if me == peer {
                continue;
            }
            match rng.below(4) {
                0 => {
                    let data = tag.to_le_bytes();
                    if mesh.request(me, peer, tag, &data).is_ok() {
                        waiting.insert((me, tag), data.to_vec());
                    }
                    tag += 1;
                }
                1 => mesh.store.deliver(me.into(), peer.into(), rng.below(4)),
                2 => {
                    while let Some(got) = mesh.receive(me, peer).unwrap() {
                        match got {
                            Got::Request(cid, data) => {
                                owed.entry(me).or_default().push_back((peer, cid, data));
                            }
                            Got::Response(tag, status, data) => {
                                assert_eq!(status, Status::OK);
                                assert_eq!(waiting.remove(&(me, tag)), Some(data));
                                answered += 1;
                            }
                            Got::Late => panic!(),
                        }
                    }
                }
                _ => {
                    mesh.ends[usize::from(me)].service(&mut mesh.store.view(me));
                    if let Some((peer, cid, data)) = owed.entry(me).or_default().pop_front() {
                        mesh.respond(me, peer, cid, &data).unwrap();
                    }
                }
            }
        }
        for _ in 0..200 {
            mesh.store.deliver_all();
            for me in 0..=drives {
                while let Some((peer, cid, data)) = owed.entry(me).or_default().pop_front() {
                    mesh.respond(me, peer, cid, &data).unwrap();
                }
                mesh.ends[usize::from(me)].service(&mut mesh.store.view(me));
                for peer in (0..=drives).filter(|peer| *peer != me) {
                    while let Some(got) = mesh.receive(me, peer).unwrap() {
                        match got {
                            Got::Request(cid, data) => {
                                owed.entry(me).or_default().push_back((peer, cid, data));
                            }
                            Got::Response(tag, _, data) => {
                                assert_eq!(waiting.remove(&(me, tag)), Some(data));
                                answered += 1;
                            }
                            Got::Late => panic!(),
                        }
                    }
                }
            }
        }
        assert!(
            waiting.is_empty(),
            "seed {seed}: {} requests without answer",
            waiting.len()
        );
        assert!(answered > 200, "seed {seed}: {answered}");
    }
}

#[test]
fn sizes_stay_in_the_budget() {
    assert!(size_of::<Ipc>() <= 320 << 10, "{}", size_of::<Ipc>());
}
