# SPDX-License-Identifier: GPL-2.0
"""The test machine itself: which QEMU devices it is made of, and its QMP door.

Owns QEMU's command line and the conversation over QMP. Never touches the
guest's streams.
"""

import json
import os
import socket
import threading
from collections import deque

# Port numbers on the virtio-serial bus; guest/init opens them as /dev/vport0pN.
# Port 0 is CMD's terminal where it has one, /dev/hvc0.
PORTS = {"in": 1, "out": 2, "err": 3, "control": 4, "faults": 5}


def accelerator():
    """KVM where the processor says that it can and the device is there, else TCG."""
    with open("/proc/cpuinfo", encoding="ascii", errors="replace") as file:
        flags = next((line.split() for line in file if line.startswith("flags")), [])
    if ("vmx" in flags or "svm" in flags) and os.access("/dev/kvm", os.R_OK | os.W_OK):
        return ["-accel", "kvm", "-cpu", "host"]
    # 5-level paging costs a level at every miss of an emulated TLB
    return ["-accel", "tcg,thread=multi", "-cpu", "max,la57=off"]


def drive_device(i, options):
    """The `-device` properties of drive csd`i`: what `plug` puts back after a removal."""
    device = {
        "driver": "nvme",
        "id": f"csd{i}",
        "bus": f"slot{i}",
        "serial": f"csd{i}",
        "subsys": f"subsys{i}",
        "ioeventfd": True,
    }
    if options.cmb:
        device["cmb_size_mb"] = options.cmb
    if options.pmr:
        device["pmrdev"] = f"pmr{i}"
    for word in options.nvme:
        which, _, properties = word.partition("=")
        if which in ("*", str(i)):
            for pair in properties.split(","):
                name, _, value = pair.partition("=")
                device[name] = _typed(value)
    return device


def _typed(value):
    if value in ("on", "off"):
        return value == "on"
    return int(value, 0) if value[:1].isdigit() else value


def command_line(options, *, kernel, initrd, console, disks, chardevs, append):
    """QEMU's command line. `chardevs` maps names to inherited socket descriptors."""
    args = ["qemu-system-x86_64", *accelerator()]
    args += ["-M", "q35,smm=off,vmport=off,hpet=off", "-m", f"{options.mem}M", "-smp", str(options.cpus)]
    # Hotplug as on real machines, by the slots' own registers, not through ACPI
    args += ["-global", "ICH9-LPC.acpi-pci-hotplug-with-bridge-support=off"]
    args += ["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"]
    args += ["-kernel", kernel, "-initrd", initrd, "-append", append]
    args += ["-chardev", f"file,id=console,path={console}", "-serial", "chardev:console"]
    for name, descriptor in chardevs.items():
        args += ["-chardev", f"socket,id={name},fd={descriptor}"]
    args += ["-object", "monitor-qmp,id=door,chardev=qmp"]
    args += ["-device", "virtio-serial-pci"]
    if "terminal" in chardevs:
        args += ["-device", "virtconsole,chardev=terminal,nr=0"]
    for name, nr in PORTS.items():
        args += ["-device", f"virtserialport,chardev={name},nr={nr},name=csd.{name}"]
    if options.share:
        share = options.share.replace(",", ",,")
        args += ["-fsdev", f"local,id=share,path={share},security_model=none,multidevs=remap"]
        args += ["-device", "virtio-9p-pci,fsdev=share,mount_tag=host"]
    args += ["-device", "pcie-root-port,id=root0,chassis=100,slot=100"]
    args += ["-device", "x3130-upstream,id=switch0,bus=root0"]
    for i, disk in enumerate(disks):
        args += ["-device", f"xio3130-downstream,id=slot{i},bus=switch0,chassis={i + 1},slot={i + 1}"]
        args += ["-device", f"nvme-subsys,id=subsys{i},nqn=csd{i}"]
        if options.pmr:
            args += ["-object", f"memory-backend-memfd,id=pmr{i},size={options.pmr}M,share=on"]
        args += ["-device", json.dumps(drive_device(i, options))]
        args += ["-drive", f"file={str(disk).replace(',', ',,')},format=raw,if=none,id=disk{i},"
                           f"discard=unmap,cache=writeback"]
        # JSON as the drive is: QEMU makes those after all devices in its older notation
        args += ["-device", json.dumps({"driver": "nvme-ns", "drive": f"disk{i}", "bus": f"csd{i}", "nsid": 1})]
    return args + options.qemu


