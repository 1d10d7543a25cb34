"""How single modules are split: the styles that a plan may use for each kind of module.

The kinds are `nn.Linear`, `nn.Embedding`, transformers' `Conv1D` (a linear layer whose weight is
transposed, (inputs, outputs)), and experts in one tensor (see `experts`). torch has most of the
styles. The styles here are for `Conv1D`, and for layers whose output is several values in a row,
such as query, key and value. There, every rank needs its part of each value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import (
    DTensor,
    Partial,
    Replicate,
    Shard,
    distribute_module,
    distribute_tensor,
)
from torch.distributed.tensor.parallel import ColwiseParallel, ParallelStyle, RowwiseParallel
from torch.distributed.tensor.placement_types import Placement

from saturn.techniques.interface import NotApplicable
from saturn.techniques.tensor.experts import SplitExperts, num_experts

#: Styles of modules that stay whole. `SUMMED` modules lie between split ones and see only this
#: rank's part of the values, such as the norm of each head: their gradients must be summed.
WHOLE, SUMMED = "replicate", "replicated_with_grad_allreduce"
#: The style for experts in one tensor, and the kind of the module that holds them.
EXPERTS, _EXPERTS_MODULE = "experts", "experts module"


class SplitLinear(ParallelStyle):
    """Splits a linear layer by its outputs or inputs; its weight may be transposed."""

    def __init__(self, *, weight: int, by_outputs: bool, parts: int = 1, alone: bool = False):
        """`weight` is the dimension of the weight that is split.

        The outputs may be several values (`parts`) of one size in a row. With `alone`, the layer
        takes and gives whole values.
        """
        super().__init__()
        self._weight, self._by_outputs = weight, by_outputs
        self._parts, self._alone = parts, alone

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        return distribute_module(
            module,
            device_mesh,
            self._partition,
            self._take,  # type: ignore[arg-type]
            self._give,  # type: ignore[arg-type]
        )

    def _partition(self, _: str, module: nn.Module, mesh: DeviceMesh) -> None:
        for name, parameter in list(module._parameters.items()):
            if parameter is None:
                continue
            placement: Placement = Shard(self._weight)
            if parameter.dim() == 1:  # a bias, which is split like the outputs
                placement = Shard(0) if self._by_outputs else Replicate()
            # Every rank has the same values, so each cuts out its own part.
            split = distribute_tensor(parameter, mesh, [placement], src_data_rank=None)
            trains = parameter.requires_grad
            module.register_parameter(name, nn.Parameter(split, requires_grad=trains))

    def _take(self, _: nn.Module, inputs: tuple[Any, ...], mesh: DeviceMesh) -> tuple[Any, ...]:
        taken: Placement = Replicate() if self._by_outputs or self._alone else Shard(-1)
        value = DTensor.from_local(inputs[0], mesh, [taken], run_check=False)
        if not self._by_outputs and self._alone:
            value = value.redistribute(placements=[Shard(-1)])
        return (value, *inputs[1:])

    def _give(self, _: nn.Module, output: DTensor, mesh: DeviceMesh) -> Tensor:
        if self._by_outputs and self._parts > 1:
            return _own_part_of_each(output, mesh, self._parts)
        given: Placement = Shard(-1) if self._by_outputs and not self._alone else Replicate()
        return output.redistribute(placements=[given]).to_local()


def _own_part_of_each(output: DTensor, mesh: DeviceMesh, parts: int) -> Tensor:
    """This rank's part of each of several values in a row.

    The weight is cut straight through, like all weights, so that any technique can load it. So a
    rank doesn't compute the part that it needs: the ranks gather everything, and each takes its
    parts. In the backward pass, each rank gets the summed gradient of what it computed.
    """
    whole = output.redistribute(placements=[Replicate()]).to_local(grad_placements=[Partial()])
    own = [
        value.chunk(mesh.size(), dim=-1)[mesh.get_local_rank()] for value in whole.chunk(parts, -1)
    ]
    return torch.cat(own, dim=-1)


@dataclass(frozen=True)
class Style:
    """How a module of one kind is split."""

    make: Callable[[], ParallelStyle]
    #: The dimension of the weight that is split.
    dimension: int
    #: Whether the outputs are split, and a bias with them.
    by_outputs: bool
    #: Whether it takes and gives whole values, so that the module may stay whole instead.
    alone: bool = False
    #: How many values of one size the output has; each of them is split.
    parts: int = 1


def _fused(parts: int, dimension: int) -> Style:
    return Style(
        lambda: SplitLinear(weight=dimension, by_outputs=True, parts=parts),
        *(dimension, True),
        parts=parts,
    )


def _conv1d(*, by_outputs: bool, alone: bool = False) -> Style:
    dimension = 1 if by_outputs else 0
    return Style(
        lambda: SplitLinear(weight=dimension, by_outputs=by_outputs, alone=alone),
        *(dimension, by_outputs, alone),
    )


_COLUMNS_ALONE = Style(lambda: ColwiseParallel(output_layouts=Replicate()), 0, True, alone=True)
_ROWS_ALONE = Style(lambda: RowwiseParallel(input_layouts=Replicate()), 1, False, alone=True)

#: The styles for each kind of module; most names are those of transformers.
STYLES: Mapping[str, Mapping[str, Style]] = {
    "nn.Linear": {
        "colwise": Style(ColwiseParallel, 0, True),
        "rowwise": Style(RowwiseParallel, 1, False),
        "colwise_gather_output": _COLUMNS_ALONE,
        "colwise_rep": _COLUMNS_ALONE,
        "rowwise_split_input": _ROWS_ALONE,
        "rowwise_rep": _ROWS_ALONE,
        "colwise_halves": _fused(2, 0),
        "colwise_thirds": _fused(3, 0),
    },
    "Conv1D": {
        "colwise": _conv1d(by_outputs=True),
        "rowwise": _conv1d(by_outputs=False),
        "colwise_gather_output": _conv1d(by_outputs=True, alone=True),
        "rowwise_split_input": _conv1d(by_outputs=False, alone=True),
        "colwise_halves": _fused(2, 1),
        "colwise_thirds": _fused(3, 1),
    },
    # An embedding's weight is transposed, compared with a linear layer's: (inputs, outputs).
    "nn.Embedding": {
        "embedding_rowwise": Style(
            lambda: RowwiseParallel(input_layouts=Replicate()), 0, False, alone=True
        ),
        "embedding_colwise": Style(
            lambda: ColwiseParallel(output_layouts=Replicate()), 1, True, alone=True
        ),
        # Each vector has numbers by head, such as a bias of attention.
        "embedding_parts": Style(ColwiseParallel, 1, True),
    },
    _EXPERTS_MODULE: {EXPERTS: Style(SplitExperts, 0, True)},
}
KNOWN = (*dict.fromkeys(name for styles in STYLES.values() for name in styles), SUMMED, WHOLE)


def kind_of(module: nn.Module) -> str | None:
    """The kind of a module; None if modules like it can't be split."""
    if isinstance(module, nn.Linear):
        return "nn.Linear"
    if isinstance(module, nn.Embedding):
        return "nn.Embedding"
    # Recognised by name and size, because transformers need not be installed.
    if type(module).__name__ == "Conv1D" and isinstance(module.weight, Tensor):
        return "Conv1D" if module.weight.dim() == 2 else None
    return _EXPERTS_MODULE if num_experts(module) is not None else None


def style_of(name: str, module: nn.Module, said: str | ParallelStyle) -> Style:
    """The style that a plan's word means for a module; `NotApplicable` if it means none."""
    kind = kind_of(module)
    if kind is None:
        raise NotApplicable(
            f"the plan splits `{name}`, which is a {type(module).__name__}; only nn.Linear, "
            "nn.Embedding, the Conv1D of transformers and its experts in one tensor can be split"
        )
    if isinstance(said, ParallelStyle):
        by_outputs = not isinstance(said, RowwiseParallel)
        dimension = int(by_outputs == (kind == "nn.Embedding"))
        return Style(lambda: said, dimension, by_outputs)
    if said not in STYLES[kind]:
        raise NotApplicable(
            f"the plan says `{said}` of `{name}`, which is an {kind}; that can be "
            f"{', '.join(STYLES[kind])}"
        )
    return STYLES[kind][said]
