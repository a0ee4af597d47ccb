// SPDX-License-Identifier: GPL-2.0 OR MIT

//! The reference implementation against the test vectors of the specification.
//!
//! The vectors are read out of `Documentation/idc-protocol.rst`, where they were put by a program that
//! knows the specification's text only.

use idc::entry::{self, DataBody, Entry, Expected, Kind, Opcode, Request, Response, Stamp};
use idc::function::{CipherParameters, FilterParameters, FunctionId, Parameters};
use idc::member::{Location, MemberId, MemoryId};
use idc::memory::{Fault, Memory};
use idc::pipeline::descriptor::{
    Builder, Descriptor, HopSpec, PipelineSpec, Sink, Source, MAX_RESULT_WINDOW,
};
use idc::pipeline::report::{Report, State, REPORT_BYTES};
use idc::pipeline::MAX_DESCRIPTOR;
use idc::ring::{Body, Publish, Receiver, RingFlags, RingLayout, Sender};
use idc::status::{Failure, StageId, Status};
use idc::superblock::{nqn_hash, Superblock, SUPERBLOCK_BYTES};
use idc::window::WindowRef;
use zerocopy::{FromZeros, IntoBytes};

const SPECIFICATION: &str = include_str!("../../../Documentation/idc-protocol.rst");
const EPOCH: u32 = 0x0102_0304;

/// The bytes of the vector `name`: the indented lines after its `(*name*)::`.
fn vector(name: &str) -> Vec<u8> {
    let mark = format!("(*{name}*)::\n\n");
    let (_, rest) = SPECIFICATION
        .split_once(&mark)
        .expect("the vector is there");
    let bytes: Vec<u8> = rest
        .lines()
        .take_while(|line| line.starts_with("  "))
        .flat_map(str::split_whitespace)
        .map(|byte| u8::from_str_radix(byte, 16).expect("it is in hex"))
        .collect();
    assert!(!bytes.is_empty(), "{name} has bytes");
    bytes
}

fn member(id: u16) -> MemberId {
    MemberId::new(id).expect("the member is in range")
}

/// One memory of the mesh, in which rings and cells lie by offset.
struct Ram(Vec<u8>);

impl Ram {
    fn place(&mut self, at: Location, len: usize) -> Result<&mut [u8], Fault> {
        let start = usize::try_from(at.offset).map_err(|_| Fault::OutOfRange)?;
        self.0.get_mut(start..start + len).ok_or(Fault::OutOfRange)
    }
}

impl Memory for Ram {
    fn read(&mut self, at: Location, buf: &mut [u8]) -> Result<(), Fault> {
        buf.copy_from_slice(self.place(at, buf.len())?);
        Ok(())
    }

    fn write(&mut self, at: Location, data: &[u8]) -> Result<(), Fault> {
        self.place(at, data.len())?.copy_from_slice(data);
        Ok(())
    }

