"""A LightningModule as a task's functions: what `Task.from_lightning` puts together.

Each rank makes the module for itself. The module is the task's model, so its parameters keep their
names. `training_step` runs in place of the module's forward, inside the technique's wrappers, so
gradients are exchanged as for any model. Saturn runs the backward, steps the optimizer, and reads
the loader.

The module has no Trainer. Values that it logs during training are dropped; values that
`validation_step` logs become the metrics of an evaluation. If the module asks for anything else of
its Trainer, or for `batch_idx`, an error says so.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from saturn.data import nested, seeds
from saturn.errors import InvalidInput
from saturn.rank.exceptions import TaskError
from saturn.tasks.definition import FLOAT32, call_get_model
from saturn.trainers import optimizer
from saturn.trainers.building import undisturbed
from saturn.trainers.lightning_hooks import DATA_MODULE, MODULE, base_of
from saturn.trainers.lightning_optimizers import Configured, EveryFew, configured
from saturn.trainers.lightning_stand_ins import (
    NO_INDEX,
    Logged,
    NoTrainer,
    unlogged,
    unlogged_dict,
)
from saturn.training.precision import Precision


class LightningSource:
    """A task's functions, all taken from a LightningModule."""

    def __init__(
        self,
        make_module: Callable[..., Any],
        make_data: Callable[[], Any],
        *,
        lr: float,
        keywords: Mapping[str, Any],
        seed: int,
        precision: str = FLOAT32,
    ) -> None:
        """`make_module` is called with `keywords`, and with `lr` if it has that parameter.

        `seed` is the task's; `make_data` and a data module's `setup` draw from it.
        """
        self.make_module, self.make_data, self.seed = make_module, make_data, seed
        self.precision = precision
        self.keywords = dict(keywords)
        if "lr" in _parameters(make_module):
            self.keywords["lr"] = lr
        #: Steps of the training, and steps between two steps of the scheduler.
        self.steps: int | None = None
        self.scheduler_every = 1
        #: The data module and the validation loader that this process has made.
        self._data: Any = None
        self._validation: Any = None

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_data": None, "_validation": None}

    # A task's functions.

    def get_model(self, **_: Any) -> nn.Module:
        """The module, set up for `fit`."""
        module = call_get_model(self.make_module, self.keywords)
        if base_of(module, MODULE) is None:
            raise TypeError(
                f"make_module returned a {type(module).__name__}; it must return a "
                "lightning.pytorch.LightningModule"
            )
        self._take(module)
        module.setup("fit")
        module.configure_model()
        self._take(module)
        return module  # type: ignore[no-any-return]

    def get_dataloader(self) -> Any:
        """The batches to train on."""
        data = self.data()
        loader = data if base_of(data, DATA_MODULE) is None else data.train_dataloader()
        return _one_loader(loader, "train_dataloader")

    def training_step(self, model: Any, batch: Any) -> Tensor:
        """The module's loss of a batch."""
        module = _module_in(model)
        self._take(module, batch=batch)
        arguments = _arguments(module.training_step, NO_INDEX)
        found = _call_in_place_of_forward(
            module, model, lambda own: module.training_step(own, *arguments), batch
        )
        loss = found.get("loss") if isinstance(found, Mapping) else found
        if loss is None:
            raise TaskError(
                "training_step returned no loss, by which Lightning leaves out a batch; return a "
                "loss of zero that depends on the parameters"
            )
        return loss  # type: ignore[no-any-return]

    def evaluate(self, model: Any) -> dict[str, float]:
        """The values that `validation_step` logs, over all batches of the validation loader."""
        module, logged = _module_in(model), Logged()
        if self._validation is None:
            self._validation = _one_loader(self.data().val_dataloader(), "val_dataloader")
        self._take(module, logged)
        for each in module.modules():
            if hasattr(each, "sync_on_compute"):  # torchmetrics; every device sees all batches
                each.sync_on_compute = False
        try:
            module.on_validation_epoch_start()
            for index, batch in enumerate(self._validation):
                logged.samples = float(nested.num_samples(batch) or 1)
                arguments = _arguments(module.validation_step, index)

                def step(own: Any, rest: Sequence[Any] = arguments) -> Any:
                    self._take(module, logged, batch=own)
                    return module.validation_step(own, *rest)

                # The module's own forward, which has the precision, is not called.
                device = next(module.parameters()).device
                with Precision(self.precision, device).context():
                    _call_in_place_of_forward(module, model, step, batch)
            logged.samples = 1.0
            module.on_validation_epoch_end()
        finally:
            self._take(module)
        return logged.found()

    def lr_scheduler(self, of: torch.optim.Optimizer) -> Any:
        """The module's scheduler, for the task's optimizer."""
        scheduler = self.configured()[1].scheduler
        assert scheduler is not None  # only tasks with a scheduler get this method
        moved = optimizer.scheduler_over(of, scheduler)
        return moved if self.scheduler_every == 1 else EveryFew(moved, self.scheduler_every)

    # Reading the module.

    def configured(self) -> tuple[Any, Configured]:
        """(a module for reading only, the result of its `configure_optimizers`)."""
        with undisturbed():
            try:
                with torch.device("meta"):
                    module = self.get_model()
                    return module, configured(module.configure_optimizers())  # type: ignore[operator]
            except (InvalidInput, TaskError):
                raise
            except Exception:  # the module may need values; built for real, its errors are its own
                module = self.get_model()
                return module, configured(module.configure_optimizers())  # type: ignore[operator]

    def data(self, *, prepares: bool = False) -> Any:
        """The loader, or the data module set up for `fit`; `prepares` says that it is new.

        The data is made from the task's seed alone, so all processes split a dataset alike.
        """
        if self._data is not None:
            return self._data
        with undisturbed():
            seeds.seed_all(self.seed)
            data = self.make_data()
            if base_of(data, DATA_MODULE) is None:
                return data
            if prepares:
                data.prepare_data()
            data.setup("fit")
        self._data = data
        return data

    def forget_data(self) -> None:
        """Drop the data that `data` has made: the process that packs a task doesn't train it."""
        self._data = None

    def _take(self, module: Any, logged: Logged | None = None, *, batch: Any = None) -> None:
        """Let the module and its inner modules log to `logged`, and know their batch's device."""
        trainer = NoTrainer(self.steps)
        arrays = (array for _, array in nested.arrays(batch) if isinstance(array, Tensor))
        first = next(arrays, None)
        for each in module.modules():
            if base_of(each, MODULE) is None:
                continue
            each._trainer = trainer
            each.log = unlogged if logged is None else logged.log
            each.log_dict = unlogged_dict if logged is None else logged.log_dict
            if first is not None:
                each._device = first.device


