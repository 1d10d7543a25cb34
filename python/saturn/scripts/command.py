"""A script as it travels to the workers: what is run, and how Saturn speaks with it.

The script is a program of its own: nothing of it is imported here, and nothing in it depends on the
plan. The words of the agreement (environment variables) stand here, for both of its sides.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import cloudpickle  # type: ignore[import-untyped]

#: Where a script writes what it reports: a path, to which lines of JSON are appended.
REPORT = "SATURN_REPORT"
#: A path; once a file is there, the script is to save and to end.
STOP_FILE = "SATURN_STOP_FILE"
#: Set to 1 in a trial, which may be ended after a few steps.
TRIAL = "SATURN_TRIAL"
#: The run directory.
RUN_DIR = "SATURN_RUN_DIR"
#: What launchers such as torchrun set for each process, and Saturn does too.
LAUNCHER_VARIABLES = (
    *("RANK", "LOCAL_RANK", "ROLE_RANK", "GROUP_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"),
    *("GROUP_WORLD_SIZE", "ROLE_WORLD_SIZE", "ROLE_NAME", "MASTER_ADDR", "MASTER_PORT"),
    *("TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_MAX_RESTARTS"),
)
#: The flag of scripts that say no other.
RESUME_FLAG = "--resume_from_checkpoint"
#: The technique of scripts in plans, reports and profiles.
TECHNIQUE = "script"


@dataclass(frozen=True, kw_only=True)
class ScriptDefinition:
    """What is needed to run one script."""

    name: str  # the task's
    path: Path  # absolute
    args: tuple[str, ...]
    cwd: Path  # absolute
    environment: Mapping[str, str] = field(default_factory=dict)
    steps: int | None  # in all; None: its reports say so
    #: What comes before the path of a checkpoint; with a `=` at its end, in one word with it. None:
    #: the script can't go on from one.
    resume: str | None
    report_within_s: float
    stop_within_s: float
    #: What stands before the path, where it is not the path alone that is run.
    before: tuple[str, ...] = ()
    #: The key of the tasks that perform alike.
    group: str | None = None

    @property
    def label(self) -> str:
        """What messages call it."""
        return f"`{self.path.name}`"

    def resume_args(self, checkpoint: str) -> list[str]:
        """The arguments with which it goes on from a checkpoint."""
        assert self.resume is not None
        if self.resume.endswith("="):
            return [self.resume + checkpoint]
        return [self.resume, checkpoint]

    def dumps(self) -> bytes:
        """Pickle it."""
        return cloudpickle.dumps(self)  # type: ignore[no-any-return]
