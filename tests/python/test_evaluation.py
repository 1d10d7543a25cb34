"""What an evaluation gives, in one process: its metrics, and what it says of mistakes."""

from __future__ import annotations

import itertools
from collections import namedtuple
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import closeness
import pytest
import torch
from faces import make_task
from in_process import gang_of_one, stepper_of
from models import NUM_CLASSES, WIDTH, Mlp, dataset, definition
from saturn import Evaluation
from saturn.data.slices import Position
from saturn.rank.exceptions import PeerLost, TaskError
from saturn.tasks.definition import TaskDefinition
from saturn.tasks.profile_key import profile_key
from saturn.techniques.ddp import Ddp
from saturn.techniques.fsdp import Fsdp
from saturn.techniques.interface import Setting, Technique
from saturn.techniques.offload import Offload
from saturn.techniques.pipeline import Pipeline
from saturn.training.evaluation import Evaluator, Outcome, look_at
from torch import nn
from torch.utils.data import DataLoader, Dataset


def eval_loader() -> DataLoader[Any]:
    return DataLoader(dataset(), batch_size=16)  # of 16, 16 and 12


def accuracy(outputs: torch.Tensor, labels: torch.Tensor) -> dict[str, Any]:
    right = outputs.argmax(-1) == labels
    return {"accuracy": right.float().mean(), "right": int(right.sum())}


class Noisy(Mlp):
    """Draws numbers in evaluation too."""

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return super().forward(nn.functional.dropout(inputs, 0.5, training=True))


def by_hand(model: nn.Module) -> dict[str, float]:
    """The metrics of `eval_loader` and `accuracy`, in plain torch."""
    model.eval()
    losses, right, rows = 0.0, 0, 0
    with torch.no_grad():
        for inputs, labels in eval_loader():
            outputs = model(inputs)
            losses += float(nn.functional.cross_entropy(outputs, labels)) * len(labels)
            right += int((outputs.argmax(-1) == labels).sum())
            rows += len(labels)
    return {"eval_loss": losses / rows, "accuracy": right / rows, "right": right}


def evaluated(
    directory: Path, task: TaskDefinition, technique: Technique | None = None
) -> tuple[Outcome, nn.Module, list[str]]:
    """(outcome, model, notes) of one evaluation of the model as it is built."""
    notes: list[str] = []
    with gang_of_one(directory) as gang:
        stepper = stepper_of(task, technique or Ddp(), gang)
        outcome = Evaluator(task, stepper.parallel, gang, note=notes.append).run()
        return outcome, stepper.parallel.module, notes


def metrics_of(directory: Path, evaluate: Any, **changes: Any) -> dict[str, float]:
    outcome, _, _ = evaluated(directory, definition(evaluate=evaluate, **changes))
    outcome.expect()
    return outcome.metrics


@pytest.mark.parametrize("technique", [Ddp, Fsdp, Offload])
@pytest.mark.parametrize("is_function", [False, True], ids=["loader", "function"])
def test_metrics_are_those_of_plain_torch(
    tmp_path: Path, technique: type[Technique], is_function: bool
) -> None:
    evaluate = by_hand if is_function else Evaluation(eval_loader, accuracy)
    outcome, module, _ = evaluated(tmp_path, definition(evaluate=evaluate), technique())
    assert not outcome.has_failed, outcome.failure
    torch.manual_seed(definition().seed)
    assert closeness.ulps(outcome.metrics, by_hand(Mlp())) < closeness.SUMMED
    assert all(part.training for part in module.modules())


@pytest.mark.parametrize("is_function", [False, True], ids=["loader", "function"])
def test_training_is_the_same_to_the_last_bit_with_and_without(
    tmp_path: Path, is_function: bool
) -> None:
    def run(directory: Path, evaluates: bool) -> list[float]:
        evaluate = by_hand if is_function else Evaluation(eval_loader, accuracy)
        task = definition(get_model=partial(Noisy, dropout=0.3), evaluate=evaluate)
        directory.mkdir()
        with gang_of_one(directory) as gang:
            stepper = stepper_of(task, Ddp(), gang)
            # A part that its user has set to eval stays so.
            stepper.parallel.module.norm.eval()
            evaluator = Evaluator(task, stepper.parallel, gang, note=print)
            losses, pieces = [], stepper.pieces(Position())
            for _ in range(8):
                step = stepper.step(stepper.stage(next(pieces)), stop=False, save=False)
                losses.append(step.result().loss)
                if evaluates:
                    assert not evaluator.run().has_failed
                assert not stepper.parallel.module.norm.training
                losses.append(float(torch.rand(())))  # what is drawn next
            pieces.close()
        return losses

    assert run(tmp_path / "with", True) == run(tmp_path / "without", False)


