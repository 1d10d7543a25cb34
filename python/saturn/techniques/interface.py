"""The managed technique interface: what a technique says, and what Saturn owns.

A technique says three things only: whether it can run a model at all (`not_applicable`, the
reason in words), which settings are worth trying (`knob_sets`), and how a module is spread over
a gang (`parallelise`). Saturn owns the data, the training loop, checkpoints, progress and
failures, so that a task trains the same way under every technique.

Invariants every technique keeps, because checkpoints are exchanged between techniques:

* the parameters of `ParallelModel.module` carry the names of the unsplit model, and together the
  ranks of the gang hold every parameter;
* one `forward_backward` over all data ranks adds to the gradients that of the loss over the whole
  global batch, each slice counted by its share.

This file does not know any technique, and holds no training code.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol

from saturn.rank.exceptions import NotApplicable
from saturn.tasks.definition import BF16, FLOAT32, FP16

if TYPE_CHECKING:
    from torch import Tensor, nn

    from saturn.rank.gang import Gang

__all__ = [
    "Knobs",
    "NotApplicable",
    "Objective",
    "ParallelModel",
    "Setting",
    "Technique",
]

#: Settings of a technique: plain JSON data, opaque to everything but the technique.
Knobs = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Setting:
    """Where a technique would run: what it may look at when it decides."""

    gpus: int  # devices of the strategy; the gang has one rank on each
    device_kind: str  # "cpu" or "cuda"
    hints: Mapping[str, Any]  # what the task says about its model
    #: What forward and loss are computed in: one of `saturn.tasks.definition.PRECISIONS`.
    precision: str = FLOAT32
    #: What one device holds; None where that is not known.
    device_memory_bytes: int | None = None
    #: Bytes of optimizer state for each byte of trainable parameters: 2 for AdamW, 0 for SGD.
    optimizer_state_ratio: float = 2.0
    #: Devices on each of the gang's nodes, in the order of its ranks; all on one where it is empty.
    node_gpus: tuple[int, ...] = ()
    #: What of the task calls the model, where that is not for the technique to do; None: nothing.
    model_caller: str | None = None

    @property
    def num_nodes(self) -> int:
        """How many nodes the gang takes."""
        return len(self.node_gpus) or 1

    def holds_groups_of(self, size: int) -> bool:
        """Whether each node has whole groups of so many neighbouring ranks."""
        return all(gpus % size == 0 for gpus in self.node_gpus)


class Objective(Protocol):
    """How a batch enters the model and becomes a loss: the task's side of one step.

    A technique that runs the model as a whole asks for `loss_of`. One that doesn't asks for
    `inputs` and `loss`, and says so by `Technique.runs_whole_model`: some tasks have but the first.
    """

    def loss_of(self, model: Callable[..., Any], batch: Any) -> Tensor:
        """Scalar mean loss of `batch`; `model` is called like the task's, once or more often."""
        ...

    def outputs_of(self, model: Callable[..., Any], batch: Any) -> Any:
        """What `model` gives for one sample of `batch`, where that can be told; for comparing.

        Of a task that calls the model by itself, the loss of the batch.
        """
        ...

    def inputs(self, batch: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Positional and keyword arguments of the model for `batch`."""
        ...

    def loss(self, outputs: Any, batch: Any) -> Tensor:
        """Scalar mean loss of the model's `outputs` on `batch`.

        Raises a task error, with the shape it got, where the task's loss is not a scalar.
        """
        ...

    def weight(self, batch: Any) -> float:
        """What the mean loss of `batch` counts beside that of another part of the global batch.

        Its samples or its labels, or what the task's `loss_weight` says of it. For techniques that
        cut their slice once more. Raises `NotApplicable` for a task whose batches may not be cut.
        """
        ...

    def in_host_memory(self, batch: Any) -> Any:
        """The slice at work, given as `batch`, as it was before it came to the device.

        What is read of this one, as `weight` may, waits for no device.
        """
        ...


class ParallelModel(ABC):
    """A module spread over the gang, as one rank holds it."""

    #: Holds this rank's parameters under their unsplit names: what the optimizer gets, and what
    #: is saved.
    module: nn.Module
    #: Which slice of the global batch this rank works on, and into how many it is cut. Ranks of
    #: one pipeline or one tensor group have the same slice.
    data_rank: int
    data_size: int
    #: Whether the `forward_backward` at work is its step's last; kept by `accumulating`.
    is_last_of_step = True
    #: Whether a `forward_backward` that fails leaves nothing but gradients behind, on this rank or
    #: another: then a step that ran out of memory may be taken again, with more of it.
    leaves_only_gradients = False
    #: Whether the technique is there to hold less, and takes longer for it.
    saves_memory = False

    @abstractmethod
    def forward_backward(self, batch: Any, objective: Objective, share: float) -> Tensor | None:
        """Add to the gradients those of `share` times the mean loss over `batch`.

        `batch` is this data rank's slice, already on the device; `share` is its part of all that
        the step trains on, between 0 and 1, under fp16 times the loss's scale. Called once a step,
        or, where gradients are accumulated, once for each of its batches. Returns the unscaled
        mean loss, detached, or None where another rank of the same slice reports it.
        """

    def accumulating(self) -> AbstractContextManager[None]:
        """Entered around each `forward_backward` of a step but its last.

        Gradients needn't be combined over the ranks yet: a technique that can put that off saves
        time, by `is_last_of_step` or by overriding this.
        """
        return self._before_the_last()

    @contextmanager
    def _before_the_last(self) -> Iterator[None]:
        self.is_last_of_step = False
        try:
            yield
        finally:
            self.is_last_of_step = True

    def forward(self, batch: Any, objective: Objective) -> Any:
        """The model's outputs for `batch`, whole and on the device; no gradients are wanted.

        Called within `evaluating`, by every rank equally often: ranks of one data rank with the
        same batch, others with others. None where another rank of the same data rank has the
        outputs. This one calls the module.
        """
        args, kwargs = objective.inputs(batch)
        return self.module(*args, **kwargs)

    def evaluating(self) -> AbstractContextManager[nn.Module]:
        """Entered on every rank around an evaluation, between two steps.

        Gives what a function of the model may call: every rank calls it with the same. This one
        gives the module; where no rank can call it, `runs_whole_model` is false.
        """
        return nullcontext(self.module)

    def begin_trial(self) -> None:  # noqa: B027  (most techniques have nothing to look at)
        """Called on every rank before the first step of a trial: what comes may be watched.

        What is learnt from it is for `Technique.changes_after`.
        """

    def gradient_norm(self) -> Tensor:
        """The 2-norm of the whole model's gradients, each parameter once: equal on every rank.

        This one is right where every rank holds every parameter, whole or as a `DTensor`.
        """
        # Here, not above: the face imports this file, and must not wait for torch.
        from saturn.techniques.gradient_norm import total_norm

        return total_norm(p.grad for p in self.module.parameters() if p.grad is not None)

    def optimizer_memory(self) -> AbstractContextManager[Any]:
        """Entered wherever the optimizer is made, steps, or has its state made for loading.

        A technique may put what is allocated for its state somewhere of its own.
        """
        return nullcontext()

    def before_save(self) -> None:  # noqa: B027  (most techniques have nothing to do)
        """Called on every rank before the module's state is read for a checkpoint."""


class Technique(ABC):
    """A way to parallelise. Subclass it, and `saturn.register("name", TheClass)`.

    Instances are made without arguments, once a rank, and live as long as the attempt.
    """

    #: What the task says about its model, as in `Setting`; set before anything is asked.
    hints: Mapping[str, Any] = MappingProxyType({})
    #: What the task's forward and loss are computed in, as in `Setting`; set before anything is
    #: asked.
    precision: str = FLOAT32
    #: The precisions that it can train in. `bf16-params` is for a technique that gathers
    #: parameters itself; the others are put around the model's forward, whatever the technique.
    precisions: frozenset[str] = frozenset({FLOAT32, BF16, FP16})
    #: Whether it can give a task the model, to be called as a whole.
    runs_whole_model = True

    def reason_against(self, module: nn.Module, setting: Setting) -> str | None:
        """Why it can't train `module` there, for any reason; None where it can."""
        if setting.precision not in self.precisions:
            return (
                f"precision {setting.precision!r} is for techniques that gather parameters (fsdp)"
            )
        if setting.model_caller is not None and not self.runs_whole_model:
            return (
                f"{setting.model_caller} calls the model by itself, so it needs the whole model on "
                "every rank; here no rank has all of it"
            )
        return self.not_applicable(module, setting)

    def not_applicable(self, module: nn.Module, setting: Setting) -> str | None:
        """Say in words why this technique can't run `module` there; None where it can.

        Asked before anything is tried, and again in each trial. `module` is as the task builds it,
        and may be on `meta`: with shapes and no values. One that raises there is asked again with
        the real one.
        """
        return None

    def cuts_batches(self, setting: Setting, knobs: Knobs) -> bool:
        """Whether the loss of a batch is computed in parts, on slices or micro-batches of it.

        Where a task's loss is not made of those of such parts, a technique that cuts is not used.
        """
        return setting.gpus > 1

    def knob_sets(self, module: nn.Module, setting: Setting) -> Sequence[Knobs]:
        """Settings worth measuring; the fastest that fits wins. At least one."""
        return [{}]

    def thriftier_knob_sets(self, module: nn.Module, setting: Setting) -> Sequence[Sequence[Knobs]]:
        """Settings that buy memory with time, in rungs from fast to thrifty.

        A rung is measured only where all before it, `knob_sets` first, ran out of memory: sets
        that can only be slower cost no trial where a faster one fits, and the fastest of all that
        fit still wins.
        """
        return []

    def least_memory_bytes(self, module: nn.Module, setting: Setting, knobs: Knobs) -> int | None:
        """What one device needs at the very least to train `module` so; None where unknown.

        A lower bound: a knob set whose bound is above the device's memory is not tried.
        """
        return None

    def retry_knobs(self, knobs: Knobs, error: str) -> Knobs | None:
        """Another setting to try, given that `knobs` failed with `error`; None for no more."""
        return None

    def changes_after(self, knobs: Knobs, model: ParallelModel) -> Knobs | None:
        """Changes of `knobs` that are worth measuring too, as a trial's steps of `model` tell.

        Every rank calls it, with its own `model`, and must come to the same; None for none. Asked
        once a trial, after the first set that was measured; where the changes make it faster, the
        sets that are still to come take them over, by `changed`.
        """
        return None

    def changed(self, knobs: Knobs, changes: Knobs) -> Knobs:
        """Another set with what `changes_after` said of one, as far as it is right for it too."""
        return {**knobs, **changes}

    @abstractmethod
    def parallelise(self, module: nn.Module, gang: Gang, knobs: Knobs) -> ParallelModel:
        """Spread `module`, which every rank built alike on the CPU, over `gang`.

        Runs on every rank at once, and may replace parts of `module`. Raise `NotApplicable` with
        a reason where it turns out not to work.
        """
