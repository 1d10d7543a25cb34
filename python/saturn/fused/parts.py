"""What a layer's modules compute in a packed call.

A module whose weights are frozen computes once, over the rows of all members. A module that is a
member's own, as an adapter or a dropout is, computes on this member's rows, with the member's own
code, weights and random stream. Of an adapter around a frozen linear layer, only that layer's
product is computed for all rows. The adapter's own code then finds the product already made.

Autograd adds the gradients of a row in the order in which it adds them alone: the frozen product's
operation is made before those of the adapters, as in PEFT's own code.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from torch import Tensor, nn
from torch.nn.modules.dropout import _DropoutNd

from saturn.fused.packed import PackedCall

#: Where PEFT keeps the module that an adapter is put around.
BASE = "base_layer"


class Part:
    """A module in a member's layer, by which packed calls compute."""

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self.compute = module.forward
        inner = getattr(module, BASE, module)
        #: The frozen linear layer that this module is, or that it is put around.
        self.linear = inner if is_frozen_linear(inner) else None
        self._is_adapter = inner is not module
        self._trains = any(
            parameter.requires_grad for parameter in module.parameters(recurse=False)
        )
        self._plain: Callable[..., Any] = module.forward
        #: The adapter's present input, and the frozen layer's product with it.
        self._made: tuple[Tensor, Tensor] | None = None
        if self.linear is not None and self._is_adapter:
            self._plain = self.linear.forward
            self.linear.forward = self._linear_forward

    @property
    def is_own(self) -> bool:
        """Whether the module computes only on its own member's rows."""
        if isinstance(self.module, _DropoutNd):
            return self.module.training and self.module.p > 0
        return self._is_adapter or self._trains

    def frozen(self, rows: Tensor) -> Tensor:
        """The frozen linear layer's product."""
        made: Tensor = self._plain(rows)
        return made

    def with_product(self, rows: Tensor, product: Tensor) -> Tensor:
        """What the adapter makes of `rows`, whose product with the frozen layer is known."""
        self._made = rows, product
        try:
            made: Tensor = self.compute(rows)
        finally:
            self._made = None
        return made

    def _linear_forward(self, rows: Tensor) -> Tensor:
        # An adapter that changes its input first, as some do, needs a product of its own.
        if self._made is not None and rows is self._made[0]:
            return self._made[1]
        return self.frozen(rows)


def parts_of(layer: nn.Module) -> dict[str, Part]:
    """The modules of a layer that may compute for one member apart, by name."""
    return {name: Part(module) for name, module in _units(layer, "")}


def _units(module: nn.Module, name: str) -> Iterator[tuple[str, nn.Module]]:
    children = list(module.named_children())
    if is_adapter(module):
        yield name, module
        return
    if not children or next(module.parameters(recurse=False), None) is not None:
        yield name, module
    for child_name, child in children:
        yield from _units(child, f"{name}.{child_name}" if name else child_name)


def base_modules(module: nn.Module, name: str) -> Iterator[tuple[str, nn.Module]]:
    """A module and all within it, by name, but for what adapters add to the model.

    A module that an adapter is put around has the adapter's name, as in a model without adapters.
    """
    yield name, module
    if not is_adapter(module):
        for child_name, child in module.named_children():
            yield from base_modules(child, f"{name}.{child_name}" if name else child_name)
    elif isinstance(base := getattr(module, BASE, None), nn.Module):
        yield from base_modules(base, name)


def is_adapter(module: nn.Module) -> bool:
    """Whether PEFT has put this module around another."""
    kinds = []
    if (tuners := sys.modules.get("peft.tuners.tuners_utils")) is not None:
        kinds.append(tuners.BaseTunerLayer)
    if (other := sys.modules.get("peft.utils.other")) is not None:
        kinds.append(other.AuxiliaryTrainingWrapper)
    return isinstance(module, tuple(kinds))


def is_frozen_linear(module: Any) -> bool:
    """Whether `module` multiplies rows with a frozen weight, and does nothing else."""
    kinds: list[type] = [nn.Linear]
    if (pytorch_utils := sys.modules.get("transformers.pytorch_utils")) is not None:
        kinds.append(pytorch_utils.Conv1D)
    return type(module) in kinds and not any(p.requires_grad for p in module.parameters())


def patch(parts: Mapping[str, Part]) -> None:
    """Have modules compute for all members within packed calls; outside nothing changes."""
    for name, part in parts.items():
        part.module.forward = _forward(name, part)


def _forward(name: str, part: Part) -> Callable[..., Any]:
    def forward(*args: Any, **kwargs: Any) -> Any:
        call = PackedCall.now()
        if call is None:
            return part.compute(*args, **kwargs)
        own = [parts[name] for parts in call.parts]
        if not any(each.is_own for each in own):
            return part.compute(*args, **kwargs)
        (rows,) = args
        if all(each.linear is not None for each in own):
            return _around_product(call, own, rows)
        made = []
        for number, (each, mine) in enumerate(zip(own, call.unpack(rows), strict=True)):
            with call.apart(number):
                made.append(each.compute(mine, **kwargs))
        return call.packed_like(rows, made)

    return forward


def _around_product(call: PackedCall, own: list[Part], rows: Tensor) -> Tensor:
    # Made first, so that autograd comes to it last: see the module's page.
    product = own[0].frozen(rows)
    made = []
    each_rows, each_product = call.unpack(rows), call.unpack(product)
    for number, (part, mine, its) in enumerate(zip(own, each_rows, each_product, strict=True)):
        if not part.is_own:
            made.append(its)
            continue
        with call.apart(number):
            made.append(part.with_product(mine, its))
    return call.packed_like(product, made)
