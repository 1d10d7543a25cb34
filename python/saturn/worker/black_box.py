"""Placeholder until the black box level is written."""
from typing import Any


def run(spec: Any, definition: Any, reporter: Any) -> None:
    raise NotImplementedError
