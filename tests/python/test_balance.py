"""Stages of a pipeline that take alike: what a trial sees of the layers, and where it cuts then."""

from __future__ import annotations

import time
from typing import Any

import closeness
import pytest
import reference
import torch
from harness import Runtime
from models import NUM_CLASSES, WIDTH, definition
from saturn.rank.exceptions import NotApplicable
from saturn.techniques import Setting
from saturn.techniques.pinned import Pinned
from saturn.techniques.pipeline import Pipeline, PipelineFsdp
from saturn.techniques.pipeline.balance import Seen, balanced, better_cut, numbers_of_layers
from saturn.techniques.pipeline.layer_times import LayerTimes
from saturn.techniques.pipeline.model import PipelinedModel
from saturn.techniques.pipeline.stages import kinds_of_layers, split, thriftiest_numbers
from torch import Tensor, nn

CPU = torch.device("cpu")


class Sleeps(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, hidden: Tensor, seconds: float) -> Tensor:
        ctx.seconds = seconds
        ctx.save_for_backward(hidden)
        time.sleep(seconds)
        return hidden.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        (hidden,) = ctx.saved_tensors  # so it may have to be computed again
        time.sleep(3 * ctx.seconds)
        return gradient + 0 * hidden, None


class Slow(nn.Module):
    """Takes so long, whatever else the machine does: a quarter of it in the forward."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds = seconds / 4

    def forward(self, hidden: Tensor) -> Tensor:
        return Sleeps.apply(hidden, self.seconds)  # type: ignore[no-any-return,no-untyped-call]


class Layer(nn.Module):
    """A residual layer that takes so long."""

    def __init__(self, seconds: float = 0.0, width: int = 8) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, width), nn.Linear(width, WIDTH)
        self.slow = Slow(seconds)

    def forward(self, hidden: Tensor) -> Tensor:
        return hidden + self.slow(self.down(torch.tanh(self.up(hidden))))


#: Long beside what all else of a layer takes.
UNIT_S = 0.012


def uneven(unit_s: float = UNIT_S) -> nn.Module:
    """The first layer takes as long as the others together; it is built as they are."""
    layers = [Layer(4 * unit_s), *(Layer(unit_s) for _ in range(4))]
    return nn.Sequential(*layers, nn.Linear(WIDTH, NUM_CLASSES))


def uneven_and_slow() -> nn.Module:
    return uneven(4 * UNIT_S)


def even() -> nn.Module:
    return nn.Sequential(*(Layer(UNIT_S) for _ in range(4)))


def test_the_slowest_stage_is_as_fast_as_can_be() -> None:
    bounds, largest = balanced([1, 1, 1, 1, 8], 3, before=0, after=0)
    assert numbers_of_layers(bounds)[-1] == 1 and largest == 8
    assert balanced([1, 1, 1, 1], 2, before=2, after=0) == ((0, 1, 4), 3)
    assert balanced([1, 1, 1, 1], 2, before=0, after=2) == ((0, 3, 4), 3)


def seen(*stages: list[float], rest: tuple[float, ...] = ()) -> list[Seen]:
    """What the ranks of a pipeline have seen, by stage its layers' seconds."""
    found, number = [], 0
    for stage, seconds in enumerate(stages):
        layers = dict(enumerate(seconds, start=number))
        found.append(Seen(stage, layers, rest[stage] if rest else 0.0))
        number += len(seconds)
    return found


@pytest.mark.parametrize(
    ("found", "cut"),
    [
        pytest.param(seen([1, 1, 1], [1, 1, 1]), None, id="equal"),
        pytest.param(seen([1.2, 1.1, 1], [0.9, 0.8, 0.9]), None, id="equal-but-for-noise"),
        pytest.param(seen([9, 1, 1], [1, 1, 1]), [1, 5], id="one-slow"),
        pytest.param(seen([1, 1, 1], [1, 1, 1], rest=(2, 0)), [2, 4], id="slow-embeddings"),
        pytest.param(seen([1, 1, 1], [1, 1, 1], rest=(0, 4)), [5, 1], id="slow-head"),
        pytest.param(seen([1, 1, 1], [1, 1, 1], rest=(0, 0.3)), None, id="hardly-better"),
        pytest.param(seen([9, 1, 1], [1, 1]), None, id="one-unseen"),
        # Two pipelines, one of which was held up.
        pytest.param([*seen([1, 1, 1], [1, 1, 1])] * 2 + seen([9, 1, 1], [1] * 3), None, id="two"),
    ],
)
def test_a_cut_is_proposed_where_it_is_clearly_better(
    found: list[Seen], cut: list[int] | None
) -> None:
    assert better_cut((0, 3, 6), ["layer"] * 6, found) == cut


