"""Trackers: a task is one tracked run through moves, lost steps and resumes, and stops nothing."""

from __future__ import annotations

import copy
import importlib.util
import json
import math
import os
import re
import shutil
import subprocess
import sys
import time
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import saturn
from faces import make_task
from saturn import HParams, Task
from saturn.errors import InvalidInput
from saturn.loggers import (
    Logger,
    MLflow,
    Point,
    TrackedRun,
    TrackedTask,
    WandB,
    choosing,
)
from saturn.tasks.tracked_config import config_of
from saturn.worker import track
from tracked_run import ENVIRONMENT, Followed, ended, trains
from trackers_of_tests import Book, read


def steps(told: list[dict[str, Any]]) -> list[int]:
    return [line["step"] for line in told if "train/loss" in line]


def test_a_task_is_one_tracked_run(tmp_path: Path) -> None:
    run = Followed(tmp_path / "run", Book(tmp_path))
    run.write(1, 6)
    # Steps 5 and 6 were lost; where it goes on it has moved. Then the run is stopped.
    run.write(5, 8, evaluates=True)
    assert run.follow(trains(0), trains(4, "fsdp on 0, 1", 2)) == []
    told = read(tmp_path / "book-run-t.jsonl")
    assert told[0] == {"began": None, "lr": 0.1}
    assert steps(told) == list(range(1, 9))
    moves = [(line["moved"], line["from_step"]) for line in told if "moved" in line]
    assert moves == [("ddp on 0", 0), ("fsdp on 0, 1", 4)]
    assert told.index({"moved": "fsdp on 0, 1", "gpus": 2, "from_step": 4}) == 6
    assert {"step": 8, "train/loss": 4.0, "eval/loss": 0.5} in told
    assert told[-1] == {"ended": "stopped"}
    # Resumed: from step 6 on, whose checkpoint was the last.
    run.write(7, 10, evaluates=True)
    assert run.follow(trains(6), ended("done"), {"type": "over"}) == []
    told = read(tmp_path / "book-run-t.jsonl")[len(told) :]
    assert told[0] == {"began": "run-t", "lr": 0.1}
    assert steps(told) == [9, 10] and told[-1] == {"ended": "done"}


def test_a_copy_of_a_run_has_a_tracked_run_of_its_own(tmp_path: Path) -> None:
    run = Followed(tmp_path / "run", Book(tmp_path))
    run.write(1, 4)
    assert run.follow(trains(0)) == []
    shutil.copytree(run.path, tmp_path / "copy")
    copied = copy.copy(run)
    copied.path, copied.task = tmp_path / "copy", tmp_path / "copy" / "tasks" / "t"
    copied.write(5, 6)
    assert copied.follow(trains(4), run_id="the copy's") == []
    told = read(tmp_path / "book-copy-t.jsonl")
    assert told[0] == {"began": None, "lr": 0.1} and steps(told) == [1, 2, 3, 4, 5, 6]
    copied.write(7, 7)
    assert copied.follow(trains(6), run_id="the copy's") == []
    told = read(tmp_path / "book-copy-t.jsonl")[len(told) :]
    assert told[0] == {"began": "copy-t", "lr": 0.1} and steps(told) == [7]
    assert steps(read(tmp_path / "book-run-t.jsonl")) == [1, 2, 3, 4]


def test_each_metric_of_a_step_reaches_a_tracker_once(tmp_path: Path) -> None:
    logger = Mock()
    logger.name = "book"
    task = track._Task(tmp_path, {"task": "a", "dir": "a"}, logger)
    (tmp_path / "a").mkdir()
    file = tmp_path / "a" / "metrics.jsonl"
    written = [
        {"step": 0, "loss": 2.0},
        {"step": 5, "evaluation": {"lr": 0.1}},
        {"step": 5, "evaluation": {"accuracy": 0.5}},
        {"step": 5, "evaluation": {"lr": 0.1, "accuracy": 0.5}},
    ]
    file.write_text("".join(json.dumps(line) + "\n" for line in written))
    points, _, _ = task._next_points(math.inf)
    values = [value for point in points for value in point.values.items()]
    assert values == [("train/loss", 2.0), ("eval/lr", 0.1), ("eval/accuracy", 0.5)]


