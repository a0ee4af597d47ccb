// SPDX-License-Identifier: GPL-2.0

//! What programs read: every document is held against the schema file that is shipped for it.

use crate::support::device::Fake;
use crate::support::{kernel, schema, Machine};
use csdctl::failure::Exit;
use csdctl::sys::abi::*;
use csdctl::sys::Abi;
use nix::errno::Errno;
use serde_json::{json, Value};

fn machine() -> Machine {
    let mut fake = Fake::with_drives(3);
    fake.put(0, 0, b"a;1\nb;2\n");
    fake.create_mesh();
    fake.add_drive(3, "0000:06:00.0");
    let machine = Machine::new(fake);
    machine.write("key", &[7; 32]);
    machine
}

/// Runs a command that succeeds, and returns its one document.
fn good(machine: &Machine, name: &str, args: &[&str]) -> Value {
    let mut all = vec!["-o", "json"];
    all.extend(args);
    let ran = machine.run(&all);
    assert_eq!(ran.exit, Exit::Success, "{args:?}: {}", ran.err);
    let documents = schema::check(name, std::str::from_utf8(&ran.out).unwrap());
    assert_eq!(documents.len(), 1, "{args:?}");
    documents.into_iter().next().unwrap()
}

#[test]
fn every_command_prints_what_its_schema_says() {
    let machine = machine();
    let (key, out) = (machine.path("key"), machine.path("out"));
    let drives = good(&machine, "drives", &["drive", "list"]);
    assert_eq!(drives["drives"].as_array().unwrap().len(), 4);
    assert_eq!(drives["drives"][0]["memory"]["host_bytes"], 20_480);
    assert_eq!(drives["drives"][2]["functions"], json!(["filter"]));
    let one = good(&machine, "drives", &["drive", "show", "csd1"]);
    assert_eq!(one["drives"][0], drives["drives"][1]);
    let mesh = good(&machine, "meshes", &["mesh", "show"]);
    assert_eq!(mesh["meshes"][0]["rings"].as_array().unwrap().len(), 12);
    assert_eq!(mesh["meshes"][0]["rings"][0]["bytes"], 4160);
    let mesh = good(&machine, "meshes", &["mesh", "create", "csd3"]);
    assert_eq!(mesh["meshes"][0]["name"], "mesh1");
    let reset = ["mesh", "reset", "mesh0", "--pair", "csd0:csd1"];
    let reset = good(&machine, "mesh-reset", &reset);
    assert_eq!(reset["members"], json!(["csd0", "csd1"]));
    assert_eq!(reset["epoch"], 2);
    good(&machine, "mesh-destroy", &["mesh", "destroy", "mesh1"]);
    let ping = good(&machine, "msg-ping", &["msg", "ping", "--from", "all"]);
    assert_eq!(ping["pairs"].as_array().unwrap().len(), 6);
    good(&machine, "msg-send", &["msg", "send", "--to", "csd0", "hi"]);
    let received = good(&machine, "msg-recv", &["msg", "recv", "--at", "csd0"]);
    assert_eq!(received["text"], "hi");
    assert_eq!(received["hex"], "6869");
    let stages = "filter(where=col(1) = \"a\",delimiter=;),encrypt,checksum";
    let run = [
        "pipeline",
        "run",
        stages,
        "--key-file",
        &key,
        "--from",
        "csd0",
        "--length",
        "8",
        "--to",
        &out,
    ];
    good(&machine, "pipeline-run", &run);
    let to_drive = [
        "pipeline", "run", "checksum", "--from", "csd0", "--length", "8", "--to", "csd1:0",
        "--force",
    ];
    let report = good(&machine, "pipeline-run", &to_drive);
    assert_eq!(report["sink"]["kind"], "namespace");
    let plan = ["pipeline", "plan", "checksum", "--from", "csd0"];
    good(&machine, "pipeline-plan", &plan);
    let list = good(&machine, "pipelines", &["pipeline", "list"]);
    assert!(list["pipelines"].as_array().unwrap().len() >= 2);
    machine.fake.borrow_mut().pipelines[0].progress.state = CSD_PIPELINE_RUNNING;
    let cancelled = good(&machine, "pipeline-cancel", &["pipeline", "cancel", "1"]);
    assert_eq!(cancelled["pipelines"], json!([1]));
    let list = good(&machine, "pipelines", &["pipeline", "list"]);
    assert_eq!(list["pipelines"][0]["state"], "cancelled");
    assert_eq!(list["pipelines"][0]["errno"], "ECANCELED");
}

#[test]
fn bind_and_unbind_print_what_their_schemas_say() {
    let mut machine = Machine::new(Fake::default());
    kernel::plant(&mut machine, 2, "nvme");
    kernel::boot(&mut machine, &[]);
    machine.write(
        "proc/swaps",
        b"Filename Type\n/dev/nvme1n1 partition 1 0 -2\n",
    );
    let bound = good(&machine, "drive-bind", &["drive", "bind", "--all"]);
    assert_eq!(bound["drives"][0]["name"], "csd0");
    assert_eq!(bound["skipped"][0]["pci"], "0000:04:00.0");
    let unbound = good(&machine, "drive-unbind", &["drive", "unbind", "--all"]);
    assert_eq!(
        unbound["drives"],
        json!([{"name": "csd0", "pci": "0000:03:00.0", "driver": "nvme"}])
    );
}

