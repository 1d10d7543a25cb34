"""Hooks that a task's model has put on its parameters, which change their gradients.

A mask that trains some rows of an embedding alone is such a hook; so is a limit for each number.
Techniques that split parameters replace them, and their hooks would be lost. Techniques that cut
batches run hooks on the gradients of parts, so the hooks must be linear: what they make of parts
must add up to what they make of the whole.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from saturn.data import seeds
from saturn.rank.exceptions import NotApplicable
from saturn.techniques.interface import ParallelModel

#: How far a linear hook may be from linear, by rounding.
_TOLERANCE = 1e-4
#: A limit for gradients must show, however large it is.
_SIZES = (1e-4, 1.0, 1e6)


class ParameterHooks:
    """The hooks of a model's parameters, read before a technique spreads the model."""

    def __init__(self, module: nn.Module, *, world_size: int) -> None:
        """`module` is as the task built it; `world_size` is the number of ranks of its gang."""
        self._hooked = {
            name: parameter
            for name, parameter in module.named_parameters()
            if parameter.requires_grad and (_on_gradients(parameter) or _on_sums(parameter))
        }
        # Asked now, because later a rank may have no values of a parameter.
        self._nonlinear = (
            {name for name, parameter in self._hooked.items() if not _is_linear(parameter)}
            if world_size > 1
            else set()
        )

    def expect_kept(self, parallel: ParallelModel) -> None:
        """Raise `NotApplicable` if training under `parallel` would lose or change what they do."""
        if not self._hooked:
            return
        now = dict(parallel.module.named_parameters(remove_duplicate=False))
        for name, parameter in self._hooked.items():
            what = f"the model has a hook on its parameter `{name}`, which"
            # A stage of a pipeline lacks the parameters of other stages.
            if now.get(name, parameter) is not parameter:
                raise NotApplicable(f"{what} would be lost: here devices hold parts of parameters")
            if _on_sums(parameter) and not parallel.keeps_sums:
                raise NotApplicable(
                    f"{what} gets the gradient of a whole batch: here gradients are added up in "
                    "parts, on several devices or layer by layer"
                )
            if name in self._nonlinear:
                raise NotApplicable(
                    f"{what} is not linear (it may limit gradients): here it would get the "
                    "gradients of parts of a batch, and change them in another way than their sum"
                )


def _on_gradients(parameter: nn.Parameter) -> Mapping[int, Callable[..., Any]]:
    return parameter._backward_hooks or {}


def _on_sums(parameter: nn.Parameter) -> Mapping[int, Callable[..., Any]]:
    """The hooks that run when a gradient has been added to the parameter's."""
    return getattr(parameter, "_post_accumulate_grad_hooks", None) or {}


def _is_linear(parameter: nn.Parameter) -> bool:
    """Whether the hooks on a parameter's gradient are linear, for some gradients at random."""
    generator = torch.Generator().manual_seed(0)
    one, other = (torch.randn(parameter.shape, generator=generator) for _ in range(2))
    try:
        with torch.no_grad(), seeds.forked(parameter.device):
            return all(_adds_up(parameter, size * one, size * other) for size in _SIZES)
    except Exception:  # the user's code, called in an unusual way
        return False


def _adds_up(parameter: nn.Parameter, one: Tensor, other: Tensor) -> bool:
    one, other = (each.to(parameter) for each in (one, other))
    together = _changed(parameter, one + other)
    apart = _changed(parameter, one) + _changed(parameter, other)
    largest = float((one + other).abs().max()) if one.numel() else 0.0
    return bool((together - apart).abs().max() <= _TOLERANCE * largest) if one.numel() else True


def _changed(parameter: nn.Parameter, gradient: Tensor) -> Tensor:
    gradient = gradient.clone()
    for hook in _on_gradients(parameter).values():
        found = hook(gradient)
        gradient = gradient if found is None else found
    return gradient
