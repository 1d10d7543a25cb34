"""Mixed precision: a task's forward and loss under autocast to bf16 or fp16, whatever the plan.

Parameters, gradients and optimizer state stay in the precision that the model was built in. Under
`bf16-params`, `fsdp` also gathers parameters in bf16 and computes with those.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from types import MethodType
from typing import Any, cast

import torch
from torch import nn

from saturn.rank.exceptions import NotApplicable
from saturn.tasks.definition import BF16, BF16_PARAMS, FP16

#: The types to which autocast rounds.
_TYPES = {BF16: torch.bfloat16, FP16: torch.float16, BF16_PARAMS: torch.bfloat16}


class Precision:
    """The precision of one task's forward and loss: one of `PRECISIONS`."""

    def __init__(self, name: str, device: torch.device) -> None:
        """Raises `NotApplicable` if the device can't compute in this precision."""
        self._type = _TYPES.get(name)
        self._device = device
        is_bf16 = name in (BF16, BF16_PARAMS)
        if is_bf16 and device.type == "cuda" and not _computes_bf16(device):
            major, minor = torch.cuda.get_device_capability(device)
            raise NotApplicable(
                f"precision {name!r}: {torch.cuda.get_device_name(device)} does not compute in "
                f"bf16 (compute capability {major}.{minor}; 8.0 and later do)"
            )

    def context(self) -> AbstractContextManager[Any]:
        """The context in which code computes in this precision."""
        if self._type is None:
            return nullcontext()
        return torch.autocast(self._device.type, dtype=self._type)

    def put_on(self, module: nn.Module, *, outputs_in_float32: bool = False) -> None:
        """Have the forward of `module` run in this precision, whoever calls it.

        The change is inside the module, so all techniques compute alike that run its own forward,
        even wrapped or cut into stages. With `outputs_in_float32`, outputs are converted back to
        float32, for a loss that is computed outside.
        """
        if self._type is None:
            return
        context, forward = self.context, module.forward
        leave = _in_float32 if outputs_in_float32 else _as_they_are
        if getattr(forward, "__self__", None) is not module:  # a function that was put there

            @functools.wraps(forward)
            def call(*args: Any, **kwargs: Any) -> Any:
                with context():
                    outputs = forward(*args, **kwargs)
                return leave(outputs)

            module.forward = call
            return
        # Replaced by a method, so that a copy of the module runs the copy's own forward.
        function = cast(MethodType, forward).__func__

        @functools.wraps(function)
        def run(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
            with context():
                outputs = function(self, *args, **kwargs)
            return leave(outputs)

        module.forward = MethodType(run, module)


def _as_they_are(outputs: Any) -> Any:
    return outputs


def _in_float32(outputs: Any) -> Any:
    """A model's outputs in their own structure, with all bf16 and fp16 tensors in float32."""
    if isinstance(outputs, torch.Tensor):
        return outputs.float() if outputs.dtype in (torch.bfloat16, torch.float16) else outputs
    if isinstance(outputs, Mapping):  # transformers' outputs take keywords, dicts take a mapping
        changed = {key: _in_float32(value) for key, value in outputs.items()}
        return type(outputs)(**changed) if type(outputs) is not dict else changed
    if isinstance(outputs, tuple) and hasattr(outputs, "_fields"):
        return type(outputs)(*map(_in_float32, outputs))
    if isinstance(outputs, tuple | list):
        return type(outputs)(map(_in_float32, outputs))
    return outputs


def _computes_bf16(device: torch.device) -> bool:
    with torch.cuda.device(device):
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))


FLOAT32 = Precision("float32", torch.device("cpu"))