@dataclass
class ByEpoch(Dataset[Any]):
    """Samples that change with the epoch; as other data classes, it has no hash."""

    epoch: int = 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __len__(self) -> int:
        return len(dataset())

    def __getitem__(self, index: int) -> Any:
        inputs, label = dataset()[index]
        return inputs * (1 + self.epoch), label


def test_an_evaluation_leaves_the_epoch_of_a_dataset_that_it_shares(tmp_path: Path) -> None:
    shared = ByEpoch()
    loader = partial(DataLoader, shared, batch_size=8)
    task = definition(get_dataloader=loader, evaluate=Evaluation(loader))
    with gang_of_one(tmp_path) as gang:
        stepper = stepper_of(task, Ddp(), gang)
        evaluator = Evaluator(task, stepper.parallel, gang, note=print)
        pieces = stepper.pieces(Position(epoch=2))
        for _ in range(2):
            (piece,) = next(pieces)
            assert shared.epoch == 2 and piece.after.epoch == 2
            assert not evaluator.run().has_failed
            assert shared.epoch == 0
        pieces.close()


class Merging(nn.Linear):
    """A frozen layer with an adapter, which is merged in eval mode, as in loralib."""

    def __init__(self, num_inputs: int, num_outputs: int) -> None:
        super().__init__(num_inputs, num_outputs)
        self.weight.requires_grad_(False)
        self.adapter = nn.Parameter(torch.zeros_like(self.weight))
        self.is_merged = False

    def train(self, mode: bool = True) -> Merging:
        super().train(mode)
        if mode == self.is_merged:
            self.weight.data += (-1 if mode else 1) * self.adapter.data
            self.is_merged = not mode
        return self

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        outputs = super().forward(inputs)
        return outputs if self.is_merged else outputs + inputs @ self.adapter.T


def with_adapters() -> nn.Module:
    return nn.Sequential(Merging(WIDTH, WIDTH), nn.Tanh(), Merging(WIDTH, NUM_CLASSES))


@pytest.mark.parametrize("technique", [Ddp, Fsdp, Offload])
def test_layers_that_merge_adapters_in_eval_mode_go_on_training_them(
    tmp_path: Path, technique: type[Technique]
) -> None:
    task = definition(get_model=with_adapters, evaluate=Evaluation(eval_loader, accuracy))
    losses: dict[bool, dict[int, float]] = {False: {}, True: {}}
    for evaluates, found in losses.items():
        directory = tmp_path / str(evaluates)
        directory.mkdir()
        with gang_of_one(directory) as gang:
            stepper = stepper_of(task, technique(), gang)
            evaluator = Evaluator(task, stepper.parallel, gang, note=print)
            pieces = stepper.pieces(Position())
            for number in range(6):
                step = stepper.step(stepper.stage(next(pieces)), stop=False, save=False)
                found[number] = step.result().loss
                if evaluates:
                    outcome = evaluator.run()
                    assert not outcome.has_failed, outcome.failure
            pieces.close()
    # Adding an adapter and taking it away again rounds the weights, as in a loop by hand.
    assert closeness.ulps(losses[True], losses[False]) < closeness.ACROSS


def test_what_is_drawn_is_the_same_each_time(tmp_path: Path) -> None:
    evaluate = Evaluation(eval_loader, accuracy)
    first, second = (metrics_of(tmp_path, evaluate, get_model=Noisy) for _ in range(2))
    assert first == second


