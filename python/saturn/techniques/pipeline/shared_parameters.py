"""Parameters that several stages hold, such as tied embeddings: one gradient, counted once.

Each holder's backward leaves only what its own use of the parameter adds. Summed over the holders,
the gradient is the same on each, and so is what the optimizer makes of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from saturn.rank.gang import Gang


class SharedParameters:
    """The shared parameters of this rank's `module`; every rank of the gang makes one."""

    def __init__(
        self, module: nn.Module, holders: Mapping[str, tuple[int, ...]], gang: Gang
    ) -> None:
        """`holders` says for each name of the whole model which ranks hold that parameter."""
        self._module = module
        self._gang = gang
        own = dict(module.named_parameters(remove_duplicate=False))
        # Groups are opened by all ranks together, also by those that aren't in them.
        groups = {
            ranks: dist.new_group(ranks)
            for ranks in sorted({ranks for ranks in holders.values() if len(ranks) > 1})
        }
        self._shared: list[tuple[nn.Parameter, Any]] = []  # with the group of its holders
        self._counted_elsewhere: set[int] = set()
        seen: set[int] = set()
        for name, ranks in holders.items():
            if gang.rank not in ranks or len(ranks) == 1 or id(own[name]) in seen:
                continue
            seen.add(id(own[name]))
            if own[name].requires_grad:
                self._shared.append((own[name], groups[ranks]))
            if gang.rank != ranks[0]:
                self._counted_elsewhere.add(id(own[name]))

    def sum_gradients(self) -> None:
        """Add up the gradients over the holders of each parameter."""
        for group in {id(group): group for _, group in self._shared}.values():
            parameters = [parameter for parameter, of in self._shared if of is group]
            used = torch.tensor(
                [float(parameter.grad is not None) for parameter in parameters],
                device=self._gang.device,
            )
            dist.all_reduce(used, group=group)
            for parameter, num_used in zip(parameters, used.tolist(), strict=True):
                # Without a gradient anywhere there is none, as on one device: no step is taken.
                if num_used:
                    if parameter.grad is None:
                        parameter.grad = torch.zeros_like(parameter)
                    dist.all_reduce(parameter.grad, group=group)

    def gradient_norm(self) -> torch.Tensor:
        """The 2-norm over the gradients of all ranks, each parameter's counted once."""
        gradients = [
            parameter.grad
            for parameter in self._module.parameters()
            if parameter.grad is not None and id(parameter) not in self._counted_elsewhere
        ]
        norm = torch.nn.utils.get_total_norm(gradients).to(self._gang.device, torch.float64)
        squared = norm.square()
        dist.all_reduce(squared)
        return squared.sqrt().float()
