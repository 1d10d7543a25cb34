"""A stage's first run on micro-batches of a new shape, which finds facts for all stages.

It finds the outputs of each of the stage's layers, the arguments that the stage lacks at its first
layer, and whether random numbers are drawn. It raises `NotApplicable` if the model is unfit for
stages. Then layers have effects that other stages would miss, a forward changes buffers, or stages
get different values for one argument.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from saturn.data import seeds
from saturn.techniques.interface import NotApplicable
from saturn.techniques.model.buffers import Buffers
from saturn.techniques.pipeline.absent import AbsentTensor, is_absent
from saturn.techniques.pipeline.arguments import Arguments, map_leaves


@dataclass(frozen=True)
class Made:
    """A tensor that a layer makes."""

    shape: tuple[int, ...]
    dtype: torch.dtype


@dataclass(frozen=True)
class Passed:
    """An argument that a layer returns unchanged: its number among the arguments' leaves."""

    number: int


@dataclass(frozen=True)
class Lacking:
    """An argument that a stage lacks at its first layer, and gets from the stage before."""

    number: int
    shape: tuple[int, ...]
    dtype: torch.dtype


@dataclass
class Found:
    """The facts that one stage tells the others, as plain data."""

    outputs: dict[int, Any] = field(default_factory=dict)  # of each layer: `Made` and the like
    changed: dict[int, list[int]] = field(default_factory=dict)  # arguments changed in place
    lacking: list[Lacking] = field(default_factory=list)
    draws: bool = False
    #: Digests of the arguments of this stage's first layer, and of the next stage's first layer.
    arriving: list[Any] = field(default_factory=list)
    leaving: list[Any] = field(default_factory=list)


@dataclass
class Shapes:
    """The facts of all stages, for one shape of micro-batch."""

    outputs: dict[int, Any] = field(default_factory=dict)
    changed: dict[int, list[int]] = field(default_factory=dict)
    lacking: list[list[Lacking]] = field(default_factory=list)  # for each stage
    draws: bool = False

    def add(self, found: Found) -> None:
        """Add the facts of the next stage."""
        self.outputs |= found.outputs
        self.changed |= found.changed
        self.lacking.append(found.lacking)
        self.draws |= found.draws


