"""A task as it travels to the workers: its functions and numbers, pickled by cloudpickle.

The user's process writes the definition into the run directory, and ranks read it. Everything in it
may be a closure, a lambda or a class of `__main__`. Nothing in it depends on the plan.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import cloudpickle  # type: ignore[import-untyped]

from saturn.scripts.command import ScriptDefinition
from saturn.tasks.evaluation import Evaluate, Evaluation

#: The precisions of a task's forward and loss.
FLOAT32, BF16, FP16, BF16_PARAMS = "float32", "bf16", "fp16", "bf16-params"
PRECISIONS = (FLOAT32, BF16, FP16, BF16_PARAMS)


@dataclass(frozen=True, kw_only=True)
class TaskDefinition:
    """Everything needed to train one task, except its name on disk and its plan."""

    name: str
    get_model: Callable[..., Any]
    get_dataloader: Callable[..., Any]
    loss_function: Callable[..., Any] | None
    loss_weight: Callable[..., Any] | None
    lr: float
    epochs: int | None
    batch_count: int | None
    optimizer_cls: Callable[..., Any] | None  # None means AdamW
    gradient_accumulation_steps: int = 1
    max_grad_norm: float | None = None
    precision: str = FLOAT32  # one of PRECISIONS
    deterministic: bool = False
    tf32: bool = False
    lr_scheduler: Callable[..., Any] | None = None
    #: Optimizer settings for parameters by name; see `saturn.training.optimizer`.
    parameter_groups: Sequence[Mapping[str, Any]] = ()
    #: How many batches an epoch has, if steps end with their epoch.
    epoch_batches: int | None = None
    #: `training_step(model, batch)` → the loss; replaces `loss_function`.
    training_step: Callable[..., Any] | None = None
    #: A `saturn.training.step_loss.StepLoss`, which replaces both.
    step_loss: Any = None
    kwargs: Mapping[str, Any]
    hints: Mapping[str, Any]
    #: The allowed values of knobs, by technique and knob.
    knobs: Mapping[str, Mapping[str, list[Any]]] = field(default_factory=dict)
    seed: int
    #: The place of the first weights, if `get_model` alone doesn't make them: a
    #: `saturn.checkpoint.starting.StartingWeights`.
    start_from: Any = None
    save_dir: Path | None = None  # absolute; a copy of the last checkpoint goes there
    evaluate: Evaluate | None = None
    evaluate_every: int | None = None  # steps; None: only at the end
    best: tuple[str, str] | None = None  # a metric, and `min` or `max`
    saves_best: bool = False  # whether `save_dir` gets the best checkpoint, if there is one
    #: The profile key of the task's group; None if the task was compared with no other.
    group: str | None = None

    @property
    def model_caller(self) -> str | None:
        """The name of the task's part that calls the whole model itself; None if there is none."""
        if self.evaluate is not None and not isinstance(self.evaluate, Evaluation):
            return "the function `evaluate` (a saturn.Evaluation would leave that to Saturn)"
        return self.model_caller_in_step

    @property
    def model_caller_in_step(self) -> str | None:
        """The same, for training steps only."""
        if self.training_step is not None:
            return "training_step"
        if self.step_loss is not None and not self.step_loss.calls_model_once:
            return "the trainer's compute_loss"
        return None

    @property
    def weighs_batches(self) -> bool:
        """Whether whole batches need weights: if a step has several, and its loss is their mean.

        With a `step_loss`, the step's loss is their sum.
        """
        return self.gradient_accumulation_steps > 1 and self.step_loss is None

    def dumps(self) -> bytes:
        """Pickle by cloudpickle; raises the error of a part that can't be pickled."""
        return cloudpickle.dumps(self)  # type: ignore[no-any-return]


def load(path: Path) -> TaskDefinition | ScriptDefinition:
    """Read a definition that this run wrote into its own directory. Raises `TypeError`."""
    definition = cloudpickle.loads(path.read_bytes())
    if not isinstance(definition, TaskDefinition | ScriptDefinition):
        raise TypeError(f"{path} holds a {type(definition).__name__}, not a task definition")
    return definition


def call_get_model(get_model: Callable[..., Any], kwargs: Mapping[str, Any]) -> Any:
    """Call `get_model` as its signature allows: with keywords, one mapping, or no argument.

    Raises `TypeError`, with the signature, if `kwargs` fit none of these.
    """
    try:
        signature = inspect.signature(get_model)
    except (TypeError, ValueError):  # some builtins have no signature
        return get_model(**kwargs)
    if _binds(signature, **kwargs):
        return get_model(**kwargs)
    if _takes_mapping(signature, kwargs):
        return get_model(dict(kwargs))
    name = getattr(get_model, "__name__", "get_model")
    raise TypeError(
        f"{name}{signature} accepts neither the keywords of HParams ({sorted(kwargs)}) "
        "nor one mapping that holds them"
    )


def takes_keywords(signature: inspect.Signature, kwargs: Mapping[str, Any]) -> bool:
    """Whether `call_get_model` could call a function with this signature."""
    return _binds(signature, **kwargs) or _takes_mapping(signature, kwargs)


def _takes_mapping(signature: inspect.Signature, kwargs: Mapping[str, Any]) -> bool:
    """Whether a function takes one mapping of all keywords.

    It doesn't if it has some of the keywords as parameters, or if its parameter's default is no
    mapping.
    """
    if not _binds(signature, dict(kwargs)) or set(kwargs) & set(signature.parameters):
        return False
    first = next(iter(signature.parameters.values()))
    default = first.default
    return default is first.empty or default is None or isinstance(default, Mapping)


def _binds(signature: inspect.Signature, *args: Any, **kwargs: Any) -> bool:
    try:
        signature.bind(*args, **kwargs)
    except TypeError:
        return False
    return True
