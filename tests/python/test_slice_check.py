"""Whether a batch's loss is made of those of its slices is found out, not taken for granted."""

from __future__ import annotations

import re
from functools import partial
from typing import Any

import closeness
import model_kinds
import pytest
import sliced_models as sliced
import torch
from harness import Runtime
from models import Mlp, definition, shuffled_loader
from saturn.data import nested
from saturn.data.slices import Data
from saturn.tasks.definition import TaskDefinition
from saturn.training.label_cases import labels_of
from saturn.training.slice_check import check
from saturn.training.slicing import (
    GIVEN,
    IGNORED,
    LABELS,
    SAMPLES,
    SUMS,
    WHOLE,
    LabelsDifferError,
    Slicing,
)
from saturn.training.steady import WAYS, SteadyModel, TooSlowError
from saturn.training.stepper import build_model
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset


def found(task: TaskDefinition, **options: Any) -> Slicing:
    data = Data(task.get_dataloader, seed=task.seed)
    device = torch.device("cpu")
    return check(task, lambda: build_model(task), data, device=device, **options)


@pytest.mark.parametrize("kind", sorted(model_kinds.BUILD))
@pytest.mark.parametrize("dropout", [0.0, 0.4])
def test_means_over_samples_are_seen_as_such_whatever_the_dropout(
    kind: str, dropout: float
) -> None:
    task = model_kinds.task_of(kind, dropout=dropout)
    slicing = found(task)
    assert (slicing.kind, slicing.unchecked) == (SAMPLES, None)
    # All of them predict classes, or the next token, of which all samples have as many.
    tokens = model_kinds.LENGTH - 1 if kind in ("gpt2", "llama", "mixtral") else 1
    assert (slicing.labels_each, slicing.first_label) == (tokens, int(tokens > 1))


@pytest.mark.parametrize(
    ("task", "kind"),
    [
        (definition(get_model=sliced.Noisy), SAMPLES),
        (definition(get_model=sliced.ZeroHead), SAMPLES),
        (definition(get_model=sliced.OnlyFloat32), SAMPLES),
        (definition(loss_function=sliced.mean_of_squares), SAMPLES),
        (sliced.padded_task(), LABELS),
        (sliced.padded_task(get_model=partial(model_kinds.gpt2, 0.3)), LABELS),
        (sliced.sum_task(), SUMS),
        (definition(loss_weight=lambda batch: len(batch[1])), GIVEN),
        (
            definition(loss_function=sliced.weighted_by_class, loss_weight=sliced.class_weight),
            GIVEN,
        ),
        (sliced.experts_task(balanced=False), SAMPLES),
        (sliced.experts_task(balanced=True), WHOLE),
        (sliced.clip_task(), WHOLE),
        (definition(loss_function=sliced.contrastive), WHOLE),
        (definition(loss_function=sliced.contrastive, get_model=sliced.ZeroHead), WHOLE),
        (definition(loss_function=sliced.weighted_by_class), WHOLE),
        (definition(loss_weight=lambda batch: float(batch[1].sum())), WHOLE),
        (sliced.padded_task(get_dataloader=partial(sliced.padded_rows, ignored=0)), WHOLE),
    ],
)
def test_what_explains_the_loss_is_found(task: TaskDefinition, kind: str) -> None:
    pytest.importorskip("transformers")
    slicing = found(task)
    assert (slicing.kind, slicing.unchecked) == (kind, None)


