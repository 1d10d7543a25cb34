"""Trials of managed techniques: what is measured, and what is said when nothing can be."""

from __future__ import annotations

import time
from functools import partial
from typing import Any

import closeness
import pytest
import reference
import techniques_of_tests as techniques
import torch
from harness import Runtime
from models import Mlp, definition, shuffled_loader
from torch import nn


def outcome(run: Runtime, technique: Any, ranks: int, **changes: Any) -> dict[str, Any]:
    run.write_task(definition(**changes))
    result = run.run("mlp", technique, kind="trial", ranks=ranks)
    assert result.codes == [0] * ranks, result.logs
    return result.one("trial")


@pytest.mark.parametrize(("technique", "ranks"), [("ddp", 1), ("ddp", 2), ("fsdp", 2)])
def test_a_trial_measures_and_leaves_no_trace_in_the_task(
    run: Runtime, technique: str, ranks: int
) -> None:
    trial = outcome(run, technique, ranks)
    found = trial["outcome"]
    assert found["outcome"] == "measured"
    assert 0 < found["step_s"] < 5 and 0 < found["setup_s"] < 30
    assert 0 < found["checkpoint_s"] < 10
    assert found["timed_steps"] == 2 and found["batches_per_epoch"] == 6
    assert {path.name for path in run.task_dir("mlp").iterdir()} == {
        *("task.pkl", "attempts", "build")
    }
    assert not list(run.task_dir("mlp").glob("attempts/*/checkpoints"))


@pytest.mark.parametrize(("technique", "ranks"), [("ddp", 1), ("ddp", 2), ("fsdp", 2)])
def test_a_trial_that_goes_on_trains_as_if_it_had_been_training(
    run: Runtime, technique: str, ranks: int
) -> None:
    task = definition()
    run.write_task(task)
    # With one knob set, so that its steps can count.
    result = run.run("mlp", technique, kind="trial", ranks=ranks, knobs={}, goes_on_to=8)
    assert result.codes == [0] * ranks, result.logs
    trial = result.one("trial")
    assert trial["step"] == 1 + trial["outcome"]["timed_steps"]
    assert result.one("finished")["step"] == 8
    assert not result.of("started"), "the runtime knows that it goes on"
    # Another attempt goes on from its checkpoint, under another technique.
    result = run.run("mlp", "ddp", ranks=1, steps=12)
    assert result.one("started")["step"] == 8
    losses = run.losses("mlp")
    expected, _ = reference.train(task, 12)
    assert set(losses) == set(range(1, 13))
    assert closeness.ulps(losses, expected) < closeness.ACROSS


def test_of_several_knob_sets_the_last_goes_on_if_it_is_the_best(run: Runtime) -> None:
    run.write_task(definition())
    spec = techniques.spec_of(techniques.SlowThenFast)
    result = run.run("mlp", spec, kind="trial", ranks=2, goes_on_to=8)
    assert result.codes == [0, 0], result.logs
    trial = result.one("trial")
    assert trial["knobs"] == {"sleep_s": 0.0}
    assert trial["step"] == 1 + trial["outcome"]["timed_steps"]
    assert result.one("finished")["step"] == 8
    # Training without a trial has the same losses, to the last bit.
    run.write_task(definition(name="plain"))
    result = run.run("plain", spec, ranks=2, steps=8, knobs={"sleep_s": 0.0})
    assert result.codes == [0, 0], result.logs
    assert run.losses("mlp") == run.losses("plain")


def test_a_last_knob_set_that_is_not_the_best_does_not_go_on(run: Runtime) -> None:
    run.write_task(definition())
    spec = techniques.spec_of(techniques.FastThenSlow)
    result = run.run("mlp", spec, kind="trial", ranks=2, goes_on_to=8)
    assert result.codes == [0, 0], result.logs
    trial = result.one("trial")
    assert trial["knobs"] == {"sleep_s": 0.0} and trial["step"] is None
    assert not result.of("finished")
    assert not (run.task_dir("mlp") / "metrics.jsonl").exists()


def test_a_learning_rate_that_a_trial_has_raised_stays_raised_after_a_stop(run: Runtime) -> None:
    # Torch's warm-up from a third of the rate, over five steps.
    task = definition(lr_scheduler=torch.optim.lr_scheduler.LinearLR, lr=0.05)
    run.write_task(task)
    steps = {"warmup_steps": 2, "timed_steps": 6, "max_timed_steps": 6}
    assert run.run("mlp", "ddp", kind="trial", knobs={}, goes_on_to=9, **steps).codes == [0]
    assert run.run("mlp", "ddp", steps=14).one("started")["step"] == 9
    expected, _ = reference.train(task, 14)
    assert closeness.ulps(run.losses("mlp"), expected) < closeness.ACROSS


