"""Make a trainer, and nothing else: on the CPU, as the only process, telling nobody.

By itself a trainer joins the process group that the environment speaks of, moves its model to the
first GPU, and may send word to a hub. Saturn places models, and forms groups, by itself.

Whatever is put in the way of that is there while a trainer is made, and no longer.
"""

from __future__ import annotations

import contextlib
import os
import random
from collections.abc import Callable, Iterator
from typing import Any

import torch

from saturn.data.seeds import RandomState
from saturn.errors import InvalidInput

#: Variables by which launchers say that there are other processes, or how to compute.
_LAUNCHERS = (
    *("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "NODE_RANK"),
    *("MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID"),
)
_PREFIXES = ("ACCELERATE_", "FSDP_", "PARALLELISM_CONFIG_")


def build(make_trainer: Callable[[], Any]) -> Any:
    """The trainer that `make_trainer` returns; it must be one, and not have run.

    Raises `InvalidInput` where it isn't, and whatever `make_trainer` raises.
    """
    from transformers import Trainer

    with alone():
        trainer = make_trainer()
    if not isinstance(trainer, Trainer):
        raise InvalidInput(
            f"make_trainer returned a {type(trainer).__name__}; it must return a "
            "transformers.Trainer (or one of TRL's) on which train() has not been called"
        )
    _place_on_cpu(trainer)
    return trainer


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """Within it a trainer finds one process, no GPU, and nobody to write to."""
    from huggingface_hub import constants
    from transformers import Trainer, TrainingArguments, training_args
    from transformers.utils import logging

    after_init: Callable[[Any], None] = TrainingArguments.__post_init__

    def on_cpu(arguments: Any) -> None:
        arguments.use_cpu = True
        after_init(arguments)

    with contextlib.ExitStack() as stack:
        stack.enter_context(_environment())
        stack.enter_context(_replaced(TrainingArguments, "__post_init__", on_cpu))
        stack.enter_context(_replaced(Trainer, "_move_model_to_device", _stays))
        stack.enter_context(_replaced(Trainer, "init_hf_repo", _tells_nobody))
        stack.enter_context(_replaced(constants, "HF_HUB_DISABLE_TELEMETRY", True))
        # They are told by `HParams`; here they would be set for the process, or refused.
        stack.enter_context(_replaced(training_args, "is_torch_tf32_available", lambda: True))
        stack.enter_context(_replaced(training_args, "enable_tf32", _tells_nobody))
        # It would tell of all that it does from then on.
        stack.enter_context(_replaced(logging, "set_verbosity", _tells_nobody))
        yield


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Put the random streams back afterwards: for a trainer that is only looked at."""
    before = RandomState.now(torch.device("cpu"))
    python = random.getstate()
    try:
        yield
    finally:
        before.set()
        random.setstate(python)


def _place_on_cpu(trainer: Any) -> None:
    """Arguments that were made before, elsewhere, may speak of a GPU."""
    if trainer.args.device.type != "cpu":
        tell_device(trainer, torch.device("cpu"))


def settle(trainer: Any) -> None:
    """Have accelerate know, in a process that got its trainer from another, that it is alone."""
    from accelerate import Accelerator  # type: ignore[import-untyped]
    from accelerate.state import AcceleratorState  # type: ignore[import-untyped]

    if not AcceleratorState._shared_state:
        with alone():
            Accelerator(cpu=True, mixed_precision=trainer.args.mixed_precision)


def tell_device(trainer: Any, device: torch.device) -> None:
    """Have the trainer's own code put on `device` what it makes."""
    from accelerate.state import AcceleratorState, PartialState

    # transformers keeps it under the name of its cached property.
    trainer.args.__dict__["__cached__setup_devices"] = device
    trainer.args._n_gpu = int(device.type != "cpu")
    for state in (trainer.accelerator.state, AcceleratorState(), PartialState()):
        with contextlib.suppress(AttributeError):
            state.device = device


@contextlib.contextmanager
def _environment() -> Iterator[None]:
    before = dict(os.environ)
    for name in before:
        if name in _LAUNCHERS or name.startswith(_PREFIXES):
            del os.environ[name]
    os.environ["ACCELERATE_USE_CPU"] = "true"
    os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


@contextlib.contextmanager
def _replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    if not hasattr(owner, name):  # of another version
        yield
        return
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


def _stays(trainer: Any, model: Any, device: Any) -> None:
    """In place of moving a model."""


def _tells_nobody(*args: Any, **kwargs: Any) -> None:
    """In place of what would reach beyond this process, or change all of it."""
