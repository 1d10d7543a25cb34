"""Measure in a trial what a checkpoint costs a task: one is written and removed again.

To keep a trial short, only a part of a large state is written, and the time is scaled up. The fixed
cost of a save (planning, a few syncs) is then scaled too, so the estimate is rather too high than
too low.
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

#: The most bytes that each rank writes; more only if a single tensor is larger.
_MOST_BYTES = 256 << 20


def measure(
    parallel: ParallelModel, optimizer: torch.optim.Optimizer, gang: Gang, directory: Directory
) -> float:
    """Seconds that a checkpoint takes while training waits for it; every rank calls this.

    The checkpoint is written below `directory`, which must be in the same storage as real ones.
    """
    expect_no_process_group()
    checkpoints_dir = directory / "checkpoints"
    scratch = manifest.fresh(checkpoints_dir, step=0, attempt=0, number=0)
    if gang.rank == 0:
        manifest.begin(scratch)
    gang.sum([0.0])  # nobody writes before the directory is there

    def commit(files: dict[str, Digest]) -> None:
        manifest.commit(scratch, checkpoints_dir, {"step": 0, "files": files})

    try:
        began = time.monotonic()
        parallel.before_save()
        state, _ = state_of(parallel, optimizer)  # weights that don't train are written only once
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
    """(the first entries of `state` up to a size, their bytes, the bytes of all entries)."""
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
