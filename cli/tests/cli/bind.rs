// SPDX-License-Identifier: GPL-2.0

//! `drive bind` and `drive unbind`: who has a drive afterwards.

use crate::support::device::Fake;
use crate::support::kernel::{boot, driver, plant};
use crate::support::Machine;
use csdctl::failure::Exit;
use csdctl::sys::abi::*;
use nix::errno::Errno;

const FIRST: &str = "0000:03:00.0";
const SECOND: &str = "0000:04:00.0";

fn machine(count: u32, with: &str, refused: &[&str]) -> Machine {
    let mut machine = Machine::new(Fake::default());
    plant(&mut machine, count, with);
    boot(&mut machine, refused);
    machine
}

fn drivers(machine: &Machine) -> Vec<Option<String>> {
    [FIRST, SECOND]
        .map(|address| driver(machine, address))
        .to_vec()
}

fn some(name: &str) -> Option<String> {
    Some(name.into())
}

#[test]
fn drives_change_hands_and_come_back() {
    let machine = machine(2, "nvme", &[]);
    let ran = machine.run(&["drive", "bind", "--all"]);
    assert_eq!(ran.exit, Exit::Success, "{}", ran.err);
    assert_eq!(
        String::from_utf8(ran.out).unwrap(),
        "csd0  0000:03:00.0  nqn.2019-08.org.qemu:csd-a\ncsd1  0000:04:00.0  nqn.2019-08.org.qemu:csd-b\n"
    );
    assert_eq!(drivers(&machine), [some("csd"), some("csd")]);
    assert!(machine.fake.borrow().consents.is_empty());

    let ran = machine.run(&["drive", "unbind", "csd1", FIRST]);
    assert_eq!((ran.exit, ran.out.len()), (Exit::Success, 0), "{}", ran.err);
    assert_eq!(drivers(&machine), [some("nvme"), some("nvme")]);
}

#[test]
fn a_drive_is_named_by_address_nqn_or_controller() {
    let machine = machine(2, "nvme", &[]);
    for name in ["03:00.0", "nqn.2019-08.org.qemu:csd-b"] {
        assert_eq!(
            machine.run(&["drive", "bind", name]).exit,
            Exit::Success,
            "{name}"
        );
    }
    assert_eq!(drivers(&machine), [some("csd"), some("csd")]);
    machine.run(&["drive", "unbind", "--all"]);
    assert_eq!(machine.run(&["drive", "bind", "nvme1"]).exit, Exit::Success);
    assert_eq!(drivers(&machine), [some("nvme"), some("csd")]);
    let ran = machine.run(&["drive", "bind", "nvme7"]);
    assert_eq!(ran.exit, Exit::Failure);
    assert!(ran.err.contains("nvme7"), "{}", ran.err);
}

#[test]
fn a_drive_without_a_driver_is_taken_too() {
    let machine = machine(1, "", &[]);
    assert_eq!(machine.run(&["drive", "bind", FIRST]).exit, Exit::Success);
    assert_eq!(driver(&machine, FIRST), some("csd"));
}

#[test]
fn consent_is_given_when_asked_for_and_a_drive_without_a_pmr_takes_no_harm() {
    let machine = machine(3, "nvme", &[]);
    assert_eq!(
        machine.run(&["drive", "bind", "--all", "--use-pmr"]).exit,
        Exit::Success
    );
    assert_eq!(machine.fake.borrow().consents, [0, 1]);
}

#[test]
fn consent_may_follow_for_a_drive_that_is_bound_already() {
    let machine = machine(1, "nvme", &[]);
    machine.run(&["drive", "bind", FIRST]);
    assert_eq!(
        machine.run(&["drive", "bind", "csd0", "--use-pmr"]).exit,
        Exit::Success
    );
    assert_eq!(machine.fake.borrow().consents, [0]);
}

#[test]
fn a_mounted_partition_keeps_all_named_drives_where_they_are() {
    let machine = machine(2, "nvme", &[]);
    machine.write(
        "proc/self/mountinfo",
        b"30 1 259:3 / /srv rw - ext4 /dev/nvme1n1p1 rw\n",
    );
    let ran = machine.run(&["drive", "bind", FIRST, SECOND]);
    assert_eq!(ran.exit, Exit::Refused);
    assert_eq!(
        ran.err,
        "csdctl: 0000:04:00.0 is in use: /dev/nvme1n1p1 is mounted on /srv\n  try: umount /srv, or leave this drive alone\n"
    );
    assert_eq!(drivers(&machine), [some("nvme"), some("nvme")]);
}

#[test]
fn a_file_system_with_a_device_number_of_its_own_is_found_by_its_source() {
    let machine = machine(1, "nvme", &[]);
    machine.write(
        "proc/self/mountinfo",
        b"30 1 0:44 / /data rw - btrfs /dev/nvme0n1 rw\n",
    );
    assert_eq!(machine.run(&["drive", "bind", FIRST]).exit, Exit::Refused);
    assert_eq!(driver(&machine, FIRST), some("nvme"));
}

#[test]
fn a_holder_and_swap_keep_a_drive_where_it_is() {
    let machine = machine(2, "nvme", &[]);
    machine.write("sys/class/block/nvme0n1/nvme0n1p1/holders/dm-0/x", b"");
    machine.write(
        "proc/swaps",
        b"Filename Type\n/dev/nvme1n1p1 partition 1 0 -2\n",
    );
    for (address, why) in [(FIRST, "held by dm-0"), (SECOND, "used as swap")] {
        let ran = machine.run(&["drive", "bind", address]);
        assert_eq!(ran.exit, Exit::Refused);
        assert!(ran.err.contains(why), "{}", ran.err);
    }
    assert_eq!(drivers(&machine), [some("nvme"), some("nvme")]);
}

