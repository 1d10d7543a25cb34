"""Batches on their way to a rank's device, while that still computes on those before.

On an accelerator a batch is pinned, where it isn't, and copied on a stream of its own: neither the
host nor the device's computation waits for the copy. On CPU slots a batch is where it should be.
"""

from __future__ import annotations

from typing import Any

import torch

from saturn.data import nested


class Delivery:
    """One batch that was sent, and not taken yet."""

    def __init__(self, batch: Any, device: torch.device) -> None:
        """`batch` is there already, but for what can only be moved when it is taken."""
        self._batch, self._device = batch, device
        self._sent: list[torch.Tensor] = []
        self._arrived: torch.Event | None = None

    def being_copied(self, sent: list[torch.Tensor], stream: torch.Stream) -> Delivery:
        """The same, where the tensors of `sent` are still under way on `stream`."""
        self._sent, self._arrived = sent, torch.Event(self._device)
        self._arrived.record(stream)
        return self

    def taken(self) -> Any:
        """The batch on the device, for work that is given to the current stream from now on."""
        if self._arrived is not None:
            now = torch.accelerator.current_stream(self._device)
            now.wait_event(self._arrived)
            for tensor in self._sent:
                # Its memory is the other stream's; not to be given away before this one has read
                # it.
                tensor.record_stream(now)
            self._arrived, self._sent = None, []
            # What is no tensor moves in its own way: as far as it is known, on this stream.
            self._batch = nested.to_device(self._batch, self._device)
        return self._batch


class Deliveries:
    """One rank's copies to its device."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = None if device.type == "cpu" else torch.Stream(device)

    def send(self, batch: Any) -> Delivery:
        """Begin to copy `batch`, which lies in host memory."""
        stream = self._stream
        if stream is None:
            return Delivery(batch, self._device)
        sent: list[torch.Tensor] = []

        def copy(value: Any) -> Any:
            if not isinstance(value, torch.Tensor):
                return value
            sent.append(_pinned(value).to(self._device, non_blocking=True))
            return sent[-1]

        with stream:
            return Delivery(nested.mapped(batch, copy), self._device).being_copied(sent, stream)


def _pinned(tensor: torch.Tensor) -> torch.Tensor:
    """The same values where a copy to a device needn't wait for the host."""
    if tensor.device.type != "cpu" or tensor.layout != torch.strided or tensor.is_pinned():
        return tensor
    return tensor.pin_memory()
