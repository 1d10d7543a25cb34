"""The compiled part: plain data (JSON) in and out. See `saturn.native`, the only user."""

from collections.abc import Callable
from typing import final

__all__ = [
    "Interrupts",
    "__version__",
    "ask",
    "explain",
    "is_driven",
    "judged",
    "outlook",
    "read_profile",
    "report",
    "resume",
    "run",
    "status",
    "status_text",
]

__version__: str

@final
class Interrupts:
    """How often a person asked a run to stop."""

    def __new__(cls) -> Interrupts: ...
    def press(self) -> None:
        """Ask once more: at checkpoints, at once, without waiting for anything."""

def run(
    request: str,
    write: Callable[[str], None] | None = None,
    *,
    is_terminal: bool = False,
    interrupts: Interrupts,
) -> str:
    """Drive a run to its end and return its report as JSON.

    Releases the GIL and needs it for `write` alone. `interrupts` stop training; then the report
    says `interrupted`. Raises `saturn.errors.InvalidInput` and `saturn.errors.RunFailed`.
    """

def resume(
    run_dir: str,
    write: Callable[[str], None] | None = None,
    *,
    is_terminal: bool = False,
    interrupts: Interrupts,
    device_memory_bytes: int | None = None,
    allow_other_hardware: bool = False,
) -> str:
    """Go on with a run that was stopped, drive it to its end and return its report as JSON.

    `device_memory_bytes` is what each device may hold from here on: None for what it could before,
    0 for all that it has. All else is as of `run`.
    """

def outlook(request: str) -> str:
    """What is known of a request's tasks before they are run: a planning problem, as JSON.

    Nothing is run. Raises `saturn.errors.InvalidInput` and `saturn.errors.RunFailed`.
    """

def is_driven(run_dir: str) -> bool:
    """Whether a process drives the run and takes commands."""

def ask(run_dir: str, line: str) -> str | None:
    """Hand a line of JSON to the process that drives the run, and return its reply.

    A reply to a command comes when the command is in the journal. `None` where no process drives
    the run. Raises `saturn.errors.RunFailed` where the process doesn't answer.
    """

def status(run_dir: str) -> str:
    """Where the run and its tasks stand, as JSON: from the process that drives it, or its journal.

    Raises `saturn.errors.InvalidInput` where there is no run, `saturn.errors.RunFailed`.
    """

def status_text(status: str, width: int) -> str:
    """The JSON of `status` as a table for people, in `width` columns, without colour."""

def explain(run_dir: str, task: str | None = None) -> str:
    """Why a task, or the run, is where it is, as JSON: a reason code and a sentence.

    Raises `saturn.errors.InvalidInput` where there is no such run or task, and
    `saturn.errors.RunFailed`.
    """

def judged(run_dir: str) -> str:
    """What the run's stopper has said so far, in its order, as JSON.

    Raises `saturn.errors.InvalidInput` where there is no run, `saturn.errors.RunFailed`.
    """

def report(run_dir: str) -> str:
    """Write the report of a run anew from its journal, and return it as JSON.

    Raises `saturn.errors.InvalidInput` where there is no run, `saturn.errors.RunFailed`.
    """

def read_profile(text: str) -> str:
    """Check the text of a `profile.json` and return it with all fields spelled out.

    Raises `saturn.errors.InvalidInput`, which names the field and says what would be right.
    """
