"""The rank's line to the runtime: JSON lines over a Unix socket, both ways.

The runtime sends `{"type": "stop"}`, which asks for a stop at a checkpoint now, and
`{"type": "until", "step": N}`, which asks for one once N steps are done (null: not before the end).
The last `until` holds, in place of the spec's `stop_at_step`; a black box, which saves when it
likes, passes over it.

Sending is safe from any thread; a reader thread notes what the runtime sends. When the runtime is
gone (end of file, or a send that fails) the process ends at once, because nobody would ever read
what it does, and a successor may already be training the same task.

A gang that is silent for long counts as hung. What takes long and is no step gives signs of life
meanwhile, from a thread of its own: a save or a load for as long as it takes, since nothing but the
disk can be slow there; what runs the task's own functions for as long as it computes, since they
may hang.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

from saturn.plain.measures import plain

#: Least seconds between two signs of life that a loop gives.
_ALIVE_EVERY_S = 3.0
#: Seconds between two signs of life that a thread gives.
_BEAT_EVERY_S = 3.0
#: Processor time between two of them that is no sign of computing: threads that only wait wake up
#: now and then, and the thread itself takes less than a tenth of this.
_IDLE_S = 1e-3
#: Parts of messages that hold what training found, whatever number that is.
_MEASURES = frozenset({"loss", "metrics", "best"})
#: Exit code of a rank whose runtime is gone. Nobody waits for it; it only shows in a core dump.
_RUNTIME_GONE = 70


class Reporter:
    """One connection of one rank, opened with `hello`."""

    def __init__(
        self, path: str, *, attempt: int, rank: int, stop_at_step: int | None = None
    ) -> None:
        """`stop_at_step` holds until the runtime names another step, or none."""
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.connect(path)
        self._lock = threading.Lock()
        self._rank = rank
        self._closed = False
        self._alive_at = -math.inf
        self._stop = threading.Event()
        self._until = stop_at_step
        self._go_on_steps = 0
        self._is_answered = threading.Event()
        self.send({"type": "hello", "attempt": attempt, "rank": rank, "pid": os.getpid()})
        threading.Thread(target=self._read, name="saturn-report", daemon=True).start()

    @property
    def stop_requested(self) -> bool:
        """Whether the runtime asked this rank to stop at a checkpoint, now."""
        return self._stop.is_set()

    def wants_stop_at(self, step: int) -> bool:
        """Whether the runtime wants a stop at a checkpoint once `step` steps are done.

        The ranks of a gang hear of it one after the other, so they must agree before they stop.
        """
        until = self._until  # read once: the reader thread may change it
        return self.stop_requested or (until is not None and step >= until)

    def steps_to_go_on_for(self) -> int:
        """Wait for the word on a trial that could go on: the task's steps in all; 0 for an end."""
        with self.alive_throughout():
            self._is_answered.wait()
        return self._go_on_steps

    def send(self, message: dict[str, Any]) -> None:
        """Send one message; ends the process where the runtime is gone."""
        line = json.dumps(_sendable(message), allow_nan=False) + "\n"
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

    def alive_throughout(self) -> contextlib.AbstractContextManager[None]:
        """Give signs of life for as long as the block takes: it waits for disks, and for peers."""
        return self._beating(only_computing=False)

    def alive_while_computing(self) -> contextlib.AbstractContextManager[None]:
        """Give signs of life in the block for as long as this process computes.

        One that hangs takes no processor time, so its silence is noticed.
        """
        return self._beating(only_computing=True)

    def close(self) -> None:
        """Nothing more will be sent; the end of the connection is no longer an alarm."""
        self._closed = True
        self._socket.close()

    @contextlib.contextmanager
    def _beating(self, *, only_computing: bool) -> Iterator[None]:
        ended = threading.Event()

        def beat() -> None:
            before_s = _processor_time_of_others_s()
            while not ended.wait(_BEAT_EVERY_S):
                now_s = _processor_time_of_others_s()
                if not only_computing or now_s - before_s > _IDLE_S:
                    self.send({"type": "alive"})
                before_s = now_s

        thread = threading.Thread(target=beat, name="saturn-alive", daemon=True)
        is_beating = False
        if self._rank == 0:
            # Where no thread can start, the block goes on without signs of life.
            with contextlib.suppress(RuntimeError):
                thread.start()
                is_beating = True
        try:
            yield
        finally:
            ended.set()
            if is_beating:
                thread.join()  # nothing is sent once the connection is closed

    def _read(self) -> None:
        try:
            with self._socket.makefile("r", encoding="utf-8") as lines:
                for line in lines:
                    self._hear(json.loads(line))
        except (OSError, ValueError):
            pass  # A broken connection, or half a line: the runtime is gone, as below.
        if not self._closed:
            os._exit(_RUNTIME_GONE)

    def _hear(self, message: dict[str, Any]) -> None:
        if message.get("type") == "stop":
            self._stop.set()
            self._is_answered.set()
        elif message.get("type") == "go_on":
            self._go_on_steps = int(message["steps"])
            self._is_answered.set()
        elif message.get("type") == "until":
            self._until = message.get("step")


def _processor_time_of_others_s() -> float:
    """Processor time that the other threads of this process have taken, seconds."""
    return time.process_time() - time.thread_time()


def _sendable(message: dict[str, Any]) -> dict[str, Any]:
    return {
        key: plain(value) if key in _MEASURES else _finite(value) for key, value in message.items()
    }


def _finite(value: Any) -> Any:
    """JSON has no NaN and no infinity: of times and sizes, such a number is not known."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: _finite(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(inner) for inner in value]
    return value
