"""What a gang says before and between its steps, so that silence means that it hangs."""

from __future__ import annotations

import itertools
import json
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import techniques_of_tests as techniques
import torch
from harness import Result, Runtime
from models import Mlp, dataset, definition
from saturn.worker import data, report
from saturn.worker.data import Data, Position
from saturn.worker.report import Reporter
from torch.utils.data import DataLoader, IterableDataset


class Stream(IterableDataset[Any]):
    """The samples of the other tests, one after the other."""

    def __iter__(self) -> Iterator[Any]:
        return iter(dataset())


def stream() -> DataLoader[Any]:
    return DataLoader(Stream(), batch_size=8)


def talkative() -> Mlp:
    """Makes every sign of life be sent."""
    report._ALIVE_EVERY_S = 0.0
    return Mlp()


def kinds(result: Result, rank: int) -> list[str]:
    return [message["type"] for sender, message in result.messages if sender == rank]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """A clock that goes on by so many seconds whenever it is read."""

    def every(seconds: float) -> None:
        ticks = itertools.count(0.0, seconds)
        monkeypatch.setattr("time.monotonic", lambda: next(ticks))

    return every


def test_training_begins_once_the_first_slice_is_there(run: Runtime) -> None:
    run.write_task(definition(get_model=talkative, get_dataloader=stream))
    assert run.run("mlp", "ddp", ranks=2, steps=4).codes == [0, 0]
    result = run.run("mlp", "fsdp", ranks=2, steps=6)
    assert result.codes == [0, 0], result.logs
    said = kinds(result, 0)
    assert "read 4 batches of the stream again" in result.one("note")["text"]
    assert said.index("note") < said.index("started")
    # The model is built, parallelised, the checkpoint found and loaded, four batches read again.
    assert said[1:9] == ["alive"] * 8 and said[10] == "started"
    assert "alive" not in kinds(result, 1)


def test_a_gang_without_steps_left_fetches_nothing(run: Runtime) -> None:
    run.write_task(definition(get_dataloader=stream))
    for _ in range(2):
        result = run.run("mlp", "ddp", steps=3)
        assert result.codes == [0], result.logs
    assert result.one("finished")["step"] == 3 and result.of("note") == []


def test_trials_give_signs_between_knob_sets(run: Runtime) -> None:
    run.write_task(definition(get_model=talkative))
    few = run.run("mlp", "ddp", kind="trial")
    many = run.run("mlp", techniques.spec_of(techniques.ManyKnobs), kind="trial")
    assert few.codes == many.codes == [0], many.logs
    assert len(few.of("alive")) >= 3
    assert len(many.of("alive")) >= len(few.of("alive")) + 5


def test_reading_a_stream_again_is_told_as_it_goes(clock: Callable[[float], None]) -> None:
    clock(10.0)
    notes: list[str] = []
    signs: list[None] = []
    loader = Data(
        lambda: ([torch.zeros(2)] * 2 for _ in range(9)),
        seed=1,
        note=notes.append,
        alive=lambda: signs.append(None),
    )
    assert next(loader.slices(Position(0, 8, 16, 8))).after == Position(0, 9, 18, 9)
    assert len(signs) == 8
    assert [note.partition(" ")[0] for note in notes] == ["reading", "reading", "read"]
    assert "3 of 8 batches after 30 s" in notes[0] and "6 of 8" in notes[1]
    assert data._TELL_EVERY_S == 30.0


@pytest.mark.parametrize("rank", [0, 1])
def test_signs_of_life_are_few_and_rank_0s(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: Callable[[float], None], rank: int
) -> None:
    monkeypatch.chdir(tmp_path)  # names of Unix sockets are short
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
        server.bind("s")
        server.listen()
        reporter = Reporter("s", attempt=7, rank=rank)
        connection, _ = server.accept()
        try:
            clock(1.0)
            for _ in range(7):
                reporter.alive()
        finally:
            reporter.send({"type": "finished"})
            reporter.close()  # else the end of the connection ends this process
        with connection, connection.makefile() as lines:
            said = []
            while "finished" not in said:
                said.append(json.loads(next(lines))["type"])
    assert said == ["hello", *["alive"] * (3 if rank == 0 else 0), "finished"]
