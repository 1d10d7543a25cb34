"""Tensors whose values are on another device: a shape, a type, a device, and no numbers.

Each stage of a pipeline runs the model's own forward, but holds only some of its parameters and
runs only some of its layers. The results of the other layers are absent. A value computed from an
absent tensor is absent too. So every number on a stage is right: none comes from a parameter or a
layer that the stage lacks. When the value of an absent tensor arrives, the tensor is supplied with
it. From then on the tensor stands for the value, wherever the model's code kept the tensor.

If the code asks for an absent value, or would overwrite a present tensor with absent values,
`NotApplicable` is raised.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch

from saturn.techniques.interface import NotApplicable
from saturn.techniques.pipeline.arguments import Arguments, map_leaves

#: Functions that only look at a tensor's shape, type and device, so their results are present.
_LIKE = frozenset(
    {"empty_like", "full_like", "ones_like", "zeros_like", "rand_like", "randn_like"}
    | {"new_empty", "new_full", "new_ones", "new_zeros", "new_tensor"}
)
_SHAPES_ONLY = torch.device("meta")


class AbsentTensor(torch.Tensor):
    """A tensor without numbers; `sources` names what is needed to compute it."""

    # It is on the meta device, so code that bypasses `__torch_function__` fails instead of
    # computing nonsense.
    _device: torch.device
    _value: torch.Tensor | None
    sources: frozenset[str]

    @classmethod
    def of(
        cls,
        shape: Iterable[int],
        dtype: torch.dtype,
        device: torch.device,
        sources: Iterable[str],
    ) -> AbsentTensor:
        """An absent tensor that seems to be on `device`."""
        return cls._wrap(
            torch.empty(tuple(shape), dtype=dtype, device=_SHAPES_ONLY), device, frozenset(sources)
        )

    @classmethod
    def _wrap(
        cls, meta: torch.Tensor, device: torch.device, sources: frozenset[str]
    ) -> AbsentTensor:
        made = meta.as_subclass(cls)
        made._device = device
        made._value = None
        made.sources = sources
        return made

    def supply(self, value: torch.Tensor) -> None:
        """Stand for `value` from now on."""
        self._value = value

    @classmethod
    def __torch_function__(
        cls,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        if len(args) == 1 and getattr(func, "__name__", None) == "__get__":
            return cls._attribute(func, args[0])
        arguments = Arguments(args, kwargs or {})
        arguments.leaves = list(map(supplied, arguments.leaves))
        if not any(map(is_absent, arguments.leaves)):
            args, kwargs = arguments.rebuilt(arguments.leaves)
            return func(*args, **kwargs)
        return _compute_shapes(func, arguments)

    @classmethod
    def _attribute(cls, getter: Callable[..., Any], tensor: AbsentTensor) -> Any:
        """`tensor.shape` and other attributes."""
        if tensor._value is not None:
            return getter(tensor._value)
        if (answer := _ATTRIBUTES.get(getter.__self__)) is not None:  # type: ignore[attr-defined]
            return answer(tensor)
        with torch._C.DisableTorchFunctionSubclass():
            found = getter(tensor)
            if isinstance(found, torch.Tensor):
                return cls._wrap(found, tensor._device, tensor.sources)
        return found


#: Attributes for which a tensor on the meta device would give a wrong answer.
_ATTRIBUTES: dict[Any, Callable[[AbsentTensor], Any]] = {
    torch.Tensor.device: lambda tensor: tensor._device,
    torch.Tensor.is_meta: lambda tensor: False,
    torch.Tensor.is_cpu: lambda tensor: tensor._device.type == "cpu",
    torch.Tensor.is_cuda: lambda tensor: tensor._device.type == "cuda",
    torch.Tensor.requires_grad: lambda tensor: True,  # whether it does is not known here
}


def is_absent(value: Any) -> bool:
    """Whether `value` is a tensor without numbers."""
    return isinstance(value, AbsentTensor) and value._value is None


def supplied(value: Any) -> Any:
    """The value that was supplied for `value`, if any; else `value` itself."""
    if isinstance(value, AbsentTensor) and value._value is not None:
        return value._value
    return value


def named(sources: Iterable[str]) -> str:
    """The names of absent sources, for a message; only a few of them if there are many."""
    names = [f"`{name}`" for name in sorted(sources)]
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


#: Shape, strides and type of earlier results, by function and arguments. Models repeat the same
#: calls, and torch takes long to compute shapes.
_SEEN: dict[Any, tuple[torch.Size, tuple[int, ...], torch.dtype]] = {}
_MAX_SEEN = 10_000


def _compute_shapes(func: Callable[..., Any], arguments: Arguments) -> Any:
    """The result of `func`, as absent tensors of the right shapes."""
    leaves = arguments.leaves
    absent = [leaf for leaf in leaves if isinstance(leaf, AbsentTensor)]
    device = absent[0]._device
    name = getattr(func, "__name__", "")
    if name in ("cpu", "cuda"):
        return absent[0]
    sources = frozenset[str]().union(*(tensor.sources for tensor in absent))
    with torch.no_grad(), torch._C.DisableTorchFunctionSubclass():
        if name in _LIKE:
            args, kwargs = arguments.rebuilt(leaves)
            return func(*args, **{"device": device, **kwargs})
        key = _key(func, arguments)
        if key is not None and key in _SEEN:
            shape, strides, dtype = _SEEN[key]
            meta = torch.empty_strided(shape, strides, dtype=dtype, device=_SHAPES_ONLY)
            return AbsentTensor._wrap(meta, device, sources)
        output = _call_without_numbers(func, name, arguments, sources)
        if isinstance(output, torch.Tensor) and not isinstance(output, AbsentTensor):
            if key is not None and len(_SEEN) < _MAX_SEEN:
                _SEEN[key] = (output.shape, output.stride(), output.dtype)
            return AbsentTensor._wrap(output, device, sources)

        def wrap(value: Any) -> Any:
            # An operation in place returns the tensor that it was called on.
            if isinstance(value, torch.Tensor) and not isinstance(value, AbsentTensor):
                return AbsentTensor._wrap(value, device, sources)
            return value

        return output if isinstance(output, torch.Size) else map_leaves(wrap, output)


def _call_without_numbers(
    func: Callable[..., Any], name: str, arguments: Arguments, sources: frozenset[str]
) -> Any:
    """Call `func` on the meta device; raises if it needs numbers or would overwrite them."""
    at_hand: list[torch.Tensor] = []

    def without_numbers(leaf: Any) -> Any:
        if isinstance(leaf, torch.device):
            return _SHAPES_ONLY
        if isinstance(leaf, torch.Tensor) and not isinstance(leaf, AbsentTensor):
            at_hand.append(
                torch.empty_strided(
                    leaf.shape, leaf.stride(), dtype=leaf.dtype, device=_SHAPES_ONLY
                )
            )
            return at_hand[-1]
        return leaf

    args, kwargs = arguments.rebuilt(list(map(without_numbers, arguments.leaves)))
    if "device" in kwargs:
        kwargs["device"] = _SHAPES_ONLY
    elif name == "to" and len(args) > 1 and isinstance(args[1], str):
        args = (args[0], _SHAPES_ONLY, *args[2:])
    versions = [tensor._version for tensor in at_hand]
    try:
        output = func(*args, **kwargs)
    except Exception as error:
        raise NotApplicable(
            f"the model's code between its layers calls `{name}` on what comes from "
            f"{named(sources)}, which is on another device; without its values that fails: "
            f"{error}"
        ) from error
    if [tensor._version for tensor in at_hand] != versions:
        raise NotApplicable(
            f"the model's code between its layers writes what comes from {named(sources)}, "
            "which is on another device, into another tensor"
        )
    return output


def _key(func: Callable[..., Any], arguments: Arguments) -> Any:
    """A key that is equal for calls with the same shapes as result; None if there is no key."""
    if arguments.layout is None:
        return None
    parts = [
        (leaf.shape, leaf.stride(), leaf.dtype)
        if isinstance(leaf, torch.Tensor)
        else (type(leaf), leaf)
        for leaf in arguments.leaves
    ]
    key = (func, arguments.layout, tuple(parts))
    try:
        hash(key)
    except TypeError:
        return None
    return key
