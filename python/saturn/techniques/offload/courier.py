"""Brings parameters from the slow tier to the device, one layer ahead of the computation.

On an accelerator the next layer's copy runs on a stream of its own while the current one computes:
the device holds two layers. A CPU slot copies when asked: there is nobody else to do it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


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


@dataclass(frozen=True)
class _Delivery:
    """Copies that are under way."""

    of: tuple[int, ...]  # where the originals lie
    copies: list[Tensor]
    arrived: torch.Event


class StreamCourier(Courier):
    """Copies from pinned memory on a side stream."""

    def __init__(self, device: torch.device) -> None:
        super().__init__(device)
        self._stream = torch.Stream(device)
        self._ahead: _Delivery | None = None
        #: When the device is done with the last layer that it was given.
        self._used: torch.Event | None = None

    def bring(self, slow: Sequence[Tensor]) -> list[Tensor]:
        delivery, self._ahead = self._ahead, None
        if delivery is None or delivery.of != _places(slow):
            delivery = self._begin(slow)
        now = torch.accelerator.current_stream(self.device)
        now.wait_event(delivery.arrived)
        for copy in delivery.copies:
            # Its memory is the side stream's; not to be given away before this one has read it.
            copy.record_stream(now)
        return delivery.copies

    def done(self, *, ahead: Sequence[Tensor] | None = None) -> None:
        # The host runs far before the device. Unheld, it would order the copies of all layers at
        # once: so none is ordered before the last layer but this one has run.
        before, self._used = self._used, torch.Event()
        self._used.record(torch.accelerator.current_stream(self.device))
        if before is not None:
            before.synchronize()
        if ahead is not None:
            self._ahead = self._begin(ahead)

    def finish(self) -> None:
        self._ahead = self._used = None
        torch.accelerator.synchronize(self.device)

    def _begin(self, slow: Sequence[Tensor]) -> _Delivery:
        with self._stream:
            copies = [tensor.to(self.device, non_blocking=True, copy=True) for tensor in slow]
            arrived = torch.Event()
            arrived.record(self._stream)
        return _Delivery(_places(slow), copies, arrived)


def _places(tensors: Sequence[Tensor]) -> tuple[int, ...]:
    return tuple(tensor.data_ptr() for tensor in tensors)
