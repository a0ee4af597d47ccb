# SPDX-License-Identifier: GPL-2.0
"""tools/vm: boots the test machine, runs one command in it, ends as it ended.

Owns the options, the streams between the caller and the guest, the timeout and
the exit status. What the machine is made of is in machine.py, what is in the
guest in initrd.py.
"""

import argparse
import ctypes
import fcntl
import os
import selectors
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
import tty
from pathlib import Path

import initrd
import machine

EPILOG = """
exit status: CMD's own; 124 when the timeout killed the guest, 125 when the guest
ended without CMD having ended or could not be started, 2 for wrong usage.
"""
DISK_MIB = 64
# Quiet and quick: no self-tests, no mitigations that an emulated processor pays
# for in software; an oops ends the run instead of hiding in the log.
APPEND = ("console=ttyS0 quiet panic=-1 oops=panic mitigations=off cryptomgr.notests audit=0 "
          "apparmor=0 random.trust_cpu=on no_timer_check 8250.nr_uarts=1")
# On a busy host an emulated TSC is calibrated wrong by any factor, and with it every timeout in
# the guest; the ACPI timer's frequency is fixed.
TCG_APPEND = "tsc=unstable clocksource=acpi_pm"
GRACE = 15.0


def parse(argv):
    """The options, and CMD as a list (a login shell for `shell`)."""
    parser = argparse.ArgumentParser(prog="tools/vm", epilog=EPILOG,
                                     formatter_class=argparse.RawDescriptionHelpFormatter,
                                     usage="tools/vm run [OPTION]... -- CMD...\n       tools/vm shell [OPTION]...")
    parser.add_argument("mode", choices=("run", "shell"))
    add = parser.add_argument
    add("--drives", type=int, default=3, metavar="N", help="NVMe drives, 0 to 32 (default 3)")
    add("--cmb", type=int, default=64, metavar="MiB", help="CMB of each drive, 0: none (default 64)")
    add("--pmr", type=int, default=64, metavar="MiB", help="PMR of each, a power of two, 0: none (default 64)")
    add("--disk", action="append", default=[], metavar="N=FILE", help="csdN's storage (default: an empty disk)")
    add("--size", type=int, default=DISK_MIB, metavar="MiB", help="size of the empty disks (default 64)")
    add("--share", metavar="DIR", help="a folder of this machine, seen at /host")
    add("--mem", type=int, default=1024, metavar="MiB", help="the guest's memory (default 1024)")
    add("--cpus", type=int, default=2, metavar="N", help="the guest's processors (default 2)")
    add("--append", default="", metavar="STR", help="more of the kernel's command line")
    add("--timeout", type=float, default=None, metavar="S", help="kill the guest after S seconds "
        "(default 300; none for shell)")
    add("--bare", action="store_true", help="leave the drives to the in-box nvme driver")
    add("--nvme", action="append", default=[], metavar="N=PROP=VALUE,...",
        help="more properties of drive N (*: all)")
    add("--qemu", action="append", default=[], metavar="ARG", help="one more argument for QEMU")
    add("--tty", action="store_true", help="give CMD a terminal, ours; its stderr comes out on stdout")
    add("--console", metavar="FILE", help="where the console's log goes (default build/vm/console.PID.log)")
    split = argv.index("--") if "--" in argv else len(argv)
    options = parser.parse_args(argv[:split])
    command = argv[split + 1:]
    if not 0 <= options.drives <= 32:
        parser.error("--drives: 0 to 32")
    if options.pmr < 0 or options.pmr & (options.pmr - 1):
        parser.error("--pmr: a power of two, or 0")
    if options.cmb < 0 or options.size < 1 or options.mem < 256 or options.cpus < 1:
        parser.error("--cmb, --size, --mem, --cpus: too small")
    if options.share and not os.path.isdir(options.share):
        parser.error(f"--share: {options.share} is no folder")
    if options.mode == "run" and not command:
        parser.error("nothing to run: give CMD after --")
    if options.mode == "shell":
        if command:
            parser.error("shell takes no CMD")
        options.tty = True
        command = ["bash", "-l"]
    if options.tty and not (sys.stdin.isatty() and sys.stdout.isatty()):
        parser.error("a terminal is asked for, and there is none")
    if options.timeout is None and options.mode == "run":
        options.timeout = 300.0
    options.backing = {}
    for word in options.disk:
        which, _, file = word.partition("=")
        if not which.removeprefix("csd").isdigit() or int(which.removeprefix("csd")) >= options.drives:
            parser.error(f"--disk {word}: no such drive")
        if not os.path.isfile(file):
            parser.error(f"--disk {word}: no such file")
        options.backing[int(which.removeprefix("csd"))] = os.path.abspath(file)
    return options, command


