"""Standard output and error of a rank: its log, which may fail without failing the rank.

A `print` in a task's function raises where the disk of the log is full. Training is worth more than
what it prints.
"""

from __future__ import annotations

import io
import os
import sys


def never_fail() -> None:
    """From here on, what this process prints and can't be written is dropped."""
    sys.stdout = _lossy(1)
    sys.stderr = _lossy(2)


def _lossy(descriptor: int) -> io.TextIOWrapper:
    return io.TextIOWrapper(
        _Lossy(descriptor),  # type: ignore[arg-type]  # unbuffered, as under `python -u`
        encoding="utf-8",
        errors="backslashreplace",
        write_through=True,
    )


class _Lossy(io.RawIOBase):
    """Writes to a descriptor, all or what is possible, and never complains."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._descriptor

    def write(self, data: bytes) -> int:  # type: ignore[override]
        left = memoryview(data).cast("B")
        try:
            while left:
                left = left[os.write(self._descriptor, left) :]
        except OSError:
            pass  # dropped
        return memoryview(data).nbytes
