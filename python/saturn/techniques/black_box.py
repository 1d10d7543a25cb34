"""The black-box level: a technique that is two functions, and trains by itself.

`execute` trains the model for a number of batches, and `search` tunes knobs. Both run in a worker
process that sees only the devices that it was given. This module has the base class, and calls its
functions whichever way they were written. The task object that they get is in
`saturn.worker.black_box_task`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

#: The arguments of each function, without an instance or a class.
_ARGUMENTS = {
    "execute": ("task", "gpus", "task_id", "batch_count"),
    "search": ("task", "gpus", "task_id"),
}


class BaseTechnique:
    """Base class of black-box techniques.

    Either function may be a plain function in the class body, or a static, class or instance
    method. Instances are made without arguments.
    """

    def execute(self, task: Any, gpus: list[int], task_id: int, batch_count: int) -> None:
        """Train `batch_count` batches of `task` on `gpus`, save with `task.save`, and return.

        `gpus` are the numbers of the devices as this process sees them, 0 to n-1. `task_id` is a
        number that no other call ever gets. Must be overridden.
        """
        raise NotImplementedError(
            f"{type(self).__name__} must define execute(task, gpus, task_id, batch_count)"
        )

    def search(self, task: Any, gpus: list[int], task_id: int) -> Any:
        """Choose parameters for `task` on `gpus`.

        Each `task.get_iterator()` gives one epoch here, or a few dozen batches of a loader without
        length. Saves are discarded afterwards.

        Return the parameters as plain data, which is kept with the task. Or return a pair of
        parameters and seconds a batch. Return (None, None) if the technique can't run the task.
        Without seconds a batch, Saturn times `execute`.
        """
        return {}


def bound_function(technique: type[BaseTechnique], name: str) -> Callable[..., Any]:
    """`execute` or `search` of a technique's class, callable with its documented arguments.

    Raises `TypeError` if it takes other arguments.
    """
    arguments = _ARGUMENTS[name]
    written = inspect.getattr_static(technique, name)
    if isinstance(written, staticmethod | classmethod):
        function = getattr(technique, name)
    elif inspect.isfunction(written) and not _wants_instance(written, len(arguments)):
        function = written
    else:
        function = getattr(technique(), name)
    try:
        inspect.signature(function).bind(*arguments)
    except TypeError:
        raise TypeError(
            f"{technique.__name__}.{name}{inspect.signature(function)} must accept "
            f"({', '.join(arguments)})"
        ) from None
    return function  # type: ignore[no-any-return]


def check(technique: type[BaseTechnique]) -> None:
    """Raise `TypeError` if a class can't serve as a black-box technique."""
    if technique.execute is BaseTechnique.execute:
        raise TypeError(
            f"{technique.__name__} has no execute(task, gpus, task_id, batch_count); it is what "
            "trains the model"
        )
    for name in _ARGUMENTS:
        bound_function(technique, name)


def _wants_instance(function: Callable[..., Any], num_arguments: int) -> bool:
    """Whether a plain function in a class body is meant as a method."""
    parameters = [
        parameter
        for parameter in inspect.signature(function).parameters.values()
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    ]
    if not parameters:
        return False
    required = [parameter for parameter in parameters if parameter.default is parameter.empty]
    return parameters[0].name == "self" or len(required) == num_arguments + 1
