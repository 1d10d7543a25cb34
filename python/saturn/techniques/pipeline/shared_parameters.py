"""Parameters that several ranks of a pipeline hold, such as tied embeddings, with one gradient.

Each holder's backward gives only the gradient of its own use of the parameter. The gradients are
summed over the holders, so all holders have the same gradient and make the same optimizer step.
The gradient counts once in the norm. If the ranks of a stage split a parameter, all its holders
split it alike, and each sums its part.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor

from saturn.techniques.gradient_norm import total_norm
from saturn.techniques.pipeline.line import Line


class SharedParameters:
    """The shared parameters of this rank's `module`; every rank of the gang makes this object."""

    def __init__(
        self, module: nn.Module, holders: Mapping[str, tuple[int, ...]], line: Line
    ) -> None:
        """`holders` gives the stages that hold each parameter, by its name in the whole model."""
        self._module = module
        self._line = line
        own = dict(module.named_parameters(remove_duplicate=False))
        places_of = {
            name: tuple(sorted(set(map(line.place_of, stages)))) for name, stages in holders.items()
        }
        groups = line.open_groups({places for places in places_of.values() if len(places) > 1})
        # Shared parameters, with the group of each one's holders.
        self._shared: list[tuple[nn.Parameter, dist.ProcessGroup]] = []
        self._counted_elsewhere: set[int] = set()
        seen: set[int] = set()
        for name, places in places_of.items():
            if line.place not in places or len(places) == 1 or id(own[name]) in seen:
                continue
            seen.add(id(own[name]))
            if own[name].requires_grad:
                self._shared.append((own[name], groups[places]))
            if line.place != places[0]:
                self._counted_elsewhere.add(id(own[name]))

    def sum_gradients(self) -> None:
        """Sum the gradients of each parameter over its holders."""
        for group in {id(group): group for _, group in self._shared}.values():
            parameters = [parameter for parameter, of in self._shared if of is group]
            # In host memory, so that no host waits for its device.
            used = torch.tensor([float(parameter.grad is not None) for parameter in parameters])
            dist.all_reduce(used, group=group)
            for parameter, num_used in zip(parameters, used.tolist(), strict=True):
                # A parameter without a gradient anywhere gets none, as on one device: no step.
                if num_used:
                    dist.all_reduce(_own_gradient(parameter), group=group)

    def gradient_norm(self) -> torch.Tensor:
        """The 2-norm of the gradients of all ranks, each parameter counted once."""
        gradients = [
            parameter.grad
            for parameter in self._module.parameters()
            if parameter.grad is not None and id(parameter) not in self._counted_elsewhere
        ]
        norm = total_norm(gradients).to(self._line.device, torch.float64)
        squared = norm.square()
        dist.all_reduce(squared, group=self._line.group)
        return squared.sqrt().float()


def _own_gradient(parameter: nn.Parameter) -> torch.Tensor:
    """This rank's part of the gradient, split as the parameter is; zeros if there is none."""
    if parameter.grad is None:
        parameter.grad = torch.zeros_like(parameter)
    if not isinstance(parameter, DTensor):
        return parameter.grad
    gradient = parameter.grad
    assert isinstance(gradient, DTensor)
    if gradient.placements != parameter.placements:
        gradient = gradient.redistribute(placements=parameter.placements)
        parameter.grad = gradient
    return gradient.to_local()
