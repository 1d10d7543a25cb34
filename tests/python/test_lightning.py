"""A LightningModule as a task trains as Lightning's own Trainer trains it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import closeness
import in_process
import lightning.pytorch as pl
import lightning_models
import pytest
import torch
from harness import Runtime, runtime
from lightning_models import AN_EPOCH, KINDS, Classifier, Data
from saturn import HParams, Task
from saturn.errors import InvalidInput
from saturn.rank.exceptions import TaskError
from saturn.tasks.profile_key import profile_key
from saturn.techniques.ddp import Ddp
from saturn.trainers import lightning_hooks
from saturn.training.accumulation import Accumulation
from saturn.training.evaluation import Evaluator
from torch import nn
from torchmetrics.aggregation import CatMetric
from torchmetrics.classification import MulticlassAccuracy
from warm_parent import Warm

STEPS = 2 * AN_EPOCH + 2


def task_of(make: Any = Classifier, steps: int = STEPS, **options: Any) -> Task:
    options = {"name": "lightning", "seed": 5, **options}
    return Task.from_lightning(make, Data, HParams(lr=0.05, steps=steps), **options)


@pytest.mark.parametrize("kind", KINDS)
def test_on_one_slot_it_is_the_training_of_lightning(kind: str, tmp_path: Path) -> None:
    expected, trained = lightning_models.fit(KINDS[kind], STEPS, seed=5)
    assert len(expected) == STEPS
    definition = task_of(KINDS[kind]).definition()
    losses, weights = in_process.train(definition, Ddp(), tmp_path, steps=STEPS)
    assert losses == expected
    for name, weight in trained.state_dict().items():
        assert torch.equal(weights[name], weight), name


def test_clipping_is_that_of_the_trainer(tmp_path: Path) -> None:
    expected, trained = lightning_models.fit(Classifier, STEPS, seed=5, gradient_clip_val=0.5)
    hparams = HParams(lr=0.05, steps=STEPS, max_grad_norm=0.5)
    definition = Task.from_lightning(Classifier, Data, hparams, seed=5).definition()
    losses, weights = in_process.train(definition, Ddp(), tmp_path, steps=STEPS)
    assert closeness.ulps(losses, expected) < closeness.ACROSS
    assert closeness.ulps(weights, trained.state_dict()) < closeness.ACROSS


@pytest.fixture
def ranks(tmp_path: Path, warm_with_models: Warm) -> Iterator[Runtime]:
    with runtime(tmp_path, warm_with_models) as opened:
        yield opened


def test_through_moves_it_is_the_training_of_lightning(ranks: Runtime) -> None:
    expected, trained = lightning_models.fit(KINDS["by epochs"], 8, seed=5)
    definition = task_of(KINDS["by epochs"], 8, evaluate_every=3).definition()
    ranks.write_task(definition)
    moves = (("ddp", 2, 2), ("fsdp", 2, 5), ("offload", 1, 8))
    for technique, ranks_of, steps in moves:
        result = ranks.run("lightning", technique, ranks=ranks_of, steps=steps)
        assert set(result.codes) == {0}, result.logs
    assert closeness.ulps(ranks.losses("lightning"), expected) < closeness.ACROSS
    # Each of the three launches evaluates at its last step too.
    assert [step for step, _ in ranks.evaluations("lightning")] == [2, 3, 5, 6, 8]
    _, found = ranks.evaluations("lightning")[-1]
    assert closeness.ulps(found, lightning_models.validate(trained)) < closeness.ACROSS


class Measured(Classifier):
    def __init__(self) -> None:
        super().__init__()
        self.accuracy = MulticlassAccuracy(5, average="micro")

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        super().validation_step(batch, batch_idx)
        self.accuracy(self(batch[0]), batch[1])
        self.log("accuracy", self.accuracy)


def test_its_evaluation_is_that_of_trainer_validate(tmp_path: Path) -> None:
    task = task_of(Measured).definition()
    with in_process.gang_of_one(tmp_path) as gang:
        stepper = in_process.stepper_of(task, Ddp(), gang)
        outcome = Evaluator(task, stepper.parallel, gang, note=print).run()
    outcome.expect()
    torch.manual_seed(5)
    expected = lightning_models.validate(Measured())
    assert expected.keys() == {"val_loss", "right", "accuracy"}
    assert closeness.ulps(outcome.metrics, expected) < closeness.SUMMED
    assert (
        Task.from_lightning(Classifier, train_loader, HParams(0.05, 1)).evaluation.evaluate is None
    )
    assert task_of(evaluate=None).evaluation.evaluate is None


def test_metrics_of_training_steps_do_not_grow_until_the_training_ends(tmp_path: Path) -> None:
    kept: list[int] = []

    class Logging(Classifier):
        def __init__(self) -> None:
            super().__init__()
            self.seen, self.more = CatMetric(), CatMetric()

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            for metric in (self.seen, self.more):
                metric.update(batch[1])
                kept.append(len(metric.value))
            self.log(name="seen", value=self.seen)
            self.log_dict(dictionary={"more": self.more})
            return super().training_step(batch, batch_idx)

    in_process.train(task_of(Logging, 3).definition(), Ddp(), tmp_path, steps=3)
    assert set(kept) == {1}


class Dtypes(Classifier):
    """Notes in which types the parts of a validation compute."""

    seen: ClassVar[set[torch.dtype]] = set()

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.seen.add(self.skip(batch[0]).dtype)
        super().validation_step(batch, batch_idx)


@pytest.mark.parametrize(("precision", "dtype"), [("bf16", torch.bfloat16), ("float32", None)])
def test_it_is_validated_in_the_precision_in_which_it_trains(
    precision: str, dtype: torch.dtype | None
) -> None:
    hparams = HParams(lr=0.05, epochs=1, precision=precision)
    task = Task.from_lightning(Dtypes, Data, hparams).definition()
    model, evaluate = task.get_model(), task.evaluate
    assert callable(evaluate)
    Dtypes.seen.clear()
    with torch.no_grad():
        evaluate(model)
    assert Dtypes.seen == {dtype or torch.float32}


def test_only_what_decides_about_speed_is_in_the_key_of_its_trials() -> None:
    one, other = HParams(lr=0.05, steps=3), HParams(lr=0.1, steps=4)
    keys = [profile_key(Task.from_lightning(Classifier, Data, each)) for each in (one, other)]
    assert keys[0] == keys[1]
    wide = Task.from_lightning(Classifier, Data, HParams(lr=0.05, steps=3, dropout=0.5))
    assert profile_key(wide) != keys[0]


class ByHand(Classifier):
    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False


class Hooked(Classifier):
    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Not called."""

    def optimizer_step(self, *args: Any, **kwargs: Any) -> None:
        """Not called."""

    def on_test_start(self) -> None:
        """Without effect on a training."""


