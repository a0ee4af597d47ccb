// SPDX-License-Identifier: GPL-2.0

//! `pipeline run`: what arrives where, and what is left when something goes wrong.
//!
//! Expected bytes come from awk and openssl, with the table in the file `table`, the key in `key` and
//! both IVs as below:
//!
//! ```text
//! awk -F';' '$3 == "Lu"' table | openssl enc -aes-256-ctr -K KEY -iv IV | xxd -p
//! ```

use crate::support::device::{Fake, Fault};
use crate::support::Machine;
use csdctl::failure::Exit;
use csdctl::sys::abi::*;
use csdctl::units::hex;
use nix::errno::Errno;
use serde_json::{json, Value};

const TABLE: &[u8] = b"0041;LATIN CAPITAL LETTER A;Lu;0\n0061;LATIN SMALL LETTER A;Ll;0\n\
    0042;LATIN CAPITAL LETTER B;Lu;0\n0030;DIGIT ZERO;Nd;0\n";
const IV: &str = "000102030405060708090a0b0c0d0e0f";
const ENCRYPTED: &str = "4302f3139bfd99db61189780def35a3f56909793562d62b1482ade36e7b62fcb2e918731\
    b49267bc610d366583a6b34cb1d341cef429cab4934c230e112f93b20525";
/// With the IV that the tests' machine "draws", a5 sixteen times.
const ENCRYPTED_DRAWN: &str =
    "50a7b8fbaf2728dd69f9ff6d33e2a150092bdb994ea9b5852bb7c9f12400367f7db12e\
    34d1ca870b6b6eec203c44bc5fb844bde41839eea4d449a94856a58168d85a";

fn machine() -> Machine {
    machine_with(|_| ())
}

fn machine_with(change: impl FnOnce(&mut Fake)) -> Machine {
    let mut fake = Fake::with_drives(3);
    fake.put(0, 0, TABLE);
    fake.create_mesh();
    change(&mut fake);
    let machine = Machine::new(fake);
    machine.write("key", &[b'K'; 32]);
    machine
}

fn run(machine: &Machine, more: &[&str]) -> crate::support::Ran {
    let length = TABLE.len().to_string();
    let mut args = vec!["pipeline", "run"];
    args.extend(more);
    args.extend(["--from", "csd0", "--length", &length]);
    machine.run(&args)
}

/// Names of files that csdctl made.
fn made(machine: &Machine) -> Vec<String> {
    let files = std::fs::read_dir(machine.dir.path()).unwrap();
    let mut names: Vec<String> = files
        .map(|file| file.unwrap().file_name().into_string().unwrap())
        .filter(|name| name != "key")
        .collect();
    names.sort();
    names
}

#[test]
fn filter_and_encrypt_give_what_awk_and_openssl_give() {
    let machine = machine();
    let (key, out) = (machine.path("key"), machine.path("out"));
    let ran = run(
        &machine,
        &[
            "filter,encrypt",
            "--delimiter",
            ";",
            "--where",
            "col(3) = \"Lu\"",
            "--key-file",
            &key,
            "--iv",
            IV,
            "--to",
            &out,
        ],
    );
    assert_eq!(ran.exit, Exit::Success, "{}", ran.err);
    assert_eq!(hex(&std::fs::read(&out).unwrap()), ENCRYPTED);
    assert_eq!(
        String::from_utf8(ran.out).unwrap(),
        "118 B in, 66 B out, 12 ms. Messages: 30. Through the host's CPU: 184 B (csd0, csd1 are proxied).\n\
         filter@csd0: 2 of 4 records\n"
    );
    assert_eq!(ran.err, "");
    assert_eq!(made(&machine), ["out"]);
}

#[test]
fn options_in_place_win_over_those_for_all() {
    let machine = machine();
    let stages = format!(
        "filter(where=col(3) = \"Lu\",delimiter=;)@csd1,encrypt(iv={IV},key-file=\"{}\")@csd0",
        machine.path("key")
    );
    let none = machine.path("none");
    let ran = run(&machine, &[&stages, "--to", "-"]);
    assert_eq!(hex(&ran.out), ENCRYPTED);
    assert!(ran.err.starts_with("118 B in, 66 B out"), "{}", ran.err);
    let stages: Vec<u32> = machine.fake.borrow().requests[0]
        .stages
        .iter()
        .map(|stage| stage.drive)
        .collect();
    assert_eq!(stages, [1, 0]);
    // A common option that every stage overrides is most likely a mistake.
    let stages = format!("encrypt(key-file={},iv={IV})", machine.path("key"));
    assert_eq!(
        run(&machine, &[&stages, "--key-file", &none, "--to", "-"]).exit,
        Exit::Usage
    );
}