def fail(text, status=125):
    """Ends with one line on stderr."""
    print(f"tools/vm: {text}", file=sys.stderr)
    sys.exit(status)


def die_with_parent():
    """In QEMU before it starts: it must not outlive us, however we end."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


class Run:
    """One boot of the machine, from its files to its exit status."""

    def __init__(self, options, command, folder):
        self.options = options
        self.command = command
        self.folder = folder
        self.top = Path(os.environ["CSD_TOP"])
        self.status = None
        self.failure = None
        self.console = Path(options.console or self.top / f"build/vm/console.{os.getpid()}.log").absolute()
        self.selector = selectors.DefaultSelector()
        self.sockets = {}
        self.control = b""
        self.requests = b""
        self.powering_off = None

    def _parts(self):
        """csd.ko, or None where the in-box driver is to have the drives."""
        module = Path(os.environ.get("CSD_KO", self.top / "build/module/csd.ko"))
        programs = Path(os.environ.get("CSD_BIN", self.top / "build/bin"))
        if not module.is_file():
            if not self.options.bare:
                fail(f"{module} is missing: run `make modules` first, or use --bare")
            module = None
        return module, programs

    def start(self):
        """Builds the initramfs and starts QEMU."""
        rows, columns = os.get_terminal_size()[::-1] if self.options.tty else (0, 0)
        module, programs = self._parts()
        image = self.folder / "initrd"
        initrd.build(
            image, base=Path(os.environ["CSD_VM_BASE"]), release=os.environ["CSD_RELEASE"], top=self.top,
            module=module, programs=programs, command=self.command,
            config={
                "DRIVES": str(self.options.drives),
                "BARE": "1" if self.options.bare else "",
                "SHARE": "1" if self.options.share else "",
                "TERMINAL": f"rows {rows} cols {columns}" if self.options.tty else "",
            })
        disks = []
        for i in range(self.options.drives):
            disk = self.options.backing.get(i)
            if disk is None:
                disk = self.folder / f"disk{i}"
                with open(disk, "wb") as file:
                    file.truncate(self.options.size << 20)
            disks.append(disk)
        self.console.parent.mkdir(parents=True, exist_ok=True)
        if not self.options.console:
            for old in sorted(self.console.parent.glob("console.*.log"), key=os.path.getmtime)[:-20]:
                old.unlink(missing_ok=True)
        ends = {}
        for name in ("qmp", *machine.PORTS, *(["terminal"] if self.options.tty else [])):
            ours, theirs = socket.socketpair()
            self.sockets[name] = ours
            ends[name] = theirs
        clock = "" if "kvm" in machine.accelerator() else TCG_APPEND
        line = machine.command_line(
            self.options, kernel=os.environ["CSD_KERNEL"], initrd=str(image), console=self.console,
            disks=disks, chardevs={name: end.fileno() for name, end in ends.items()},
            append=" ".join(filter(None, (APPEND, clock, self.options.append))))
        self.complaints = open(self.folder / "qemu.err", "w+b")
        self.qemu = subprocess.Popen(line, stdin=subprocess.DEVNULL, stdout=self.complaints,
                                     stderr=self.complaints, preexec_fn=die_with_parent,
                                     pass_fds=[end.fileno() for end in ends.values()])
        for end in ends.values():
            end.close()
        self.qmp = machine.Qmp(self.sockets["qmp"])
        self.faults = machine.Faults(self.qmp, self.options)

    def _watch(self, source, handler):
        self.selector.register(source, selectors.EVENT_READ, handler)

    def _relay(self, name, target):
        """What the guest writes to port `name` goes to our descriptor `target`."""
        def handler(connection):
            data = connection.recv(1 << 16)
            if not data:
                self.selector.unregister(connection)
            while data:
                data = data[os.write(target, data):]
        self._watch(self.sockets[name], handler)

    def _feed(self, name):
        """Our stdin goes to the guest's port `name`; its end too."""
        connection = self.sockets[name]

        def handler(_):
            data = os.read(0, 1 << 16)
            try:
                if data:
                    connection.sendall(data)
                else:
                    self.selector.unregister(0)
                    # Half a close: the other half would hang up on data still under way
                    connection.shutdown(socket.SHUT_WR)
            except OSError:
                self.selector.unregister(0)
        try:
            self._watch(0, handler)
        except (PermissionError, ValueError, OSError):
            # A plain file is always ready and cannot be polled; a closed stdin is empty
            threading.Thread(target=self._pump, args=(connection,), daemon=True).start()

    @staticmethod
    def _pump(connection):
        try:
            while data := os.read(0, 1 << 16):
                connection.sendall(data)
        except OSError:
            pass
        try:
            connection.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def _on_control(self, connection):
        data = connection.recv(4096)
        if not data:
            self.selector.unregister(connection)
        self.control += data
        while b"\n" in self.control:
            line, self.control = self.control.split(b"\n", 1)
            word, _, rest = line.decode(errors="replace").partition(" ")
            if word == "ready":
                self.qmp.greet()
                self._feed("terminal" if self.options.tty else "in")
            elif word == "exit":
                self.status = int(rest)
                self.powering_off = time.monotonic()
            elif word == "fail":
                self.failure = rest
                self.powering_off = time.monotonic()

    def _on_faults(self, connection):
        data = connection.recv(4096)
        if not data:
            self.selector.unregister(connection)
        self.requests += data
        while b"\n" in self.requests:
            line, self.requests = self.requests.split(b"\n", 1)
            # A removal takes seconds in which the guest's output must go on
            threading.Thread(target=lambda l=line.decode(): connection.sendall(self.faults.serve(l).encode()),
                             daemon=True).start()

    def serve(self):
        """Carries the streams until the guest is off; returns the exit status."""
        started = time.monotonic()
        if self.options.tty:
            self._relay("terminal", 1)
        self._relay("out", 1)
        self._relay("err", 2)
        self._watch(self.sockets["control"], self._on_control)
        self._watch(self.sockets["faults"], self._on_faults)
        gone = os.pidfd_open(self.qemu.pid)
        self._watch(gone, lambda _: None)
        while self.qemu.poll() is None:
            for key, _ in self.selector.select(0.5):
                key.data(key.fileobj)
            now = time.monotonic()
            if self.powering_off and now - self.powering_off > GRACE:
                return self._give_up("the guest did not power off", 125)
            if not self.powering_off and self.options.timeout and now - started > self.options.timeout:
                return self._give_up(f"no end after {self.options.timeout:g} s", 124)
        self.selector.unregister(gone)
        os.close(gone)
        # What QEMU had written before it went
        for key, _ in self.selector.select(0):
            while key.fileobj in self.selector.get_map() and key.fd != 0 and self.selector.select(0):
                key.data(key.fileobj)
        if self.failure:
            return self._give_up(self.failure, 125)
        if self.status is None:
            return self._give_up("the guest ended by itself", 125)
        return self.status

    def _give_up(self, why, status):
        self.qemu.kill()
        self.qemu.wait()
        print(f"tools/vm: {why}", file=sys.stderr)
        self.complaints.seek(0)
        sys.stderr.write(self.complaints.read().decode(errors="replace"))
        try:
            tail = self.console.read_text(errors="replace").splitlines()[-40:]
        except OSError:
            tail = []
        if tail:
            print(f"tools/vm: the end of the console ({self.console}):", file=sys.stderr)
            for line in tail:
                print(f"  | {line.rstrip()}", file=sys.stderr)
        return status

    def stop(self):
        """Leaves nothing running."""
        if self.qemu.poll() is None:
            self.qemu.kill()
            self.qemu.wait()


def main():
    """Runs the machine once."""
    options, command = parse(sys.argv[1:])
    for name in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(name, lambda *_: sys.exit(143))
    folder = Path(tempfile.mkdtemp(prefix="csd-vm."))
    terminal = None
    run = None
    try:
        run = Run(options, command, folder)
        run.start()
        if options.tty:
            terminal = termios.tcgetattr(0)
            tty.setraw(0)
        return run.serve()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 141
    except KeyboardInterrupt:
        return 130
    finally:
        if terminal:
            termios.tcsetattr(0, termios.TCSADRAIN, terminal)
        if run and hasattr(run, "qemu"):
            run.stop()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
