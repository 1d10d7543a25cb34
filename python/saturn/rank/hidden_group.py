"""Hide the gang's process group from the code of a task that makes and reads its data.

A loader gives global batches, whatever the number of devices. But much code that makes loaders asks
torch whether there is a process group, and gives each rank a part of the data if there is one.
Torch's own `DistributedSampler` does so. Here such code finds itself alone, as in one process.

Only threads in `hidden_group` find no group; a thread that saves a checkpoint goes on as before.
Worker processes that are forked meanwhile find none either. Torch's functions are replaced only
while some thread is in `hidden_group`, because `torch.compile` knows them by identity.
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

_lock = threading.Lock()
#: How often each thread has entered `hidden_group` and not left it.
_entered: dict[int, int] = {}
#: Torch's own functions, while they are replaced.
_own: list[tuple[Any, str, Callable[..., Any]]] = []


@contextlib.contextmanager
def hidden_group() -> Iterator[None]:
    """Within this context, this thread finds no default process group."""
    if not dist.is_available() or dist.distributed_c10d.GroupMember.WORLD is None:
        yield
        return
    thread = threading.get_ident()
    with _lock:
        if not _entered:
            _replace()
        _entered[thread] = _entered.get(thread, 0) + 1
    try:
        yield
    finally:
        with _lock:
            _entered[thread] -= 1
            if _entered[thread] == 0:
                del _entered[thread]
            if not _entered:
                _put_back()


def _replace() -> None:
    for module in _MODULES:
        for name in ("is_initialized", *_SIZES):
            function = getattr(module, name)
            _own.append((module, name, function))
            hidden = _is_initialized if name == "is_initialized" else _of_group
            setattr(module, name, hidden(function))


def _put_back() -> None:
    while _own:
        module, name, function = _own.pop()
        setattr(module, name, function)


def _is_initialized(function: Callable[[], bool]) -> Callable[[], bool]:
    def is_initialized() -> bool:
        return threading.get_ident() not in _entered and function()

    return is_initialized


def _of_group(function: Callable[..., int]) -> Callable[..., int]:
    def of_group(group: Any = None) -> int:
        if group is None and threading.get_ident() in _entered:
            raise ValueError(
                "there is no process group here: get_dataloader gives whole batches, which Saturn "
                "cuts over devices"
            )
        return function(group)

    return of_group