    fn load_u64(&mut self, at: Location) -> Result<u64, Fault> {
        let mut bytes = [0; 8];
        self.read(at, &mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }

    fn store_release_u64(&mut self, at: Location, value: u64) -> Result<(), Fault> {
        self.write(at, &value.to_le_bytes())
    }

    fn flush(&mut self, _: MemoryId) -> Result<(), Fault> {
        Ok(())
    }
}

/// A ring of four entries at 0, its credit cell at 256.
fn layout(from: u16) -> RingLayout {
    let to = member(3 - from);
    RingLayout {
        entries: 4,
        entry_bytes: 64,
        epoch: EPOCH,
        from: member(from),
        to,
        base: Location::of(to, 0),
        credit: Location::of(to, 256),
        ..RingLayout::default()
    }
}

/// What a sender of `from` stores as the entry with index `index`.
fn stored(from: u16, index: u32, body: &Body<'_>) -> Vec<u8> {
    let mut ram = Ram(vec![0; 320]);
    let mut sender = Sender::new_zeroed();
    sender.attach_at(&layout(from), index).unwrap();
    sender.push(&mut ram, body).unwrap();
    let slot = index as usize % 4 * 64;
    ram.0[slot..slot + 64].to_vec()
}

fn stored_request(from: u16, index: u32, cid: u16, flags: u8, request: &Request<'_>) -> Vec<u8> {
    let header = request.header(cid);
    let header = header.as_bytes().try_into().unwrap();
    let body = Body {
        kind: Kind::Request,
        flags,
        header,
        data: request.data,
    };
    stored(from, index, &body)
}

fn stored_response(from: u16, index: u32, response: &Response<'_>) -> Vec<u8> {
    let header = response.header();
    let header = header.as_bytes().try_into().unwrap();
    let body = Body {
        kind: Kind::Response,
        flags: 0,
        header,
        data: response.inline,
    };
    stored(from, index, &body)
}

fn parsed(entry: &[u8], from: u16, sequence: u32) -> Entry<'_> {
    let stamp = Stamp {
        sequence,
        epoch: EPOCH,
    };
    let expected = Expected {
        from: Some(member(from)),
        to: Some(member(3 - from)),
        stamp,
    };
    let (_, entry) = entry::parse(entry, &expected).expect("the vector is a valid entry");
    entry
}

#[test]
fn requests_lie_in_memory_as_specified() {
    let ping = Request::ping(b"hello");
    assert_eq!(stored_request(1, 5, 0x20, 0, &ping), vector("ping-request"));

    let body = DataBody::new(3, 8192, 4096, 65536, 16);
    let mut data = Request::stream(Opcode::DATA, 7, 1, body.as_data());
    data.more = true;
    let flags = entry::FLAG_MORE;
    assert_eq!(
        stored_request(1, u32::MAX, 0x41, flags, &data),
        vector("data-request")
    );

    let hold = Request::stream(Opcode::HOLD, 7, 0, &[]);
    let flags = entry::FLAG_NO_RESPONSE;
    assert_eq!(stored_request(2, 0, 0, flags, &hold), vector("hold-notice"));
}

#[test]
fn requests_are_read_as_specified() {
    let bytes = vector("ping-request");
    let Entry::Request {
        cid,
        wants_response,
        request,
    } = parsed(&bytes, 1, 5)
    else {
        panic!("a request");
    };
    assert_eq!(
        (cid, wants_response, request.opcode),
        (0x20, true, Opcode::PING)
    );
    assert_eq!(request.payload(), Some(&b"hello"[..]));

    let bytes = vector("data-request");
    let Entry::Request { request, .. } = parsed(&bytes, 1, u32::MAX) else {
        panic!("a request");
    };
    assert_eq!(
        (request.opcode, request.stream, request.hop),
        (Opcode::DATA, 7, 1)
    );
    assert!(request.more);
    let body = DataBody::parse(request.data).unwrap();
    assert_eq!(
        (body.window(), body.offset(), body.length()),
        (3, 8192, 4096)
    );
    assert_eq!((body.stream_offset(), body.sequence()), (65536, 16));
}

#[test]
fn an_entry_smaller_than_its_slot_is_as_specified() {
    let text = b"The quick brown fox jumps over the lazy dog";
    let ping = Request::ping(text);
    let header = ping.header(0x21);
    let body = Body {
        kind: Kind::Request,
        flags: 0,
        header: header.as_bytes().try_into().unwrap(),
        data: text,
    };
    let layout = RingLayout {
        entry_bytes: 256,
        credit: Location::of(member(2), 1024),
        ..layout(1)
    };
    let mut ram = Ram(vec![0; 1088]);
    let (mut sender, mut receiver) = (Sender::new_zeroed(), Receiver::new_zeroed());
    sender.attach_at(&layout, 6).unwrap();
    sender.push(&mut ram, &body).unwrap();
    assert_eq!(ram.0[512..768], vector("long-ping"));

    receiver.attach_at(&layout, 6).unwrap();
    let mut copy = [0; 128];
    let popped = receiver.pop(&mut ram, &mut copy).unwrap();
    let Some(Entry::Request { cid, request, .. }) = popped.map(|popped| popped.entry) else {
        panic!("a request has arrived");
    };
    assert_eq!((cid, request.payload()), (0x21, Some(&text[..])));
}

