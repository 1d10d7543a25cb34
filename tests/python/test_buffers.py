"""Buffers that a forward changes: the same as in plain torch, or refused by name."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import plain_loops
import pytest
import stateful_models as stateful
import torch
import torch.distributed.checkpoint as dcp
from harness import Runtime
from in_process import gang_of_one, stepper_of
from models import NUM_CLASSES, WIDTH, Mlp, definition
from saturn.data.slices import Data, Position
from saturn.rank.exceptions import NotApplicable
from saturn.tasks.definition import TaskDefinition
from saturn.techniques.ddp import Ddp
from saturn.techniques.fsdp import Fsdp
from saturn.techniques.offload.technique import Offload
from saturn.training.model_changes import ModelChanges
from saturn.training.slice_check import check
from saturn.training.slicing import SAMPLES, WHOLE, Slicing
from saturn.training.stepper import build_model
from torch import nn

TOLERANCE = 1e-5
STEPS = 40


def centred() -> nn.Module:
    return stateful.Layered(stateful.Centred())


def replaced() -> nn.Module:
    return stateful.Layered(stateful.Replaced())


def slowly() -> nn.Module:
    return stateful.Layered(stateful.Slowly())


def late() -> nn.Module:
    return stateful.Layered(stateful.Late())


def quantised() -> nn.Module:
    torch.manual_seed(5)
    return stateful.Layered(stateful.Quantised())


def moco() -> nn.Module:
    return stateful.Moco()


def counting() -> nn.Module:
    return stateful.Layered(stateful.Counting())


def longest() -> nn.Module:
    return stateful.Layered(stateful.Longest())


def spectral() -> nn.Module:
    model = stateful.Layered()
    nn.utils.parametrizations.spectral_norm(model.head)
    return model


def instance_normed() -> nn.Module:
    norm = nn.InstanceNorm1d(3, track_running_stats=True)
    return stateful.Layered(nn.Sequential(nn.Unflatten(1, (3, 4)), norm, nn.Flatten()))


def task_of(get_model: Any, **changes: Any) -> TaskDefinition:
    momentum = partial(torch.optim.SGD, momentum=0.9)
    fields: dict[str, Any] = {"optimizer_cls": momentum, "lr": 0.1, "batch_count": 400}
    fields["get_dataloader"] = stateful.in_order
    if get_model is moco:
        fields["loss_function"] = stateful.own_first
    return definition("task", get_model=get_model, **{**fields, **changes})


def by_hand(
    task: TaskDefinition, steps: int, accumulate: int = 1
) -> tuple[dict[int, float], nn.Module]:
    """What a user's own loop trains."""
    model, loss_function = task.get_model(), task.loss_function
    assert loss_function is not None

    def loss_of(model: nn.Module, batch: Any) -> torch.Tensor:
        return loss_function(model(batch[0]), batch[1])

    batches = plain_loops.epochs_of(task.get_dataloader())
    return plain_loops.train(model, batches, steps, loss_of=loss_of, accumulate=accumulate), model


def agree(found: dict[int, float], expected: dict[int, float]) -> None:
    assert found.keys() == expected.keys()
    for step, loss in expected.items():
        assert found[step] == pytest.approx(loss, abs=TOLERANCE), step


def found(task: TaskDefinition) -> Slicing:
    data = Data(task.get_dataloader, seed=task.seed)
    return check(task, lambda: build_model(task), data, device=torch.device("cpu"))


@pytest.mark.parametrize(
    ("get_model", "name"),
    [
        (centred, "the buffer `part.running`"),
        (replaced, "the buffer `part.running`"),
        (slowly, "the buffer `part.running`"),
        (quantised, "the buffer `part.codebook`"),
        (moco, "the buffer `place`"),
        (instance_normed, "the buffer `part.1.running_mean`"),
        (stateful.RenormedRows, "the parameter `embed.weight`"),
    ],
)
def test_what_follows_the_batch_keeps_it_whole_and_is_named(get_model: Any, name: str) -> None:
    slicing = found(task_of(get_model))
    assert slicing.kind == WHOLE and slicing.reason is not None
    assert name in slicing.reason and "`tensor`" in slicing.reason
    assert "contrastive" not in slicing.reason
    assert Slicing.from_json(slicing.as_json()) == slicing


@pytest.mark.parametrize(
    ("get_model", "changes"),
    [(stateful.Layered, False), (longest, True), (counting, True), (spectral, True)],
)
def test_what_is_the_same_on_every_slice_keeps_nothing_whole(get_model: Any, changes: bool) -> None:
    slicing = found(task_of(get_model))
    assert (slicing.kind, slicing.reason, slicing.unchecked) == (SAMPLES, None, None)
    assert slicing.changes_buffers == changes


def test_batches_of_one_sample_are_kept_apart_where_a_buffer_changes() -> None:
    loader = partial(stateful.in_order, 1)
    for get_model, changes in ((centred, True), (stateful.Layered, False)):
        slicing = found(task_of(get_model, get_dataloader=loader))
        assert slicing == Slicing(SAMPLES, changes_buffers=changes)


