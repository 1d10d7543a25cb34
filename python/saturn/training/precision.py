"""Mixed precision: a task's forward and loss under bf16 autocast, whatever the plan.

Parameters, gradients and optimizer state stay in the precision that the model was built in.
"""

from __future__ import annotations

import functools
from contextlib import AbstractContextManager, nullcontext
from types import MethodType
from typing import Any, cast

import torch
from torch import nn

from saturn.rank.exceptions import NotApplicable


class Precision:
    """What the forward and the loss of one task are computed in: "float32" or "bf16"."""

    def __init__(self, name: str, device: torch.device) -> None:
        """Raises `NotApplicable` where the device has no such arithmetic."""
        self._is_bf16 = name == "bf16"
        self._device = device
        if self._is_bf16 and device.type == "cuda" and not _computes_bf16(device):
            major, minor = torch.cuda.get_device_capability(device)
            raise NotApplicable(
                f"precision 'bf16': {torch.cuda.get_device_name(device)} does not compute in it "
                f"(compute capability {major}.{minor}; 8.0 and later do)"
            )

    def context(self) -> AbstractContextManager[Any]:
        """Entered around whatever computes in this precision."""
        if not self._is_bf16:
            return nullcontext()
        return torch.autocast(self._device.type, dtype=torch.bfloat16)

    def put_on(self, module: nn.Module) -> None:
        """Have the forward of `module` run in it, whoever calls it.

        Inside the module, so that any technique that runs the model's own forward, wrapped or cut
        into stages, computes alike.
        """
        if not self._is_bf16:
            return
        context, forward = self.context, module.forward
        if getattr(forward, "__self__", None) is not module:  # put there by somebody, for this one

            @functools.wraps(forward)
            def call(*args: Any, **kwargs: Any) -> Any:
                with context():
                    return forward(*args, **kwargs)

            module.forward = call
            return
        # A method again, so that a copy of the module runs the copy's own.
        function = cast(MethodType, forward).__func__

        @functools.wraps(function)
        def run(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
            with context():
                return function(self, *args, **kwargs)

        module.forward = MethodType(run, module)


def _computes_bf16(device: torch.device) -> bool:
    with torch.cuda.device(device):
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))


FLOAT32 = Precision("float32", torch.device("cpu"))