def test_the_first_samples_need_not_show_what_later_ones_have(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tasks = {
        "a rare class with a large weight": sliced.one_class_first(sliced.weighted_by_class),
        "the hardest pairs of a batch": sliced.one_class_first(sliced.of_hardest_pairs),
        "marks": sliced.one_class_first(sliced.balanced_marks, marks=True),
    }
    assert {what: found(task).kind for what, task in tasks.items()} == dict.fromkeys(tasks, WHOLE)
    reason = found(tasks["the hardest pairs of a batch"]).reason
    assert reason is not None and "can't be cut where labels are of other classes" in reason
    # What a mean over samples is stays one, whatever the labels.
    for loss in (nn.functional.cross_entropy, sliced.mean_of_squares):
        assert found(sliced.one_class_first(loss)).kind == SAMPLES
    # The batch has eight samples; four at a time, the largest four losses are all.
    of_largest = definition(loss_function=sliced.of_largest_losses)
    assert found(of_largest).kind == WHOLE
    # Where computing takes too long, four samples must do.
    monkeypatch.setattr("saturn.training.slice_check._MOST_S", 0.0)
    assert found(of_largest).kind == SAMPLES


@pytest.mark.parametrize(
    ("task", "name", "ignored", "first", "each"),
    [
        (sliced.one_class_first(sliced.ignoring(0)), ".1", 0, 0, 1),
        (sliced.one_class_first(sliced.ignoring(255)), ".1", 255, 0, 1),
        (sliced.padded_late_task(sliced.of_next_token), ".tokens", 0, 1, 5),
        (sliced.padded_late_task(sliced.of_masked), ".mask", 0, 0, 6),
    ],
)
def test_padding_that_comes_later_counts_as_the_loss_counts_it(
    task: TaskDefinition, name: str, ignored: int, first: int, each: int
) -> None:
    slicing = found(task)
    assert (slicing.kind, slicing.labels, slicing.ignored) == (SAMPLES, name, ignored)
    assert (slicing.first_label, slicing.labels_each) == (first, each)
    last = list(task.get_dataloader())[-1]
    padded = nested.replaced(last, name, torch.full_like(dict(nested.arrays(last))[name], ignored))
    with pytest.raises(LabelsDifferError):
        slicing.expect_labels(padded)
    by_labels = slicing.by_labels()
    assert by_labels.kind == LABELS and by_labels.counted_labels(padded) == 0
    counting = by_labels.counted_labels(by_labels.with_labels(padded))
    assert counting == each * (nested.num_samples(padded) or 0)


@pytest.mark.parametrize("loss", [sliced.of_next_token, sliced.of_masked])
def test_padding_that_comes_later_trains_alike_on_two_devices(loss: Any, run: Runtime) -> None:
    task = sliced.padded_late_task(loss, batch_count=9)
    run.write_task(task)
    result = run.run(task.name, "ddp", ranks=2, steps=9)
    assert "labels count in a slice of the batch" in result.of("failed")[0]["error"]
    assert run.run(task.name, "ddp", ranks=2, steps=9).codes == [0, 0]
    alone = sliced.padded_late_task(loss, batch_count=9, name="alone")
    run.write_task(alone)
    assert run.run("alone", "ddp", steps=9).codes == [0]
    assert closeness.ulps(run.losses(task.name), run.losses("alone")) < closeness.ACROSS


class Limited(Mlp):
    """Limits the gradients that pass its head, by a hook on a tensor, a part or a parameter."""

    def __init__(self, by: str) -> None:
        super().__init__()
        self.by = by
        if by == "part":
            self.head.register_full_backward_hook(lambda part, inputs, outputs: (tiny(inputs[0]),))
        if by == "parameter":
            self.head.weight.register_hook(tiny)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        if self.by == "tensor":
            inputs = self.layers[0](inputs)
            if inputs.requires_grad:
                inputs.register_hook(tiny)
        return super().forward(inputs)


def tiny(gradient: torch.Tensor) -> torch.Tensor:
    return gradient.clamp(-1e-3, 1e-3)


@pytest.mark.parametrize("by", ["tensor", "part", "parameter"])
def test_gradients_that_the_backward_limits_are_those_of_whole_batches(by: str) -> None:
    slicing = found(definition(get_model=partial(Limited, by)))
    assert slicing.kind == WHOLE
    assert slicing.reason is not None and "do not grow in proportion to the loss" in slicing.reason
    assert found(definition(get_model=partial(Limited, "nothing"))).kind == SAMPLES


def test_a_sum_over_samples_stays_one_with_other_classes_and_more_samples() -> None:
    def summed(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(outputs, labels, reduction="sum") / 8

    assert found(sliced.one_class_first(summed)).kind == SUMS


def test_the_reason_says_what_to_change() -> None:
    reason = found(definition(loss_function=sliced.contrastive)).reason
    assert reason is not None
    for part in (
        "4 samples together",
        "1, 1 and 2",
        "`tensor`",
        "say `loss_weight=`",
        "one device",
    ):
        assert part in reason
    wrong = found(definition(loss_weight=lambda batch: float(batch[1].sum()))).reason
    assert wrong is not None and "correct `loss_weight`" in wrong


def by_square(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return torch.tensor(float(len(labels) ** 2))


def test_the_reason_tells_the_loss_of_the_whole_and_the_mean_of_its_parts() -> None:
    reason = found(definition(loss_function=by_square)).reason
    assert reason is not None
    assert "the loss of 4 samples together is 16, the mean of 1, 1 and 2 by themselves" in reason
    assert "is 2.5 (weighted by samples)" in reason
    nothing = found(definition(loss_weight=lambda batch: 0.0)).reason
    assert nothing is not None and "is nan (weighted by `loss_weight`)" in nothing


def penalized(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(outputs, labels) + 0.1 * outputs.square().mean()


def test_a_penalty_beside_cross_entropy_is_a_mean_over_samples_while_all_labels_count() -> None:
    slicing = found(definition(loss_function=penalized))
    assert (slicing.kind, slicing.labels_each, slicing.unchecked) == (SAMPLES, 1, None)
    batch = next(iter(definition().get_dataloader()))
    slicing.expect_labels(batch)
    ignoring = (batch[0], torch.full_like(batch[1], -100))
    with pytest.raises(LabelsDifferError, match="batches can't be cut where some labels are -100"):
        slicing.expect_labels(ignoring)
    whole = slicing.by_labels()
    assert whole.kind == WHOLE and Slicing.from_json(whole.as_json()) == whole
    told = re.search(r"together is (\S+), the mean of .* is (\S+) \(", whole.reason or "")
    assert told is not None and float(told[1]) != float(told[2]), "it is of the labels ignored"


def nearly(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Far from zero, and a mean over samples but for a trifle, which is more than rounding."""
    return 100 + nn.functional.mse_loss(outputs[:, 0], labels.float()) + 8e-5 * len(labels)


def test_numbers_that_are_not_the_same_are_not_told_as_such() -> None:
    reason = found(definition(loss_function=nearly)).reason
    told = re.search(r"together is (\S+), the mean of .* is (\S+) \(", reason or "")
    assert told is not None and told[1] != told[2]


def of_whole_batches(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    if len(labels) != 4:
        raise ValueError(f"{len(labels)} samples")
    return nn.functional.cross_entropy(outputs, labels)


def test_a_loss_that_parts_do_not_have_keeps_batches_whole() -> None:
    slicing = found(definition(loss_function=of_whole_batches))
    assert slicing.kind == WHOLE
    assert slicing.reason is not None and "raises" in slicing.reason and "samples" in slicing.reason


class OfItsOwn(nn.Module):
    """Noise from a generator of its own, in training mode alone."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = Mlp()
        self.draws = 0

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        if self.training:
            self.draws += 1
            inputs = inputs * (1 + 0.1 * self.draws)
        return self.inner(inputs)


def test_what_is_not_the_same_twice_is_compared_in_evaluation_mode() -> None:
    slicing = found(definition(get_model=OfItsOwn))
    assert (slicing.kind, slicing.unchecked) == (SAMPLES, None)


def skipped_at_random(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    is_there = torch.bernoulli(torch.tensor(0.5))
    mean = nn.functional.cross_entropy(outputs, labels)
    return mean + is_there * sliced.contrastive(outputs, labels)


def test_what_is_skipped_at_random_is_looked_at() -> None:
    assert found(definition(loss_function=skipped_at_random)).kind == WHOLE


def test_what_can_not_be_compared_is_told() -> None:
    def never(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        raise RuntimeError("not here")

    slicing = found(definition(loss_function=never))
    assert (slicing.kind, slicing.reason) == (SAMPLES, None)
    assert slicing.unchecked is not None and "not here" in slicing.unchecked


def test_it_ends_where_it_takes_too_long() -> None:
    with pytest.raises(TooSlowError):
        found(definition(), limit_s=-1.0)


def test_batches_of_one_sample_are_cut_by_nobody() -> None:
    loader = partial(shuffled_loader, 1)
    task = definition(loss_function=sliced.contrastive, get_dataloader=loader)
    assert found(task) == Slicing(SAMPLES)


def test_batches_of_two_samples_are_looked_at_too() -> None:
    loader = partial(shuffled_loader, 2)
    assert found(definition(get_dataloader=loader)).kind == SAMPLES
    task = definition(loss_function=sliced.contrastive, get_dataloader=loader)
    assert found(task).kind == WHOLE


class NextToken(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(9, 8), nn.Linear(8, 9)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.embed(tokens).cumsum(1))


def of_next(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(outputs[:, :-1].flatten(0, 1), labels[:, 1:].flatten())


@pytest.mark.parametrize("batch_size", [2, 4])
def test_the_first_label_that_counts_is_found_in_batches_of_any_size(batch_size: int) -> None:
    tokens = torch.randint(9, (12, 6), generator=torch.Generator().manual_seed(3))
    loader = partial(DataLoader, TensorDataset(tokens, tokens), batch_size=batch_size)
    task = definition(get_model=NextToken, get_dataloader=loader, loss_function=of_next)
    slicing = found(task)
    assert (slicing.kind, slicing.first_label, slicing.labels_each) == (SAMPLES, 1, 5)


def test_labels_that_a_gpu_may_not_bear_are_always_announced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # A label out of bounds makes a GPU unusable, so such a loss is computed on the CPU.
    loss, seen = SteadyModel.loss, set()

    def watched(model: SteadyModel, batch: Any, **options: Any) -> float:
        has_ignored = bool((batch[1] == IGNORED).any())
        seen.add((has_ignored, bool(options.get("has_odd_labels"))))
        return loss(model, batch, **options)

    monkeypatch.setattr(SteadyModel, "loss", watched)
    found(definition())
    assert (True, True) in seen and (True, False) not in seen


def test_ignored_labels_are_tried_on_a_gpu_where_the_loss_can_leave_it_or_knows_them() -> None:
    def takes_them(**changes: Any) -> bool:
        gpu = torch.device("cuda")  # nothing is computed there
        return SteadyModel(definition(**changes), Mlp, gpu, WAYS[0], None).takes_odd_labels

    assert takes_them()
    assert not takes_them(loss_function=None)


def test_whole_numbers_alone_are_labels_that_may_be_ignored() -> None:
    inputs, classes = torch.zeros(3, 2), torch.tensor([0, 1, 2])
    assert [name for name, _ in labels_of((inputs, classes))] == [".1"]
    assert [name for name, _ in labels_of((inputs, classes.float()))] == []


class Rows(Dataset[Any]):
    """Counts what is fetched."""

    fetched = 0

    def __getitem__(self, index: int) -> Any:
        Rows.fetched += 1
        return torch.full((12,), float(index)), index % 5

    def __len__(self) -> int:
        return 512


def test_a_large_batch_is_not_fetched_whole() -> None:
    Rows.fetched = 0
    slicing = found(definition(get_dataloader=lambda: DataLoader(Rows(), batch_size=256)))
    # Four samples, then 64 where that is quick; each time together and in parts.
    assert slicing.kind == SAMPLES and Rows.fetched == 2 * (4 + 64)


def test_the_callers_random_numbers_are_left_alone() -> None:
    task = definition(get_model=partial(Mlp, dropout=0.3))
    model, data = build_model(task), Data(task.get_dataloader, seed=task.seed)
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    check(task, lambda: model, data, device=torch.device("cpu"))
    assert torch.equal(torch.rand(3), expected)


def test_findings_travel_as_plain_data() -> None:
    for slicing in (Slicing(LABELS, labels=".1", first_label=1), Slicing(WHOLE, reason="no")):
        assert Slicing.from_json(slicing.as_json()) == slicing
    for wrong in ({"kind": "halves"}, {"kind": WHOLE}, {"kind": SAMPLES, "reason": "x"}):
        with pytest.raises(ValueError, match="nothing of slices"):
            Slicing.from_json(wrong)


def test_samples_count_while_they_have_as_many_labels() -> None:
    slicing = Slicing(SAMPLES, labels=".labels", first_label=1, labels_each=3)
    slicing.expect_labels({"labels": torch.ones(2, 4, dtype=torch.int64)})
    for labels in (torch.ones(2, 5), torch.tensor([[1, 2, 3, -100], [1, 2, 3, 4]])):
        with pytest.raises(LabelsDifferError):
            slicing.expect_labels({"labels": labels.long()})
    counted = slicing.by_labels().counted_labels({"labels": torch.tensor([[-100, 1, 2, -100]])})
    assert counted == 2