#[test]
fn a_loop_device_keeps_the_drive_behind_it_where_it_is() {
    let machine = machine(1, "nvme", &[]);
    machine.write(
        "sys/class/block/loop3/loop/backing_file",
        b"/dev/nvme0n1p1\n",
    );
    let ran = machine.run(&["drive", "bind", FIRST]);
    assert_eq!(ran.exit, Exit::Refused);
    assert!(
        ran.err
            .contains("/dev/nvme0n1p1 is the backing file of /dev/loop3"),
        "{}",
        ran.err
    );
    assert_eq!(driver(&machine, FIRST), some("nvme"));
}

#[test]
fn a_namespace_that_cannot_be_claimed_keeps_its_drive_where_it_is() {
    let machine = machine(1, "nvme", &[]);
    std::fs::remove_file(machine.path("dev/nvme0n1")).unwrap();
    let ran = machine.run(&["drive", "bind", FIRST]);
    assert_eq!(ran.exit, Exit::Failure);
    assert!(
        ran.err
            .contains("cannot make sure that 0000:03:00.0 is not in use"),
        "{}",
        ran.err
    );
    assert_eq!(driver(&machine, FIRST), some("nvme"));
}

#[test]
fn all_leaves_a_drive_in_use_alone_and_says_so() {
    let machine = machine(2, "nvme", &[]);
    machine.write(
        "proc/self/mountinfo",
        b"30 1 259:1 / / rw - ext4 /dev/nvme0n1p1 rw\n",
    );
    let ran = machine.run(&["drive", "bind", "--all"]);
    assert_eq!(ran.exit, Exit::Success);
    assert_eq!(
        ran.err,
        "skipped: 0000:03:00.0 is in use: /dev/nvme0n1p1 is mounted on /\n"
    );
    assert_eq!(drivers(&machine), [some("nvme"), some("csd")]);
}

#[test]
fn a_drive_that_csd_does_not_take_goes_back() {
    let machine = machine(2, "nvme", &[SECOND]);
    let ran = machine.run(&["drive", "bind", FIRST, SECOND]);
    assert_eq!(ran.exit, Exit::Failure);
    assert!(
        ran.err
            .contains("csd does not take 0000:04:00.0; 0000:04:00.0 is back with nvme"),
        "{}",
        ran.err
    );
    assert_eq!(drivers(&machine), [some("csd"), some("nvme")]);
}

#[test]
fn a_drive_of_another_driver_is_not_taken_from_it() {
    let mut machine = Machine::new(Fake::default());
    plant(&mut machine, 1, "vfio-pci");
    boot(&mut machine, &[]);
    let ran = machine.run(&["drive", "bind", FIRST]);
    assert_eq!(ran.exit, Exit::Refused);
    assert!(ran.err.contains("bound to vfio-pci"), "{}", ran.err);
    assert_eq!(driver(&machine, FIRST), some("vfio-pci"));
}

#[test]
fn a_device_that_is_no_nvme_drive_is_not_touched() {
    let machine = machine(1, "nvme", &[]);
    let ran = machine.run(&["drive", "bind", "00:1f.0"]);
    assert_eq!(ran.exit, Exit::Failure);
    assert!(
        ran.err.contains("there is no NVMe drive at 0000:00:1f.0"),
        "{}",
        ran.err
    );
}

#[test]
fn a_member_of_a_mesh_is_handed_back_by_force_only() {
    let machine = machine(2, "nvme", &[]);
    machine.run(&["drive", "bind", "--all"]);
    machine.run(&["mesh", "create"]);
    assert_eq!(
        machine.run(&["drive", "unbind", "csd0"]).exit,
        Exit::Refused
    );
    assert_eq!(driver(&machine, FIRST), some("csd"));
    assert_eq!(
        machine.run(&["drive", "unbind", "csd0", "--force"]).exit,
        Exit::Success
    );
    assert_eq!(driver(&machine, FIRST), some("nvme"));
}

#[test]
fn a_drive_that_fails_to_start_goes_back() {
    let mut machine = machine(1, "nvme", &[]);
    let fake = std::rc::Rc::clone(&machine.fake);
    let act = std::mem::replace(&mut machine.host.write, Box::new(|_, _| Ok(())));
    machine.host.write = Box::new(move |path, text| {
        act(path, text)?;
        if let Some(drive) = fake.borrow_mut().drives.get_mut(&0) {
            drive.info.state = CSD_DRIVE_FAILED;
        }
        Ok(())
    });
    let ran = machine.run(&["drive", "bind", FIRST]);
    assert_eq!(ran.exit, Exit::Failure);
    assert!(ran.err.contains("failed to start"), "{}", ran.err);
    assert_eq!(driver(&machine, FIRST), some("nvme"));
}

#[test]
fn without_rights_nothing_changes_and_the_remedy_is_root() {
    let mut machine = machine(1, "nvme", &[]);
    machine.host.write =
        Box::new(|_, _| Err(std::io::Error::from_raw_os_error(Errno::EACCES as i32)));
    let ran = machine.run(&["drive", "bind", FIRST]);
    assert_eq!(ran.exit, Exit::Failure);
    assert!(ran.err.contains("try: the same as root"), "{}", ran.err);
    assert_eq!(driver(&machine, FIRST), some("nvme"));
}
