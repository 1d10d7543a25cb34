"""A trainer as a task trains as the trainer by itself."""

from __future__ import annotations

import functools
import os
import re
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
from saturn.checkpoint import manifest
from saturn.data.slices import Data, Position
from saturn.errors import InvalidInput
from saturn.tasks.profile_key import profile_key
from saturn.techniques.ddp import Ddp
from saturn.techniques.fsdp import Fsdp
from saturn.trainers import own_parts
from saturn.trainers.rest import Trained
from saturn.training.accumulation import Accumulation
from saturn.training.evaluation import Evaluator
from trainer_models import MakeTrainer
from warm_parent import Warm

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


ONE_SLOT = {
    "ragged accumulation": trainer_models.causal(),
    "epochs": trainer_models.causal(max_steps=-1, num_train_epochs=1.5),
    "whole batches": trainer_models.causal(
        gradient_accumulation_steps=1, dataloader_drop_last=True
    ),
    "label smoothing and clipping": trainer_models.causal(
        label_smoothing_factor=0.1, max_grad_norm=0.3
    ),
    "bf16": trainer_models.causal(bf16=True, label_smoothing_factor=0.1),
    "by length": trainer_models.causal(train_sampling_strategy="group_by_length"),
    "dropout": trainer_models.with_dropout(),
    "noise": trainer_models.causal(neftune_noise_alpha=5.0),
    "a head that counts nothing": trainer_models.classifier(),
    "sequences": trainer_models.seq2seq(),
    "a loss of its own": trainer_models.custom_loss(),
    "an optimizer of its own": trainer_models.own_optimizer(),
    "lora": trainer_models.lora(),
    "lora with dropout over a pretrained model": trainer_models.lora_over_pretrained(),
    "model_init": trainer_models.from_init(),
}


@pytest.mark.parametrize("kind", ONE_SLOT)
def test_on_one_slot_its_weights_are_the_trainers_to_the_last_bit(
    kind: str, tmp_path: Path
) -> None:
    make = ONE_SLOT[kind]
    definition = task_of(make).definition()
    expected_losses, expected = trainer_models.run(make)
    losses, weights = in_process.train(definition, Ddp(), tmp_path, steps=max(expected_losses))
    # A step's loss is a sum, which the trainer rounds to float32 with each batch that it adds.
    assert closeness.ulps(losses, expected_losses) < closeness.SUMMED
    assert weights.keys() == expected.keys()
    for name, weight in expected.items():
        assert torch.equal(weights[name], weight), name


@pytest.fixture
def ranks(tmp_path: Path, warm_with_models: Warm) -> Iterator[Runtime]:
    with runtime(tmp_path, warm_with_models) as opened:
        yield opened


MOVES = {
    # The name of a sharded model's class says nothing of how its labels are shifted.
    "label smoothing": (
        trainer_models.causal(label_smoothing_factor=0.1),
        [("ddp", 2), ("fsdp", 2), ("ddp", 1)],
    ),
    "a head that counts nothing": (trainer_models.classifier(), [("fsdp", 2), ("ddp", 3)]),
    "micro-batches": (trainer_models.causal(), [("pipeline", 2), ("tensor", 2)]),
    "lora": (trainer_models.lora(), [("ddp", 2), ("fsdp", 2)]),
    # They bypass the wrapper of DDP, which exchanges gradients.
    "its own model": (trainer_models.calling_its_own(unwraps=False), [("ddp", 2), ("ddp", 3)]),
    "unwrapped": (trainer_models.calling_its_own(unwraps=True), [("ddp", 2), ("fsdp", 2)]),
    "batches of one sample": (
        trainer_models.causal(per_device_train_batch_size=1, gradient_accumulation_steps=5),
        [("ddp", 2), ("fsdp", 3)],
    ),
    # Each epoch's order follows from what loaders and evaluations have drawn before.
    "by length, evaluated": (
        trainer_models.causal(
            **trainer_models.evaluates(trainer_models.texts()),
            train_sampling_strategy="group_by_length",
        ),
        [("ddp", 2), ("fsdp", 2), ("ddp", 1)],
    ),
    # Where its random stream stands is in the checkpoint.
    "dropout": (trainer_models.with_dropout(), [("ddp", 1), ("ddp", 1)]),
}


@pytest.mark.slow(quick=["lora", "its own model"])
@pytest.mark.parametrize("kind", MOVES)
def test_through_moves_its_losses_are_the_trainers(kind: str, ranks: Runtime) -> None:
    make, moves = MOVES[kind]
    task = task_of(make)
    ranks.write_task(task.definition())
    steps = 0
    for technique, number in moves:
        steps += 2
        knobs = {"microbatches": 2} if technique == "pipeline" else {}
        result = ranks.run(task.name, technique, ranks=number, steps=steps, knobs=knobs)
        assert result.codes == [0] * number, result.logs
    expected, _ = trainer_models.run(make)
    found = ranks.losses(task.name)
    assert closeness.ulps(found, {step: expected[step] for step in found}) < closeness.ACROSS


