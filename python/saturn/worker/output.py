"""Let a rank's log fail without failing the rank.

Standard output and error of a rank are its log. A `print` in a task's function would raise if the
log's disk is full. Training is worth more than its output, so such output is dropped.
"""

from __future__ import annotations

import io
import os
import sys


def never_fail() -> None:
    """From here on, drop output of this process that can't be written."""
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
    """Writes to a descriptor as much as possible, and never raises."""

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
            pass  # the rest of the data is dropped
        return memoryview(data).nbytes
