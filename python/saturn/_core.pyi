"""The compiled part: plain data (JSON) in and out. See `saturn.native`, the only user."""

from collections.abc import Callable

__all__ = ["__version__", "read_profile", "run"]

__version__: str

def run(
    request: str,
    write: Callable[[str], None] | None = None,
    *,
    is_terminal: bool = False,
) -> str:
    """Drive a run to its end and return its report as JSON.

    Releases the GIL; Ctrl-C stops training at checkpoints, and the report says `interrupted`.
    Raises `saturn.errors.InvalidInput` and `saturn.errors.RunFailed`.
    """

def read_profile(text: str) -> str:
    """Check the text of a `profile.json` and return it with all fields spelled out.

    Raises `saturn.errors.InvalidInput`, which names the field and says what would be right.
    """