def test_what_fails_is_told_once_and_keeps_nothing_from_others(tmp_path: Path) -> None:
    away = Book(tmp_path, "away", fails=10**9)
    run = Followed(tmp_path / "run", away, Book(tmp_path), Book(tmp_path, "late", fails=1))
    run.write(1, 700)
    (note, other) = sorted(run.follow(trains(0), trains(3), ended("done")))
    assert "`away` failed: ConnectionError: the tracker is away; training goes on" in note
    assert "`late` failed" in other
    assert steps(read(tmp_path / "book-run-t.jsonl")) == list(range(1, 701))
    assert steps(read(tmp_path / "away-run-t.jsonl")) == []


def test_what_a_tracker_could_not_take_is_handed_over_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(track, "_RETRY_S", (0.0, 0.0))
    monkeypatch.setattr(track, "_LOOK_EVERY_S", 0.01)
    run = Followed(tmp_path / "run", Book(tmp_path))
    run.write(1, 700)
    notes: list[str] = []
    following = track._Following(run.path, Book(tmp_path, fails=3), notes.append)
    following.events.put(trains(0))
    following.start()
    path = tmp_path / "book-run-t.jsonl"
    while not path.exists() or len(steps(read(path))) < 700:
        assert following.is_alive()
        time.sleep(0.01)
    following.events.put({"type": "over"})
    following.join()
    assert steps(read(path)) == list(range(1, 701))
    assert len(notes) == 1


def test_a_task_that_a_tracker_refuses_keeps_no_other_task_waiting(tmp_path: Path) -> None:
    class Refusing(Book):
        """Refuses all numbers of a task, as where a metric's name is not allowed."""

        def start(self, task: TrackedTask) -> TrackedRun:
            self._fails = 10**9 if task.name == "a" else 0
            return super().start(task)

    for name in "abc":
        (tmp_path / name).mkdir()
        (tmp_path / name / "metrics.jsonl").write_text('{"step": 1, "loss": 0.5}\n')
    notes: list[str] = []
    following = track._Following(tmp_path, Refusing(tmp_path), notes.append)
    for name in "abc":
        following._take({**trains(0), "task": name, "dir": name})
    following._catch_up()
    pages = {name: tmp_path / f"book-{tmp_path.name}-{name}.jsonl" for name in "abc"}
    assert {name: steps(read(page)) for name, page in pages.items()} == {
        "a": [],
        "b": [1],
        "c": [1],
    }
    assert len(notes) == 1


def test_a_tracker_that_is_away_is_not_asked_for_each_task(tmp_path: Path) -> None:
    for name in "abcd":
        (tmp_path / name).mkdir()
        (tmp_path / name / "metrics.jsonl").write_text('{"step": 1, "loss": 0.5}\n')
    following = track._Following(tmp_path, Book(tmp_path, fails=10**9), print)
    for name in "abcd":
        following._take({**trains(0), "task": name, "dir": name})
    following._catch_up()
    assert len(list(tmp_path.glob("book-*.jsonl"))) == 2, "each task waits for a time of its own"


