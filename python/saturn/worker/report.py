"""The rank's connection to the runtime: JSON lines over a Unix socket, both ways.

The runtime sends `{"type": "stop"}`, which asks for a stop at a checkpoint now, and
`{"type": "until", "step": N}`, which asks for a stop once N steps are done (null: at the end only).
The last `until` replaces the spec's `stop_at_step`. A black box saves when it likes, so it ignores
`until`.

Sending is safe from any thread; a reader thread notes what the runtime sends. When the runtime is
gone (end of file, or a send that fails), the process ends at once. Nobody would read its results,
and a successor may already be training the same task.

The runtime takes a gang that is silent for long as hung. So during long work between steps, a
thread sends heartbeats. Saves and loads send them throughout, since only the disk can be slow
there. Work that runs the task's own functions sends them only while it computes, since those
functions may hang.
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

#: Least seconds between two heartbeats from a loop.
_ALIVE_EVERY_S = 3.0
#: Seconds between two heartbeats from a thread.
_BEAT_EVERY_S = 3.0
#: A process that took less processor time than this since the last heartbeat is idle. Threads that
#: wait wake up now and then; the heartbeat's own thread takes less than a tenth of this.
_IDLE_S = 1e-3
#: Fields of messages that hold what training computed, which may be NaN or infinite.
_MEASURES = frozenset({"loss", "metrics", "best"})
#: Exit code of a rank whose runtime is gone. Nobody waits for the rank, so nobody reads the code.
_RUNTIME_GONE = 70


class Reporter:
    """One rank's connection, which it opens with a `hello`."""

    def __init__(
        self, path: str, *, attempt: int, rank: int, stop_at_step: int | None = None
    ) -> None:
        """`stop_at_step` holds until the runtime names another step, or null."""
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
        """Whether the runtime asked this rank to stop at a checkpoint now."""
        return self._stop.is_set()

    def wants_stop_at(self, step: int) -> bool:
        """Whether the runtime wants a stop at a checkpoint once `step` steps are done.

        The runtime tells the ranks of a gang one by one, so they must agree before they stop.
        """
        until = self._until  # read once, because the reader thread may change it
        return self.stop_requested or (until is not None and step >= until)

    def steps_to_go_on_for(self) -> int:
        """Wait for the answer on a trial that could go on: the task's number of steps, or 0."""
        with self.alive_throughout():
            self._is_answered.wait()
        return self._go_on_steps

    def send(self, message: dict[str, Any]) -> None:
        """Send one message; ends the process if the runtime is gone."""
        line = json.dumps(_sendable(message), allow_nan=False) + "\n"
        try:
            with self._lock:
                self._socket.sendall(line.encode())
        except OSError:
            os._exit(_RUNTIME_GONE)

    def note(self, text: str) -> None:
        """Tell the user something that is neither progress nor a failure.

        Only rank 0 sends notes, because the other ranks would say the same.
        """
        if self._rank == 0:
            self.send({"type": "note", "text": text})

    def alive(self) -> None:
        """Send a heartbeat during long work between steps.

        Only rank 0 sends. Any loop may call this: most calls send nothing.
        """
        if self._rank != 0:
            return
        now = time.monotonic()
        if now - self._alive_at >= _ALIVE_EVERY_S:
            self._alive_at = now
            self.send({"type": "alive"})

    def alive_throughout(self) -> contextlib.AbstractContextManager[None]:
        """Send heartbeats throughout the block, which waits for disks and for peers."""
        return self._beating(only_computing=False)

    def alive_while_computing(self) -> contextlib.AbstractContextManager[None]:
        """Send heartbeats in the block while this process computes.

        A process that hangs takes no processor time, so the runtime notices its silence.
        """
        return self._beating(only_computing=True)

    def close(self) -> None:
        """Close the connection; from here on its end doesn't end the process."""
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
            # If no thread can start, the block goes on without heartbeats.
            with contextlib.suppress(RuntimeError):
                thread.start()
                is_beating = True
        try:
            yield
        finally:
            ended.set()
            if is_beating:
                thread.join()  # so that the thread sends nothing after the connection is closed

    def _read(self) -> None:
        try:
            with self._socket.makefile("r", encoding="utf-8") as lines:
                for line in lines:
                    self._hear(json.loads(line))
        except (OSError, ValueError):
            pass  # a broken connection or half a line: the runtime is gone
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
    """Processor time that the other threads of this process have taken, in seconds."""
    return time.process_time() - time.thread_time()


def _sendable(message: dict[str, Any]) -> dict[str, Any]:
    return {
        key: plain(value) if key in _MEASURES else _finite(value) for key, value in message.items()
    }


def _finite(value: Any) -> Any:
    """Replace NaN and infinity by None, as JSON lacks them: that time or size is unknown."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: _finite(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(inner) for inner in value]
    return value
