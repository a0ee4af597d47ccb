// SPDX-License-Identifier: GPL-2.0

//! What people read, held against transcripts in `golden/`.

use crate::support::device::Fake;
use crate::support::golden::check;
use crate::support::{kernel, Machine};
use csdctl::sys::abi::*;
use nix::errno::Errno;

#[test]
fn drives_are_listed_and_shown() {
    let mut fake = Fake::with_drives(3);
    fake.drives.get_mut(&1).unwrap().info.critical_warning = 2;
    fake.create_mesh();
    fake.add_drive(10, "0000:0d:00.0");
    check("drive", &Machine::new(fake));
}

#[test]
fn without_a_module_the_remedy_is_to_load_it() {
    let fake = Fake {
        missing: Some(Errno::ENOENT as i32),
        ..Fake::default()
    };
    check("no-module", &Machine::new(fake));
}

#[test]
fn without_the_rights_the_remedy_is_the_group() {
    let fake = Fake {
        missing: Some(Errno::EACCES as i32),
        ..Fake::default()
    };
    check("no-rights", &Machine::new(fake));
}

#[test]
fn without_drives_the_remedy_is_to_bind_some() {
    check("no-drives", &Machine::new(Fake::default()));
}

#[test]
fn meshes_are_created_shown_and_destroyed() {
    check("mesh", &Machine::new(Fake::with_drives(3)));
}

#[test]
fn buffers_of_every_kind_are_asked_for_and_shown() {
    let mut fake = Fake::with_drives(2);
    fake.add_drive(3, "0000:06:00.0");
    let machine = Machine::new(fake);
    check("mesh-buffers", &machine);
    let fake = machine.fake.borrow();
    let [pair] = fake.pairs[..] else {
        panic!("{:?}", fake.pairs)
    };
    assert_eq!((pair.from, pair.to), (CSD_MEMBER_HOST, 3));
    let fields = CSD_PAIR_PLACE | CSD_PAIR_ENTRIES | CSD_PAIR_FORM;
    assert_eq!(pair.fields, fields);
    assert_eq!((pair.place, pair.place_drive), (CSD_PLACE_MEMBER, 1));
    assert_eq!((pair.entries, pair.form), (32, CSD_FORM_LIST));
}

#[test]
fn what_cannot_be_combined_is_told_with_the_reason() {
    let fake = Fake {
        mesh_reason: Some((
            Errno::EINVAL,
            CSD_REASON_LIST_SHARED,
            CSD_MEMBER_HOST,
            CSD_PAIR_NONE,
        )),
        ..Fake::with_drives(2)
    };
    check("mesh-reason", &Machine::new(fake));
    let fake = Fake {
        mesh_reason: Some((Errno::EINVAL, CSD_REASON_PAIR_TWICE, CSD_MEMBER_HOST, 1)),
        ..Fake::with_drives(2)
    };
    check("mesh-reason-pair", &Machine::new(fake));
    let fake = Fake {
        mesh_reason: Some((Errno::ENOSPC, CSD_REASON_SPACE, 1, CSD_PAIR_NONE)),
        ..Fake::with_drives(2)
    };
    check("mesh-reason-space", &Machine::new(fake));
}

#[test]
fn every_reason_of_the_module_has_words() {
    // All reasons that idc knows, and nothing that the module cannot say.
    let known = (1..0x200).filter_map(idc::mesh::MeshError::from_code);
    assert!(known.clone().count() > 25);
    for reason in known {
        assert!(reason.to_string().len() > 10, "{reason:?}");
    }
}

#[test]
fn buffers_between_two_members_are_reset() {
    let mut fake = Fake::with_drives(2);
    fake.create_mesh();
    let machine = Machine::new(fake);
    check("mesh-reset", &machine);
    let resets = machine.fake.borrow().resets.clone();
    assert_eq!(resets.len(), 2);
    assert_eq!((resets[0].from, resets[0].to, resets[0].flags), (0, 1, 0));
    assert_eq!(resets[0].timeout_ms, 5000);
    assert_eq!((resets[1].from, resets[1].to), (CSD_MEMBER_HOST, 1));
    assert_eq!(resets[1].flags, CSD_RING_RESET_ABANDON);
    assert_eq!(resets[1].timeout_ms, 100);
    machine.fake.borrow_mut().reset_error = Some(Errno::ETIMEDOUT);
    check("mesh-reset-timeout", &machine);
}

#[test]
fn a_mesh_that_cannot_be_created_names_the_drive_in_the_way() {
    let mut fake = Fake::with_drives(3);
    fake.mesh_error = Some((Errno::EOPNOTSUPP, CSD_MEMBER_HOST));
    check("mesh-no-memory", &Machine::new(fake));
}

