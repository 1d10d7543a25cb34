"""Find out how a task's batches may be sliced, and write the answer down for all later attempts.

An inspection finds out for a whole group of tasks, if the model is small enough for it. Otherwise
the first gang that needs the answer finds out on its own device: rank 0 checks before anything is
parallelised, and tells the other ranks. The answer is a file of the run, and holds for every later
attempt. So a task's slices are weighed alike from its first step to its last.

How the check is made is the business of `saturn.training.slice_check`.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
from pathlib import Path

import torch

from saturn.data.slices import Data
from saturn.rank.exceptions import PartsSkippedError
from saturn.rank.gang import Gang
from saturn.tasks.definition import TaskDefinition
from saturn.techniques.interface import Knobs, Setting, Technique
from saturn.training.slice_check import check
from saturn.training.slicing import UNKNOWN, WHOLE, Slicing
from saturn.worker.build import Builds
from saturn.worker.report import Reporter
from saturn.worker.spec import InspectionSpec, Spec


def known(spec: Spec | InspectionSpec, definition: TaskDefinition) -> Slicing | None:
    """The answer that was written down; None if nobody has checked yet."""
    try:
        return Slicing.from_json(json.loads(_file(spec, definition).read_text()))
    except (OSError, ValueError, TypeError):
        return None


def keep(spec: Spec | InspectionSpec, definition: TaskDefinition, slicing: Slicing) -> None:
    """Write the answer down. If it can't be written, the next attempt checks again."""
    path = _file(spec, definition)
    with contextlib.suppress(OSError):
        path.parent.mkdir(mode=0o700, exist_ok=True)
        scratch = path.with_name(f".{path.name}-{os.getpid()}")
        scratch.write_text(json.dumps(slicing.as_json()))
        scratch.rename(path)


def keep_by_labels(spec: Spec, definition: TaskDefinition) -> None:
    """Write down that from now on slices are weighed by their labels."""
    if (slicing := known(spec, definition)) is not None:
        keep(spec, definition, slicing.by_labels())


def keep_skipping(spec: Spec, definition: TaskDefinition, error: PartsSkippedError) -> None:
    """Write down that from now on some devices skip parts that others use."""
    # Without a check, as where batches are not cut, nothing has been written down yet.
    slicing = known(spec, definition) or UNKNOWN
    keep(spec, definition, slicing.skipping(error))


def keep_whole(spec: Spec, definition: TaskDefinition, reason: str) -> None:
    """Write down that from now on no batch is sliced, and why."""
    keep(spec, definition, Slicing(WHOLE, reason=reason, changes_buffers=True))


def agreed(
    spec: Spec,
    definition: TaskDefinition,
    technique: Technique,
    gang: Gang,
    builds: Builds,
    reporter: Reporter,
) -> Slicing:
    """The answer for this task, after a check if nobody has made it; every rank calls this."""
    setting = Setting(gpus=spec.gpus, device_kind=spec.device_kind, hints=definition.hints)
    is_cut = technique.cuts_batches(setting, spec.knobs or {})
    if not is_cut and not definition.weighs_batches:
        return UNKNOWN  # no slice has to be weighed
    if gang.rank > 0:
        return Slicing.from_json(json.loads(gang.told_by_first("slices", "")))
    slicing = known(spec, definition)
    if slicing is None:
        with reporter.alive_while_computing():
            slicing = _found(definition, gang.device, builds)
        keep(spec, definition, slicing)
        if slicing.unchecked is not None:
            reporter.note(
                "the loss of a batch could not be compared with that of its slices "
                f"({slicing.unchecked}); they count by "
                f"{'`loss_weight`' if definition.loss_weight else 'their samples'}, and losses "
                "will differ between plans if that is wrong"
            )
    gang.told_by_first("slices", json.dumps(slicing.as_json()))
    return slicing


def uncut(
    technique: Technique, setting: Setting, rungs: list[list[Knobs]], slicing: Slicing
) -> list[list[Knobs]]:
    """The knob sets of `rungs` that slice only batches that may be sliced; empty rungs go."""
    if slicing.reason is None:
        return rungs
    kept = [
        [knobs for knobs in rung if not technique.cuts_batches(setting, knobs)] for rung in rungs
    ]
    return [rung for rung in kept if rung]


def _found(definition: TaskDefinition, device: torch.device, builds: Builds) -> Slicing:
    data = Data(definition.get_dataloader, seed=definition.seed)
    slicing = check(definition, lambda: builds.fresh().module, data, device=device)
    gc.collect()
    if device.type == "cuda":
        torch.accelerator.empty_cache()
    return slicing


def _file(spec: Spec | InspectionSpec, definition: TaskDefinition) -> Path:
    if definition.group is None:
        return spec.task_dir / "build" / "slices.json"
    return spec.run_dir / "slices" / f"{definition.group}.json"
