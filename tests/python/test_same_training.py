"""The same training, whatever the plan: losses across stops, techniques and rank counts."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import closeness
import pytest
import reference
import torch
from harness import Runtime
from models import Calls, Mlp, definition, shuffled_loader
from saturn.tasks.definition import TaskDefinition
from torch import nn
from torch.optim.lr_scheduler import OneCycleLR
from torch.utils.data import DataLoader, TensorDataset

#: (technique, ranks, up to which step): every kind of move, at counts that divide 8 and don't.
CHAIN = [
    ("ddp", 1, 3),
    ("fsdp", 2, 6),
    ("ddp", 3, 8),
    ("fsdp", 1, 10),
    ("fsdp", 3, 13),
    ("ddp", 2, 16),
    ("fsdp", 3, 17),
    ("ddp", 1, 20),
]
SGD = partial(torch.optim.SGD)
MOMENTUM = partial(torch.optim.SGD, momentum=0.9)


def frozen_mlp() -> Mlp:
    model = Mlp()
    model.layers[0].requires_grad_(False)
    return model


class TiedNet(nn.Module):
    """Input and output layer share their weight, as language models' do."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(5, 12)
        self.layers = nn.ModuleList(nn.Linear(12, 12) for _ in range(2))
        self.head = nn.Linear(12, 5, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        hidden = self.embed((inputs[:, :4].abs() * 3).long().clamp(max=4)).mean(1)
        for layer in self.layers:
            hidden = hidden + layer(hidden).tanh()
        return self.head(hidden)


def chain(
    run: Runtime, task: TaskDefinition, moves: list[tuple[str, int, int]]
) -> dict[int, float]:
    run.write_task(task)
    for technique, ranks, steps in moves:
        result = run.run(task.name, technique, ranks=ranks, steps=steps)
        assert result.codes == [0] * ranks, result.logs
        assert result.one("finished")["step"] == steps
    return run.losses(task.name)


@pytest.mark.slow(quick=["adamw"])
@pytest.mark.parametrize(
    ("changes", "moves"),
    [
        pytest.param({}, CHAIN, id="adamw"),
        pytest.param({"optimizer_cls": SGD, "lr": 0.1}, CHAIN[:4], id="sgd-without-state"),
        pytest.param({"optimizer_cls": MOMENTUM}, CHAIN[:4], id="sgd-momentum"),
        pytest.param({"get_model": frozen_mlp}, CHAIN[:5], id="frozen-layer"),
        pytest.param({"get_model": TiedNet}, CHAIN[:5], id="tied-weights"),
    ],
)
def test_moves_between_techniques_and_rank_counts_reproduce_plain_torch(
    run: Runtime, changes: dict[str, Any], moves: list[tuple[str, int, int]]
) -> None:
    task = definition(**changes)
    expected, _ = reference.train(task, moves[-1][2])
    assert closeness.ulps(chain(run, task, moves), expected) < closeness.ACROSS


def test_one_uninterrupted_ddp_rank_is_plain_torch_bit_for_bit(run: Runtime) -> None:
    task = definition(get_model=partial(Mlp, dropout=0.2))
    expected, _ = reference.train(task, 12)
    assert closeness.is_same(chain(run, task, [("ddp", 1, 12)]), expected)


@pytest.mark.slow(quick=["ddp-1"])
@pytest.mark.parametrize(("technique", "ranks"), [("ddp", 1), ("ddp", 3), ("fsdp", 3)])
def test_stop_and_resume_under_the_same_strategy_is_bit_equal(
    run: Runtime, technique: str, ranks: int
) -> None:
    dropout = partial(Mlp, dropout=0.3)
    whole = chain(run, definition("whole", get_model=dropout), [(technique, ranks, 14)])
    parts = [(technique, ranks, step) for step in (5, 6, 14)]
    assert chain(run, definition("parts", get_model=dropout), parts) == whole


def test_a_stop_request_ends_all_ranks_at_one_step_with_a_checkpoint(run: Runtime) -> None:
    task = definition()
    run.write_task(task)
    gang = run.launch(task.name, "ddp", ranks=2, steps=100_000)
    gang.wait_for("progress", step=3)
    gang.stop()
    result = gang.wait()
    assert result.codes == [0, 0], result.logs
    stopped = result.one("stopped")["step"]
    assert run.checkpoints(task.name)[-1] == f"step-{stopped:08d}"
    assert result.of("checkpoint")[-1]["step"] == stopped
    assert len(run.losses(task.name)) == stopped
    after = run.run(task.name, "fsdp", ranks=2, steps=stopped + 3)
    assert after.one("started")["step"] == stopped
    expected, _ = reference.train(task, stopped + 3)
    assert closeness.ulps(run.losses(task.name), expected) < closeness.ACROSS


def test_a_planned_switch_stops_at_its_step_and_trains_the_same(run: Runtime) -> None:
    task = definition()
    run.write_task(task)
    first = run.run(task.name, "ddp", ranks=2, steps=12, stop_at_step=7)
    assert first.codes == [0, 0], first.logs
    assert first.one("stopped")["step"] == 7
    assert first.of("checkpoint")[-1]["step"] == 7
    # As after a crash between the checkpoint and its report: there is nothing to train.
    again = run.run(task.name, "ddp", ranks=2, steps=12, stop_at_step=7)
    assert (again.one("started")["step"], again.one("stopped")["step"]) == (7, 7)
    last = run.run(task.name, "fsdp", ranks=3, steps=12)
    assert (last.one("started")["step"], last.one("finished")["step"]) == (7, 12)
    expected, _ = reference.train(task, 12)
    assert closeness.ulps(run.losses(task.name), expected) < closeness.ACROSS


def forget_optimizer_state() -> None:
    from saturn.checkpoint.checkpoints import Checkpoints

    load = Checkpoints.load

    def forgetful(self: Any, directory: Any, content: Any, parallel: Any, optimizer: Any) -> Any:
        position = load(self, directory, content, parallel, optimizer)
        optimizer.state.clear()
        return position

    Checkpoints.load = forgetful  # type: ignore[method-assign]


def shift_data_position() -> None:
    from saturn.checkpoint.checkpoints import Checkpoints
    from saturn.data.slices import Position

    load = Checkpoints.load

    def shifted(self: Any, *args: Any) -> Any:
        position = load(self, *args)
        return Position(position.epoch, position.batch + 1, position.samples)

    Checkpoints.load = shifted  # type: ignore[method-assign]


def ignore_slice_sizes() -> None:
    from saturn.training.step_loss import StepItems
    from saturn.training.weighing import Shares, Weighing

    def equal(self: Any, slices: Any) -> Any:
        share = 1 / (len(slices) * self._data_size)
        number = len(slices)
        return lambda: Shares([share] * number, [1.0] * number, None, StepItems(None, number))

    Weighing._of_step = equal  # type: ignore[method-assign]


def forget_lr_schedule() -> None:
    from saturn.training.lr_schedule import LrSchedule

    LrSchedule.restore = lambda self, state: None  # type: ignore[method-assign]


def clip_by_the_own_shards() -> None:
    from saturn.techniques.data_parallel import DataParallelModel

    def own_norm(self: Any) -> torch.Tensor:
        gradients = [parameter.grad for parameter in self.module.parameters()]
        return torch.nn.utils.get_total_norm(
            [getattr(gradient, "_local_tensor", gradient) for gradient in gradients]
        )

    DataParallelModel.gradient_norm = own_norm  # type: ignore[method-assign]


def weigh_batches_of_a_step_alike() -> None:
    from saturn.training.step_loss import StepItems
    from saturn.training.weighing import Shares, Weighing

    def alike(self: Any, slices: Any) -> Any:
        number = len(slices)
        counts = [piece.num_samples / piece.num_global for piece in slices]
        shares = [count / number for count in counts]
        return lambda: Shares(shares, counts, None, StepItems(None, number))

    Weighing._of_step = alike  # type: ignore[method-assign]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sabotage", "changes"),
    [
        (forget_optimizer_state, {}),
        (shift_data_position, {}),
        (ignore_slice_sizes, {}),
        (forget_lr_schedule, {"lr_scheduler": partial(OneCycleLR, max_lr=0.02, total_steps=9)}),
        (clip_by_the_own_shards, {"max_grad_norm": 0.5}),
        (weigh_batches_of_a_step_alike, {"gradient_accumulation_steps": 4, "batch_count": 36}),
    ],
)
def test_known_bad_variants_are_seen(
    run: Runtime, sabotage: Callable[[], None], changes: dict[str, Any]
) -> None:
    # The comparison above is worth something only if it fails for these.
    moves = [("ddp", 1, 4), ("fsdp", 3, 9)]
    expected, _ = reference.train(definition(**changes), 9)
    bad = definition(hints={"by": Calls(sabotage)}, **changes)
    losses = chain(run, bad, moves)
    assert closeness.ulps(losses, expected) > 10 * closeness.ACROSS
    # And only because of what they do.
    losses = chain(run, definition("good", **changes), moves)
    assert closeness.ulps(losses, expected) < closeness.ACROSS


