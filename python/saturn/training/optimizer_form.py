"""Which form of torch's optimizers steps a rank's parameters.

torch steps Adam, AdamW, SGD and Adagrad in several forms of the same arithmetic. The *fused* form
reads and writes each number once, in one kernel. torch never takes it unless it is asked to. Where
a rank computes on an accelerator, Saturn asks for it if the task leaves the choice open. This also
holds for parameters that a technique keeps in host memory there. On CPU slots the choice stays
torch's.

Forms differ in the last bits of their results, and in where they keep their count of steps.
Checkpoints hold the same state under each, so any form continues from any other.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

#: torch's names of the fused kernels.
_KERNELS: dict[type[torch.optim.Optimizer], str] = {
    torch.optim.Adam: "adam",
    torch.optim.AdamW: "adamw",
    torch.optim.SGD: "sgd",
    torch.optim.Adagrad: "adagrad",
}
#: torch can step parameters that are split over devices with these kernels.
_OF_SPLIT = ("adam", "adamw")
#: What an optimizer of these kernels refuses in its fused form, and takes in its others.
_REFUSES_SPARSE = (torch.optim.SGD, torch.optim.Adagrad)
#: In narrower types, forms would differ by more than the last bits of float32.
_DTYPES = (torch.float32, torch.float64)


class FormChosen(functools.partial[Any]):
    """An optimizer's class and settings whose form is not Saturn's to choose.

    For example that of a Trainer, which chooses by `TrainingArguments(optim=…)`.
    """


def choose_form(
    optimizer: torch.optim.Optimizer, made_by: Any, *, on_accelerator: bool
) -> torch.optim.Optimizer:
    """Have a fresh `optimizer` step in the fused form if that is open, possible and of use.

    `made_by` is the task's `optimizer_cls`. Returns the same optimizer.
    """
    if on_accelerator and not isinstance(made_by, FormChosen) and _can_fuse(optimizer):
        _set_fused(optimizer, True)
        _put_counts(optimizer)
    return optimizer


def suit_gradients(optimizer: torch.optim.Optimizer) -> None:
    """Leave the fused form if gradients are sparse and it can't take those; before each step."""
    if not isinstance(optimizer, _REFUSES_SPARSE) or not optimizer.param_groups[0].get("fused"):
        return
    if any(p.grad is not None and p.grad.is_sparse for p in _parameters(optimizer)):
        _set_fused(optimizer, None)


def _can_fuse(optimizer: torch.optim.Optimizer) -> bool:
    kernel = _KERNELS.get(type(optimizer))  # a subclass may step in its own way
    if kernel is None:
        return False
    for group in optimizer.param_groups:
        chosen = [group.get(name) for name in ("fused", "foreach")]
        if chosen != [None, None] or group.get("differentiable"):
            return False
    parameters = _parameters(optimizer)
    meshes = {p.device_mesh for p in parameters if isinstance(p, DTensor)}
    if meshes and (kernel not in _OF_SPLIT or len(meshes) > 1):
        return False
    if meshes and not all(isinstance(p, DTensor) for p in parameters):
        return False  # a kernel takes lists of one kind
    return all(p.dtype in _DTYPES and _has_kernel(kernel, p.device) for p in parameters)


def _has_kernel(kernel: str, device: torch.device) -> bool:
    return torch._C._dispatch_has_kernel_for_dispatch_key(
        f"aten::_fused_{kernel}_", device.type.upper()
    )


def _set_fused(optimizer: torch.optim.Optimizer, fused: bool | None) -> None:
    # As if `fused=` had been given: the optimizer may have been made by a function that takes none.
    optimizer.defaults["fused"] = fused
    for group in optimizer.param_groups:
        group["fused"] = fused


def _put_counts(optimizer: torch.optim.Optimizer) -> None:
    """Put counts of steps that exist already (Adagrad's) where the fused form wants them."""
    for parameter, state in optimizer.state.items():
        count = state.get("step")
        if isinstance(count, Tensor):
            state["step"] = count.to(device=parameter.device, dtype=torch.float32)


def _parameters(optimizer: torch.optim.Optimizer) -> list[nn.Parameter]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]