#[test]
fn responses_are_as_specified_in_both_directions() {
    let pong = Response {
        cid: 0x20,
        status: Status::OK,
        result: 0,
        inline: b"hello",
    };
    assert_eq!(stored_response(2, 10, &pong), vector("ping-response"));

    let failure = Failure::new(Status::FUNCTION_ERROR, member(2), StageId(1))
        .with_code(4)
        .with_offset(1234);
    let wire = failure.to_wire();
    let failing = Response {
        cid: 0x41,
        status: failure.status,
        result: 0,
        inline: &wire,
    };
    let bytes = vector("failing-response");
    assert_eq!(stored_response(2, 11, &failing), bytes);
    let Entry::Response(response) = parsed(&bytes, 2, 11) else {
        panic!("a response");
    };
    assert_eq!(
        Failure::from_wire(response.status, response.inline, member(1)),
        failure
    );
}

#[test]
fn tail_marks_and_metadata_are_as_specified() {
    let text = b"The quick brown fox jumps over the lazy dog";
    let ping = Request::ping(text);
    let header = ping.header(0x21);
    let body = Body {
        kind: Kind::Request,
        flags: 0,
        header: header.as_bytes().try_into().unwrap(),
        data: text,
    };
    let at = |offset| Location::of(member(2), offset);
    let layout = RingLayout {
        entries: 64,
        entry_bytes: 128,
        publish: Publish::Index,
        flags: RingFlags::OUT_OF_ORDER.with(RingFlags::METADATA),
        base: at(1024),
        tail: at(64),
        marks: at(128),
        metadata: at(192),
        ..layout(1)
    };
    let mut ram = Ram(vec![0; 1024 + 64 * 128]);
    let (mut sender, mut receiver) = (Sender::new_zeroed(), Receiver::new_zeroed());
    sender.attach_at(&layout, 5).unwrap();
    sender.push(&mut ram, &body).unwrap();
    sender.announce(&mut ram).unwrap();
    assert_eq!(ram.0[64..72], vector("tail-cell"));
    sender.push(&mut ram, &body).unwrap();
    assert_eq!(ram.0[192 + 6 * 8..192 + 7 * 8], vector("metadata-word"));

    ram.0.fill(0);
    sender.attach(&layout).unwrap();
    receiver.attach(&layout).unwrap();
    for _ in 0..34 {
        sender.push(&mut ram, &body).unwrap();
    }
    sender.announce(&mut ram).unwrap();
    while receiver.take(&mut ram, &mut [0; 128]).unwrap().is_some() {}
    for index in [33, 0, 2] {
        assert_eq!(receiver.release(&mut ram, index), Ok(true));
    }
    assert_eq!(ram.0[128..144], vector("marks-cells"));
}

#[test]
fn a_receiver_writes_the_credit_cell_as_specified() {
    let mut ram = Ram(vec![0; 320]);
    let (mut sender, mut receiver) = (Sender::new_zeroed(), Receiver::new_zeroed());
    sender.attach_at(&layout(1), 15).unwrap();
    receiver.attach_at(&layout(1), 15).unwrap();
    let header = Request::ping(&[]).header(0);
    let header = header.as_bytes().try_into().unwrap();
    let body = Body {
        kind: Kind::Request,
        flags: 0,
        header,
        data: &[],
    };
    sender.push(&mut ram, &body).unwrap();
    receiver
        .pop(&mut ram, &mut [0; 64])
        .unwrap()
        .expect("the entry has arrived");
    assert_eq!(ram.0[256..264], vector("credit-cell"));
}

