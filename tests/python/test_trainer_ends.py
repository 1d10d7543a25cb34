"""How a trainer ends as a task: where a callback says so, on all ranks; and its model is pushed."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import closeness
import in_process
import pytest
import saturn
import torch
import trainer_models
from harness import Runtime, runtime
from safetensors.torch import load_file
from saturn import Task
from saturn.checkpoint import manifest
from saturn.errors import InvalidInput
from saturn.techniques.ddp import Ddp
from saturn.trainers.rest import Trained
from trainer_models import MakeTrainer, texts
from warm_parent import Warm

pytest.importorskip("transformers")
pytest.importorskip("accelerate")

#: Their code is for several versions of each other, and says so.
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]
TOLERANCE = 1e-5


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Trainers make their output directory, wherever they are."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def ranks(tmp_path: Path, warm: Warm) -> Iterator[Runtime]:
    with runtime(tmp_path, warm) as opened:
        yield opened


def stops_early(*, patience: int = 2, **changes: Any) -> MakeTrainer:
    """One that gets worse from its second evaluation on: it ends at the fourth, after step 8."""

    def make() -> Any:
        from transformers import EarlyStoppingCallback

        made = trainer_models.with_dropout(
            **{
                **trainer_models.evaluates(texts()),
                "max_steps": 40,
                "metric_for_best_model": "rows_seen",
                "greater_is_better": False,
                "load_best_model_at_end": True,
                "save_strategy": "steps",
                "save_steps": 2,
                **changes,
            }
        )()

        def worse(prediction: Any) -> dict[str, float]:
            step = made.state.global_step
            return {"rows_seen": abs(step - 4.0)}

        made.compute_metrics = worse
        made.add_callback(EarlyStoppingCallback(early_stopping_patience=patience))
        return made

    return make


def asks_at(step: int, wish: str, **changes: Any) -> MakeTrainer:
    """One whose own callback sets `wish` after this step."""

    def make() -> Any:
        from transformers import TrainerCallback

        class Asking(TrainerCallback):
            def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
                if state.global_step == step:
                    setattr(control, wish, True)

            def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
                """Which Saturn does not tell."""

        made = trainer_models.causal(**{"max_steps": 40, **changes})()
        made.add_callback(Asking())
        return made

    return make


def trained(make: MakeTrainer) -> Any:
    made = make()
    made.train()
    return made


def logged(trainer: Any, name: str) -> dict[int, float]:
    return {each["step"]: each[name] for each in trainer.state.log_history if name in each}


@pytest.mark.parametrize("metric", ["rows", "loss"])
def test_a_best_by_another_metric_does_not_end_a_task_that_continues(
    metric: str, tmp_path: Path
) -> None:
    def made(name: str) -> Any:
        make = stops_early(metric_for_best_model=name, greater_is_better=name == "rows")
        return Task.from_trainer(make, name="trainer").definition()

    def listener(name: str, where: Path) -> Any:
        task = made(name)
        where.mkdir()
        with in_process.gang_of_one(where) as gang:
            in_process.stepper_of(task, Ddp(), gang)
        return task.step_loss.listener(print)

    def evaluated(to: Any, step: int, rows: float, loss: float) -> None:
        to.stepped(step, 1.0)
        to.evaluated(step, {"eval_rows": rows, "eval_loss": loss})

    first = listener("rows", tmp_path / "first")
    first.began(0)
    for step, rows in ((1, 0.8), (2, 0.9), (3, 0.9)):
        evaluated(first, step, rows, 3.0)
    state = json.loads(json.dumps(first.state()))
    then = listener(metric, tmp_path / "then")
    then.restore(state)
    then.began(3)
    # Losses fall, though none of them is below the best number of rows; those don't grow.
    ends = []
    for step in (4, 5, 6):
        evaluated(then, step, 0.9, 3.0 - step / 10)
        ends.append(then.is_over)
    # The evaluation before the checkpoint counts where the metric is the same.
    assert ends == ([True] * 3 if metric == "rows" else [False] * 3)
    best = then.state()["best_metric"]
    assert best == (0.9 if metric == "rows" else pytest.approx(2.4))


@pytest.mark.parametrize("moves", [False, True])
def test_a_metric_that_was_never_a_number_counts_through_a_move(
    moves: bool, tmp_path: Path
) -> None:
    """`train()` takes the first such value for a best of infinity, which no NaN beats."""
    make = stops_early(metric_for_best_model="loss", greater_is_better=False, patience=2)
    task = Task.from_trainer(make, name="trainer").definition()
    with in_process.gang_of_one(tmp_path) as gang:
        in_process.stepper_of(task, Ddp(), gang)
    listener = task.step_loss.listener(print)
    listener.began(0)
    for step in (2, 4, 6):
        if moves and step == 4:
            state = json.loads(json.dumps(listener.state(), allow_nan=False))
            listener = task.step_loss.listener(print)
            listener.restore(state)
            listener.began(2)
        listener.stepped(step, 1.0)
        listener.evaluated(step, {"eval_loss": math.nan})
        assert listener.is_over == (step == 6)


@pytest.mark.slow(quick=["moves0"])
@pytest.mark.parametrize("moves", [[("ddp", 1, 5), ("ddp", 1, None)], [("fsdp", 2, None)]])
def test_early_stopping_ends_the_task_with_its_best_model(
    moves: list[tuple[str, int, int | None]], ranks: Runtime, tmp_path: Path
) -> None:
    make = stops_early()
    task = Task.from_trainer(make, name="early", save_dir=tmp_path / "saved")
    ranks.write_task(task.definition())
    for technique, number, stop in moves:
        result = ranks.run("early", technique, ranks=number, steps=40, stop_at_step=stop)
        assert result.codes == [0] * number, result.logs
        if stop is not None:
            assert result.one("stopped")["step"] == stop
    expected = trained(make)
    assert expected.state.global_step == 8
    assert result.one("finished")["step"] == 8
    notes = [each["text"] for each in result.of("note")]
    assert "a callback of the trainer ended the training after step 8 of 40" in notes
    assert [step for step, _ in ranks.evaluations("early")] == [2, 4, 6, 8]
    found = ranks.losses("early")
    assert sorted(found) == list(range(1, 9))
    (saved,) = (path for path in (tmp_path / "saved/early").iterdir() if manifest.read(path))
    content = manifest.read(saved)
    assert content is not None and content["step"] == expected.state.best_global_step == 4
    if len(moves) == 2:  # on one rank dropout is the trainer's own
        assert found == pytest.approx(logged(expected, "loss"), abs=TOLERANCE)
        again = make()
        Trained(ranks.run_dir, "early").train(again)
        weights = again.model.state_dict()
        for name, weight in expected.model.state_dict().items():
            assert torch.equal(weights[name], weight), name
    # One that crashed before it could say so ends at once, and trains nothing more.
    result = ranks.run("early", "ddp", ranks=1, steps=40)
    assert result.one("finished")["step"] == 8 and len(ranks.losses("early")) == 8


@pytest.mark.slow(quick=["True-2"])
@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.parametrize("by_epochs", [False, True])
def test_a_callback_of_its_own_ends_it_at_the_step_where_it_ends_the_trainer(
    number: int, by_epochs: bool, ranks: Runtime
) -> None:
    changes: dict[str, Any] = {**trainer_models.evaluates(texts()), "eval_steps": 2}
    if by_epochs:
        changes["eval_strategy"] = "epoch"
    make = asks_at(3, "should_training_stop", **changes)
    ranks.write_task(Task.from_trainer(make, name="asking").definition())
    result = ranks.run("asking", "ddp", ranks=number, steps=40)
    assert result.codes == [0] * number, result.logs
    assert result.one("finished")["step"] == 3
    expected = trained(make)
    assert expected.state.global_step == 3
    assert ranks.losses("asking") == pytest.approx(logged(expected, "loss"), abs=TOLERANCE)
    evaluated = [step for step, _ in ranks.evaluations("asking")]
    assert evaluated == list(logged(expected, "eval_loss")) == ([2, 3] if by_epochs else [2])


def test_a_trial_keeps_no_steps_that_a_callback_might_end_at(ranks: Runtime) -> None:
    make = asks_at(2, "should_training_stop")
    ranks.write_task(Task.from_trainer(make, name="asking").definition())
    result = ranks.run("asking", "ddp", kind="trial", ranks=1, knobs={}, goes_on_to=40)
    assert result.codes == [0], result.logs
    assert result.one("trial").get("step") is None


def test_what_a_callback_can_not_have_is_said(
    ranks: Runtime, capsys: pytest.CaptureFixture[str]
) -> None:
    make = asks_at(2, "should_epoch_stop")
    ranks.write_task(Task.from_trainer(make, name="epoch").definition())
    told = capsys.readouterr().err
    assert "its callbacks may watch the training, on one rank, and end it" in told
    assert "Asking is not told of on_save" in told
    result = ranks.run("epoch", "ddp", ranks=1, steps=40)
    assert "asks for the end of the epoch at step 2 (should_epoch_stop)" in str(result.of("failed"))
    for wish, reason in (("should_save", "for a checkpoint"), ("should_evaluate", "an evaluation")):
        ranks.write_task(Task.from_trainer(asks_at(2, wish), name=wish).definition())
        result = ranks.run(wish, "ddp", ranks=1, steps=4)
        assert result.one("finished")["step"] == 4
        assert f"{reason} at step 2; " in str(result.of("note"))


@pytest.mark.parametrize(
    ("make", "options", "reason"),
    [
        (stops_early(), {"evaluate": None}, "follows the trainer's own evaluation"),
        (stops_early(), {"evaluate": lambda model: {"own": 1}}, "stopper=saturn.stoppers.Plateau"),
        (
            stops_early(metric_for_best_model=None, load_best_model_at_end=False),
            {},
            "`EarlyStoppingCallback` needs `eval_strategy` and `metric_for_best_model`",
        ),
    ],
)
def test_early_stopping_that_could_never_stop_is_refused(
    make: MakeTrainer, options: dict[str, Any], reason: str
) -> None:
    with pytest.raises(InvalidInput, match=re.escape(reason)):
        Task.from_trainer(make, **options)


@pytest.mark.slow
def test_in_a_run_it_is_done_and_its_device_goes_to_the_next(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    tasks = [
        Task.from_trainer(stops_early(), name="early", gpu_range=1, techniques=["ddp"]),
        Task.from_trainer(
            trainer_models.causal(max_steps=4),
            name="next",
            gpu_range=1,
            techniques=["ddp"],
            after=["early"],
        ),
    ]
    result = saturn.orchestrate(tasks, devices=1, name="ends", runs_dir=tmp_path / "runs")
    assert [(task.status, task.steps) for task in result.tasks] == [("done", 8), ("done", 4)]
    told = capfd.readouterr().err
    assert "early  8 of 40 steps in " in told
    assert "a callback of the trainer ended the training after step 8 of 40" in told


def pushing(directory: Path, **changes: Any) -> MakeTrainer:
    """One whose hub is a file: each call that would reach it is a line there."""

    def make() -> Any:
        import huggingface_hub

        def tell(**call: Any) -> None:
            with (directory / "hub.jsonl").open("a") as file:
                file.write(json.dumps(call) + "\n")

        def create_repo(self: Any, repo_id: str, **options: Any) -> Any:
            tell(create=repo_id, private=options["private"], token=options["token"])
            return huggingface_hub.RepoUrl(f"https://huggingface.co/someone/{repo_id}")

        def upload_folder(self: Any, **options: Any) -> str:
            if "fails" in changes:
                raise OSError("the hub is closed")
            weights = load_file(Path(options["folder_path"]) / "model.safetensors")
            tell(
                upload=options["repo_id"],
                message=options["commit_message"],
                revision=options["revision"],
                sums={name: float(weight.double().sum()) for name, weight in weights.items()},
            )
            return "https://huggingface.co/someone/model/commit/1"

        huggingface_hub.HfApi.create_repo = create_repo  # type: ignore[method-assign]
        huggingface_hub.HfApi.upload_folder = upload_folder  # type: ignore[method-assign]
        options = {
            "output_dir": str(directory / "output"),
            "push_to_hub": True,
            "hub_model_id": "model",
            "hub_token": "secret",
            "hub_private_repo": True,
            "hub_revision": "tried",
            "max_steps": 4,
            **{name: value for name, value in changes.items() if name != "fails"},
        }
        return trainer_models.causal(**options)()

    return make


@pytest.fixture(autouse=True)
def hub(monkeypatch: pytest.MonkeyPatch) -> None:
    """What `make` puts into huggingface_hub is there in this test alone."""
    import huggingface_hub

    for name in ("create_repo", "upload_folder"):
        monkeypatch.setattr(huggingface_hub.HfApi, name, getattr(huggingface_hub.HfApi, name))


def calls(directory: Path) -> list[dict[str, Any]]:
    path = directory / "hub.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@pytest.mark.slow(quick=["2"])
@pytest.mark.parametrize("number", [1, 2])
def test_the_trained_model_is_pushed_once_at_the_end(
    number: int, ranks: Runtime, tmp_path: Path
) -> None:
    task = Task.from_trainer(pushing(tmp_path), name="pushed")
    ranks.write_task(task.definition())
    result = ranks.run("pushed", "fsdp", ranks=number, steps=4, stop_at_step=2)
    assert result.one("stopped")["step"] == 2
    assert calls(tmp_path) == [], "nothing is told before it is trained"
    result = ranks.run("pushed", "fsdp", ranks=number, steps=4)
    assert result.codes == [0] * number, result.logs
    created, uploaded = calls(tmp_path)
    assert created == {"create": "model", "private": True, "token": "secret"}
    assert uploaded["upload"] == "someone/model" and uploaded["revision"] == "tried"
    assert uploaded["message"] == "End of training"
    expected = trainer_models.causal(max_steps=4)()
    expected.train()
    weights = expected.model.state_dict()
    sums = {name: float(weights[name].double().sum()) for name in uploaded["sums"]}
    assert closeness.ulps(uploaded["sums"], sums) < closeness.ACROSS
    assert "the model after step 4 is published: https://" in str(result.of("note"))
    assert not torch.distributed.is_initialized()


def test_a_push_that_fails_is_told_and_the_task_is_done(ranks: Runtime, tmp_path: Path) -> None:
    task = Task.from_trainer(pushing(tmp_path, fails=True), name="pushed")
    ranks.write_task(task.definition())
    result = ranks.run("pushed", "ddp", ranks=1, steps=4)
    assert result.one("finished")["step"] == 4
    told = str(result.of("note"))
    assert "can't be published: OSError: the hub is closed; its checkpoint is " in told


def test_checkpoints_are_not_pushed(tmp_path: Path) -> None:
    for strategy in ("checkpoint", "all_checkpoints"):
        reason = f"`hub_strategy={strategy}`: "
        with pytest.raises(InvalidInput, match=re.escape(reason)):
            Task.from_trainer(pushing(tmp_path, hub_strategy=strategy))
    assert calls(tmp_path) == []


@pytest.mark.parametrize("wish", ["ignore_keys_for_eval=['loss']", "trial={'lr': 1}"])
def test_what_a_script_asks_of_train_is_not_dropped(wish: str, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import trainer_models\n" + f"trainer_models.causal(max_steps=2)().train({wish})\n"
    )
    with pytest.raises(InvalidInput, match=re.escape(f"it calls train({wish[:5]}")):
        Task.script(script, trainer=True)