#[test]
fn without_an_iv_one_is_drawn_and_written_beside_the_result() {
    let machine = machine();
    let (key, out) = (machine.path("key"), machine.path("out"));
    let ran = run(
        &machine,
        &[
            "filter(where=col(3) = \"Lu\",delimiter=;),encrypt",
            "--key-file",
            &key,
            "--to",
            &out,
        ],
    );
    assert_eq!(hex(&std::fs::read(&out).unwrap()), ENCRYPTED_DRAWN);
    assert_eq!(
        std::fs::read_to_string(out.clone() + ".iv").unwrap(),
        "a5".repeat(16) + "\n"
    );
    let text = String::from_utf8(ran.out).unwrap();
    let line = format!("IV (drawn, also in {out}.iv): {}", "a5".repeat(16));
    assert_eq!(text.lines().last(), Some(&*line));
}

#[test]
fn decrypt_gives_back_what_encrypt_took() {
    let machine = machine();
    let stages = "encrypt,decrypt@csd1,checksum";
    let key = machine.path("key");
    let ran = run(
        &machine,
        &[stages, "--key-file", &key, "--iv", IV, "--to", "-"],
    );
    assert_eq!(ran.out, TABLE);
    // CRC-32C of the table, computed bit by bit from RFC 3720's polynomial.
    assert!(
        ran.err
            .contains("checksum@csd0: CRC-32C 300ec2c0 of 118 bytes"),
        "{}",
        ran.err
    );
}

#[test]
fn the_request_says_what_the_command_line_says() {
    let machine = machine();
    let args = [
        "pipeline",
        "run",
        "checksum",
        "--from",
        "0000:04:00.0",
        "--offset",
        "4KiB",
        "--length",
        "1000",
        "--chunk",
        "8KiB",
        "--window",
        "64KiB",
        "--deadline",
        "1500ms",
        "--to",
        "-",
        "--mesh",
        "mesh0",
    ];
    assert_eq!(machine.run(&args).exit, Exit::Success);
    let request = machine.fake.borrow().requests[0].clone();
    assert_eq!(
        (request.mesh, request.source_drive, request.source_nsid),
        (0, 1, 1)
    );
    assert_eq!((request.source_offset, request.source_length), (4096, 1000));
    assert_eq!((request.chunk_bytes, request.window_bytes), (8192, 65_536));
    assert_eq!(request.deadline_ms, 1500);
    assert_eq!(request.stages[0].drive, CSD_DRIVE_ANY);
    assert_eq!(request.stages[0].key, None);
}

#[test]
fn without_a_length_all_is_read_up_to_the_end() {
    let machine = machine();
    machine.run(&[
        "pipeline", "run", "checksum", "--from", "csd0", "--offset", "1048000", "--to", "-",
    ]);
    assert_eq!(machine.fake.borrow().requests[0].source_length, 576);
}

#[test]
fn a_pipeline_that_fails_leaves_nothing_and_names_stage_and_remedy() {
    let machine = machine_with(|fake| {
        fake.fault = Some(Fault {
            errno: Errno::EMSGSIZE,
            status: 0x070c,
            drive: 1,
            stage: 0,
            offset: 70_000,
        });
    });
    machine.write("out", b"what was there before");
    let out = machine.path("out");
    let ran = run(&machine, &["filter(where=col(1) = 1)@csd1", "--to", &out]);
    assert_eq!(ran.exit, Exit::Failure);
    assert_eq!(
        ran.err,
        "csdctl: filter@csd1: the record at byte 70,000 is longer than 64 KiB (EMSGSIZE), after 118 B in\n  \
         try: data whose records end in newlines, or another --offset and --length\n"
    );
    assert_eq!(made(&machine), ["out"]);
    assert_eq!(std::fs::read(&out).unwrap(), b"what was there before");
}

