"""The pool: `saturn serve` and `saturn submit`, from programs in several directories."""

from __future__ import annotations

import importlib
import importlib.util
import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import reference
import saturn
from closeness import ACROSS, ulps
from saturn import native, verbs
from saturn.errors import InvalidInput, Refused
from saturn.tasks.importing import imports_of
from saturn.tasks.prefixes import prefixed, safe
from saturn.tasks.profile_key import Key
from saturn.tasks.surroundings import SUBMITTED, Surroundings
from saturn.tuning import keeping
from saturn.tuning.study import StudyTuner
from served import Served

EPOCHS = 30
#: Samples of the two directories, whose code is the same.
SAMPLES = {"one": 96, "other": 160}
#: The same code in each directory; `data.pt` differs.
MODELS = f"""
import torch
from saturn import HParams, Task

WIDTH = 16

def model():
    layers = (torch.nn.Linear(8, WIDTH), torch.nn.Tanh(), torch.nn.Linear(WIDTH, 2))
    return torch.nn.Sequential(*layers)

def loader():
    inputs = torch.load("data.pt")
    data = torch.utils.data.TensorDataset(inputs, (inputs.sum(1) > 0).long())
    return torch.utils.data.DataLoader(data, batch_size=16, shuffle=True)

def make(lr):
    return Task(model, loader, torch.nn.functional.cross_entropy, HParams(lr=lr, epochs={EPOCHS}))
"""
SWEEP = 'function = "nets.py:make"\n[grid]\nlr = [0.1, 0.01]\n[run]\ndevices = 1\n'

#: The options of `saturn submit` that are not given.
UNASKED = dict.fromkeys(("name", "priority", "due")) | dict.fromkeys(
    ("preview", "wait", "json"), False
)


@pytest.fixture(autouse=True)
def no_module_of_another_test() -> Iterator[None]:
    """Each test has its own `nets`, where a program would have one for good."""
    sys.modules.pop("nets", None)
    yield
    sys.modules.pop("nets", None)


def project(directory: Path) -> Path:
    """A directory with a sweep, its module and its data."""
    import torch

    directory.mkdir()
    (directory / "nets.py").write_text(MODELS)
    (directory / "sweep.toml").write_text(SWEEP)
    samples = SAMPLES.get(directory.name, 16)
    generator = torch.Generator().manual_seed(samples)
    torch.save(torch.randn(samples, 8, generator=generator), directory / "data.pt")
    return directory