def test_a_trial_that_goes_on_stops_at_a_checkpoint_when_asked(run: Runtime) -> None:
    run.write_task(definition())
    gang = run.launch("mlp", "ddp", kind="trial", goes_on_to=10**9)
    gang.wait_for("progress", step=20)
    gang.stop()
    result = gang.wait()
    step = result.one("stopped")["step"]
    assert run.checkpoints("mlp")[-1].startswith(f"step-{step:08d}")
    assert run.losses("mlp").keys() == set(range(1, step + 1))


def test_what_a_trial_has_done_is_saved_where_it_is_stopped_at_once(run: Runtime) -> None:
    run.write_task(definition())
    # It has done all of it, which the engine would not let go on; there is nothing left to do.
    result = run.run("mlp", "ddp", kind="trial", goes_on_to=3)
    step = result.one("trial")["step"]
    assert result.one("finished")["step"] == step
    assert run.checkpoints("mlp") == [f"step-{step:08d}"]


def test_a_task_that_has_trained_is_measured_without_going_on(run: Runtime) -> None:
    run.write_task(definition())
    run.run("mlp", "ddp", steps=4)
    before = run.checkpoints("mlp")
    result = run.run("mlp", "ddp", kind="trial", goes_on_to=8)
    assert result.one("trial")["step"] is None
    assert run.checkpoints("mlp") == before and len(run.losses("mlp")) == 4