@pytest.mark.slow
def test_a_run_is_tracked_through_a_stop_and_a_resume(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    hparams = HParams(lr=0.01, batch_count=3000)
    tasks = [make_task(name, hparams=hparams, techniques=["ddp"]) for name in ("a", "b")]
    run = saturn.start(
        tasks,
        devices=2,
        profile="none",
        name="tracked",
        loggers=[Book(tmp_path)],
        checkpoint_every_s=1000.0,
    )
    while not all((run.run_dir / "tasks" / name / "trackers").exists() for name in "ab"):
        with pytest.raises(TimeoutError):
            run.wait(0.2)
    run.stop()
    with pytest.raises(saturn.RunInterrupted):
        run.wait()
    before = {name: read(tmp_path / f"book-tracked-{name}.jsonl") for name in "ab"}
    assert all(told[-1] == {"ended": "stopped"} for told in before.values())
    saturn_program = Path(sys.executable).with_name("saturn")
    resumed = subprocess.run(
        [saturn_program, "resume", str(run.run_dir)],
        env={**os.environ, "PYTHONPATH": ENVIRONMENT["PYTHONPATH"]},  # with the fixtures' locks
        capture_output=True,
        text=True,
        check=False,
    )
    assert resumed.returncode == 0, resumed.stderr
    for name in "ab":
        told = read(tmp_path / f"book-tracked-{name}.jsonl")
        assert told[0] == {"began": None, "lr": 0.01} and told[-1] == {"ended": "done"}
        assert {"began": f"tracked-{name}", "lr": 0.01} in told
        assert steps(told) == list(range(1, 3001))
        assert {"train/lr", "train/loss"} <= told[-2].keys()
    shown = subprocess.run(
        [saturn_program, "trace", str(run.run_dir)], capture_output=True, text=True, check=True
    )
    events = json.loads(Path(shown.stdout.strip()).read_text())["traceEvents"]
    named = {event["name"] for event in events}
    rows = {event["args"]["name"] for event in events if event["name"] == "thread_name"}
    assert {"device 0", "device 1"} <= rows
    assert {"a: ddp × 1", "the run is resumed"} <= named  # noqa: RUF001


@pytest.mark.parametrize(
    ("loggers", "error", "words"),
    [
        ("wandb", TypeError, r"loggers must be a list, such as \['wandb'\]"),
        ([3], TypeError, "loggers holds a int; it must hold names and"),
        (
            ["wandbb"],
            InvalidInput,
            r"there is no logger `wandbb` \(did you mean `wandb`\?\); there",
        ),
        (["trackio"], InvalidInput, "package trackio, which is not installed: pip install trackio"),
        ([WandB(mode="online")], InvalidInput, "the package wandb, which is not installed"),
        ([MLflow(name="a/b")], InvalidInput, "the logger's name 'a/b' must be letters, digits"),
        (
            [Book(Path()), Book(Path())],
            InvalidInput,
            "two of loggers are called `book`; give one another name=",
        ),
        ([Book(Path(), key=False)], InvalidInput, "the book has no key: get one"),
        (["broken"], InvalidInput, "the logger `broken` can't be made: No module named 'nowhere'"),
    ],
)
def test_what_cannot_work_is_told_before_anything_is_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, loggers: Any, error: type, words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    broken = EntryPoint("broken", "nowhere:Logger", choosing.GROUP)
    monkeypatch.setattr(choosing, "entry_points", lambda group: [broken])
    with pytest.raises(error, match=words):
        saturn.orchestrate([make_task("t")], loggers=loggers)
    assert not list(tmp_path.iterdir())


def test_wandb_wants_a_key_where_it_is_online(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    for variable in ("WANDB_API_KEY", "WANDB_MODE", "WANDB_BASE_URL", "WANDB_IDENTITY_TOKEN_FILE"):
        monkeypatch.delenv(variable, raising=False)
    keys = tmp_path / "netrc"
    monkeypatch.setenv("NETRC", str(keys))
    with pytest.raises(InvalidInput, match="wandb has no API key: run `wandb login`"):
        choosing.checked(["wandb"])
    assert choosing.checked([WandB(mode="offline")])[0].name == "wandb"
    keys.write_text("machine api.wandb.ai login user password secret\n")
    keys.chmod(0o600)
    assert choosing.checked(["wandb"])


def test_a_tracker_knows_the_parameters_of_a_sweep(tmp_path: Path) -> None:
    (tmp_path / "train.py").touch()
    parameters = {"lr": 0.1, "form": "wide"}
    script = Task.script(tmp_path / "train.py", ["--lr", 0.1], parameters=parameters, trainer=False)
    assert config_of(script) == {
        **parameters,
        "script": str(tmp_path / "train.py"),
        "args": "--lr 0.1",
    }
    task = make_task("t")
    task.parameters = {"seed": 5, "dropout": 0.3}  # as a study's trial
    found = config_of(task)
    assert found["dropout"] == 0.3 and found["seed"] == 0, "its own seed counts"


def test_packages_may_bring_loggers(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = EntryPoint("mine", "test_loggers:mine", choosing.GROUP)
    monkeypatch.setattr(choosing, "entry_points", lambda group: [entry])
    assert [one.name for one in choosing.checked(["mine"])] == ["mine"]


def test_the_logger_of_the_page_is_whole(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (Path(__file__).parents[2] / "docs" / "trackers.md").read_text()
    (block,) = [b for b in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "Printed" in b]
    names: dict[str, Any] = {}
    exec(block, names)
    (logger,) = choosing.checked([names["Printed"]()])
    task = TrackedTask("run", tmp_path, "t", tmp_path, {}, None)
    tracked = logger.start(task)
    tracked.moved(0, "ddp on 0", 1)
    tracked.log([Point(1, {"train/loss": 0.5}, 0.0)])
    tracked.ended("done")
    assert tracked.id == "t"
    assert capsys.readouterr().out == "0 ddp on 0\n1 {'train/loss': 0.5}\ndone\n"


def mine() -> Logger:
    return Book(Path(), "mine")
