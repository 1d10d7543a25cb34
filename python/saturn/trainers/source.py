"""A trainer's model, batches and losses, made on each rank where they are needed.

Only `make_trainer` travels to the ranks. A rank makes the trainer for itself, and takes the model
out of it. Once the model is spread over the gang, the trainer gets it back and computes losses with
it. A model that is saved for other ranks (`training.saved_build`) has its trainer beside it.
"""

from __future__ import annotations

import contextlib
import copy
import importlib
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from saturn.data import seeds
from saturn.data.seeds import RandomState
from saturn.rank.exceptions import TaskError
from saturn.trainers import building, optimizer, progress
from saturn.trainers.callbacks import Callbacks, follow_rates, own_end_of
from saturn.trainers.order import TrainerBatches, draw_for_workers, in_order
from saturn.training.step_loss import OwnEnd, StepItems


@dataclass
class Ready:
    """A trainer just before its first step, and the parts that were taken out of it."""

    trainer: Any
    loader: Any
    #: The state of the random streams at that point.
    start: RandomState
    #: The last seed before that point.
    seed: int
    #: None once it was taken.
    model: nn.Module | None
    #: The loader of its evaluations; None until it is needed.
    eval_loader: Any = None
    #: The trainer's callbacks, while they hear nothing. A loss may call `self.log`. Only the rank
    #: that has a listener lets its callbacks hear such a call. A trial has no listener.
    muted: list[Any] | None = None
    has_listener: bool = False

    def mute(self) -> None:
        """Let the callbacks hear nothing until there is a listener."""
        if self.muted is None and not self.has_listener:
            handler = self.trainer.callback_handler
            self.muted, handler.callbacks = handler.callbacks, []

    def unmute(self) -> None:
        """Let the callbacks hear everything: there is a listener."""
        self.has_listener = True
        if self.muted is not None:
            self.trainer.callback_handler.callbacks, self.muted = self.muted, None

    @property
    def callbacks(self) -> list[Any]:
        """The trainer's callbacks, muted or not."""
        own: list[Any] = self.trainer.callback_handler.callbacks
        return own if self.muted is None else self.muted


def ready(trainer: Any) -> Ready:
    """Do to an un-run trainer what its `train` does first, and take the model out of it."""
    with building.alone():
        _prepare(trainer)
        start, seed = RandomState.now(torch.device("cpu")), torch.initial_seed()
        with _unprepared(trainer.accelerator):
            loader = trainer.get_train_dataloader()
    model = trainer.model
    loader = in_order(loader, trainer, start, seed)
    # A technique may replace all of the model, so nothing here may keep a reference to it.
    trainer.model = trainer.model_wrapped = trainer.callback_handler.model = None
    return Ready(trainer, loader, start, seed, model)


