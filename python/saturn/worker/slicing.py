"""Who finds out how a task's batches may be cut, and where that is written for all the others.

An inspection does, for a group of tasks that perform alike, while the model is no larger than it
may be there; else the first gang that needs to know, on its own device: rank 0 looks, before
anything is parallelised, and tells the others. What was found is a file of the run, and holds for
every later attempt, so a task's slices count the same from its first step to its last.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
from pathlib import Path

import torch

from saturn.data.slices import Data
from saturn.rank.gang import Gang
from saturn.tasks.definition import TaskDefinition
from saturn.techniques.interface import Knobs, Setting, Technique
from saturn.training.slice_check import check
from saturn.training.slicing import UNKNOWN, WHOLE, Slicing
from saturn.worker.build import Builds
from saturn.worker.report import Reporter
from saturn.worker.spec import InspectionSpec, Spec


def known(spec: Spec | InspectionSpec, definition: TaskDefinition) -> Slicing | None:
    """What was found; None where nobody has looked."""
    try:
        return Slicing.from_json(json.loads(_file(spec, definition).read_text()))
    except (OSError, ValueError, TypeError):
        return None


def keep(spec: Spec | InspectionSpec, definition: TaskDefinition, slicing: Slicing) -> None:
    """Write down what was found. Where it can't be written, the next one looks again."""
    path = _file(spec, definition)
    with contextlib.suppress(OSError):
        path.parent.mkdir(mode=0o700, exist_ok=True)
        scratch = path.with_name(f".{path.name}-{os.getpid()}")
        scratch.write_text(json.dumps(slicing.as_json()))
        scratch.rename(path)


def keep_by_labels(spec: Spec, definition: TaskDefinition) -> None:
    """Write down that from now on slices count by their labels."""
    if (slicing := known(spec, definition)) is not None:
        keep(spec, definition, slicing.by_labels())


def keep_whole(spec: Spec, definition: TaskDefinition, reason: str) -> None:
    """Write down that from now on no batch is cut, and why."""
    keep(spec, definition, Slicing(WHOLE, reason=reason, changes_buffers=True))


def agreed(
    spec: Spec,
    definition: TaskDefinition,
    technique: Technique,
    gang: Gang,
    builds: Builds,
    reporter: Reporter,
) -> Slicing:
    """What is known of the task's slices, found out where nobody has; every rank calls it."""
    setting = Setting(gpus=spec.gpus, device_kind=spec.device_kind, hints=definition.hints)
    is_cut = technique.cuts_batches(setting, spec.knobs or {})
    if not is_cut and not definition.weighs_batches:
        return UNKNOWN  # nothing is weighed
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
    """The knob sets of `rungs` under which batches may be what they are; rungs without are gone."""
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
