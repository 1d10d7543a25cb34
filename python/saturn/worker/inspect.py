"""Inspect a task's model once, without a device: how large it is, and which techniques can't run.

Every managed technique is asked about every number of devices, so that no gang is launched only to
say no. The model is built on torch's `meta` device, where parameters have shapes and no memory. It
is built for real if that fails, or if a technique can't inspect it on `meta`. The loader's first
batch is fetched too: a task whose functions raise fails now, and not in trial after trial.

If a technique itself raises, the inspection says nothing about it: its trials will show the error.
"""

from __future__ import annotations

import itertools
import os
import traceback
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from typing import Any

import torch
from torch import nn

from saturn.data.slices import Data, Position
from saturn.rank.exceptions import TaskError
from saturn.rank.memory import available_host_bytes
from saturn.tasks.definition import TaskDefinition
from saturn.tasks.evaluation import Evaluation
from saturn.techniques import memory_bounds
from saturn.techniques.interface import Setting, Technique
from saturn.techniques.model.layers import repeated_layers
from saturn.techniques.nodes import spread
from saturn.training.evaluation import look_at
from saturn.training.slice_check import check
from saturn.training.slicing import UNKNOWN, Slicing
from saturn.training.steady import TooSlowError
from saturn.training.stepper import build_data, build_model
from saturn.worker import load_technique
from saturn.worker import slicing as slicings
from saturn.worker.fit import Fit, optimizer_state_ratio, rungs_of
from saturn.worker.report import Reporter
from saturn.worker.spec import InspectionSpec, TechniqueRef

#: The device of the small probe tensors, which show the size of optimizer state.
_CPU = torch.device("cpu")
#: Types of weights too coarse for small updates: an update below 1/value of a weight is lost.
_COARSE = {torch.bfloat16: 256, torch.float16: 2048}
#: Comparing a batch with its slices holds the model as it is built and once more in float64. If
#: that is more than these bytes, or this share of the host's free memory, a gang compares instead.
_COPIES, _MOST_BYTES, _HOST_SHARE = 3, 6 << 30, 0.25
#: The comparison may take this long here, where it holds no device.
_LIMIT_S = 20.0
_NICENESS = 10


def inspect(spec: InspectionSpec, definition: TaskDefinition, reporter: Reporter) -> None:
    """Inspect the model, and report the findings. The task's own errors are raised."""
    # Processes that hold a device go first: on CPU slots, timed steps share their cores with this.
    os.nice(_NICENESS)
    with reporter.alive_while_computing():
        model = _Model(definition)
        module = model.module
        ratio = optimizer_state_ratio(definition, module, _CPU)
        found = _sizes(module, ratio)
        _point_out_low_precision(definition, module, reporter)
        found["batches_per_epoch"] = _look_at_data(definition, reporter)
        _look_at_evaluation(definition)
        slicing = _look_at_slices(spec, definition, found["parameter_bytes"])
        found["verdicts"] = list(_verdicts(spec, definition, model, ratio, slicing))
    reporter.send({"type": "inspected", "inspection": found})


class _Model:
    """The task's model, in the form that a technique can inspect."""

    def __init__(self, definition: TaskDefinition) -> None:
        self._definition = definition
        shapes = _on_meta(definition)
        #: The model on `meta` if it can be built there, else the real one.
        self.module = build_model(definition) if shapes is None else shapes
        self._real = None if _is_on_meta(self.module) else self.module

    @property
    def real(self) -> nn.Module:
        """The model with its weights; it is built at the first request."""
        if self._real is None:
            self._real = build_model(self._definition)
        return self._real


def _on_meta(definition: TaskDefinition) -> nn.Module | None:
    try:
        with torch.device("meta"):
            module = build_model(definition)
    except Exception:  # some constructors look at values; built for real, the model may work
        return None
    return module if _is_on_meta(module) else None


def _is_on_meta(module: nn.Module) -> bool:
    return all(parameter.is_meta for parameter in module.parameters())


def _sizes(module: nn.Module, ratio: float) -> dict[str, Any]:
    sizes = memory_bounds.sizes([module])
    buffers = sum(buffer.nbytes for buffer in module.buffers())
    return {
        "parameters": sum(parameter.numel() for parameter in module.parameters()),
        "parameter_bytes": sizes.parameters,
        "trainable_bytes": sizes.trainable,
        "layers": len(repeated_layers(module)) or None,
        "checkpoint_bytes": sizes.trainable + buffers + int(sizes.trainable * ratio),
        "optimizer_state_ratio": ratio,
    }


