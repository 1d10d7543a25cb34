"""Tasks made of a `transformers.Trainer` or of a `LightningModule`.

`Task.from_trainer` and `Task.from_lightning` say what their arguments mean; `saturn.trainers` reads
the trainer or the module. This module puts the task together.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from saturn.errors import InvalidInput
from saturn.tasks import arguments, evaluation
from saturn.tasks.hparams import HParams
from saturn.tasks.model_keywords import check_keywords

if TYPE_CHECKING:
    from saturn.tasks.task import Task


def of_trainer(
    cls: type[Task],
    make_trainer: Callable[[], Any],
    precision: str | None,
    options: Mapping[str, Any],
) -> Task:
    """`Task.from_trainer`, for a class of tasks; `options` are keywords of `Task`."""
    if options.get("start_from") is not None:
        raise InvalidInput(
            "start_from is not for a trainer's task: load the weights in make_trainer, before "
            "the trainer is made, because it may make other models of its own (a reference, "
            "adapters)"
        )
    from saturn.trainers.task import pieces_of

    pieces = pieces_of(
        make_trainer,
        seed=options.get("seed", 0),
        evaluates="evaluate" not in options,
        precision=precision,
    )
    task = cls(
        *(pieces.source.get_model, pieces.source.get_dataloader, None),
        HParams(**pieces.hparams),
        **{**pieces.evaluation, **options},
    )
    if "evaluate" in options and not pieces.source.calls_model_once:
        evaluation.check_caller(task.evaluation.evaluate, "the trainer's compute_loss")
    task._step_loss, task._performs_as = pieces.source, pieces.performs_as
    task._evaluates_as, task._saves_best = pieces.evaluates_as, pieces.saves_best
    for note in pieces.notes:
        sys.stderr.write(f"saturn: task `{task.name}`: {note}\n")
    return task


def of_lightning(
    cls: type[Task],
    make_module: Callable[..., Any],
    make_data: Callable[[], Any],
    hparams: HParams,
    ignored_hooks: Sequence[str],
    options: Mapping[str, Any],
) -> Task:
    """`Task.from_lightning`, for a class of tasks; `options` are keywords of `Task`."""
    from saturn.trainers.lightning_task import pieces_of

    arguments.check_hparams(hparams)
    check_keywords(make_module, hparams.kwargs, HParams.known())
    pieces = pieces_of(
        *(make_module, make_data, hparams),
        seed=options.get("seed", 0),
        ignored=ignored_hooks,
        validates="evaluate" not in options,
    )
    source = pieces.source
    own = {"evaluate": source.evaluate} if pieces.validates else {}
    task = cls(
        *(source.get_model, source.get_dataloader, None, pieces.hparams),
        training_step=source.training_step,
        **{**own, **options},
    )
    # The user's functions decide the key: those of the source contain the learning rate.
    task._performs_as = (make_module, make_data, "lightning")
    task._evaluates_as = "validation_step" if pieces.validates else None
    return task
