"""How a model is cut into stages, without knowing its kind: which stage holds which parts.

A model is seen as code around a chain of layers: the children of a `ModuleList`, or of a
`Sequential` and the `Sequential`s inside it. Each stage runs consecutive layers of the chain.
Parameters that are registered before the chain (embeddings) go to the first stage. Parameters
behind it (norms, heads) go to the last stage. If requested, such parameters go to all stages. A
parameter that is registered in several places is held whole by all their stages, under all of its
names.

By default, stages are balanced by the number of parameters that their work passes over. Embeddings
don't count, since they only look rows up. This module looks only at the modules. Whether the
model's code can run in stages is found out when it runs (see `stage_forward`).
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
    holders: dict[str, tuple[int, ...]]  # the stages that hold a parameter, by its name

    @property
    def num_stages(self) -> int:
        """The number of stages."""
        return len(self.bounds) - 1


def split(
    module: nn.Module,
    num_stages: int,
    *,
    everywhere: Collection[str] = (),
    numbers: Sequence[int] | None = None,
) -> Split:
    """Cut `module` into `num_stages`, equally on every rank.

    Every stage holds the parameters outside the chain that `everywhere` names. `numbers` says how
    many layers each stage has. Raises `NotApplicable` if there are too few layers, or if `numbers`
    doesn't match them.
    """
    best: tuple[tuple[bool, float], _Layers, tuple[int, ...]] | None = None
    most: tuple[int, str] = (0, "")
    total = _cost(module.modules())
    chains: list[tuple[set[int], int]] = []  # (ids of the parts, cost) of the chains so far
    for name, container in module.named_modules():
        if not isinstance(container, nn.ModuleList | nn.Sequential):
            continue
        layers = tuple(_chain(name, container))
        num_layers = sum(any(True for _ in layer.parameters()) for _, layer in layers)
        if len({id(layer) for _, layer in layers}) < len(layers):
            continue  # a module in two places: its calls can't be told apart
        most = max(most, (num_layers, name), key=lambda pair: pair[0])
        if num_layers < num_stages:
            continue
        before, after = _costs_outside(module, [layer for _, layer in layers])
        costs = [_cost(layer.modules()) for _, layer in layers]
        # A list within a layer of another chain is better only if it is most of that chain.
        if any(id(container) in inside and 3 * sum(costs) < 2 * cost for inside, cost in chains):
            continue
        chains.append(({id(part) for _, layer in layers for part in layer.modules()}, sum(costs)))
        bounds, largest = balanced(costs, num_stages, before=before, after=after)
        # A chain that is most of the model wins; then the best balance; then the first, which is
        # the outermost.
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


def keep_only(
    module: nn.Module, cut: Split, stages: Collection[int], device: torch.device
) -> list[tuple[nn.Module, str]]:
    """Keep in `module` only the parts of `stages`; other tensors become absent ones on `device`.

    Kept tensors stay where they are. Parameters keep their names, and buffers outside the chain
    stay on every stage. Returns the places of absent parameters: a module, and the name in it.
    """
    own = {number for s in stages for number in range(cut.bounds[s], cut.bounds[s + 1])}
    inside = {
        id(part): number for number, (_, layer) in enumerate(cut.layers) for part in layer.modules()
    }
    dropped: list[nn.Parameter] = []
    places: list[tuple[nn.Module, str]] = []
    for prefix, part in module.named_modules():
        number = inside.get(id(part))
        for name, parameter in list(part._parameters.items()):
            full = f"{prefix}.{name}" if prefix else name
            if parameter is None or not set(stages).isdisjoint(cut.holders[full]):
                continue
            dropped.append(parameter)
            places.append((part, name))
            del part._parameters[name]
            _put_absent(part, name, parameter, device, full)
        for name, buffer in list(part._buffers.items()):
            if buffer is not None and number is not None and number not in own:
                del part._buffers[name]
                _put_absent(part, name, buffer, device, f"{prefix}.{name}")
    for parameter in dropped:
        # Code that kept its own reference finds an empty tensor instead of stale weights.
        parameter.data = torch.empty(0, dtype=parameter.dtype)
    return places


def least_bytes(
    module: nn.Module,
    cut: Split,
    *,
    num_places: int,
    optimizer_state_ratio: float,
    num_data: int = 1,
    num_parts: Mapping[int, int] = MappingProxyType({}),
) -> list[int]:
    """For each place of the pipeline, a lower bound of the bytes on a device there.

    Counted are parameters, gradients, and optimizer state of all stages at the place.
    `num_parts` gives, by the id of a parameter, into how many parts a tensor group splits it. All
    of it is split further over `num_data` devices, except for one copy of the parameters that is
    gathered while batches run.
    """
    sizes = [0.0] * num_places
    for name, parameter in module.named_parameters():
        size = parameter.nbytes / num_parts.get(id(parameter), 1)
        trained = size * (1 + optimizer_state_ratio) if parameter.requires_grad else 0.0
        if num_data == 1:
            held = size + trained
        else:  # the larger of two moments: before the first gradient, and the optimizer's step
            state = size * optimizer_state_ratio if parameter.requires_grad else 0.0
            held = max(size + (size + state) / num_data, (size + trained) / num_data)
        for place in {stage % num_places for stage in cut.holders[name]}:
            sizes[place] += held
    return [int(size) for size in sizes]


def kinds_of_layers(cut: Split) -> list[str]:
    """A text for each layer of the whole model, equal for layers that are built alike."""
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
    """Numbers of layers with which the stages hold bytes as equal as possible."""
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
    """The layers of a container; a `Sequential` in a `Sequential` is replaced by its children."""
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

    A module occurs once for each of its names.
    """
    inside = {id(part) for layer in layers for part in layer.modules()}
    after = False
    for name, part in module.named_modules(remove_duplicate=False):
        if id(part) in inside:
            after = True
        else:
            yield after, name, part


def _costs_outside(module: nn.Module, layers: Sequence[nn.Module]) -> tuple[int, int]:
    """(cost of the work before the chain, cost of the work after it)."""
    before: list[nn.Module] = []
    behind: list[nn.Module] = []
    for after, _, part in _outside(module, layers):
        (behind if after else before).append(part)
    return _cost(before), _cost(behind)


def _cost(modules: Iterator[nn.Module] | Sequence[nn.Module]) -> int:
    """The number of parameters that the work of these modules passes over, plus 1."""
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
    """The stages that hold each parameter, by each of its names."""
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
    # An optimizer needs at least one parameter. So a stage whose layers are all frozen also holds a
    # copy of a small parameter, as if it were tied.
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
    # Set in the dictionary, past `nn.Module.__setattr__`, which treats parameters' names specially.
    part.__dict__[name] = AbsentTensor.of(tensor.shape, tensor.dtype, device, [full])
