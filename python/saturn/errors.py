"""The errors that Saturn raises, and the exit code that goes with each.

Bad arguments are plain `ValueError` and `TypeError`. Everything else that a caller may want to
catch is a `SaturnError`; the exit codes are those of the `saturn` program, so that a script can
end with `sys.exit(error.exit_code)` and mean the same thing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from saturn.result import RunResult


class SaturnError(Exception):
    """Anything that Saturn itself reports."""

    #: 5: the machine failed us (files, journal, no worker could be started).
    exit_code: ClassVar[int] = 5


class BadInputError(SaturnError, ValueError):
    """Something handed to Saturn can't be used; the message says what would be right."""

    exit_code = 2


class NotPicklableError(BadInputError):
    """A function or value of a task, or a technique, can't travel to a worker process."""


class UnknownTechniqueError(BadInputError, KeyError):
    """A technique name that the library doesn't hold."""

    def __str__(self) -> str:
        # KeyError would show the repr of the message.
        return str(self.args[0]) if self.args else ""


class InfeasibleError(SaturnError):
    """No strategy of some task fits the devices: there is no plan to make."""

    exit_code = 3


class NoPlanInTimeError(SaturnError):
    """The solver's time ran out before it had any plan."""

    exit_code = 4


class TasksFailed(SaturnError):
    """Every task has ended, and some failed; `result` holds what was realised."""

    exit_code = 1

    def __init__(self, message: str, result: RunResult) -> None:
        super().__init__(message)
        self.result = result


class RunInterrupted(KeyboardInterrupt):
    """Ctrl-C: training stopped at checkpoints; `resume_command` finishes the run."""

    exit_code: ClassVar[int] = 130

    def __init__(self, message: str, *, run_dir: str, resume_command: str) -> None:
        super().__init__(message)
        self.run_dir = run_dir
        self.resume_command = resume_command
