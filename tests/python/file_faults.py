"""Makes the n-th thing that this process does to files fail, or be its last; knows what would last.

Between the code under test and the file system: every write, sync, rename, and every making and
removing of a file or directory is an *operation*, counted from 1, whichever thread does it.

A process that dies leaves on disk all that it had done. A power cut leaves less: of a file what was
synced of it, and of a directory the names that were in it when it was synced. `Disk` keeps track
of that, and writes down what a power cut at this moment would leave.
"""

from __future__ import annotations

import io
import os
import stat
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

#: What is done to directories and to files as a whole.
_OF_OS = ("fsync", "fdatasync", "rename", "replace", "mkdir", "unlink", "remove", "rmdir")


class Operations:
    """Counts this process's operations from when it is made, and strikes at one of them.

    `strike` is called in its place, and may raise or end the process; where it returns, the
    operation is done.
    """

    def __init__(self, number: int, strike: Callable[[], None], disk: Disk) -> None:
        self.done = 0
        self.names: list[str] = []
        self._number = number
        self._strike = strike
        self._disk = disk
        self._lock = threading.Lock()
        for name in _OF_OS:
            setattr(os, name, self._counted(name, getattr(os, name)))
        self._open_descriptor, self._open = os.open, io.open
        os.open = self._open_counted  # type: ignore[assignment]
        io.open = self._open_file  # type: ignore[assignment]

    def count(self, name: str) -> None:
        """One operation is about to be done."""
        with self._lock:
            self.done += 1
            self.names.append(name)
            is_it = self.done == self._number
        if is_it:
            self._strike()

    def _counted(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any, **named: Any) -> Any:
            self.count(name)
            result = function(*arguments, **named)
            if name in ("fsync", "fdatasync"):
                self._disk.synced(arguments[0])
            return result

        return counted

    def _open_counted(self, path: Any, flags: int, *arguments: Any, **named: Any) -> int:
        if flags & os.O_CREAT:
            self.count("create")
        return self._open_descriptor(path, flags, *arguments, **named)

    def _open_file(self, file: Any, mode: str = "r", *arguments: Any, **named: Any) -> Any:
        if not set(mode) & set("wax+"):
            return self._open(file, mode, *arguments, **named)
        if not isinstance(file, int):
            self.count("create")
        raw = self._open(file, mode.replace("t", "").replace("b", "") + "b", buffering=0)
        buffered = io.BufferedWriter(_CountedWrites(raw, self))
        if "b" in mode:
            return buffered
        return io.TextIOWrapper(buffered, encoding=named.get("encoding") or "utf-8")


class _CountedWrites(io.RawIOBase):
    """A file that is written, each of its writes an operation."""

    def __init__(self, file: Any, operations: Operations) -> None:
        self._file = file
        self._operations = operations

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return int(self._file.fileno())

    def write(self, data: Any) -> int:
        self._operations.count("write")
        return int(self._file.write(data))

    def close(self) -> None:
        if not self.closed:
            super().close()
            self._file.close()


class Disk:
    """What of a directory would be left by a power cut; all that is in it now would be."""

    def __init__(self, directory: Path) -> None:
        # Taken now: later they are `Operations`', and would count what is done here.
        self._open, self._open_file, self._mkdir = os.open, io.open, os.mkdir
        #: Of a directory, by its number: its entries' numbers, and whether they are directories.
        self._names: dict[int, dict[str, tuple[int, bool]]] = {}
        self._content: dict[int, bytes] = {}
        self._held: list[int] = []
        self._lock = threading.Lock()
        self._root = directory.stat().st_ino
        for path in [directory, *directory.rglob("*")]:
            descriptor = self._open(path, os.O_RDONLY)
            self.synced(descriptor)
            os.close(descriptor)

    def synced(self, descriptor: int) -> None:
        """What is open there was synced."""
        found = os.fstat(descriptor)
        with self._lock:
            # Held open, so that its number goes to nothing else.
            self._held.append(os.dup(descriptor))
            path = f"/proc/self/fd/{descriptor}"
            if stat.S_ISDIR(found.st_mode):
                entries = {e.name: (e.inode(), e.is_dir()) for e in os.scandir(path)}
                self._names[found.st_ino] = entries
            else:
                with self._open_file(path, "rb") as file:
                    self._content[found.st_ino] = file.read()

    def write_what_is_left(self, target: Path) -> None:
        """Make `target` as the directory would be found after a power cut."""
        self._write(self._root, True, target)

    def _write(self, number: int, is_directory: bool, target: Path) -> None:
        # What was never synced has a name, where that was synced, and nothing in it.
        if is_directory:
            self._mkdir(target)
            for name, entry in self._names.get(number, {}).items():
                self._write(*entry, target / name)
        else:
            with self._open_file(target, "wb") as file:
                file.write(self._content.get(number, b""))
