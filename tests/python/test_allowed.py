"""`Task(techniques=…, knobs=…)`: what a task allows, refused where it can't be, kept in runs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import saturn
from faces import local_class, make_task
from models import Mlp
from saturn import HParams, library
from saturn.tasks.allowed import checked_knobs, checked_techniques
from saturn.tasks.profile_key import profile_key
from saturn.techniques.built_in import BUILT_IN, KNOBS
from saturn.techniques.interface import Knobs, ParallelModel, Setting, Technique
from saturn.techniques.pinned import Pinned


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"techniques": "ddp"}, TypeError, "techniques is a string"),
        ({"techniques": []}, ValueError, "techniques is empty"),
        ({"techniques": ["ddp", "-fsdp"]}, ValueError, "some are allowed and some"),
        ({"techniques": ["-"]}, ValueError, "names of techniques"),
        ({"knobs": ["ddp"]}, TypeError, "it must map techniques to their knobs"),
        ({"knobs": {"ddp": True}}, TypeError, "it must map knobs to values"),
        ({"knobs": {"ddp": {"attention": []}}}, ValueError, "has no value that is allowed"),
        ({"knobs": {"ddp": {"attention": {1}}}}, ValueError, "must be plain data"),
    ],
)
def test_what_can_not_be_meant_is_refused_at_once(
    changes: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        make_task(**changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"techniques": ["pp"]}, "no technique is called `pp`; the library holds `ddp`"),
        ({"techniques": ["-pp"]}, "no technique is called `pp`"),
        ({"techniques": ["pipeline"]}, "allows none of the run's techniques: `ddp`, `mine`"),
        ({"techniques": ["-ddp", "-mine"]}, "allows none of the run's techniques"),
        ({"knobs": {"pp": {"a": 1}}}, "no technique is called `pp`"),
        ({"knobs": {"fsdp": {"cpu_ofload": True}}}, "has no knob `cpu_ofload`; it has `activation"),
        ({"knobs": {"mine": {"a": 1}}}, "chosen by its own `search`"),
    ],
)
def test_what_is_not_there_is_refused_before_anything_is_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    saturn.register("mine", local_class())
    with pytest.raises(saturn.InvalidInput) as caught:
        saturn.search([make_task("a", **changes)], ["ddp", "mine"])
    assert "task `a`" in str(caught.value) and message in str(caught.value)
    assert not (tmp_path / "saturn_runs").exists()


@pytest.mark.slow
def test_only_what_is_allowed_is_tried_and_knobs_are_as_they_were_pinned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    hparams = HParams(0.1, batch_count=2)
    pinned = {"fsdp": {"reshard_after_forward": False}}
    tasks = [
        make_task("allowed", hparams=hparams, techniques=["ddp"]),
        make_task("forbidden", hparams=hparams, techniques=["-ddp"], knobs=pinned, gpu_range=2),
    ]
    result = saturn.orchestrate(tasks, techniques=["ddp", "fsdp"], devices=2)
    report = json.loads((result.run_dir / "report.json").read_text())
    tried = {(trial["task"], trial["technique"], trial["gpus"]) for trial in report["trials"]}
    assert tried == {(0, "ddp", 1), (0, "ddp", 2), (1, "fsdp", 2)}
    first, second = (task.strategy for task in result.tasks)
    assert first is not None and first.technique == "ddp"
    assert second is not None and second.knobs["reshard_after_forward"] is False
    # A profile that says otherwise is no reason to do what is not allowed.
    trials = json.loads((result.run_dir / "profile.json").read_text())["trials"]
    for trial in trials:
        trial["knobs"] = {"reshard_after_forward": True}
    (tmp_path / "other.json").write_text(json.dumps({"trials": trials}))
    again = saturn.search(
        [make_task("forbidden", hparams=hparams, techniques=["-ddp"], knobs=pinned, gpu_range=2)],
        ["ddp", "fsdp"],
        devices=2,
        profile="other.json",
    )
    report = json.loads((again.run_dir / "report.json").read_text())
    assert [(trial["technique"], trial["reused"]) for trial in report["trials"]] == [
        ("fsdp", False)
    ]


class Knobbed(Technique):
    def knob_sets(self, module: Any, setting: Setting) -> Sequence[Knobs]:
        return [{"a": 1}, {"a": 2}, {"a": 1, "b": True}]

    def thriftier_knob_sets(self, module: Any, setting: Setting) -> Sequence[Sequence[Knobs]]:
        return [[{"a": 3}], [{"a": 1, "b": False}]]

    def retry_knobs(self, knobs: Knobs, error: str) -> Knobs | None:
        return {**knobs, "a": 2}

    def parallelise(self, module: Any, gang: Any, knobs: Knobs) -> ParallelModel:
        raise NotImplementedError


def test_a_pinned_technique_proposes_what_is_allowed_once_each() -> None:
    setting = Setting(gpus=1, device_kind="cpu", hints={})

    def proposed(pins: dict[str, list[Any]]) -> tuple[Any, Any]:
        technique = Pinned(Knobbed(), pins)
        model = Mlp()
        return technique.knob_sets(model, setting), technique.thriftier_knob_sets(model, setting)

    assert proposed({"a": [1]}) == ([{"a": 1}, {"a": 1, "b": True}], [[{"a": 1, "b": False}]])
    assert proposed({"a": [2, 3]})[0] == [
        {"a": 2},
        {"a": 3},
        {"a": 2, "b": True},
        {"a": 3, "b": True},
    ]
    assert proposed({"b": [False]}) == (
        [{"a": 1, "b": False}, {"a": 2, "b": False}],
        [[{"a": 3, "b": False}]],
    )
    assert Pinned(Knobbed(), {"a": [1]}).retry_knobs({"a": 1}, "e") is None
    assert Pinned(Knobbed(), {"a": [1, 2]}).retry_knobs({"a": 1}, "e") == {"a": 2}


def test_the_knobs_that_may_be_pinned_are_those_that_techniques_propose() -> None:
    assert KNOBS.keys() == BUILT_IN.keys()
    model = Mlp(depth=8)
    for name in BUILT_IN:
        technique = library.retrieve(name)()
        for kind in ("cpu", "cuda"):
            setting = Setting(gpus=2, device_kind=kind, hints={}, device_memory_bytes=1)
            sets: list[Knobs] = []
            if technique.not_applicable(model, setting) is None:
                sets += technique.knob_sets(model, setting)
                sets += [
                    one for rung in technique.thriftier_knob_sets(model, setting) for one in rung
                ]
            assert {knob for knobs in sets for knob in knobs} <= KNOBS[name], name


def test_what_a_task_allows_is_part_of_its_profile_key() -> None:
    tasks = [
        make_task(),
        make_task(techniques=["ddp"]),
        make_task(techniques=["-ddp"]),
        make_task(knobs={"fsdp": {"cpu_offload": True}}),
    ]
    assert len({profile_key(task) for task in tasks}) == len(tasks)
    assert checked_techniques(("b", "a", "b")) == ["a", "b"]
    assert checked_knobs({"a": {"b": (1, 2), "c": 3}}) == {"a": {"b": [1, 2], "c": [3]}}
