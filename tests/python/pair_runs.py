"""What real runs of pairs train: tasks to each of which something happens.

It happens by a task's own functions, by the run's stopper (`searched`), or by commands to the run
(`steer`). `plain_losses` is what plain torch finds in their place.
"""

from __future__ import annotations

import math
import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import plain_loops
import saturn
import torch
from saturn import Evaluation, HParams, Task
from saturn.stoppers import STOP, Progress, Ruling, Stopper
from torch.utils.data import DataLoader, Dataset

STEPS, EVERY, BATCH, WIDTH, CLASSES = 40, 10, 4, 6, 3
#: From this step on, a task that becomes NaN is.
NAN_STEP = 33
#: Of a task to which something happens on its way: long enough for that on a busy machine.
LONG = 10 * STEPS
#: Of a task that somebody ends: far more than it comes to.
ENDLESS = 100_000
STEP_S = 0.005
#: Steps after which something happens to a task that trains.
AT = 15


class Rows(Dataset[Any]):
    """A row for each sample of a training."""

    def __init__(self, *, has_nan: bool = False) -> None:
        generator = torch.Generator().manual_seed(5)
        self.inputs = torch.randn(STEPS * BATCH, WIDTH, generator=generator)
        self.labels = self.inputs[:, :CLASSES].argmax(1)
        if has_nan:
            self.inputs[(NAN_STEP - 1) * BATCH] = math.nan

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        return self.inputs[index], self.labels[index]

    def __len__(self) -> int:
        return STEPS * BATCH


def model() -> torch.nn.Module:
    torch.manual_seed(2)
    return torch.nn.Linear(WIDTH, CLASSES)


def loader(*, has_nan: bool = False) -> DataLoader[Any]:
    return DataLoader(Rows(has_nan=has_nan), BATCH)


def held_out() -> DataLoader[Any]:
    return DataLoader(Rows(), STEPS * BATCH // 2)


def slow_loss(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    time.sleep(STEP_S)  # a step takes as long on any machine
    return torch.nn.functional.cross_entropy(outputs, labels)


def raising(path: Path, outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """The same; it raises once there is a file at `path`."""
    if path.exists():
        raise ValueError("this batch is bad")
    return slow_loss(outputs, labels)


def killed(path: Path, outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """The same; the process that finds a file at `path` takes it and is killed."""
    if path.exists():
        path.unlink()
        os.kill(os.getpid(), signal.SIGKILL)
    return slow_loss(outputs, labels)


def metrics(outputs: torch.Tensor, labels: torch.Tensor) -> dict[str, Any]:
    """One of them is never a number."""
    return {"accuracy": (outputs.argmax(-1) == labels).float().mean(), "odd": math.nan}


def task(name: str, *, steps: int = STEPS, lr: float = 0.1, **options: Any) -> Task:
    evaluation = {
        "evaluate": Evaluation(held_out, metrics),
        "evaluate_every": EVERY,
        "best": ("eval_loss", "min"),
    }
    hparams = HParams(lr=lr, steps=steps, optimizer_cls=torch.optim.SGD)
    get_dataloader = partial(loader, has_nan=options.pop("has_nan", False))
    loss = options.pop("loss", slow_loss)
    options = {**evaluation, "gpu_range": 1, **options}
    return Task(model, get_dataloader, loss, hparams, name=name, **options)


def tasks(directory: Path) -> list[Task]:
    """Files in the directory have the task of their name raise, or be killed."""
    return [
        task("well"),
        task("nan", has_nan=True),
        task("exploded", lr=1e6),
        task("raised", steps=ENDLESS, loss=partial(raising, directory / "raised")),
        task("searched", steps=ENDLESS, priority=2),
        task("paused", steps=LONG),
        task("cancelled", steps=ENDLESS, priority=3),
        task("never", after="cancelled"),
        task("killed", steps=LONG, loss=partial(killed, directory / "killed")),
        task("follows", after="nan", priority=5, best=None),
    ]


@dataclass(frozen=True, kw_only=True)
class Searched(Stopper):
    """Ends the task of this name, once it has trained for a while."""

    def looked(self, task: Progress, tasks: Any) -> Iterator[Ruling]:
        if task.name == "searched" and task.step >= AT:
            yield Ruling("searched", STOP, "it has been searched")


def plain_losses(steps: int, *, lr: float = 0.1, has_nan: bool = False) -> dict[int, float]:
    """The loss of each step, from 1, of a task that nothing happens to."""
    trained = model()
    batches = plain_loops.epochs_of(loader(has_nan=has_nan))
    sgd = partial(torch.optim.SGD, lr=lr)
    return plain_loops.train(trained, batches, steps, optimizer=sgd)


def wide_tasks(directory: Path) -> list[Task]:
    """On one device or two, some of them without a best evaluation, or without any."""
    several = {"gpu_range": [1, 2]}
    alone = {"evaluate": None, "evaluate_every": None, "best": None}
    return [
        task("well", steps=8 * STEPS, **several),
        task("nan", has_nan=True, best=None, **several),
        task("exploded", lr=1e38, **alone),
        task("raised", steps=ENDLESS, loss=partial(raising, directory / "raised"), **several),
        task("paused", steps=8 * STEPS, best=("accuracy", "max")),
        task("cancelled", steps=ENDLESS, best=None, priority=3),
        task("dropped", steps=ENDLESS, priority=-9, **alone),
        task("killed", steps=8 * STEPS, loss=partial(killed, directory / "killed"), **several),
        task("late", after="nan", deadline=5.0, **alone),
        Task.script(
            Path(__file__).with_name("counting_script.py"),
            ["--steps", "60", "--step_s", "0.02", "--checkpoints", directory / "counted"],
            name="script",
            steps=60,
        ),
    ]


def steer(run: saturn.Run, directory: Path, *names: str) -> None:
    """Have happen to each of these tasks what its name says, once it has trained for a while."""
    all_acts: dict[str, Callable[[str], object]] = {
        "cancelled": run.cancel,
        "paused": run.pause,
        "raised": lambda name: (directory / name).touch(),
        "killed": lambda name: (directory / name).touch(),
    }
    acts = {name: all_acts[name] for name in names}
    deadline = time.monotonic() + 200
    while acts:
        assert time.monotonic() < deadline, f"never trained: {sorted(acts)}"
        for task in run.status()["tasks"]:
            trains = task["stage"] == "running" and task["step"] >= AT
            if trains and (act := acts.pop(task["name"], None)) is not None:
                act(task["name"])
        time.sleep(0.02)