def _one_loader(loader: Any, name: str) -> Any:
    if isinstance(loader, Mapping | list | tuple) or type(loader).__name__ == "CombinedLoader":
        raise InvalidInput(f"`{name}` is a {type(loader).__name__} of loaders; a task has one")
    return loader


def _parameters(function: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    try:
        return inspect.signature(function).parameters
    except (TypeError, ValueError):
        return {}


def _arguments(step: Callable[..., Any], index: Any) -> tuple[Any, ...]:
    """The arguments of a step after the batch, as Lightning passes them."""
    parameters = _parameters(step)
    if "dataloader_iter" in parameters:
        raise TaskError(
            "the module's step takes a `dataloader_iter`; Saturn reads the loader itself"
        )
    return (index,) if len(parameters) > 1 else ()


def _module_in(model: Any) -> Any:
    """The LightningModule inside a technique's wrappers."""
    modules: Iterator[Any] = model.modules()
    return next(each for each in modules if base_of(each, MODULE) is not None)


def _call_in_place_of_forward(
    module: Any, model: Any, function: Callable[[Any], Any], batch: Any
) -> Any:
    """Call `function(batch)` at the place where `model` would call the module's forward."""
    before = vars(module).get("forward")

    def put_back() -> None:
        if before is None:
            vars(module).pop("forward", None)
        else:
            module.forward = before

    def forward(own: Any) -> Any:
        put_back()  # so that the step itself can call the module's own forward
        return function(own)

    module.forward = forward
    try:
        return model(batch)
    finally:
        put_back()