def test_a_trainer_in_bf16_may_gather_in_bf16(tmp_path: Path) -> None:
    make = trainer_models.causal(bf16=True)
    task = Task.from_trainer(make, precision="bf16-params")
    assert task.hparams.precision == "bf16-params"
    found, _ = in_process.train(task.definition(), Fsdp(), tmp_path, steps=4)
    expected, _ = trainer_models.run(make)
    difference = closeness.ulps(found, {step: expected[step] for step in found}, of=torch.bfloat16)
    assert 0 < difference < 4


def test_another_precision_than_the_trainers_is_refused() -> None:
    with pytest.raises(InvalidInput, match="this trainer computes in float32"):
        Task.from_trainer(trainer_models.causal(), precision="bf16-params")
    with pytest.raises(InvalidInput, match="precision is 'fp16'; for a trainer it can only be"):
        Task.from_trainer(trainer_models.causal(bf16=True), precision="fp16")


EVALUATING: dict[str, MakeTrainer] = {
    "a head that counts nothing": trainer_models.classifier(
        **trainer_models.evaluates(trainer_models.labelled()),
        metric_for_best_model="rows",  # of equal values the first is the best
        load_best_model_at_end=True,
        save_strategy="steps",
        save_steps=2,
    ),
    "ragged logits": trainer_models.causal(**trainer_models.evaluates(trainer_models.texts())),
    "reduced logits and smoothed labels": trainer_models.causal(
        **trainer_models.evaluates(
            trainer_models.texts(), preprocess_logits_for_metrics=trainer_models.most_likely
        ),
        label_smoothing_factor=0.1,
        include_for_metrics=["inputs", "loss"],
    ),
    "a loss alone": trainer_models.causal(
        **trainer_models.evaluates(trainer_models.texts(), compute_metrics=None)
    ),
    "bf16": trainer_models.causal(**trainer_models.evaluates(trainer_models.texts()), bf16=True),
    "a loss of its own": trainer_models.custom_loss(
        **trainer_models.evaluates(trainer_models.labelled())
    ),
}


def measured(metrics: dict[str, Any]) -> dict[str, float]:
    """Those of a trainer's metrics that are numbers, and not of time."""
    names = ("eval_loss", "eval_accuracy", "eval_rows")
    return {name: metrics[name] for name in names if name in metrics}


@pytest.mark.parametrize("kind", EVALUATING)
def test_an_evaluation_finds_what_the_trainers_does(kind: str, tmp_path: Path) -> None:
    make = EVALUATING[kind]
    task = task_of(make).definition()
    with in_process.gang_of_one(tmp_path) as gang:
        stepper = in_process.stepper_of(task, Ddp(), gang)
        outcome = Evaluator(task, stepper.parallel, gang, note=print).run()
    outcome.expect()
    expected = measured(make().evaluate())
    assert closeness.ulps(outcome.metrics, expected) < closeness.SUMMED
    assert len(expected) == (1 if kind == "a loss alone" else 3)


@pytest.mark.slow(quick=["a loss of its own"])
@pytest.mark.parametrize("kind", ["a head that counts nothing", "a loss of its own"])
def test_it_is_evaluated_when_the_trainer_is(kind: str, ranks: Runtime, tmp_path: Path) -> None:
    make = EVALUATING[kind]
    task = Task.from_trainer(make, name="evaluated", save_dir=tmp_path / "saved")
    ranks.write_task(task.definition())
    for technique, number, stop in (("ddp", 2, 3), ("fsdp", 2, 6)):
        result = ranks.run(task.name, technique, ranks=number, steps=6, stop_at_step=stop)
        assert result.codes == [0] * number, result.logs
    trainer = make()
    trainer.train()
    expected = [each for each in trainer.state.log_history if "eval_loss" in each]
    found = ranks.evaluations(task.name)
    assert [step for step, _ in found] == [each["step"] for each in expected] == [2, 4, 6]
    for (_, metrics), each in zip(found, expected, strict=True):
        assert closeness.ulps(metrics, measured(each)) < closeness.ACROSS
    # Both end with the best weights where the trainer says so, which are not the last.
    best = trainer.state.best_global_step if trainer.args.load_best_model_at_end else 6
    assert best == (2 if kind == "a head that counts nothing" else 6)
    (saved,) = (path for path in (tmp_path / "saved" / task.name).iterdir() if manifest.read(path))
    content = manifest.read(saved)
    assert content is not None and content["step"] == best
    again = make()
    Trained(ranks.run_dir, task.name).train(again)
    assert closeness.ulps(again.model.state_dict(), trainer.model.state_dict()) < closeness.ACROSS


