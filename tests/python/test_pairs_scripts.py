"""Pairs' cases of scripts that train by themselves, against the same script by plain `python`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pairs
import pytest
import torch
from harness import Runtime
from pair_happenings import AT, Story, play
from pair_models import STEPS
from pairs import Case
from saturn import Task
from saturn.plain.measures import number, numbers

SCRIPT = Path(__file__).with_name("pair_script.py")
TECHNIQUE = {"name": "script", "level": "black_box", "import": "saturn.worker.scripts.script:run"}
CASES = {case.label: case for case in pairs.cases() if case["kind"] == "script"}


def arguments(case: Case, out: Path) -> list[str]:
    return ["--case", json.dumps(case.values), "--out", str(out)]


@dataclass
class ByItself:
    """What the script found and saved without Saturn."""

    lines: list[dict[str, Any]]
    directory: Path
    error: str | None


def by_itself(case: Case, out: Path) -> ByItself:
    """Run it as a user would, on the same number of processes."""
    program = [sys.executable]
    if case.has("two devices"):
        program += ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    ended = subprocess.run(
        [*program, str(SCRIPT), *arguments(case, out)],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    lines = [json.loads(line) for line in (out / "history.jsonl").read_text().splitlines()]
    error = None if ended.returncode == 0 else ended.stderr.splitlines()[-1]
    assert case.has("exception") == (error is not None), ended.stderr
    return ByItself(lines, out, error)


@pytest.mark.slow
@pytest.mark.parametrize("label", CASES, ids=list(CASES))
def test_a_scripts_case_trains_as_it_does_by_itself(
    run: Runtime, label: str, tmp_path: Path
) -> None:
    case = CASES[label]
    out = tmp_path / "saved"
    task = Task.script(SCRIPT, arguments(case, out), name="task", gpu_range=[1, 2])
    story = play(run, case, task.definition(), alone=TECHNIQUE)
    alone = by_itself(case, tmp_path / "alone")
    end = judge_end(story, alone)
    found = lines_of(run, story.name)
    expected = [line for line in alone.lines if line["step"] <= end]
    # As text: no NaN equals another.
    assert [json.dumps(line) for line in found] == [json.dumps(line) for line in expected]
    saved, own = (torch.load(path / f"step-{end}.pt") for path in (out, alone.directory))
    assert (saved["steps"], saved["number"]) == (end, own["number"])
    for name, value in own["model"].items():
        torch.testing.assert_close(saved["model"][name], value, rtol=0, atol=0, equal_nan=True)


def judge_end(story: Story, alone: ByItself) -> int:
    """The task ended as it should; returns the step at which it did."""
    last, case = story.attempts[-1], story.case
    if alone.error is not None and last.ended == "failed":
        (failed,) = last.result.of("failed")
        end = alone.lines[-1]["step"]
        assert failed["kind"] == "error" and failed["error"] == (
            f"`pair_script.py` exited with code 1 after step {end}: {alone.error}"
        )
        return end
    if case.has("stopped by a search", "cancel"):
        end = last.result.one("stopped")["step"]
        assert end == AT
        return end
    assert last.ended == "finished", last.result.logs
    finished = last.result.one("finished")
    assert finished["step"] == STEPS
    assert repr(number(finished["loss"])) == repr(alone.lines[-1]["loss"])
    return STEPS


def lines_of(run: Runtime, name: str) -> list[dict[str, Any]]:
    """What was kept of each step, in the form of the script's own history."""
    losses, evaluations = run.losses(name), dict(run.evaluations(name))
    assert evaluations.keys() <= losses.keys()
    return [
        {"step": step, **numbers({"loss": loss, **evaluations.get(step, {})})}
        for step, loss in losses.items()
    ]
