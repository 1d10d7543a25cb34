"""A task's hyper-parameters as plain values, for trackers.

A tracker gets a task's curves from its `metrics.jsonl` (`saturn.worker.track`), not from here.
"""

from __future__ import annotations

import functools
from typing import Any

from saturn.scripts.task import ScriptTask
from saturn.tasks.task import Task

#: Longer texts are cut to this length.
_MOST_CHARACTERS = 200


def config_of(task: Task) -> dict[str, Any]:
    """Numbers, texts and booleans by name; unset ones are left out.

    The parameters of a sweep or a search are among them, so that a tracker can compare by these.
    """
    parameters = {name: _plain(value) for name, value in task.parameters.items()}
    if isinstance(task, ScriptTask):
        script = task.script_definition
        return {**parameters, "script": str(script.path), "args": " ".join(script.args)}
    hparams = task.hparams
    config = {
        **parameters,  # first, so that of two equal names the training's wins
        **hparams.kwargs,
        "lr": hparams.lr,
        "epochs": hparams.epochs,
        "steps": hparams.steps,
        "batch_count": hparams.batch_count,
        "optimizer": "AdamW" if hparams.optimizer_cls is None else hparams.optimizer_cls,
        "lr_scheduler": hparams.lr_scheduler,
        "gradient_accumulation_steps": hparams.gradient_accumulation_steps,
        "max_grad_norm": hparams.max_grad_norm,
        "precision": hparams.precision,
        "seed": task.seed,
        "start_from": None if task.start_from is None else str(task.start_from),
        "continue_from": None
        if task.continue_from is None
        else " ".join(map(str, task.continue_from)),
    }
    return {name: _plain(value) for name, value in config.items() if value is not None}


def _plain(value: Any) -> Any:
    if isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, functools.partial):
        keywords = ", ".join(f"{name}={_plain(inner)}" for name, inner in value.keywords.items())
        return f"{_plain(value.func)}({keywords})"
    named = getattr(value, "__qualname__", None) or repr(value)
    return named[:_MOST_CHARACTERS]
