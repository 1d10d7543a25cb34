"""Make a trainer and nothing else: on the CPU, as a single process, without any message sent.

A trainer by itself joins the process group that the environment names, moves its model to the first
GPU, and may write to a hub. Saturn places models and forms groups itself.

All changes that prevent this last only while the trainer is made.
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

#: Variables in which launchers describe other processes, or say how to compute.
_LAUNCHERS = (
    *("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "NODE_RANK"),
    *("MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID"),
)
_PREFIXES = ("ACCELERATE_", "FSDP_", "PARALLELISM_CONFIG_")


def build(make_trainer: Callable[[], Any]) -> Any:
    """The trainer that `make_trainer` returns; it must not have been run.

    Raises `InvalidInput` if the result is no trainer, and the errors of `make_trainer`.
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
    """Within this context a trainer sees one process, no GPU, and no hub."""
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
        # `HParams` carries these; here they would change the process, or be refused.
        stack.enter_context(_replaced(training_args, "is_torch_tf32_available", lambda: True))
        stack.enter_context(_replaced(training_args, "enable_tf32", _tells_nobody))
        # The trainer would change how much transformers logs from then on.
        stack.enter_context(_replaced(logging, "set_verbosity", _tells_nobody))
        yield


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Restore the random streams after this context, for a trainer that is only read."""
    before = RandomState.now(torch.device("cpu"))
    python = random.getstate()
    try:
        yield
    finally:
        before.set()
        random.setstate(python)


def _place_on_cpu(trainer: Any) -> None:
    """Set a trainer to the CPU if its arguments, made earlier outside `alone`, name a GPU."""
    if trainer.args.device.type != "cpu":
        tell_device(trainer, torch.device("cpu"))


def settle(trainer: Any) -> None:
    """Tell accelerate that it is a single process, if the trainer came from another process."""
    from accelerate import Accelerator  # type: ignore[import-untyped]
    from accelerate.state import AcceleratorState  # type: ignore[import-untyped]

    if not AcceleratorState._shared_state:
        with alone():
            Accelerator(cpu=True, mixed_precision=trainer.args.mixed_precision)


def tell_device(trainer: Any, device: torch.device) -> None:
    """Let the trainer's own code make its tensors on `device`."""
    from accelerate.state import AcceleratorState, PartialState

    # transformers stores the device under the name of its cached property.
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
    if not hasattr(owner, name):  # other versions of the library lack it
        yield
        return
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


def _stays(trainer: Any, model: Any, device: Any) -> None:
    """Replaces a method that moves a model; does nothing."""


def _tells_nobody(*args: Any, **kwargs: Any) -> None:
    """Replaces a function that would affect the whole process, or others; does nothing."""
