"""Look at a task's model once, on no device: how large it is, and what can't run it.

Every managed technique is asked for every device count, so that no gang is launched to say no. The
model is built on torch's `meta` device, where parameters have shapes and no memory; for real where
it can't be, or where a technique can't look at it there. The loader's first batch is fetched too: a
task whose functions raise is told of that now, and not by trial after trial.

A technique that raises is left to its trials, which tell the whole story.
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

#: Optimizer state is looked at on stand-ins, here.
_CPU = torch.device("cpu")
#: Types of weights that small updates don't change, with the relative size of those that are lost.
_COARSE = {torch.bfloat16: 256, torch.float16: 2048}
#: Comparing a batch with its slices takes the model as it is built and once more in float64; where
#: that is more than this, or than this share of the host's free memory, a gang does it.
_COPIES, _MOST_BYTES, _HOST_SHARE = 3, 6 << 30, 0.25
#: And it may take so long, here where it holds no device.
_LIMIT_S = 20.0
_NICENESS = 10


def inspect(spec: InspectionSpec, definition: TaskDefinition, reporter: Reporter) -> None:
    """Look, and report what was found. The task's own errors are raised."""
    # What holds a device goes first: on a slot, steps that are being timed share the cores with it.
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
    """The task's model, in whatever form a technique can look at it."""

    def __init__(self, definition: TaskDefinition) -> None:
        self._definition = definition
        shapes = _on_meta(definition)
        #: On `meta` where it can be there; else for real.
        self.module = build_model(definition) if shapes is None else shapes
        self._real = None if _is_on_meta(self.module) else self.module

    @property
    def real(self) -> nn.Module:
        """With its weights; built when they are first asked for."""
        if self._real is None:
            self._real = build_model(self._definition)
        return self._real


def _on_meta(definition: TaskDefinition) -> nn.Module | None:
    try:
        with torch.device("meta"):
            module = build_model(definition)
    except Exception:  # a constructor that looks at values; for real it may do well
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
    """Tell of weights that are trained in a type too coarse for small steps."""
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
    """Fetch one batch; returns how many an epoch has, where the loader has a length."""
    data = build_data(definition, _CPU, reporter.note)
    with closing(data.slices(Position())) as slices:
        next(slices)
    return data.batches_per_epoch


def _look_at_evaluation(definition: TaskDefinition) -> None:
    """Fetch one of the batches that are evaluated, where there are such."""
    if isinstance(definition.evaluate, Evaluation):
        look_at(definition.evaluate, definition.seed)


def _look_at_slices(
    spec: InspectionSpec, definition: TaskDefinition, parameter_bytes: int
) -> Slicing:
    """What may be made of the task's batches; unknown where a gang is to find out.

    That is where no batch would be cut, or the model is too large to compute with here.
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
    if found.unchecked is None:  # on another device it may do
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
        traceback.print_exc()  # into the log; a trial will tell
        return None


def _finding(
    technique: Technique, model: _Model, setting: Setting, slicing: Slicing
) -> dict[str, Any] | None:
    """What `technique` says of the model there; None where it can't say."""
    try:
        return _ask(technique, model.module, setting, slicing)
    except Exception:  # on `meta` perhaps for want of values
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