class QmpError(Exception):
    """QEMU refused a command, or did not answer."""


class Qmp:
    """QEMU's control connection: one command at a time, events kept for who waits."""

    def __init__(self, connection):
        self._connection = connection
        self._lock = threading.Lock()
        self._events = deque(maxlen=64)
        self._received = b""

    def _read(self, timeout):
        self._connection.settimeout(timeout)
        while b"\n" not in self._received:
            try:
                data = self._connection.recv(65536)
            except (socket.timeout, OSError) as error:
                raise QmpError(f"QEMU does not answer: {error}") from error
            if not data:
                raise QmpError("QEMU is gone")
            self._received += data
        line, self._received = self._received.split(b"\n", 1)
        return json.loads(line)

    def greet(self):
        """Opens the conversation; before that QEMU neither obeys nor tells of events."""
        with self._lock:
            self._read(30)
            self._execute("qmp_capabilities", {})

    def command(self, name, **arguments):
        """Runs a QMP command and returns its result."""
        with self._lock:
            return self._execute(name, arguments)

    def _execute(self, name, arguments):
        self._connection.sendall(json.dumps({"execute": name, "arguments": arguments}).encode() + b"\n")
        while True:
            answer = self._read(20)
            if "event" in answer:
                self._events.append(answer)
            elif "error" in answer:
                raise QmpError(answer["error"]["desc"])
            else:
                return answer["return"]

    def wait_deleted(self, device, timeout):
        """Waits until QEMU has let go of `device`."""
        with self._lock:
            while True:
                while self._events:
                    event = self._events.popleft()
                    if event["event"] == "DEVICE_DELETED" and event["data"].get("device") == device:
                        return
                answer = self._read(timeout)
                if "event" in answer:
                    self._events.append(answer)


class Faults:
    """What `vmctl` asks for in the guest, done by QMP."""

    def __init__(self, qmp, options):
        self._qmp = qmp
        self._options = options

    def serve(self, line):
        """Does one request, `VERB csdN [ARG]`, and returns the line that answers it."""
        verb, drive, *rest = line.split()
        i = int(drive.removeprefix("csd"))
        try:
            if not 0 <= i < self._options.drives:
                raise QmpError(f"there is no {drive}")
            getattr(self, f"_{verb}")(i, *rest)
        except (QmpError, TypeError, ValueError, AttributeError) as error:
            return f"error {error}\n"
        return "ok\n"

    def _smart(self, i, value):
        self._qmp.command("qom-set", path=f"/machine/peripheral/csd{i}",
                          property="smart_critical_warning", value=int(value, 0))

    def _throttle(self, i, bps):
        self._qmp.command("block_set_io_throttle", device=f"disk{i}", bps=bps, bps_rd=0, bps_wr=0,
                          iops=0, iops_rd=0, iops_wr=0)

    def _stall(self, i):
        # The limiter lets one request through and then makes up for its size: a big
        # read of our own uses that up, and at a byte a second nothing follows it.
        # The guest stands still meanwhile: if a request of its own went first, our
        # read would wait for that one with all of QEMU.
        self._qmp.command("stop")
        self._throttle(i, 1)
        self._qmp.command("human-monitor-command", **{"command-line": f'qemu-io disk{i} "read 0 1M"'})
        self._qmp.command("cont")

    def _resume(self, i):
        self._throttle(i, 0)

    def _eject(self, i):
        self._qmp.command("device_del", id=f"csd{i}")
        self._qmp.wait_deleted(f"csd{i}", 40)

    def _removed(self, i):
        self._qmp.wait_deleted(f"csd{i}", 10)

    def _plug(self, i):
        self._qmp.command("device_add", **drive_device(i, self._options))
