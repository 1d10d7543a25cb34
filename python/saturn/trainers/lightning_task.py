"""The pieces of a task, taken from a LightningModule: what `Task.from_lightning` puts together.

Everything that Saturn can't train as Lightning would is refused here, before a run begins.
`lightning` has the functions that travel to the ranks.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from saturn.errors import InvalidInput
from saturn.rank.exceptions import TaskError
from saturn.trainers import lightning_hooks, optimizer
from saturn.trainers.building import undisturbed
from saturn.trainers.lightning import LightningSource
from saturn.trainers.lightning_hooks import DATA_MODULE, MODULE
from saturn.trainers.lightning_optimizers import steps_an_epoch


@dataclass(frozen=True)
class Pieces:
    """The parts of a task."""

    source: LightningSource
    #: The user's `saturn.HParams`, with the module's optimizer and scheduler.
    hparams: Any
    #: Whether the module's validation is the task's evaluation.
    validates: bool


def pieces_of(
    make_module: Callable[..., Any],
    make_data: Callable[[], Any],
    hparams: Any,
    *,
    seed: int = 0,
    ignored: Sequence[str] = (),
    validates: bool = True,
) -> Pieces:
    """Make module and loader once, and read them; the random streams don't move.

    `hparams` is a `saturn.HParams`, which belongs to the floor above. `validates` says whether the
    module's validation may become the task's evaluation. Raises `TypeError`, and `InvalidInput` for
    what can't be trained as Lightning would.
    """
    for name, value in (("make_module", make_module), ("make_data", make_data)):
        if not callable(value):
            raise TypeError(
                f"{name} is a {type(value).__name__}; it must be a function, or a class"
            )
    for name in ("optimizer_cls", "lr_scheduler", "parameter_groups"):
        if getattr(hparams, f"_{name}" if name == "optimizer_cls" else name):
            raise InvalidInput(f"HParams says `{name}`, which is what configure_optimizers says")
    source = LightningSource(
        make_module,
        make_data,
        lr=hparams.lr,
        keywords=hparams.kwargs,
        seed=seed,
        precision=hparams.precision,
    )
    data = source.data(prepares=True)
    if lightning_hooks.base_of(data, DATA_MODULE) is None:
        data = None
    else:
        lightning_hooks.check(data, DATA_MODULE, ignored=ignored)
    with undisturbed():
        batches = _length(source.get_dataloader())
    source.steps = _steps(hparams, batches)
    try:
        module, found = source.configured()
    except TaskError as error:
        raise InvalidInput(str(error)) from error
    things = [(module, MODULE)] + ([] if data is None else [(data, DATA_MODULE)])
    lightning_hooks.check(module, MODULE, ignored=ignored)
    lightning_hooks.check_ignored(things, ignored)
    if not module.automatic_optimization:
        raise InvalidInput(
            "the module has automatic_optimization = False, and Saturn steps the optimizer itself"
        )
    reading = optimizer.read(
        found.optimizer, module, "the optimizer of configure_optimizers", form_is_chosen=False
    )
    optimizer.check_covers(found.optimizer, module, "the optimizer of configure_optimizers")
    lr = found.optimizer.defaults["lr"]
    if lr != hparams.lr:
        raise InvalidInput(
            f"configure_optimizers says lr={lr} and HParams says lr={hparams.lr}; let make_module "
            "have a parameter `lr`, which gets that of HParams, and use it there"
        )
    own = copy.copy(hparams)
    own._optimizer_cls, own.parameter_groups = reading.optimizer_cls, reading.groups
    if found.scheduler is not None:
        own.lr_scheduler = source.lr_scheduler
        if found.every_epochs is not None:
            an_epoch = steps_an_epoch(
                batches, hparams.gradient_accumulation_steps, hparams.epoch_batches
            )
            source.scheduler_every = found.every_epochs * an_epoch
    has_validation = (
        data is not None
        and lightning_hooks.is_overridden(data, "val_dataloader", DATA_MODULE)
        and lightning_hooks.is_overridden(module, "validation_step", MODULE)
    )
    source.forget_data()
    return Pieces(source, own, validates and has_validation)


def _steps(hparams: Any, batches: int | None) -> int | None:
    if hparams.known_steps is not None:
        return int(hparams.known_steps)
    if batches is None or hparams.epochs is None:
        return None
    return int(-(-hparams.epochs * batches // hparams.gradient_accumulation_steps))


def _length(loader: Any) -> int | None:
    try:
        return len(loader)
    except TypeError:
        return None
