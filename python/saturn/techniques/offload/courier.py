"""Brings parameters from the slow tier to the device, one layer ahead of the computation.

On an accelerator the next layer's copy runs on a stream of its own while the current one computes:
the device holds two layers. A CPU slot copies when asked: there is nobody else to do it.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from saturn.rank.side_stream import Sent, SideStream


class Courier:
    """One rank's copies to its device."""

    def __init__(self, device: torch.device) -> None:
        self.device = device

    @staticmethod
    def to(device: torch.device) -> Courier:
        """The courier for `device`."""
        return Courier(device) if device.type == "cpu" else StreamCourier(device)

    def bring(self, slow: Sequence[Tensor]) -> list[Tensor]:
        """Copies of `slow` on the device, ready to compute with; they last while they are held."""
        return [tensor.clone() for tensor in slow]

    def done(self, *, ahead: Sequence[Tensor] | None = None) -> None:
        """All that uses the last copies has been given to the device; `ahead` is asked for next."""

    def finish(self) -> None:
        """Wait for the device: whatever was copied from it, gradients among it, is there."""


class StreamCourier(Courier):
    """Copies from pinned memory on a side stream."""

    def __init__(self, device: torch.device) -> None:
        super().__init__(device)
        self._stream = SideStream(device)
        #: What was sent ahead, and where its originals lie.
        self._ahead: tuple[tuple[int, ...], Sent] | None = None
        #: When the device is done with the last layer that it was given.
        self._used: torch.Event | None = None

    def bring(self, slow: Sequence[Tensor]) -> list[Tensor]:
        ahead, self._ahead = self._ahead, None
        if ahead is not None and ahead[0] == _places(slow):
            return ahead[1].taken()
        return self._stream.send(slow).taken()

    def done(self, *, ahead: Sequence[Tensor] | None = None) -> None:
        # The host runs far before the device. Unheld, it would order the copies of all layers at
        # once: so none is ordered before the last layer but this one has run.
        before, self._used = self._used, torch.Event()
        self._used.record(torch.accelerator.current_stream(self.device))
        if before is not None:
            before.synchronize()
        if ahead is not None:
            self._ahead = _places(ahead), self._stream.send(ahead)

    def finish(self) -> None:
        self._ahead = self._used = None
        torch.accelerator.synchronize(self.device)


def _places(tensors: Sequence[Tensor]) -> tuple[int, ...]:
    return tuple(tensor.data_ptr() for tensor in tensors)