#[test]
fn a_superblock_is_as_specified() {
    let block = Superblock {
        nqn_hash: nqn_hash(b"nqn.2019-08.org.qemu:csd0"),
        last_epoch: 9,
    };
    let mut bytes = [0; SUPERBLOCK_BYTES];
    block.encode(&mut bytes);
    assert_eq!(bytes[..], vector("superblock"));
    assert_eq!(Superblock::parse(&vector("superblock")), Ok(block));
}

fn filter() -> Parameters<'static> {
    Parameters::Filter(FilterParameters::lines(b';', b"col(3) = \"Lu\""))
}

fn encrypt() -> Parameters<'static> {
    let mut iv = [0; 16];
    for (byte, value) in iv.iter_mut().zip(0..) {
        *byte = value;
    }
    Parameters::Encrypt(CipherParameters {
        key_slot: 2,
        offset: 0,
        iv,
    })
}

fn encoded(parameters: &Parameters<'_>) -> Vec<u8> {
    let mut bytes = vec![0; parameters.encoded_len()];
    parameters.encode(&mut bytes).unwrap();
    bytes
}

#[test]
fn stage_parameters_are_as_specified() {
    for (name, parameters) in [
        ("filter-parameters", filter()),
        ("encrypt-parameters", encrypt()),
    ] {
        assert_eq!(encoded(&parameters), vector(name));
        assert_eq!(Parameters::parse(&vector(name)), Ok(parameters));
    }
}

fn spec() -> PipelineSpec {
    let at = |window, offset| WindowRef { window, offset };
    PipelineSpec {
        stream: 7,
        chunk_bytes: 65536,
        deadline_ms: 30_000,
        source: Source {
            nsid: 1,
            offset: 100,
            length: 1_000_000,
        },
        sink: Sink::HostWindow {
            ring: at(3, 0),
            length: 1 << 20,
            produced: at(4, 0),
            consumed: at(3, 1 << 20),
        },
        report: at(4, 64),
    }
}

#[test]
fn a_descriptor_and_what_is_sent_on_of_it_are_as_specified() {
    let mut buffer = vec![0; MAX_DESCRIPTOR];
    let mut builder = Builder::new(&mut buffer, &spec()).unwrap();
    for id in [1, 2] {
        let input = WindowRef {
            window: id.into(),
            offset: 0,
        };
        let hop = HopSpec {
            member: member(id),
            stage_count: 1,
            buffers: 4,
            input,
        };
        builder.hop(&hop).unwrap();
    }
    builder
        .stage(FunctionId::Filter, &encoded(&filter()))
        .unwrap();
    builder
        .stage(FunctionId::Encrypt, &encoded(&encrypt()))
        .unwrap();
    let length = builder.finish().unwrap();
    let bytes = vector("descriptor");
    assert_eq!(buffer[..length], bytes);

    let descriptor = Descriptor::parse(&bytes).unwrap();
    assert_eq!(descriptor.sink(), spec().sink);
    assert_eq!(descriptor.source(), spec().source);
    let rest = descriptor.rest().expect("a second hop");
    let sent_on = [&rest.header[..], rest.hops, rest.stages].concat();
    assert_eq!(sent_on, vector("descriptor-of-hop-1"));
    assert_eq!(Descriptor::parse(&sent_on).unwrap().first_stage(), 1);
}

#[test]
fn a_report_is_as_specified() {
    let report = Report {
        member: member(1),
        function: FunctionId::Filter.to_wire(),
        state: State::Running,
        status: Status::OK,
        bytes_in: 1000,
        bytes_out: 250,
        result: [40, 10],
        chunks: 3,
        messages: 12,
        updates: 5,
    };
    let mut bytes = [0; REPORT_BYTES];
    report.encode(&mut bytes);
    assert_eq!(bytes[..], vector("report"));
    assert_eq!(Report::parse(&vector("report")), Some(report));
}

#[test]
fn limits_are_those_of_the_text() {
    let text = SPECIFICATION;
    assert!(text.contains("at most 12,288") && MAX_DESCRIPTOR == 12288);
    assert!(text.contains("to 64 MiB") && MAX_RESULT_WINDOW == 64 << 20);
}