#[test]
fn lists_are_lists_where_there_is_nothing() {
    let machine = Machine::new(Fake::default());
    for (name, member, args) in [
        ("drives", "drives", ["drive", "list"]),
        ("meshes", "meshes", ["mesh", "show"]),
        ("pipelines", "pipelines", ["pipeline", "list"]),
    ] {
        assert_eq!(good(&machine, name, &args)[member], json!([]));
    }
}

#[test]
fn the_doctor_prints_its_report_also_when_it_fails() {
    let mut machine = machine();
    kernel::plant(&mut machine, 3, "csd");
    good(&machine, "doctor", &["doctor"]);
    machine
        .fake
        .borrow_mut()
        .drives
        .get_mut(&0)
        .unwrap()
        .info
        .state = CSD_DRIVE_FAILED;
    let ran = machine.run(&["-o", "json", "doctor"]);
    assert_eq!((ran.exit, &*ran.err), (Exit::Failure, ""));
    let report = &schema::check("doctor", std::str::from_utf8(&ran.out).unwrap())[0];
    assert_eq!(report["failed"], 1);
}

#[test]
fn events_are_one_document_each() {
    let mut fake = Fake::default();
    for kind in CSD_EVENT_OVERFLOW..=CSD_EVENT_PIPELINE_CANCELLED + 1 {
        let mut event = csd_event::new();
        (event.type_, event.number, event.time_ns) = (kind, kind.into(), 1_796_137_445_678_000_000);
        (event.drive, event.mesh, event.peer) = (1, 0, CSD_MEMBER_HOST);
        (event.status, event.detail) = (19, 0x0002_0101);
        fake.events.push_back(event);
    }
    let ran = Machine::new(fake).run(&["-o", "json", "monitor", "--count", "13"]);
    assert_eq!(ran.exit, Exit::Success);
    let events = schema::check("event", std::str::from_utf8(&ran.out).unwrap());
    assert_eq!(events.len(), 13);
    assert_eq!(
        events[4]["aen"],
        json!({"type": 1, "information": 1, "log_page": 2})
    );
    assert_eq!(events[9]["pipeline"], 0x0002_0101);
    assert_eq!(events[9]["aen"], Value::Null);
    assert_eq!(events[0]["errno"], "ENODEV");
}

#[test]
fn errors_are_documents_on_standard_error() {
    let mut machine = machine();
    for (args, exit, errno) in [
        (&["drive", "show", "csd9"][..], 1, json!("ENXIO")),
        (&["mesh", "create", "csd0"], 5, json!("EBUSY")),
        (&["msg", "recv", "--timeout", "0"], 4, json!("EAGAIN")),
        (
            &["pipeline", "run", "filter", "--from", "csd0"],
            2,
            Value::Null,
        ),
        (&["pipeline", "frobnicate"], 2, Value::Null),
        (&["drive"], 2, Value::Null),
    ] {
        let mut all = args.to_vec();
        all.extend(["--output", "json"]);
        let ran = machine.run(&all);
        assert_eq!(ran.exit as u8, exit, "{args:?}");
        assert!(ran.out.is_empty(), "{args:?}");
        let error = &schema::check("error", &ran.err)[0]["error"];
        assert_eq!(
            (&error["exit"], &error["errno"]),
            (&json!(exit), &errno),
            "{args:?}"
        );
    }
    machine.fake.borrow_mut().missing = Some(Errno::ENOENT as i32);
    machine.terminal.err = true;
    let ran = machine.run(&["drive", "list", "-ojson"]);
    assert_eq!(schema::check("error", &ran.err)[0]["error"]["exit"], 3);
}

#[test]
fn data_on_standard_output_moves_the_report_to_standard_error() {
    let machine = machine();
    let args = [
        "-o", "json", "pipeline", "run", "checksum", "--from", "csd0", "--length", "4", "--to", "-",
    ];
    let ran = machine.run(&args);
    assert_eq!(ran.out, b"a;1\n");
    let report = &schema::check("pipeline-run", &ran.err)[0];
    assert_eq!(report["sink"]["kind"], "stdout");
    // RFC 3720's polynomial over "a;1\n", computed bit by bit.
    assert_eq!(report["pipeline"]["stages"][0]["crc32c"], json!(CRC_A1));
}

/// CRC-32C of `a;1` and a newline.
const CRC_A1: u32 = 0x9236_70f7;

#[test]
fn a_schema_refuses_what_it_does_not_describe() {
    let validator = schema::validator("mesh-destroy");
    assert!(validator.is_valid(&json!({"schema": "csd/1", "mesh": "mesh0"})));
    for wrong in [
        json!({"mesh": "mesh0"}),
        json!({"schema": "csd/2", "mesh": "mesh0"}),
        json!({"schema": "csd/1", "mesh": 0}),
        json!({"schema": "csd/1", "mesh": "mesh0", "more": 1}),
    ] {
        assert!(!validator.is_valid(&wrong), "{wrong}");
    }
}

#[test]
fn every_schema_file_can_be_used() {
    let names = schema::names();
    assert_eq!(names.len(), 16);
    for name in names {
        schema::validator(&name);
    }
}
