"""Save and load the training state of a managed task, under any layout.

State is the model's and the optimizer's tensors by unsplit parameter names, in PyTorch's
distributed checkpoint format (DCP), so any technique loads any other's. Learning rates and other
group settings are the task's, and are rebuilt, not stored, but for those that changed since (see
`optimizer_groups`, `lr_schedule`); random streams are seeded anew (see `seeds`). Non-persistent
buffers stay as the model built them.

Which directories count, and how one is committed, is in `manifest`.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.checkpoint.state_dict_loader import load as load_distributed
from torch.distributed.checkpoint.state_dict_saver import save as save_distributed

from saturn.techniques.interface import ParallelModel
from saturn.worker import manifest
from saturn.worker.black_box_state import saved_model
from saturn.worker.data import Position
from saturn.worker.gang import Gang
from saturn.worker.lr_schedule import LrSchedule
from saturn.worker.optimizer_groups import OptimizerGroups

#: One flat key for each tensor, so layouts that hold different parameters can share a checkpoint.
_OPTIONS = StateDictOptions(flatten_optimizer_state_dict=True)
#: Prefix of the optimizer's tensors among its flat keys; the others are group settings.
_STATE = "state."


class Checkpoints:
    """The checkpoints of one task, as one rank of a gang writes and reads them."""

    def __init__(
        self,
        directory: Path,
        gang: Gang,
        about: Mapping[str, Any],
        groups: OptimizerGroups,
        lr_schedule: LrSchedule,
    ) -> None:
        self._directory = directory
        self._gang = gang
        self._groups = groups  # of the optimizer that is saved and loaded here
        self._lr_schedule = lr_schedule  # of the same
        self._about = dict(about)  # what else the manifest says: task, technique, gpus, knobs

    def save(
        self,
        parallel: ParallelModel,
        optimizer: torch.optim.Optimizer,
        *,
        step: int,
        position: Position,
        loss: float,
    ) -> float:
        """Save after `step` done steps; every rank calls it. Returns the seconds it took."""
        began = time.monotonic()
        parallel.before_save()
        gang = self._gang
        # The same name on every rank; fresh, because no attempt but this one writes here.
        name = f"{manifest.UNFINISHED}{manifest.step_dir_name(step)}-{self._about['attempt']}"
        scratch = self._directory / name
        if gang.rank == 0:
            self._directory.mkdir(parents=True, exist_ok=True)
            scratch.mkdir()
        gang.sum([0.0])  # nobody writes before it is there
        state = {
            "model": get_model_state_dict(parallel.module, options=_OPTIONS),
            "optimizer": _tensors_of(parallel.module, optimizer),
        }
        with warnings.catch_warnings():
            # One rank without a process group is what a gang of one is; DCP warns of it.
            warnings.filterwarnings("ignore", message="torch.distributed is disabled")
            save_distributed(
                state,
                storage_writer=FileSystemWriter(scratch, sync_files=True),
                no_dist=not dist.is_initialized(),
            )
        # Each rank reads back what it wrote itself; rank 0 also the index.
        own = sorted(
            path.name
            for path in scratch.iterdir()
            if path.name.startswith(f"__{gang.rank}_") or (gang.rank == 0 and path.name[:2] != "__")
        )
        parts = gang.collect(manifest.digests(scratch, own))
        if gang.rank == 0:
            files = {name: digest for part in parts for name, digest in part.items()}
            manifest.commit(
                scratch,
                self._directory,
                {
                    "version": manifest.VERSION,
                    "format": "dcp",
                    "step": step,
                    **asdict(position),
                    "loss": loss if math.isfinite(loss) else None,
                    "optimizer_groups": self._groups.changed(),
                    "lr_scheduler": self._lr_schedule.state(),
                    **self._about,
                    **manifest.versions(),
                    "files": files,
                },
            )
            manifest.prune(self._directory)
        return time.monotonic() - began

    def newest(self) -> tuple[Path, dict[str, Any]] | None:
        """The newest checkpoint that verifies, and its manifest; every rank calls it.

        Torn, damaged and foreign directories are passed over.
        """
        gang = self._gang
        # Rank 0's list is the list: the others may see a directory in another state.
        listed = manifest.found(self._directory) if gang.rank == 0 else []
        for directory in gang.collect([str(path) for _, path in listed])[0]:
            path = Path(directory)
            content = manifest.read(path)
            wrong = content is None or manifest.verify(
                path, content, part=gang.rank, parts=gang.world_size
            )
            if gang.sum([1.0 if wrong else 0.0])[0] == 0.0 and content is not None:
                return path, content
        return None

    def load(
        self,
        directory: Path,
        content: Mapping[str, Any],
        parallel: ParallelModel,
        optimizer: torch.optim.Optimizer,
    ) -> Position:
        """Load a verified checkpoint into the model and a fresh optimizer; every rank calls it."""
        module = parallel.module
        model_state = get_model_state_dict(module, options=_OPTIONS)
        if content["format"] == "torch":
            # Saved by a black-box technique: the model alone.
            set_model_state_dict(
                module,
                saved_model(directory, self._gang.device),
                options=StateDictOptions(full_state_dict=True),
            )
            self._lr_schedule.skip(content["step"])
        else:
            reader = FileSystemReader(directory)
            saved = set(reader.read_metadata().state_dict_metadata)
            with parallel.optimizer_memory():
                optimizer_state = get_optimizer_state_dict(module, optimizer, options=_OPTIONS)
            present = _only_saved(module, optimizer, optimizer_state, saved)
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", message="torch.distributed is disabled")
                load_distributed(
                    {"model": model_state, "optimizer": present},
                    storage_reader=reader,
                    no_dist=not dist.is_initialized(),
                )
            set_model_state_dict(module, model_state, options=_OPTIONS)
            if optimizer.state:
                groups = {k: v for k, v in optimizer_state.items() if not k.startswith(_STATE)}
                set_optimizer_state_dict(
                    module, optimizer, optim_state_dict={**groups, **present}, options=_OPTIONS
                )
            # DCP lets an optimizer without state take a step on zero gradients whenever it asks
            # for it or sets it. Such a step may decay the weights, so there is none once they are
            # loaded; where the optimizer has counted one, that is undone here.
            self._groups.restore(content["optimizer_groups"])
            self._lr_schedule.restore(content["lr_scheduler"])
        return Position.of(content)


def _tensors_of(module: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """The optimizer's state without its group settings."""
    if not optimizer.state:
        return {}  # asked for it, DCP would have the optimizer take a step to make some
    state = get_optimizer_state_dict(module, optimizer, options=_OPTIONS)
    return {key: value for key, value in state.items() if key.startswith(_STATE)}


def _only_saved(
    module: nn.Module,
    optimizer: torch.optim.Optimizer,
    state: Mapping[str, Any],
    saved: set[str],
) -> dict[str, Any]:
    """The optimizer's entries that the checkpoint holds.

    A parameter that had no gradient yet has no state either, in the checkpoint or after loading.
    One that had must be complete: a missing entry then raises in the load.
    """
    with_state = {prefix for key in saved for prefix in _prefixes(key)}
    stateless = []
    for name, parameter in module.named_parameters():
        if f"optimizer.{_STATE}{name}" not in with_state:
            optimizer.state.pop(parameter, None)
            stateless.append(f"{_STATE}{name}.")
    return {
        key: value
        for key, value in state.items()
        if key.startswith(_STATE) and not key.startswith(tuple(stateless))
    }


def _prefixes(key: str) -> Iterator[str]:
    """`a.b.c` → `a.b`, `a`: the names of whatever an entry belongs to."""
    while key:
        key = key.rpartition(".")[0]
        yield key
