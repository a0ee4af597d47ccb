# SPDX-License-Identifier: GPL-2.0
"""The guest's initramfs: the cached base with this run's own files laid over it.

Owns what of the work tree the guest sees and where. Never starts anything.
"""

import os
import shlex
import shutil
import stat
import subprocess
from pathlib import Path

HERE = Path(__file__).resolve().parent


class Archive:
    """Writes a cpio archive in the "newc" format that the kernel unpacks."""

    def __init__(self, file):
        self._file = file
        self._inode = 0
        self._folders = set()

    def _entry(self, name, mode, data=b""):
        self._inode += 1
        name = name.encode() + b"\0"
        fields = (self._inode, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name), 0)
        header = b"070701" + b"".join(b"%08X" % f for f in fields) + name
        self._file.write(header + b"\0" * (-len(header) % 4))
        self._file.write(data + b"\0" * (-len(data) % 4))

    def folder(self, name):
        """Adds the folder `name` and those above it, each once."""
        if name in ("", ".") or name in self._folders:
            return
        self.folder(os.path.dirname(name))
        self._folders.add(name)
        self._entry(name, stat.S_IFDIR | 0o755)

    def add(self, name, data, mode=0o644):
        """Adds a file of `data`, text or bytes, with the permissions `mode`."""
        self.folder(os.path.dirname(name))
        self._entry(name, stat.S_IFREG | mode, data.encode() if isinstance(data, str) else data)

    def copy(self, name, source):
        """Adds the file or folder at `source`; a folder with all that is below it."""
        source = Path(source)
        if source.is_dir():
            self.folder(name)
            for below in sorted(source.iterdir()):
                self.copy(f"{name}/{below.name}", below)
        else:
            self.add(name, source.read_bytes(), 0o755 if os.access(source, os.X_OK) else 0o644)

    def close(self):
        """Ends the archive, so that another may follow in the same file."""
        self._entry("TRAILER!!!", 0)
        self._file.write(b"\0" * (-self._file.tell() % 512))


def _modules(archive, base, release, module, scratch):
    """csd.ko beside the base's modules, and the indexes that modprobe reads."""
    version = scratch / "lib/modules" / release
    shutil.copytree(base / "lib/modules" / release / "kernel", version / "kernel")
    if module:
        (version / "updates").mkdir()
        shutil.copy(module, version / "updates/csd.ko")
    # Empty ones: the kernel's packages have none, and libkmod asks for their indexes
    for name in ("modules.builtin", "modules.builtin.modinfo", "modules.order"):
        (version / name).touch()
    subprocess.run(["depmod", "-b", scratch, release], check=True)
    for index in version.glob("modules.*"):
        archive.copy(f"usr/lib/modules/{release}/{index.name}", index)
    if module:
        archive.copy(f"usr/lib/modules/{release}/updates/csd.ko", module)


def build(path, *, base, release, top, module, programs, config, command):
    """Writes the initramfs to `path`.

    base: folder of the cached part; top: the work tree; module: csd.ko or None;
    programs: folder whose files go to /usr/bin; config: shell variables for
    init; command: the words of CMD.
    """
    scratch = path.parent / "modules"
    with open(path, "wb") as file:
        with open(base / "base.cpio", "rb") as cached:
            shutil.copyfileobj(cached, file, 1 << 20)
        file.write(b"\0" * (-file.tell() % 512))
        archive = Archive(file)
        _modules(archive, base, release, module, scratch)
        archive.copy("init", HERE / "guest/init")
        archive.copy("usr/bin/vmctl", HERE / "guest/vmctl")
        archive.copy("etc/modprobe.d/csd.conf", HERE / "guest/modprobe.conf")
        archive.copy("root/.bashrc", HERE / "guest/bashrc")
        archive.add("root/.profile", ". /root/.bashrc\n")
        archive.add("vm/config", "".join(f"{k}={shlex.quote(v)}\n" for k, v in config.items()))
        archive.add("vm/cmd", f"#!/bin/sh\nexec {shlex.join(command)}\n", 0o755)
        if programs.is_dir():
            archive.copy("usr/bin", programs)
        # The suites, and beside each the native programs that were built for it
        for suites in (top / "tests/selftests", top / "build/selftests"):
            if suites.is_dir():
                archive.copy("tests/selftests", suites)
        archive.close()
    shutil.rmtree(scratch)
