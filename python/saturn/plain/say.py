"""Messages of the `saturn` program for people, on standard error: standard output is for data."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator

#: A person at a terminal is told what takes longer than this, seconds.
_LONG_S = 2.0


def say(text: str) -> None:
    """Write a line, or several."""
    sys.stderr.write(f"{text}\n")


@contextlib.contextmanager
def say_if_long(text: str, after_s: float = _LONG_S) -> Iterator[None]:
    """Write a line if the block takes longer than `after_s`, and a person is at a terminal."""
    timer = threading.Timer(after_s, say, [text])
    timer.daemon = True
    if sys.stderr.isatty():
        timer.start()
    try:
        yield
    finally:
        timer.cancel()
