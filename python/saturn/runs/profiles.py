"""The results of an earlier run's trials and training, for tasks that perform alike.

A profile is the `profile.json` of a run, or a file of that form from anywhere. Each trial in it has
the profile key for which it holds; a trial without a key holds for the task of its name.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from saturn import native
from saturn.errors import InvalidInput

#: The profile's file name in a run directory.
FILE = "profile.json"


class Profile:
    """Trials by profile key, or by task name if a trial has no key."""

    def __init__(self, trials: list[dict[str, Any]]) -> None:
        # A trial that failed then may work now, so it is made again.
        self._trials = [trial for trial in trials if trial.get("outcome") != "failed"]

    def of(self, name: str, key: str) -> list[dict[str, Any]]:
        """The trials that hold for a task with this name and profile key, under its name."""
        found: dict[tuple[str, int], dict[str, Any]] = {}
        for trial in self._trials:
            known = trial.get("profile_key")
            if known == key or (known is None and trial["task"] == name):
                found[trial["technique"], trial["gpus"]] = {**trial, "task": name}
        return list(found.values())


def load(path: str | os.PathLike[str]) -> Profile:
    """Read a profile from a run directory or a file; `InvalidInput` names file and field."""
    file = Path(path)
    if file.is_dir():
        file = file / FILE
    try:
        text = file.read_text()
    except (OSError, ValueError) as error:
        raise InvalidInput(
            f"profile: {file} can't be read ({error}); give the directory of a run that has ended, "
            "or a file like its profile.json"
        ) from error
    try:
        return Profile(json.loads(native.read_profile(text))["trials"])
    except InvalidInput as error:
        raise InvalidInput(f"profile {file}: {error}") from error
