"""Find parameters that a forward itself changes, beside the optimizer.

A model may clamp or normalise its weights in the forward, or keep a slow average of some weights in
others (a teacher, a key encoder). Where the forward runs on copies of the parameters, such changes
would be lost without a word; where it runs twice, they would be made twice.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

#: Forwards from the first on that are all watched. A slow average of weights changes nothing before
#: the weights have moved.
_FIRST = 4
#: From this forward on each is watched whose number is a power of two. In between no step waits for
#: the device.
_RARELY_FROM = 128


class ForwardWatch:
    """Watches the parameters of one module; keeps sums of them, and no copies."""

    def __init__(self) -> None:
        self._num_forwards = 0
        self._parameters: list[tuple[str, Tensor]] = []
        self._before: list[Tensor] = []

    def begin(self, parameters: Iterable[tuple[str, Tensor]]) -> None:
        """Note `parameters`, with their names, before a forward with gradients."""
        self._num_forwards += 1
        number = self._num_forwards
        is_rare = number >= _RARELY_FROM and number & (number - 1) == 0
        is_watched = number <= _FIRST or is_rare
        self._parameters = list(parameters) if is_watched else []
        self._before = self._sums()

    def changed(self) -> str | None:
        """The name of the first parameter that has changed since `begin`; None if none has.

        Reading the answer waits for the device.
        """
        if not self._parameters:
            return None
        same = (torch.stack(self._before) == torch.stack(self._sums())).tolist()
        names = [name for name, _ in self._parameters]
        self._parameters, self._before = [], []
        return None if all(same) else names[same.index(False)]

    def _sums(self) -> list[Tensor]:
        return [_sum(parameter) for _, parameter in self._parameters]


#: The whole numbers of a number's size in bytes.
_WORDS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def _sum(parameter: Tensor) -> Tensor:
    """The sum of a tensor's numbers, each read as the whole number of its bits.

    No change of a number is too small for it, where sums of the numbers themselves would round. An
    exchange of two numbers leaves it as it is.
    """
    local = parameter.to_local() if isinstance(parameter, DTensor) else parameter
    plain = torch.view_as_real(local.detach()) if local.is_complex() else local.detach()
    return plain.view(_WORDS[plain.element_size()]).sum()
