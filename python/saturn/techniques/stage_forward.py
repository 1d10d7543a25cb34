"""One stage's part of a model's forward: the model's own code, cut at two calls of layers.

Every stage calls the model with the micro-batch. Layers of earlier stages are skipped and give
absent tensors (see `absent`); at the call of the stage's first layer, those of its arguments that
are absent are supplied with what was received; at the call of the next stage's first layer,
the forward ends, and the next stage gets the arguments that it lacks. The last stage runs to the
end.

What a skipped layer gives, and which arguments a stage lacks, is found by a rehearsal for each
shape of micro-batch: the stages run one after the other, on zeros for what they lack, and tell one
another. It also finds what can't be run in stages: layers out of order or called twice, values
that reach a layer past the cut, state that a layer leaves behind, stages that see different values
for one argument. Whatever it can't see is caught by absence: no number comes from nowhere.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from saturn.techniques.absent import AbsentTensor, is_absent, named, supplied
from saturn.techniques.arguments import Arguments, map_leaves
from saturn.techniques.interface import NotApplicable
from saturn.techniques.stages import Split
from saturn.worker import seeds
from saturn.worker.gang import Gang


class NeededElsewhere(RuntimeError):
    """Parameters outside the layers are needed on a stage that doesn't hold them."""

    _MARK = "; the knob `everywhere` would have to list them too: "

    def __init__(self, who: str, names: Sequence[str]) -> None:
        super().__init__(
            f"{who} that comes from parameters that this stage doesn't hold{self._MARK}"
            + ", ".join(names)
        )

    @classmethod
    def names_in(cls, text: str) -> list[str]:
        """The parameters that an error's text names; none where it is another error's."""
        _, mark, names = text.partition(cls._MARK)
        return names.split(", ") if mark else []


@dataclass(frozen=True)
class Made:
    """A tensor that a layer makes."""

    shape: tuple[int, ...]
    dtype: torch.dtype


@dataclass(frozen=True)
class Passed:
    """An argument that a layer gives back as it is: its number among the arguments' leaves."""

    number: int


@dataclass(frozen=True)
class Lacking:
    """An argument that a stage lacks at its first layer, and gets from the one before."""

    number: int
    shape: tuple[int, ...]
    dtype: torch.dtype


@dataclass
class Shapes:
    """What the rehearsal for one shape of micro-batch has found."""

    outputs: dict[int, Any] = field(default_factory=dict)  # of each layer: `Made`, `Passed`, …
    changed: dict[int, list[int]] = field(default_factory=dict)  # arguments written to in place
    lacking: list[list[Lacking]] = field(default_factory=list)  # of each stage
    draws: bool = False  # whether any stage draws random numbers


@dataclass
class _Found:
    """What one stage's rehearsal tells the others."""

    outputs: dict[int, Any] = field(default_factory=dict)
    changed: dict[int, list[int]] = field(default_factory=dict)
    lacking: list[Lacking] = field(default_factory=list)
    draws: bool = False
    #: Digests of the arguments of the stage's first layer, and of the next stage's.
    arriving: list[Any] = field(default_factory=list)
    leaving: list[Any] = field(default_factory=list)
    kept: set[tuple[str, int]] = field(default_factory=set)  # by modules, when the layers began


@dataclass
class _Run:
    """One forward in progress."""

    shapes: Shapes
    received: Sequence[torch.Tensor]
    seed: int
    rehearsal: _Found | None = None
    next_layer: int = 0
    random_state: seeds.RandomState | None = None  # after the last seeding; only in a rehearsal


class _Cut(BaseException):
    """Ends the forward of a stage, with the leaves of the arguments of the next stage's layer.

    No error, and nothing that an `except Exception` in a model's code may stop.
    """

    def __init__(self, leaves: list[Any]) -> None:
        self.leaves = leaves


