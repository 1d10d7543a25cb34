"""Pairs of what a task has and what happens to it, against loops in plain torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pair_tasks
import pairs
import pairs_page
import pytest
import torch
from harness import Runtime
from models import Calls
from pair_box import Box
from pair_happenings import AT, Story, play
from pair_judge import judge
from pair_models import Loop
from pairs import Case
from saturn import Task
from techniques_of_tests import spec_of

CASES = {case.label: case for case in pairs.cases()}
MANAGED = {label: case for label, case in CASES.items() if case["kind"] == "managed"}
BOXES = {label: case for label, case in CASES.items() if case["kind"] == "black box"}
TRAINERS = {label: case for label, case in CASES.items() if case["kind"] == "trainer"}


def quick_of(cases: Mapping[str, Case], happenings: Sequence[str]) -> list[str]:
    """The shortest case of each happening; all run at night."""
    return [
        min((label for label, case in cases.items() if case.has(happening)), key=len)
        for happening in happenings
    ]


def test_every_pair_that_is_allowed_is_in_a_case() -> None:
    covered = {pair for case in CASES.values() for pair in pairs.pairs_of(case)}
    allowed = set(pairs.allowed_pairs())
    assert covered == allowed
    assert len(CASES) == len(pairs.cases()), "each label is of one case"
    for kind in pairs.TRAINED_BY_SATURN:
        healthy = [case for case in CASES.values() if case.has(kind) and case.has("no fault")]
        found = {pair for case in healthy for pair in pairs.pairs_of(case)}
        own = ("kind", kind), ("fault", "no fault")
        for pair in allowed:
            with_own = dict(own) | dict(pair)
            if all(with_own[name] == value for name, value in own) and not pairs.forbidden(
                with_own
            ):
                assert pair in found, (kind, pair)


def test_each_rule_forbids_a_pair_that_there_is() -> None:
    for rule in pairs.RULES:
        broken = [dict(pair) for pair in pairs.pairs() if rule.forbids(dict(pair))]
        assert len(broken) == len(rule.values) * len(rule.others), rule


def test_the_page_is_up_to_date() -> None:
    assert pairs_page.PAGE.read_text() == pairs_page.text(), "python tests/python/pairs.py --table"


PLAIN = Case(tuple(values[0] for values in pairs.FACTORS.values()))
#: Values that change what is trained, by factor; what else there is happens to a task.
OF_TASKS = [
    (factor, value)
    for factor, values in pairs.FACTORS.items()
    if factor not in ("kind", "happening")
    for value in values[1:]
]


@pytest.mark.parametrize(("factor", "value"), OF_TASKS, ids=[value for _, value in OF_TASKS])
def test_each_value_changes_what_the_reference_finds(factor: str, value: str) -> None:
    """So what forgets it is seen, since a task's numbers are held against the reference's."""
    case = Case(tuple({**PLAIN.as_dict, factor: value}.values()))
    plain, changed = pair_tasks.expected(PLAIN), pair_tasks.expected(case)
    if value == "stream":  # gives the rows that the plain data set has in this order
        assert changed.losses == plain.losses
    elif factor == "evaluation":
        assert changed.losses == plain.losses and changed.evaluations.keys() == {3, 6, 8}
    else:
        assert changed.losses != plain.losses


@pytest.mark.slow(quick=quick_of(TRAINERS, ("move", "two devices")))
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("label", TRAINERS, ids=list(TRAINERS))
def test_a_trainers_case_trains_as_the_trainer_does(
    run: Runtime, label: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    case = TRAINERS[label]
    task = Task.from_trainer(partial(pair_tasks.trainer_of, case), name="task")
    story = play(run, case, task.definition())
    judge(story, pair_tasks.expected_of_trainer(case))


@pytest.mark.slow
@pytest.mark.parametrize("label", BOXES, ids=list(BOXES))
def test_a_black_boxs_case_saves_what_its_loop_by_itself_has(run: Runtime, label: str) -> None:
    """Saturn hears no losses of it, so what it saved is held against the loop."""
    case = BOXES[label]
    box = spec_of(Box, "black_box")
    environment = {"PAIR_CASE": label}
    definition = pair_tasks.task_of(case).definition()
    story = play(run, case, definition, alone=box, env=environment)
    last = story.attempts[-1]
    expected = pair_tasks.expected(case)
    if last.ended == "failed":
        failed = last.result.of("failed")
        assert expected.error is not None and expected.error in failed[0]["error"], failed
        return
    ends = case.has("stopped by a search", "cancel")
    assert last.ended == ("stopped" if ends else "finished"), last.result.logs
    step = last.result.one(last.ended)["step"]
    saved = torch.load(run.task_dir(story.name) / "checkpoints" / f"step-{step:08d}" / "state.pt")
    loop = Loop(case)
    for _ in range(step):
        loop.step()
    assert (saved["steps"], saved["number"]) == (step, loop.number)
    for name, value in loop.model.state_dict().items():
        torch.testing.assert_close(saved["model"][name], value, rtol=1e-5, atol=0, equal_nan=True)


def forgets_buffers() -> None:
    """Plant a fault: what a checkpoint says of buffers is not taken."""
    from saturn.checkpoint import checkpoints

    load = checkpoints.set_model_state_dict

    def forgetful(model: Any, state: Any, **options: Any) -> Any:
        loaded = load(model, state, **options)
        for buffer in model.buffers():
            buffer.zero_()
        return loaded

    checkpoints.set_model_state_dict = forgetful


@pytest.mark.slow
def test_a_technique_that_forgets_a_buffer_is_seen(run: Runtime) -> None:
    case = Case(tuple({**PLAIN.as_dict, "buffer": "counter", "happening": "move"}.values()))
    definition = pair_tasks.task_of(case).definition()
    planted = replace(definition, hints={"planted": Calls(forgets_buffers)})
    story = play(run, case, planted)
    with pytest.raises(AssertionError, match="counter"):
        judge(story, pair_tasks.expected(case))


@pytest.mark.slow(quick=quick_of(MANAGED, pairs.FACTORS["happening"]))
@pytest.mark.parametrize("label", MANAGED, ids=list(MANAGED))
def test_a_managed_case_trains_as_plain_torch_does(run: Runtime, label: str) -> None:
    case = MANAGED[label]
    story = play(run, case, pair_tasks.task_of(case).definition())
    expected = pair_tasks.expected(case, story.ranks_at)
    judge(story, expected)


#: Values of `weights` under techniques that split layers, which no happening puts them under; with
#: knobs, and the plan of `tensor`.
SPLIT: dict[str, tuple[str, str, dict[str, Any], dict[str, str]]] = {
    # The embedding comes after the layers, and the first stage needs it.
    "tied x pipeline": ("tied", "pipeline", {"everywhere": ["embed.weight"]}, {}),
    "lora x pipeline": ("lora", "pipeline", {}, {}),
    "frozen x pipeline": ("frozen", "pipeline", {}, {}),
    "tied x tensor": (
        *("tied", "tensor", {}),
        {
            "embed": "embedding_rowwise",
            "head": "colwise_gather_output",
            "layers.*.0": "colwise_gather_output",
        },
    ),
    "lora x tensor": (
        *("lora", "tensor", {}),
        {"base_model.model.layers.*.0.base_layer": "colwise_gather_output"},
    ),
}


@pytest.mark.slow(quick=["tied x pipeline", "lora x pipeline"])
@pytest.mark.parametrize("name", SPLIT)
def test_weights_under_a_technique_that_splits_layers(run: Runtime, name: str) -> None:
    """Until a planned step, and then without it."""
    weights, technique, knobs, plan = SPLIT[name]
    case = Case(tuple({**PLAIN.as_dict, "weights": weights, "evaluation": "evaluated"}.values()))
    definition = pair_tasks.task_of(case).definition()
    story = Story(run, case, replace(definition, hints={"tensor_plan": plan} if plan else {}))
    first = story.train(technique, 2, stop_at_step=AT + 1, knobs=knobs)
    assert first.ended == "stopped", first.result.logs
    story.train()
    judge(story, pair_tasks.expected(case, story.ranks_at))
