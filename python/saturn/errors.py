"""The errors that Saturn raises, and the exit code that goes with each.

Bad arguments are plain `ValueError` and `TypeError`. Everything else that a caller may want to
catch is a `SaturnError`; the exit codes are those of the `saturn` program, so that a script can
end with `sys.exit(error.exit_code)` and mean the same thing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from saturn.runs.result import RunResult


class SaturnError(Exception):
    """Anything that Saturn itself reports."""

    #: For `sys.exit`; each subclass says what it means.
    exit_code: ClassVar[int] = 5


class InvalidInput(SaturnError, ValueError):
    """Something handed to Saturn can't be used; the message says what would be right. Code 2."""

    exit_code: ClassVar[int] = 2


class NotPicklable(InvalidInput):
    """A function or value of a task, or a technique, can't travel to a worker process."""


class UnknownTechnique(InvalidInput):
    """A technique name that the library doesn't hold; the message lists those that it does."""


class RunOver(InvalidInput):
    """No process drives the run any more, so nothing can be asked of it."""


class RunFailed(SaturnError):
    """Something outside the tasks failed: files, the journal, the start of workers. Code 5."""


class TasksFailed(SaturnError):
    """Every task has ended, and some failed; `result` says what each of them did. Code 1."""

    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, result: RunResult) -> None:
        """Keep the result along with the message."""
        super().__init__(message)
        self.result = result


class RunInterrupted(KeyboardInterrupt, SystemExit):
    """Training stopped at checkpoints; `resume_command` finishes the run. Code 130.

    Ctrl-C, SIGTERM, SIGHUP and `Run.stop` have this effect, and so has `saturn stop`.
    A script that doesn't catch it ends with that code and without a traceback: how to go on has
    been said already. (Python does so for `KeyboardInterrupt` itself but not for its subclasses,
    so this is a `SystemExit` too.)
    """

    exit_code: ClassVar[int] = 130

    def __init__(self, message: str, *, run_dir: str, resume_command: str) -> None:
        """Keep what is needed to go on."""
        super().__init__(message)
        self.code = self.exit_code
        self.run_dir = run_dir
        self.resume_command = resume_command
