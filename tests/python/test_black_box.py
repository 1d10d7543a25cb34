"""The black-box level: every calling style, counting, saving, stopping, crashing."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import black_boxes
import closeness
import pytest
import reference
import torch
from harness import Runtime
from live_gangs import Result
from models import Mlp, definition, shuffled_loader
from saturn.rank.process import cores_a_gpu
from saturn.tasks.strategy import Strategy
from saturn.worker.black_box_task import BlackBoxTask
from techniques_of_tests import spec_of


def launch(run: Runtime, technique: type[Any], **options: Any) -> Result:
    run.write_task(definition())
    return run.run("mlp", spec_of(technique, "black_box"), gpus=2, **options)


def outcome(run: Runtime, technique: type[Any]) -> dict[str, Any]:
    result = launch(run, technique, kind="trial")
    assert result.codes == [0], result.logs
    assert not (run.task_dir("mlp") / "checkpoints").exists()
    return result.one("trial")


@pytest.mark.parametrize(
    "technique",
    [
        black_boxes.Plain,
        black_boxes.Static,
        black_boxes.OfClass,
        black_boxes.OfInstance,
        black_boxes.Spawns,
    ],
)
def test_every_calling_style_trains_like_plain_torch(run: Runtime, technique: type[Any]) -> None:
    for steps in (5, 11):
        result = launch(run, technique, steps=steps)
        assert result.codes == [0], result.logs
        assert result.one("finished")["step"] == steps
    assert result.one("started")["step"] == 5
    _, expected = reference.train(definition(), 11)
    saved = torch.load(run.task_dir("mlp") / "checkpoints" / "step-00000011" / "state.pt")
    # Not bit for bit: two devices of CPU are two threads.
    assert closeness.ulps(saved["model"], expected.state_dict()) < closeness.ACROSS


@pytest.mark.parametrize(
    ("technique", "knobs"),
    [
        (black_boxes.Plain, {"chunks": 2}),
        (black_boxes.OfInstance, {}),
        (black_boxes.CountsItself, {}),
        (black_boxes.ReadsFresh, {"largest": 8}),
    ],
)
def test_saturn_times_execute_where_search_does_not(
    run: Runtime, technique: type[Any], knobs: dict[str, Any]
) -> None:
    trial = outcome(run, technique)
    assert trial["knobs"] == knobs
    assert trial["outcome"]["outcome"] == "measured" and 0 < trial["outcome"]["step_s"] < 1
    assert trial["outcome"]["batches_per_epoch"] == 6


def test_search_may_give_the_time_and_parameters_of_any_plain_kind(run: Runtime) -> None:
    trial = outcome(run, black_boxes.Static)
    assert trial["knobs"] == {"parameters": ["a", 1]}
    assert trial["outcome"]["step_s"] == 0.25


def test_a_function_that_reads_the_loader_itself_is_timed_as_a_whole(run: Runtime) -> None:
    # It sleeps for 10 ms a step. What the start of the first steps took is left out, so on a busy
    # machine a step may seem shorter.
    assert 0.001 < outcome(run, black_boxes.OwnLoader)["outcome"]["step_s"] < 0.5


def endless() -> Any:
    return itertools.cycle(list(shuffled_loader()))


@pytest.mark.parametrize(
    ("get_dataloader", "batches"),
    # An epoch; ten times the warm-up step and the two timed ones.
    [(shuffled_loader, 6), (endless, 30)],
)
def test_the_iterator_of_search_ends(
    run: Runtime, get_dataloader: Callable[[], Any], batches: int
) -> None:
    run.write_task(definition(get_dataloader=get_dataloader))
    technique = spec_of(black_boxes.SearchesThrough, "black_box")
    result = run.run("mlp", technique, kind="trial")
    assert result.codes == [0], result.logs
    trial = result.one("trial")
    assert trial["outcome"]["outcome"] == "measured"
    assert trial["knobs"] == {"batches": [batches, batches]}


def test_search_can_say_that_it_cannot(run: Runtime) -> None:
    result = launch(run, black_boxes.OfClass, kind="trial")
    assert result.one("failed")["kind"] == "not_applicable"


@pytest.mark.parametrize(
    ("technique", "words"),
    [
        (black_boxes.Objects, "parameters that are not plain data"),
        (black_boxes.Crashes, "my own bug"),
        (black_boxes.Lazy, "execute took 2 of the 4 batches of its trial"),
        (black_boxes.SearchesTooFar, "task.get_iterator() gives one epoch at a time"),
    ],
)
def test_a_trial_that_raises_is_an_outcome(run: Runtime, technique: type[Any], words: str) -> None:
    found = outcome(run, technique)["outcome"]
    assert found["outcome"] == "failed" and words in found["error"]
    # What Saturn itself raises has no frames to show but Saturn's.
    raises_itself = technique in (black_boxes.Crashes, black_boxes.SearchesTooFar)
    assert ("black_boxes.py" in found["traceback"]) == raises_itself


def test_a_crash_goes_back_to_the_last_save(run: Runtime) -> None:
    assert launch(run, black_boxes.SavesOften, steps=12).codes == [-9]
    assert run.checkpoints("mlp") == ["step-00000005", "step-00000006"]
    result = launch(run, black_boxes.SavesOften, steps=12)
    assert result.codes == [0], result.logs
    assert result.one("started")["step"] == 6
    _, expected = reference.train(definition(), 12)
    saved = torch.load(run.task_dir("mlp") / "checkpoints" / "step-00000012" / "state.pt")
    assert closeness.ulps(saved["model"], expected.state_dict()) < closeness.ACROSS


def test_a_stop_request_ends_the_iterator_and_what_was_saved_counts(run: Runtime) -> None:
    run.write_task(definition())
    gang = run.launch("mlp", spec_of(black_boxes.Slow, "black_box"), gpus=1, steps=10_000)
    gang.wait_for("progress", step=5)
    gang.stop()
    result = gang.wait()
    assert result.codes == [0], result.logs
    stopped = result.one("stopped")["step"]
    assert 5 <= stopped < 10_000 and run.checkpoints("mlp") == [f"step-{stopped:08d}"]


def test_stopping_a_function_that_counts_itself_goes_back_to_its_last_save(run: Runtime) -> None:
    run.write_task(definition())
    gang = run.launch("mlp", spec_of(black_boxes.CountsItself, "black_box"), gpus=1, steps=10**6)
    gang.wait_for("progress", step=5)
    gang.stop()
    result = gang.wait()
    assert result.codes == [0], result.logs
    assert result.one("stopped")["step"] == 0
    assert "without saving" in result.one("note")["text"]


def test_a_function_that_never_saves_is_told_of(run: Runtime) -> None:
    result = launch(run, black_boxes.NeverSaves, steps=4)
    assert result.one("finished")["step"] == 4
    assert "without saving its last 4 batches" in result.one("note")["text"]


def test_returning_early_is_an_error(run: Runtime) -> None:
    result = launch(run, black_boxes.Lazy, steps=9)
    assert result.codes == [1]
    assert "execute returned after 2 of the 9 batches" in result.one("failed")["error"]


def test_saves_of_a_function_that_cannot_be_followed_count_when_it_returns(
    run: Runtime, tmp_path: Path
) -> None:
    run.write_task(definition(hints={"marker": str(tmp_path / "marker")}))
    technique = spec_of(black_boxes.SavesBlindly, "black_box")
    assert run.run("mlp", technique, steps=9).codes == [3]
    assert run.checkpoints("mlp") == [".pending"]
    result = run.run("mlp", technique, steps=9)
    assert result.codes == [0], result.logs
    assert result.one("started")["step"] == 0 and result.one("finished")["step"] == 9
    assert run.checkpoints("mlp") == ["step-00000009"]
    assert run.run("mlp", "ddp", steps=10).one("started")["step"] == 9


def test_iterators_go_on_where_the_last_one_stopped(run: Runtime) -> None:
    result = launch(run, black_boxes.IteratesTwice, steps=13)
    assert result.codes == [0], result.logs
    _, expected = reference.train(definition(), 13)
    saved = torch.load(run.task_dir("mlp") / "checkpoints" / "step-00000013" / "state.pt")
    assert closeness.ulps(saved["model"], expected.state_dict()) < closeness.ACROSS


def test_it_finds_all_options_and_stops_between_steps(tmp_path: Path) -> None:
    groups = [{"params": ["*.bias"], "weight_decay": 0.0}]
    options = {"epoch_batches": 6, "parameter_groups": groups, "tf32": True}
    given = 0
    task = BlackBoxTask(
        definition(gradient_accumulation_steps=4, **options),
        tmp_path,
        {},
        strategy=Strategy(technique="box", gpus=1),
        limit=24,
        stop_requested=lambda: given >= 7,
        report=lambda message: None,
    )
    for key, value in {**options, "deterministic": False}.items():
        assert getattr(task.hparams, key) == value
    assert task.training_step is None and task.loss_weight is None
    for _ in task.get_iterator():
        given += 1
    # An epoch's steps take four batches and two.
    assert given == 10


def test_loss_is_watched(run: Runtime) -> None:
    expected, _ = reference.train(definition(), 7)
    run.write_task(definition())
    # On one device: on two there are two threads, and sums in another order than the reference's.
    result = run.run("mlp", spec_of(black_boxes.OfClass, "black_box"), gpus=1, steps=7)
    assert result.one("finished")["loss"] == expected[7]
    assert run.losses("mlp")[7] == expected[7]


def test_a_resume_on_two_devices_is_bit_equal_warm_or_cold(run: Runtime) -> None:
    technique = spec_of(black_boxes.OfClass, "black_box")
    weights = {}
    for name, parts in {
        "whole": [(11, False)],
        "parts": [(4, False), (5, True), (11, True)],
    }.items():
        run.write_task(definition(name))
        for steps, cold in parts:
            result = run.run(name, technique, gpus=2, steps=steps, cold=cold)
            assert result.codes == [0], result.logs
        checkpoint = run.task_dir(name) / "checkpoints" / "step-00000011"
        weights[name] = torch.load(checkpoint / "state.pt")["model"]
    assert all(
        torch.equal(weights["whole"][key], weights["parts"][key]) for key in Mlp().state_dict()
    )


@pytest.mark.slow(quick=["False-cpu", "False-cuda"])
@pytest.mark.parametrize("device_kind", ["cpu", "cuda"])
@pytest.mark.parametrize("cold", [False, True])
def test_threads_come_from_the_devices_alone(run: Runtime, device_kind: str, cold: bool) -> None:
    run.write_task(definition())
    technique = spec_of(black_boxes.TellsThreads, "black_box")
    result = run.run(
        *("mlp", technique),
        gpus=2,
        kind="trial",
        device_kind=device_kind,
        cold=cold,
        env={"OMP_NUM_THREADS": "3"},
    )
    threads = 2 if device_kind == "cpu" else 2 * cores_a_gpu(2)
    assert result.one("trial")["knobs"] == {"threads": threads}, result.logs


def test_models_travel_between_the_levels(run: Runtime) -> None:
    run.write_task(definition())
    assert run.run("mlp", "fsdp", ranks=2, steps=3).codes == [0, 0]
    # From a managed checkpoint: the model; with fresh optimizer state, as `saved()` says.
    result = launch(run, black_boxes.Plain, steps=5)
    assert result.codes == [0] and result.one("started")["step"] == 3, result.logs
    # And back: the same, with a word about it.
    result = run.run("mlp", "fsdp", ranks=2, steps=8)
    assert result.codes == [0, 0], result.logs
    assert result.one("started")["step"] == 5
    assert "the optimizer starts fresh" in result.one("note")["text"]
    result = launch(run, black_boxes.OwnLoader, steps=10)
    assert result.codes == [0] and result.one("finished")["step"] == 10, result.logs
    assert run.run("mlp", "ddp", steps=11).one("started")["step"] == 10


def test_the_saved_state_is_the_models(run: Runtime) -> None:
    launch(run, black_boxes.OwnLoader, steps=2)
    saved = torch.load(run.task_dir("mlp") / "checkpoints" / "step-00000002" / "state.pt")
    assert {key.removeprefix("module.") for key in saved} == set(Mlp().state_dict())
