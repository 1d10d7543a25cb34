"""What a checkpoint costs a task, measured in a trial: one is written, and removed again.

Of a large state only a part is written, and the time is scaled: a trial should stay short. What a
save costs whatever its size (planning, a few syncs) is scaled along then, so the figure errs to
the safe side.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import torch

from saturn.checkpoint import manifest
from saturn.checkpoint.checkpoints import (
    expect_no_process_group,
    local_bytes,
    state_of,
    write_state,
)
from saturn.checkpoint.place import Directory
from saturn.checkpoint.writer import CheckpointWriter, Digest
from saturn.rank.gang import Gang
from saturn.techniques.interface import ParallelModel

#: Most that a rank has written; more where a single tensor is larger.
_MOST_BYTES = 256 << 20


def measure(
    parallel: ParallelModel, optimizer: torch.optim.Optimizer, gang: Gang, directory: Directory
) -> float:
    """Seconds that a checkpoint takes while training waits for it; every rank calls it.

    It is written below `directory`, which must be in the same storage as real ones.
    """
    expect_no_process_group()
    checkpoints_dir = directory / "checkpoints"
    scratch = manifest.fresh(checkpoints_dir, step=0, attempt=0, number=0)
    if gang.rank == 0:
        manifest.begin(scratch)
    gang.sum([0.0])  # nobody writes before it is there

    def commit(files: dict[str, Digest]) -> None:
        manifest.commit(scratch, checkpoints_dir, {"step": 0, "files": files})

    try:
        began = time.monotonic()
        parallel.before_save()
        state, _ = state_of(parallel, optimizer)  # what doesn't train is written but once
        part, written, held = _part_of(state)
        all_written, all_held = gang.sum([written, held])
        gathered = time.monotonic()
        write_state(part, CheckpointWriter(scratch, commit), gang)
        ended = time.monotonic()
    finally:
        if gang.rank == 0:
            manifest.remove_all(checkpoints_dir)
    return gathered - began + (ended - gathered) * (all_held / all_written if all_written else 1.0)


def _part_of(
    state: Mapping[str, Mapping[str, Any]],
) -> tuple[dict[str, dict[str, Any]], int, int]:
    """The first entries of `state` up to a size; bytes of them, and of all."""
    part: dict[str, dict[str, Any]] = {}
    written = held = 0
    for kind, entries in state.items():
        part[kind] = {}
        for key, value in entries.items():
            if written < _MOST_BYTES:
                part[kind][key] = value
                written += local_bytes(value)
            held += local_bytes(value)
    return part, written, held
