"""Whenever a rank is killed while its gang saves, what was saved before loads, whole and unmixed.

`checkpoint_kills` kills; here is only how often, and that it would notice if saving were wrong.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from warm_parent import worker_env

pytestmark = pytest.mark.slow

PROGRAM = Path(__file__).with_name("checkpoint_kills.py")


def kills(directory: Path, *arguments: str | int) -> list[dict[str, Any]]:
    """What the program says of each kill."""
    ended = subprocess.run(
        [sys.executable, PROGRAM, directory, *map(str, arguments)],
        env=worker_env(),
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr[-4000:]
    return [json.loads(line) for line in ended.stdout.splitlines()]


@pytest.mark.parametrize(("path", "seed"), [("waiting", 1), ("background", 2)])
def test_fifty_kills_while_saving_lose_and_mix_nothing(
    tmp_path: Path, path: str, seed: int
) -> None:
    found = kills(tmp_path, seed, 50, path)
    assert [each for each in found if each["wrong"] is not None] == []
    # It came far: most kills hit a gang that saves.
    assert found[-1]["step"] > 15
    assert sum(each["kill"] == "a file cut" for each in found) > 3


@pytest.mark.parametrize("variant", ["in-place", "unverified"])
def test_saving_into_a_directory_that_is_there_is_found_out(tmp_path: Path, variant: str) -> None:
    found = kills(tmp_path, 3, 12, "waiting", variant)
    wrong = [each["wrong"] for each in found if each["wrong"] is not None]
    assert wrong, found
    if variant == "in-place":
        assert any("the newest that loads is" in text for text in wrong), wrong
    else:
        assert any("holds" in text or "loading raised" in text for text in wrong), wrong
