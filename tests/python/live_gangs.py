"""A gang of real processes that the tests' runtime has launched, and what it said when it ended."""

from __future__ import annotations

import array
import contextlib
import fcntl
import json
import math
import os
import queue
import signal
import socket
import subprocess
import termios
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from warm_parent import LIMIT_S

if TYPE_CHECKING:
    from harness import Runtime

#: How long the peers of a failed rank may take to notice, before the gang is killed.
GRACE_S = 60.0


@dataclass
class Result:
    """What a gang said and how it ended."""

    messages: list[tuple[int, dict[str, Any]]]  # (rank, message)
    codes: list[int]
    logs: str

    def of(self, kind: str, rank: int | None = None) -> list[dict[str, Any]]:
        return [
            message
            for sender, message in self.messages
            if message["type"] == kind and rank in (None, sender)
        ]

    def one(self, kind: str) -> dict[str, Any]:
        found = self.of(kind)
        assert len(found) == 1, f"{len(found)} `{kind}` messages\n{self.messages}\n{self.logs}"
        return found[0]


@dataclass
class Gang:
    """A launched gang."""

    runtime: Runtime
    keys: list[str]
    world_size: int
    logs: list[Path]
    processes: list[subprocess.Popen[bytes]]  # of a cold start
    messages: list[tuple[int, dict[str, Any]]] = field(default_factory=list)
    connections: dict[int, socket.socket] = field(default_factory=dict)
    changed: threading.Condition = field(default_factory=threading.Condition)
    #: The steps to which a trial that waits for it is told to go on; None to end it.
    goes_on_to: int | None = None

    def stop(self) -> None:
        """Ask every rank to stop at a checkpoint."""
        self.tell({"type": "stop"})

    def tell(self, message: dict[str, Any], ranks: Sequence[int] | None = None) -> None:
        """Send a line to these ranks, or to all of them."""
        self.wait_for("hello", count=self.world_size)
        for rank, connection in self.connections.items():
            if ranks is None or rank in ranks:
                connection.sendall((json.dumps(message) + "\n").encode())

    def has_been_read(self) -> bool:
        """Whether the ranks have read all that they were told."""
        with self.changed:
            connections = list(self.connections.values())
        return not any(map(_unread, connections))

    def wait_for(self, kind: str, *, count: int = 1, step: int = 0) -> None:
        """Wait for messages of a kind, with at least `step` where they carry one."""

        def there() -> bool:
            found = [m for _, m in self.messages if m["type"] == kind and m.get("step", 0) >= step]
            return len(found) >= count

        with self.changed:
            assert self.changed.wait_for(there, LIMIT_S), f"no {kind}: {self.messages}"

    def pid(self, rank: int) -> int:
        self.wait_for("hello", count=self.world_size)
        with self.changed:
            return next(m["pid"] for r, m in self.messages if m["type"] == "hello" and r == rank)

    def kill(self, rank: int) -> None:
        os.kill(self.pid(rank), signal.SIGKILL)

    def kill_all(self) -> None:
        for rank in range(self.world_size):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid(rank), signal.SIGKILL)

    def wait(self) -> Result:
        """Wait for every rank's end; as the runtime does, end a gang that has failed.

        Peers get a while to say what they saw. Some never return: gloo may leave a rank waiting
        for another that waits too.
        """
        codes: list[int | None] = [None] * self.world_size
        deadline = time.monotonic() + LIMIT_S
        failed_at: float | None = None
        while None in codes:
            for rank, code in enumerate(codes):
                if code is None:
                    codes[rank] = self._poll(rank)
            if failed_at is None and any(codes):
                failed_at = time.monotonic()
            if failed_at is not None and time.monotonic() - failed_at > GRACE_S:
                self.kill_all()
                failed_at = math.inf
            if time.monotonic() > deadline:
                self.kill_all()
                raise AssertionError(f"gang hangs: {codes} {self.messages}\n{self._text()}")
            time.sleep(0.005)
        ended = [code for code in codes if code is not None]
        self.runtime.meet()
        with self.changed:
            # A rank's last lines may still be on their way to the reader threads. A rank that
            # ended well has connected; others may have died before.
            self.changed.wait_for(lambda: self._is_heard_out(ended), 30 if not any(ended) else 5)
            return Result(list(self.messages), ended, self._text())

    def _is_heard_out(self, codes: Sequence[int]) -> bool:
        """Whether all that the ranks sent has been read, as far as can be known."""
        have_connected = all(
            rank in self.connections for rank, code in enumerate(codes) if not code
        )
        return have_connected and not self.runtime.open_readers(self)

    def _poll(self, rank: int) -> int | None:
        if self.processes:
            return self.processes[rank].poll()
        try:
            assert self.runtime.warm is not None
            return self.runtime.warm.exit_code(self.keys[rank], timeout_s=0.001)
        except queue.Empty:
            return None

    def _text(self) -> str:
        return "\n".join(log.read_text() for log in self.logs if log.exists())


def _unread(connection: socket.socket) -> int:
    """Bytes that were sent and are not yet read; none where either side has closed."""
    count = array.array("i", [0])
    with contextlib.suppress(OSError, ValueError):
        fcntl.ioctl(connection.fileno(), termios.TIOCOUTQ, count)
    return count[0]
