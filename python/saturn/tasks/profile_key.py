"""When two tasks perform alike by construction: the key under which their trials are shared.

The key covers all that decides how long a step takes and how much memory it needs: the functions
and all that they refer to, what `get_model` gets, the optimizer's class, precision, deterministic
and TF32 kernels, gradient accumulation and whether gradients are clipped, the hints; what the
task allows of devices, techniques and knobs; what it evaluates; and of the weights that it starts
from, names and shapes. Learning rate and its scheduler, number of steps, how often it evaluates,
seed, name, and what it continues are left out. Of a task that was
made of a trainer, what that holds stands for its functions. The key is the same in every process,
whatever directory the functions lie in (`content.py`).
"""

from __future__ import annotations

import hashlib
import sys
from dataclasses import dataclass, fields
from typing import Any

import cloudpickle  # type: ignore[import-untyped]

from saturn.scripts.command import ScriptDefinition
from saturn.scripts.key import script_key
from saturn.tasks.content import Content
from saturn.tasks.evaluation import Evaluate, Evaluation
from saturn.tasks.task import Task

#: What an optimizer's settings may hold that no step takes longer for.
_RATES = {"lr", "initial_lr", "weight_decay"}


@dataclass(frozen=True)
class Key:
    """A profile key, and what was seen on the way to it."""

    #: 64 hexadecimal digits.
    text: str
    #: Bytes, type and variable of the largest value that the task's functions hold.
    largest: tuple[int, str, str]


def key_of(task: Task, buffers: dict[int, tuple[Any, bytes]]) -> Key:
    """The key of a task, which must be picklable. `buffers` keeps digests for tasks to come."""
    definition = task.definition()
    if isinstance(definition, ScriptDefinition):
        return Key(script_key(definition, task.gpu_range), (0, "", ""))
    content = Content(buffers)
    digest = hashlib.sha256(repr(sys.version_info[:2]).encode())
    groups = definition.parameter_groups
    functions: tuple[Any, ...] = (task._performs_as,)
    if task._performs_as is None:
        functions = (
            definition.get_model,
            definition.get_dataloader,
            definition.loss_function,
            definition.loss_weight,
            definition.training_step,
            definition.optimizer_cls,
            # Which parameters have settings of their own counts, and that of which name.
            [{**group, **dict.fromkeys(_RATES & group.keys())} for group in groups],
            definition.epoch_batches,
        )
    # Where nothing is evaluated, the key is what it was before there were evaluations.
    evaluated = () if definition.evaluate is None else _parts_of(definition.evaluate)
    if task._evaluates_as is not None:
        evaluated = (task._evaluates_as,)
    # What the weights are counts for nothing, but one inspection says for the whole group whether
    # they fit the model: by their names and shapes.
    start = definition.start_from
    layout = () if start is None else (sorted(start.layout().items()),)
    for part in (
        *functions,
        definition.gradient_accumulation_steps,
        definition.precision,
        definition.deterministic,
        definition.tf32,
        definition.max_grad_norm is not None,
        sorted(definition.kwargs.items()),
        sorted(definition.hints.items()),
        task.gpu_range,
        task.techniques,
        sorted((name, sorted(knobs.items())) for name, knobs in definition.knobs.items()),
        *evaluated,
        *layout,
    ):
        try:
            digest.update(content.digest(part))
        except RecursionError:
            # Too deep to be followed: its pickle is good for this process at least.
            digest.update(cloudpickle.dumps(part))
    return Key(digest.hexdigest(), content.largest)


def _parts_of(evaluate: Evaluate) -> tuple[Any, ...]:
    """What decides how long an evaluation takes; how often there is one is left out."""
    if not isinstance(evaluate, Evaluation):
        return (evaluate,)
    return tuple(getattr(evaluate, field.name) for field in fields(evaluate))


def profile_key(task: Task) -> str:
    """A hex digest, equal for tasks that perform alike; the task must be picklable."""
    return key_of(task, {}).text


def technique_digest(technique: type[Any]) -> str:
    """A hex digest of a technique's text and of what it refers to."""
    return Content().digest(technique).hex()
