"""A trainer's own loss reads in `self.state` what it reads in `train()`, on every rank."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import closeness
import in_process
import pytest
import torch
import trainer_models
from harness import Runtime, runtime
from saturn import Task
from saturn.data.slices import Position
from saturn.techniques.ddp import Ddp
from warm_parent import Warm

pytest.importorskip("transformers")
pytest.importorskip("accelerate")

#: Their code is for several versions of each other, and says so.
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]

EVALUATED = trainer_models.annealed(
    **trainer_models.evaluates(trainer_models.texts(), compute_metrics=None), max_steps=7
)


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Trainers make their output directory, wherever they are."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def ranks(tmp_path: Path, warm_with_models: Warm) -> Iterator[Runtime]:
    with runtime(tmp_path, warm_with_models) as opened:
        yield opened


def of_train() -> tuple[dict[int, float], list[tuple[int, dict[str, float]]]]:
    """(losses by step, what each evaluation found) of the trainer's own `train`."""
    trainer = EVALUATED()
    trainer.train()
    log: list[dict[str, Any]] = trainer.state.log_history
    losses = {each["step"]: each["loss"] for each in log if "loss" in each}
    named = "eval_loss"
    return losses, [(each["step"], {named: each[named]}) for each in log if named in each]


def check(ranks: Runtime, name: str) -> None:
    losses, evaluations = of_train()
    assert closeness.ulps(ranks.losses(name), losses) < closeness.ACROSS
    found = ranks.evaluations(name)
    assert [step for step, _ in found] == [step for step, _ in evaluations] == [2, 4, 6, 7]
    for (_, metrics), (_, expected) in zip(found, evaluations, strict=True):
        assert closeness.ulps(metrics, expected) < closeness.ACROSS


def test_on_one_slot_a_loss_that_follows_the_steps_is_the_trainers(tmp_path: Path) -> None:
    make = trainer_models.annealed()
    definition = Task.from_trainer(make, name="annealed").definition()
    expected_losses, expected = trainer_models.run(make)
    losses, weights = in_process.train(definition, Ddp(), tmp_path, steps=max(expected_losses))
    assert closeness.ulps(losses, expected_losses) < closeness.SUMMED
    for name, weight in expected.items():
        assert torch.equal(weights[name], weight), name


def test_callbacks_that_hear_of_a_step_late_do_not_set_the_loss_back(tmp_path: Path) -> None:
    from transformers import TrainerCallback

    told: list[tuple[int, float]] = []

    class Telling(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            told.append((state.global_step, state.epoch))

    def make() -> Any:
        made = trainer_models.annealed()()
        made.add_callback(Telling())
        return made

    expected, _ = trainer_models.run(make)
    expected_told = list(told)
    told.clear()
    task = Task.from_trainer(make, name="annealed").definition()
    losses: dict[int, float] = {}
    with in_process.gang_of_one(tmp_path) as gang:
        stepper = in_process.stepper_of(task, Ddp(), gang)
        listener = task.step_loss.listener(print)
        listener.began(0)
        pieces = stepper.pieces(Position())
        for step in range(1, 7):  # as on a GPU, a step is read once the next is launched
            result = stepper.step(stepper.stage(next(pieces)), stop=False, save=False).result()
            losses[step] = result.loss
            if step > 1:
                listener.stepped(step - 1, losses[step - 1])
        listener.stepped(6, losses[6])
    assert closeness.ulps(losses, expected) < closeness.SUMMED
    assert told == expected_told


def test_each_of_two_ranks_knows_the_step_also_after_a_resume_and_in_evaluations(
    ranks: Runtime,
) -> None:
    task = Task.from_trainer(EVALUATED, name="annealed")
    ranks.write_task(task.definition())
    # An evaluation is due where the first attempt stops; the next begins with it.
    for stop in (4, 7):
        result = ranks.run(task.name, "ddp", ranks=2, steps=7, stop_at_step=stop)
        assert result.codes == [0, 0], result.logs
    check(ranks, task.name)


def test_steps_of_a_trial_that_goes_on_are_those_of_training(ranks: Runtime) -> None:
    task = Task.from_trainer(EVALUATED, name="annealed")
    ranks.write_task(task.definition())
    options = {"timed_steps": 2, "max_timed_steps": 2, "warmup_steps": 0, "knobs": {}}
    result = ranks.run(task.name, "ddp", kind="trial", ranks=2, goes_on_to=7, **options)
    assert result.codes == [0, 0], result.logs
    assert result.one("trial")["step"] == 2
    check(ranks, task.name)
