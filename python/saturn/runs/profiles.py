"""What an earlier run's trials and training found, for tasks that perform alike.

A profile is the `profile.json` of a run, or a file of that form from anywhere. Its trials say which
profile key they speak for; one without a key speaks for the task of its name.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from saturn import native
from saturn.errors import InvalidInput

#: The profile's name in a run directory.
FILE = "profile.json"


class Profile:
    """Trials by profile key, and by name where a trial has none."""

    def __init__(self, trials: list[dict[str, Any]]) -> None:
        # What failed then may have been mended since, and is tried again.
        self._trials = [trial for trial in trials if trial.get("outcome") != "failed"]

    def of(self, name: str, key: str) -> list[dict[str, Any]]:
        """The trials that speak for the task `name` with profile key `key`, under that name."""
        found: dict[tuple[str, int], dict[str, Any]] = {}
        for trial in self._trials:
            known = trial.get("profile_key")
            if known == key or (known is None and trial["task"] == name):
                found[trial["technique"], trial["gpus"]] = {**trial, "task": name}
        return list(found.values())


def load(path: str | os.PathLike[str]) -> Profile:
    """Read a profile: a run directory or a file; raises `InvalidInput` naming file and field."""
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
