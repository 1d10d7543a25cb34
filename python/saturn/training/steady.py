"""A forward that draws nothing: whatever is random in it has the same value for every sample.

So a model can be compared with itself, in training mode, on batches of different sizes: dropout
lets everything pass, noise is a constant, no layer is skipped on some sample and not on another.
Within the block random numbers of torch are not drawn at all; those of Python and numpy are, and
are the caller's to seed.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

#: Operators that make random numbers and nothing else, by how their names begin.
_DRAWING = (
    *("bernoulli", "cauchy", "exponential", "geometric", "log_normal", "multinomial", "normal"),
    *("poisson", "rand", "random", "uniform"),
)
#: What stands for a random number: neither end of [0, 1), where decisions are taken, and not 0,
#: which might hide what a noise does.
_CONSTANT = 0.5


class Steady(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Enter it around a forward and its loss."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        if torch.Tag.nondeterministic_seeded not in func.tags:
            return func(*args, **kwargs)
        name = func._schema.name.partition("::")[2]
        if name in ("native_dropout", "_fused_dropout"):
            return args[0].clone(), torch.ones_like(args[0], dtype=torch.bool)
        args, kwargs = _without_dropout(func, args, kwargs)
        made = func(*args, **kwargs)
        if name.startswith(_DRAWING):
            for tensor in pytree.tree_leaves(made):
                _fill(tensor, name, _least(func, args, kwargs))
        return made


def _without_dropout(
    func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments with no dropout in an operator that does more, such as attention."""
    positional = list(args)
    for number, argument in enumerate(func._schema.arguments):
        if argument.name == "dropout_p":
            if number < len(positional):
                positional[number] = 0.0
            else:
                kwargs[argument.name] = 0.0
    return tuple(positional), kwargs


def _least(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    """The least whole number that an operator might draw."""
    for number, argument in enumerate(func._schema.arguments):
        if argument.name in ("low", "from"):
            return int(args[number] if number < len(args) else kwargs.get(argument.name, 0))
    return 0


def _fill(tensor: torch.Tensor, name: str, least: int) -> None:
    if name.startswith("randperm"):
        tensor.copy_(torch.arange(len(tensor), device=tensor.device))
    elif name.startswith("bernoulli"):
        tensor.fill_(1)
    elif tensor.is_floating_point():
        tensor.fill_(_CONSTANT)
    else:
        tensor.fill_(least)
