"""The profile key: tasks with equal keys perform alike by construction, and share their trials.

The key covers everything that decides how long a step takes and how much memory it needs: the
functions and all that they refer to, the keywords of `get_model`, the optimizer's class, precision,
deterministic and TF32 kernels, gradient accumulation, whether gradients are clipped, and the hints.
It also covers the devices, techniques and knobs that the task allows, its evaluation, and the names
and shapes of the weights that it starts from.

The key leaves out learning rate and scheduler, number of steps, how often the task evaluates, seed,
name, and what it continues. A task that is submitted to a run from another directory has a key of
that directory. For a task made of a trainer, the trainer's content replaces its
functions. The key is the same in every process, whatever directory the functions lie in
(`content.py`).
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

#: Optimizer settings whose values don't change the time of a step.
_RATES = {"lr", "initial_lr", "weight_decay"}


@dataclass(frozen=True)
class Key:
    """A profile key, and a fact found while computing it."""

    #: 64 hexadecimal digits.
    text: str
    #: Bytes, type and variable name of the largest value that the task's functions hold.
    largest: tuple[int, str, str]

    def of(self, cwd: str | None) -> Key:
        """The key of the same task from another directory, where relative paths mean other files.

        None: the key itself.
        """
        if cwd is None:
            return self
        return Key(hashlib.sha256(f"{self.text} {cwd}".encode()).hexdigest(), self.largest)


def key_of(task: Task, buffers: dict[int, tuple[Any, bytes]]) -> Key:
    """The key of a task, which must be picklable. `buffers` keeps digests for later tasks."""
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
            # Which parameters have a setting counts, and the setting's name, but not its value.
            [{**group, **dict.fromkeys(_RATES & group.keys())} for group in groups],
            definition.epoch_batches,
        )
    # Without an evaluation, the key is the same as before evaluations existed.
    evaluated = () if definition.evaluate is None else _parts_of(definition.evaluate)
    if task._evaluates_as is not None:
        evaluated = (task._evaluates_as,)
    # The values of weights don't count. Names and shapes do, because one inspection decides for the
    # whole group whether the weights fit the model.
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
            # The value is nested too deeply; its pickle is a digest for this process at least.
            digest.update(cloudpickle.dumps(part))
    return Key(digest.hexdigest(), content.largest)


def _parts_of(evaluate: Evaluate) -> tuple[Any, ...]:
    """What decides how long an evaluation takes; how often it happens is left out."""
    if not isinstance(evaluate, Evaluation):
        return (evaluate,)
    return tuple(getattr(evaluate, field.name) for field in fields(evaluate))


def profile_key(task: Task) -> str:
    """A hex digest, equal for tasks that perform alike; the task must be picklable."""
    return key_of(task, {}).text


def technique_digest(technique: type[Any]) -> str:
    """A hex digest of a technique's code and of everything that it refers to."""
    return Content().digest(technique).hex()
