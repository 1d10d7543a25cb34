"""Batch norm over the whole global batch, whatever the number of data ranks.

A technique that slices the batch would give each batch norm only its slice's statistics. Here the
statistics are the global batch's. The ranks exchange count, mean and variance of their slices, and
in the backward pass the two sums that depend on them. So outputs, gradients and running statistics
are those of one process, up to the order of sums. With gradient accumulation, each of the loader's
batches has its own statistics, as in one process.

This is for techniques under which every rank runs every layer, and ranks of one slice run it alike.
Techniques that slice further, or run layers twice, do not apply to models with batch norm. Running
statistics of instance norm are not handled here; they keep batches whole (see `model_changes`).
"""

from __future__ import annotations

from collections.abc import Callable
from types import MethodType
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules.batchnorm import SyncBatchNorm, _BatchNorm


class GlobalBatchNorm:
    """The batch norms of one rank's model, which must already be parallelised on its device."""

    def __init__(
        self,
        module: nn.Module,
        *,
        data_size: int,
        world_size: int,
        note: Callable[[str], None],
    ) -> None:
        """Make each batch norm in `module` global, if there is more than one slice."""
        #: Whether the present slice counts; a stand-in for an empty slice does not.
        self.counts = True
        self._ranks_a_slice = world_size / data_size
        self._module = module
        if data_size == 1:
            return
        own = {type(inner).__name__ for inner in module.modules() if _has_own_forward(inner)}
        for name in sorted(own):
            note(
                f"{name} is a batch norm with a forward of its own: on more than one device it "
                "takes the statistics of each device's part of the batch, not of the whole batch"
            )
        for inner in module.modules():
            if isinstance(inner, _BatchNorm) and not _has_own_forward(inner):
                run = MethodType(self._forward_of(inner.forward), inner)
                inner.forward = run  # type: ignore[method-assign]

    def _forward_of(self, local: Callable[[Tensor], Tensor]) -> Callable[..., Tensor]:
        """The forward that replaces `local`; in evaluation it calls `local`."""

        def forward(norm: _BatchNorm, inputs: Tensor) -> Tensor:
            has_no_others = norm.running_mean is None and norm.running_var is None
            # In an evaluation each rank has a whole batch, so its own statistics are right.
            if norm.training or (has_no_others and self._module.training):
                norm._check_input_dim(inputs)  # type: ignore[no-untyped-call]
                return self._normalise(norm, inputs)
            return local(inputs)

        return forward

    def _normalise(self, norm: _BatchNorm, inputs: Tensor) -> Tensor:
        mean, variance, count = _statistics(inputs.detach(), counts=self.counts)
        values = count / self._ranks_a_slice
        # Only if the global batch has one value a channel, this rank can have one or none. Only
        # such a rank compares, because reading `values` waits for the device.
        if inputs.numel() == inputs.shape[1] and not values > 1:
            raise ValueError(
                "batch norm needs more than 1 value per channel when training; the global batch "
                f"has {float(values):g}, of inputs like {tuple(inputs.shape)}"
            )
        if norm.training and norm.track_running_stats:
            _follow(norm, mean, variance * (values / (values - 1)))
        normalised: Tensor = _Normalise.apply(
            *(inputs, norm.weight, norm.bias, mean, variance, count, norm.eps, self.counts)
        )
        return normalised


def _has_own_forward(module: nn.Module) -> bool:
    # Compared by function, because techniques give modules classes of their own (FSDP2 does).
    known = (_BatchNorm.forward, SyncBatchNorm.forward)
    return isinstance(module, _BatchNorm) and type(module).forward not in known


def _statistics(inputs: Tensor, *, counts: bool) -> tuple[Tensor, Tensor, Tensor]:
    """(mean, biased variance, number of values) of each channel over all ranks' `inputs`."""
    wide = inputs.to(torch.promote_types(inputs.dtype, torch.float32))
    variance, mean = torch.var_mean(wide, dim=_but_channels(inputs), correction=0)
    count = inputs.numel() // inputs.shape[1] if counts else 0
    own = torch.cat([mean, variance, mean.new_full((1,), count)])
    gathered = [torch.empty_like(own) for _ in range(dist.get_world_size())]
    dist.all_gather(gathered, own)
    table = torch.stack(gathered).double()
    means, variances, counted = table[:, : len(mean)], table[:, len(mean) : -1], table[:, -1:]
    total = counted.sum()
    mean_of_all = (counted * means).sum(0) / total
    spread = variances + (means - mean_of_all).square()
    variance_of_all = (counted * spread).sum(0) / total
    dtype = wide.dtype
    return mean_of_all.to(dtype), variance_of_all.to(dtype), total.to(dtype)


def _follow(norm: _BatchNorm, mean: Tensor, variance: Tensor) -> None:
    """Update the running statistics as torch's batch norm does."""
    if norm.num_batches_tracked is not None:
        norm.num_batches_tracked.add_(1)
    factor: Any = norm.momentum
    if factor is None:  # the mean over all batches; kept a tensor, so nobody waits for the device
        tracked = norm.num_batches_tracked
        factor = 0.0 if tracked is None else tracked.double().reciprocal()
    for running, new in ((norm.running_mean, mean), (norm.running_var, variance)):
        if running is not None:
            running.copy_((1 - factor) * running + factor * new)


class _Normalise(torch.autograd.Function):
    """Normalise by the statistics of all ranks' inputs; the gradient includes that dependence."""

    @staticmethod
    def forward(
        ctx: Any,
        inputs: Tensor,
        weight: Tensor | None,
        bias: Tensor | None,
        mean: Tensor,
        variance: Tensor,
        count: Tensor,
        eps: float,
        counts: bool,
    ) -> Tensor:
        ctx.save_for_backward(inputs, weight, mean, torch.rsqrt(variance + eps), count)
        ctx.counts = counts
        return functional.batch_norm(inputs, mean, variance, weight, bias, eps=eps)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        inputs, weight, mean, inverse, count = ctx.saved_tensors
        shape = (1, -1, *[1] * (inputs.dim() - 2))
        dims = _but_channels(inputs)
        gradient = gradients[0].to(mean.dtype)
        normal = (inputs.to(mean.dtype) - mean.view(shape)) * inverse.view(shape)
        of_bias, of_weight = gradient.sum(dims), (gradient * normal).sum(dims)
        if ctx.needs_input_grad[0]:
            through = torch.cat([of_bias, of_weight])
            dist.all_reduce(through)
            if ctx.counts:
                by_mean, by_variance = (through / count).view(2, *shape[1:]).unsqueeze(1)
                gradient = gradient - by_mean - normal * by_variance
            scale = inverse if weight is None else inverse * weight
            gradient = (gradient * scale.view(shape)).to(inputs.dtype)
        return (
            gradient if ctx.needs_input_grad[0] else None,
            of_weight if ctx.needs_input_grad[1] else None,
            of_bias if ctx.needs_input_grad[2] else None,
            *[None] * 5,
        )


def _but_channels(inputs: Tensor) -> list[int]:
    return [dim for dim in range(inputs.dim()) if dim != 1]
