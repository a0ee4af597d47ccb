// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Messages between host and drives: answered, relayed, kept, refused.

mod fabric;

use fabric::board::{member, Board};
use fabric::trouble::board;
use idc::entry::{Opcode, Request};
use idc::ipc::Arrival;
use idc::status::Status;

/// Takes all that came to the host.
fn host_receives(board: &mut Board, from: u16) -> Vec<(u64, Status, Vec<u8>)> {
    let mut got = Vec::new();
    let mut buffer = vec![0; 4096];
    let mut view = board.store.view(0);
    while let Some(arrival) = board
        .host
        .receive(member(from), &mut view, &mut buffer)
        .unwrap()
    {
        if let Arrival::Response { tag, response, .. } = arrival {
            got.push((tag, response.status, response.inline.to_vec()));
        }
    }
    got
}

#[test]
fn messages_are_answered_relayed_and_kept() {
    let mut board = board(2, &[], 13);
    let mut view = board.store.view(0);
    let host = &mut board.host;
    let requests = [
        (Request::ping(b"hello"), Status::OK, b"hello".to_vec()),
        (Request::send(b"one"), Status::OK, vec![]),
        (
            Request::relay(Opcode::PING, member(2), b"over there"),
            Status::OK,
            b"over there".to_vec(),
        ),
        (
            Request::relay(Opcode::SEND, member(2), b"for you"),
            Status::OK,
            vec![],
        ),
    ];
    for (tag, (request, ..)) in (0..).zip(&requests) {
        host.request(member(1), request, tag, &mut view).unwrap();
    }
    board.settle(&mut []);
    let mut answers = host_receives(&mut board, 1);
    answers.sort_by_key(|answer| answer.0);
    let expected: Vec<_> = (0..)
        .zip(requests)
        .map(|(tag, (_, status, inline))| (tag, status, inline))
        .collect();
    assert_eq!(answers, expected);
    assert_eq!(board.drive(1).host.inbox, [(0, b"one".to_vec())]);
    assert_eq!(board.drive(2).host.inbox, [(1, b"for you".to_vec())]);
}

#[test]
fn messages_that_cannot_be_done_are_refused_by_name() {
    let mut board = board(3, &[], 14);
    board.drive(1).host.inbox_room = 0;
    board.drive(1).firmware.detach_peer(member(3));
    let mut view = board.store.view(0);
    let mut longer = Request::ping(b"x");
    longer.arg16 = 37;
    let mut to_nobody = Request::relay(Opcode::PING, member(2), b"");
    to_nobody.arg32 = 99;
    let mut unknown = Request::ping(b"");
    unknown.opcode = Opcode(0x77);
    let requests = [
        (Request::send(b"x"), Status::BUSY),
        (longer, Status::BAD_ENTRY),
        (to_nobody, Status::BAD_ENTRY),
        (
            Request::relay(Opcode::PING, member(1), b""),
            Status::BAD_ENTRY,
        ),
        (
            Request::relay(Opcode::OPEN, member(2), b""),
            Status::BAD_ENTRY,
        ),
        (
            Request::relay(Opcode::PING, member(3), b""),
            Status::PEER_LOST,
        ),
        (unknown, Status::UNKNOWN_OPCODE),
        (Request::stream(Opcode::CANCEL, 5, 1, &[]), Status::OK),
        (Request::stream(Opcode::DATA, 5, 1, &[]), Status::NO_STREAM),
        (
            Request::stream(Opcode::OPEN, 5, 1, &[]),
            Status::NOT_GRANTED,
        ),
    ];
    for (tag, (request, _)) in (0..).zip(&requests) {
        board
            .host
            .request(member(1), request, tag, &mut view)
            .unwrap();
    }
    board.settle(&mut []);
    let mut answers = host_receives(&mut board, 1);
    answers.sort_by_key(|answer| answer.0);
    let expected: Vec<_> = requests.iter().map(|(_, status)| *status).collect();
    assert_eq!(
        answers.iter().map(|answer| answer.1).collect::<Vec<_>>(),
        expected
    );
    assert_eq!(board.drive(1).firmware.stats().refused, 9);
}

/// A relayed message whose target is lost is answered all the same.
#[test]
fn a_relay_to_a_drive_that_goes_is_answered() {
    let mut board = board(2, &[], 15);
    let mut view = board.store.view(0);
    board.drive(2).stopped = true;
    let request = Request::relay(Opcode::PING, member(2), b"x");
    board
        .host
        .request(member(1), &request, 7, &mut view)
        .unwrap();
    board.settle(&mut []);
    assert_eq!(host_receives(&mut board, 1), []);
    board.drive(1).firmware.detach_peer(member(2));
    board.settle(&mut []);
    let answers = host_receives(&mut board, 1);
    assert_eq!(answers, [(7, Status::PEER_LOST, vec![])]);
}