def labels_by_length(rows: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
    longest = max(rows)
    lengths = torch.tensor(rows)
    labels = torch.where(torch.arange(longest) < lengths[:, None], lengths[:, None], -100)
    return torch.zeros(len(rows), longest, 1), labels


def test_what_is_kept_is_joined_over_batches_of_different_lengths(tmp_path: Path) -> None:
    def metrics(outputs: torch.Tensor, labels: torch.Tensor, sizes: torch.Tensor) -> dict[str, Any]:
        assert outputs.shape == labels.shape == (5, 5)
        assert torch.equal((labels != -100).sum(1), torch.tensor([1, 2, 3, 4, 5]))
        return {"rows": len(labels), "batches": len(sizes), "counted": labels[labels > 0].sum()}

    evaluate = Evaluation(
        lambda: DataLoader([1, 2, 3, 4, 5], batch_size=2, collate_fn=labels_by_length),
        metrics,
        keep=lambda outputs, labels: (outputs[..., 0], labels, len(labels)),
        loss=False,
    )
    found = metrics_of(tmp_path, evaluate, get_model=partial(nn.Linear, 1, 1))
    assert found == {"rows": 5, "batches": 3, "counted": 55}


Scores = namedtuple("Scores", "outputs labels")


@pytest.mark.parametrize(
    ("keep", "rows_of"),
    [
        (lambda outputs, labels: labels, lambda kept: kept),
        (lambda outputs, labels: Scores(outputs, labels), lambda kept: kept.labels),
        (lambda outputs, labels: {"labels": labels}, lambda kept: kept["labels"]),
    ],
    ids=["tensor", "named tuple", "mapping"],
)
def test_one_value_that_is_kept_is_one_argument_of_the_metrics(
    tmp_path: Path, keep: Callable[..., Any], rows_of: Callable[[Any], torch.Tensor]
) -> None:
    def metrics(kept: Any) -> dict[str, Any]:
        return {"rows": len(rows_of(kept))}

    evaluate = Evaluation(eval_loader, metrics, keep=keep, loss=False)
    assert metrics_of(tmp_path, evaluate) == {"rows": 44}


def stream(count: int) -> Iterator[Any]:
    for number in range(count):
        yield torch.full((2, WIDTH), float(number)), torch.zeros(2).long()


@pytest.mark.parametrize(
    ("get_loader", "batches", "rows"),
    [
        pytest.param(lambda: stream(3), None, 6, id="read once"),
        pytest.param(lambda: stream(10**9), 2, 4, id="cut off"),
        pytest.param(eval_loader, 2, 32, id="of many"),
        pytest.param(eval_loader, 1, 16, id="only one"),
        pytest.param(eval_loader, 9, 44, id="of too few"),
    ],
)
def test_loaders_are_read_once_through_each_time(
    tmp_path: Path, get_loader: Callable[[], Any], batches: int | None, rows: int
) -> None:
    evaluate = Evaluation(
        get_loader, lambda outputs, labels: {"rows": len(labels)}, batches=batches
    )
    task = definition(evaluate=evaluate)
    with gang_of_one(tmp_path) as gang:
        evaluator = Evaluator(task, stepper_of(task, Ddp(), gang).parallel, gang, note=print)
        assert [evaluator.run().metrics["rows"] for _ in range(2)] == [rows, rows]
        assert evaluator.time() > 0


def raises(*_: Any) -> Any:
    raise ValueError("odd labels")


@pytest.mark.parametrize(
    ("evaluate", "best", "error"),
    [
        (raises, None, "evaluate: the function raised ValueError: odd labels"),
        (lambda model: 3, None, "returned a int; it must return a mapping of names to numbers"),
        (lambda model: {"a": "b"}, None, "returned a str as `a`; it must be a number"),
        (lambda model: {"a": torch.ones(2)}, None, "as `a`; it must be a number"),
        (lambda model: {3: 1.0}, None, "returned the name 3; it must be a string"),
        (lambda model: {"a": 1.0}, ("b", "min"), "best names the metric `b`; the evaluation has"),
        (Evaluation(eval_loader, raises), None, "evaluate: metrics raised ValueError: odd labels"),
        (
            Evaluation(eval_loader, accuracy, keep=raises),
            None,
            "evaluate: keep raised ValueError: odd labels",
        ),
        (Evaluation(raises), None, "evaluate: get_dataloader raised ValueError: odd labels"),
        (Evaluation(list), None, "evaluate: get_dataloader's loader gave no batch"),
        (
            Evaluation(lambda: DataLoader([])),
            None,
            "evaluate: get_dataloader returned a loader without batches",
        ),
        (
            Evaluation(lambda: itertools.repeat(next(stream(1)))),
            None,
            "evaluate: get_dataloader's loader has no length, and no end after 10000 batches; say",
        ),
        (
            Evaluation(lambda: [(torch.zeros(2, WIDTH), torch.full((2,), NUM_CLASSES))]),
            None,
            "evaluate: loss_function raised IndexError",
        ),
    ],
)
def test_mistakes_are_told_in_one_line(
    tmp_path: Path, evaluate: Any, best: Any, error: str
) -> None:
    task = definition(evaluate=evaluate, best=best, get_model=partial(nn.Linear, WIDTH, 5))
    with pytest.raises(TaskError) as told:
        evaluated(tmp_path, task)[0].expect()
    assert error in str(told.value)


def test_a_mistake_on_one_rank_is_one_of_the_whole_gang(tmp_path: Path) -> None:
    outcome, _, _ = evaluated(tmp_path, definition(evaluate=Evaluation(eval_loader, raises)))
    assert outcome.has_failed
    with pytest.raises(PeerLost, match="has failed on another rank"):
        Outcome({}, 1.0, None, outcome.has_failed).expect()


def of_all(outputs: torch.Tensor, labels: torch.Tensor) -> dict[str, Any]:
    if len(labels) < len(dataset()):
        raise ValueError("too few rows")
    return {"rows": len(labels)}


@pytest.mark.parametrize(
    ("metrics", "batch_size", "fails"),
    [(of_all, 8, False), (of_all, 11, False), (raises, 8, False), (raises, 11, True)],
)
def test_metrics_that_want_all_rows_may_fail_on_the_few_that_are_timed(
    tmp_path: Path, metrics: Callable[..., Any], batch_size: int, fails: bool
) -> None:
    # Four batches are run: of 6, and of 4.
    task = definition(evaluate=Evaluation(partial(DataLoader, dataset(), batch_size), metrics))
    notes: list[str] = []
    with gang_of_one(tmp_path) as gang:
        parallel = stepper_of(task, Ddp(), gang).parallel
        evaluator = Evaluator(task, parallel, gang, note=notes.append)
        if fails:
            with pytest.raises(TaskError, match="evaluate: metrics raised ValueError: odd labels"):
                evaluator.time()
        else:
            assert evaluator.time() > 0
    assert len(notes) == (batch_size == 8)
    assert all("failed on its first 4 batches, which may be too few" in note for note in notes)


def test_a_mistake_in_the_first_batch_is_found_before_anything_trains() -> None:
    class Explodes(Dataset[Any]):
        def __len__(self) -> int:
            return 8

        def __getitem__(self, index: int) -> Any:
            if index == 0:
                raise KeyError("no such row")
            return torch.zeros(WIDTH), index

    with pytest.raises(TaskError, match=r"^evaluate: get_dataloader's loader raised KeyError"):
        look_at(Evaluation(lambda: DataLoader(Explodes(), 4)), seed=0)


def test_as_many_batches_are_read_of_a_loader_without_length_as_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("saturn.data.whole_batches.MOST_UNTOLD", 3)
    rows = Evaluation(partial(stream, 3), lambda outputs, labels: {"rows": len(labels)})
    assert metrics_of(tmp_path, rows)["rows"] == 6
    with pytest.raises(TaskError, match="no end after 3 batches"):
        metrics_of(tmp_path, Evaluation(partial(stream, 4)))


def test_only_whole_models_are_given_to_functions(tmp_path: Path) -> None:
    setting = Setting(
        gpus=2, device_kind="cpu", hints={}, model_caller=definition(evaluate=len).model_caller
    )
    reason = Pipeline().reason_against(Mlp(), setting)
    assert reason is not None and "a saturn.Evaluation would" in reason
    assert Ddp().reason_against(Mlp(), setting) is None


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"evaluate": 3}, "evaluate is a int; it must be a function of the model, saturn.Eval"),
        ({"evaluate": (eval_loader,)}, "evaluate is a tuple of 1; it must be the pair"),
        ({"evaluate": (eval_loader, 3)}, "metrics of an Evaluation is a int"),
        ({"evaluate": by_hand, "evaluate_every": 0}, "evaluate_every is 0; it must be at least 1"),
        ({"evaluate": by_hand, "evaluate_every": 2.5}, "evaluate_every is a float"),
        ({"evaluate": by_hand, "best": ("a", "most")}, "best is ('a', 'most'); it must be"),
        ({"evaluate": by_hand, "best": "a"}, "best is 'a'; it must be a metric's name and"),
        (
            {"evaluate": Evaluation(eval_loader), "best": ("accuracy", "max")},
            "best names the metric `accuracy`, and an Evaluation without metrics",
        ),
        ({"evaluate_every": 5}, "evaluate_every is given without evaluate"),
        ({"best": ("a", "min")}, "best is given without evaluate"),
    ],
)
def test_bad_arguments_are_refused(arguments: dict[str, Any], error: str) -> None:
    with pytest.raises((TypeError, ValueError)) as told:
        make_task(**arguments)
    assert error in str(told.value)


def test_an_evaluation_without_anything_to_measure_is_refused() -> None:
    with pytest.raises(ValueError, match="measures nothing"):
        Evaluation(eval_loader, loss=False)
    with pytest.raises(ValueError, match="keep needs metrics"):
        Evaluation(eval_loader, keep=accuracy)


def test_what_is_evaluated_is_in_the_profile_key_and_how_often_is_not() -> None:
    none, loss, pair = (
        profile_key(make_task(evaluate=evaluate))
        for evaluate in (None, Evaluation(eval_loader), (eval_loader, accuracy))
    )
    assert len({none, loss, pair}) == 3
    often = make_task(evaluate=(eval_loader, accuracy), evaluate_every=3, best=("right", "max"))
    assert profile_key(often) == pair


def test_parts_that_a_function_calls_compute_in_the_tasks_precision(tmp_path: Path) -> None:
    def bits_of_a_layer(model: Any) -> dict[str, float]:
        return {"bits": torch.finfo(model.layers[0](torch.zeros(1, WIDTH)).dtype).bits}

    assert metrics_of(tmp_path, bits_of_a_layer) == {"bits": 32}
    assert metrics_of(tmp_path, bits_of_a_layer, precision="bf16") == {"bits": 16}
