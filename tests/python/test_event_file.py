"""TensorBoard's files of a task: whole records, and one curve through moves and lost steps."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from harness import Runtime
from models import Mlp, definition
from saturn.worker.event_file import EventFile

START = 1


def crc32c(data: bytes) -> int:
    """As RFC 3720 describes it, bit by bit."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def checked(data: bytes, masked: bytes) -> bytes:
    rotated = (struct.unpack("<I", masked)[0] - 0xA282EAD8) & 0xFFFFFFFF
    assert (rotated << 15 | rotated >> 17) & 0xFFFFFFFF == crc32c(data)
    return data


def records(path: Path) -> Iterator[bytes]:
    data = path.read_bytes()
    while data:
        (length,) = struct.unpack("<Q", checked(data[:8], data[8:12]))
        yield checked(data[12 : 12 + length], data[12 + length : 16 + length])
        data = data[16 + length :]


def fields(message: bytes) -> list[tuple[int, Any]]:
    """(number, content) of each field of a protocol buffer."""
    found: list[tuple[int, Any]] = []

    def varint() -> int:
        nonlocal message
        value = shift = 0
        while True:
            byte, message = message[0], message[1:]
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while message:
        key = varint()
        if key & 7 == 0:
            found.append((key >> 3, varint()))
            continue
        size = {1: 8, 2: None, 5: 4}[key & 7]
        size = varint() if size is None else size
        found.append((key >> 3, message[:size]))
        message = message[size:]
    return found


def curves(task_dir: Path) -> dict[str, list[tuple[int, float]]]:
    """(step, value) by name, as TensorBoard shows them: what an attempt goes back to is dropped."""
    shown: dict[str, list[tuple[int, float]]] = {}
    for path in sorted((task_dir / "tensorboard").iterdir()):
        events = [dict(fields(record)) for record in records(path)]
        assert events[0][3] == b"brain.Event:2"
        for event in events[1:]:
            step = event[2]
            if dict(fields(event.get(7, b""))).get(1) == START:
                shown = {name: [p for p in points if p[0] < step] for name, points in shown.items()}
            for number, value in fields(event.get(5, b"")):
                assert number == 1
                named = dict(fields(value))
                if 2 in named:
                    number = struct.unpack("<f", named[2])[0]
                    shown.setdefault(named[1].decode(), []).append((step, number))
    return shown


def test_the_checksum_is_the_one_that_is_asked_for() -> None:
    assert crc32c(b"123456789") == 0xE3069283  # the check value of CRC-32C


def test_steps_that_are_trained_again_are_shown_once(tmp_path: Path) -> None:
    notes: list[str] = []
    for attempt, first, last in ((9, 1, 300), (10, 200, 301)):
        file = EventFile(tmp_path, attempt, notes.append)
        file.begin(first - 1, f"attempt {attempt}", attempt)
        for step in range(first, last + 1):
            file.add(step, {"train/loss": attempt + 0.5, "größe": 1e300})
        file.close()
    shown = curves(tmp_path)
    losses = shown["train/loss"]
    assert [step for step, _ in losses] == list(range(1, 302))
    assert [value for _, value in losses[198:200]] == [9.5, 10.5]
    assert shown["größe"][0] == (1, float("inf"))
    assert shown["saturn/devices"][-1] == (301, 10)
    assert not notes


def test_tensorboard_reads_them_so(tmp_path: Path) -> None:
    accumulator = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator", reason="no TensorBoard here"
    )
    test_steps_that_are_trained_again_are_shown_once(tmp_path)
    read = accumulator.EventAccumulator(str(tmp_path / "tensorboard"), size_guidance={"scalars": 0})
    read.Reload()
    found = [(event.step, event.value) for event in read.Scalars("train/loss")]
    assert found == curves(tmp_path)["train/loss"]


def test_a_file_that_cannot_be_written_is_told_of_once(tmp_path: Path) -> None:
    (tmp_path / "tensorboard").write_text("in the way")
    notes: list[str] = []
    file = EventFile(tmp_path, 1, notes.append)
    file.begin(0, "ddp", 1)
    file.add(1, {"train/loss": 1.0})
    file.close()
    assert len(notes) == 1 and "training goes on" in notes[0]


@pytest.mark.slow
def test_a_task_is_one_curve_through_its_moves(run: Runtime) -> None:
    run.write_task(definition("moved", get_model=partial(Mlp, 4), max_grad_norm=1.0))
    for technique, ranks, stop in (("ddp", 1, 4), ("fsdp", 2, 12)):
        result = run.run("moved", technique, ranks=ranks, steps=12, stop_at_step=stop)
        assert result.codes == [0] * ranks, result.logs
    shown = curves(run.task_dir("moved"))
    assert shown["train/loss"] == [
        (step, pytest.approx(loss)) for step, loss in run.losses("moved").items()
    ]
    assert len(shown["train/gradient_norm"]) == len(shown["train/lr"]) == 12
    assert [number for _, number in shown["saturn/devices"]] == [1] * 4 + [2] * 8
    assert shown["memory/bytes"] and len(shown["speed/samples_per_s"]) == 10
    assert shown.keys().isdisjoint({"speed/tokens_per_s"})  # its batches hold no tokens
    lines = map(json.loads, (run.task_dir("moved") / "metrics.jsonl").read_text().splitlines())
    assert all(line["lr"] == 0.01 and line["gradient_norm"] > 0 for line in lines)
