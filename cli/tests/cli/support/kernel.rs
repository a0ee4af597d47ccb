// SPDX-License-Identifier: GPL-2.0

//! Trees that look like sysfs and procfs, and a small kernel that acts upon what is written there.

use super::device::Fake;
use super::{write, Machine};
use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// A PCI Express configuration space: this port type, these access controls.
pub fn config(port_type: u8, acs: u16) -> Vec<u8> {
    let mut bytes = vec![0; 4096];
    bytes[0x34] = 0x40;
    bytes[0x40..0x44].copy_from_slice(&[0x10, 0x00, 0x02 | (port_type << 4), 0x00]);
    bytes[0x100..0x104].copy_from_slice(&0x0001_000d_u32.to_le_bytes());
    bytes[0x106..0x108].copy_from_slice(&acs.to_le_bytes());
    bytes
}

/// Trees with `count` NVMe drives at 03:00.0, 04:00.0, … behind one switch, all bound to `driver`,
/// with a namespace each if that is nvme. The last drive hangs from a root port of its own.
pub fn plant(machine: &mut Machine, count: u32, driver: &str) {
    let root = machine.dir.path().to_path_buf();
    let sys = root.join("sys");
    let pci = sys.join("devices/pci0000:00");
    for name in ["csd", "nvme"] {
        fs::create_dir_all(sys.join("bus/pci/drivers").join(name)).unwrap();
    }
    fs::create_dir_all(sys.join("bus/pci/devices")).unwrap();
    let switch = pci.join("0000:00:02.0/0000:01:00.0");
    write(&pci.join("0000:00:02.0/config"), &config(4, 0));
    write(&switch.join("config"), &config(5, 0));
    write(
        &root.join("proc/self/mountinfo"),
        b"22 1 0:20 / /proc rw - proc proc rw\n",
    );
    write(
        &root.join("proc/swaps"),
        b"Filename Type Size Used Priority\n",
    );
    for number in 0..count {
        let name = format!("0000:{:02x}:00.0", number + 3);
        let last = count > 2 && number == count - 1;
        let port = if last {
            pci.join("0000:00:03.0")
        } else {
            switch.join(format!("0000:02:{number:02x}.0"))
        };
        write(&port.join("config"), &config(if last { 4 } else { 6 }, 0));
        let device = port.join(&name);
        write(&device.join("class"), b"0x010802\n");
        write(&device.join("config"), &config(0, 0));
        write(&device.join("driver_override"), b"(null)\n");
        symlink(&device, sys.join("bus/pci/devices").join(&name)).unwrap();
        bind(&root, &device, driver, number);
    }
    // Something else on the bus.
    let other = pci.join("0000:00:1f.0");
    write(&other.join("class"), b"0x060100\n");
    symlink(&other, sys.join("bus/pci/devices/0000:00:1f.0")).unwrap();
}

/// Gives the device to `driver`.
fn bind(root: &Path, device: &Path, driver: &str, number: u32) {
    if driver.is_empty() {
        return;
    }
    let sys = root.join("sys");
    symlink(
        sys.join("bus/pci/drivers").join(driver),
        device.join("driver"),
    )
    .unwrap();
    if driver != "nvme" {
        return;
    }
    let controller = device.join(format!("nvme/nvme{number}"));
    let letter = char::from(b'a' + number as u8);
    write(
        &controller.join("subsysnqn"),
        format!("nqn.2019-08.org.qemu:csd-{letter}\n").as_bytes(),
    );
    // A path of a multipath device; its head is elsewhere.
    fs::create_dir_all(controller.join(format!("nvme{number}c0n1"))).unwrap();
    fs::create_dir_all(controller.join(format!("ng{number}n1"))).unwrap();
    let head = format!("nvme{number}n1");
    let block = sys.join("class/block").join(&head);
    write(
        &block.join("dev"),
        format!("259:{}\n", number * 2).as_bytes(),
    );
    let part = format!("{head}p1");
    write(
        &block.join(&part).join("dev"),
        format!("259:{}\n", number * 2 + 1).as_bytes(),
    );
    write(&block.join(&part).join("partition"), b"1\n");
    write(&root.join("dev").join(&head), b"");
}

/// Which driver has the drive at this address.
pub fn driver(machine: &Machine, address: &str) -> Option<String> {
    let link = machine
        .dir
        .path()
        .join("sys/bus/pci/devices")
        .join(address)
        .join("driver");
    let target = fs::read_link(link).ok()?;
    Some(target.file_name()?.to_str()?.to_string())
}

/// Attaches the small kernel: what is written to binding attributes happens. `csd` takes drives
/// other than those in `refused`.
pub fn boot(machine: &mut Machine, refused: &[&str]) {
    let root = machine.dir.path().to_path_buf();
    let refused: Vec<String> = refused.iter().map(ToString::to_string).collect();
    let fake = Shared(Rc::clone(&machine.fake));
    machine.host.write = Box::new(move |path, text| act(&root, &refused, &fake, path, text.trim()));
}

/// The tests are single-threaded, each with a machine of its own; the closure's type is not.
struct Shared(Rc<std::cell::RefCell<Fake>>);

fn act(root: &Path, refused: &[String], fake: &Shared, path: &Path, text: &str) -> io::Result<()> {
    let device = |address: &str| -> io::Result<PathBuf> {
        fs::canonicalize(root.join("sys/bus/pci/devices").join(address))
    };
    let number = |address: &str| u32::from_str_radix(&address[5..7], 16).unwrap() - 3;
    match path.file_name().and_then(|name| name.to_str()) {
        Some("driver_override") => fs::write(path, format!("{text}\n")),
        Some("unbind") => {
            let device = device(text)?;
            fs::remove_file(device.join("driver"))?;
            let _ = fs::remove_dir_all(device.join("nvme"));
            fake.0.borrow_mut().drives.remove(&number(text));
            Ok(())
        }
        Some("drivers_probe") => {
            let device = device(text)?;
            let wanted = fs::read_to_string(device.join("driver_override"))?;
            match wanted.trim() {
                "csd" if refused.iter().any(|address| address == text) => Ok(()),
                "csd" => {
                    bind(root, &device, "csd", number(text));
                    fake.0.borrow_mut().add_drive(number(text), text);
                    Ok(())
                }
                "" => {
                    bind(root, &device, "nvme", number(text));
                    Ok(())
                }
                other => panic!("driver_override {other:?}"),
            }
        }
        _ => Err(io::ErrorKind::NotFound.into()),
    }
}
