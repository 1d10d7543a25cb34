"""Messages of the `saturn` program for people, on standard error: standard output is for data."""

from __future__ import annotations

import sys


def say(text: str) -> None:
    """Write a line, or several."""
    sys.stderr.write(f"{text}\n")