def test_a_small_change_of_a_large_buffer_is_compared_by_its_own_size() -> None:
    module = nn.Module()
    module.register_buffer("total", torch.full((3,), 1000.0, dtype=torch.float64))
    changes = ModelChanges(module)
    left = []
    for amount in (0.001, 0.001, 0.002):
        changes.restore()
        module.get_buffer("total").add_(amount)
        left.append(changes.now())
    assert changes.apart(left[0], left[1]) == []
    assert changes.apart(left[0], left[2]) == ["total"]


@pytest.mark.parametrize("get_model", [centred, quantised, moco])
def test_one_device_trains_as_the_users_loop_and_several_refuse(
    run: Runtime, get_model: Any
) -> None:
    task = task_of(get_model)
    run.write_task(task)
    for technique in ("ddp", "fsdp", "pipeline"):
        failed = run.run("task", technique, ranks=2, steps=STEPS).of("failed")
        assert failed and failed[0]["kind"] == "not_applicable", failed
        assert "a forward changes the buffer" in failed[0]["error"]
    assert run.run("task", "ddp", ranks=1, steps=STEPS).codes == [0]
    expected, model = by_hand(task, STEPS)
    agree(run.losses("task"), expected)
    same_buffers(run, model)


def same_buffers(run: Runtime, model: nn.Module) -> None:
    expected = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    newest = run.task_dir("task") / "checkpoints" / run.checkpoints("task")[-1]
    state = {"model": model.state_dict()}
    with pytest.warns(UserWarning, match=r"torch\.distributed is disabled"):
        dcp.load(state, checkpoint_id=newest, no_dist=True)
    for name, tensor in expected.items():
        torch.testing.assert_close(state["model"][name], tensor, rtol=1e-4, atol=1e-5)


def test_whole_batches_under_tensor_train_as_the_users_loop(run: Runtime) -> None:
    plan = {"layers.*.0": "colwise_gather_output"}
    task = task_of(quantised, hints={"tensor_plan": plan})
    run.write_task(task)
    result = run.run("task", "tensor", ranks=2, steps=STEPS)
    assert result.codes == [0, 0], result.logs
    expected, model = by_hand(task, STEPS)
    agree(run.losses("task"), expected)
    same_buffers(run, model)


def test_accumulated_batches_are_seen_one_by_one(run: Runtime) -> None:
    task = task_of(centred, gradient_accumulation_steps=2)
    run.write_task(task)
    assert run.run("task", "ddp", ranks=1, steps=12).codes == [0]
    expected, _ = by_hand(task, 12, accumulate=2)
    agree(run.losses("task"), expected)


@pytest.mark.slow(quick=["2"])
@pytest.mark.parametrize("accumulate", [1, 2])
def test_a_counter_counts_batches_on_any_number_of_devices(run: Runtime, accumulate: int) -> None:
    task = task_of(counting, gradient_accumulation_steps=accumulate)
    run.write_task(task)
    for technique, ranks, steps in (("ddp", 2, 4), ("fsdp", 2, 8), ("ddp", 3, 10)):
        assert run.run("task", technique, ranks=ranks, steps=steps).codes == [0] * ranks
    expected, model = by_hand(task, 10, accumulate=accumulate)
    agree(run.losses("task"), expected)
    same_buffers(run, model)
    assert model.part.batches == 10 * accumulate  # type: ignore[union-attr]


def test_a_buffer_that_begins_to_follow_the_batch_is_found_before_anything_is_saved(
    run: Runtime,
) -> None:
    task = task_of(late)
    assert found(task).kind == SAMPLES
    run.write_task(task)
    failed = run.run("task", "ddp", ranks=2, steps=12).of("failed")
    named = [each for each in failed if "`part.running` has come to differ" in each["error"]]
    assert named and named[0]["kind"] == "not_applicable"
    assert not (run.task_dir("task") / "checkpoints").exists()
    again = run.run("task", "fsdp", ranks=2, steps=12).of("failed")
    assert again and again[0]["kind"] == "not_applicable"
    assert run.run("task", "ddp", ranks=1, steps=12).codes == [0]
    agree(run.losses("task"), by_hand(task, 12)[0])


def in_layers() -> nn.Module:
    return stateful.Layered(stateful.Counting(), in_layers=True)


class Clamping(nn.Linear):
    """Keeps its own weights small."""

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        self.weight.data.clamp_(-0.1, 0.1)
        return super().forward(inputs)


def clamping_layers() -> nn.Module:
    model = stateful.Layered()
    model.layers = nn.ModuleList(Clamping(WIDTH, WIDTH) for _ in range(4))
    return model


def clamping_head() -> nn.Module:
    model = stateful.Layered()
    model.head = Clamping(WIDTH, NUM_CLASSES)
    return model


