"""Wait for what another thread or process brings about."""

from __future__ import annotations

import time
from collections.abc import Callable


def until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 200
    while not is_so():
        assert time.monotonic() < deadline, "it never came to that"
        time.sleep(0.01)
