"""Write TensorBoard's event file of one attempt during training, without TensorBoard.

An event file is a series of records. Each record is a protocol buffer (`tensorflow.Event`) between
its length and a checksum. The few fields that curves need are encoded here, so that every run has
curves whatever is installed; docs/decisions.md gives the reasons.

All attempts of a task write into one directory, each into its own file. Attempts are numbered in
their order, and TensorBoard reads files in that order: so a task is one curve through all of its
moves. Each file begins with the step from which it replaces what earlier files said.

A file that can't be written ends no training: the writer says so once, and writes no more.
"""

from __future__ import annotations

import contextlib
import os
import struct
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from saturn.plain.series import DEVICES, LOSS


class EventFile:
    """The event file of one attempt; the file is created with its first event."""

    def __init__(self, task_dir: Path, attempt: int, note: Callable[[str], None]) -> None:
        """`note` tells the user something."""
        self._path = task_dir / "tensorboard" / f"events.out.tfevents.{attempt:010d}.saturn"
        self._note = note
        self._descriptor: int | None = None
        self._has_failed = False
        self._gpus: int | None = None

    def begin(self, step: int, strategy: str, gpus: int) -> None:
        """Note that training goes on from `step` under a strategy (its text) on `gpus` devices."""
        self._gpus = gpus
        self._write(_event(step + 1, _field(7, b"\x08\x01")))  # session_log: START
        text = _field(8, b"\x08\x07" + _field(2, _field(2, b"\x08\x01")) + _field(8, strategy))
        plugin = _field(9, _field(1, _field(1, "text")))
        value = _field(1, "saturn/strategy") + plugin + text
        self._write(_event(step + 1, _field(5, _field(1, value))))

    def add(self, step: int, values: Mapping[str, float]) -> None:
        """Add the values of a step, by name."""
        if self._gpus is not None and LOSS in values:
            values = {**values, DEVICES: self._gpus}
        summary = b"".join(
            _field(1, _field(1, name) + b"\x15" + struct.pack("<f", _float32(value)))
            for name, value in values.items()
        )
        self._write(_event(step, _field(5, summary)))

    def close(self) -> None:
        """Close the file: no more events will come."""
        if self._descriptor is not None:
            with contextlib.suppress(OSError):
                os.close(self._descriptor)
            self._descriptor = None

    def _write(self, event: bytes) -> None:
        if self._has_failed:
            return
        try:
            record = _record(event)
            if self._descriptor is None:
                self._path.parent.mkdir(mode=0o700, exist_ok=True)
                flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
                self._descriptor = os.open(self._path, flags, 0o600)
                if os.fstat(self._descriptor).st_size == 0:
                    record = _record(_event(0, _field(3, "brain.Event:2"))) + record
            if os.write(self._descriptor, record) != len(record):
                raise OSError("the disk is full")
        except OSError as error:
            self._has_failed = True
            self._note(
                f"TensorBoard's file {self._path} can't be written: {error}; training goes on, and "
                "the task's next attempt tries again"
            )


def _record(data: bytes) -> bytes:
    length = struct.pack("<Q", len(data))
    return length + _checksum(length) + data + _checksum(data)


def _event(step: int, content: bytes) -> bytes:
    return b"\x09" + struct.pack("<d", time.time()) + b"\x10" + _varint(step) + content


def _field(number: int, content: bytes | str) -> bytes:
    """A protocol buffer's field whose content is bytes, a text or a message."""
    data = content.encode() if isinstance(content, str) else content
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def _float32(value: float) -> float:
    """The number, or infinity if float32 can't hold it."""
    return value if abs(value) < 3.4e38 or value != value else value * float("inf")


def _crc_of_byte(value: int) -> int:
    for _ in range(8):
        value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
    return value


_CRC = [_crc_of_byte(value) for value in range(256)]


def _checksum(data: bytes) -> bytes:
    """CRC-32C (Castagnoli), masked as the format of records demands."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ _CRC[(crc ^ byte) & 0xFF]
    crc ^= 0xFFFFFFFF
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)
