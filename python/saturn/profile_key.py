"""When two tasks perform alike by construction: the key under which their trials are shared.

The key covers all that decides how long a step takes and how much memory it needs: the functions,
what `get_model` gets, the optimizer's class, precision, gradient accumulation and whether gradients
are clipped, the hints, the allowed device counts. Learning rate and its scheduler, number of steps,
seed and name are left out. Functions of the user's own modules are pickled by
name alone, so the text of those modules counts too; installed packages are taken as they are.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator
from pathlib import Path

import cloudpickle  # type: ignore[import-untyped]
import cloudpickle.cloudpickle as internals  # type: ignore[import-untyped]

from saturn.preload import is_installed, pickled_strings
from saturn.task import Task


def profile_key(task: Task) -> str:
    """A hex digest, equal for tasks that perform alike; the task must be picklable."""
    definition = task.definition()
    digest = hashlib.sha256()
    for part in (
        definition.get_model,
        definition.get_dataloader,
        definition.loss_function,
        definition.loss_weight,
        definition.optimizer_cls,
        definition.gradient_accumulation_steps,
        definition.precision,
        definition.max_grad_norm is not None,
        sorted(definition.kwargs.items()),
        sorted(definition.hints.items()),
        task.gpu_range,
    ):
        data = cloudpickle.dumps(part)
        # cloudpickle gives each class of `__main__` a random id, new in every process.
        for class_id in getattr(internals, "_DYNAMIC_CLASS_TRACKER_BY_CLASS", {}).values():
            data = data.replace(class_id.encode(), bytes(len(class_id)))
        for text in (data, *_own_modules(data)):
            digest.update(len(text).to_bytes(8, "little"))
            digest.update(text)
    return digest.hexdigest()


def _own_modules(data: bytes) -> Iterator[bytes]:
    """The source of each module that a pickle names and that is not installed."""
    for name in sorted(set(pickled_strings(data))):
        path = getattr(sys.modules.get(name), "__file__", None)
        is_script = name == "__main__"  # its functions are pickled whole
        if path and path.endswith(".py") and not is_script and not is_installed(path):
            yield Path(path).read_bytes()