def test_layers_that_are_built_otherwise_may_take_a_little_more() -> None:
    found = seen([1.4, 1.4, 1], [1, 1, 1])
    kinds = ["wide", "wide", "narrow", "narrow", "narrow", "narrow"]
    assert better_cut((0, 3, 6), ["layer"] * 6, found) is None
    assert better_cut((0, 4, 6), kinds, seen([1.4, 1.4, 1, 1], [1, 1])) == [3, 3]
    model = nn.Sequential(*(Layer(width=width) for width in (8, 8, 4)))
    one, two, three = kinds_of_layers(split(model, 2))
    assert one == two != three


def watched(layers: list[nn.Module], *, steps: int = 3) -> tuple[LayerTimes, Tensor]:
    times = LayerTimes(0, dict(enumerate(layers)), CPU)
    for _ in range(steps):
        hidden = torch.randn(4, WIDTH, requires_grad=True)
        given = hidden
        with times.forward():
            for layer in layers:
                hidden = layer(hidden)
        with times.backward():
            hidden.sum().backward()
        times.step_ended()
    return times, given


def test_forward_and_backward_of_each_layer_are_told_apart() -> None:
    layers: list[nn.Module] = [Slow(0.04), Slow(0.0), Slow(0.12)]
    found = watched(layers)[0].seen()
    assert found.layers.keys() == {0, 1, 2}
    assert found.layers[0] >= 0.04 and found.layers[2] >= 0.12
    assert found.layers[1] < found.layers[0] < found.layers[2]


def test_a_layer_that_runs_again_in_the_backward_is_one_layer() -> None:
    from torch.utils.checkpoint import checkpoint

    class Again(nn.Module):
        def __init__(self, inner: nn.Module) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, hidden: Tensor) -> Tensor:
            return checkpoint(self.inner, hidden, use_reentrant=False)  # type: ignore[no-any-return]

    # Long enough that the other layer takes less, even where the machine stops for a while.
    inner: list[nn.Module] = [Slow(0.4), Slow(0.0)]
    times = LayerTimes(0, dict(enumerate(inner)), CPU)
    with times.forward():
        hidden = nn.Sequential(*map(Again, inner))(torch.ones(2, requires_grad=True))
    with times.backward():
        hidden.sum().backward()
    assert times.seen().layers[0] >= 0.5 > times.seen().layers[1]


def test_after_three_steps_nothing_is_watched() -> None:
    layers: list[nn.Module] = [Slow(0.0), Slow(0.0)]
    watched(layers, steps=3)
    assert not any(layer._forward_hooks or layer._forward_pre_hooks for layer in layers)


def test_a_cut_has_a_layer_for_each_stage_and_all_layers() -> None:
    model = uneven()
    assert split(model, 2, numbers=[1, 5]).bounds == (0, 1, 6)
    for numbers in ([1, 4], [0, 6], [2, 2, 2], []):
        with pytest.raises(NotApplicable, match=r"is none of 6 layers into 2 stages"):
            split(model, 2, numbers=numbers)


def setting(gpus: int, memory: int | None = None) -> Setting:
    return Setting(gpus=gpus, device_kind="cpu", hints={}, device_memory_bytes=memory)


