"""Runs that are interrupted, killed and resumed, with real processes and real training.

Each is compared, loss by loss, with a run that nothing happened to: on one device the strategy
stays the same, so the losses must be the same bits.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import PYTHON_DIR

SATURN = Path(sys.executable).with_name("saturn")
STEPS = 3000

SWEEP = f"""
import sys
import torch
from saturn import HParams, Task, orchestrate

def get_model():
    return torch.nn.Sequential(
        torch.nn.Linear(8, 64), torch.nn.Dropout(0.1), torch.nn.Tanh(), torch.nn.Linear(64, 2)
    )

def get_dataloader():
    generator = torch.Generator().manual_seed(7)
    inputs = torch.randn(500, 8, generator=generator)
    data = torch.utils.data.TensorDataset(inputs, (inputs.sum(1) > 0).long())
    return torch.utils.data.DataLoader(data, batch_size=24, shuffle=True)

def fail_late(outputs, labels):
    fail_late.calls = getattr(fail_late, "calls", 0) + 1
    if fail_late.calls > 20:
        raise ValueError("the twenty-first batch is cursed")
    return torch.nn.functional.cross_entropy(outputs, labels)

loss = torch.nn.functional.cross_entropy
tasks = [
    Task(get_model, get_dataloader, loss, HParams(lr=lr, batch_count={STEPS}), name=f"lr{{lr}}")
    for lr in (0.01, 0.001)
]
if "--cursed" in sys.argv:
    tasks[0] = Task(get_model, get_dataloader, fail_late, HParams(lr=0.01, batch_count=100),
                    name="cursed")