class StageForward:
    """Runs the part of `module` that falls to `gang.rank`; `module` has been cut by `keep_only`.

    The layers' `forward`s are replaced for good. Activation checkpointing of the model's own may
    call them again while the backward runs.
    """

    def __init__(self, module: nn.Module, cut: Split, gang: Gang) -> None:
        self._module = module
        self._split = cut
        self._gang = gang
        self._start, self._stop = cut.bounds[gang.rank], cut.bounds[gang.rank + 1]
        self._run: _Run | None = None
        for number, (_, layer) in enumerate(cut.layers):
            layer.forward = functools.partial(self._layer, number, layer.forward)

    @property
    def is_last(self) -> bool:
        """Whether this stage's forward ends with the model's outputs."""
        return self._stop == len(self._split.layers)

    def run(
        self,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        shapes: Shapes,
        received: Sequence[torch.Tensor],
        seed: int,
    ) -> Any:
        """The model's outputs on the last stage; else the tensors that the next stage lacks."""
        run = _Run(shapes, received, seed)
        ended = self._forward(run, args, kwargs)
        if not isinstance(ended, _Cut):
            return ended
        leaving = []
        for lacking in shapes.lacking[self._gang.rank + 1]:
            tensor = ended.leaves[lacking.number]
            self._require(tensor, self._stop)
            if (tuple(tensor.shape), tensor.dtype) != (lacking.shape, lacking.dtype):
                raise NotApplicable(
                    f"argument {lacking.number} of layer `{self._name(self._stop)}` is a "
                    f"{tensor.dtype} of shape {tuple(tensor.shape)}, and was a {lacking.dtype} of "
                    f"shape {lacking.shape} for a micro-batch of the same shape"
                )
            leaving.append(tensor)
        return leaving

    def rehearse(self, args: tuple[Any, ...], kwargs: dict[str, Any], seed: int) -> Shapes:
        """Find the shapes for micro-batches such as this; every rank calls it with the same."""
        shapes = Shapes()
        leaving: list[Any] = []
        for stage in range(self._split.num_stages):
            mine = None
            if stage == self._gang.rank:
                mine = self._rehearse_own(shapes, args, kwargs, seed)
            found = self._gang.collect(mine)[stage]
            assert isinstance(found, _Found)
            shapes.outputs |= found.outputs
            shapes.changed |= found.changed
            shapes.lacking.append(found.lacking)
            shapes.draws |= found.draws
            if stage > 0:
                self._compare(stage, leaving, found)
            leaving = found.leaving
        return shapes

    def loss(self, value: torch.Tensor) -> torch.Tensor:
        """`value`, a loss of the last stage's outputs; raises where a number is missing in it."""
        value = supplied(value)
        if is_absent(value):
            raise self._missing(value, "the loss depends on a value")  # type: ignore[arg-type]
        return value

    def _forward(self, run: _Run, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        self._run = run
        self._seed(run)
        try:
            outputs = self._module(*args, **kwargs)
        except _Cut as cut:
            return cut.with_traceback(None)  # and with it what the model's code held
        finally:
            if run.rehearsal is not None:
                self._seed(run)  # sees what the last stretch has drawn
            self._run = None
        if run.next_layer < len(self._split.layers):
            raise NotApplicable(
                f"the model's forward ends without a call of layer `{self._name(run.next_layer)}`"
            )
        return pytree.tree_map(supplied, outputs)

    def _layer(self, number: int, forward: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Stands in for the `forward` of layer `number`."""
        run = self._run
        arguments = Arguments(args, kwargs)
        leaves = list(map(supplied, arguments.leaves))
        if run is None:  # computed again, in the backward
            args, kwargs = arguments.rebuilt(leaves)
            return forward(*args, **kwargs)
        if number != run.next_layer:
            raise NotApplicable(
                f"the model calls layer `{self._name(number)}` where "
                + (
                    f"`{self._name(run.next_layer)}` would come next"
                    if run.next_layer < len(self._split.layers)
                    else "all have been called"
                )
                + "; stages need each layer called once, in order"
            )
        run.next_layer += 1
        if number == self._stop:
            raise _Cut(leaves)
        if number < self._start:
            outputs = self._skip(run, number, leaves)
        else:
            if number == self._start and number > 0:
                self._supply(run, leaves)
                leaves = list(map(supplied, leaves))
            for leaf in leaves:
                self._require(leaf, number)
            args, kwargs = arguments.rebuilt(leaves)
            if run.rehearsal is None:
                outputs = forward(*args, **kwargs)
            else:
                outputs = self._note(run.rehearsal, number, leaves, forward, args, kwargs)
        self._seed(run)
        return outputs

    def _skip(self, run: _Run, number: int, leaves: list[Any]) -> Any:
        """What an earlier stage's layer gives, as far as it can be told here."""
        name = self._name(number)
        for changed in run.shapes.changed[number]:
            if isinstance(leaves[changed], torch.Tensor) and not is_absent(leaves[changed]):
                raise NotApplicable(f"layer `{name}` writes into an argument that others use too")

        def stand_in(leaf: Any) -> Any:
            if isinstance(leaf, Passed):
                return leaves[leaf.number]
            if isinstance(leaf, Made):
                return AbsentTensor.of(leaf.shape, leaf.dtype, self._gang.device, [name])
            return leaf

        return map_leaves(stand_in, run.shapes.outputs[number])

    def _supply(self, run: _Run, leaves: list[Any]) -> None:
        """Give the arguments of this stage's first layer what was received for them."""
        lacking: dict[int, int] = {}
        for number, leaf in enumerate(leaves):
            if is_absent(leaf):
                lacking.setdefault(id(leaf), number)
        numbers = list(lacking.values())
        received = run.received
        if run.rehearsal is not None:
            run.rehearsal.lacking = [
                Lacking(number, tuple(leaves[number].shape), leaves[number].dtype)
                for number in numbers
            ]
            run.rehearsal.arriving = list(map(_digest, leaves))
            received = [self._zeros(lacks) for lacks in run.rehearsal.lacking]
        elif numbers != [lacks.number for lacks in run.shapes.lacking[self._gang.rank]]:
            raise NotApplicable(
                f"layer `{self._name(self._start)}` gets other arguments from time to time"
            )
        for number, tensor in zip(numbers, received, strict=True):
            leaves[number].supply(tensor)

    def _zeros(self, lacks: Lacking) -> torch.Tensor:
        if not lacks.dtype.is_floating_point:
            raise NotApplicable(
                f"argument {lacks.number} of layer `{self._name(self._start)}` comes from another "
                f"stage and is a {lacks.dtype}, which has no gradient"
            )
        zeros = torch.zeros(lacks.shape, dtype=lacks.dtype, device=self._gang.device)
        return zeros.requires_grad_().clone()

    def _require(self, leaf: Any, number: int) -> None:
        """Raise where an argument of layer `number` is absent."""
        if is_absent(leaf):
            raise self._missing(leaf, f"layer `{self._name(number)}` gets a value")

    def _seed(self, run: _Run) -> None:
        """Seed what comes until the next layer has run, alike on every stage."""
        device = self._gang.device
        if run.rehearsal is not None and run.random_state is not None:
            run.rehearsal.draws |= run.random_state.has_moved()
        if run.rehearsal is not None or run.shapes.draws:
            seeds.seed_batch(seeds.derive(run.seed, run.next_layer), device)
        if run.rehearsal is not None:
            run.random_state = seeds.RandomState.now(device)

    def _name(self, number: int) -> str:
        return self._split.layers[number][0]

    def _missing(self, absent: AbsentTensor, who: str) -> Exception:
        """The error for an absent tensor where its value is needed."""
        if absent.sources <= self._split.holders.keys():
            return NeededElsewhere(who, sorted(absent.sources))
        return NotApplicable(
            f"{who} that comes from {named(absent.sources)}, and not only by way of the layers in "
            "between"
        )

    # The rehearsal.

    def _rehearse_own(
        self, shapes: Shapes, args: tuple[Any, ...], kwargs: dict[str, Any], seed: int
    ) -> _Found:
        found = _Found()
        buffers = {name: (id(b), b._version) for name, b in self._module.named_buffers()}
        ended = self._forward(_Run(shapes, (), seed, rehearsal=found), args, kwargs)
        for name, buffer in self._module.named_buffers():
            if (id(buffer), buffer._version) != buffers.get(name):
                raise NotApplicable(
                    f"the forward changes the buffer `{name}`; micro-batches would change it more "
                    "often than whole batches do"
                )
        if isinstance(ended, _Cut):
            found.leaving = list(map(_digest, ended.leaves))
            if kept := sorted(_kept_activations(self._module) - found.kept):
                raise NotApplicable(
                    f"a layer leaves a tensor of its forward in `{kept[0][0]}`, where other "
                    "stages can't see it"
                )
        if self._start > 0 and not found.lacking:
            raise NotApplicable(
                f"layer `{self._name(self._start)}` gets nothing from the layers before it"
            )
        return found

    def _note(
        self,
        found: _Found,
        number: int,
        leaves: list[Any],
        forward: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        """Run a layer and note what it gives, and to what it writes."""
        if not torch.is_grad_enabled():
            raise NotApplicable(
                "the model runs its layers without gradients, as reentrant activation "
                "checkpointing does; stages need use_reentrant=False"
            )
        if number == self._start:
            found.kept = _kept_activations(self._module)
        versions = {
            index: leaf._version
            for index, leaf in enumerate(leaves)
            if isinstance(leaf, torch.Tensor)
        }
        outputs = forward(*args, **kwargs)
        if list(map(id, Arguments(args, kwargs).leaves)) != list(map(id, leaves)):
            raise NotApplicable(
                f"layer `{self._name(number)}` changes a list or mapping that it is given, which "
                "other stages can't see"
            )
        found.changed[number] = [i for i, v in versions.items() if leaves[i]._version != v]
        numbers = {id(leaf): index for index, leaf in enumerate(leaves)}

        def describe(leaf: Any) -> Any:
            if leaf is None or isinstance(leaf, bool | int | str | torch.Size):
                return leaf
            if id(leaf) in numbers:
                return Passed(numbers[id(leaf)])
            if isinstance(leaf, torch.Tensor):
                return Made(tuple(leaf.shape), leaf.dtype)
            raise NotApplicable(
                f"layer `{self._name(number)}` gives a {type(leaf).__name__}, which other stages "
                "can't know"
            )

        found.outputs[number] = map_leaves(describe, outputs)
        if not self.is_last:
            self._see_hooks(number)
        return outputs

    def _see_hooks(self, number: int) -> None:
        """Raise where a layer that others skip is observed from outside, as by router losses."""
        name, layer = self._split.layers[number]
        for path, part in layer.named_modules():
            # The layer's own are called on every stage.
            if part is not layer and (part._forward_hooks or "forward" in vars(part)):
                raise NotApplicable(
                    f"something is hooked to the forward of `{name}.{path}`, as where a model "
                    "collects what its layers do; on other stages it would not be called"
                )

    def _compare(self, stage: int, leaving: list[Any], found: _Found) -> None:
        """Both sides of a cut must see the same arguments, but for what one of them lacks."""
        lacking = {lacks.number for lacks in found.lacking}
        for number, (one, other) in enumerate(zip(leaving, found.arriving, strict=True)):
            if number not in lacking and None not in (one, other) and one != other:
                raise NotApplicable(
                    f"argument {number} of layer `{self._name(self._split.bounds[stage])}` differs "
                    "between the stages: it depends on what only some of them have"
                )


def _digest(leaf: Any) -> Any:
    """Plain data that is equal for equal values; None for an absent one."""
    if is_absent(leaf):
        return None
    if isinstance(leaf, torch.Tensor):
        total = float(leaf.detach().double().nan_to_num().sum())
        return ("tensor", tuple(leaf.shape), str(leaf.dtype), total)
    if leaf is None or isinstance(leaf, bool | int | float | str):
        return ("plain", leaf)
    return ("object", type(leaf).__qualname__)


def _kept_activations(module: nn.Module) -> set[tuple[str, int]]:
    """(path, identity) of tensors with a history that the modules hold."""
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
