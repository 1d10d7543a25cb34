"""A trainer as a task draws what `train()` draws: all generators, at every forward.

A callback hooks the model when training begins, in `train()` and in Saturn alike, and notes where
every generator stands at each forward of training and of evaluation.
"""

from __future__ import annotations

import hashlib
import pickle
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import closeness
import in_process
import numpy
import pytest
import torch
import trainer_models
from harness import Runtime
from saturn import Task
from saturn.checkpoint.checkpoints import Checkpoints
from saturn.data.slices import Position
from saturn.tasks.definition import TaskDefinition
from saturn.techniques.ddp import Ddp
from saturn.training.evaluation import Evaluator
from trainer_models import MakeTrainer, texts

pytest.importorskip("transformers")
pytest.importorskip("accelerate")

#: Their code is for several versions of each other, and says so.
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]

#: (whether it is a forward of training, where each generator stands) of each forward.
Seen = list[tuple[bool, dict[str, str]]]

STEPS = 9  # over three epochs and a half, of 3, 3 and 3 steps: the last of an epoch is ragged
#: What all of them have: a step of three batches, the last of an epoch short; warm-up; clipping.
COMMON: dict[str, Any] = {
    "max_steps": STEPS,
    "per_device_train_batch_size": 3,
    "gradient_accumulation_steps": 3,
    "warmup_steps": 2,
    "max_grad_norm": 0.3,
}


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Trainers make their output directory, wherever they are."""
    monkeypatch.chdir(tmp_path)


def generators() -> dict[str, str]:
    """Where all of them stand."""
    found: dict[str, Any] = {
        "torch": torch.get_rng_state().numpy().tobytes(),
        "numpy": pickle.dumps(numpy.random.get_state()),
        "random": pickle.dumps(random.getstate()),
    }
    if torch.cuda.is_available():
        found["cuda"] = torch.cuda.get_rng_state().cpu().numpy().tobytes()
    return {name: hashlib.sha256(state).hexdigest()[:12] for name, state in found.items()}


#: Of the trainers that `watched` makes.
seen: Seen = []


def watched(make: MakeTrainer) -> MakeTrainer:
    def make_watched() -> Any:
        from transformers import TrainerCallback

        class Watching(TrainerCallback):
            def on_train_begin(
                self, args: Any, state: Any, control: Any, model: Any = None, **_: Any
            ) -> None:
                def look(module: torch.nn.Module, *_: Any) -> None:
                    seen.append((module.training, generators()))

                model.register_forward_pre_hook(look)

        made = make()
        made.add_callback(Watching())
        return made

    return make_watched


def of_train(make: MakeTrainer) -> tuple[Seen, dict[int, float], dict[str, torch.Tensor]]:
    """What is seen in `train()`, its losses and its weights."""
    seen.clear()
    losses, weights = trainer_models.run(watched(make))
    return list(seen), losses, weights


class Attempt:
    """A task in this process, from its newest checkpoint on."""

    def __init__(self, task: TaskDefinition, gang: Any, directory: Path) -> None:
        self.task = task
        self.stepper = stepper = in_process.stepper_of(task, Ddp(), gang)
        self.evaluator = None
        if task.evaluate is not None:
            self.evaluator = Evaluator(
                task, stepper.parallel, gang, note=print, draws=stepper.draws
            )
        self.checkpoints = Checkpoints(
            *(directory / "checkpoints", gang, {"attempt": 1}),
            *(stepper.optimizer_groups, stepper.lr_schedule, None, stepper.draws),
        )
        self.done, self.position = 0, Position()
        if (newest := self.checkpoints.newest()) is not None:
            found, content = newest
            self.position = self.checkpoints.load(
                found, content, stepper.parallel, stepper.optimizer
            )
            self.done = content["step"]
        task.step_loss.listener(print).began(self.done)

    def train(self, until: int) -> dict[int, float]:
        losses = {}
        pieces = self.stepper.pieces(self.position)
        while self.done < until:
            staged = self.stepper.stage(next(pieces))
            losses[self.done + 1] = self.stepper.step(staged, stop=False, save=False).result().loss
            self.done, self.position = self.done + 1, staged.after
            every = self.task.evaluate_every
            if self.evaluator is not None and (self.done == STEPS or self.done % every == 0):
                self.evaluator.run().expect()
        return losses

    def save(self) -> None:
        self.checkpoints.save(
            *(self.stepper.parallel, self.stepper.optimizer),
            step=self.done,
            position=self.position,
            loss=0.0,
        )


def of_task(
    make: MakeTrainer, directory: Path, *, resumed_after: tuple[int, ...] = ()
) -> tuple[Seen, dict[int, float], dict[str, torch.Tensor]]:
    """What is seen in Saturn, its losses and its weights."""
    seen.clear()
    losses: dict[int, float] = {}
    for until in (*resumed_after, STEPS):
        task = Task.from_trainer(watched(make), name="drawing").definition()
        seen_by_then = len(seen)
        with in_process.gang_of_one(directory / f"until-{until}") as gang:
            attempt = Attempt(task, gang, directory)
            assert len(seen) == seen_by_then
            losses |= attempt.train(until)
            attempt.save()
            state = attempt.stepper.parallel.module.state_dict()
            weights = {name: value.clone() for name, value in state.items()}
    return list(seen), losses, weights


def drawing_metrics(prediction: Any) -> dict[str, float]:
    """As those that estimate an interval by drawing rows: it draws from every generator."""
    return {"drawn": float(numpy.random.rand() + random.random() + torch.rand(()))}


def dropout(**changes: Any) -> MakeTrainer:
    return trainer_models.with_dropout(**{**COMMON, **changes})


def evaluated(**changes: Any) -> MakeTrainer:
    return dropout(**{**trainer_models.evaluates(texts()), **changes})


class Shuffled(torch.utils.data.Sampler[int]):
    """A user's own: draws from a generator of its own, and from the process's."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._own = random.Random(3)
        self.generator = torch.Generator().manual_seed(4)

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[int]:
        order = torch.randperm(self._size).tolist()
        self._own.shuffle(order)
        again = torch.randperm(self._size, generator=self.generator).tolist()
        return iter([order[place] for place in again])