def _point_out_low_precision(
    definition: TaskDefinition, module: nn.Module, reporter: Reporter
) -> None:
    """Warn of weights that are trained in a type too coarse for small updates."""
    trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
    coarse = [parameter for parameter in trained if parameter.dtype in _COARSE]
    if not coarse:
        return
    share = sum(p.numel() for p in coarse) / sum(p.numel() for p in trained)
    kind = str(coarse[0].dtype).removeprefix("torch.")
    steps = _COARSE[coarse[0].dtype]
    reporter.note(
        f"`{definition.name}`: {share:.0%} of the trained weights that get_model makes are {kind} "
        "(as from_pretrained makes them of a checkpoint that is). An update of less than "
        f"1/{steps} of a weight is lost, unless the optimizer keeps weights of its own; build the "
        'model in float32 (dtype=torch.float32), and say HParams(precision="bf16") to compute in '
        "bfloat16"
    )


def _look_at_data(definition: TaskDefinition, reporter: Reporter) -> int | None:
    """Fetch one batch; returns the number of batches an epoch, if the loader has a length."""
    data = build_data(definition, _CPU, reporter.note)
    with closing(data.slices(Position())) as slices:
        next(slices)
    return data.batches_per_epoch


def _look_at_evaluation(definition: TaskDefinition) -> None:
    """Fetch one of the batches for evaluation, if the task has such batches."""
    if isinstance(definition.evaluate, Evaluation):
        look_at(definition.evaluate, definition.seed)


def _look_at_slices(
    spec: InspectionSpec, definition: TaskDefinition, parameter_bytes: int
) -> Slicing:
    """How the task's batches may be sliced; unknown if a gang has to find out.

    A gang has to find out if no batch would be cut, or if the model is too large to compute here.
    """
    has_several = any(gpus > 1 for pool in spec.pools for gpus in pool.gpus)
    if not has_several and not definition.weighs_batches:
        return UNKNOWN
    if (found := slicings.known(spec, definition)) is not None:
        return found
    copies = _COPIES * parameter_bytes
    if copies > _MOST_BYTES or copies > _HOST_SHARE * available_host_bytes():
        return UNKNOWN
    data = Data(definition.get_dataloader, seed=definition.seed)
    try:
        found = check(
            *(definition, partial(build_model, definition), data), device=_CPU, limit_s=_LIMIT_S
        )
    except TooSlowError:
        return UNKNOWN
    if found.unchecked is None:  # a check that failed here may work on another device
        slicings.keep(spec, definition, found)
    return found


def _verdicts(
    spec: InspectionSpec,
    definition: TaskDefinition,
    model: _Model,
    ratio: float,
    slicing: Slicing,
) -> Iterator[dict[str, Any]]:
    for ref in spec.techniques:
        if (technique := _load(ref, definition)) is None:
            continue
        for pool in spec.pools:
            for gpus in pool.gpus:
                setting = Setting(
                    gpus=gpus,
                    device_kind=spec.device_kind,
                    hints=definition.hints,
                    precision=definition.precision,
                    model_caller=definition.model_caller,
                    device_memory_bytes=pool.device_memory_bytes,
                    node_gpus=spread(gpus, pool.node_gpus),
                    optimizer_state_ratio=ratio,
                )
                finding = _finding(technique, model, setting, slicing)
                if finding is not None:
                    asked = {"technique": ref.name, "gpus": gpus, "gpu_type": pool.gpu_type}
                    yield {**asked, "finding": finding}


def _load(ref: TechniqueRef, definition: TaskDefinition) -> Technique | None:
    try:
        return load_technique.of_task(ref, definition)
    except Exception:
        traceback.print_exc()  # into the log; a trial will show the same error
        return None


def _finding(
    technique: Technique, model: _Model, setting: Setting, slicing: Slicing
) -> dict[str, Any] | None:
    """What `technique` says of the model in this setting; None if it can't say."""
    try:
        return _ask(technique, model.module, setting, slicing)
    except Exception:  # perhaps because `meta` tensors have no values
        traceback.print_exc()
    try:
        return _ask(technique, model.real, setting, slicing)
    except TaskError:
        raise
    except Exception:
        traceback.print_exc()
        return None


def _ask(
    technique: Technique, module: nn.Module, setting: Setting, slicing: Slicing
) -> dict[str, Any]:
    reason = technique.reason_against(module, setting)
    if reason is not None:
        return {"not_applicable": {"reason": reason}}
    rungs = slicings.uncut(technique, setting, rungs_of(technique, module, setting), slicing)
    if not rungs:
        return {"not_applicable": {"reason": slicing.reason}}
    knob_sets = list(itertools.chain(*rungs))
    fit = Fit(technique, module, setting, knob_sets)
    if (detail := fit.why_none()) is not None:
        return {"out_of_memory": {"detail": detail}}
    can_run = {"least_memory_bytes": fit.least_bytes, "knob_sets": len(knob_sets)}
    return {"can_run": can_run}