#[test]
fn what_there_is_of_a_result_is_kept_if_that_is_asked_for() {
    let machine = machine_with(|fake| {
        fake.fault = Some(Fault {
            errno: Errno::ETIMEDOUT,
            status: 0x0709,
            drive: 0,
            stage: 0,
            offset: 0,
        });
    });
    let out = machine.path("out");
    let ran = run(&machine, &["checksum", "--to", &out, "--keep-partial"]);
    assert_eq!(ran.exit, Exit::Timeout);
    assert!(
        ran.err.contains("checksum@csd0: no progress within 30 s"),
        "{}",
        ran.err
    );
    assert_eq!(made(&machine), ["out.partial"]);
    assert_eq!(
        std::fs::read(machine.path("out.partial")).unwrap(),
        &TABLE[..59]
    );
}

#[test]
fn a_signal_cancels_and_leaves_nothing() {
    let machine = machine_with(|fake| fake.interrupt = true);
    let out = machine.path("out");
    let ran = run(&machine, &["checksum", "--to", &out]);
    assert_eq!(ran.exit, Exit::Interrupted);
    assert_eq!(ran.err, "csdctl: cancelled\n");
    assert!(made(&machine).is_empty());
}

#[test]
fn a_result_goes_through_a_symbolic_link_and_keeps_the_files_mode() {
    use std::os::unix::fs::{symlink, PermissionsExt};
    let machine = machine();
    machine.write("real", b"old");
    std::fs::set_permissions(machine.path("real"), std::fs::Permissions::from_mode(0o600)).unwrap();
    symlink("real", machine.path("link")).unwrap();
    let link = machine.path("link");
    assert_eq!(
        run(&machine, &["checksum", "--to", &link]).exit,
        Exit::Success
    );
    assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_eq!(std::fs::read(machine.path("real")).unwrap(), TABLE);
    assert_eq!(
        std::fs::metadata(&link).unwrap().permissions().mode() & 0o777,
        0o600
    );
}

#[test]
fn a_device_file_is_written_directly() {
    let machine = machine();
    let ran = run(&machine, &["checksum", "--to", "/dev/null"]);
    assert_eq!(ran.exit, Exit::Success, "{}", ran.err);
}

#[test]
fn a_terminal_is_not_filled_with_a_result_nobody_asked_for_there() {
    let mut machine = machine();
    machine.terminal.out = true;
    let ran = run(&machine, &["checksum"]);
    assert_eq!(ran.exit, Exit::Usage);
    assert!(ran.err.contains("try: --to FILE"), "{}", ran.err);
}

#[test]
fn a_function_that_no_drive_has_is_refused_with_what_they_have() {
    let machine = machine_with(|fake| {
        for drive in fake.drives.values_mut() {
            drive.info.functions = 0b10;
        }
    });
    let key = machine.path("key");
    let ran = run(
        &machine,
        &[
            "filter(where=col(1) = 1),encrypt",
            "--key-file",
            &key,
            "--to",
            "-",
        ],
    );
    assert_eq!(
        ran.err,
        "csdctl: no drive in mesh0 offers \"encrypt\" (csd0: filter; csd1: filter; csd2: filter)\n  \
         try: csdctl drive list --functions, or add a drive that has it to the mesh\n"
    );
}

/// Writes the table to csd1 at 512 KiB and returns what csd1 holds then.
fn to_drive(machine: &Machine, more: &[&str]) -> (crate::support::Ran, Vec<u8>) {
    let mut args = vec!["checksum", "--to", "csd1:512KiB"];
    args.extend(more);
    let ran = run(machine, &args);
    let disk = machine.fake.borrow().drives[&1].disks[0].clone();
    (ran, disk)
}

#[test]
fn a_drive_is_written_to_by_force_only() {
    let machine = machine();
    let (ran, disk) = to_drive(&machine, &[]);
    assert_eq!(ran.exit, Exit::Refused);
    assert!(ran.err.contains("try: --force"), "{}", ran.err);
    assert!(disk.iter().all(|byte| *byte == 0));
    let (ran, disk) = to_drive(&machine, &["--force"]);
    assert_eq!(ran.exit, Exit::Success, "{}", ran.err);
    assert_eq!(&disk[512 << 10..(512 << 10) + TABLE.len()], TABLE);
    let text = String::from_utf8(ran.out).unwrap();
    let line = "Result: 118 bytes from byte 524,288 of namespace 1 of csd1 on; the rest of the last block is zeroed.";
    assert_eq!(text.lines().last(), Some(line));
}