def test_when_it_evaluates_and_what_is_best_are_the_trainers() -> None:
    def said(make: MakeTrainer, **options: Any) -> tuple[Any, ...]:
        found = Task.from_trainer(make, **options).evaluation
        return found.every, found.best

    causal = trainer_models.causal
    evaluates = trainer_models.evaluates(trainer_models.texts())
    # 6 batches an epoch make 2 steps.
    assert said(causal(**evaluates | {"eval_strategy": "epoch"})) == (2, None)
    assert said(causal(**evaluates | {"eval_steps": 0.4})) == (3, None)
    judged = causal(**evaluates, metric_for_best_model="accuracy")
    assert said(judged) == (2, ("eval_accuracy", "max"))
    assert said(causal(**evaluates, metric_for_best_model="loss")) == (2, ("eval_loss", "min"))
    best = ("eval_rows", "min")
    assert said(judged, evaluate_every=5, best=best) == (5, best)
    assert said(judged, evaluate=lambda model: {"own": 1}) == (None, None)
    assert Task.from_trainer(causal()).evaluation.evaluate is None
    # How often is not part of what its trials measure; on what is.
    known = profile_key(task_of(judged))
    assert profile_key(task_of(causal(**evaluates | {"eval_steps": 3}, seed=7))) == known
    other = trainer_models.evaluates(trainer_models.texts(), compute_metrics=None)
    assert profile_key(task_of(causal(**other))) != known


def test_what_no_step_takes_longer_for_is_not_in_its_profile_key() -> None:
    make = trainer_models.classifier
    known = profile_key(task_of(make()))
    for same in ({"learning_rate": 1e-4, "warmup_steps": 0}, {"seed": 7}, {"max_steps": 2}):
        assert profile_key(task_of(make(**same))) == known
    for other in ({"per_device_train_batch_size": 2}, {"bf16": True}, {"optim": "sgd"}):
        assert profile_key(task_of(make(**other))) != known
    assert profile_key(task_of(trainer_models.custom_loss())) != known


def test_what_the_users_own_code_decides_is_in_its_profile_key() -> None:
    """Tasks of one key share trials, and whether a batch may be cut."""
    from transformers import Trainer

    class Repeating(Trainer):
        def __init__(self, *args: Any, times: int = 1, **more: Any) -> None:
            super().__init__(*args, **more)
            self.times = times

    def padded(samples: list[dict[str, Any]], to: int) -> dict[str, torch.Tensor]:
        pad = torch.nn.functional.pad
        found = trainer_models.collate(samples)
        return {key: pad(rows, (0, to - rows.shape[1])) for key, rows in found.items()}

    def made(*, times: int = 1, to: int | None = None, hidden: int | None = None) -> MakeTrainer:
        def make() -> Any:
            model, data = trainer_models.llama(), trainer_models.texts()
            trainer = trainer_models.trainer(model, data, Repeating, given={"times": times})
            if to is not None:
                trainer.data_collator = functools.partial(padded, to=to)
            if hidden is not None:
                trainer.teacher = torch.nn.Linear(4, hidden)
            return trainer

        return make

    variants = [made(times=2), made(to=12), made(to=30), made(hidden=4), made(hidden=8)]
    keys = [profile_key(task_of(make)) for make in variants]
    assert len(set(keys)) == len(keys)
    assert keys[2] == profile_key(task_of(made(to=30)))
    plain = trainer_models.causal()()
    assert own_parts.of_trainer(plain, plain.model) == {}


