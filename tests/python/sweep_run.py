"""A sweep of two small models in processes of its own, to be interrupted and killed."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import reference
from warm_parent import PYTHON_DIR

SATURN = Path(sys.executable).with_name("saturn")
STEPS = 1200
TASKS = ("lr0.01", "lr0.001")

DEFINITIONS = f"""
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
"""
SWEEP = f"""{DEFINITIONS}
if "--cursed" in sys.argv:
    tasks[0] = Task(get_model, get_dataloader, fail_late, HParams(lr=0.01, batch_count=100),
                    name="cursed")
if "--logged" in sys.argv:
    from saturn.loggers import Logger, TrackedRun

    class Logged(TrackedRun):
        def __init__(self, task):
            self.id = task.name
            self.path = task.run_dir / ("logged-" + task.name)

        def tell(self, *words):
            with self.path.open("a") as file:
                print(*words, file=file)

        def log(self, points):
            for point in points:
                self.tell("step", point.step)

        def moved(self, step, strategy, gpus):
            self.tell("moved", step)

        def ended(self, status):
            self.tell("ended", status)

    class Logs(Logger):
        name = "logs"

        def check(self):
            pass

        def start(self, task):
            return Logged(task)

    loggers = [Logs()]
else:
    loggers = []
outlive_s = float(sys.argv[sys.argv.index("--outlive") + 1]) if "--outlive" in sys.argv else 0.0
result = orchestrate(
    tasks, name="run", devices=1, checkpoint_every_s=0.3, outlive_s=outlive_s, loggers=loggers
)
print("trained")
"""


def has_begun(run: Path) -> bool:
    """Whether a run's directory has a journal that it can be resumed from."""
    journal = run / "journal.db"
    if not journal.exists():
        return False
    try:
        with contextlib.closing(sqlite3.connect(f"file:{journal}?mode=ro", uri=True)) as opened:
            return opened.execute("SELECT count(*) FROM record").fetchone() != (0,)
    except sqlite3.OperationalError:
        return False  # as yet without tables


class Run:
    """The sweep, driven by a process of its own."""

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
        self.process = self._driver(sys.executable, script, *arguments)

    def resume(self) -> None:
        """Have another process drive the run."""
        self.process = self._driver(SATURN, "resume", self.path)

    def _driver(self, *command: str | Path) -> subprocess.Popen[bytes]:
        with self.stdout.open("w") as stdout, self.stderr.open("w") as stderr:
            return subprocess.Popen(
                command,
                cwd=self.directory,
                env=self.environment,
                stdout=stdout,
                stderr=stderr,
                # Whoever starts the tests in the background leaves Ctrl-C ignored.
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
            )

    def wait_for_step(self, step: int, task: str = "lr0.01") -> None:
        """Wait until a task has trained that far and saved at least once."""
        deadline = time.monotonic() + 200
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

    def ranks(self) -> list[int]:
        """Ranks that are alive: children of a warm parent, whose command line they keep."""
        return [pid for pid in self.processes() if _is_warm(pid) and _is_warm(_parent(pid))]

    def warm_parents(self) -> list[int]:
        """Warm parents that are alive."""
        return [pid for pid in self.processes() if _is_warm(pid) and not _is_warm(_parent(pid))]

    def assert_nothing_lives(self, within_s: float = 20.0) -> None:
        # A process that was killed while it writes a file lives until the disk has it.
        deadline = time.monotonic() + within_s
        while self.processes() and time.monotonic() < deadline:
            time.sleep(0.05)
        lines = [Path(f"/proc/{pid}/cmdline") for pid in self.processes()]
        outliving = [line.read_bytes() for line in lines if line.exists()]
        assert not outliving, f"processes outlive the run: {outliving}"


def _parent(pid: int) -> int:
    """The parent of a process; 0 where the process is gone."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    return int(status.partition("PPid:")[2].split()[0])


def _is_warm(pid: int) -> bool:
    try:
        return "saturn.worker.warm" in Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return False


@functools.cache
def plain_losses() -> dict[str, dict[int, float]]:
    """Of each task, the loss of each step in plain torch."""
    names: dict[str, Any] = {}
    exec(DEFINITIONS, names)
    plain = {task.name: reference.train(task.definition(), STEPS)[0] for task in names["tasks"]}
    assert tuple(plain) == TASKS
    return plain


def assert_trained_as_plain_torch_does(run: Run) -> None:
    """Every loss of every step is the same bits."""
    for task, losses in plain_losses().items():
        assert run.losses(task) == losses
