"""Find the repeated layers of a model without knowing its kind.

The layers are the children of the largest `ModuleList` or `Sequential`, by parameters: the blocks
of a transformer, the stages of a convolutional net.
"""

from __future__ import annotations

from torch import nn


def repeated_layers(module: nn.Module) -> list[nn.Module]:
    """The layers of the largest layer list in `module`, in order, each once.

    Layers without parameters are left out, and so are layers that share a parameter with the rest
    of the model, since those can't be split on their own. Empty where there is no layer list.
    """
    lists = [m for m in module.modules() if isinstance(m, nn.ModuleList | nn.Sequential)]
    if not lists:
        return []
    # `max` takes the first of equals, the outermost: modules() goes from the outside in.
    largest = max(lists, key=_num_parameters)
    owners: dict[int, int] = {}
    for child in module.modules():
        for parameter in child.parameters(recurse=False):
            owners[id(parameter)] = owners.get(id(parameter), 0) + 1
    layers: dict[int, nn.Module] = {}
    for layer in largest:
        inside: dict[int, int] = {}
        for child in layer.modules():
            for parameter in child.parameters(recurse=False):
                inside[id(parameter)] = inside.get(id(parameter), 0) + 1
        if inside and all(owners[key] == count for key, count in inside.items()):
            layers.setdefault(id(layer), layer)
    return list(layers.values())


def _num_parameters(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())
