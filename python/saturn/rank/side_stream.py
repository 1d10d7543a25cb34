"""Copy to and from an accelerator on a side stream, while the device computes.

Neither the host nor the device's computation waits for a copy until it is taken. What is in host
memory must be pinned, or the host waits after all; pinning is the caller's business.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


class Sent:
    """Copies that were sent, and may still be on their way."""

    def __init__(self, copies: list[Tensor], stream: torch.Stream, device: torch.device) -> None:
        self.copies, self._device = copies, device
        self._arrived = torch.Event(device)
        self._arrived.record(stream)

    def taken(self) -> list[Tensor]:
        """The copies, for work launched on the current stream from now on."""
        now = torch.accelerator.current_stream(self._device)
        now.wait_event(self._arrived)
        for copy in self.copies:
            # The side stream owns the memory; it must not be reused before this stream has read it.
            copy.record_stream(now)
        return self.copies


class SideStream:
    """Copies of one rank to or from its accelerator, one after another."""

    def __init__(self, device: torch.device) -> None:
        self._device, self._stream = device, torch.Stream(device)

    def send(self, tensors: Sequence[Tensor]) -> Sent:
        """Begin to copy `tensors`, each into memory of its own."""
        with self._stream:
            copies = [tensor.to(self._device, non_blocking=True, copy=True) for tensor in tensors]
            return Sent(copies, self._stream, self._device)

    def fetch(self, tensors: Sequence[Tensor], into: Sequence[Tensor]) -> None:
        """Begin to copy `tensors`, which launched work may still write, to host memory."""
        written = torch.Event(self._device)
        written.record(torch.accelerator.current_stream(self._device))
        self._stream.wait_event(written)
        with self._stream:
            for tensor, place in zip(tensors, into, strict=True):
                place.copy_(tensor, non_blocking=True)
                tensor.record_stream(self._stream)  # its memory must not be reused before that

    def mark(self) -> torch.Event:
        """An event that happens once all copies so far are done."""
        done = torch.Event(self._device)
        done.record(self._stream)
        return done