def test_a_finished_task_that_is_launched_again_finishes_at_once(run: Runtime) -> None:
    task = definition()
    before = chain(run, task, [("ddp", 1, 6)])
    result = run.run(task.name, "fsdp", ranks=2, steps=6)
    assert result.one("finished") == {"type": "finished", "step": 6, "loss": before[6]}
    assert run.losses(task.name) == before


def test_loss_weight_decides_what_a_slice_counts(run: Runtime) -> None:
    # Each sample's loss counts by its label; the mean over a slice is weighted so too.
    def weighted_mean(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        losses = nn.functional.cross_entropy(outputs, labels, reduction="none")
        return (losses * labels).sum() / labels.sum().clamp(min=1)

    task = definition(loss_function=weighted_mean, loss_weight=lambda batch: batch[1].sum())
    expected, _ = reference.train(task, 11)
    losses = chain(run, task, [*CHAIN[:4], ("ddp", 3, 11)])
    assert closeness.ulps(losses, expected) < closeness.ACROSS


def test_slices_without_weight_may_have_no_mean(run: Runtime) -> None:
    """Their losses are no numbers, and 0 times such a loss has gradients that are none either."""
    inputs, labels = shuffled_loader().dataset.tensors
    counts = torch.arange(len(labels)) % 4 == 0  # of each four samples the first alone

    def in_order() -> DataLoader[Any]:
        return DataLoader(TensorDataset(inputs, torch.stack([labels, counts], 1)), batch_size=4)

    def mean_of_counting(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        losses = nn.functional.cross_entropy(outputs, targets[:, 0], reduction="none")
        return (losses * targets[:, 1]).sum() / targets[:, 1].sum()

    task = definition(
        get_dataloader=in_order,
        loss_function=mean_of_counting,
        loss_weight=lambda batch: batch[1][:, 1].sum(),
    )
    expected, _ = reference.train(task, 6)
    losses = chain(run, task, [("ddp", 2, 3), ("fsdp", 2, 6)])
    assert closeness.ulps(losses, expected) < closeness.ACROSS


def test_more_ranks_than_samples_leave_some_without_weight(run: Runtime) -> None:
    def pairs() -> DataLoader[Any]:
        return DataLoader(shuffled_loader().dataset, batch_size=2, shuffle=True)

    task = definition(get_dataloader=pairs)
    expected, _ = reference.train(task, 6)
    losses = chain(run, task, [("ddp", 3, 3), ("fsdp", 3, 6)])
    assert closeness.ulps(losses, expected) < closeness.ACROSS


def tiny_gpt2() -> nn.Module:
    from transformers import GPT2Config, GPT2LMHeadModel

    size = {"vocab_size": 32, "n_positions": 16, "n_embd": 16, "n_layer": 2, "n_head": 2}
    off = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    ends = {"bos_token_id": 0, "eos_token_id": 0}
    return GPT2LMHeadModel(GPT2Config(**size, **off, **ends))


def rows_of_tokens() -> Any:
    rows = torch.randint(0, 32, (20, 16), generator=torch.Generator().manual_seed(0))

    def collate(samples: list[torch.Tensor]) -> dict[str, torch.Tensor]:
        tokens = torch.stack(samples)
        return {"input_ids": tokens, "labels": tokens}

    return DataLoader(rows, batch_size=7, shuffle=True, collate_fn=collate)


def test_a_hugging_face_model_with_its_own_loss_and_tied_embeddings(run: Runtime) -> None:
    pytest.importorskip("transformers")
    task = definition(get_model=tiny_gpt2, get_dataloader=rows_of_tokens, loss_function=None)
    expected, _ = reference.train(task, 7, loss_of=lambda model, batch: model(**batch).loss)
    moves = [("ddp", 2, 3), ("fsdp", 3, 7)]
    assert closeness.ulps(chain(run, task, moves), expected) < closeness.ACROSS
