"""The rank's line to the runtime: JSON lines over a Unix socket, both ways.

Sending is safe from any thread. A reader thread notes a stop request; when the runtime is gone
(end of file, or a send that fails) the process ends at once, because nobody would ever read what
it does, and a successor may already be training the same task.
"""

from __future__ import annotations

import json
import math
import os
import socket
import threading
import time
from typing import Any

#: Least seconds between two signs of life.
_ALIVE_EVERY_S = 3.0
#: Exit code of a rank whose runtime is gone. Nobody waits for it; it only shows in a core dump.
_RUNTIME_GONE = 70


class Reporter:
    """One connection of one rank, opened with `hello`."""

    def __init__(self, path: str, *, attempt: int, rank: int) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.connect(path)
        self._lock = threading.Lock()
        self._rank = rank
        self._closed = False
        self._alive_at = -math.inf
        self._stop = threading.Event()
        self.send({"type": "hello", "attempt": attempt, "rank": rank, "pid": os.getpid()})
        threading.Thread(target=self._read, name="saturn-report", daemon=True).start()

    @property
    def stop_requested(self) -> bool:
        """Whether the runtime asked this rank to stop at a checkpoint."""
        return self._stop.is_set()

    def send(self, message: dict[str, Any]) -> None:
        """Send one message; ends the process where the runtime is gone."""
        line = json.dumps(_finite(message), allow_nan=False) + "\n"
        try:
            with self._lock:
                self._socket.sendall(line.encode())
        except OSError:
            os._exit(_RUNTIME_GONE)

    def note(self, text: str) -> None:
        """Tell the person watching something that is neither progress nor failure.

        Rank 0 speaks for its gang: the others would say the same.
        """
        if self._rank == 0:
            self.send({"type": "note", "text": text})

    def alive(self) -> None:
        """Give a sign of life in the midst of something that takes long and is no step.

        Rank 0 speaks for its gang; cheap enough for any loop, since most calls send nothing.
        """
        if self._rank != 0:
            return
        now = time.monotonic()
        if now - self._alive_at >= _ALIVE_EVERY_S:
            self._alive_at = now
            self.send({"type": "alive"})

    def close(self) -> None:
        """Nothing more will be sent; the end of the connection is no longer an alarm."""
        self._closed = True
        self._socket.close()

    def _read(self) -> None:
        try:
            with self._socket.makefile("r", encoding="utf-8") as lines:
                for line in lines:
                    if json.loads(line).get("type") == "stop":
                        self._stop.set()
        except (OSError, ValueError):
            pass  # A broken connection, or half a line: the runtime is gone, as below.
        if not self._closed:
            os._exit(_RUNTIME_GONE)


def _finite(value: Any) -> Any:
    """JSON has no NaN and no infinity: a loss that is neither number is sent as null."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: _finite(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(inner) for inner in value]
    return value