class Two(Classifier):
    def configure_optimizers(self) -> Any:
        return [torch.optim.SGD(part.parameters(), 0.05) for part in (self.net, self.skip)]


class Half(Classifier):
    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.net.parameters(), 0.05)


class Plateau(Classifier):
    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.SGD(self.parameters(), 0.05)
        scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)
        return {"optimizer": optimizer, "lr_scheduler": scheduler, "monitor": "val_loss"}


class Stubborn(Classifier):
    def __init__(self) -> None:
        super().__init__(lr=0.3)


class Asking(Classifier):
    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), 0.05 / self.trainer.world_size)


class OwnLoader(Classifier):
    def train_dataloader(self) -> Any:
        return []


class Moving(Data):
    def on_after_batch_transfer(self, batch: Any, dataloader_idx: int) -> Any:
        return batch


@pytest.mark.parametrize(
    ("make", "data", "words"),
    [
        (ByHand, Data, "automatic_optimization = False"),
        (Hooked, Data, "Hooked overrides `on_train_batch_end`: Saturn does not call it; Hooked ov"),
        (Two, Data, "returned 2 optimizers; Saturn steps one optimizer a task"),
        (Half, Data, "does not have the parameter `skip.weight`"),
        (Plateau, Data, "ReduceLROnPlateau, which follows a measured value"),
        (Stubborn, Data, r"says lr=0.3 and HParams says lr=0.05; let make_module have"),
        (Asking, Data, r"reads `trainer.world_size` \(or a property that does\)"),
        (OwnLoader, Data, "`train_dataloader`: let make_data return the loader"),
        (Classifier, Moving, "Moving overrides `on_after_batch_transfer`"),
        (Classifier, lambda: {"a": [], "b": []}, "is a dict of loaders; a task has one"),
    ],
)
def test_what_cannot_be_kept_is_refused_with_the_reason(make: Any, data: Any, words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        Task.from_lightning(make, data, HParams(lr=0.05, steps=2))


def test_a_scheduler_by_epochs_needs_steps_that_end_with_them() -> None:
    hparams = HParams(lr=0.05, steps=3, gradient_accumulation_steps=4)
    with pytest.raises(InvalidInput, match=r"an epoch of 6 batches is no whole number of steps"):
        Task.from_lightning(KINDS["by epochs"], Data, hparams)
    hparams = HParams(lr=0.05, steps=3, gradient_accumulation_steps=4, epoch_batches=6)
    task = Task.from_lightning(KINDS["by epochs"], Data, hparams)
    groups = [{"params": [nn.Parameter(torch.zeros(1))]} for _ in range(2)]
    optimizer = torch.optim.SGD(groups, lr=0.05)
    assert task.hparams.lr_scheduler is not None
    scheduler = task.hparams.lr_scheduler(optimizer)
    rates = []
    for _ in range(5):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    assert rates == [0.05, 0.05, 0.025, 0.025, 0.0125]  # two steps an epoch


@pytest.mark.parametrize(
    "length",
    [
        {"batch_count": 12},
        {"epochs": 2},
        {"steps": 4},
        {"batch_count": 12, "epoch_batches": 6},
        {"epochs": 2, "epoch_batches": 6},
        {"steps": 4, "epoch_batches": 6},
    ],
)
def test_the_module_is_told_as_many_steps_as_are_trained(length: dict[str, int]) -> None:
    told: list[int] = []

    class Told(Classifier):
        def configure_optimizers(self) -> Any:
            told.append(int(self.trainer.estimated_stepping_batches))
            return super().configure_optimizers()

    hparams = HParams(lr=0.05, gradient_accumulation_steps=4, **length)
    task = Task.from_lightning(Told, Data, hparams)
    counted = Accumulation(task.definition(), AN_EPOCH)
    steps, batches = 0, 0
    assert counted.total is not None
    while batches < counted.total:
        batches, steps = batches + counted.next_step(batches), steps + 1
    assert told and set(told) == {steps}


def test_hooks_may_be_ignored_by_name() -> None:
    hparams = HParams(lr=0.05, steps=2)
    hooks = ["on_train_batch_end", "optimizer_step"]
    Task.from_lightning(Hooked, Data, hparams, ignored_hooks=hooks)
    with pytest.raises(InvalidInput, match="names `on_train_end`, which neither"):
        Task.from_lightning(Hooked, Data, hparams, ignored_hooks=[*hooks, "on_train_end"])


class Counting(Classifier):
    def training_step(self, batch: Any, batch_idx: int) -> Any:
        return super().training_step(batch, batch_idx)["loss"] * (batch_idx + 1)


class Annealing(Classifier):
    def training_step(self, batch: Any, batch_idx: int) -> Any:
        return super().training_step(batch, batch_idx)["loss"] * 0.5**self.current_epoch


class Skipping(Classifier):
    def training_step(self, batch: Any) -> Any:
        return None


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (Counting, "reads `batch_idx`, which Saturn does not count"),
        (Annealing, "reads `trainer.current_epoch`"),
        (Skipping, "training_step returned no loss"),
    ],
)
def test_what_a_step_asks_of_lightning_is_an_error(make: Any, words: str, tmp_path: Path) -> None:
    with pytest.raises(TaskError, match=words):
        in_process.train(task_of(make).definition(), Ddp(), tmp_path, steps=1)


