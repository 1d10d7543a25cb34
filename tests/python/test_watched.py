"""What a run's stopper makes of tasks that are paused, continue others, wait, or can't be held."""

# ruff: noqa: F811  (the imported fixture is a parameter's name too)

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from saturn.stoppers import ASHA
from saturn.tuning.scope import Scope
from saturn.tuning.tuner import Stopping
from saturn.tuning.watch import Watch
from test_tuning import FakeRun, watch  # noqa: F401  (pytest finds the fixture here)
from waiting import until


def test_a_script_that_is_not_held_does_not_count_as_held(
    tmp_path: Path, watch: Callable[[Any, FakeRun], Watch], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or else it would be ended, as the last that is held, or a search would suggest another."""
    monkeypatch.setattr("saturn.tuning.watch._LOOK_S", 0.0)
    run = FakeRun(tmp_path, "ab")
    run.stages["a"], run.trains_on = "done", {"b"}
    run.report("a", 2, 0.1)
    one = watch([ASHA(min_steps=2, eta=2)], run)
    run.report("b", 2, 0.5)
    until(lambda: run.words()[:1] == [("b", "hold")])
    time.sleep(0.5)
    assert run.words() == [("b", "hold")] and run.stages["b"] == "running"
    run.has_ended = True
    one.end()


def test_a_held_task_that_is_paused_meanwhile_goes_on_if_it_is_good_enough(
    tmp_path: Path, watch: Callable[[Any, FakeRun], Watch]
) -> None:
    run = FakeRun(tmp_path, "abc")
    one = watch([ASHA(min_steps=2, eta=2)], run)
    run.report("a", 2, 0.3)
    until(lambda: run.stages["a"] == "held")
    run.paused = {"a"}
    time.sleep(0.5)  # so that it is seen
    run.report("b", 2, 0.5)
    until(lambda: run.words()[-2:] == [("b", "hold"), ("a", "go_on")])
    run.has_ended = True
    one.end()


def test_a_task_that_continues_another_is_judged_by_its_own_steps(
    tmp_path: Path, watch: Callable[[Any, FakeRun], Watch]
) -> None:
    run = FakeRun(tmp_path, "ab")
    run.first_steps = {"a": 4, "b": 4}
    one = watch([ASHA(min_steps=2, eta=2)], run)
    for step, a, b in ((5, 0.1, 0.2), (6, 0.5, 0.1)):
        run.report("a", step, a)
        run.report("b", step, b)
    until(lambda: [judged["step"] for judged in run.judged if "ruling" in judged] != [])
    run.has_ended = True
    one.end()
    assert run.words()[0][0] == "a" and ("b", "hold") not in run.words()
    assert min(judged["step"] for judged in run.judged if "ruling" in judged) == 6


def test_a_task_that_is_not_released_yet_waits_for_no_device(tmp_path: Path) -> None:
    """So held tasks may train ahead on idle devices until then."""
    run = FakeRun(tmp_path, "ab")
    run.stages, run.devices = {"a": "running", "b": "waiting"}, 2
    one = Watch(Stopping([]), Scope(run))
    status = json.loads(run.told(tmp_path))
    for release_s, is_idle in ((3600.0, True), (status["now_s"], False)):
        status["tasks"][1]["release_s"] = release_s
        one._look_at_devices(status)
        assert one._is_idle is is_idle
