"""Parameters that a task's loss holds beside the model, which no optimizer would train.

A module such as a margin or a set of centers may be in the loss function itself, in an object or
closure of it, or in a global that its code names. If a step computes gradients for it, the task
fails, since its author expects it to be trained. A teacher that is only read gets no gradients, and
may be there. A trainer's loss is not looked at: `train()` would not train its modules either.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Iterator
from typing import Any

from torch import Tensor, nn

from saturn.data.held import objects_in
from saturn.plain.installed import is_installed
from saturn.rank.exceptions import TaskError
from saturn.tasks.definition import TaskDefinition


class LossParameters:
    """The parameters in a task's loss that are not its model's."""

    def __init__(self, definition: TaskDefinition, module: nn.Module) -> None:
        """`module` is the model, after a technique has spread it."""
        trained = set(map(id, module.parameters()))
        found = parameters_in((definition.loss_function, definition.training_step))
        self._found = [(name, one) for name, one in found if id(one) not in trained]
        for _, parameter in self._found:
            parameter.grad = None  # an earlier look at the loss may have computed it

    def check(self) -> None:
        """Raise `TaskError` if a step has computed gradients for such a parameter."""
        for name, parameter in self._found:
            if parameter.grad is not None:
                raise TaskError(
                    f"the loss has a parameter to train ({name}), and Saturn trains and saves "
                    "those of the model: have get_model return a module that holds it, and compute "
                    "this loss in its forward or by training_step; say `requires_grad_(False)` of "
                    "what is not to be trained"
                )


def parameters_in(holders: tuple[Any, ...]) -> Iterator[tuple[str, Tensor]]:
    """(description, parameter) of all that objects hold and that require gradients."""
    for value in objects_in(holders, is_end=is_of_torch, and_of=globals_of):
        if isinstance(value, nn.Module):
            for name, parameter in value.named_parameters():
                if parameter.requires_grad:
                    yield f"`{name}` of {type(value).__name__}", parameter
        elif isinstance(value, Tensor) and value.requires_grad and value.is_leaf:
            yield f"a tensor of shape {tuple(value.shape)}", value


def is_of_torch(value: Any) -> bool:
    """Whether `value` is a module or a tensor, which torch itself can look into."""
    return isinstance(value, nn.Module | Tensor)


def globals_of(value: Any) -> Iterator[Any]:
    """The values of globals that the code of a user's function names."""
    function = value.__func__ if isinstance(value, types.MethodType) else value
    if not isinstance(function, types.FunctionType):
        # An object that is called: its class has the code.
        function = inspect.getattr_static(type(value), "__call__", None)
    if not isinstance(function, types.FunctionType) or is_installed(function.__code__.co_filename):
        return
    pending = [function.__code__]
    while pending:
        code = pending.pop()
        for name in code.co_names:
            if name in function.__globals__:
                yield function.__globals__[name]
        pending += [each for each in code.co_consts if isinstance(each, types.CodeType)]
