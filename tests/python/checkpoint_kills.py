"""Kill a rank while its gang saves, again and again, and see what can be loaded afterwards.

    python checkpoint_kills.py DIRECTORY SEED COUNT (waiting|background) [in-place|unverified]

A program of its own, because it forks gangs, which a process with threads must not. Before its
n-th save a gang sets every weight and every piece of optimizer state to a number that only step n
has. The victim kills itself at a seeded operation on files; the rest of the gang is killed. Then
the newest checkpoint must load, hold the numbers of one step throughout, and be no older than the
last save that was reported. Prints a line of JSON for each kill, with what is `wrong`,
or null. The last argument makes saving wrong in a
known way.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from models import Mlp
from saturn.checkpoint import checkpoints, manifest, writer
from saturn.checkpoint.checkpoints import Checkpoints
from saturn.checkpoint.writer import CheckpointWriter
from saturn.data.slices import Position
from saturn.rank.gang import Gang
from saturn.techniques.data_parallel import DataParallelModel
from saturn.techniques.fsdp import Fsdp
from saturn.techniques.interface import ParallelModel
from saturn.training.lr_schedule import LrSchedule
from saturn.training.optimizer_groups import OptimizerGroups
from torch.distributed.checkpoint.state_dict_saver import save as save_distributed
from torch.distributed.tensor import DTensor

SAVES_A_GANG = 2


class InPlace(Checkpoints):
    """Writes every checkpoint into the directory that the one before it is in."""

    def _write(
        self,
        scratch: Path,
        state: Mapping[str, Any],
        frozen: Mapping[str, Any] | None,
        content: Mapping[str, Any],
        is_best: bool,
        planner: Any = None,
        staged: Any = None,
        group: Any = None,
    ) -> None:
        assert not frozen and not is_best  # every weight of the model trains, none is evaluated
        target = self._directory / manifest.step_dir_name(0)

        def commit(files: dict[str, Any]) -> None:
            (target / manifest.NAME).write_text(json.dumps({**content, "files": files}))

        target.mkdir(exist_ok=True)
        save_distributed(
            dict(state),
            storage_writer=CheckpointWriter(target, commit, staged),
            planner=planner,
            process_group=group,
            no_dist=self._gang.world_size == 1,
        )


def set_to(parallel: ParallelModel, optimizer: torch.optim.Optimizer, step: int) -> None:
    """Give every number of the state the value of `step`."""
    with torch.no_grad():
        for tensor in numbers(parallel, optimizer):
            tensor.fill_(float(step))


def numbers(parallel: ParallelModel, optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    """All tensors that a checkpoint holds, as this rank holds them."""
    state = [value for each in optimizer.state.values() for value in each.values()]
    tensors = [*parallel.module.parameters(), *(v for v in state if isinstance(v, torch.Tensor))]
    return [each.to_local() if isinstance(each, DTensor) else each for each in tensors]


def built(gang: Gang, technique: str) -> tuple[ParallelModel, torch.optim.Optimizer]:
    """A model and an optimizer that has state."""
    model = Mlp(depth=1)
    if technique == "fsdp":
        parallel: ParallelModel = Fsdp().parallelise(model, gang, {})
    else:
        if gang.world_size > 1:
            gang.open()
        parallel = DataParallelModel(model, model, gang)
    optimizer = torch.optim.AdamW(parallel.module.parameters())
    for parameter in parallel.module.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    optimizer.zero_grad()
    return parallel, optimizer


#: What a save does to files, and to directories: thousands of the one, a few dozen of the other.
OPERATIONS: dict[str, list[tuple[Any, str]]] = {
    "file": [(writer._Digested, "write"), (writer._Digested, "flush")],
    "directory": [
        *((os, name) for name in ("fsync", "fdatasync", "rename", "mkdir", "unlink", "rmdir")),
        (Path, "open"),
    ],
}
#: About as many of each as rank 0 of a gang does in its life. The others touch few directories.
NUM_OPERATIONS = {"file": 1950, "directory": 40}
NUM_OF_OTHERS = {"file": 1950, "directory": 6}


def kill_at(kind: str, number: int) -> None:
    """Kill this process when it is about to do its `number`th operation of a kind."""
    done = 0

    def counted(function: Callable[..., Any]) -> Callable[..., Any]:
        def counting(*arguments: Any, **named: Any) -> Any:
            nonlocal done
            done += 1
            if done >= number:
                os.kill(os.getpid(), signal.SIGKILL)
            return function(*arguments, **named)

        return counting

    for owner, name in OPERATIONS[kind]:
        setattr(owner, name, counted(getattr(owner, name)))


class Kills:
    """One series of kills in one checkpoint directory."""

    def __init__(self, directory: Path, path: str, variant: str) -> None:
        self._directory = directory
        self._checkpoints_dir = directory / "checkpoints"
        self._background = path == "background"
        self._class = Checkpoints if variant == "" else InPlace
        if variant == "unverified":
            manifest.verify = lambda *_, **__: None  # type: ignore[assignment]
        # So that so little state goes to the background, and always.
        checkpoints._LEAST_BACKGROUND_BYTES = 0
        checkpoints._LEAST_WAITING_SHARE = -1.0
        self._attempt = 0

    def kill(self, chance: random.Random, from_step: int) -> tuple[int, str]:
        """Start a gang and kill it: the last step whose save was reported, and what was done."""
        self._attempt += 1
        technique, ranks = chance.choice([("ddp", 1), ("ddp", 2), ("fsdp", 2)])
        victim = chance.randrange(ranks)
        kind = chance.choice(sorted(OPERATIONS))
        most = NUM_OPERATIONS if victim == 0 else NUM_OF_OTHERS
        share = ranks if kind == "file" else 1
        dies_at = kind, chance.randrange(1, most[kind] // share)
        reading, writing = os.pipe()
        pids = []
        for rank in range(ranks):
            if (pid := os.fork()) == 0:
                code = 1
                try:
                    if rank == victim:
                        self._train(rank, ranks, technique, from_step, writing, dies_at)
                    else:
                        self._train(rank, ranks, technique, from_step, writing)
                    code = 0
                except BaseException:
                    traceback.print_exc()
                os._exit(code)
            pids.append(pid)
        os.close(writing)
        _, status = os.waitpid(pids[victim], 0)
        assert os.waitstatus_to_exitcode(status) in (0, -signal.SIGKILL), "see standard error"
        for rank, pid in enumerate(pids):
            if rank != victim:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
        with os.fdopen(reading) as reported:
            steps = [int(line) for line in reported]
        return max(steps, default=from_step), f"{technique} x {ranks}, rank {victim}, {dies_at}"

    def what_is_there(self) -> tuple[int, str | None]:
        """The step of the newest checkpoint, loaded, and what is wrong with it."""
        gang = self._gang(0, 1)
        parallel, optimizer = built(gang, "ddp")
        checkpoints = self._open(gang, optimizer)
        newest = checkpoints.newest()
        if newest is None:
            return 0, None
        # A fresh optimizer: nothing is left in it that the checkpoint doesn't hold.
        optimizer = torch.optim.AdamW(parallel.module.parameters())
        try:
            checkpoints.load(*newest, parallel, optimizer)
        except BaseException as error:
            return 0, f"loading raised {error!r:.200}"
        found = {
            value for each in numbers(parallel, optimizer) for value in each.flatten().tolist()
        }
        step = newest[1]["step"]
        return step, None if found == {float(step)} else f"{newest[0].name} holds {sorted(found)}"

    def _train(
        self,
        rank: int,
        ranks: int,
        technique: str,
        from_step: int,
        reports: int,
        dies_at: tuple[str, int] | None = None,
    ) -> None:
        gang = self._gang(rank, ranks)
        parallel, optimizer = built(gang, technique)
        checkpoints = self._open(gang, optimizer)
        if dies_at is not None:
            kill_at(*dies_at)
        for step in range(from_step + 1, from_step + 1 + SAVES_A_GANG):
            # While the step before is being written, where it is written in the background.
            set_to(parallel, optimizer, step)
            self._tell(checkpoints, rank, reports)
            checkpoints.save(
                *(parallel, optimizer),
                step=step,
                position=Position(),
                loss=0.0,
                background=self._background,
            )
        set_to(parallel, optimizer, -1)
        checkpoints.wait()
        self._tell(checkpoints, rank, reports)

    def _tell(self, checkpoints: Checkpoints, rank: int, reports: int) -> None:
        for save in checkpoints.take_ended():
            assert save.failure is None, save.failure
            if rank == 0:
                os.write(reports, f"{save.step}\n".encode())

    def _gang(self, rank: int, ranks: int) -> Gang:
        rendezvous = self._directory / f"rendezvous-{self._attempt}"
        device = torch.device("cpu")
        return Gang(rank=rank, world_size=ranks, device=device, rendezvous=rendezvous)

    def _open(self, gang: Gang, optimizer: torch.optim.Optimizer) -> Checkpoints:
        about = {"attempt": self._attempt}
        groups, schedule = OptimizerGroups(optimizer), LrSchedule(None, optimizer)
        return self._class(self._checkpoints_dir, gang, about, groups, schedule, None)


def truncate_newest(checkpoints_dir: Path, chance: random.Random) -> None:
    """Cut a file of the newest checkpoint somewhere."""
    _, newest = manifest.found(checkpoints_dir)[0]
    path = chance.choice(sorted(newest.iterdir()))
    os.truncate(path, chance.randrange(path.stat().st_size))


def main() -> None:
    """The program."""
    directory, seed, count, path, *variants = sys.argv[1:]
    chance = random.Random(int(seed))
    kills = Kills(Path(directory), path, *(variants or [""]))
    before = 0
    for number in range(int(count)):
        reported, about = kills.kill(chance, before)
        step, wrong = kills.what_is_there()
        if wrong is None and step < reported:
            wrong = f"step {reported} was saved; the newest that loads is {step}"
        print(json.dumps({"kill": about, "step": step, "wrong": wrong}), flush=True)
        complete = manifest.found(Path(directory) / "checkpoints")
        if wrong is None and number % 5 == 4 and len(complete) == manifest.KEPT:
            truncate_newest(Path(directory) / "checkpoints", chance)
            older, wrong = kills.what_is_there()
            if wrong is None and older != complete[1][0]:
                wrong = f"with step {step} cut short, step {older} loads"
            print(json.dumps({"kill": "a file cut", "step": older, "wrong": wrong}), flush=True)
            step = older
        before = step


if __name__ == "__main__":
    main()
