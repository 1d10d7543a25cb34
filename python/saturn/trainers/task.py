"""The pieces of a task, taken from a trainer: what `Task.from_trainer` puts together.

The trainer is made and read once, in the user's process. `source` makes it again on each rank.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from saturn.data import seeds
from saturn.errors import InvalidInput
from saturn.tasks.definition import BF16, BF16_PARAMS
from saturn.trainers import building, evaluating
from saturn.trainers.reading import read
from saturn.trainers.source import TrainerSource


@dataclass(frozen=True)
class Pieces:
    """The parts of a task."""

    #: Its functions: model, loader, scheduler, and the object that computes its loss.
    source: TrainerSource
    #: The keywords of its `HParams`.
    hparams: dict[str, Any]
    #: Replaces its functions in the profile key.
    performs_as: Any
    #: Its `evaluate`, `evaluate_every` and `best`; empty if it evaluates nothing.
    evaluation: dict[str, Any]
    #: Replaces its `evaluate` in the profile key.
    evaluates_as: Any
    #: Whether its best weights are exported.
    saves_best: bool
    #: Notes for the user.
    notes: list[str]


def pieces_of(
    make_trainer: Callable[[], Any],
    *,
    seed: int = 0,
    evaluates: bool = True,
    precision: str | None = None,
) -> Pieces:
    """Make the trainer once, and read it; the process's random streams don't move.

    `make_trainer` is called again where the task trains. `evaluates` says whether the task uses the
    trainer's evaluation. `precision` replaces the trainer's, unless it is None. Raises
    `InvalidInput` for settings that can't be kept, and the errors of `make_trainer`.
    """
    if not callable(make_trainer):
        wanted = "a function that returns an un-run transformers.Trainer"
        if hasattr(make_trainer, "train_dataset"):
            wanted += ", and this is one: write a function around what makes it"
        raise TypeError(f"make_trainer is a {type(make_trainer).__name__}; it must be {wanted}")
    try:
        import transformers  # noqa: F401
    except ImportError as error:
        raise InvalidInput(
            "Task.from_trainer needs transformers with what its Trainer needs: "
            "pip install 'transformers[torch]'"
        ) from error
    # What a script has made is read where the script finds its files.
    surroundings = getattr(make_trainer, "surroundings", contextlib.nullcontext)
    with building.undisturbed(), surroundings():
        seeds.seed_all(seed)
        reading = read(building.build(make_trainer), evaluates=evaluates)
        # A script's modules are forgotten when it has been read.
        texts = make_trainer.texts() if hasattr(make_trainer, "texts") else None
    source = TrainerSource(
        make_trainer,
        steps=reading.steps,
        calls_model_once=reading.calls_model_once,
        evaluates=reading.evaluation is not None,
        modules=reading.modules,
    )
    hparams = {
        "lr": reading.lr,
        "batch_count": reading.batch_count,
        "epoch_batches": reading.epoch_batches,
        "optimizer_cls": reading.optimizer.optimizer_cls,
        "parameter_groups": reading.optimizer.groups,
        "gradient_accumulation_steps": reading.batches_a_step,
        "max_grad_norm": reading.max_grad_norm,
        "precision": _precision(precision, reading.precision),
        "tf32": reading.tf32,
        "lr_scheduler": source.lr_scheduler,
    }
    evaluation: dict[str, Any] = {}
    if (of_trainer := reading.evaluation) is not None:
        evaluation = {
            "evaluate": evaluating.evaluate_of(source, of_trainer),
            "evaluate_every": of_trainer.every,
            "best": of_trainer.best,
        }
    evaluates_as = None if of_trainer is None else of_trainer.performs_as
    return Pieces(
        source=source,
        hparams=hparams,
        performs_as=reading.performs_as if texts is None else (reading.performs_as, texts),
        evaluation=evaluation,
        evaluates_as=evaluates_as,
        saves_best=of_trainer is not None and of_trainer.loads_best,
        notes=reading.notes,
    )


def _precision(asked: str | None, of_trainer: str) -> str:
    if asked is None:
        return of_trainer
    if asked != BF16_PARAMS:
        raise InvalidInput(
            f"precision is {asked!r}; for a trainer it can only be {BF16_PARAMS!r}: any other is "
            "said in the trainer's own arguments, bf16=True for autocast to bf16"
        )
    if of_trainer != BF16:
        raise InvalidInput(
            f"precision={BF16_PARAMS!r} is for a trainer whose arguments have bf16=True; this "
            "trainer computes in float32"
        )
    return asked
