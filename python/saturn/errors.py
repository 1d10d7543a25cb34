"""The errors that Saturn raises, with their exit codes.

Bad arguments raise plain `ValueError` and `TypeError`. Any other error that a caller may want to
catch is a `SaturnError`. The exit codes are those of the `saturn` program, so that a script can
end with `sys.exit(error.exit_code)` and mean the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from saturn.runs.result import RunResult


class SaturnError(Exception):
    """Base of all errors that Saturn itself reports."""

    #: The code for `sys.exit`; each subclass's docstring explains its own.
    exit_code: ClassVar[int] = 5


class InvalidInput(SaturnError, ValueError):
    """An argument or input can't be used; the message says what would be right. Code 2."""

    exit_code: ClassVar[int] = 2


class NotPicklable(InvalidInput):
    """A function or value of a task, or a technique, can't travel to a worker process."""


class UnknownTechnique(InvalidInput):
    """The library has no technique of this name; the message lists the known names."""


class RunOver(InvalidInput):
    """The run has ended, or no process drives it any more, so it takes no commands."""


class Refused(InvalidInput):
    """A run refused a command, and nothing has changed; `code` says why, for programs. Code 2."""

    def __init__(self, message: str, code: str | None) -> None:
        """Keep the code, which is None from a process of an early version."""
        super().__init__(message)
        self.code = code


class RunFailed(SaturnError):
    """Something outside the tasks failed: files, the journal, the start of workers. Code 5."""


class TasksFailed(SaturnError):
    """Every task has ended, and some have failed; `result` has all tasks' results. Code 1."""

    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, result: RunResult) -> None:
        """Keep the result with the message."""
        super().__init__(message)
        self.result = result


class RunInterrupted(KeyboardInterrupt, SystemExit):
    """Training stopped at checkpoints; `resume_command` continues the run. Code 130.

    Ctrl-C, SIGTERM, SIGHUP, `Run.stop` and `saturn stop` have this effect. A script that doesn't
    catch this exception ends with that code and without a traceback, because the command to resume
    has already been printed. (Python does so for `KeyboardInterrupt` itself but not for its
    subclasses, so this is a `SystemExit` too.)
    """

    exit_code: ClassVar[int] = 130

    def __init__(self, message: str, *, run_dir: str, resume_command: str) -> None:
        """Keep the run directory and the command that resumes the run."""
        super().__init__(message)
        self.code = self.exit_code
        self.run_dir = run_dir
        self.resume_command = resume_command


class WaitingEnded(RunInterrupted):
    """Ctrl-C ended the waiting for tasks in a pool; the tasks go on. Code 130.

    `resume_command` tells where the tasks stand.
    """
