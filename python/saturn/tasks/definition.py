"""A task as it travels to the workers: its functions and numbers, pickled by cloudpickle.

The face writes it into the run directory, ranks read it from there. Everything in it may be a
closure, a lambda or a class of `__main__`; nothing in it depends on the plan.
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

#: What a task's forward and loss may be computed in.
FLOAT32, BF16, FP16, BF16_PARAMS = "float32", "bf16", "fp16", "bf16-params"
PRECISIONS = (FLOAT32, BF16, FP16, BF16_PARAMS)


@dataclass(frozen=True, kw_only=True)
class TaskDefinition:
    """What is needed to train one task, without its name on disk or its plan."""

    name: str
    get_model: Callable[..., Any]
    get_dataloader: Callable[..., Any]
    loss_function: Callable[..., Any] | None
    loss_weight: Callable[..., Any] | None
    lr: float
    epochs: int | None
    batch_count: int | None
    optimizer_cls: Callable[..., Any] | None  # None: AdamW
    gradient_accumulation_steps: int = 1
    max_grad_norm: float | None = None
    precision: str = FLOAT32  # one of PRECISIONS
    deterministic: bool = False
    tf32: bool = False
    lr_scheduler: Callable[..., Any] | None = None
    #: Optimizer settings of parameters by name; see `saturn.training.optimizer`.
    parameter_groups: Sequence[Mapping[str, Any]] = ()
    #: Batches of an epoch, where a step ends with it.
    epoch_batches: int | None = None
    #: `training_step(model, batch)` → the loss, in place of `loss_function`.
    training_step: Callable[..., Any] | None = None
    #: What computes the loss of a step, in place of both: a `saturn.training.step_loss.StepLoss`.
    step_loss: Any = None
    kwargs: Mapping[str, Any]
    hints: Mapping[str, Any]
    #: The values that knobs may have, by technique and knob.
    knobs: Mapping[str, Mapping[str, list[Any]]] = field(default_factory=dict)
    seed: int
    #: Where the first weights are, if not `get_model` alone makes them: a
    #: `saturn.checkpoint.starting.StartingWeights`.
    start_from: Any = None
    save_dir: Path | None = None  # absolute; where a copy of the last checkpoint goes
    evaluate: Evaluate | None = None
    evaluate_every: int | None = None  # steps; None: at the end alone
    best: tuple[str, str] | None = None  # a metric, and `min` or `max`
    saves_best: bool = False  # whether `save_dir` gets the best checkpoint, where there is one
    #: The key of the tasks that perform alike; None where nobody has compared it with others.
    group: str | None = None

    @property
    def model_caller(self) -> str | None:
        """What of the task calls the model, and needs the whole of it; None: nothing does."""
        if self.evaluate is not None and not isinstance(self.evaluate, Evaluation):
            return "the function `evaluate` (a saturn.Evaluation would leave that to Saturn)"
        return self.model_caller_in_step

    @property
    def model_caller_in_step(self) -> str | None:
        """The same of a training step."""
        if self.training_step is not None:
            return "training_step"
        if self.step_loss is not None and not self.step_loss.calls_model_once:
            return "the trainer's compute_loss"
        return None

    @property
    def weighs_batches(self) -> bool:
        """Whether whole batches are weighed: those that make a step, where its loss is their mean.

        That of a task with a `step_loss` is their sum.
        """
        return self.gradient_accumulation_steps > 1 and self.step_loss is None

    def dumps(self) -> bytes:
        """Pickle it by cloudpickle; raises whatever a part that can't be pickled raises."""
        return cloudpickle.dumps(self)  # type: ignore[no-any-return]


def load(path: Path) -> TaskDefinition | ScriptDefinition:
    """Read a definition that this run directory's own run wrote."""
    definition = cloudpickle.loads(path.read_bytes())
    if not isinstance(definition, TaskDefinition | ScriptDefinition):
        raise TypeError(f"{path} holds a {type(definition).__name__}, not a task definition")
    return definition


def call_get_model(get_model: Callable[..., Any], kwargs: Mapping[str, Any]) -> Any:
    """Call `get_model` as it wants to be: with keywords, with one mapping, or with nothing.

    Raises `TypeError` with the signature where `kwargs` fit none of these.
    """
    try:
        signature = inspect.signature(get_model)
    except (TypeError, ValueError):  # some builtins have none
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
    """Whether a function can be called as `call_get_model` would."""
    return _binds(signature, **kwargs) or _takes_mapping(signature, kwargs)


def _takes_mapping(signature: inspect.Signature, kwargs: Mapping[str, Any]) -> bool:
    """Whether a function takes one mapping of all keywords.

    It does not where it has some of them itself, or where its parameter is by default something
    else.
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