class Rehearsal:
    """One stage's rehearsal; its methods are called during the forward."""

    def __init__(
        self,
        module: nn.Module,
        device: torch.device,
        before: Found | None,
        own_hooks: Collection[int] = (),
    ) -> None:
        """`before` has the facts of the stage before; None for the first stage.

        `own_hooks` are the ids of hooks on parts of layers that are Saturn's, not the model's.
        """
        self.found = Found()
        self._own_hooks = own_hooks
        self._before = before
        self._module = module
        self._device = device
        self._buffers = Buffers(module)
        self._kept: set[tuple[str, int]] = set()
        self._random_state: seeds.RandomState | None = None
        self._made_up: list[torch.Tensor] = []

    def seed(self, seed: int) -> None:
        """Seed the next part, and note whether anything was drawn since the last call."""
        if self._random_state is not None:
            self.found.draws |= self._random_state.has_moved()
        seeds.seed_batch(seed, self._device)
        self._random_state = seeds.RandomState.now(self._device)

    def first_layer(self, name: str, leaves: list[Any], numbers: Sequence[int]) -> list[Any]:
        """Note that the stage's first layer lacks arguments `numbers`; returns zeros for them."""
        for number in numbers:
            dtype = self._type_sent(number) or leaves[number].dtype
            if not dtype.is_floating_point:
                raise NotApplicable(
                    f"argument {number} of layer `{name}` comes from another stage and is a "
                    f"{dtype}, which has no gradient"
                )
            self.found.lacking.append(Lacking(number, tuple(leaves[number].shape), dtype))
        if not numbers:
            raise NotApplicable(f"layer `{name}` gets nothing from the layers before it")
        self.found.arriving = list(map(_digest, leaves))
        self._made_up = [
            torch.zeros(lacks.shape, dtype=lacks.dtype, device=self._device, requires_grad=True)
            # A clone is no leaf of the graph, so layers may write to it.
            .clone()
            for lacks in self.found.lacking
        ]
        return list(self._made_up)

    def _type_sent(self, number: int) -> torch.dtype | None:
        """An argument's type where it has values; autocast doesn't convert absent tensors.

        None if it has no values on the stage before either.
        """
        sent = self._before.leaving[number] if self._before is not None else None
        return sent[2] if sent is not None and sent[0] == "tensor" else None

    def run_layer(
        self,
        number: int,
        layer: tuple[str, nn.Module],
        leaves: list[Any],
        forward: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        """Run a layer, and note its outputs and the arguments that it changes."""
        name, _ = layer
        if not torch.is_grad_enabled():
            raise NotApplicable(
                "the model runs its layers without gradients, as reentrant activation "
                "checkpointing does; stages need use_reentrant=False"
            )
        if not self.found.outputs:
            self._kept = _kept_activations(self._module)
        versions = {
            index: leaf._version
            for index, leaf in enumerate(leaves)
            if isinstance(leaf, torch.Tensor)
        }
        outputs = forward(*args, **kwargs)
        if list(map(id, Arguments(args, kwargs).leaves)) != list(map(id, leaves)):
            raise NotApplicable(
                f"layer `{name}` changes a list or mapping that it is given, which other stages "
                "can't see"
            )
        self.found.changed[number] = [i for i, v in versions.items() if leaves[i]._version != v]
        numbers = {id(leaf): index for index, leaf in enumerate(leaves)}

        def describe(leaf: Any) -> Any:
            if leaf is None or isinstance(leaf, bool | int | str | torch.Size):
                return leaf
            if id(leaf) in numbers:
                return Passed(numbers[id(leaf)])
            if isinstance(leaf, torch.Tensor):
                return Made(tuple(leaf.shape), leaf.dtype)
            raise NotApplicable(
                f"layer `{name}` gives a {type(leaf).__name__}, which other stages can't know"
            )

        self.found.outputs[number] = map_leaves(describe, outputs)
        return outputs

    def ended(self) -> None:
        """Check the buffers after the end of a forward, on any stage."""
        if changed := self._buffers.changed():
            raise NotApplicable(
                f"the forward changes the buffer `{', '.join(changed)}`; micro-batches would "
                "change it more often than whole batches do"
            )

    def cut(self, layers: Sequence[tuple[str, nn.Module]], leaves: list[Any]) -> None:
        """Check the forward's cut at the next stage's first layer, after this stage's `layers`."""
        made_up = set(map(id, self._made_up))
        self.found.leaving = [_digest(leaf, is_made_up=id(leaf) in made_up) for leaf in leaves]
        if kept := sorted(_kept_activations(self._module) - self._kept):
            raise NotApplicable(
                f"a layer leaves a tensor of its forward in `{kept[0][0]}`, where other stages "
                "can't see it"
            )
        for name, layer in layers:
            for path, part in layer.named_modules():
                # Hooks on the layer itself are called on every stage, so they are fine.
                hooks = part._forward_hooks.keys() - self._own_hooks
                if part is not layer and (hooks or "forward" in vars(part)):
                    raise NotApplicable(
                        f"something is hooked to the forward of `{name}.{path}`, as where a model "
                        "collects what its layers do; on other stages it would not be called"
                    )


def compare(name: str, before: Found, after: Found) -> None:
    """Check that both sides of the cut at layer `name` see the same arguments.

    Not compared are arguments that `after` lacks, arguments that are absent on either side, and the
    values of tensors that were made up for `before`.
    """
    lacking = {lacks.number for lacks in after.lacking}
    for number, (one, other) in enumerate(zip(before.leaving, after.arriving, strict=True)):
        if number in lacking or None in (one, other):
            continue
        is_made_up = one[0] == "tensor" and one[-1] is None
        if one != other and not (is_made_up and one[:-1] == other[:-1]):
            raise NotApplicable(
                f"argument {number} of layer `{name}` differs between the stages: it depends on "
                "what only some of them have"
            )


def _digest(leaf: Any, *, is_made_up: bool = False) -> Any:
    """Plain data that is equal for equal values; None for an absent value.

    The digest of a made-up tensor leaves its values out.
    """
    if is_absent(leaf):
        return None
    if isinstance(leaf, torch.Tensor):
        total = None if is_made_up else float(leaf.detach().double().nan_to_num().sum())
        return ("tensor", tuple(leaf.shape), leaf.dtype, total)
    if leaf is None or isinstance(leaf, bool | int | float | str):
        return ("plain", leaf)
    return ("object", type(leaf).__qualname__)


def _kept_activations(module: nn.Module) -> set[tuple[str, int]]:
    """(path, id) of tensors with a graph that the modules hold."""
    kept: set[tuple[str, int]] = set()
    for prefix, part in module.named_modules():
        for name, value in {**vars(part), **part._buffers}.items():
            inner = value if isinstance(value, tuple | list) else [value]
            if isinstance(value, dict) and not name.startswith("_"):
                inner = list(value.values())
            for tensor in inner:
                if isinstance(tensor, AbsentTensor) or not isinstance(tensor, torch.Tensor):
                    continue
                if tensor.grad_fn is not None:
                    kept.add((f"{prefix}.{name}" if prefix else name, id(tensor)))
    return kept
