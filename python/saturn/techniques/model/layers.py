"""Find the repeated layers of a model without knowing its kind.

The layers are the children of a `ModuleList` or `Sequential`: the blocks of a transformer, the
stages of a convolutional net. Among nested lists, the list whose layers are the most even pieces is
chosen: not, for example, a `Sequential` of embedding, transformer and head. A model may have
several lists side by side, such as encoder and decoder.
"""

from __future__ import annotations

from collections.abc import Iterable

from torch import nn

#: A further list counts if it divides at least this part of what the best list divides.
_WORTH_DIVIDING = 0.1


def repeated_layers(module: nn.Module) -> list[nn.Module]:
    """The layers of the layer lists in `module`, in order, each once.

    Layers without parameters are left out. So are layers that share a parameter with the rest of
    the model, since they can't be split on their own. Empty if there is no layer list.
    """
    layers = [layer for layer_list in _layer_lists(module) for layer in layer_list]
    return standing_alone(module, list({id(layer): layer for layer in layers}.values()))


def standing_alone(module: nn.Module, layers: Iterable[nn.Module]) -> list[nn.Module]:
    """The `layers` that have parameters, and share none with other parts of `module`."""
    owners = _num_owners(module)
    alone = []
    for layer in layers:
        inside = _num_owners(layer)
        if inside and all(owners[key] == count for key, count in inside.items()):
            alone.append(layer)
    return alone


def _layer_lists(module: nn.Module) -> list[nn.ModuleList | nn.Sequential]:
    """The best list of `module`, and further lists apart from it, in the model's order."""
    lists = [m for m in module.modules() if isinstance(m, nn.ModuleList | nn.Sequential)]
    divided = {id(each): _num_divided(each) for each in lists}
    # The sort is stable, so among equals the outermost list, which modules() gives first, wins.
    by_worth = sorted(lists, key=lambda each: divided[id(each)], reverse=True)
    chosen: list[nn.ModuleList | nn.Sequential] = []
    for each in by_worth:
        if chosen and divided[id(each)] < max(1, _WORTH_DIVIDING * divided[id(chosen[0])]):
            break
        inside = {id(inner) for inner in each.modules()}
        if all(
            id(other) not in inside and all(each is not inner for inner in other.modules())
            for other in chosen
        ):
            chosen.append(each)
    return [each for each in lists if any(each is other for other in chosen)]


def _num_divided(layer_list: nn.ModuleList | nn.Sequential) -> int:
    """Parameters outside the largest layer: they needn't be in one place with it."""
    sizes = [sum(p.numel() for p in layer.parameters()) for layer in layer_list]
    return sum(sizes) - max(sizes, default=0)


def _num_owners(module: nn.Module) -> dict[int, int]:
    """How many modules in `module` hold each parameter, by the parameter's id."""
    owners: dict[int, int] = {}
    for child in module.modules():
        for parameter in child.parameters(recurse=False):
            owners[id(parameter)] = owners.get(id(parameter), 0) + 1
    return owners
