"""Read from an un-run trainer what it would do, as plain data without weights.

The module only reads: `refusals` says what is refused, and `source` does the training's part.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

from torch import nn

from saturn.data import nested
from saturn.errors import InvalidInput
from saturn.tasks.definition import BF16, FLOAT32
from saturn.trainers import (
    arguments,
    building,
    callbacks,
    evaluating,
    optimizer,
    own_parts,
    progress,
    refusals,
)
from saturn.trainers.evaluating import EvaluationReading
from saturn.trainers.optimizer import OptimizerReading
from saturn.trainers.source import ready

#: How many samples are read to learn their sizes.
_LOOKED_AT = 64


@dataclass(frozen=True)
class Reading:
    """How a trainer trains."""

    steps: int
    #: The number of batches of the whole training, of an epoch, and of a step.
    batch_count: int
    epoch_batches: int
    batches_a_step: int
    lr: float
    optimizer: OptimizerReading
    max_grad_norm: float | None
    precision: str
    tf32: bool
    #: Whether its `compute_loss` calls the model once, and uses only its outputs.
    calls_model_once: bool
    #: Names of the modules that define its class, model and collator.
    modules: list[str]
    #: The facts that decide a step's time and memory: equal for trainers that perform alike.
    performs_as: Any
    #: How it evaluates; None if it doesn't, or if the task has another evaluation.
    evaluation: EvaluationReading | None
    #: Notes for the user.
    notes: list[str]


def _rate(given: Any) -> float | None:
    """The learning rate that an optimizer was made with; None if it is no plain number."""
    rate = given.defaults.get("lr")
    return rate if isinstance(rate, float) else None


def read(trainer: Any, *, evaluates: bool = True) -> Reading:
    """Read a trainer, which can't be used afterwards; `InvalidInput` has all reasons against it.

    `evaluates` says whether the trainer's own evaluation counts.
    """
    if reasons := list(refusals.reasons_against(trainer, evaluates=evaluates)):
        raise InvalidInput(
            f"Saturn can't train as this {type(trainer).__name__} would: {'; '.join(reasons)}"
        )
    args = trainer.args
    made = ready(trainer)
    model, loader = made.model, made.loader
    assert isinstance(model, nn.Module)
    trainer.model = model
    with building.alone():
        given = trainer.create_optimizer()
        of_model = optimizer.read(given, model)
        optimizer.check_covers(given, model, "the trainer's optimizer")
        epoch_batches, a_step = len(loader), int(args.gradient_accumulation_steps)
        if epoch_batches == 0:
            raise InvalidInput(
                "the trainer's `train_dataset` is empty, or `dataloader_drop_last` drops its only, "
                "incomplete batch"
            )
        an_epoch = math.ceil(epoch_batches / a_step)
        steps = progress.length(args, epoch_batches)
        if steps <= 0:
            raise InvalidInput(
                f"`num_train_epochs` is {args.num_train_epochs:g}; it must be positive"
            )
        optimizer.scheduler_for(trainer, given, steps=steps)
    epochs, rest = divmod(steps, an_epoch)
    return Reading(
        steps=steps,
        batch_count=epochs * epoch_batches + min(rest * a_step, epoch_batches),
        epoch_batches=epoch_batches,
        batches_a_step=a_step,
        # A scheduler changes the groups, and leaves the defaults alone.
        lr=_rate(given) or args.learning_rate or 1.0,
        optimizer=of_model,
        max_grad_norm=args.max_grad_norm if args.max_grad_norm else None,
        precision=BF16 if args.bf16 else FLOAT32,
        tf32=bool(args.tf32),
        calls_model_once=_calls_model_once(type(trainer)),
        modules=_modules(trainer, model),
        performs_as=_performance(trainer, model, of_model, loader),
        evaluation=evaluating.read(trainer, steps=steps, an_epoch=an_epoch) if evaluates else None,
        notes=list(_notes(trainer)),
    )


def _calls_model_once(cls: type[Any]) -> bool:
    from transformers import Trainer

    return cls.compute_loss is Trainer.compute_loss


def _modules(trainer: Any, model: nn.Module) -> list[str]:
    classes = {type(part) for part in model.modules()}
    classes |= {*type(trainer).__mro__, *type(trainer.args).__mro__, type(trainer.data_collator)}
    return sorted({cls.__module__ for cls in classes})


def _performance(trainer: Any, model: nn.Module, of_model: OptimizerReading, loader: Any) -> Any:
    args, dataset = trainer.args, loader.dataset
    config: Any = getattr(model, "config", None)
    parameters = [
        (name, tuple(parameter.shape), str(parameter.dtype), parameter.requires_grad)
        for name, parameter in model.named_parameters()
    ]
    count = len(dataset)
    places = sorted({number * count // _LOOKED_AT for number in range(min(count, _LOOKED_AT))})
    return {
        "trainer": type(trainer),
        "compute_loss_func": trainer.compute_loss_func,
        "model": [type(part) for part in model.modules()],
        "config": _plain(config.to_dict()) if hasattr(config, "to_dict") else None,
        "parameters": parameters,
        "optimizer": of_model.kind,
        "data": (type(dataset), count, [_sizes(dataset[place]) for place in places]),
        "collator": own_parts.described(trainer.data_collator),
        "own": own_parts.of_trainer(trainer, model),
        "arguments": _arguments(args),
        "clips": bool(args.max_grad_norm),
        "smooths": bool(args.label_smoothing_factor),
        "noise": args.neftune_noise_alpha is not None,
    }


def _arguments(args: Any) -> dict[str, Any]:
    """The arguments that decide how long a step takes, as plain values."""
    assert is_dataclass(args)
    named = {field.name: getattr(args, field.name) for field in fields(args)}
    return {
        name: _plain(value)
        for name, value in sorted(named.items())
        if not arguments.is_untimed(name) and not name.startswith("_")
    }


def _plain(value: Any) -> Any:
    """A value without addresses and other facts that differ between processes."""
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in sorted(value.items(), key=repr)}
    if isinstance(value, list | tuple | set):
        return [_plain(inner) for inner in value]
    if isinstance(value, bool | int | float | str) or value is None:
        return value
    return f"{type(value).__name__} {getattr(value, 'value', '')}"


def _sizes(sample: Any) -> Any:
    if isinstance(sample, Mapping):
        return {str(key): _sizes(value) for key, value in sample.items()}
    if isinstance(sample, tuple):
        return [_sizes(value) for value in sample]
    if hasattr(sample, "shape"):
        return nested.num_elements(sample)
    return len(sample) if hasattr(sample, "__len__") else 1


def _notes(trainer: Any) -> list[str]:
    notes = [*callbacks.notes_on(trainer), *refusals.notes_on(type(trainer))]
    if trainer.args.push_to_hub:
        notes.append("its model is pushed to the hub once, when it is trained (`push_to_hub`)")
    return notes