#[test]
fn a_mesh_with_a_pipeline_is_destroyed_by_force_only() {
    let mut fake = Fake::with_drives(2);
    fake.create_mesh();
    fake.meshes.get_mut(&0).unwrap().0.pipelines = 1;
    check("mesh-busy", &Machine::new(fake));
}

#[test]
fn messages_are_sent_and_received() {
    let mut fake = Fake::with_drives(3);
    fake.create_mesh();
    fake.silent = vec![2];
    fake.add_drive(3, "0000:06:00.0");
    check("msg", &Machine::new(fake));
}

#[test]
fn events_are_one_line_each() {
    let mut fake = Fake::default();
    let mut event = |kind, drive, mesh, peer, status, detail| {
        use csdctl::sys::Abi;
        let mut event = csd_event::new();
        event.type_ = kind;
        event.number = fake.events.len() as u64 + 1;
        // 2026-12-01 15:04:05.678 UTC, and a second more each time
        event.time_ns = 1_796_137_445_678_000_000 + fake.events.len() as u64 * 1_000_000_000;
        (event.drive, event.mesh, event.peer) = (drive, mesh, peer);
        (event.status, event.detail) = (status, detail);
        fake.events.push_back(event);
    };
    let (none, no_mesh) = (CSD_MEMBER_HOST, CSD_MESH_NONE);
    event(CSD_EVENT_DRIVE_BOUND, 0, no_mesh, none, 0, 0);
    event(CSD_EVENT_MESH_CREATED, none, 0, none, 0, 0);
    // SMART log page 02h, temperature threshold
    event(CSD_EVENT_AEN, 1, no_mesh, none, 0, 0x0002_0101);
    event(CSD_EVENT_RING_FAULT, 1, 0, 2, 0, 3);
    event(CSD_EVENT_RING_RESET, 1, 0, 2, 0, 5);
    event(CSD_EVENT_RING_RESET, 1, 0, none, 110, 0);
    event(CSD_EVENT_PIPELINE_DONE, 0, 0, none, 0, 17);
    event(CSD_EVENT_PIPELINE_FAILED, 1, 0, none, 110, 18);
    event(CSD_EVENT_PIPELINE_CANCELLED, 0, 0, none, 125, 19);
    event(CSD_EVENT_DRIVE_RESET, 1, no_mesh, none, 0, 0);
    event(CSD_EVENT_DRIVE_RESET, 1, no_mesh, none, 5, 5);
    event(CSD_EVENT_PEER_LOST, 1, 0, none, 19, 0);
    event(CSD_EVENT_DRIVE_GONE, 1, no_mesh, none, 0, 0);
    event(CSD_EVENT_OVERFLOW, none, no_mesh, none, 0, 1234);
    event(CSD_EVENT_MESH_DESTROYED, none, 0, none, 0, 0);
    check("monitor", &Machine::new(fake));
}

#[test]
fn command_lines_that_make_no_sense_say_why() {
    let mut fake = Fake::with_drives(3);
    fake.create_mesh();
    let machine = Machine::new(fake);
    machine.write("key", &[0; 32]);
    machine.write("short", &[0; 31]);
    machine.write("hex", &b"00112233".repeat(8));
    check("usage", &machine);
}

#[test]
fn the_doctor_finds_nothing_wrong_with_a_good_machine_but_says_what_costs() {
    let mut machine = Machine::new(Fake::with_drives(2));
    kernel::plant(&mut machine, 2, "csd");
    check("doctor-good", &machine);
}

#[test]
fn the_doctor_names_drives_in_use_and_ways_that_are_closed() {
    let fake = Fake {
        missing: Some(Errno::ENOENT as i32),
        ..Fake::default()
    };
    let mut machine = Machine::new(fake);
    kernel::plant(&mut machine, 3, "nvme");
    machine.write(
        "proc/self/mountinfo",
        b"30 1 259:1 / /srv/my\\040data rw,relatime shared:1 - ext4 /dev/nvme0n1p1 rw\n",
    );
    machine.write(
        "proc/swaps",
        b"Filename Type Size Used Priority\n/dev/nvme1n1 partition 1 0 -2\n",
    );
    // ACS redirects at the first drive's port.
    machine.write(
        "sys/devices/pci0000:00/0000:00:02.0/0000:01:00.0/0000:02:00.0/config",
        &kernel::config(6, 0x001d),
    );
    let group = "sys/devices/pci0000:00/0000:00:03.0/0000:05:00.0/iommu_group";
    std::os::unix::fs::symlink(
        "../../../kernel/iommu_groups/7",
        machine.dir.path().join(group),
    )
    .unwrap();
    machine.write("sys/kernel/iommu_groups/7/type", b"DMA-FQ\n");
    check("doctor-bad", &machine);
}
