"""A member's random stream: where torch's generators stand for this member while others run."""

from __future__ import annotations

from types import TracebackType

import torch


class Stream:
    """The state of the CPU's generator and the device's, as one member left them.

    As a context, what runs within it draws from this stream.
    """

    def __init__(self, device: torch.device) -> None:
        self._on = None if device.type == "cpu" else torch.get_device_module(device)
        self.device = device
        self.keep()

    def keep(self) -> None:
        """Take the generators' present state."""
        self._cpu = torch.default_generator.get_state()
        self._of_device = None if self._on is None else self._on.get_rng_state(self.device)

    def use(self) -> None:
        """Set the generators to this state."""
        torch.default_generator.set_state(self._cpu)
        if self._on is not None:
            self._on.set_rng_state(self._of_device, self.device)

    @property
    def state(self) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Where the stream stands; `go_to` returns there."""
        return self._cpu, self._of_device

    def go_to(self, state: tuple[torch.Tensor, torch.Tensor | None]) -> None:
        """Let the stream stand where it stood when `state` was read."""
        self._cpu, self._of_device = state

    def __enter__(self) -> None:
        self.use()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        self.keep()
