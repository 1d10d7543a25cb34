"""A stage's part of a model's forward: the model's own code, cut at two calls of layers.

Every stage calls the model with the micro-batch. Layers of earlier stages are skipped and give
absent tensors (see `absent`). When the stage's first layer is called, its absent arguments are
supplied with the received tensors. When the next stage's first layer is called, the forward ends,
and the next stage gets the arguments that it lacks. The last stage runs to the end.

A rehearsal for each shape of micro-batch finds the outputs of skipped layers, and the arguments
that each stage lacks. The stages rehearse one after the other, with zeros for what they lack, and
tell each other the facts (see `rehearsal`). `NotApplicable` is raised for layers that are called
out of order or twice, and for values that are needed after a cut. Anything else is caught because
its tensors are absent.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from saturn.data import seeds
from saturn.techniques.interface import NotApplicable
from saturn.techniques.model.changed_parameters import ForwardWatch
from saturn.techniques.pipeline.absent import AbsentTensor, is_absent, named, supplied
from saturn.techniques.pipeline.arguments import Arguments, map_leaves
from saturn.techniques.pipeline.line import Line
from saturn.techniques.pipeline.rehearsal import Found, Made, Passed, Rehearsal, Shapes, compare
from saturn.techniques.pipeline.stages import Split


class NeededElsewhere(RuntimeError):
    """A stage needs parameters outside the layers that it doesn't hold."""

    _MARK = "; the knob `everywhere` would have to list them too: "

    def __init__(self, who: str, names: Sequence[str]) -> None:
        super().__init__(
            f"{who} that comes from parameters that this stage doesn't hold{self._MARK}"
            + ", ".join(names)
        )

    @classmethod
    def names_in(cls, text: str) -> list[str]:
        """The parameters that an error's text names; empty for another error's text."""
        _, mark, names = text.partition(cls._MARK)
        return names.split(", ") if mark else []


@dataclass
class _Run:
    """One forward in progress."""

    stage: int
    layers: range  # the numbers of the stage's layers
    shapes: Shapes
    received: Sequence[torch.Tensor]
    seed: int
    rehearsal: Rehearsal | None = None
    next_layer: int = 0
    #: If the forward was cut, the leaves of the arguments of the next stage's first layer.
    leaves: list[Any] | None = None


class _Cut(BaseException):
    """Ends a stage's forward, with the leaves of the arguments of the next stage's first layer.

    It is a BaseException, so that an `except Exception` in the model's code doesn't catch it.
    """

    def __init__(self, leaves: list[Any]) -> None:
        self.leaves = leaves


class Unit(nn.Module):
    """A part of the model that runs from its beginning to its end: the stage, or a layer of it.

    Anything that must happen around a forward is hooked to a unit, not to the model or the layer.
    Calls of those may be skipped or cut, or may have arguments that are still absent.
    """

    def __init__(
        self, part: nn.Module, run: Callable[..., Any], inner: Sequence[Unit] = ()
    ) -> None:
        super().__init__()
        self.part, self.inner = part, nn.ModuleList(inner)
        self._run = run

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self._run(*args, **kwargs)


