"""What a forward changes in its model, and whether the changes depend on the batch's slices.

Running means, codebooks, queues and counters are buffers that a forward writes to; some layers also
write to their parameters. A rank with a slice could write something else than a rank with the whole
batch, so the ranks' models would drift apart.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import torch
from torch import Tensor, nn

from saturn.techniques.model.buffers import Buffers

#: How much two changes of a value may differ, relative to the larger change.
_TOLERANCE = 1e-4
#: How many rounding errors of the values themselves count as no difference.
_ROUNDINGS = 16

#: The tensors that a forward has changed, by name, with their values after it.
Changes = Mapping[str, Tensor]


class ModelChanges:
    """Finds what forwards of one model change, each starting from the same state."""

    def __init__(self, module: nn.Module, parameters: Collection[str] = ()) -> None:
        """Take the present state of `module` as the start; copies buffers and `parameters`.

        Copies of all parameters would be too large; `changed_parameters` says which are needed.
        """
        self._module = module
        self._buffers = Buffers(module)
        self._parameters = {
            name: module.get_parameter(name).detach().clone() for name in parameters
        }
        self._sums = {name: _sum(parameter) for name, parameter in module.named_parameters()}

    def restore(self, after: Changes | None = None) -> None:
        """Go back to the start, except for buffers in `after`, which get their values there."""
        self._buffers.restore()
        for name, value in self._parameters.items():
            self._module.get_parameter(name).data.copy_(value)
        if after:
            self._buffers.put(after)

    def changed_parameters(self) -> list[str]:
        """The parameters that forwards have changed so far, which need copies."""
        return [
            name
            for name, parameter in self._module.named_parameters()
            if _sum(parameter) != self._sums[name]
        ]

    def now(self) -> Changes:
        """The changes that the forward since `restore` has made."""
        found = {name: buffer.detach().clone() for name, buffer in self._buffers.changed().items()}
        for name, start in self._parameters.items():
            value = self._module.get_parameter(name).detach()
            if not torch.equal(value, start):
                found[name] = value.clone()
        return found

    def apart(self, one: Changes, other: Changes) -> list[str]:
        """The names of tensors that two forwards have left different."""
        return [
            name
            for name in sorted({*one, *other})
            if _differ(self._start(name), one.get(name), other.get(name))
        ]

    def is_saved(self, name: str) -> bool:
        """Whether a checkpoint holds the tensor of this name."""
        return name in self._parameters or self._buffers.is_saved(name)

    def in_words(self, name: str) -> str:
        """The tensor's name in words."""
        return f"the {'parameter' if name in self._parameters else 'buffer'} `{name}`"

    def _start(self, name: str) -> Tensor | None:
        return self._parameters[name] if name in self._parameters else self._buffers.held(name)


def _sum(tensor: Tensor) -> float:
    if not tensor.is_floating_point() or tensor.dtype.itemsize == 1:  # torch can't add float8
        return 0.0
    return float(tensor.detach().sum(dtype=torch.float64).nan_to_num())


def _differ(start: Tensor | None, one: Tensor | None, other: Tensor | None) -> bool:
    """Whether two forwards that left a tensor as `one` and as `other` made different changes.

    None means that the forward did not change the tensor.
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
