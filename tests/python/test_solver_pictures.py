"""The pictures of docs/solver.md are up to date, and their plans are valid."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def test_the_pictures_are_up_to_date_and_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    import solver_pictures

    page = (ROOT / "docs" / "solver.md").read_text()
    for path, draw in solver_pictures.PICTURES.items():
        assert path.read_text() == draw(), "run scripts/solver_pictures.py"
        assert f"](images/{path.name})" in page


def test_no_gpu_of_the_pictures_serves_two_gangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    import solver_pictures

    plans = [
        solver_pictures.by_list(solver_pictures.LIST),
        solver_pictures.by_calendar(solver_pictures.RELEASED),
    ]
    for plan in plans:
        assert [one.gang.name for one in plan] == ["A", "B", "C", "D", "E"]
        for one in plan:
            assert len(set(one.rows)) == one.gang.gpus and one.start >= one.gang.release
        for first in plan:
            for second in plan:
                is_at_once = first.start < second.end and second.start < first.end
                assert first is second or not (is_at_once and set(first.rows) & set(second.rows))
