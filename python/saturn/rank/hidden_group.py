"""Hide the gang's process group from the code of a task that makes and reads its data.

A loader gives global batches, whatever the number of devices. But much code that makes loaders asks
torch whether there is a process group, and gives each rank a part of the data if there is one.
Torch's own `DistributedSampler` does so. Here such code finds itself alone, as in one process.

Only the calling thread finds no group; a thread that saves a checkpoint goes on as before. Worker
processes that are forked meanwhile find none either.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch.distributed as dist

#: Functions that ask for the default group. Code calls them by either module.
_MODULES = (dist, dist.distributed_c10d)
_SIZES = ("get_rank", "get_world_size")


@contextlib.contextmanager
def hidden_group() -> Iterator[None]:
    """Within this context, this thread finds no default process group."""
    if not dist.is_available() or not dist.is_initialized():
        yield
        return
    own = threading.get_ident()
    before = [(module, name, getattr(module, name)) for module, name in _asked()]
    for module, name, function in before:
        hidden = _is_initialized if name == "is_initialized" else _of_group
        setattr(module, name, hidden(function, own))
    try:
        yield
    finally:
        for module, name, function in before:
            setattr(module, name, function)


def _asked() -> Iterator[tuple[Any, str]]:
    for module in _MODULES:
        for name in ("is_initialized", *_SIZES):
            yield module, name


def _is_initialized(function: Callable[[], bool], thread: int) -> Callable[[], bool]:
    def is_initialized() -> bool:
        return threading.get_ident() != thread and function()

    return is_initialized


def _of_group(function: Callable[..., int], thread: int) -> Callable[..., int]:
    def of_group(group: Any = None) -> int:
        if group is None and threading.get_ident() == thread:
            raise ValueError(
                "there is no process group here: get_dataloader gives whole batches, which Saturn "
                "cuts over devices"
            )
        return function(group)

    return of_group