def test_the_hooks_are_those_of_the_installed_lightning() -> None:
    """A hook that a new version brings is refused until somebody has thought of it."""
    own = {
        name
        for cls in pl.LightningModule.__mro__
        if cls.__module__.startswith("lightning.")
        for name in vars(cls)
    }
    for name in ("on_train_batch_end", "optimizer_step", "configure_gradient_clipping", "to"):
        assert name in own
    module = type("Every", (Classifier,), {name: lambda *_: None for name in own if name[0] != "_"})
    refused = set(lightning_hooks._overridden(module.__new__(module), lightning_hooks.MODULE))
    assert {"backward", "on_save_checkpoint", "on_after_backward", "log"} <= refused
    assert not refused & {"test_step", "on_predict_start", "to_onnx"}


def train_loader() -> Any:
    data = Data()
    data.setup("fit")
    return data.train_dataloader()


def test_the_other_package_and_a_loader_do_too(tmp_path: Path) -> None:
    import pytorch_lightning

    assert pytorch_lightning.LightningModule is not pl.LightningModule

    class Plain(pytorch_lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(12, 5)

        def training_step(self, batch: Any) -> torch.Tensor:
            return nn.functional.cross_entropy(self.layer(batch[0]), batch[1])

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), 0.05)

    task = Task.from_lightning(Plain, train_loader, HParams(lr=0.05, epochs=1), seed=5)
    losses, weights = in_process.train(task.definition(), Ddp(), tmp_path, steps=AN_EPOCH)
    assert weights.keys() == {"layer.weight", "layer.bias"}
    assert losses[AN_EPOCH] < losses[1]
