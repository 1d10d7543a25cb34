"""What `durability_walk` does to a directory that holds something already, and what is found there.

Each scenario is a class: it prepares the directory, does one thing to it, does it again, and says
what whoever comes next finds. It checks nothing itself.
"""

from __future__ import annotations

import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import cloudpickle
import torch
import torch._dynamo  # optimizers import it, which takes a second: not in every process
from checkpoint_kills import numbers, set_to
from saturn.checkpoint import black_box_state, checkpoints, manifest, writer
from saturn.checkpoint.checkpoints import Checkpoints
from saturn.data.slices import Position
from saturn.errors import InvalidInput
from saturn.library import Entry
from saturn.plain import durable
from saturn.rank.gang import Gang
from saturn.runs import run_directory
from saturn.techniques.data_parallel import DataParallelModel
from saturn.training.lr_schedule import LrSchedule
from saturn.training.optimizer_groups import OptimizerGroups


class AtOnce:
    """A thread whose work is done when it is started: each time, operations come in one order."""

    def __init__(self, target: Callable[[], None], name: str) -> None:
        self._target = target

    def start(self) -> None:
        self._target()

    def is_alive(self) -> bool:
        return False

    def join(self) -> None: ...


class Scenario(ABC):
    """Something is there, and something is done: both are versions of one thing."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory  # exists

    @abstractmethod
    def prepare(self) -> None:
        """Leave version 1 there, complete and durable."""

    @abstractmethod
    def do(self) -> None:
        """Make version 2, or raise."""

    @abstractmethod
    def do_again(self) -> None:
        """What comes next, in another process and undisturbed: make version 3."""

    @abstractmethod
    def found(self) -> Any:
        """The version that is there; what else is found is wrong."""

    def open(self) -> None:  # noqa: B027
        """Get ready to `do`, where that takes time or makes files."""


def built(gang: Gang) -> tuple[DataParallelModel, torch.optim.Optimizer]:
    """A model of one parameter, so that a save is few operations, and an optimizer with state."""
    model = torch.nn.Linear(50, 50, bias=False)
    optimizer = torch.optim.AdamW(model.parameters())
    model.weight.grad = torch.zeros_like(model.weight)
    optimizer.step()
    optimizer.zero_grad()
    return DataParallelModel(model, model, gang), optimizer


class Managed(Scenario):
    """The checkpoint of a managed task: one a step, two of them there before."""

    background = False

    def prepare(self) -> None:
        self.open()
        for step in (0, 1):
            self._save(step)

    def do(self) -> None:
        self._save(2)

    def do_again(self) -> None:
        self.open()
        self._save(3)
        names = sorted(path.name for path in (self.directory / "checkpoints").iterdir())
        kept = [step for step, _ in manifest.found(self.directory / "checkpoints")]
        assert len(kept) == manifest.KEPT == len(names), f"left behind: {names}"

    def found(self) -> Any:
        gang = self._gang()
        parallel, optimizer = built(gang)
        checkpoints = self._checkpoints(gang, optimizer)
        newest = checkpoints.newest()
        if newest is None:
            return None
        optimizer = torch.optim.AdamW(parallel.module.parameters())
        checkpoints.load(*newest, parallel, optimizer)
        held = {value for each in numbers(parallel, optimizer) for value in each.flatten().tolist()}
        return newest[1]["step"] if held == {float(newest[1]["step"])} else sorted(held)

    def open(self) -> None:
        writer._SYNC_EVERY_BYTES = 12_000  # syncs early, and more than once
        writer.threading = SimpleNamespace(Thread=AtOnce)  # type: ignore[assignment]
        gang = self._gang()
        self._parallel, self._optimizer = built(gang)
        self._saving = self._checkpoints(gang, self._optimizer)

    def _save(self, step: int) -> None:
        set_to(self._parallel, self._optimizer, step)
        state = (self._parallel, self._optimizer)
        self._saving.save(
            *state, step=step, position=Position(), loss=0.0, background=self.background
        )
        set_to(self._parallel, self._optimizer, -1)
        self._saving.wait()
        if (failure := self._saving.take_ended()[-1].failure) is not None:
            raise OSError(failure.error)

    def _gang(self) -> Gang:
        device = torch.device("cpu")
        return Gang(rank=0, world_size=1, device=device, rendezvous=self.directory / "rendezvous")

    def _checkpoints(self, gang: Gang, optimizer: torch.optim.Optimizer) -> Checkpoints:
        groups, schedule = OptimizerGroups(optimizer), LrSchedule(None, optimizer)
        return Checkpoints(
            self.directory / "checkpoints",
            gang,
            {"attempt": 1},
            groups,
            schedule,
            None,
        )


class Background(Managed):
    """The same, written by a thread."""

    background = True

    def open(self) -> None:
        super().open()
        checkpoints._LEAST_BACKGROUND_BYTES = 0  # there is little
        self._saving._is_worth_it = True

    def do(self) -> None:
        super().do()
        assert self._saving._room, "it was not in the background: nothing was staged"


class FirstSave(Managed):
    """The first of a task: there is not even a directory."""

    def prepare(self) -> None:
        super().prepare()
        shutil.rmtree(self.directory / "checkpoints")

    def do_again(self) -> None:
        self.open()
        self._save(3)

    def found(self) -> Any:
        return super().found() or 1  # nothing is as good as what was there before


class BlackBox(Scenario):
    """What a black box saves, at one and the same step each time."""

    def prepare(self) -> None:
        self._save(1)

    def do(self) -> None:
        self._save(2)

    def do_again(self) -> None:
        self._save(3)
        assert len(list((self.directory / "checkpoints").iterdir())) == 1, "left behind"

    def found(self) -> Any:
        newest = manifest.newest_valid(self.directory / "checkpoints")
        if newest is None:
            return None
        saved = black_box_state.saved_model(newest[0])
        (version,) = set(saved["weight"].tolist())
        return int(version)

    def _save(self, version: int) -> None:
        checkpoints_dir = self.directory / "checkpoints"
        black_box_state.write_pending({"weight": torch.full((3000,), version)}, checkpoints_dir)
        about = {"step": 7, "batches": 7, "attempt": 1}
        black_box_state.commit_pending(checkpoints_dir, about)


@dataclass
class NamedTask:
    """As much of a task as a run directory wants."""

    name: str


class Tasks(Scenario):
    """The pickles of a run; its version is 2 once there is a journal, which comes after them."""

    def prepare(self) -> None:
        pass

    def do(self) -> None:
        self._write("run")

    def do_again(self) -> None:
        try:
            self._write("run")
        except InvalidInput:
            self._write("another")  # a process that died leaves its name taken
        (self.directory / "again").touch()

    def found(self) -> Any:
        # As whoever reads them: no journal, no run.
        runs = (self.directory / "runs").glob("*")
        begun = [path for path in runs if run_directory.has_begun(path)]
        for run in begun:
            found = {str(path.relative_to(run)): path.read_bytes() for path in run.rglob("*.pkl")}
            if found != FILES:
                return sorted(found)
        return 1 if not begun else 3 if (self.directory / "again").exists() else 2

    def _write(self, name: str) -> None:
        run_dir = run_directory.create(self.directory / "runs", name, "search")
        tasks: Any = [NamedTask("a"), NamedTask("b")]
        directories = run_directory.write_tasks(run_dir, tasks, [PICKLE, PICKLE * 2])
        assert directories == ["tasks/a", "tasks/b"]
        pickled: Any = PICKLE
        entry = Entry(name="mine", level="managed", import_path=None, technique=pickled)
        run_directory.write_techniques(run_dir, [entry])
        # The runtime's part, which makes its own files durable.
        (run_dir / "journal.db").touch()
        durable.sync(run_dir)


PICKLE = b"functions" * 1000
FILES = {
    "tasks/a/task.pkl": PICKLE,
    "tasks/b/task.pkl": PICKLE * 2,
    "techniques/mine.pkl": cloudpickle.dumps(PICKLE),
}

SCENARIOS = {
    "managed": Managed,
    "background": Background,
    "first": FirstSave,
    "black-box": BlackBox,
    "tasks": Tasks,
}