class Averaged(nn.Module):
    """Follows its own weights slowly with others, which at first are equal."""

    def __init__(self) -> None:
        super().__init__()
        self.fast, self.slow = stateful.Layered(), stateful.Layered().requires_grad_(False)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            for slow, fast in zip(self.slow.parameters(), self.fast.parameters(), strict=True):
                slow.data.lerp_(fast.data, 0.01)
        return self.fast(inputs) + self.slow(inputs)


@pytest.mark.parametrize("get_model", [clamping_layers, clamping_head, Averaged])
@pytest.mark.parametrize("technique", [Fsdp(), Offload()])
def test_no_forward_changes_copies_of_parameters(
    tmp_path: Path, technique: Any, get_model: Any
) -> None:
    """Else the change would be lost without a word."""
    with gang_of_one(tmp_path) as gang:
        stepper = stepper_of(task_of(get_model), technique, gang, {})
        pieces = stepper.pieces(Position())

        def step() -> None:
            stepper.step(stepper.stage(next(pieces)), stop=False, save=False).result()

        if get_model is Averaged:
            step()
        with pytest.raises(NotApplicable, match=r"changes (the|its) parameter `[a-z0-9.]*weight`"):
            step()
        pieces.close()


@pytest.mark.parametrize(
    ("technique", "knobs"), [(Ddp(), {"activation_checkpointing": True}), (Offload(), {})]
)
def test_layers_that_would_run_twice_change_no_buffer(
    tmp_path: Path, technique: Any, knobs: dict[str, Any]
) -> None:
    task = task_of(in_layers)
    with gang_of_one(tmp_path) as gang:
        stepper = stepper_of(task, technique, gang, knobs)
        pieces = stepper.pieces(Position())
        with pytest.raises(NotApplicable, match=r"buffer `2\.batches`, which would happen twice"):
            stepper.step(stepper.stage(next(pieces)), stop=False, save=False).result()
        pieces.close()


class First(Mlp):
    """Keeps the mean of its first batch, in a buffer that its first forward adds."""

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        if not hasattr(self, "first"):
            self.register_buffer("first", inputs.detach().mean(0))
        return super().forward(inputs - self.first)


class Growing(Mlp):
    """Keeps the mean of each batch, in a buffer that grows."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("means", torch.zeros(1, WIDTH))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        outputs = super().forward(inputs - self.means.mean(0))
        self.means = torch.cat([self.means, inputs.detach().mean(0, keepdim=True)])
        return outputs


def without_fixed(module: nn.Module, state: dict[str, Any], prefix: str, *_: Any) -> None:
    for name in [name for name in state if name.startswith(f"{prefix}fixed")]:
        del state[name]


class Hiding(Mlp):
    """Its `state_dict` leaves out a part."""

    def __init__(self, trains: bool = False) -> None:
        super().__init__()
        self.fixed = nn.Linear(WIDTH, WIDTH).requires_grad_(trains)
        self.register_state_dict_post_hook(without_fixed)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return super().forward(torch.tanh(self.fixed(inputs)))


class Drawing(Mlp):
    """Adds noise from a generator of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.generator = torch.Generator().manual_seed(4)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return super().forward(inputs + torch.randn(inputs.shape, generator=self.generator))


@pytest.mark.parametrize("get_model", [First, Growing, Hiding, Drawing])
def test_a_stop_changes_nothing_of_odd_state(run: Runtime, get_model: Any) -> None:
    for name, ends in (("whole", (8,)), ("stopped", (3, 8))):
        run.write_task(definition(name, get_model=get_model))
        for steps in ends:
            result = run.run(name, steps=steps)
            assert result.codes == [0], result.logs
    assert run.losses("stopped") == run.losses("whole")


def test_weights_that_train_are_in_every_checkpoint_or_the_task_is_told(run: Runtime) -> None:
    run.write_task(definition(get_model=partial(Hiding, trains=True)))
    (failed,) = run.run("mlp", steps=2).of("failed")
    assert failed["kind"] == "task" and "leaves out `fixed.weight`" in failed["error"]


class NoisyLayer(nn.Linear):
    def __init__(self) -> None:
        super().__init__(WIDTH, WIDTH)
        self.generator = torch.Generator()

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return super().forward(inputs + torch.randn(inputs.shape, generator=self.generator))


def noisy_layers() -> nn.Module:
    model = stateful.Layered()
    model.layers = nn.ModuleList(NoisyLayer() for _ in range(4))
    return model


@pytest.mark.parametrize(
    ("technique", "knobs"), [(Ddp(), {"activation_checkpointing": True}), (Offload(), {})]
)
def test_layers_that_would_run_twice_have_no_generator(
    tmp_path: Path, technique: Any, knobs: dict[str, Any]
) -> None:
    with gang_of_one(tmp_path) as gang:
        stepper = stepper_of(task_of(noisy_layers), technique, gang, knobs)
        pieces = stepper.pieces(Position())
        with pytest.raises(NotApplicable, match="a random generator of its own"):
            stepper.step(stepper.stage(next(pieces)), stop=False, save=False).result()
        pieces.close()
