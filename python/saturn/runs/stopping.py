"""How a user stops a run that this process drives: by signals, while the process waits for it.

While the main thread waits for a run, Ctrl-C, SIGTERM and SIGHUP ask the run to stop. The first
stops it at checkpoints, the second at once, the third without waiting for processes that can't be
killed. Signals that the program ignores or handles itself are left alone. If the program's handler
raises, the run is asked to stop too, and the exception is raised when the run has stopped. Outside
the wait, signals do what they always do.

Signals within a second of a counted signal don't count. For example, `timeout` signals its child
and then the child's whole group, and a batch system and a closing terminal may both send a signal.
"""

from __future__ import annotations

import contextlib
import math
import signal
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

#: The signals, each with the handlers that mean that the program doesn't handle it itself.
_SIGNALS = {
    signal.SIGINT: (signal.default_int_handler, signal.SIG_DFL),
    signal.SIGTERM: (signal.SIG_DFL,),
    signal.SIGHUP: (signal.SIG_DFL,),
}
#: After this many signals the run must have ended; one more ends the wait for it.
_MOST = 3
#: For this many seconds after a counted signal, others are the same wish.
_SAME_WISH_S = 1.0


def wait(is_over: threading.Event, press: Callable[[], None], timeout: float | None) -> bool:
    """Wait until a run is over; returns whether it is. `press` asks the run to stop."""
    raised: BaseException | None = None
    with _signals_press(press):
        while True:
            try:
                ended = is_over.wait(timeout)
                break
            except _Enough:
                raise KeyboardInterrupt from None
            except BaseException as error:
                raised = error
                timeout = None
                press()
    if raised is not None and not isinstance(raised, KeyboardInterrupt):
        raise raised
    return ended


@contextlib.contextmanager
def as_interrupts() -> Iterator[None]:
    """Let SIGTERM and SIGHUP raise `KeyboardInterrupt`, as Ctrl-C does; on the main thread."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    with _handled(interrupt):
        yield


class _Enough(BaseException):
    """The run doesn't end, however often it is asked to."""


@contextlib.contextmanager
def _signals_press(press: Callable[[], None]) -> Iterator[None]:
    """Let signals ask the run to stop."""
    presses = 0
    counted_at_s = -math.inf

    def handle(_number: int, _frame: FrameType | None) -> None:
        nonlocal presses, counted_at_s
        now_s = time.monotonic()
        if now_s - counted_at_s < _SAME_WISH_S:
            return
        counted_at_s = now_s
        presses += 1
        if presses > _MOST:
            raise _Enough
        press()

    with _handled(handle):
        yield


@contextlib.contextmanager
def _handled(handle: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Let `handle` handle the signals that the program doesn't handle itself.

    Does so only on the main thread, which alone gets signals.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before: dict[signal.Signals, Any] = {}
    try:
        for number, defaults in _SIGNALS.items():
            if signal.getsignal(number) in defaults:
                before[number] = signal.signal(number, handle)
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
