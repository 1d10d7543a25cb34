"""Compute a task's model and loss so that the result depends on nothing but the batch.

A model can then be compared with itself, in training mode, on batches of different sizes. Dropout
and batch norm pass their inputs through, noise is a constant, and no layer is skipped at random.
torch draws no random numbers at all; Python's and numpy's are seeded before each loss.

Which losses to compare, and what follows from them, is the business of `slice_check`.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from saturn.data import nested, seeds
from saturn.tasks.definition import TaskDefinition
from saturn.techniques.model.layers import repeated_layers
from saturn.training.label_cases import Classes
from saturn.training.model_changes import Changes, ModelChanges
from saturn.training.objective import TaskObjective
from saturn.training.step_loss import StepItems

#: Operators that only make random numbers, by how their names begin.
_DRAWING = (
    *("bernoulli", "cauchy", "exponential", "geometric", "log_normal", "multinomial", "normal"),
    *("poisson", "rand", "random", "uniform"),
)
#: The operators at the end of torch's cross entropies: (log-probabilities, labels, weights of the
#: classes, reduction, the label that is ignored).
_OF_CLASSES = (torch.ops.aten.nll_loss_forward.default, torch.ops.aten.nll_loss2d_forward.default)
#: How much equal losses may differ, relative to the largest, in float64 and float32. The first is
#: not smaller, because some code computes in float32 whatever it is given.
_TOLERANCES = {torch.float64: 1e-6, torch.float32: 5e-6}
#: The value in place of a random number. Neither end of [0, 1), where decisions are taken, and not
#: 0, which might hide the effect of noise.
_CONSTANT = 0.5
#: Factors of a loss, by which limits of its gradients show: powers of two, which round nothing.
_SCALES = (2.0**-10, 1.0, 2.0**20)
#: The most memory of the parameters whose gradients are computed.
_MOST_GRADIENT_BYTES = 2**28
#: Values near both ends, by which a model that skips layers at random skips all or none. Code that
#: draws by Python or numpy skips other layers with each seed.
_ENDS = (0.0, 0.999, 0.0, 0.999)


class TooSlowError(Exception):
    """The computation would take longer than its limit."""


@dataclass(frozen=True)
class Way:
    """A way to compute a model."""

    dtype: torch.dtype
    #: Whether noise is added to the weights. Fresh weights hide differences: a last layer of zeros
    #: gives all samples the same loss, and an untrained router is in balance.
    is_shaken: bool = True
    is_training: bool = True


#: Sharpest first; a later way is for models that can't be computed in an earlier one.
WAYS = (
    Way(torch.float64),
    Way(torch.float32),
    Way(torch.float32, is_shaken=False),
    # A model that draws random numbers in a way of its own repeats its loss only in eval mode.
    Way(torch.float32, is_training=False),
    Way(torch.float32, is_shaken=False, is_training=False),
)


class SteadyModel:
    """The model and loss of a task, computed in one way."""

    def __init__(
        self,
        definition: TaskDefinition,
        build: Callable[[], nn.Module],
        device: torch.device,
        way: Way,
        until: float | None,
    ) -> None:
        """`build` makes the model on the CPU; `until` is a limit on the monotonic clock."""
        self._seed = definition.seed
        self._device, self._way = device, way
        self._objective = TaskObjective(definition)
        self._step_loss = definition.step_loss
        self._has_loss_function = definition.loss_function is not None
        self._calls_model = bool(definition.training_step or definition.step_loss)
        self._build = build
        self._module = build()
        #: Follows the forwards' changes to the model; None before the first forward.
        self.changes: ModelChanges | None = None
        #: The changes of the last forward.
        self.changed: Changes = {}
        self._until = until
        #: The classes of each cross entropy that the losses so far have computed.
        self.classes: set[Classes] = set()
        self.tolerance = _TOLERANCES[way.dtype]

    @property
    def is_training(self) -> bool:
        """Whether the model is in training mode."""
        return self._way.is_training

    @property
    def is_largest(self) -> bool:
        """Whether all other ways take at most as much memory."""
        return self._way == WAYS[0]

    @property
    def takes_odd_labels(self) -> bool:
        """Whether `loss` may be called with labels that the task's batches may never have.

        On a GPU, a label out of bounds makes the GPU unusable for the process. A loss function can
        run on the CPU instead, and the losses of transformers know ignored labels.
        """
        return self.computes_losses_on_cpu or _is_of_transformers(self._module)

    @property
    def computes_losses_on_cpu(self) -> bool:
        """Whether a label that no class has raises an error, and does not spoil a GPU."""
        return self._device.type == "cpu" or self._has_loss_function

    def loss(
        self,
        batch: Any,
        *,
        seed: int = 0,
        has_odd_labels: bool = False,
        after: Changes | None = None,
    ) -> float:
        """The mean loss of `batch`, whatever batches came before; the first call gets the whole.

        With `after`, the forward starts from buffers that an earlier forward left so. `changed`
        has this forward's changes. Raises `TooSlowError` if it would take too long.
        """
        if self.changes is None:
            self.changes = self._prepared()
            if self._step_loss is not None:
                # A part's items are counted relative to those of the whole.
                self._step_loss.bind(self._module, self._device)
                self._objective.items = StepItems(self._step_loss.count([batch]), 1)
            loss = self._loss(batch, seed, has_odd_labels=has_odd_labels)
            if not (parameters := self.changes.changed_parameters()):
                self.changed = self.changes.now()
                return loss
            # The forward changed parameters: build a fresh model, and keep copies of those.
            del self._module
            self._module = self._build()
            self.changes = self._prepared(parameters)
            if self._step_loss is not None:
                self._step_loss.bind(self._module, self._device)
        self.changes.restore(after)
        loss = self._loss(batch, seed, has_odd_labels=has_odd_labels)
        self.changed = self.changes.now()
        return loss

    def paths(self, batches: Sequence[Any]) -> list[list[str]]:
        """The names of the parts that a forward calls, in order, for different draws and batches.

        Only parts with parameters of their own, or with batch norms, count. `loss` must have been
        called before.
        """
        assert self.changes is not None
        names = {
            part: name
            for name, part in self._module.named_modules()
            if next(part.parameters(recurse=False), None) is not None
        }
        found = []
        draws = [(batches[0], number, end) for number, end in enumerate(_ENDS, start=1)]
        for batch, seed, constant in [*draws, *((batch, 0, _CONSTANT) for batch in batches)]:
            called: list[str] = []

            def note(part: nn.Module, _: Any, called: list[str] = called) -> None:
                if part in names:
                    called.append(names[part])

            watch = nn.modules.module.register_module_forward_pre_hook(note)
            try:
                self.changes.restore(None)
                self._loss(batch, seed, has_odd_labels=False, constant=constant)
            finally:
                watch.remove()
            found.append(called)
        return found

    def limits_gradients(self, batch: Any) -> bool:
        """Whether the backward limits gradients, so they do not grow in proportion to the loss.

        If that can't be computed, or takes much memory, the answer is no.
        """
        assert self.changes is not None, "the whole has been computed"
        trained = [each for each in self._module.parameters() if each.requires_grad]
        if sum(each.nbytes for each in trained) > _MOST_GRADIENT_BYTES:
            return False
        self.changes.restore(None)
        seeds.seed_batch(seeds.derive(self._seed, "slices", 0), self._device)
        batch = nested.to_device(nested.with_floats(batch, self._way.dtype), self._device)
        try:
            with Steady():
                loss = self._objective.loss_of(self._module, batch)
                norms = torch.stack([self._norms(loss * scale) / scale for scale in _SCALES])
        except Exception:  # some code can't be differentiated twice
            return False
        spread = norms.amax(0) - norms.amin(0)
        return bool(norms.isfinite().all() and (spread > 1e-3 * norms.amax(0)).any())

    def _norms(self, loss: torch.Tensor) -> torch.Tensor:
        """The norm of each parameter's gradient, of those that have one."""
        trained = [each for each in self._module.parameters() if each.requires_grad]
        found = torch.autograd.grad(loss, trained, retain_graph=True, allow_unused=True)
        return torch.stack([each.norm() for each in found if each is not None])

    def layer_of(self, name: str) -> str | None:
        """The repeated layer that has a part of the model; None if it is in none."""
        layers = {id(layer) for layer in repeated_layers(self._module)}
        above = [name.rsplit(".", dots)[0] for dots in range(name.count(".") + 1)]
        inside = (one for one in above if id(self._module.get_submodule(one)) in layers)
        return next(inside, None)

    def _loss(
        self, batch: Any, seed: int, *, has_odd_labels: bool, constant: float = _CONSTANT
    ) -> float:
        seeds.seed_batch(seeds.derive(self._seed, "slices", seed), self._device)
        batch = nested.with_floats(batch, self._way.dtype)
        on_device = nested.to_device(batch, self._device)
        watch = nn.modules.module.register_module_forward_pre_hook(self._in_time)
        try:
            with torch.no_grad(), Steady(constant, note_classes=self.classes.add):
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
    """Add noise to each weight, of a size that keeps a layer's outputs as large as its inputs."""
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
    """A mode in which a forward and its loss draw no random numbers."""

    def __init__(
        self,
        constant: float = _CONSTANT,
        *,
        note_classes: Callable[[Classes], None] = lambda classes: None,
    ) -> None:
        """`constant` takes the place of every number in [0, 1).

        `note_classes` is told the classes of each cross entropy that is computed.
        """
        super().__init__()  # type: ignore[no-untyped-call]
        self._constant, self._note_classes = constant, note_classes

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        if func in _OF_CLASSES:
            self._note_classes(Classes.of(*args[:1], *args[2:3], *args[4:5]))
        if torch.Tag.nondeterministic_seeded not in func.tags:
            return func(*args, **kwargs)
        name = func._schema.name.partition("::")[2]
        if name in ("native_dropout", "_fused_dropout"):
            return args[0].clone(), torch.ones_like(args[0], dtype=torch.bool)
        args, kwargs = _without_dropout(func, args, kwargs)
        made = func(*args, **kwargs)
        if name.startswith(_DRAWING):
            for tensor in pytree.tree_leaves(made):
                _fill(tensor, name, _least(func, args, kwargs), self._constant)
        return made


def _without_dropout(
    func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments with dropout 0, for an operator that does more, such as attention."""
    positional = list(args)
    for number, argument in enumerate(func._schema.arguments):
        if argument.name == "dropout_p":
            if number < len(positional):
                positional[number] = 0.0
            else:
                kwargs[argument.name] = 0.0
    return tuple(positional), kwargs


def _least(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    """The least whole number that an operator could draw."""
    for number, argument in enumerate(func._schema.arguments):
        if argument.name in ("low", "from"):
            return int(args[number] if number < len(args) else kwargs.get(argument.name, 0))
    return 0


def _fill(tensor: torch.Tensor, name: str, least: int, constant: float) -> None:
    if name.startswith("randperm"):
        tensor.copy_(torch.arange(len(tensor), device=tensor.device))
    elif name.startswith("bernoulli"):
        tensor.fill_(1)
    elif tensor.is_floating_point():
        tensor.fill_(constant)
    else:
        tensor.fill_(least)