class StageForward:
    """Runs the parts of `module` that belong to `line.stages`; `keep_only` has cut `module`.

    Stages run one at a time. The layers' `forward`s are replaced for good. The model's own
    activation checkpointing may call them again during the backward.
    """

    #: The ids of a technique's hooks on parts of layers; the model must have no hooks there.
    own_hooks: Collection[int] = ()

    def __init__(
        self,
        module: nn.Module,
        cut: Split,
        line: Line,
        absent: Sequence[tuple[nn.Module, str]],
    ) -> None:
        """`absent` are the places of parameters that other stages hold."""
        self.module = module
        self._absent = absent
        self._watch = ForwardWatch()
        self._split = cut
        self._line = line
        self._run: _Run | None = None
        own = [number for stage in line.stages for number in self._layers_of(stage)]
        #: The layers of this rank's stages by their numbers, and the model that contains them.
        self.layers: dict[int, Unit] = {}
        for number, (_, layer) in enumerate(cut.layers):
            forward = layer.forward
            if number in own:
                self.layers[number] = forward = Unit(layer, forward)
            layer.forward = functools.partial(self._layer, number, forward)
        self.whole = Unit(module, self._until_cut, self.units)

    @property
    def units(self) -> list[Unit]:
        """The layers of this rank's stages, in order."""
        return list(self.layers.values())

    @property
    def bounds(self) -> tuple[int, ...]:
        """The bounds of all stages, as in `Split`."""
        return self._split.bounds

    def is_last(self, stage: int) -> bool:
        """Whether the forward of `stage` ends with the model's outputs."""
        return self._layers_of(stage).stop == len(self._split.layers)

    def run(
        self,
        stage: int,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        shapes: Shapes,
        received: Sequence[torch.Tensor],
        seed: int,
    ) -> Any:
        """The model's outputs on the last stage; on others the tensors that the next one lacks."""
        run = _Run(stage, self._layers_of(stage), shapes, received, seed)
        outputs = self._forward(run, args, kwargs)
        if run.leaves is None:
            return outputs
        leaving = []
        for lacking in shapes.lacking[stage + 1]:
            tensor = run.leaves[lacking.number]
            self._require(tensor, run.layers.stop)
            if (tuple(tensor.shape), tensor.dtype) != (lacking.shape, lacking.dtype):
                raise NotApplicable(
                    f"argument {lacking.number} of layer `{self._name(run.layers.stop)}` must be a "
                    f"{lacking.dtype} of shape {lacking.shape}, as for an earlier micro-batch of "
                    f"the same shape, but is a {tensor.dtype} of shape {tuple(tensor.shape)}"
                )
            leaving.append(tensor)
        return leaving

    def rehearse(self, args: tuple[Any, ...], kwargs: dict[str, Any], seed: int) -> Shapes:
        """Find the facts for micro-batches like this one; every rank calls this with the same."""
        shapes = Shapes()
        before: Found | None = None
        for stage in range(self._split.num_stages):
            mine = None
            if stage in self._line.stages:
                mine = self._rehearse_own(stage, shapes, before, args, kwargs, seed)
            found = self._line.collect(mine)[self._line.place_of(stage)]
            shapes.add(found)
            if before is not None:
                compare(self._name(self._split.bounds[stage]), before, found)
            before = found
        return shapes

    def loss(self, value: torch.Tensor) -> torch.Tensor:
        """Check `value`, a loss of the last stage's outputs; raises if it is absent."""
        value = supplied(value)
        if is_absent(value):
            raise self._missing(value, "the loss depends on a value")  # type: ignore[arg-type]
        return value

    def _rehearse_own(
        self,
        stage: int,
        shapes: Shapes,
        before: Found | None,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        seed: int,
    ) -> Found:
        rehearsal = Rehearsal(self.module, self._line.device, before, self.own_hooks)
        layers = self._layers_of(stage)
        run = _Run(stage, layers, shapes, (), seed, rehearsal)
        self._forward(run, args, kwargs)
        rehearsal.seed(seed)  # notes whether the last part has drawn
        rehearsal.ended()
        if run.leaves is not None:
            rehearsal.cut(self._split.layers[layers.start : layers.stop], run.leaves)
        return rehearsal.found

    def _forward(self, run: _Run, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        self._run = run
        self._seed(run)
        if torch.is_grad_enabled():
            self._watch.begin(self.module.named_parameters())
        try:
            with self._absent_listed():
                outputs = self.whole(*args, **kwargs)
        finally:
            self._run = None
        if (name := self._watch.changed()) is not None:
            raise NotApplicable(
                f"the forward changes the parameter `{name}` itself; micro-batches would change it "
                "more often than whole batches do"
            )
        return outputs

    @contextmanager
    def _absent_listed(self) -> Iterator[None]:
        """Within this context, absent parameters are among the model's parameters.

        Code may go over all parameters, as a penalty does. With only the parameters of this stage
        it would compute something else without a word; an absent parameter raises an error.
        """
        for part, name in self._absent:
            part._parameters[name] = vars(part)[name]
        try:
            yield
        finally:
            for part, name in self._absent:
                del part._parameters[name]

    def _until_cut(self, *args: Any, **kwargs: Any) -> Any:
        """The model's outputs; if its forward is cut, the tensors present at the cut."""
        run = self._run
        assert run is not None
        try:
            outputs = self.module(*args, **kwargs)
        except _Cut as cut:
            run.leaves = cut.leaves
            return [leaf for leaf in cut.leaves if _is_at_hand(leaf)]
        if run.next_layer < len(self._split.layers):
            raise NotApplicable(
                f"the model's forward ends without a call of layer `{self._name(run.next_layer)}`"
            )
        return pytree.tree_map(supplied, outputs)

    def _layer(self, number: int, forward: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Replaces the `forward` of layer `number`."""
        run = self._run
        arguments = Arguments(args, kwargs)
        leaves = list(map(supplied, arguments.leaves))
        if run is None:  # the backward recomputes this layer
            args, kwargs = arguments.rebuilt(leaves)
            return forward(*args, **kwargs)
        self._see_order(run, number)
        run.next_layer += 1
        if number == run.layers.stop:
            raise _Cut(leaves)
        if number < run.layers.start:
            outputs = self._skip(run, number, leaves)
        else:
            if number == run.layers.start and number > 0:
                self._supply(run, leaves)
                leaves = list(map(supplied, leaves))
            for leaf in leaves:
                self._require(leaf, number)
            args, kwargs = arguments.rebuilt(leaves)
            if run.rehearsal is None:
                outputs = forward(*args, **kwargs)
            else:
                layer = self._split.layers[number]
                outputs = run.rehearsal.run_layer(number, layer, leaves, forward, args, kwargs)
        self._seed(run)
        return outputs

    def _see_order(self, run: _Run, number: int) -> None:
        if number != run.next_layer:
            is_over = run.next_layer == len(self._split.layers)
            right = "all have been called" if is_over else f"`{self._name(run.next_layer)}` is next"
            raise NotApplicable(
                f"the model calls layer `{self._name(number)}` where {right}; stages need each "
                "layer called once, in order"
            )

    def _skip(self, run: _Run, number: int, leaves: list[Any]) -> Any:
        """The outputs of an earlier stage's layer, as absent tensors where values are unknown."""
        name = self._name(number)
        for changed in run.shapes.changed[number]:
            if isinstance(leaves[changed], torch.Tensor) and not is_absent(leaves[changed]):
                raise NotApplicable(f"layer `{name}` writes into an argument that others use too")

        def stand_in(leaf: Any) -> Any:
            if isinstance(leaf, Passed):
                return leaves[leaf.number]
            if isinstance(leaf, Made):
                return AbsentTensor.of(leaf.shape, leaf.dtype, self._line.device, [name])
            return leaf

        return map_leaves(stand_in, run.shapes.outputs[number])

    def _supply(self, run: _Run, leaves: list[Any]) -> None:
        """Supply the absent arguments of this stage's first layer with the received tensors."""
        name = self._name(run.layers.start)
        lacking: dict[int, int] = {}  # by id, because one tensor may be several arguments
        for number, leaf in enumerate(leaves):
            if is_absent(leaf):
                lacking.setdefault(id(leaf), number)
        numbers = list(lacking.values())
        received = run.received
        if run.rehearsal is not None:
            received = run.rehearsal.first_layer(name, leaves, numbers)
        elif numbers != [lacks.number for lacks in run.shapes.lacking[run.stage]]:
            raise NotApplicable(f"layer `{name}` gets other arguments from time to time")
        for number, tensor in zip(numbers, received, strict=True):
            leaves[number].supply(tensor)

    def _require(self, leaf: Any, number: int) -> None:
        """Raise if an argument of layer `number` is absent."""
        if is_absent(leaf):
            raise self._missing(leaf, f"layer `{self._name(number)}` gets a value")

    def _missing(self, absent: AbsentTensor, who: str) -> Exception:
        """The error for an absent tensor whose value is needed."""
        names = self._split.holders.keys()
        layers = [f"{name}." for name, _ in self._split.layers]
        of_layers = [name for name in absent.sources if name.startswith(tuple(layers))]
        if absent.sources <= names and not of_layers:
            return NeededElsewhere(who, sorted(absent.sources))
        return NotApplicable(
            f"{who} that comes from {named(absent.sources)}, and not only by way of the layers in "
            "between"
        )

    def _seed(self, run: _Run) -> None:
        """Seed the code up to the end of the next layer, equally on every stage."""
        if run.rehearsal is not None:
            run.rehearsal.seed(seeds.derive(run.seed, run.next_layer))
        elif run.shapes.draws:
            seeds.seed_batch(seeds.derive(run.seed, run.next_layer), self._line.device)

    def _layers_of(self, stage: int) -> range:
        return range(self._split.bounds[stage], self._split.bounds[stage + 1])

    def _name(self, number: int) -> str:
        return self._split.layers[number][0]


def _is_at_hand(leaf: Any) -> bool:
    """Whether `leaf` is a tensor with numbers."""
    return isinstance(leaf, torch.Tensor) and not is_absent(leaf)
