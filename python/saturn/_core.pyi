"""The compiled part: plain data (JSON) in and out. See `saturn.native`, the only user."""

from collections.abc import Callable

__all__ = ["__version__", "plan", "run"]

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

def plan(problem: str, *, time_limit_s: float, objective: str, solver: str, seed: int) -> str:
    """Solve a planning problem given as JSON and return the plan as JSON."""