def growing_loader() -> Any:
    """Batches of 8 samples whose width is padded, more from one to the next."""

    def collate(rows: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.zeros(len(rows), 1 + max(rows)), torch.zeros(len(rows)).long()

    return torch.utils.data.DataLoader(list(range(96)), batch_size=8, collate_fn=collate)


class Sleeper(nn.Module):
    """Takes as long as its batch is wide."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(1, 2)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        time.sleep(0.01 * inputs.shape[1])
        return self.layer(inputs[:, :1])


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_trial_tells_of_all_the_tasks_batches_not_of_its_first(run: Runtime, ranks: int) -> None:
    changes = {"get_model": Sleeper, "get_dataloader": growing_loader}
    run.write_task(definition(**changes))
    result = run.run("mlp", "ddp", kind="trial", ranks=ranks, timed_steps=3, max_timed_steps=20)
    assert result.codes == [0] * ranks, result.logs
    found = result.one("trial")["outcome"]
    # Twelve batches, padded to 8, 16 … 96: on average 52 numbers wide, and the first ones 20.
    assert 0.4 < found["step_s"] < 3.0
    assert 3 <= found["timed_steps"] <= 20
    assert found["relative_error"] >= 0 and found["warmup_s"] >= 0


class Wide(nn.Module):
    """50 MB of parameters, so that memory shows."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = Mlp()
        self.weight = nn.Parameter(torch.zeros(50_000_000 // 4))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.inner(inputs) + self.weight.sum() * 0.0


def test_peak_memory_grows_with_the_model(run: Runtime) -> None:
    small = outcome(run, "ddp", 1)["outcome"]["peak_memory_bytes"]
    large = outcome(run, "ddp", 1, get_model=Wide)["outcome"]["peak_memory_bytes"]
    # Weight, gradient and AdamW's two moments: at least 200 MB more.
    assert 200e6 < large - small < 600e6


def test_the_fastest_knobs_win_and_failing_ones_are_passed_over(run: Runtime) -> None:
    trial = outcome(run, techniques.spec_of(techniques.ManyKnobs), 2)
    assert trial["outcome"]["outcome"] == "measured"
    assert trial["knobs"] == {"sleep_s": 0.0}


def test_where_no_knobs_work_the_first_failure_is_told(run: Runtime) -> None:
    trial = outcome(run, techniques.spec_of(techniques.OnlyBadKnobs), 2)
    assert trial["outcome"]["outcome"] == "out_of_memory"
    assert "no room" in trial["outcome"]["detail"]


def test_where_nothing_fits_what_the_thriftiest_knobs_came_to_is_told(run: Runtime) -> None:
    trial = outcome(run, techniques.spec_of(techniques.NothingFits), 2)
    assert trial["outcome"]["outcome"] == "out_of_memory"
    assert trial["knobs"] == {"fail": "memory of one rank", "sleep_s": 0.001}


@pytest.mark.parametrize(
    ("technique", "ranks", "reason"),
    [
        ("fsdp", 1, "one device leaves nothing to split"),
        (techniques.spec_of(techniques.FindsOutLate), 2, "the layers are of unequal width"),
    ],
)
def test_a_technique_says_why_it_does_not_apply(
    run: Runtime, technique: Any, ranks: int, reason: str
) -> None:
    found = outcome(run, technique, ranks)["outcome"]
    assert found["outcome"] == "not_applicable" and reason in found["reason"]


class SkipsALayer(Mlp):
    """Some parameters take no part in the loss."""

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.head(self.norm(inputs + self.layers[0](inputs).tanh()))


def test_ddp_finds_out_that_parameters_go_unused(run: Runtime) -> None:
    assert outcome(run, "ddp", 2, get_model=SkipsALayer)["knobs"] == {
        "find_unused_parameters": True
    }


def test_unused_parameters_train_alike_under_every_layout(run: Runtime) -> None:
    task = definition(get_model=SkipsALayer)
    run.write_task(task)
    for technique, ranks, steps, knobs in [
        ("ddp", 1, 2, {}),
        ("ddp", 2, 4, {"find_unused_parameters": True}),
        ("fsdp", 2, 6, {}),
        ("ddp", 1, 8, {}),
    ]:
        result = run.run("mlp", technique, ranks=ranks, steps=steps, knobs=knobs)
        assert result.codes == [0] * ranks, result.logs
    expected, _ = reference.train(task, 8)
    assert closeness.ulps(run.losses("mlp"), expected) < closeness.ACROSS


def test_a_failing_technique_is_an_outcome_with_its_traceback(run: Runtime) -> None:
    found = outcome(run, "ddp", 1, get_model=partial(Wrong))["outcome"]
    assert found["outcome"] == "failed"
    assert "mat1 and mat2" in found["error"] and "in forward" in found["traceback"]


class Wrong(nn.Module):
    """A layer of the wrong width."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 5)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.layer(inputs)


def no_length() -> Any:
    return iter(list(shuffled_loader()))


def test_epochs_need_a_loader_with_a_length(run: Runtime) -> None:
    run.write_task(definition(get_dataloader=no_length, epochs=2, batch_count=None))
    result = run.run("mlp", "ddp", kind="trial")
    assert result.codes == [1]
    failed = result.one("failed")
    assert failed["kind"] == "task"
    assert "no length" in failed["error"] and "HParams(steps=" in failed["error"]


def test_each_knob_sets_setup_is_its_own(run: Runtime) -> None:
    run.write_task(definition())
    began = time.monotonic()
    result = run.run("mlp", techniques.spec_of(techniques.SlowThenFast), kind="trial")
    whole_s = time.monotonic() - began
    assert result.codes == [0], result.logs
    trial = result.one("trial")
    assert trial["knobs"] == {"sleep_s": 0.0}
    # Three steps of the first set took three seconds, which are no part of the second's set-up.
    assert 0 < trial["outcome"]["setup_s"] < whole_s - 2.9


def test_an_optimizer_that_can_not_step_split_parameters_is_said_in_words(run: Runtime) -> None:
    changes = {"optimizer_cls": torch.optim.Adafactor}
    assert outcome(run, "ddp", 2, **changes)["outcome"]["outcome"] == "measured"
    found = outcome(run, "fsdp", 2, **changes)["outcome"]
    assert found["outcome"] == "not_applicable"
    assert found["reason"].startswith("Adafactor can't step parameters that are split over devices")


def test_an_optimizer_that_wants_a_closure_is_refused(run: Runtime) -> None:
    run.write_task(definition(optimizer_cls=torch.optim.LBFGS))
    failed = run.run("mlp", "ddp", kind="trial").one("failed")
    assert failed["kind"] == "task" and "LBFGS, whose step wants a closure" in failed["error"]


class Corrupt(torch.utils.data.Dataset[Any]):
    """Its first batch is fine."""

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> Any:
        if index >= 16:
            raise OSError("corrupt record 800")
        return torch.zeros(12), torch.tensor(0)


@pytest.mark.parametrize("workers", [0, 1])
def test_what_a_loader_raises_is_told_as_such_and_would_be_raised_under_every_technique(
    run: Runtime, workers: int
) -> None:
    def loader() -> Any:
        return torch.utils.data.DataLoader(Corrupt(), batch_size=8, num_workers=workers)

    run.write_task(definition(get_dataloader=loader))
    result = run.run("mlp", "ddp", kind="trial")
    assert not result.of("trial"), "it says nothing of the strategy"
    failed = result.one("failed")
    assert failed["kind"] == "certain"
    assert failed["error"] == "get_dataloader's loader raised OSError: corrupt record 800"
    # In training it may be the machine's whim: a task that has trained some steps is tried again.
    assert run.run("mlp", "ddp", steps=6).one("failed")["kind"] == "task"
