"""The metrics file: whole lines, whatever happened to the rank before."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from saturn.worker.metrics import Metrics


@pytest.mark.parametrize("begun", ["", '{"step": 1, "lo', "{}\n"])
def test_a_torn_line_does_not_swallow_the_next(tmp_path: Path, begun: str) -> None:
    path = tmp_path / "metrics.jsonl"
    if begun:
        path.write_text(begun)
    for step in (2, 3):  # opened anew, as a black box's is
        metrics = Metrics(tmp_path)
        metrics.add(step, 0.5)
        metrics.close()
    lines = path.read_text().splitlines()
    assert len(lines) == 2 + bool(begun)
    assert [json.loads(line)["step"] for line in lines[-2:]] == [2, 3]
