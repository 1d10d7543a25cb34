"""What the callbacks of a trainer hear as its task trains."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import closeness
import in_process
import pytest
import trainer_models
from saturn import Task
from saturn.data.slices import Position
from saturn.tasks.definition import TaskDefinition
from saturn.techniques.ddp import Ddp
from saturn.training.evaluation import Evaluator
from saturn.training.step_loss import Listener
from trainer_models import MakeTrainer

pytest.importorskip("transformers")
pytest.importorskip("accelerate")

#: Their code is for several versions of each other, and says so.
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Trainers make their output directory, wherever they are."""
    monkeypatch.chdir(tmp_path)


def task_of(make: MakeTrainer, name: str = "trainer") -> Task:
    return Task.from_trainer(make, name=name)


@contextlib.contextmanager
def listening(task: TaskDefinition, directory: Path, notes: list[str]) -> Iterator[Listener]:
    """The listener of a task whose training has begun; its notes come into `notes`."""
    with in_process.gang_of_one(directory) as gang:
        in_process.stepper_of(task, Ddp(), gang)
        listener = task.step_loss.listener(notes.append)
        listener.began(0)
        yield listener


@pytest.mark.parametrize("logs", [{"logging_steps": 2}, {"logging_strategy": "epoch"}])
def test_callbacks_are_told_of_each_step_and_what_is_to_be_logged(
    logs: dict[str, Any], tmp_path: Path
) -> None:
    make = trainer_models.watched(**logs, max_steps=5, eval_strategy="steps", eval_steps=3)
    task = task_of(make).definition()
    notes: list[str] = []
    with in_process.gang_of_one(tmp_path) as gang:
        stepper = in_process.stepper_of(task, Ddp(), gang)
        listener = task.step_loss.listener(notes.append)
        listener.began(0)
        pieces = stepper.pieces(Position())
        for step in range(1, 6):
            result = stepper.step(stepper.stage(next(pieces)), stop=False, save=False).result()
            listener.stepped(step, result.loss)
            if step in (3, 5):  # the last step is evaluated in any case
                outcome = Evaluator(task, stepper.parallel, gang, note=notes.append).run()
                listener.evaluated(step, outcome.metrics)
        listener.ended()
    trainer_models.run(make)
    found, expected = trainer_models.heard[-2:]
    assert [event for event, _ in found] == [event for event, _ in expected]
    for (_, found_logs), (_, wanted) in zip(found, expected, strict=True):
        wanted_logs = {key: wanted[key] for key in found_logs}
        assert closeness.ulps(found_logs, wanted_logs) < closeness.SUMMED
    assert notes == []


def test_a_callback_that_stops_early_ends_the_training(tmp_path: Path) -> None:
    from transformers import EarlyStoppingCallback

    def make() -> Any:
        made = trainer_models.causal(
            **trainer_models.evaluates(trainer_models.texts()),
            metric_for_best_model="eval_loss",
        )()
        made.add_callback(EarlyStoppingCallback(early_stopping_patience=1))
        return made

    task = task_of(make).definition()
    notes: list[str] = []
    with listening(task, tmp_path, notes) as listener:
        for step, loss in ((2, 1.0), (4, 1.5), (6, 1.5)):
            listener.evaluated(step, {"eval_loss": loss})
            assert listener.is_over == (step > 2)
    assert notes == []


def test_callbacks_hear_of_an_evaluation_that_lacks_the_trainers_own_metric(
    tmp_path: Path,
) -> None:
    evaluates = trainer_models.evaluates(trainer_models.texts())
    make = trainer_models.causal(**evaluates, metric_for_best_model="accuracy")
    heard: list[dict[str, Any]] = []

    def listened() -> Any:
        from transformers import TrainerCallback

        class Keeping(TrainerCallback):
            def on_evaluate(
                self, args: Any, state: Any, control: Any, metrics: Any = None, **_: Any
            ) -> None:
                heard.append(metrics)

        made = make()
        made.add_callback(Keeping())
        return made

    task = Task.from_trainer(listened, evaluate=lambda model: {"own": 1.0}).definition()
    notes: list[str] = []
    with listening(task, tmp_path, notes) as listener:
        for step in (2, 4):
            listener.evaluated(step, {"own": 1.0})
    assert len(heard) == 2 and notes == []