#[test]
fn a_signature_anywhere_it_may_be_refuses_even_by_force() {
    // ext4's magic; btrfs's; an old md superblock 64 KiB before the end; XFS where the result would go.
    for (offset, magic, name) in [
        (0x438, &b"\x53\xef"[..], "ext2, ext3 or ext4"),
        (0x1_0040, b"_BHRfS_M", "btrfs"),
        ((1 << 20) - 65_536, b"\xfc\x4e\x2b\xa9", "md"),
        (512 << 10, b"XFSB", "XFS"),
    ] {
        let machine = machine_with(|fake| fake.put(1, offset, magic));
        let before = machine.fake.borrow().drives[&1].disks[0].clone();
        let (ran, disk) = to_drive(&machine, &["--force"]);
        assert_eq!(ran.exit, Exit::Refused, "{name}");
        assert!(
            ran.err.contains(&format!("carries a signature: {name}\n")),
            "{}",
            ran.err
        );
        assert_eq!(disk, before);
    }
}

#[test]
fn a_result_never_overwrites_what_it_is_made_from() {
    let machine = machine();
    for (offset, to, exit) in [
        ("64KiB", "csd0:64KiB", Exit::Refused),
        ("64KiB", "csd0:65024", Exit::Refused),
        ("65000", "csd0:65024", Exit::Refused),
        ("64KiB", "csd0:128KiB", Exit::Success),
        ("64KiB", "csd0:60KiB", Exit::Success),
        ("64KiB", "csd1:64KiB", Exit::Success),
    ] {
        let args = [
            "pipeline", "run", "checksum", "--from", "csd0", "--length", "1000", "--offset",
            offset, "--to", to, "--force",
        ];
        let ran = machine.run(&args);
        assert_eq!(ran.exit, exit, "{offset} {to}: {}", ran.err);
    }
}

#[test]
fn a_result_without_a_place_for_its_iv_is_none() {
    let machine = machine();
    let (key, out) = (machine.path("key"), machine.path("out"));
    std::fs::create_dir(machine.path("out.iv")).unwrap();
    let ran = run(&machine, &["encrypt", "--key-file", &key, "--to", &out]);
    assert_eq!(ran.exit, Exit::Failure);
    assert_eq!(made(&machine), ["out.iv"]);
}

#[test]
fn a_place_on_a_drive_is_a_block_of_its_namespace() {
    let machine = machine();
    for (to, exit) in [
        ("csd1:100", Exit::Usage),
        ("csd1:1MiB", Exit::Failure),
        ("csd1:0", Exit::Refused),
    ] {
        assert_eq!(run(&machine, &["checksum", "--to", to]).exit, exit, "{to}");
    }
    let ran = run(
        &machine,
        &[
            "checksum",
            "--to",
            "csd1:0",
            "--force",
            "--to-namespace",
            "2",
        ],
    );
    assert!(ran.err.contains("csd1 has no namespace 2"), "{}", ran.err);
}

#[test]
fn json_tells_all_that_people_are_told() {
    let machine = machine();
    let (key, out) = (machine.path("key"), machine.path("out"));
    let stages = "filter(where=col(3) = \"Lu\",delimiter=;),encrypt,checksum";
    let ran = run(
        &machine,
        &["-o", "json", stages, "--key-file", &key, "--to", &out],
    );
    let report: Value = serde_json::from_slice(&ran.out).unwrap();
    assert_eq!(report["schema"], "csd/1");
    assert_eq!(
        report["source"],
        json!({"drive": "csd0", "nsid": 1, "offset": 0, "length": 118})
    );
    assert_eq!(report["sink"]["kind"], "file");
    assert_eq!(report["sink"]["path"], json!(out));
    assert_eq!(report["ivs"][0]["iv"], json!("a5".repeat(16)));
    assert_eq!(report["ivs"][0]["stage"], 1);
    assert_eq!(report["ivs"][0]["drawn"], true);
    assert_eq!(report["pipeline"]["state"], "done");
    assert_eq!(report["pipeline"]["bytes_out"], 66);
    assert_eq!(report["pipeline"]["stages"][0]["records_in"], 4);
    assert_eq!(report["pipeline"]["stages"][0]["records_out"], 2);
    assert_eq!(report["pipeline"]["stages"][1]["records_in"], Value::Null);
    assert!(report["pipeline"]["stages"][2]["crc32c"].is_u64());
    assert_eq!(ran.err, "");
}
