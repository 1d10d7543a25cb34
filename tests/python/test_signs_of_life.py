"""What a gang says before and between its steps, so that silence means that it hangs."""

from __future__ import annotations

import contextlib
import itertools
import json
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import techniques_of_tests as techniques
import torch
from harness import Runtime
from live_gangs import Result
from models import Calls, Mlp, dataset, definition
from saturn.checkpoint import manifest
from saturn.checkpoint.checkpoints import Checkpoints
from saturn.data import slices
from saturn.data.slices import Data, Position
from saturn.worker import export, report
from saturn.worker.report import Reporter
from torch.utils.data import DataLoader, IterableDataset

#: How long a slow thing takes; seconds between signs of life meanwhile; signs at least.
SLOW_S, BEAT_S, SIGNS = 2.0, 0.05, 4


class Stream(IterableDataset[Any]):
    """The samples of the other tests, one after the other."""

    def __iter__(self) -> Iterator[Any]:
        return iter(dataset())


def stream() -> DataLoader[Any]:
    return DataLoader(Stream(), batch_size=8)


def slowly(owner: Any, name: str) -> None:
    """Make a function of Saturn's wait, as for a slow disk."""
    function = getattr(owner, name)

    def slow(*arguments: Any, **named: Any) -> Any:
        time.sleep(SLOW_S)
        return function(*arguments, **named)

    setattr(owner, name, slow)


def on_a_slow_disk() -> Mlp:
    slowly(manifest, "commit")
    slowly(Checkpoints, "load")
    slowly(export, "_copy")
    return Mlp()


def compute() -> None:
    until = time.monotonic() + SLOW_S
    while time.monotonic() < until:
        pass


def computing() -> Mlp:
    """Takes its time to be built."""
    compute()
    return Mlp()


def beat_often() -> None:
    report._BEAT_EVERY_S = BEAT_S


def talk() -> None:
    report._ALIVE_EVERY_S = 0.0


#: Makes signs of life frequent.
OFTEN = {"beats": Calls(beat_often)}
#: Makes every sign of life that loops give be sent.
TALKATIVE = {"talks": Calls(talk)}


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
    run.write_task(definition(get_dataloader=stream))
    assert run.run("mlp", "ddp", ranks=2, steps=4).codes == [0, 0]
    result = run.run("mlp", "fsdp", ranks=2, steps=6)
    assert result.codes == [0, 0], result.logs
    said = kinds(result, 0)
    assert "read 4 batches of the stream again" in result.one("note")["text"]
    assert said.index("note") < said.index("started")


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [1, 2])
def test_a_slow_disk_is_no_silence(run: Runtime, tmp_path: Path, ranks: int) -> None:
    task = definition(get_model=on_a_slow_disk, save_dir=tmp_path / "saved", hints=OFTEN)
    run.write_task(task)
    assert run.run("mlp", "ddp", ranks=ranks, steps=2).codes == [0] * ranks
    result = run.run("mlp", "ddp", ranks=ranks, steps=4)
    assert result.codes == [0] * ranks, result.logs
    said = kinds(result, 0)
    started, saved = said.index("started"), said.index("checkpoint")
    # While it loads, while it saves, while the trained model is copied.
    for part in (said[:started], said[started:saved], said[saved:]):
        assert part.count("alive") >= SIGNS, said
    if ranks == 2:
        assert "alive" not in kinds(result, 1)
    trial = run.run("mlp", "ddp", ranks=ranks, kind="trial")
    assert trial.codes == [0] * ranks and len(trial.of("alive", rank=0)) >= SIGNS


@pytest.mark.slow(quick=["train-started"])
@pytest.mark.parametrize(("kind", "end"), [("train", "started"), ("trial", "trial")])
def test_a_long_build_is_no_silence(run: Runtime, kind: str, end: str) -> None:
    run.write_task(definition(get_model=computing, hints=OFTEN))
    result = run.run("mlp", "ddp", steps=1, kind=kind)
    assert result.codes == [0], result.logs
    said = kinds(result, 0)
    assert said[: said.index(end)].count("alive") >= SIGNS


