"""Weights & Biases: a tracked run for each task, grouped by the run.

The package wandb is imported only when a task's tracked run begins.
"""

from __future__ import annotations

import netrc
import os
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from saturn.errors import InvalidInput
from saturn.loggers.interface import Logger, Point, TrackedRun, TrackedTask, require

_CLOUD = "https://api.wandb.ai"
#: The axis of all curves. W&B's own step count would be wrong after a resume.
_STEP = "saturn/step"


class WandB(Logger):
    """Tracks tasks in Weights & Biases.

    Args:
        project: where tracked runs go; `WANDB_PROJECT` or W&B's own by default.
        mode: "online", "offline" (files for `wandb sync`) or "disabled"; `WANDB_MODE` or online
            by default.
        name: the logger's name, unique among those of a run.
        init: more keywords of `wandb.init`, such as `entity` and `tags`.
    """

    def __init__(
        self,
        project: str | None = None,
        *,
        mode: str | None = None,
        name: str = "wandb",
        **init: Any,
    ) -> None:
        self.name = name
        self._mode = mode
        self._init = {"project": project, **init}

    def check(self) -> None:
        require("wandb", self.name)
        mode = self._mode or os.environ.get("WANDB_MODE", "online")
        if mode in ("online", "run", "shared") and not _has_key():
            raise InvalidInput(
                "wandb has no API key: run `wandb login`, set WANDB_API_KEY, or give "
                'loggers=[WandB(mode="offline")]'
            )

    def start(self, task: TrackedTask) -> TrackedRun:
        import wandb

        directory = task.directory / "wandb-files"
        directory.mkdir(mode=0o700, exist_ok=True)
        keywords: dict[str, Any] = {
            "name": task.name,
            "group": task.run,
            "config": dict(task.config),
            "dir": str(directory),
            "mode": self._mode,
            "id": task.tracked_id or secrets.token_hex(4),
            # This process has several runs at once, and each may continue an earlier one.
            "reinit": "create_new",
            "resume": "allow",
            "settings": wandb.Settings(console="off", silent=True),
        }
        run = wandb.init(**{**keywords, **self._init})
        run.define_metric(_STEP)
        run.define_metric("*", step_metric=_STEP)
        return _Run(run)


class _Run(TrackedRun):
    def __init__(self, run: Any) -> None:
        self._run = run
        self.id = run.id

    def log(self, points: Sequence[Point]) -> None:
        for point in points:
            self._run.log({**point.values, _STEP: point.step})

    def moved(self, step: int, strategy: str, gpus: int) -> None:
        self._run.config.update({"saturn_strategy": strategy}, allow_val_change=True)
        self._run.summary["saturn/strategy"] = strategy

    def ended(self, status: str) -> None:
        self._run.finish(exit_code=1 if status in ("failed", "diverged") else 0)


def _has_key() -> bool:
    if os.environ.get("WANDB_API_KEY") or os.environ.get("WANDB_IDENTITY_TOKEN_FILE"):
        return True
    host = urlsplit(os.environ.get("WANDB_BASE_URL", _CLOUD)).hostname or ""
    path = os.environ.get("NETRC") or Path.home() / ".netrc"
    try:
        return netrc.netrc(str(path)).authenticators(host) is not None
    except (OSError, netrc.NetrcParseError):
        return False