def test_only_the_listeners_callbacks_hear_what_a_loss_logs(tmp_path: Path) -> None:
    """The callbacks of other ranks, and of trials, would open trackers of their own."""
    heard: list[float] = []

    def make() -> Any:
        from transformers import Trainer, TrainerCallback

        class Logging(Trainer):
            def compute_loss(self, *args: Any, **more: Any) -> Any:
                self.log({"own": 1.0})
                return super().compute_loss(*args, **more)

        class Keeping(TrainerCallback):
            def on_log(
                self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any
            ) -> None:
                heard.extend(logs[name] for name in logs if name == "own")

        model, data = trainer_models.llama(), trainer_models.texts()
        made = trainer_models.trainer(model, data, Logging, gradient_accumulation_steps=1)
        made.add_callback(Keeping())
        return made

    task = task_of(make).definition()
    assert task.step_loss.own_end is not None
    with in_process.gang_of_one(tmp_path) as gang:
        stepper = in_process.stepper_of(task, Ddp(), gang)
        assert task.step_loss.own_end is not None
        pieces = stepper.pieces(Position())
        stepper.step(stepper.stage(next(pieces)), stop=False, save=False).result()
        assert heard == []
        task.step_loss.listener(print).began(0)
        stepper.step(stepper.stage(next(pieces)), stop=False, save=False).result()
        assert heard == [1.0]


def test_a_trainer_that_logs_itself_is_asked_to(tmp_path: Path) -> None:
    """As in `train`: its own method hears of losses and evaluations, and may add to them."""
    heard: list[dict[str, Any]] = []

    def make() -> Any:
        from transformers import Trainer, TrainerCallback

        class Logging(Trainer):
            def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
                super().log({**logs, "own": 2 * self.state.global_step}, start_time)

        class Keeping(TrainerCallback):
            def on_log(
                self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any
            ) -> None:
                assert state.log_history[-1] == {**logs, "step": state.global_step}
                heard.append(logs)

        model, data = trainer_models.llama(), trainer_models.texts()
        made = trainer_models.trainer(model, data, Logging, logging_steps=2)
        made.callback_handler.callbacks = made.callback_handler.callbacks[:1]
        made.add_callback(Keeping())
        return made

    task = task_of(make).definition()
    notes: list[str] = []
    with listening(task, tmp_path, notes) as listener:
        assert task.step_loss.own_end is not None and task.step_loss.own_end.at_steps
        for step in (1, 2):
            listener.stepped(step, float(step))
        listener.evaluated(2, {"eval_loss": 4.0})
    assert [(logs.get("loss"), logs.get("eval_loss"), logs["own"]) for logs in heard] == [
        (1.5, None, 4),
        (None, 4.0, 4),
    ]
    assert notes == []


def test_a_log_of_its_own_may_end_the_training_without_any_callback(tmp_path: Path) -> None:
    own = task_of(trainer_models.own_method("log")).definition()
    plain = task_of(trainer_models.causal()).definition()
    for task, may_end in ((own, True), (plain, False)):
        with in_process.gang_of_one(tmp_path) as gang:
            in_process.stepper_of(task, Ddp(), gang)
            assert (task.step_loss.own_end is not None) == may_end


def test_a_callback_that_raises_is_told_no_more(tmp_path: Path) -> None:
    task = task_of(trainer_models.watched(fails=True)).definition()
    notes: list[str] = []
    with listening(task, tmp_path, notes) as listener:
        listener.stepped(1, 0.5)
        listener.stepped(2, 0.5)
    assert notes == ["the trainer's callbacks are not called any more: OSError: nobody listens"]