REFUSED: dict[str, tuple[MakeTrainer, str]] = {
    "fp16": (trainer_models.causal(fp16=True), "`fp16`"),
    "auto_find_batch_size": (trainer_models.causal(auto_find_batch_size=True), "batch belongs"),
    "scheduler": (
        trainer_models.causal(
            lr_scheduler_type="greedy",
            eval_strategy="steps",
            eval_steps=2,
            given={"eval_dataset": trainer_models.texts()},
        ),
        "`lr_scheduler_type=greedy`: it follows the loss",
    ),
    "optimizer": (trainer_models.causal(optim="lomo"), "`optim=lomo`"),
    "no data": (lambda: trainer_models.trainer(trainer_models.llama(), None), "`train_dataset`"),
    "own step": (
        trainer_models.own_method("training_step"),
        "Own overrides `training_step`: Saturn takes the backward itself",
    ),
    "own logs and saves": (
        trainer_models.own_method("_maybe_log_save_evaluate"),
        "Own overrides `_maybe_log_save_evaluate`: Saturn decides what is done after a step",
    ),
    "own inputs": (trainer_models.own_method("_prepare_inputs"), "the model at work"),
    "has run": (trainer_models.has_run, "it has been run already"),
    "several evaluations": (
        trainer_models.causal(**trainer_models.evaluates([], eval_dataset={"one": []})),
        "`eval_dataset` is a dict",
    ),
    "generated texts": (
        trainer_models.seq2seq(
            **trainer_models.evaluates(trainer_models.texts(targets=True)),
            predict_with_generate=True,
        ),
        "`predict_with_generate`: ",
    ),
    "metrics by batch": (
        trainer_models.causal(
            **trainer_models.evaluates(trainer_models.texts(), compute_metrics=None),
            batch_eval_metrics=True,
        ),
        "`batch_eval_metrics`: ",
    ),
    "head alone": (
        trainer_models.own_optimizer(of=lambda model: model.lm_head.parameters()),
        "the trainer's optimizer does not have the parameter `model.embed_tokens.weight`",
    ),
    "something else": (trainer_models.llama, "returned a LlamaForCausalLM; it must return a"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_can_not_be_kept_is_refused_by_name(what: str) -> None:
    make, reason = REFUSED[what]
    with pytest.raises(InvalidInput, match=re.escape(reason)):
        task_of(make)


@pytest.mark.parametrize("name", ["save_model", "_save", "_save_checkpoint", "_load_best_model"])
def test_an_override_that_is_never_called_is_said(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    task_of(trainer_models.own_method(name))
    assert f"Own overrides `{name}`, which Saturn does not call" in capsys.readouterr().err


def test_the_rate_in_tables_is_that_of_the_trainers_own_optimizer() -> None:
    assert task_of(trainer_models.own_optimizer()).hparams.lr == 0.1


def test_a_trainer_itself_is_no_function_that_makes_one() -> None:
    with pytest.raises(TypeError, match="this is one: write a function"):
        Task.from_trainer(trainer_models.causal()())


def test_making_one_joins_no_group_and_leaves_the_process_as_it_was(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    launcher = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}
    for name, value in launcher.items():
        monkeypatch.setenv(name, value)
    before, environment = torch.get_rng_state(), dict(os.environ)
    task_of(trainer_models.causal(bf16=True, tf32=True))
    assert not torch.distributed.is_initialized() and not torch.cuda.is_initialized()
    assert torch.equal(torch.get_rng_state(), before) and dict(os.environ) == environment


def test_length_is_the_trainers_ragged_at_the_end_of_each_epoch() -> None:
    # 6 batches an epoch make 2 steps: of 4 and of 2.
    hparams = task_of(trainer_models.causal(max_steps=5)).hparams
    assert (hparams.batch_count, hparams.epoch_batches) == (2 * 6 + 4, 6)
    counted = Accumulation(task_of(trainer_models.causal(max_steps=5)).definition(), 6)
    assert [counted.next_step(number) for number in (0, 4, 6, 10, 12)] == [4, 2, 4, 2, 4]
    assert [counted.steps(number) for number in (4, 6, 10, 12, 16)] == [1, 2, 3, 4, 5]
    assert [counted.batches(number) for number in (1, 2, 3, 5)] == [4, 6, 10, 16]


def test_batches_of_a_step_are_dealt_out_as_one_and_leave_no_rank_idle() -> None:
    # 22 samples in batches of 1 make an epoch of 4 steps of 5, and one of 2.
    make = trainer_models.causal(per_device_train_batch_size=1, gradient_accumulation_steps=5)
    task = task_of(make).definition()
    data = Data(task.get_dataloader, seed=task.seed)
    counted = Accumulation(task, data.batches_per_epoch)
    ranks = [
        data.steps(
            Position(), counted.next_step, data_rank=rank, data_size=2, deals=lambda sizes: True
        )
        for rank in range(2)
    ]
    steps = [[next(steps) for steps in ranks] for _ in range(6)]
    sizes = [[[piece.num_samples for piece in of_rank] for of_rank in step] for step in steps]
    assert sizes[0] == [[0, 1, 1], [1, 1, 1]] and sizes[4] == [[1], [1]]
    for of_rank in steps[4]:
        assert of_rank[-1].after == Position(epoch=1, batch=0, samples=22, batches=22)
    assert steps[5][0][-1].after == Position(epoch=1, batch=5, samples=27, batches=27)
    whole = data.slices(Position())
    expected = [next(whole).batch["input_ids"].tolist()[0] for _ in range(5)]
    found = [
        piece.batch["input_ids"].tolist()[0]
        for of_rank in steps[0]
        for piece in of_rank
        if piece.num_samples
    ]
    assert found == expected