def test_a_gang_without_steps_left_fetches_nothing(run: Runtime) -> None:
    run.write_task(definition(get_dataloader=stream))
    for _ in range(2):
        result = run.run("mlp", "ddp", steps=3)
        assert result.codes == [0], result.logs
    assert result.one("finished")["step"] == 3 and result.of("note") == []


def test_trials_give_signs_between_knob_sets(run: Runtime) -> None:
    run.write_task(definition(hints=TALKATIVE))
    few = run.run("mlp", "ddp", kind="trial")
    many = run.run("mlp", techniques.spec_of(techniques.ManyKnobs), kind="trial")
    assert few.codes == many.codes == [0], many.logs
    assert len(few.of("alive")) >= 3
    assert len(many.of("alive")) >= len(few.of("alive")) + 5


def test_reading_a_stream_again_is_told_as_it_goes(clock: Callable[[float], None]) -> None:
    clock(10.0)
    notes: list[str] = []
    loader = Data(lambda: ([torch.zeros(2)] * 2 for _ in range(9)), seed=1, note=notes.append)
    assert next(loader.slices(Position(0, 8, 16, 8))).after == Position(0, 9, 18, 9)
    assert [note.partition(" ")[0] for note in notes] == ["reading", "reading", "read"]
    assert "3 of 8 batches after 30 s" in notes[0] and "6 of 8" in notes[1]
    assert slices._TELL_EVERY_S == 30.0


@contextlib.contextmanager
def heard(rank: int) -> Iterator[tuple[Reporter, list[str]]]:
    """A reporter, and the kinds of what it says, complete once the block has ended."""
    kinds: list[str] = []
    with tempfile.TemporaryDirectory() as directory:  # names of Unix sockets are short
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
            server.bind(f"{directory}/s")
            server.listen()
            reporter = Reporter(f"{directory}/s", attempt=7, rank=rank)
            connection, _ = server.accept()
        try:
            yield reporter, kinds
        finally:
            reporter.send({"type": "finished"})
            reporter.close()  # else the end of the connection ends this process
        with connection, connection.makefile() as lines:
            while "finished" not in kinds:
                kinds.append(json.loads(next(lines))["type"])


@pytest.mark.parametrize("rank", [0, 1])
def test_signs_of_life_are_few_and_rank_0s(clock: Callable[[float], None], rank: int) -> None:
    with heard(rank) as (reporter, said):
        clock(1.0)
        for _ in range(7):
            reporter.alive()
    assert said == ["hello", *["alive"] * (3 if rank == 0 else 0), "finished"]


@pytest.mark.slow(quick=["1"])
@pytest.mark.parametrize("rank", [0, 1])
def test_signs_by_themselves_are_rank_0s_and_end_with_the_block(
    monkeypatch: pytest.MonkeyPatch, rank: int
) -> None:
    monkeypatch.setattr(report, "_BEAT_EVERY_S", BEAT_S)
    with heard(rank) as (reporter, said):
        with reporter.alive_throughout():
            time.sleep(SLOW_S)
        reporter.send({"type": "after"})
        time.sleep(4 * BEAT_S)
    assert set(said[1:-2]) <= {"alive"} and said[-2] == "after"
    assert len(said[1:-2]) >= (SIGNS if rank == 0 else 0)
    assert rank == 0 or said == ["hello", "after", "finished"]


def test_what_hangs_gives_no_signs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "_BEAT_EVERY_S", BEAT_S)
    signs = []
    for work in (compute, lambda: time.sleep(SLOW_S)):
        with heard(0) as (reporter, said), reporter.alive_while_computing():
            work()
        signs.append(said.count("alive"))
    # One for what the test itself does before it sleeps.
    assert signs[0] >= SIGNS and signs[1] <= 1
