"""The only door to the compiled part, `saturn._core`.

It is imported when first needed, so that workers and the library run without it; tests put a fake
in place of its functions.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

from saturn.errors import RunFailed


def run(request: str, write: Callable[[str], None] | None, *, is_terminal: bool) -> str:
    """Drive a run to its end; returns its report as JSON (see `_core.pyi`)."""
    report: str = _core().run(request, write, is_terminal=is_terminal)
    return report


def read_profile(text: str) -> str:
    """Check the text of a `profile.json`; returns it with all fields spelled out."""
    profile: str = _core().read_profile(text)
    return profile


def _core() -> ModuleType:
    try:
        from saturn import _core
    except ImportError as error:
        raise RunFailed(
            f"the compiled part of Saturn is not there ({error}); in a checkout, `make setup` "
            "builds it"
        ) from error
    return _core