def own_sampler(**changes: Any) -> MakeTrainer:
    def make() -> Any:
        made = evaluated(**changes)()
        made._get_train_sampler = lambda *_: Shuffled(len(made.train_dataset))
        made._get_eval_sampler = lambda data: Shuffled(len(data))
        return made

    return make


def seeded_later() -> Any:
    """One whose maker seeds again once it is made: the order of samples follows from that."""
    made = evaluated()()
    torch.manual_seed(77)
    return made


def epochs(**changes: Any) -> dict[str, Any]:
    return {"max_steps": -1, "num_train_epochs": 3, **changes}


def own_loss(**changes: Any) -> MakeTrainer:
    """One whose evaluation gets the whole model in its hands."""
    return trainer_models.custom_loss(
        **{**COMMON, **trainer_models.evaluates(trainer_models.labelled()), **changes}
    )


KINDS: dict[str, MakeTrainer] = {
    "dropout": dropout(),
    "evaluated": evaluated(),
    "evaluated by epochs": evaluated(**epochs(eval_strategy="epoch")),
    "by length": evaluated(train_sampling_strategy="group_by_length"),
    "by length, not evaluated": dropout(train_sampling_strategy="group_by_length"),
    "in order": evaluated(train_sampling_strategy="sequential"),
    "data seed": evaluated(data_seed=5, seed=6),
    "no seedable sampler": evaluated(accelerator_config={"use_seedable_sampler": False}),
    "own samplers": own_sampler(),
    "seeded later": seeded_later,
    "metrics that draw": dropout(
        **trainer_models.evaluates(texts(), compute_metrics=drawing_metrics)
    ),
    "evaluation by the model": own_loss(),
    "noise": trainer_models.causal(
        **{**COMMON, **trainer_models.evaluates(texts()), "neftune_noise_alpha": 5.0}
    ),
}
#: Their workers are started for every epoch and evaluation: fewer of them.
WITH_WORKERS: dict[str, MakeTrainer] = {
    "workers": evaluated(train_sampling_strategy="group_by_length", dataloader_num_workers=1),
    "workers that stay": evaluated(
        train_sampling_strategy="group_by_length",
        dataloader_num_workers=1,
        dataloader_persistent_workers=True,
    ),
}
KINDS |= WITH_WORKERS


@pytest.fixture(scope="module")
def trained() -> dict[str, Any]:
    """What is seen in `train()`, by kind: a kind is trained once."""
    return {}


#: Kinds whose resumption is quick to test, in place of one attempt: one kind for each thing that
#: draws.
RESUMED = ("dropout", "by length", "own samplers", "metrics that draw", "workers that stay")


def test_an_evaluation_at_a_stop_comes_before_the_next_epochs_order(run: Runtime) -> None:
    sampling = {"train_sampling_strategy": "group_by_length", "gradient_accumulation_steps": 1}
    make = evaluated(**epochs(eval_strategy="epoch", **sampling))
    for name in ("whole", "stopped"):
        run.write_task(Task.from_trainer(make, name=name).definition())
    an_epoch = Task.from_trainer(make).definition().epoch_batches
    assert an_epoch is not None
    until = {"steps": 2 * an_epoch}
    assert run.run("whole", "ddp", **until).codes == [0]
    # At the epoch's end, where the evaluation is left to the next attempt; and in the next epoch.
    for stop in (an_epoch, an_epoch + 2, None):
        result = run.run("stopped", "ddp", stop_at_step=stop, **until)
        assert result.codes == [0], result.logs
    assert run.losses("stopped") == run.losses("whole")


@pytest.mark.slow(
    quick=[
        *(f"{kind}-at once" for kind in KINDS if kind not in RESUMED),
        *(f"{kind}-resumed" for kind in RESUMED),
    ]
)
@pytest.mark.parametrize("resumed_after", [(), (2, 4)], ids=["at once", "resumed"])
@pytest.mark.parametrize("kind", KINDS)
def test_all_generators_stand_where_the_trainers_do_at_every_forward(
    kind: str, resumed_after: tuple[int, ...], tmp_path: Path, trained: dict[str, Any]
) -> None:
    make = KINDS[kind]
    if kind not in trained:
        trained[kind] = of_train(make)
    expected, expected_losses, expected_weights = trained[kind]
    found, losses, weights = of_task(make, tmp_path, resumed_after=resumed_after)
    assert sum(is_training for is_training, _ in expected) == 8 + 8 + 8
    assert len(found) == len(expected)
    for number, (own, others) in enumerate(zip(found, expected, strict=True)):
        assert own == others, f"forward {number}"
    assert closeness.ulps(losses, expected_losses) < closeness.ACROSS
    for name, weight in expected_weights.items():
        assert torch.equal(weights[name], weight), name
