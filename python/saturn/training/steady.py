"""A task's model and loss, computed so that nothing but the batch decides what comes out.

So a model can be compared with itself, in training mode, on batches of different sizes: dropout
lets everything pass, noise is a constant, no layer is skipped on some sample and not on another.
Random numbers of torch are not drawn at all; those of Python and numpy are seeded before each loss.
Batch norm lets everything pass too.

Which losses to compare, and what follows, is in `slice_check`.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from saturn.data import nested, seeds
from saturn.tasks.definition import TaskDefinition
from saturn.training.model_changes import Changes, ModelChanges
from saturn.training.objective import TaskObjective
from saturn.training.step_loss import StepItems

#: Operators that make random numbers and nothing else, by how their names begin.
_DRAWING = (
    *("bernoulli", "cauchy", "exponential", "geometric", "log_normal", "multinomial", "normal"),
    *("poisson", "rand", "random", "uniform"),
)
#: What losses that are the same may differ by, as a part of the largest, in float64 and float32.
#: Code that computes in float32 whatever it is given is why the first isn't less.
_TOLERANCES = {torch.float64: 1e-6, torch.float32: 5e-6}
#: What stands for a random number: neither end of [0, 1), where decisions are taken, and not 0,
#: which might hide what a noise does.
_CONSTANT = 0.5


class TooSlowError(Exception):
    """It would have taken longer than it may."""


@dataclass(frozen=True)
class Way:
    """How a model is computed."""

    dtype: torch.dtype
    #: With weights beside those that it was built with. Fresh ones hide things: a last layer of
    #: zeros gives all samples the same loss, and a router that has learned nothing is in balance.
    is_shaken: bool = True
    is_training: bool = True


#: From the sharpest on; a later one is for models that can't be computed in an earlier.
WAYS = (
    Way(torch.float64),
    Way(torch.float32),
    Way(torch.float32, is_shaken=False),
    # A model that draws numbers in a way of its own is not the same twice but in this mode.
    Way(torch.float32, is_training=False),
    Way(torch.float32, is_shaken=False, is_training=False),
)


class SteadyModel:
    """The model and loss of a task, in one way."""

    def __init__(
        self,
        definition: TaskDefinition,
        build: Callable[[], nn.Module],
        device: torch.device,
        way: Way,
        until: float | None,
    ) -> None:
        """`build` makes the model, on the CPU. `until`: on the monotonic clock."""
        self._seed = definition.seed
        self._device, self._way = device, way
        self._objective = TaskObjective(definition)
        self._step_loss = definition.step_loss
        self._has_loss_function = definition.loss_function is not None
        self._calls_model = bool(definition.training_step or definition.step_loss)
        self._build = build
        self._module = build()
        #: What forwards change of the model; None before the first.
        self.changes: ModelChanges | None = None
        #: What the last one has changed.
        self.changed: Changes = {}
        self._until = until
        self.tolerance = _TOLERANCES[way.dtype]

    @property
    def is_training(self) -> bool:
        """Whether the model is in training mode."""
        return self._way.is_training

    @property
    def is_largest(self) -> bool:
        """Whether other ways take less memory."""
        return self._way == WAYS[0]

    @property
    def takes_odd_labels(self) -> bool:
        """Whether `loss` may be asked for labels that the task's batches may never have.

        On a GPU a label out of bounds ends the process's use of it. A loss function can run on the
        CPU for that, and the losses of transformers know of labels that are ignored.
        """
        return (
            self._device.type == "cpu"
            or self._has_loss_function
            or _is_of_transformers(self._module)
        )

    def loss(
        self,
        batch: Any,
        *,
        seed: int = 0,
        has_odd_labels: bool = False,
        after: Changes | None = None,
    ) -> float:
        """The mean loss of `batch`, whatever batches came before; the first is the whole.

        With `after`, as the next after a forward that left buffers so. What this one changes is in
        `changed`. Raises `TooSlowError` where it would take too long.
        """
        if self.changes is None:
            self.changes = self._prepared()
            if self._step_loss is not None:
                # Its parts count in the items of all of it.
                self._step_loss.bind(self._module, self._device)
                self._objective.items = StepItems(self._step_loss.count([batch]), 1)
            loss = self._loss(batch, seed, has_odd_labels=has_odd_labels)
            if not (parameters := self.changes.changed_parameters()):
                self.changed = self.changes.now()
                return loss
            # Another one, whose parameters are as they were.
            del self._module
            self._module = self._build()
            self.changes = self._prepared(parameters)
            if self._step_loss is not None:
                self._step_loss.bind(self._module, self._device)
        self.changes.restore(after)
        loss = self._loss(batch, seed, has_odd_labels=has_odd_labels)
        self.changed = self.changes.now()
        return loss

    def _loss(self, batch: Any, seed: int, *, has_odd_labels: bool) -> float:
        seeds.seed_batch(seeds.derive(self._seed, "slices", seed), self._device)
        batch = nested.with_floats(batch, self._way.dtype)
        on_device = nested.to_device(batch, self._device)
        watch = nn.modules.module.register_module_forward_pre_hook(self._in_time)
        try:
            with torch.no_grad(), Steady():  # type: ignore[no-untyped-call]
                if self._calls_model:
                    return float(self._objective.loss_of(self._module, on_device))
                args, kwargs = self._objective.inputs(on_device)
                outputs = self._module(*args, **kwargs)
                if has_odd_labels and self._has_loss_function and self._device.type != "cpu":
                    outputs, on_device = pytree.tree_map(_on_cpu, outputs), batch
                return float(self._objective.loss(outputs, on_device))
        finally:
            watch.remove()

    def _prepared(self, parameters: Collection[str] = ()) -> ModelChanges:
        module, way = self._module, self._way
        module.to(self._device, way.dtype)
        for part in module.modules():
            if isinstance(part, _BatchNorm) and part.training:
                part.forward = _as_it_is  # type: ignore[method-assign,assignment]
        if not way.is_training:
            module.eval()
        if way.is_shaken:
            _shake(module, seeds.derive(self._seed, "shaken"))
        return ModelChanges(module, parameters)

    def _in_time(self, module: nn.Module, args: Any) -> None:
        if self._until is not None and time.monotonic() > self._until:
            raise TooSlowError


def _shake(module: nn.Module, seed: int) -> None:
    """Add as much to each weight as leaves a layer's outputs of the size of its inputs."""
    for number, parameter in enumerate(module.parameters()):
        if not parameter.is_floating_point():
            continue
        inputs = parameter.numel() // max(1, parameter.shape[0]) if parameter.dim() > 1 else 100
        generator = torch.Generator(parameter.device).manual_seed(seeds.derive(seed, number))
        noise = torch.randn(
            parameter.shape, dtype=parameter.dtype, device=parameter.device, generator=generator
        )
        parameter.data.add_(noise, alpha=max(1, inputs) ** -0.5)


