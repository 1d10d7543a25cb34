"""Copy parameters from the slow tier to the device, and gradients back, beside the computation.

On an accelerator, the next layer is prefetched on a stream of its own while the present one
computes, and gradients leave on another, since a bus carries both ways at once. So the device holds
two layers, and two layers' gradients. A CPU slot copies on request: its one core must do both.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from saturn.rank.side_stream import Sent, SideStream


class Courier:
    """Copies of one rank between the slow tier and its device."""

    def __init__(self, device: torch.device) -> None:
        self.device = device

    @staticmethod
    def to(device: torch.device) -> Courier:
        """The courier for `device`."""
        return Courier(device) if device.type == "cpu" else StreamCourier(device)

    def bring(self, slow: Sequence[Tensor]) -> list[Tensor]:
        """Copies of `slow` on the device, ready for computing; they live as long as references."""
        return [tensor.clone() for tensor in slow]

    def done(self, *, ahead: Sequence[Tensor] | None = None) -> None:
        """Note that all work on the last copies is launched; `ahead` will be requested next."""

    def take_back(self, tensors: Sequence[Tensor], into: Sequence[Tensor]) -> None:
        """Copy `tensors` from the device to the slow tier; they may arrive later."""
        for tensor, place in zip(tensors, into, strict=True):
            place.copy_(tensor)

    def returned(self) -> None:
        """Wait until all that was taken back has arrived."""

    def finish(self) -> None:
        """Wait for the device, and until all that was taken back has arrived."""


class StreamCourier(Courier):
    """Prefetches from pinned memory on a side stream."""

    def __init__(self, device: torch.device) -> None:
        super().__init__(device)
        self._stream, self._back = SideStream(device), SideStream(device)
        #: The prefetched tensors, with the addresses of their originals.
        self._ahead: tuple[tuple[int, ...], Sent] | None = None
        #: Happens when the device has finished the last layer that was launched.
        self._used: torch.Event | None = None
        #: Happens when all that was taken back before the last layer has arrived.
        self._left: torch.Event | None = None

    def bring(self, slow: Sequence[Tensor]) -> list[Tensor]:
        ahead, self._ahead = self._ahead, None
        if ahead is not None and ahead[0] == _places(slow):
            return ahead[1].taken()
        return self._stream.send(slow).taken()

    def done(self, *, ahead: Sequence[Tensor] | None = None) -> None:
        # The host runs far ahead of the device, and would launch the copies of all layers at once.
        # So a layer is prefetched only after the layer before the present one has run.
        before, self._used = self._used, torch.Event()
        self._used.record(torch.accelerator.current_stream(self.device))
        if before is not None:
            before.synchronize()
        # Nor may gradients gather on the device, where the bus is slower than the computation.
        before, self._left = self._left, self._back.mark()
        if before is not None:
            before.synchronize()
        if ahead is not None:
            self._ahead = _places(ahead), self._stream.send(ahead)

    def take_back(self, tensors: Sequence[Tensor], into: Sequence[Tensor]) -> None:
        if tensors:
            self._back.fetch(tensors, into)

    def returned(self) -> None:
        self._back.mark().synchronize()

    def finish(self) -> None:
        self._ahead = self._used = self._left = None
        torch.accelerator.synchronize(self.device)


def _places(tensors: Sequence[Tensor]) -> tuple[int, ...]:
    return tuple(tensor.data_ptr() for tensor in tensors)
