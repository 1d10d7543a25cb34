"""The connections that a rank's process groups have opened on CPU slots.

A rank that fails leaves its groups, and its peers see a lost connection. gloo closes connections
once nothing holds the group. But a step that failed in the midst of a backward may leave a model
that holds it for good: its graph is held by C++, where Python collects no cycles. So what is still
open of a closed group is shut down here. gloo's own `abort` closes nothing (torch 2.15).
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path

_DESCRIPTORS = Path("/proc/self/fd")


class Connections:
    """Sockets that were opened while groups opened."""

    def __init__(self) -> None:
        #: By descriptor, what it stood for: a descriptor may be given to another file later.
        self._opened: dict[int, str] = {}

    @contextlib.contextmanager
    def noted(self) -> Iterator[None]:
        """Note the sockets that are opened within."""
        before = _sockets()
        try:
            yield
        finally:
            new = _sockets().items() - before.items()
            self._opened.update(new)

    def shut_down(self) -> None:
        """End the noted connections that are still open; their peers see that at once."""
        opened, self._opened = self._opened, {}
        for descriptor, target in opened.items():
            if _target(descriptor) == target:
                _shut_down(descriptor)


def _shut_down(descriptor: int) -> None:
    """End a connection. What only listens is left: without it gloo ends the process."""
    # gloo's own thread may close it meanwhile, and the peer may have gone.
    with contextlib.suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as connection:
        if not connection.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            connection.shutdown(socket.SHUT_RDWR)


def _sockets() -> dict[int, str]:
    """This process's open sockets, by descriptor."""
    try:
        descriptors = [int(path.name) for path in _DESCRIPTORS.iterdir()]
    except OSError:
        return {}
    found = ((descriptor, _target(descriptor)) for descriptor in descriptors)
    return {number: target for number, target in found if target.startswith("socket:")}


def _target(descriptor: int) -> str:
    """What a descriptor stands for; empty if it is closed."""
    try:
        return str((_DESCRIPTORS / str(descriptor)).readlink())
    except OSError:
        return ""