def _as_it_is(inputs: torch.Tensor) -> torch.Tensor:
    return inputs


def _on_cpu(value: Any) -> Any:
    return value.cpu() if isinstance(value, torch.Tensor) else value


def _is_of_transformers(module: nn.Module) -> bool:
    models = sys.modules.get("transformers.modeling_utils")
    return models is not None and any(
        isinstance(part, models.PreTrainedModel) for part in module.modules()
    )


class Steady(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A forward and its loss within it draw nothing."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        if torch.Tag.nondeterministic_seeded not in func.tags:
            return func(*args, **kwargs)
        name = func._schema.name.partition("::")[2]
        if name in ("native_dropout", "_fused_dropout"):
            return args[0].clone(), torch.ones_like(args[0], dtype=torch.bool)
        args, kwargs = _without_dropout(func, args, kwargs)
        made = func(*args, **kwargs)
        if name.startswith(_DRAWING):
            for tensor in pytree.tree_leaves(made):
                _fill(tensor, name, _least(func, args, kwargs))
        return made


def _without_dropout(
    func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments with no dropout in an operator that does more, such as attention."""
    positional = list(args)
    for number, argument in enumerate(func._schema.arguments):
        if argument.name == "dropout_p":
            if number < len(positional):
                positional[number] = 0.0
            else:
                kwargs[argument.name] = 0.0
    return tuple(positional), kwargs


def _least(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    """The least whole number that an operator might draw."""
    for number, argument in enumerate(func._schema.arguments):
        if argument.name in ("low", "from"):
            return int(args[number] if number < len(args) else kwargs.get(argument.name, 0))
    return 0


def _fill(tensor: torch.Tensor, name: str, least: int) -> None:
    if name.startswith("randperm"):
        tensor.copy_(torch.arange(len(tensor), device=tensor.device))
    elif name.startswith("bernoulli"):
        tensor.fill_(1)
    elif tensor.is_floating_point():
        tensor.fill_(_CONSTANT)
    else:
        tensor.fill_(least)
