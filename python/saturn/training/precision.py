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


class Precision:
    """What the forward and the loss of one task are computed in: "float32" or "bf16"."""

    def __init__(self, name: str, device: torch.device) -> None:
        self._is_bf16 = name == "bf16"
        self._device = device

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


FLOAT32 = Precision("float32", torch.device("cpu"))
