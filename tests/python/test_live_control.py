"""Runs that are asked for things while they train: real processes, real training.

All tasks train on one device by one technique, so a task that was stopped and taken up again must
have the same losses, bit by bit, as one that nothing happened to.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import reference
import saturn
import torch
from saturn import HParams, Task
from saturn.runs import run_directory
from waiting import until
from warm_parent import PYTHON_DIR

#: Three seconds of training at least: on a busy machine, too, `a` is paused before it ends.
STEPS = 600
STEP_S = 0.005
SATURN = Path(sys.executable).with_name("saturn")


def get_model() -> torch.nn.Module:
    return torch.nn.Sequential(
        torch.nn.Linear(8, 32), torch.nn.Dropout(0.1), torch.nn.Tanh(), torch.nn.Linear(32, 2)
    )


def get_dataloader() -> torch.utils.data.DataLoader[Any]:
    generator = torch.Generator().manual_seed(3)
    inputs = torch.randn(300, 8, generator=generator)
    data = torch.utils.data.TensorDataset(inputs, (inputs.prod(1) > 0).long())
    return torch.utils.data.DataLoader(data, batch_size=25, shuffle=True)


def slow_loss(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    time.sleep(STEP_S)  # a step takes as long on any machine
    return torch.nn.functional.cross_entropy(outputs, labels)


def task(name: str, steps: int = STEPS, **changes: Any) -> Task:
    hparams = HParams(lr=0.01, batch_count=steps)
    return Task(get_model, get_dataloader, slow_loss, hparams, name=name, **changes)


start = partial(saturn.start, log=False, devices=1, techniques=["ddp"], checkpoint_every_s=0.5)


def losses(run_dir: Path, name: str) -> dict[int, float]:
    """Loss of each step; of a step that was trained twice, the last."""
    path = run_dir / "tasks" / name / "metrics.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    return {point["step"]: point["loss"] for point in map(json.loads, lines)}


def first(steps: int, curve: dict[int, float]) -> dict[int, float]:
    return {step: loss for step, loss in curve.items() if step <= steps}


def stage(run: saturn.Run, name: str) -> str:
    found: str = run.status().task(name)["stage"]
    return found


@pytest.fixture(scope="module")
def undisturbed() -> dict[int, float]:
    """Losses of a task that nothing happens to, in plain torch; they don't depend on its name."""
    plain = replace(task("a").definition(), loss_function=torch.nn.functional.cross_entropy)
    return reference.train(plain, STEPS)[0]


#: A module that only the submitting process finds; its data is in that process's directory.
ONLY_HERE = """
import torch

def get_dataloader():
    data = torch.utils.data.TensorDataset(*torch.load("data.pt"))
    return torch.utils.data.DataLoader(data, batch_size=25, shuffle=True)
"""
ATTACHED = """
import sys
sys.path.insert(0, {tests!r})
import saturn
from only_here import get_dataloader
from test_live_control import HParams, Task, get_model, slow_loss
run = saturn.attach(sys.argv[1])
hparams = HParams(lr=0.01, batch_count=60)
run.submit(Task(get_model, get_dataloader, slow_loss, hparams, name=sys.argv[2]), priority=3)
print(run.status().task(sys.argv[2])["stage"])
print(run)
"""


