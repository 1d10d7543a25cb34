"""Experts of a mixture whose weights are stacked in one tensor: each rank computes its own.

Such a module of transformers gets the tokens, and for each token the numbers and weights of its
experts. The first dimension of its tensors is the expert. It says how many experts there are
(`num_experts`), and ignores tokens for the number after the last expert. So a rank numbers its own
experts from 0, sends all other tokens to that ignored number, and the ranks sum their outputs.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ParallelStyle

#: The attribute in which a module has its number of experts.
NUM_EXPERTS = "num_experts"
#: The attribute that tells a module that it may get tokens for other ranks' experts.
_ELSEWHERE = "_is_expert_parallel"


def num_experts(module: nn.Module) -> int | None:
    """The number of experts in tensors of `module` that can be split; None if there are none."""
    number = vars(module).get(NUM_EXPERTS)
    tensors = list(module.parameters())
    if not isinstance(number, int) or _ELSEWHERE not in vars(module) or not tensors:
        return None
    is_by_expert = all(each.dim() > 1 and each.shape[0] == number for each in tensors)
    return number if is_by_expert and not list(module.buffers()) else None


class SplitExperts(ParallelStyle):
    """Splits the experts over the ranks; takes and gives whole values."""

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        for name, parameter in list(module._parameters.items()):
            if parameter is None:
                continue
            # Every rank has the same values, so each cuts out its own part.
            split = distribute_tensor(parameter, device_mesh, [Shard(0)], src_data_rank=None)
            trains = parameter.requires_grad
            module.register_parameter(name, nn.Parameter(split, requires_grad=trains))
        own = _OwnExperts(device_mesh)
        module.register_forward_pre_hook(own.before)
        module.register_forward_hook(own.add_up)
        module.register_forward_hook(own.after, always_call=True)
        return module


class _Used(torch.autograd.Function):
    """Marks the experts' tensors as used, even if no token came to them.

    Their gradients are then zero, as on one device, instead of missing: optimizers treat these
    cases differently.
    """

    @staticmethod
    def forward(ctx: Any, output: Tensor, *parameters: Tensor) -> Tensor:
        ctx.parameters = [(each.shape, each.dtype, each.device) for each in parameters]
        return output.view_as(output)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        zeros = [
            torch.zeros(shape, dtype=dtype, device=device) if is_needed else None
            for (shape, dtype, device), is_needed in zip(
                ctx.parameters, ctx.needs_input_grad[1:], strict=True
            )
        ]
        return gradient, *zeros


class _OwnExperts:
    """Hooks around the forward of one split module."""

    def __init__(self, mesh: DeviceMesh) -> None:
        self._mesh = mesh
        self._split: dict[str, Any] = {}

    def before(self, module: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        tokens, numbers, weights, *rest = inputs
        for name, parameter in module._parameters.items():
            if isinstance(parameter, DTensor):
                self._split[name] = parameter
        for name, parameter in self._split.items():
            module._parameters[name] = parameter.to_local()
        setattr(module, _ELSEWHERE, True)
        own = getattr(module, NUM_EXPERTS)
        numbers = numbers - own * self._mesh.get_local_rank()
        is_own = (numbers >= 0) & (numbers < own)
        numbers = torch.where(is_own, numbers, own)
        weights = self._summed_backward(weights).masked_fill(~is_own, 0.0)
        return (self._summed_backward(tokens), numbers, weights, *rest)

    def add_up(self, module: nn.Module, _: Any, output: Tensor) -> Tensor:
        output = _Used.apply(output, *module.parameters())
        parts = DTensor.from_local(output, self._mesh, [Partial()], run_check=False)
        return parts.redistribute(placements=[Replicate()]).to_local()

    def after(self, module: nn.Module, *_: Any) -> None:
        for name, parameter in self._split.items():
            module._parameters[name] = parameter
        self._split.clear()
        setattr(module, _ELSEWHERE, False)

    def _summed_backward(self, value: Tensor) -> Tensor:
        """`value`, whose gradient is the sum of all ranks' gradients."""
        whole = DTensor.from_local(value, self._mesh, [Replicate()], run_check=False)
        return whole.to_local(grad_placements=[Partial()])