def plain_losses(directory: Path, lr: float, monkeypatch: pytest.MonkeyPatch) -> dict[int, float]:
    """Losses of the directory's task in plain torch."""
    monkeypatch.chdir(directory)
    spec = importlib.util.spec_from_file_location(f"nets_{directory.name}", "nets.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    steps = EPOCHS * SAMPLES[directory.name] // 16
    return reference.train(module.make(lr).definition(), steps)[0]


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("strike", ["nothing", "kill", "stop"])
def test_sweeps_of_several_directories_share_a_pool_that_is_taken_up_again(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, strike: str
) -> None:
    # Both have a module `nets` and a file `data.pt`, and the pool was started in neither.
    one, other = project(tmp_path / "one"), project(tmp_path / "other")
    names, said = served.verb("submit", "sweep.toml", "--name", "one", cwd=one)
    assert names.split() == ["one-lr=0.1", "one-lr=0.01"]
    assert "not used, since the run has its own: devices" in said
    told, _ = served.verb("submit", "sweep.toml", "--name", "other", "--json", cwd=other)
    done = {"version": 1, "run": str(served.run_dir), "ok": True, "code": None, "error": None}
    assert json.loads(told) == {**done, "tasks": ["other-lr=0.1", "other-lr=0.01"]}
    if strike != "nothing":
        arguments = ("submit", "sweep.toml", "--name", "one", "--json")
        told, again = served.verb(*arguments, cwd=one, code=2)
        assert "there is a task `one-lr=0.1` already" in again and "--name NAME gives" in again
        refused = {**json.loads(told), "error": ""}
        assert refused == {**done, "ok": False, "code": "name_taken", "error": ""}
        _, second = served.verb("serve", cwd=one, code=2)
        assert "a process drives the pool already" in second
        served.until(lambda: len(served.losses("one-lr=0.1")) > 5)
        served.process.send_signal(signal.SIGKILL if strike == "kill" else signal.SIGINT)
        assert served.process.wait(100) == (-signal.SIGKILL if strike == "kill" else 130)
        _, gone = served.verb("submit", "sweep.toml", "--name", "more", cwd=one, code=2)
        assert "no process drives the pool" in gone and "saturn serve" in gone
        served.serve()
    served.verb("close", "pool", cwd=one)
    assert served.process.wait(200) == 0, served.log.read_text()
    for directory, rate in ((one, 0.1), (one, 0.01), (other, 0.1), (other, 0.01)):
        expected = plain_losses(directory, rate, monkeypatch)
        assert ulps(served.losses(f"{directory.name}-lr={rate}"), expected) < ACROSS
    assert "4 of 4 tasks done" in served.verb("status", "pool", cwd=other)[0]


PROGRAM = """
import json
import nets
import saturn

tasks = [nets.make(lr) for lr in (0.1, 0.01)]
tasks[0].name, tasks[1].name = "first", "second"
found = saturn.orchestrate(tasks, pool="auto").tasks
print(json.dumps([[task.name, task.status, task.steps, task.final_loss] for task in found]))
"""


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_program_waits_for_its_tasks_in_the_pool_also_while_nobody_drives_it(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = project(tmp_path / "one")
    (one / "train.py").write_text(PROGRAM)
    heard = tmp_path / "heard.log"
    with heard.open("w") as log:
        program = subprocess.Popen(
            [sys.executable, "train.py"],
            env=served.environment,
            cwd=one,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
    served.until(lambda: len(served.losses("train-first")) > 5)
    served.process.kill()
    served.process.wait()
    until_s = time.monotonic() + 60
    while "no process drives the run" not in heard.read_text():
        assert time.monotonic() < until_s, heard.read_text()
        time.sleep(0.1)
    served.serve()
    told, _ = program.communicate(timeout=200)
    said = heard.read_text()
    assert program.returncode == 0, said
    expected = [plain_losses(one, rate, monkeypatch) for rate in (0.1, 0.01)]
    losses = [served.losses(f"train-{name}") for name in ("first", "second")]
    for found, plain in zip(losses, expected, strict=True):
        assert ulps(found, plain) < ACROSS
    steps = EPOCHS * SAMPLES["one"] // 16
    assert json.loads(told) == [
        [name, "done", steps, found[steps]]
        for name, found in zip(("first", "second"), losses, strict=True)
    ]
    assert "submitted 2 tasks, train-…" in said and "train-second: done" in said
    assert not (one / "saturn_runs").exists()
    ranking, said = served.verb("submit", "sweep.toml", "--wait", cwd=one)
    ranked = [line.split()[1] for line in ranking.splitlines()]
    assert sorted(ranked) == ["sweep-lr=0.01", "sweep-lr=0.1"]
    assert "Ctrl-C ends the waiting" in said and "sweep-lr=0.1: done" in said


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_submission_is_previewed_and_refused_if_it_would_be_late(
    served: Served, tmp_path: Path
) -> None:
    one = project(tmp_path / "one")

    def submit(*more: str, code: int = 0) -> tuple[str, str]:
        return served.verb("submit", "sweep.toml", *more, cwd=one, code=code)

    unknown, _ = submit("--preview")
    assert unknown.strip() == "2 tasks: the end is not known before the task is measured"
    # Nothing is known yet, so even this is accepted.
    _, said = submit("--name", "first", "--due", "+1s")
    assert "whether the due time is kept is not known yet" in said
    served.until(lambda: len(served.losses("first-lr=0.1")) > 5)
    told = json.loads(submit("--name", "more", "--preview", "--json")[0])
    assert [task["name"] for task in told["tasks"]] == ["more-lr=0.1", "more-lr=0.01"]
    assert all(task["end_s"] > told["now_s"] for task in told["tasks"])
    assert "`more-lr=0.1` would end in" in submit("--name", "more", "--preview")[0]
    _, late = submit("--name", "more", "--due", "+0.01s", code=2)
    assert "the due time can't be kept: `more-lr=" in late
    _, again = submit("--name", "first", "--preview", code=2)
    assert "there is a task `first-lr=0.1` already" in again and "--name NAME" in again
    _, kept = submit("--name", "more", "--due", "+10h")
    assert "the plan keeps the due time" in kept
    status = json.loads(served.verb("status", "pool", "--json", cwd=one)[0])
    names = [task["name"] for task in status["tasks"]]
    assert names == ["first-lr=0.1", "first-lr=0.01", "more-lr=0.1", "more-lr=0.01"]
    assert all(task["deadline_s"] > 30000 for task in status["tasks"][2:])


TRIALS = 12
SEARCH = f"[search]\ntrials = {TRIALS}\n[search.space]\nlr = {{ low = 0.01, high = 0.1 }}\n"
STOPPER = '[grid]\nlr = [0.1, 0.01, 1e-9]\n[run]\nstopper = "asha"\n'


@pytest.mark.parametrize(("more", "what"), [(SEARCH, r"a `\[search\]`"), (STOPPER, "a `stopper`")])
def test_only_a_pool_takes_what_steers(tmp_path: Path, more: str, what: str) -> None:
    directory = project(tmp_path / "it")
    file = directory / "sweep.toml"
    file.write_text(f'function = "nets.py:make"\n{more}')
    asked = {"file": str(file), "run_dir": str(tmp_path), "run": "other"}
    with pytest.raises(InvalidInput, match=f"has {what}, which only a pool takes: saturn serve"):
        verbs.submit_sweep({**asked, **UNASKED})


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("strike", ["nothing", "kill", "kill what steers"])
def test_stoppers_and_searches_steer_their_own_sweeps_of_a_pool(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, strike: str
) -> None:
    one, other = project(tmp_path / "one"), project(tmp_path / "other")
    (one / "sweep.toml").write_text(f'function = "nets.py:make"\n{STOPPER}')
    (other / "search.toml").write_text(f'function = "nets.py:make"\n{SEARCH}')
    # A third sweep, which nobody steers.
    plain = project(tmp_path / "plain")
    names, said = served.verb("submit", "sweep.toml", cwd=one)
    assert names.split() == ["sweep-lr=0.1", "sweep-lr=0.01", "sweep-lr=1e-09"]
    assert "to end it: saturn cancel pool sweep" in said
    told, _ = served.verb("submit", "search.toml", "--json", cwd=other)
    assert json.loads(told)["search"] == {"name": "search", "trials": TRIALS}
    if strike != "nothing":
        served.until(lambda: len(served.losses("search-trial-0")) > 5)
        assert not (served.run_dir / "steered/search/over").exists()
    if strike == "kill":
        served.process.kill()
        served.process.wait()
        served.serve()
    elif strike == "kill what steers":
        steering = subprocess.run(
            ["pkill", "-KILL", "-f", f"saturn.tuning.steer {served.run_dir}"], check=False
        )
        assert steering.returncode == 0, "no process steers"
    _, again = served.verb("submit", "search.toml", cwd=other, code=2)
    assert "the pool has a sweep `search` already; --name NAME" in again
    served.verb("submit", "sweep.toml", "--name", "plain", cwd=plain)
    _, refused = served.verb("submit", "search.toml", "--due", "+1h", cwd=other, code=2)
    assert "--due is not for a `[search]`" in refused
    steered = served.run_dir / "steered"
    served.until(lambda: all((steered / name / "over").exists() for name in ("sweep", "search")))
    stages = served.stages(cwd=one)
    trials = {name: stage for name, stage in stages.items() if name.startswith("search-trial-")}
    assert trials == {f"search-trial-{number}": "done" for number in range(TRIALS)}
    # These tasks are so short that a task may end before the stopper has seen enough to end it.
    assert stages["sweep-lr=0.1"] == "done" and stages["sweep-lr=1e-09"] in ("stopped", "done")
    judged = {one["task"] for one in json.loads(native.judged(served.run_dir))}
    assert {name for name in stages if name.startswith("sweep-")} <= judged
    assert not any(name.startswith("plain-") for name in judged)
    served.verb("close", "pool", cwd=one)
    assert served.process.wait(200) == 0, served.log.read_text()
    assert served.stages(cwd=one)["plain-lr=0.1"] == "done"
    expected = plain_losses(one, 0.1, monkeypatch)
    assert ulps(served.losses("sweep-lr=0.1"), expected) < ACROSS
    kept = keeping.read(steered / "search")
    assert isinstance(kept, StudyTuner)
    assert [trial.state.name for trial in kept.study.trials] == ["COMPLETE"] * TRIALS


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_search_of_a_pool_is_cancelled_as_a_whole(served: Served, tmp_path: Path) -> None:
    it = project(tmp_path / "it")
    many = SEARCH.replace(f"trials = {TRIALS}", "trials = 1000")
    (it / "sweep.toml").write_text(f'function = "nets.py:make"\n{many}')
    served.verb("submit", "sweep.toml", "--name", "long", cwd=it)
    served.until(lambda: bool(served.losses("long-trial-1")))
    _, said = served.verb("cancel", "pool", "long", cwd=it)
    assert "the sweep `long` is cancelled" in said
    served.until(lambda: (served.run_dir / "steered/long/over").exists())
    stages = served.stages(cwd=it)
    assert set(stages.values()) <= {"done", "cancelled"} and len(stages) < 1000
    _, unknown = served.verb("cancel", "pool", "other", cwd=it, code=2)
    assert "no task `other`" in unknown or "there is no task" in unknown


@pytest.mark.parametrize("code", ["name_taken", "bad_value", None])
def test_other_names_are_offered_if_a_name_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str | None
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise Refused("in whatever words", code)

    monkeypatch.setattr(saturn.Run, "submit", refuse)
    directory = project(tmp_path / "it")
    asked = {"file": str(directory / "sweep.toml"), "run_dir": str(tmp_path), "run": "it"}
    with pytest.raises(InvalidInput, match="in whatever words") as refused:
        verbs.submit_sweep({**asked, **UNASKED})
    assert ("--name NAME" in str(refused.value)) == (code == "name_taken")


def test_a_sweeps_tasks_keep_their_order_under_their_new_names() -> None:
    def task(name: str, after: tuple[str, ...] = ()) -> saturn.Task:
        hparams = saturn.HParams(lr=0.1, steps=1)
        return saturn.Task(
            dict, list, lambda outputs, labels: outputs, hparams, name=name, after=after
        )

    tasks = prefixed([task("a"), task("b", after=("a", "of-the-pool"))], "mine")
    assert [each.name for each in tasks] == ["mine-a", "mine-b"]
    assert list(tasks[1].after) == ["mine-a", "of-the-pool"]


def test_a_name_that_is_no_path_is_refused() -> None:
    def task(name: str) -> saturn.Task:
        hparams = saturn.HParams(lr=0.1, steps=1)
        return saturn.Task(dict, list, lambda outputs, labels: outputs, hparams, name=name)

    for prefix in ("lr/2", "x" * 128):
        with pytest.raises(InvalidInput, match="a task would be called"):
            prefixed([task("a")], prefix)
    assert safe("my sweep (2)") == "my_sweep_2_"


def test_another_python_is_refused() -> None:
    here = Surroundings.here()
    here.refuse_other_python(here)
    for other in (replace(here, python="3.9"), replace(here, environment="/elsewhere")):
        with pytest.raises(InvalidInput, match=r"submit from the run's"):
            here.refuse_other_python(other)


def test_equal_code_of_two_directories_is_no_group_as_it_may_read_other_data() -> None:
    key = Key("0" * 64, (0, "", ""))
    assert key.of(None) == key
    one, other = key.of("/one"), key.of("/other")
    assert len({key.text, one.text, other.text}) == 3 and one == key.of("/one")
    assert re.fullmatch("[0-9a-f]{64}", one.text)


def test_modules_of_one_name_are_each_tasks_own(tmp_path: Path) -> None:
    found = []
    for name in ("one", "other"):
        directory = tmp_path / name
        directory.mkdir()
        (directory / "only_of_this_test.py").write_text(f"NAME = {name!r}\n")
        here = Surroundings.here()
        there = replace(here, python_path=(str(directory), *here.python_path))
        (directory / SUBMITTED).write_bytes(there.dumps())
    before = dict(sys.modules), sys.path[:]
    for name in ("one", "other", "one"):
        with imports_of(tmp_path / name):
            found.append(importlib.import_module("only_of_this_test").NAME)
        assert (dict(sys.modules), sys.path) == before
    assert found == ["one", "other", "one"]
    with imports_of(tmp_path):  # a task that came with its run's start
        assert sys.path == before[1]
