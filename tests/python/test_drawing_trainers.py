"""Trainers whose collator draws, or whose model counts its batches, under every technique."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import drawing_loaders as drawing
import in_process
import pytest
import torch
import trainer_models
from harness import Runtime, runtime
from saturn import Task
from saturn.data.slices import Data
from saturn.techniques.ddp import Ddp
from saturn.training.slice_check import check
from saturn.training.slicing import SUMS
from saturn.training.stepper import build_model
from stateful_models import Counting
from torch import nn
from warm_parent import Warm

pytest.importorskip("transformers")


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Trainers write where they are."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def ranks(tmp_path: Path, warm: Warm) -> Iterator[Runtime]:
    with runtime(tmp_path, warm) as opened:
        yield opened


def masked() -> Any:
    """Says what is masked, by a loss that adds up; batches of three, of which two are a step."""
    from transformers import DataCollatorForLanguageModeling, Trainer, TrainingArguments

    steps = {"per_device_train_batch_size": 3, "gradient_accumulation_steps": 2, "max_steps": 8}
    return Trainer(
        trainer_models.llama(),
        TrainingArguments(**trainer_models.arguments(**steps)),
        train_dataset=drawing.rows(),
        data_collator=DataCollatorForLanguageModeling(drawing.tokenizer(), mlm_probability=0.3),
    )


class Counted(nn.Module):
    """Its loss depends on how many batches there were."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed = nn.Embedding(trainer_models.VOCABULARY, 16)
        self.count = Counting()
        self.head = nn.Linear(16, 3)

    def forward(self, input_ids: Any, attention_mask: Any, labels: Any) -> dict[str, Any]:
        hidden = (self.embed(input_ids) * attention_mask[..., None]).sum(1)
        logits = self.head(self.count(hidden))
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


def counted() -> Any:
    """Batches of one sample, four of which are a step: dealt out as one where that may be."""
    changes = {"per_device_train_batch_size": 1, "gradient_accumulation_steps": 4}
    return trainer_models.trainer(Counted(), trainer_models.labelled(), **changes)


def through(ranks: Runtime, make: Any, moves: list[tuple[str, int]]) -> dict[int, float]:
    task = Task.from_trainer(make, name="trainer")
    ranks.write_task(task.definition())
    for number, (technique, size) in enumerate(moves, start=1):
        result = ranks.run("trainer", technique, ranks=size, steps=2 * number)
        assert result.codes == [0] * size, result.logs
    return ranks.losses("trainer")


def test_masks_do_not_depend_on_the_plan(ranks: Runtime, tmp_path: Path) -> None:
    task = Task.from_trainer(masked, name="trainer").definition()
    expected, _ = in_process.train(task, Ddp(), tmp_path, steps=8)
    moves = [("ddp", 2), ("fsdp", 2), ("pipeline", 2), ("ddp", 3)]
    assert through(ranks, masked, moves) == pytest.approx(expected, rel=1e-5)


@pytest.mark.slow
def test_a_counter_counts_the_trainers_batches(ranks: Runtime) -> None:
    expected, _ = trainer_models.run(counted)
    losses = through(ranks, counted, [("ddp", 2), ("fsdp", 2)])
    assert losses == pytest.approx({step: expected[step] for step in losses}, rel=1e-5)


def test_samples_of_which_nothing_is_masked_do_not_blur_what_a_loss_is() -> None:
    task = Task.from_trainer(masked, name="trainer").definition()
    data = Data(task.get_dataloader, seed=task.seed)
    first = data.parts_of_first(1)[0]
    assert bool((first["labels"] == -100).all())
    slicing = check(task, lambda: build_model(task), data, device=torch.device("cpu"))
    assert (slicing.kind, slicing.unchecked) == (SUMS, None)
