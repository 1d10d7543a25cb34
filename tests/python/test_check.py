"""`make check` chooses the tests that are nearest to a change, within its time."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "scripts"))

import check  # noqa: E402


@pytest.mark.parametrize(
    ("changed", "chosen"),
    [
        ("tests/python/test_pipeline.py", "test_pipeline"),
        ("python/saturn/training/model_changes.py", "test_buffers"),
        ("python/saturn/sweeps/sweep.py", "test_sweeps"),
        ("docs/runs.md", "test_pages"),
    ],
)
def test_what_tests_a_file_is_chosen(changed: str, chosen: str) -> None:
    assert chosen in check.nearest_tests([Path(changed)])


def test_what_is_far_is_left_out() -> None:
    assert "test_pipeline" not in check.nearest_tests([Path("python/saturn/sweeps/sweep.py")])
    assert check.nearest_tests([Path("crates/saturn-core/src/lib.rs")]) == []


def test_only_the_kinds_that_changed_are_checked() -> None:
    rust = [command[1] for command in check.commands([Path("crates/saturn-core/src/lib.rs")])]
    assert rust == ["fmt", "clippy", "test"]
    page = list(check.commands([Path("docs/runs.md")]))
    assert [command[1:3] for command in page] == [["-m", "pytest"]]
