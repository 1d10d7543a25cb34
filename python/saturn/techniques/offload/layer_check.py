"""Check that a layer is a function of its arguments and parameters, as streaming assumes.

Gradients enter and leave a streamed layer only by its arguments, outputs and own parameters. A
tensor that enters or leaves otherwise would lose its gradient, and training would go wrong
silently. Examples are an attribute, or a hook that collects router scores. So a layer's first run
is made with a graph, which is inspected. That costs only the memory of one layer's activations.
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

    Raises `NotApplicable` if the layer is no function of tensors and parameters.
    """
    with torch.enable_grad(), _Results() as results:
        # Cloned, so not leaves: for a leaf changed in place, torch would raise its own error.
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
    """Records results of torch's functions, without keeping them alive."""

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
        """The shape of a result that is still alive, with its graph; None if there is none."""
        if any(reference() is not None for reference in self._seen):
            gc.collect()  # only a reference cycle may have kept a result alive
        # From the last: a result's graph also keeps the earlier results that it came from.
        for reference in reversed(self._seen):
            if (tensor := reference()) is not None:
                return tensor.shape
        return None


def _has_foreign_leaves(outputs: Sequence[Tensor], known: Sequence[Tensor]) -> bool:
    """Whether the graph of `outputs` reaches leaves other than the `known` tensors."""
    ends = {each.grad_fn for each in known if each.grad_fn is not None}
    leaves = {id(each) for each in known}
    pending = [output.grad_fn for output in outputs]
    seen: set[Any] = set()
    while pending:
        node = pending.pop()
        if node is None or node in seen or node in ends:
            continue
        seen.add(node)
        leaf = getattr(node, "variable", None)  # only nodes that collect a leaf's gradient have it
        if leaf is not None and id(leaf) not in leaves:
            return True
        pending.extend(following for following, _ in node.next_functions)
    return False
