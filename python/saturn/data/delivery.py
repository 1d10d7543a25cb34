"""Copy batches to a rank's device while the device still computes on earlier batches.

On an accelerator, a batch is pinned, if it isn't yet, and copied on a stream of its own. Neither
the host nor the device's computation waits for the copy. On CPU slots nothing is copied.
"""

from __future__ import annotations

from typing import Any

import torch

from saturn.data import nested
from saturn.rank.side_stream import Sent, SideStream


class Delivery:
    """One batch that was sent, and may still be on its way."""

    def __init__(self, batch: Any, device: torch.device, sent: Sent | None = None) -> None:
        """`sent` holds the tensors of `batch`, in its order; None if nothing was sent."""
        self._batch, self._device, self._sent = batch, device, sent

    def taken(self) -> Any:
        """The batch on the device, for work launched on the current stream from now on."""
        if self._sent is not None:
            copies = iter(self._sent.taken())
            arrived = nested.mapped(
                self._batch, lambda part: next(copies) if isinstance(part, torch.Tensor) else part
            )
            # Objects that are no tensors move in their own way, on this stream.
            self._batch, self._sent = nested.to_device(arrived, self._device), None
        return self._batch


class Deliveries:
    """One rank's copies to its device."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = None if device.type == "cpu" else SideStream(device)

    def send(self, batch: Any) -> Delivery:
        """Begin to copy `batch`, which is in host memory."""
        if self._stream is None:
            return Delivery(batch, self._device)
        tensors: list[torch.Tensor] = []

        def note(part: Any) -> Any:
            if isinstance(part, torch.Tensor):
                tensors.append(part)
            return part

        nested.mapped(batch, note)
        sent = self._stream.send([_pinned(tensor) for tensor in tensors])
        return Delivery(batch, self._device, sent)


def _pinned(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor in pinned memory, from which a copy to a device runs asynchronously."""
    if tensor.device.type != "cpu" or tensor.layout != torch.strided or tensor.is_pinned():
        return tensor
    return tensor.pin_memory()
