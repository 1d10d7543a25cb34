"""Directories of checkpoints: which is the newest, and what is left of an attempt to make one."""

from __future__ import annotations

from pathlib import Path

import pytest
from saturn.checkpoint import manifest


def committed(directory: Path) -> Path:
    """A checkpoint, as far as its directory tells."""
    directory.mkdir(parents=True)
    (directory / manifest.NAME).write_text('{"step": 4}')
    return directory


@pytest.mark.parametrize("made", ["oldest first", "newest first"])
def test_the_last_save_of_the_last_step_is_the_newest(tmp_path: Path, made: str) -> None:
    newest_first = [
        *(f"step-00000012.{number}" for number in range(12, 1, -1)),
        *("step-00000012", "step-00000007.3", "step-00000007", "step-00000003"),
    ]
    # Some file systems list the newest entry first, others the oldest.
    for name in newest_first if made == "newest first" else reversed(newest_first):
        committed(tmp_path / name)
    (tmp_path / "step-00000013").mkdir()  # without a manifest it is none
    assert [directory.name for _, directory in manifest.found(tmp_path)] == newest_first
    assert manifest.of_step(tmp_path, 12).name == "step-00000012.12"
    manifest.prune(tmp_path)
    kept = ["step-00000007.3", "step-00000012.12"]
    assert sorted(entry.name for entry in tmp_path.iterdir()) == kept


def test_a_link_that_was_cut_short_is_made_anew(tmp_path: Path) -> None:
    checkpoint = committed(tmp_path / "step-00000004")
    (checkpoint / "weights").write_text("good")
    unfinished = tmp_path / "best" / f"{manifest.UNFINISHED}{checkpoint.name}"
    unfinished.mkdir(parents=True)
    (unfinished / "weights").write_text("half")
    linked = manifest.link(checkpoint, tmp_path / "best", 4, {"loss": 1.0})
    assert (linked / "weights").read_text() == "good"
    assert '"loss": 1.0' in (linked / manifest.NAME).read_text()
    assert [entry.name for entry in (tmp_path / "best").iterdir()] == [linked.name]