def submitting(run_dir: Path, task: str) -> subprocess.Popen[str]:
    """Another process, which submits a task to the run, from a directory of its own."""
    script = ATTACHED.format(tests=str(Path(__file__).parent))
    directory = run_dir.parent / f"from-{task}"
    directory.mkdir()
    (directory / "only_here.py").write_text(ONLY_HERE)
    torch.save(get_dataloader().dataset.tensors, directory / "data.pt")  # type: ignore[attr-defined]
    return subprocess.Popen(
        [sys.executable, "-c", script, str(run_dir), task],
        cwd=directory,
        env={**os.environ, "PYTHONPATH": str(PYTHON_DIR)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def said(submitting: subprocess.Popen[str]) -> str:
    """How that process names the run."""
    out, error = submitting.communicate(timeout=100)
    assert submitting.returncode == 0, error
    return out.splitlines()[1]


@pytest.mark.timeout(240)
def test_a_paused_task_gives_way_to_others_and_trains_the_same_in_the_end(
    tmp_path: Path, undisturbed: dict[int, float]
) -> None:
    with start([task("a")], keep_open=True, runs_dir=tmp_path, name="it") as run:
        assert run.run_dir == tmp_path / "it" and not run.is_over
        socket = run.run_dir / "control.sock"
        assert stat.S_IMODE(socket.stat().st_mode) == 0o600 and stat.S_ISSOCK(socket.stat().st_mode)
        assert stage(run, "a") in ("unmeasured", "inspecting", "measuring", "waiting", "running")
        until(lambda: len(losses(run.run_dir, "a")) > 20)
        assert stage(run, "a") == "running"
        run.pause("a")
        assert stage(run, "a") == "paused", "an answer means that it is in the journal"
        for cyclic, words in (
            (lambda: run.after("a", ["a"]), "`a` would have to come after itself"),
            (lambda: run.after("a", ["b"]), "there is no task `b`; there are `a`"),
        ):
            with pytest.raises(saturn.InvalidInput, match=words):
                cyclic()
        run.submit(task("b", 100))
        submitted = submitting(run.run_dir, "x")
        until(lambda: stage(run, "b") == "done")
        assert said(submitted) == f"Run({str(run.run_dir)!r})"
        # `x` has priority 3: if its trial were still to come, it would stop `a` a second time.
        until(lambda: stage(run, "x") == "done")
        with pytest.raises(saturn.InvalidInput, match="there is a task `x` already"):
            run.submit(task("x"))
        trained = len(losses(run.run_dir, "a"))
        assert trained < STEPS and stage(run, "a") == "paused"
        run.unpause("a")
    result = run.wait()
    assert [(each.name, each.status, each.steps) for each in result.tasks] == [
        ("a", "done", STEPS),
        ("b", "done", 100),
        ("x", "done", 60),
    ]
    assert result.tasks[0].attempts == 2
    assert losses(run.run_dir, "a") == undisturbed
    assert losses(run.run_dir, "b") == first(100, undisturbed)
    assert losses(run.run_dir, "x") == first(60, undisturbed)
    # Its socket is gone, and what can be known of it is known still.
    assert not (run.run_dir / "control.sock").exists()
    assert stage(run, "a") == "done"
    assert run.explain("a")["version"] == 1 and run.explain()["version"] == 1
    for over in (run, saturn.attach(run.run_dir)):
        assert over.is_over
        with pytest.raises(saturn.RunOver, match="no process drives the run"):
            over.cancel("a")
        with pytest.raises(saturn.RunOver, match="started with keep_open=True goes on until"):
            over.submit(task("too-late"))
    assert saturn.attach(run.run_dir).wait().tasks == result.tasks


# What is commanded here is obeyed in `test_pairs_run` too, a quick test.
@pytest.mark.slow
@pytest.mark.timeout(240)
def test_cancel_priority_and_order(tmp_path: Path) -> None:
    tasks = [task("first", 4000), task("second", 200), task("third", 200)]
    tasks.append(task("never", 100, after="first"))
    run = start(tasks, runs_dir=tmp_path)
    run.after("second", ["third"])
    with pytest.raises(saturn.InvalidInput, match="would have to come after itself"):
        run.after("third", "second")
    with pytest.raises(saturn.InvalidInput, match="there is no task `fourth`; there are `first`"):
        run.cancel("fourth")
    run.priority("third", 5)
    assert run.status().task("third")["priority"] == 5
    until(lambda: stage(run, "first") in ("running", "waiting"))
    run.cancel("first")
    assert (stage(run, "first"), stage(run, "never")) == ("cancelled", "cancelled")
    with pytest.raises(saturn.InvalidInput, match="task `first` has ended: it is cancelled"):
        run.pause("first")
    run.submit(task("late", 100))
    result = run.wait()
    with pytest.raises(saturn.RunOver, match="started with keep_open=True goes on until"):
        run.submit(task("too-late"))
    status = {each.name: each.status for each in result.tasks}
    assert status == {
        "first": "cancelled",
        "second": "done",
        "third": "done",
        "never": "cancelled",
        "late": "done",
    }
    ended = {each.name: each.end_s for each in result.tasks}
    began = {each.name: each.start_s for each in result.tasks}
    assert ended["third"] <= began["second"]


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_other_processes_submit_to_a_run_and_wait_for_it(
    tmp_path: Path, undisturbed: dict[int, float]
) -> None:
    run = start([task("a")], keep_open=True, runs_dir=tmp_path, name="it")
    both = [submitting(run.run_dir, name) for name in ("x", "y")]
    for process in both:
        assert said(process) == f"Run({str(run.run_dir)!r})"
    with pytest.raises(saturn.InvalidInput, match="there is a task `x` already"):
        run.submit(task("x"))
    attached = saturn.attach(run.run_dir)
    assert not attached.is_over
    with pytest.raises(TimeoutError):
        attached.wait(timeout=0.01)
    attached.close()
    result = attached.wait()
    assert {each.name for each in result.tasks} == {"a", "x", "y"}
    assert {each.status for each in result.tasks} == {"done"}
    assert run.wait().tasks == result.tasks
    assert losses(run.run_dir, "a") == undisturbed
    for name in ("x", "y"):
        assert losses(run.run_dir, name) == first(60, undisturbed)


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_a_run_that_is_stopped_from_elsewhere_says_how_to_go_on(
    tmp_path: Path, undisturbed: dict[int, float]
) -> None:
    run = start([task("a")], runs_dir=tmp_path, name="it")
    until(lambda: len(losses(run.run_dir, "a")) > 20)
    saturn.attach(run.run_dir).stop()
    with pytest.raises(saturn.RunInterrupted) as caught:
        run.wait()
    assert caught.value.resume_command == f"saturn resume {run.run_dir}"
    with pytest.raises(saturn.RunInterrupted):
        saturn.attach(run.run_dir).wait()
    saved = len(losses(run.run_dir, "a"))
    assert saved < STEPS
    subprocess.run([SATURN, "resume", run.run_dir], check=True, capture_output=True, timeout=100)
    assert losses(run.run_dir, "a") == undisturbed


SWEEP = """
import sys
sys.path.insert(0, {tests!r})
import saturn
from test_live_control import task
saturn.orchestrate([task("a")], name="run", devices=1, techniques=["ddp"])
print("not reached")
"""


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_script_that_is_told_to_end_stops_at_checkpoints(
    tmp_path: Path, undisturbed: dict[int, float], number: signal.Signals
) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", SWEEP.format(tests=str(Path(__file__).parent))],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(PYTHON_DIR)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(number, signal.SIG_DFL),
    )
    run_dir = tmp_path / "saturn_runs" / "run"
    until(lambda: len(losses(run_dir, "a")) > 20 or process.poll() is not None)
    process.send_signal(number)
    out, error = process.communicate(timeout=100)
    assert (process.returncode, out) == (130, ""), error
    assert f"saturn resume {run_dir}" in error
    saved = [path.name for path in (run_dir / "tasks/a/checkpoints").glob("step-*[0-9]")]
    assert f"step-{len(losses(run_dir, 'a')):08}" in saved, "not one step is trained twice"
    subprocess.run([SATURN, "resume", run_dir], check=True, capture_output=True, timeout=100)
    assert losses(run_dir, "a") == undisturbed


def saturn_says(*arguments: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [SATURN, *arguments],
        cwd=cwd,
        env={**os.environ, "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


# saturn-cli's quick tests (`tests/all/live.rs`) give the same commands to runs without torch.
@pytest.mark.slow
@pytest.mark.timeout(240)
def test_a_shell_sees_and_steers_a_run_of_a_script(tmp_path: Path) -> None:
    run = start([task("a", 2000), task("b", 100)], runs_dir=tmp_path / "saturn_runs", name="it")
    says = partial(saturn_says, cwd=tmp_path)
    until(lambda: len(losses(run.run_dir, "a")) > 20)
    shown = says("runs")
    assert "it" in shown.stdout and f"running by pid {os.getpid()}" in shown.stdout, shown
    (listed,) = json.loads(says("runs", "--json").stdout)["runs"]
    assert (listed["name"], listed["state"], listed["pid"]) == ("it", "running", os.getpid())
    status = says("status")
    assert status.returncode == 0 and "\x1b" not in status.stdout
    assert status.stderr == "the newest run: it\n"
    live = json.loads(says("status", "it", "--json").stdout)
    assert {each["name"] for each in live["tasks"]} == {"a", "b"}
    assert says("pause", "it", "a").returncode == 0
    until(lambda: stage(run, "b") == "done")
    assert "a is paused since" in says("explain", "it", "a").stdout
    trained = len(losses(run.run_dir, "a"))
    follow = subprocess.Popen(
        [SATURN, "logs", "it", "a", "-f"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert follow.stderr is not None
    assert follow.stderr.readline().startswith("==> "), "the attempt before the pause"
    again = says("unpause", "it", "a")
    assert (again.returncode, again.stdout) == (0, ""), again
    until(lambda: len(losses(run.run_dir, "a")) > trained)
    answer = says("cancel", "it", "a", "--json")
    assert json.loads(answer.stdout) == {
        "version": 1,
        "run": "saturn_runs/it",
        "ok": True,
        "code": None,
        "error": None,
    }
    _, error = follow.communicate(timeout=60)
    # Trained in two attempts, and followed from one to the other.
    assert follow.returncode == 0 and error.count("==> ") == 1, error
    run.wait()
    assert "complete" in says("runs").stdout
    refused = says("cancel", "it", "a")
    assert refused.returncode == 2 and "no process drives the run" in refused.stderr


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_a_run_directory_may_have_a_long_path(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 100) / ("e" * 100)
    run = start([], keep_open=True, runs_dir=deep, name="it")
    try:
        run.submit(task("a", 5))
        run.close()
        assert run.wait().tasks[0].status == "done"
    finally:
        shutil.rmtree(deep)


def test_a_directory_that_holds_no_run_is_told_so(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(saturn.InvalidInput, match="file is no directory; choose another"):
        run_directory.create(tmp_path / "file", "a", "train")
    (tmp_path / "nightly").mkdir()
    with pytest.raises(saturn.InvalidInput, match="no run has begun in it; remove it, or choose"):
        run_directory.create(tmp_path, "nightly", "train")
