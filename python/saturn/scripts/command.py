"""A script as it travels to the workers: its command, and how Saturn communicates with it.

The script is a program of its own: Saturn imports nothing of it, and nothing in it depends on the
plan. The environment variables of the protocol are defined here, for both sides.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import cloudpickle  # type: ignore[import-untyped]

#: The path of the file to which a script appends its reports as lines of JSON.
REPORT = "SATURN_REPORT"
#: A path; once a file exists there, the script must save and end.
STOP_FILE = "SATURN_STOP_FILE"
#: Set to 1 in a trial, which may be ended after a few steps.
TRIAL = "SATURN_TRIAL"
#: The run directory.
RUN_DIR = "SATURN_RUN_DIR"
#: Variables that launchers such as torchrun, and Saturn, set for each process.
LAUNCHER_VARIABLES = (
    *("RANK", "LOCAL_RANK", "ROLE_RANK", "GROUP_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"),
    *("GROUP_WORLD_SIZE", "ROLE_WORLD_SIZE", "ROLE_NAME", "MASTER_ADDR", "MASTER_PORT"),
    *("TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_MAX_RESTARTS"),
)
#: The default flag for the checkpoint from which a script resumes.
RESUME_FLAG = "--resume_from_checkpoint"
#: The name of the technique of scripts in plans, reports and profiles.
TECHNIQUE = "script"


@dataclass(frozen=True, kw_only=True)
class ScriptDefinition:
    """Everything needed to run one script."""

    name: str  # the task's name
    path: Path  # absolute
    args: tuple[str, ...]
    cwd: Path  # absolute
    environment: Mapping[str, str] = field(default_factory=dict)
    steps: int | None  # the number of steps; None if the script's reports say it
    #: The flag before the path of a checkpoint; if it ends in `=`, flag and path are one word. None
    #: if the script can't resume.
    resume: str | None
    report_within_s: float
    stop_within_s: float
    #: Whether it trains something: then notes say what its reports lack.
    trains: bool = True
    #: Arguments of the interpreter before the script's path, if there are any.
    before: tuple[str, ...] = ()
    #: The profile key of the task's group.
    group: str | None = None

    @property
    def label(self) -> str:
        """The script's name in messages."""
        return f"`{self.path.name}`"

    def resume_args(self, checkpoint: str) -> list[str]:
        """The arguments with which the script resumes from a checkpoint."""
        assert self.resume is not None
        if self.resume.endswith("="):
            return [self.resume + checkpoint]
        return [self.resume, checkpoint]

    def dumps(self) -> bytes:
        """Pickle the definition."""
        return cloudpickle.dumps(self)  # type: ignore[no-any-return]