class Embedded(nn.Module):
    """Most bytes are looked up, and cost no work."""

    def __init__(self, words: int = 1000, depth: int = 6, width: int = 8) -> None:
        super().__init__()
        # Several, because each gradient is there twice while it is added up.
        self.embeds = nn.ModuleList(nn.Embedding(words // 8, WIDTH) for _ in range(8))
        self.layers = nn.ModuleList(Layer(width=width) for _ in range(depth))
        self.head = nn.Linear(WIDTH, NUM_CLASSES)

    def forward(self, inputs: Tensor) -> Tensor:
        numbers = (inputs.abs() * 10).long()
        hidden = torch.stack([embed(numbers).mean(1) for embed in self.embeds]).sum(0)
        for layer in self.layers:
            hidden = layer(hidden)
        return self.head(hidden)  # type: ignore[no-any-return]


def test_where_memory_is_short_there_is_a_cut_by_bytes() -> None:
    model = Embedded()
    cut = split(model, 2)
    assert numbers_of_layers(cut.bounds) == [3, 3]
    assert thriftiest_numbers(model, cut) == [1, 5]
    (rung,) = Pipeline().thriftier_knob_sets(model, setting(2))
    assert [knobs["cut"] for knobs in rung] == [[1, 5]] * 2
    assert all(knobs["schedule"] == "1f1b" for knobs in rung)
    least = Pipeline().least_memory_bytes
    whole, thrifty = (least(model, setting(2), knobs) for knobs in ({}, rung[0]))
    layer = sum(parameter.nbytes for parameter in model.layers[0].parameters())
    assert whole is not None and thrifty is not None
    assert whole - thrifty == 2 * layer * 4  # with gradients and AdamW's two moments
    (rung,) = PipelineFsdp().thriftier_knob_sets(model, setting(4))
    assert [knobs["cut"] for knobs in rung] == [[1, 5]]


def heavy() -> nn.Module:
    """Embeddings of 40 MB, and four layers of 20 MB each; gradients double that."""
    return Embedded(words=40 * 10**6 // (4 * WIDTH), depth=4, width=20 * 10**6 // (8 * WIDTH))


@pytest.mark.slow
def test_a_trial_takes_the_cut_by_bytes_where_no_other_fits(run: Runtime) -> None:
    run.write_task(definition(get_model=heavy, optimizer_cls=torch.optim.SGD))
    limit = 145 * 10**6  # 160 MB and 80 MB by parameters, 120 MB each by bytes
    options: dict[str, Any] = {"ranks": 2, "kind": "trial", "device_memory_bytes": limit}
    trial = run.run("mlp", "pipeline", **options).one("trial")
    assert trial["outcome"]["outcome"] == "measured", trial
    assert trial["knobs"]["cut"] == [1, 3]
    huge_page = 2 * 1024**2  # what a process holds is counted in pages, and those may be huge
    assert trial["outcome"]["peak_memory_bytes"] <= limit + huge_page


def test_where_bytes_are_even_there_is_none() -> None:
    assert Pipeline().thriftier_knob_sets(even(), setting(2)) == []


def tried(run: Runtime, device_kind: str = "cpu", **changes: Any) -> dict[str, Any]:
    """The trial of a task on two devices."""
    run.write_task(definition(**changes))
    options: dict[str, Any] = {"ranks": 2, "kind": "trial", "device_kind": device_kind}
    result = run.run("mlp", "pipeline", timed_steps=3, **options)
    assert result.codes == [0, 0], result.logs
    trial: dict[str, Any] = result.one("trial")
    assert trial["outcome"]["outcome"] == "measured", trial
    return trial


@pytest.mark.slow
def test_a_trial_puts_a_slow_layer_on_a_stage_of_its_own(run: Runtime) -> None:
    assert numbers_of_layers(split(uneven(), 2).bounds) == [3, 3]
    # Long steps: on busy cores each layer also waits for its core, for some hundredths of a second.
    knobs = tried(run, get_model=uneven_and_slow)["knobs"]
    assert knobs["cut"] in ([1, 5], [2, 4])
    # What was found is plain data: training takes it as it is, on every rank.
    task = definition("trained", get_model=uneven)
    run.write_task(task)
    moves: list[tuple[str, int, dict[str, Any], int]] = [
        ("pipeline", 2, knobs, 2),
        ("pipeline", 2, {**knobs, "cut": [4, 2]}, 4),
        ("pipeline", 3, {"cut": [1, 1, 4]}, 5),
        ("pipeline+fsdp", 4, {"cut": [5, 1], "stages": 2}, 6),
        ("ddp", 1, {}, 7),
        ("pipeline", 2, {}, 8),
    ]
    for technique, ranks, given, steps in moves:
        result = run.run("trained", technique, ranks=ranks, knobs=given, steps=steps)
        assert result.codes == [0] * ranks, result.logs
    expected, _ = reference.train(task, 8)
    assert closeness.ulps(run.losses("trained"), expected) < closeness.ACROSS


@pytest.mark.slow
def test_on_gpus_their_events_tell_what_layers_take(gpu_run: Runtime) -> None:
    # What a fake GPU computes takes long in every layer, and longer on busy cores.
    assert tried(gpu_run, "cuda", get_model=uneven_and_slow)["knobs"]["cut"] in ([1, 5], [2, 4])


def test_layers_that_take_alike_stay_where_they_are(run: Runtime) -> None:
    assert "cut" not in tried(run, get_model=even)["knobs"]


def test_a_cut_for_another_number_of_stages_is_refused(run: Runtime) -> None:
    run.write_task(definition(get_model=uneven))
    result = run.run("mlp", "pipeline", ranks=3, steps=1, knobs={"cut": [1, 5]})
    assert "the cut [1, 5] is none of 6 layers into 3 stages" in result.of("failed")[0]["error"]


def test_a_pinned_technique_changes_only_what_is_not_pinned() -> None:
    class Model(PipelinedModel):
        def __init__(self) -> None:
            pass

        def better_cut(self) -> list[int]:
            return [1, 5]

    free = Pinned(Pipeline(), {"schedule": ["gpipe"]})
    assert free.changes_after({"schedule": "gpipe"}, Model()) == {"cut": [1, 5]}
    pinned = Pinned(Pipeline(), {"cut": [[2, 4]]})
    assert pinned.changes_after({"cut": [2, 4]}, Model()) is None