result = orchestrate(tasks, name="run", devices=1, checkpoint_every_s=0.3)
print("trained")
"""


class Run:
    """A sweep in a process of its own."""

    def __init__(self, directory: Path, *arguments: str) -> None:
        self.directory = directory
        self.path = directory / "saturn_runs" / "run"
        script = directory / "sweep.py"
        script.write_text(SWEEP)
        self.environment = {
            **os.environ,
            "PYTHONPATH": str(PYTHON_DIR),
            "SATURN_HOME": str(directory / "home"),
            # Every process of this run, and no other, has it.
            "SATURN_TEST_MARK": str(directory),
        }
        self.stdout, self.stderr = directory / "stdout", directory / "stderr"
        with self.stdout.open("w") as stdout, self.stderr.open("w") as stderr:
            self.process = subprocess.Popen(
                [sys.executable, str(script), *arguments],
                cwd=directory,
                env=self.environment,
                stdout=stdout,
                stderr=stderr,
                # Whoever starts the tests in the background leaves Ctrl-C ignored.
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
            )

    def wait_for_step(self, step: int, task: str = "lr0.01") -> None:
        """Wait until a task has trained that far and saved at least once."""
        deadline = time.monotonic() + 60
        while len(self.losses(task)) < step or not self.checkpoints(task):
            assert self.process.poll() is None, self.stderr.read_text()
            assert time.monotonic() < deadline, self.stderr.read_text()
            time.sleep(0.02)

    def losses(self, task: str) -> dict[int, float]:
        """Loss of each step; of a step that was trained twice, the last."""
        path = self.path / "tasks" / task / "metrics.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        found = {}
        for line in lines:
            try:
                point = json.loads(line)
            except json.JSONDecodeError:
                continue  # torn by a kill
            found[point["step"]] = point["loss"]
        return found

    def checkpoints(self, task: str) -> list[Path]:
        return sorted((self.path / "tasks" / task / "checkpoints").glob("step-*[0-9]"))

    def wait(self) -> int:
        return self.process.wait(timeout=120)

    def saturn(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [SATURN, *arguments, str(self.path)],
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def processes(self) -> list[int]:
        """Processes of this run that are alive."""
        mark = f"SATURN_TEST_MARK={self.directory}".encode()
        alive = []
        for entry in Path("/proc").iterdir():
            try:
                environment = (entry / "environ").read_bytes()
                state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
            except (OSError, IndexError):
                continue
            if mark in environment and state != "Z":
                alive.append(int(entry.name))
        return alive

    def assert_nothing_lives(self) -> None:
        deadline = time.monotonic() + 5
        while self.processes() and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not self.processes(), "processes outlive the run"


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    run = Run(tmp_path_factory.mktemp("undisturbed"))
    assert run.wait() == 0, run.stderr.read_text()
    assert sorted(run.losses("lr0.01")) == list(range(1, STEPS + 1))
    yield run


def assert_same_training(run: Run, undisturbed: Run) -> None:
    for task in ("lr0.01", "lr0.001"):
        assert run.losses(task) == undisturbed.losses(task)


def test_ctrl_c_stops_at_checkpoints_and_resume_finishes(tmp_path: Path, undisturbed: Run) -> None:
    run = Run(tmp_path)
    run.wait_for_step(300)
    run.process.send_signal(signal.SIGINT)
    assert run.wait() == 130
    shown = run.stderr.read_text()
    assert f"saturn resume {run.path}" in shown
    run.assert_nothing_lives()
    # Stopped at a checkpoint: not one step is trained twice.
    saved = int(run.checkpoints("lr0.01")[-1].name.removeprefix("step-"))
    assert saved == max(run.losses("lr0.01"))

    resumed = run.saturn("resume")
    assert resumed.returncode == 0, resumed.stderr
    assert_same_training(run, undisturbed)
    run.assert_nothing_lives()
    # A run that is complete is only reported on.
    again = run.saturn("resume", "--json")
    assert again.returncode == 0
    assert json.loads(again.stdout)["totals"]["done"] == 2


def test_a_second_ctrl_c_ends_at_once_and_keeps_checkpoints(
    tmp_path: Path, undisturbed: Run
) -> None:
    run = Run(tmp_path)
    run.wait_for_step(300)
    saved = run.checkpoints("lr0.01")
    run.process.send_signal(signal.SIGINT)
    time.sleep(0.02)
    run.process.send_signal(signal.SIGINT)
    # A shell calls both 130. The second: the run had stopped already, and Python itself was struck.
    assert run.wait() in (130, -signal.SIGINT)
    run.assert_nothing_lives()
    assert run.checkpoints("lr0.01")[-1] >= saved[-1]
    assert run.saturn("resume").returncode == 0
    assert_same_training(run, undisturbed)


def test_a_killed_driver_takes_its_workers_along_and_resume_finishes(
    tmp_path: Path, undisturbed: Run
) -> None:
    run = Run(tmp_path)
    run.wait_for_step(400)
    run.process.kill()
    assert run.wait() == -signal.SIGKILL
    run.assert_nothing_lives()
    resumed = run.saturn("resume")
    assert resumed.returncode == 0, resumed.stderr
    assert_same_training(run, undisturbed)


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGKILL])
def test_a_killed_rank_goes_back_to_its_checkpoint(
    tmp_path: Path, undisturbed: Run, number: signal.Signals
) -> None:
    run = Run(tmp_path)
    run.wait_for_step(400)
    ranks = [pid for pid in run.processes() if is_rank(pid)]
    assert len(ranks) == 1
    os.kill(ranks[0], number)
    assert run.wait() == 0, run.stderr.read_text()
    assert f"signal {number.value}" in run.stderr.read_text()
    assert_same_training(run, undisturbed)


def test_a_run_killed_during_its_trials_goes_on(tmp_path: Path, undisturbed: Run) -> None:
    run = Run(tmp_path)
    deadline = time.monotonic() + 60
    while not (run.path / "tasks" / "lr0.01" / "attempts").exists():
        assert time.monotonic() < deadline, run.stderr.read_text()
        time.sleep(0.005)
    run.process.kill()
    run.wait()
    resumed = run.saturn("resume")
    assert resumed.returncode == 0, resumed.stderr
    assert_same_training(run, undisturbed)


def is_rank(pid: int) -> bool:
    """A rank is a child of the warm parent, whose command line it keeps."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
        parent = status.partition("PPid:")[2].split()[0]
        command = Path(f"/proc/{parent}/cmdline").read_text()
    except (OSError, IndexError):
        return False
    return "saturn.worker.warm" in command


def test_a_task_that_fails_stops_no_other_and_the_exit_code_tells(
    tmp_path: Path, undisturbed: Run
) -> None:
    run = Run(tmp_path, "--cursed")
    assert run.wait() == 1
    shown = run.stderr.read_text()
    assert "in fail_late" in shown, "the worker's own traceback"
    assert "the twenty-first batch is cursed" in shown
    assert run.losses("lr0.001") == undisturbed.losses("lr0.001")
    assert run.stdout.read_text() == ""
    assert run.saturn("resume").returncode == 1
