"""How a model is cut into stages, without knowing its kind: which stage holds what.

A model is taken as code around a chain of layers: the children of a `ModuleList`, or of a
`Sequential` with those inside it. Each stage runs consecutive layers of the chain. Parameters
outside the chain go to the first stage where they are registered before it (embeddings), to the
last where after it (norms, heads), or to all stages where that is asked for. A parameter that is
registered in several places is held whole by each of their stages, under all of its names.

Unless it is said how many layers each stage has, they are balanced by the parameters that their
work passes over: those of embeddings, which are only looked up, don't count. This file looks at the
modules alone; whether the model's code can be run in stages shows when it runs (see
`stage_forward`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from types import MappingProxyType

import torch
from torch import nn

from saturn.techniques.interface import NotApplicable
from saturn.techniques.pipeline.absent import AbsentTensor
from saturn.techniques.pipeline.balance import balanced, numbers_of_layers

#: Names and modules, in order.
_Layers = tuple[tuple[str, nn.Module], ...]


@dataclass(frozen=True)
class Split:
    """A model cut into stages."""

    layers: _Layers  # the chain
    bounds: tuple[int, ...]  # stage s runs the layers from bounds[s] to before bounds[s + 1]
    holders: dict[str, tuple[int, ...]]  # for each name of a parameter, its stages

    @property
    def num_stages(self) -> int:
        """How many there are."""
        return len(self.bounds) - 1


def split(
    module: nn.Module,
    num_stages: int,
    *,
    everywhere: Collection[str] = (),
    numbers: Sequence[int] | None = None,
) -> Split:
    """Cut `module` into `num_stages`; the same on every rank.

    Every stage holds the parameters outside the chain that `everywhere` names. `numbers` says how
    many layers each has. Raises `NotApplicable` where there are too few layers, or others.
    """
    best: tuple[tuple[bool, float], _Layers, tuple[int, ...]] | None = None
    most: tuple[int, str] = (0, "")
    total = _cost(module.modules())
    chains: list[tuple[set[int], int]] = []  # what their layers hold, and cost
    for name, container in module.named_modules():
        if not isinstance(container, nn.ModuleList | nn.Sequential):
            continue
        layers = tuple(_chain(name, container))
        num_layers = sum(any(True for _ in layer.parameters()) for _, layer in layers)
        if len({id(layer) for _, layer in layers}) < len(layers):
            continue  # one module in two places: which of its calls is which can't be told
        most = max(most, (num_layers, name), key=lambda pair: pair[0])
        if num_layers < num_stages:
            continue
        before, after = _costs_outside(module, [layer for _, layer in layers])
        costs = [_cost(layer.modules()) for _, layer in layers]
        # A list within a layer of a chain is the better chain only where it is most of that chain.
        if any(id(container) in inside and 3 * sum(costs) < 2 * cost for inside, cost in chains):
            continue
        chains.append(({id(part) for _, layer in layers for part in layer.modules()}, sum(costs)))
        bounds, largest = balanced(costs, num_stages, before=before, after=after)
        # A chain that is the bulk of the model; then the best balance; then the first, since
        # modules come from the outside in.
        merit = (2 * sum(costs) < total, largest)
        if best is None or merit < best[0]:
            best = (merit, layers, bounds)
    if best is not None:
        _, layers, bounds = best
        if numbers is not None:
            bounds = _bounds(numbers, num_stages, len(layers))
        return Split(layers, bounds, _holders(module, layers, bounds, everywhere))
    if most[0] == 0:
        raise NotApplicable("the model has no chain of layers (a ModuleList or a Sequential)")
    where = f"`{most[1]}`" if most[1] else "the model"
    raise NotApplicable(
        f"{where} has {most[0]} layers with parameters, too few for {num_stages} stages"
    )


def keep_only(module: nn.Module, cut: Split, stages: Collection[int], device: torch.device) -> None:
    """Leave in `module` what `stages` hold; the rest becomes tensors that are absent on `device`.

    What is left stays where it is. Parameters keep their names, and buffers outside the chain stay
    on every stage.
    """
    own = {number for s in stages for number in range(cut.bounds[s], cut.bounds[s + 1])}
    inside = {
        id(part): number for number, (_, layer) in enumerate(cut.layers) for part in layer.modules()
    }
    dropped: list[nn.Parameter] = []
    for prefix, part in module.named_modules():
        number = inside.get(id(part))
        for name, parameter in list(part._parameters.items()):
            full = f"{prefix}.{name}" if prefix else name
            if parameter is None or not set(stages).isdisjoint(cut.holders[full]):
                continue
            dropped.append(parameter)
            del part._parameters[name]
            _put_absent(part, name, parameter, device, full)
        for name, buffer in list(part._buffers.items()):
            if buffer is not None and number is not None and number not in own:
                del part._buffers[name]
                _put_absent(part, name, buffer, device, f"{prefix}.{name}")
    for parameter in dropped:
        # Code that kept a reference of its own finds nothing in it, rather than stale weights.
        parameter.data = torch.empty(0, dtype=parameter.dtype)


def least_bytes(
    module: nn.Module,
    cut: Split,
    *,
    num_places: int,
    optimizer_state_ratio: float,
    num_data: int = 1,
    num_parts: Mapping[int, int] = MappingProxyType({}),
) -> list[int]:
    """For each place of the pipeline what a device there holds at the least.

    Parameters, gradients, and state of as many of the stages as there are for each of `num_places`.
    `num_parts` says by the id of a parameter into how many parts a tensor group splits it. What
    is there is split once more over `num_data` devices, but for a copy of it, gathered while
    batches run.
    """
    sizes = [0.0] * num_places
    for name, parameter in module.named_parameters():
        size = parameter.nbytes / num_parts.get(id(parameter), 1)
        trained = size * (1 + optimizer_state_ratio) if parameter.requires_grad else 0.0
        if num_data == 1:
            held = size + trained
        else:  # before any gradient is there, or at the optimizer's step
            state = size * optimizer_state_ratio if parameter.requires_grad else 0.0
            held = max(size + (size + state) / num_data, (size + trained) / num_data)
        for place in {stage % num_places for stage in cut.holders[name]}:
            sizes[place] += held
    return [int(size) for size in sizes]


def kinds_of_layers(cut: Split) -> list[str]:
    """A text for each layer, the same for those that are built alike. Asked of the whole model."""
    return [
        repr([(name, type(part).__qualname__) for name, part in layer.named_modules()])
        + repr(
            [
                (name, tuple(parameter.shape), parameter.dtype, parameter.requires_grad)
                for name, parameter in layer.named_parameters()
            ]
        )
        for _, layer in cut.layers
    ]


def thriftiest_numbers(module: nn.Module, cut: Split) -> list[int]:
    """How many layers each of as many stages has where they hold as equal parts as can be."""
    layers = [layer for _, layer in cut.layers]
    ends: list[dict[int, int]] = [{}, {}]
    for after, _, part in _outside(module, layers):
        ends[after] |= {id(each): each.nbytes for each in part.parameters(recurse=False)}
    at_first, at_last = (sum(end.values()) for end in ends)
    costs = [sum(parameter.nbytes for parameter in layer.parameters()) for layer in layers]
    bounds, _ = balanced(costs, cut.num_stages, before=at_first, after=at_last)
    return numbers_of_layers(bounds)


def _bounds(numbers: Sequence[int], num_stages: int, num_layers: int) -> tuple[int, ...]:
    if len(numbers) != num_stages or sum(numbers) != num_layers or min(numbers) < 1:
        raise NotApplicable(
            f"the cut {list(numbers)} is none of {num_layers} layers into {num_stages} stages"
        )
    return (0, *accumulate(numbers))


def _chain(name: str, container: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """The layers of a container; a `Sequential` in a `Sequential` stands for its own children."""
    for key, child in container.named_children():
        full = f"{name}.{key}" if name else key
        if _runs_in_order(container) and _runs_in_order(child):
            yield from _chain(full, child)
        else:
            yield full, child


def _runs_in_order(module: nn.Module) -> bool:
    return isinstance(module, nn.Sequential) and type(module).forward is nn.Sequential.forward


def _outside(
    module: nn.Module, layers: Sequence[nn.Module]
) -> Iterator[tuple[bool, str, nn.Module]]:
    """(registered after the chain's beginning, name, module) of each module outside the chain.

    A module is given under each of its names.
    """
    inside = {id(part) for layer in layers for part in layer.modules()}
    after = False
    for name, part in module.named_modules(remove_duplicate=False):
        if id(part) in inside:
            after = True
        else:
            yield after, name, part


def _costs_outside(module: nn.Module, layers: Sequence[nn.Module]) -> tuple[int, int]:
    """What the work before and after the chain costs."""
    before: list[nn.Module] = []
    behind: list[nn.Module] = []
    for after, _, part in _outside(module, layers):
        (behind if after else before).append(part)
    return _cost(before), _cost(behind)


def _cost(modules: Iterator[nn.Module] | Sequence[nn.Module]) -> int:
    """Parameters that these modules' work passes over; at least 1."""
    return 1 + sum(
        parameter.numel()
        for module in modules
        if not isinstance(module, nn.Embedding | nn.EmbeddingBag)
        for parameter in module.parameters(recurse=False)
    )


def _holders(
    module: nn.Module,
    layers: Sequence[tuple[str, nn.Module]],
    bounds: Sequence[int],
    everywhere: Collection[str],
) -> dict[str, tuple[int, ...]]:
    """For each name of a parameter the stages that hold it."""
    num_stages = len(bounds) - 1
    stages: dict[int, set[int]] = {}
    for stage, (start, stop) in enumerate(pairwise(bounds)):
        for _, layer in layers[start:stop]:
            for parameter in layer.parameters():
                stages.setdefault(id(parameter), set()).add(stage)
    for after, prefix, part in _outside(module, [layer for _, layer in layers]):
        for name, parameter in part.named_parameters(prefix, recurse=False):
            end = num_stages - 1 if after else 0
            stages.setdefault(id(parameter), set()).update(
                range(num_stages) if name in everywhere else (end,)
            )
    # An optimizer needs something to optimize: a stage whose layers are all frozen holds a copy
    # of a small parameter too, as if it were tied.
    trainable = [p for p in module.parameters() if p.requires_grad]
    if trainable:
        smallest = min(trainable, key=torch.numel)
        for stage in range(num_stages):
            if not any(stage in stages[id(p)] for p in trainable):
                stages[id(smallest)].add(stage)
    return {
        name: tuple(sorted(stages[id(parameter)]))
        for name, parameter in module.named_parameters(remove_duplicate=False)
    }


def _put_absent(
    part: nn.Module, name: str, tensor: torch.Tensor, device: torch.device, full: str
) -> None:
    # Into the dictionary itself: to a module, a parameter's name is a parameter's for ever.
    part.__dict__[name] = AbsentTensor.of(tensor.shape, tensor.dtype, device, [full])
