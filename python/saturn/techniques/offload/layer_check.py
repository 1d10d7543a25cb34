"""Whether a layer can be taken for a function of its arguments, as streaming does.

Gradients go in and out of a streamed layer by its arguments, outputs and own parameters alone. A
tensor that leaves by another way (kept as an attribute, picked up by a hook, as the router's
scores of a mixture of experts are) or comes in by one would lose its gradient, and training would
go wrong without a word. So a layer's first run is made with a graph and looked at. Nothing but
memory for one layer's activations is spent on it.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from saturn.techniques.interface import NotApplicable


def first_run(
    run: Callable[[Sequence[Tensor]], tuple[Tensor, ...]],
    tensors: Sequence[Tensor],
    parameters: Sequence[Tensor],
) -> tuple[Tensor, ...]:
    """`run(tensors)` without a graph, for a layer with these `parameters`.

    Raises `NotApplicable` where the layer is no function of both.
    """
    with torch.enable_grad(), _Results() as results:
        # No leaves: changing one of those in place would be torch's error, not ours.
        inputs = [
            tensor.detach().requires_grad_().clone() if tensor.requires_grad else tensor
            for tensor in tensors
        ]
        versions = [tensor._version for tensor in inputs]
        outputs = run(inputs)
    changed = versions != [tensor._version for tensor in inputs]
    foreign = _has_foreign_leaves(outputs, [*inputs, *parameters])
    plain = tuple(output.detach() for output in outputs)
    del outputs, inputs
    if changed:
        raise NotApplicable(
            "a layer changes its input in place, which would happen twice: it runs again in the "
            "backward pass"
        )
    if foreign:
        raise NotApplicable(
            "a layer uses a tensor that is neither an argument nor a parameter of its own; that "
            "tensor would get no gradient"
        )
    if (shape := results.left_behind()) is not None:
        raise NotApplicable(
            f"a layer hands on a tensor of shape {tuple(shape)} beside its outputs (an attribute, "
            "or a model's record of attentions or router scores); it would give no gradient"
        )
    return plain


class _Results(TorchFunctionMode):
    """Remembers what torch's functions return, without keeping it alive."""

    def __init__(self) -> None:
        super().__init__()
        self._seen: list[weakref.ref[Tensor]] = []

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Iterable[Any],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        for each in result if isinstance(result, tuple | list) else (result,):
            if isinstance(each, Tensor) and each.grad_fn is not None:
                self._seen.append(weakref.ref(each))
        return result

    def left_behind(self) -> torch.Size | None:
        """The shape of a result that is still there, with its graph; None where all are gone."""
        if any(reference() is not None for reference in self._seen):
            gc.collect()  # a cycle may have kept it
        # The last of them: a graph keeps those that it came from.
        for reference in reversed(self._seen):
            if (tensor := reference()) is not None:
                return tensor.shape
        return None


def _has_foreign_leaves(outputs: Sequence[Tensor], known: Sequence[Tensor]) -> bool:
    """Whether the graph of `outputs` goes beyond the `known` tensors."""
    ends = {each.grad_fn for each in known if each.grad_fn is not None}
    leaves = {id(each) for each in known}
    pending = [output.grad_fn for output in outputs]
    seen: set[Any] = set()
    while pending:
        node = pending.pop()
        if node is None or node in seen or node in ends:
            continue
        seen.add(node)
        leaf = getattr(node, "variable", None)  # of the nodes that gather a leaf's gradient
        if leaf is not None and id(leaf) not in leaves:
            return True
        pending.extend(following for following, _ in node.next_functions)
    return False
