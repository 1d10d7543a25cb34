"""What a forward changes of its model, and whether that depends on how the batch is cut.

Running means, codebooks, queues and counters are buffers that a forward writes to; some layers
also write to their parameters. A rank that gets a slice would write something else than one that
gets the whole batch, so the ranks' models would drift apart.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import torch
from torch import Tensor, nn

from saturn.techniques.model.buffers import Buffers

#: What two changes of a value may differ by, as a part of the larger.
_TOLERANCE = 1e-4
#: Rounding errors of the values themselves that are no difference.
_ROUNDINGS = 16

#: The tensors that a forward has changed, by name, as it left them.
Changes = Mapping[str, Tensor]


class ModelChanges:
    """Finds what forwards of one model change, each from the same start."""

    def __init__(self, module: nn.Module, parameters: Collection[str] = ()) -> None:
        """The start is what `module` is now. It keeps copies of buffers, and of `parameters`.

        Copies of all parameters would be too large; see `changed_parameters`.
        """
        self._module = module
        self._buffers = Buffers(module)
        self._parameters = {
            name: module.get_parameter(name).detach().clone() for name in parameters
        }
        self._sums = {name: _sum(parameter) for name, parameter in module.named_parameters()}

    def restore(self, after: Changes | None = None) -> None:
        """Go back to the start; with `after`, the buffers in it as a forward has left them."""
        self._buffers.restore()
        for name, value in self._parameters.items():
            self._module.get_parameter(name).data.copy_(value)
        if after:
            self._buffers.put(after)

    def changed_parameters(self) -> list[str]:
        """The parameters that forwards have changed so far: those that it should keep copies of."""
        return [
            name
            for name, parameter in self._module.named_parameters()
            if _sum(parameter) != self._sums[name]
        ]

    def now(self) -> Changes:
        """What the forward since `restore` has changed."""
        found = {name: buffer.detach().clone() for name, buffer in self._buffers.changed().items()}
        for name, start in self._parameters.items():
            value = self._module.get_parameter(name).detach()
            if not torch.equal(value, start):
                found[name] = value.clone()
        return found

    def apart(self, one: Changes, other: Changes) -> list[str]:
        """The names under which two forwards have left different values."""
        return [
            name
            for name in sorted({*one, *other})
            if _differ(self._start(name), one.get(name), other.get(name))
        ]

    def is_saved(self, name: str) -> bool:
        """Whether a checkpoint holds what has this name."""
        return name in self._parameters or self._buffers.is_saved(name)

    def in_words(self, name: str) -> str:
        """What has this name."""
        return f"the {'parameter' if name in self._parameters else 'buffer'} `{name}`"

    def _start(self, name: str) -> Tensor | None:
        return self._parameters[name] if name in self._parameters else self._buffers.held(name)


def _sum(tensor: Tensor) -> float:
    if not tensor.is_floating_point() or tensor.dtype.itemsize == 1:  # torch adds no float8
        return 0.0
    return float(tensor.detach().sum(dtype=torch.float64).nan_to_num())


def _differ(start: Tensor | None, one: Tensor | None, other: Tensor | None) -> bool:
    """Whether a forward that left `one` did another thing than one that left `other`.

    None: it changed nothing.
    """
    one, other = (start if value is None else value for value in (one, other))
    if one is None or other is None or one.shape != other.shape or one.dtype != other.dtype:
        return True
    if torch.equal(one, other) or not one.numel():
        return False
    if not one.is_floating_point():
        return True
    rounding = torch.finfo(one.dtype).eps * _ROUNDINGS
    one, other = one.nan_to_num().double(), other.nan_to_num().double()
    largest = float(torch.maximum(one.abs(), other.abs()).max())
    moved = largest
    if start is not None and start.shape == one.shape:
        start = start.nan_to_num().double()
        moved = float(torch.maximum((one - start).abs(), (other - start).abs()).max())
    return float((one - other).abs().max()) > max(_TOLERANCE * moved, rounding * largest)
