"""Have layers under autocast keep their weights for the backward pass, not the weights' casts.

A matrix product keeps its inputs for the backward pass. Under autocast these are copies of weights
in bf16 or fp16. Sharding frees a layer's weights after its forward, but not such copies, so all
layers' copies would fill every device. Here the layer keeps the weight itself, which is gathered
again for its backward, and cast again. The same numbers come out, bit by bit.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.distributed.tensor import DTensor
from torch.overrides import TorchFunctionMode

from saturn.data.seeds import RandomState

#: torch's name of the operation by which autocast makes its copies.
_CAST = "ToCopyBackward0"
#: The types to which autocast casts.
_NARROW = (torch.bfloat16, torch.float16)
#: Part of torch's message where code can't run while tensors are kept in another way.
_REFUSED = "saved tensor hooks"


def keep_weights_alone(layer: nn.Module) -> None:
    """Make `layer` keep no casts of its weights; it gets a `forward` of its own.

    A compiled layer stays as it is: its compiler chooses what is kept.
    """
    forward = layer.forward
    if not hasattr(forward, "_torchdynamo_orig_callable"):
        has_frozen = not all(parameter.requires_grad for parameter in layer.parameters())
        layer.forward = _keeping_weights(forward, has_frozen)


def _keeping_weights(forward: Callable[..., Any], has_frozen: bool) -> Callable[..., Any]:
    has_run, is_refused = False, False

    @functools.wraps(forward)
    def forward_without_casts(*args: Any, **kwargs: Any) -> Any:
        nonlocal has_run, is_refused
        if is_refused or not torch.is_grad_enabled() or not _is_in_autocast():
            return forward(*args, **kwargs)
        before = None if has_run else RandomState.now(_device_of(args, kwargs))
        try:
            given = _FrozenGiven()
            watching = given if has_frozen else nullcontext()
            with saved_tensors_hooks(partial(_packed, given), _unpacked), watching:
                outputs = forward(*args, **kwargs)
        except RuntimeError as error:
            # `torch.vmap`, for example, refuses to run so. Then such a layer keeps its casts.
            if before is None or _REFUSED not in str(error):
                raise
            is_refused = True
            before.set()
            outputs = forward(*args, **kwargs)
        has_run = True
        return outputs

    return forward_without_casts


@dataclass(frozen=True, slots=True)
class _Weight:
    """A weight whose cast was to be kept."""

    weight: Tensor
    dtype: torch.dtype
    is_transposed: bool
    version: int

    def cast(self) -> Tensor:
        _check_unchanged(self.weight, self.version)
        cast = self.weight.detach().to(self.dtype)
        return cast.t() if self.is_transposed else cast


class _FrozenGiven(TorchFunctionMode):
    """Notes which weights that don't train are arguments of the present call of torch.

    autograd doesn't know of what such a weight's cast is one.
    """

    def __init__(self) -> None:
        super().__init__()
        self.weights: list[Tensor] = []

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Iterable[Any],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        given = (*args, *(kwargs or {}).values())
        before = self.weights
        self.weights = [
            each for each in given if isinstance(each, nn.Parameter) and not each.requires_grad
        ]
        try:
            return func(*args, **(kwargs or {}))
        finally:
            self.weights = before

    def like(self, cast: Tensor) -> Tensor | None:
        """The only noted weight that `cast` may be a cast of."""
        found = [each for each in self.weights if each.shape == cast.shape]
        return found[0] if len(found) == 1 else None


def _packed(given: _FrozenGiven, kept: Tensor) -> Any:
    if kept.dtype in _NARROW and (weight := _weight_of(kept, given)) is not None:
        return weight
    # Not the tensor itself, which may be what the operation returned: it would keep itself alive.
    return kept.detach(), kept._version


def _unpacked(packed: Any) -> Tensor:
    if isinstance(packed, _Weight):
        return packed.cast()
    kept, version = packed
    _check_unchanged(kept, version)
    assert isinstance(kept, Tensor)
    return kept


def _weight_of(kept: Tensor, given: _FrozenGiven) -> _Weight | None:
    """What to keep in place of `kept`, if it is the cast of a weight, or that cast transposed."""
    cast = kept if kept._base is None else kept._base
    node = cast.grad_fn
    if isinstance(kept, DTensor):
        return None
    weight: Tensor | None = None
    if node is None:
        # The other factor of a product has a gradient, or nothing would be kept.
        weight = given.like(cast)
    elif node is not None and node.name() == _CAST:
        weight = getattr(node.next_functions[0][0], "variable", None)  # only a leaf's node has that
    if not isinstance(weight, Tensor) or weight.shape != cast.shape:
        return None
    if weight.stride() != cast.stride() or weight.dtype == cast.dtype or not _is_whole(kept, cast):
        return None
    is_matrix = kept.dim() == cast.dim() == 2
    is_transposed = is_matrix and kept.stride() == cast.stride()[::-1] != cast.stride()
    if is_transposed and kept.shape != cast.t().shape:
        return None
    if not is_transposed and (kept.shape != cast.shape or kept.stride() != cast.stride()):
        return None
    return _Weight(weight, cast.dtype, is_transposed, weight._version)


def _is_whole(kept: Tensor, cast: Tensor) -> bool:
    is_first = kept.storage_offset() == 0 and cast.storage_offset() == 0
    return bool(is_first and kept.numel() == cast.numel())


def _check_unchanged(kept: Tensor, version: int) -> None:
    """Raise as torch does for a tensor that is kept for the backward pass, and changed since."""
    if kept._version != version:
        raise RuntimeError(
            "one of the variables needed for gradient computation has been modified by an inplace "
            f"operation: a tensor of shape {list(kept.shape)} is at version {kept._version}; "
            f"expected version {version} instead"
        )


def _is_in_autocast() -> bool:
    return torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda")


def _device_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.device:
    for value in (*args, *kwargs.values()):
        if isinstance(value, Tensor):
            return value.device
    return torch.device("cpu")