class TrainerSource:
    """A task's functions, and its `StepLoss`, all taken from a trainer."""

    def __init__(
        self,
        make_trainer: Callable[[], Any],
        *,
        steps: int,
        calls_model_once: bool,
        evaluates: bool = False,
        modules: Sequence[str] = (),
    ) -> None:
        """`steps` is the length of the training; `calls_model_once` describes `compute_loss`.

        `evaluates` says whether the task uses the trainer's evaluation. `modules` are the names of
        the modules that define the trainer: names in a task's pickle are imported before its ranks
        are forked.
        """
        self.make_trainer = make_trainer
        self.calls_model_once, self.evaluates = calls_model_once, evaluates
        self._steps, self._modules = steps, list(modules)
        self._ready: Ready | None = None
        self._device = torch.device("cpu")
        self._rates: deque[float] = deque()
        #: The items of the present step, and their copy on the device.
        self._sent: tuple[Tensor, Tensor] | None = None

    # A task's functions.

    def get_model(self) -> nn.Module:
        """The trainer's model, as at the beginning of its training."""
        if torch.get_default_device().type == "meta":
            # The trainer's data would have no values, and pretrained weights could not be loaded.
            raise RuntimeError("a trainer is not made on `meta`")
        made = self._made(fresh=True)
        model, made.model = made.model, None
        assert model is not None  # a fresh one has a model
        return model

    def get_dataloader(self) -> Any:
        """The trainer's loader: batches of `per_device_train_batch_size`, in its order."""
        return self._made().loader

    def get_eval_dataloader(self) -> Any:
        """The loader of its evaluation: batches of `per_device_eval_batch_size`."""
        made = self._made()
        if made.eval_loader is None:
            trainer = made.trainer
            with building.alone(), _unprepared(trainer.accelerator):
                loader = trainer.get_eval_dataloader()
            made.eval_loader = in_order(loader, trainer, made.start, made.seed, evaluates=True)
        return made.eval_loader

    @property
    def trainer(self) -> Any:
        """The trainer of this process."""
        return self._made().trainer

    def forget_metrics(self) -> None:
        """Drop numbers that TRL's trainers keep of each batch until logging, which never comes."""
        for of_mode in getattr(self.trainer, "_metrics", {}).values():
            of_mode.clear()

    def lr_scheduler(self, of: torch.optim.Optimizer) -> Any:
        """The trainer's scheduler, for the task's optimizer."""
        made = self._made()
        with building.alone():
            scheduler = optimizer.scheduler_for(made.trainer, of, steps=self._steps)
        self._rates = follow_rates(of)
        handler = made.trainer.callback_handler
        handler.optimizer, handler.lr_scheduler = of, scheduler
        handler.train_dataloader = made.loader
        return scheduler

    # The methods of `StepLoss`.

    def take_up(self) -> None:
        if callable(take_up := getattr(self.make_trainer, "take_up", None)):
            take_up()

    def random_start(self) -> RandomState:
        return self._made().start

    @property
    def seed(self) -> int:
        return self._made().seed

    def follow(self, start_of: Callable[[int], RandomState]) -> None:
        if (batches := _batches_of(self._made().loader)) is not None:
            batches.follow(start_of)

    def begin_epoch(self, epoch: int) -> None:
        if (batches := _batches_of(self._made().loader)) is not None:
            batches.begin(epoch)

    def begin_evaluation(self, number: int) -> None:
        with seeds.forked():
            loader = self.get_eval_dataloader()
        if (batches := _batches_of(loader)) is not None:
            batches.begin(number)
        else:
            draw_for_workers()

    def bind(self, model: nn.Module, device: torch.device) -> None:
        made = self._made()
        trainer = made.trainer
        progress.begin(trainer, steps=self._steps, epoch_batches=len(made.loader))
        trainer.model = trainer.model_wrapped = trainer.callback_handler.model = model
        made.mute()
        self._device = device
        trainer.is_in_train = True
        # Sharding changes a module's class; the trainer shifts labels by the original class's name.
        _keep_names(model)
        # Whatever wraps the model, the trainer unwraps to this one.
        trainer.accelerator.unwrap_model = lambda *args, **kwargs: model
        if device.type != "cpu":
            building.tell_device(trainer, device)
            for value in vars(trainer).values():
                if isinstance(value, nn.Module) and value is not model:
                    value.to(device)

    @property
    def own_end(self) -> OwnEnd | None:
        made = self._made()
        return own_end_of(made.trainer, made.callbacks)

    @property
    def publishes(self) -> bool:
        return bool(self._made().trainer.args.push_to_hub)

    def publish(self, load: Callable[[nn.Module], None], step: int) -> str:
        """Publish by `Trainer.push_to_hub` of another trainer, since this model may be spread."""
        # The trainer is made without a hub as usual: only the code below may write to it.
        made = ready(building.build(self.make_trainer))
        trainer, model = made.trainer, made.model
        assert model is not None  # it was made just now
        load(model)
        trainer.model = trainer.model_wrapped = model
        state, now = trainer.state, self._made().trainer.state
        state.global_step, state.max_steps = step, self._steps
        state.log_history, state.epoch = now.log_history, now.epoch
        trainer.init_hf_repo()
        return str(trainer.push_to_hub())

    def listener(self, note: Callable[[str], None]) -> Callbacks:
        made = self._made()
        made.unmute()
        return Callbacks(made.trainer, steps=self._steps, rates=self._rates, note=note)

    def reached(self, done: int) -> None:
        made = self._made()
        progress.move(made.trainer, done, epoch_batches=len(made.loader))

    def count(self, batches: Sequence[Any]) -> Any:
        if not batches:
            return None
        return self._made().trainer._get_num_items_in_batch(list(batches), torch.device("cpu"))

    def loss(self, model: Any, batch: Any, step: StepItems) -> Tensor:
        trainer = self._made().trainer
        num_items = step.num_items
        if isinstance(num_items, torch.Tensor) and self._device.type != "cpu":
            if self._sent is None or self._sent[0] is not num_items:
                # Once a step, and asynchronously, so that the host needn't wait for the copy.
                copied = num_items.pin_memory().to(self._device, non_blocking=True)
                self._sent = num_items, copied
            num_items = self._sent[1]
        trainer.current_gradient_accumulation_steps = step.num_batches
        with trainer.compute_loss_context_manager():
            # A copy, because the trainer removes entries from the batch.
            loss = trainer.compute_loss(model, copy.copy(batch), num_items_in_batch=num_items)
        self.forget_metrics()
        is_scaled = getattr(trainer, "loss_is_scaled_for_ga", None)
        if is_scaled is None:
            accepts = getattr(trainer, "model_accepts_loss_kwargs", False)
            is_scaled = (accepts and num_items is not None) or trainer.compute_loss_func is not None
        return loss if is_scaled or not isinstance(loss, Tensor) else loss / step.num_batches

    def inputs(self, batch: Any, step: StepItems) -> tuple[tuple[Any, ...], dict[str, Any]]:
        asked = _Asked()
        with contextlib.suppress(_Called):
            self.loss(asked, batch, step)
        if asked.called is None:
            raise TaskError("the trainer's compute_loss doesn't call the model")
        return asked.called

    def loss_from(self, outputs: Any, batch: Any, step: StepItems) -> Tensor:
        return self.loss(lambda *args, **kwargs: outputs, batch, step)

    def _made(self, *, fresh: bool = False) -> Ready:
        """The trainer of this process; with `fresh`, one that still has its model."""
        if self._ready is None or (fresh and self._ready.model is None):
            self._ready = ready(building.build(self.make_trainer))
            if not fresh:
                self._ready.model = None
        building.settle(self._ready.trainer)
        return self._ready


class _Called(Exception):
    """Ends a call of `_Asked`, once the arguments are known."""


class _Asked:
    """Stands in for a model, and keeps the arguments of its call."""

    def __init__(self) -> None:
        self.called: tuple[tuple[Any, ...], dict[str, Any]] | None = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.called = args, kwargs
        raise _Called


def _prepare(trainer: Any) -> None:
    """Do what `Trainer.train` does before its first step, as far as it affects the model."""
    from transformers import set_seed

    module: Any = importlib.import_module("transformers.trainer")
    if trainer.model_init is not None:
        set_seed(trainer.args.seed)
        trainer.model = trainer.call_model_init()
        trainer.optimizer = trainer.lr_scheduler = None
    model = trainer.model
    align_special_tokens(trainer)
    if trainer.neftune_noise_alpha is not None:
        module.activate_neftune(model, trainer.neftune_noise_alpha, trainer.accelerator)


def align_special_tokens(trainer: Any) -> None:
    """Give the model's configuration the tokenizer's special tokens, as `train` does first."""
    from transformers import PreTrainedTokenizerBase, ProcessorMixin

    module: Any = importlib.import_module("transformers.trainer")
    is_known = isinstance(trainer.processing_class, PreTrainedTokenizerBase | ProcessorMixin)
    if is_known and hasattr(trainer.model, "config"):
        module.align_special_tokens(trainer.model, trainer.processing_class)


def _batches_of(loader: Any) -> TrainerBatches | None:
    batches = getattr(loader, "batch_sampler", None)
    return batches if isinstance(batches, TrainerBatches) else None


@contextlib.contextmanager
def _unprepared(accelerator: Any) -> Iterator[None]:
    """Within this context accelerate leaves loaders unchanged, because Saturn slices batches."""

    def same(*things: Any, **options: Any) -> Any:
        return things[0] if len(things) == 1 else things

    accelerator.prepare = same
    try:
        yield
    finally:
        del accelerator.prepare


def _keep_names(model: nn.Module) -> None:
    for part in model.modules():
        if type(part).__name__.startswith("FSDP"):
            name = type(part).__mro__[2].__name__
            part._get_name = lambda name=name: name  # type: ignore[method-assign,misc]
