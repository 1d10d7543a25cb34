"""`pipeline` trains as plain torch does, whatever it is cut into, and moves to and from others."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import closeness
import model_kinds
import odd_models
import pytest
import reference
import torch
from harness import Runtime
from models import NUM_CLASSES, WIDTH, Calls, Mlp, definition, shuffled_loader
from saturn.checkpoint import manifest
from saturn.tasks.definition import TaskDefinition
from saturn.techniques import Setting
from saturn.techniques.pipeline import Pipeline
from torch import Tensor, nn
from torch.utils.data import DataLoader

Move = tuple[str, int, int, dict[str, Any]]


def pipeline(ranks: int, steps: int, microbatches: int = 4, schedule: str = "1f1b") -> Move:
    return "pipeline", ranks, steps, {"microbatches": microbatches, "schedule": schedule}


def interleaved(ranks: int, steps: int, microbatches: int, stages: int = 2) -> Move:
    _, _, _, knobs = pipeline(ranks, steps, microbatches, "interleaved")
    return "pipeline", ranks, steps, {**knobs, "stages_a_device": stages}


def chain(run: Runtime, task: TaskDefinition, moves: list[Move]) -> dict[int, float]:
    run.write_task(task)
    for technique, ranks, steps, knobs in moves:
        result = run.run(task.name, technique, ranks=ranks, steps=steps, knobs=knobs)
        assert result.codes == [0] * ranks, result.logs
        assert result.one("finished")["step"] == steps
    return run.losses(task.name)


def weights(run: Runtime, task: TaskDefinition) -> dict[str, Tensor]:
    """The model of the newest checkpoint, read in plain torch."""
    from torch.distributed.checkpoint import FileSystemReader, load

    newest = manifest.newest_valid(run.task_dir(task.name) / "checkpoints")
    assert newest is not None
    torch.manual_seed(1)
    state = {"model": task.get_model().state_dict()}
    with pytest.warns(UserWarning, match="torch.distributed is disabled"):
        load(state, storage_reader=FileSystemReader(newest[0]), no_dist=True)
    return state["model"]


def check(run: Runtime, task: TaskDefinition, moves: list[Move]) -> None:
    """Losses and final weights are those of one process, never interrupted."""
    expected, model = reference.train(task, moves[-1][2], loss_of=model_kinds.loss_of(task))
    assert closeness.ulps(chain(run, task, moves), expected) < closeness.ACROSS
    assert closeness.ulps(weights(run, task), model.state_dict()) < closeness.ACROSS


def linears(dropout: float = 0.0) -> nn.Module:
    inner = [nn.Linear(16, 16), nn.Tanh(), nn.Dropout(dropout), nn.Linear(16, 16)]
    return nn.Sequential(
        nn.Linear(WIDTH, 16), nn.ReLU(), nn.Sequential(*inner), nn.Linear(16, NUM_CLASSES)
    )


def frozen_gpt2() -> nn.Module:
    model: Any = model_kinds.gpt2(n_layer=4)
    for part in (model.transformer.wpe, *model.transformer.h[:2]):
        part.requires_grad_(False)
    return model


def only_the_head() -> nn.Module:
    model = Mlp(4)
    model.requires_grad_(False)
    model.head.requires_grad_(True)
    return model


#: Gradients that are nothing but rounding must not come out as large as any other.
ADAM = partial(torch.optim.AdamW, eps=1e-3)
CLIPPED: dict[str, Any] = {"max_grad_norm": 0.3, "optimizer_cls": torch.optim.SGD, "lr": 0.3}
EVERY_WAY = [
    pipeline(2, 2),
    ("ddp", 2, 3, {}),
    pipeline(4, 4, 3, "gpipe"),
    ("fsdp", 2, 5, {}),
    pipeline(3, 7, 8),
    ("ddp", 1, 8, {}),
]
#: In two rounds of micro-batches and in one, and (5 of them for 2 devices) in none that are even.
INTERLEAVED = [
    interleaved(2, 2, 4),
    ("fsdp", 2, 3, {}),
    interleaved(2, 5, 3),
    interleaved(2, 6, 5),
    pipeline(2, 7),
    ("ddp", 1, 8, {}),
]
STAGES = [pipeline(2, 1), pipeline(4, 3, 3, "gpipe"), ("fsdp", 2, 4, {}), pipeline(3, 5)]


# Of Llama, quick: `test_shapes_may_change_from_batch_to_batch`.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "changes", "moves"),
    [
        ("gpt2", {"get_model": partial(model_kinds.gpt2, n_layer=4)}, EVERY_WAY),
        ("llama", {"get_model": partial(model_kinds.llama, num_hidden_layers=4)}, STAGES),
        ("vit", {"get_model": partial(model_kinds.vit, num_hidden_layers=4)}, STAGES),
        ("gpt2", {"get_model": frozen_gpt2}, STAGES),
        ("gpt2", {"get_model": partial(model_kinds.gpt2, n_layer=5), **CLIPPED}, INTERLEAVED),
        ("llama", {"get_model": partial(model_kinds.llama, num_hidden_layers=4)}, INTERLEAVED),
    ],
    ids=["gpt2", "llama", "vit", "frozen-gpt2", "gpt2-interleaved", "llama-interleaved"],
)
def test_transformers_train_as_in_plain_torch(
    run: Runtime, kind: str, changes: dict[str, Any], moves: list[Move]
) -> None:
    pytest.importorskip("transformers")
    check(run, model_kinds.task_of(kind, **{"optimizer_cls": ADAM, **changes}), moves)


@pytest.mark.slow(quick=["residuals-outside-the-layers"])
@pytest.mark.parametrize(
    ("changes", "moves"),
    [
        pytest.param({"get_model": linears}, EVERY_WAY, id="sequential"),
        pytest.param({"get_model": partial(Mlp, 4)}, STAGES, id="residuals-outside-the-layers"),
        pytest.param({"get_model": only_the_head}, STAGES, id="stages-all-frozen"),
        pytest.param({"get_model": only_the_head}, INTERLEAVED, id="interleaved-all-frozen"),
        pytest.param(
            {"get_model": partial(Mlp, 6)},
            [interleaved(2, 2, 4, stages=3), interleaved(3, 4, 5), pipeline(2, 5)],
            id="interleaved-by-three",
        ),
        pytest.param(
            {"get_model": linears, "optimizer_cls": torch.optim.SGD}, STAGES, id="without-state"
        ),
    ],
)
def test_plain_models_train_as_in_plain_torch(
    run: Runtime, changes: dict[str, Any], moves: list[Move]
) -> None:
    check(run, definition(**{"optimizer_cls": ADAM, **changes}), moves)


def rows_of_many_lengths() -> DataLoader[Any]:
    """Batches of 5, 5, 5 and 1, each of another length, which each of its rows tells."""
    rows = torch.randint(0, 32, (16, 16), generator=torch.Generator().manual_seed(0))
    rows[:, 0] = torch.arange(16) // 5 * 3

    def collate(samples: list[Tensor]) -> dict[str, Tensor]:
        tokens = torch.stack(samples)
        tokens = tokens[:, : 8 + int(tokens[0, 0]) % 8]
        labels = tokens.clone()
        labels[labels[:, 1] % 2 == 0, -1] = -100  # slices count by their labels from the beginning
        return {"input_ids": tokens, "labels": labels}

    return DataLoader(rows, batch_size=5, collate_fn=collate)


def test_shapes_may_change_from_batch_to_batch(run: Runtime) -> None:
    pytest.importorskip("transformers")
    build = partial(model_kinds.llama, num_hidden_layers=4)
    task = model_kinds.task_of(
        "llama", get_model=build, get_dataloader=rows_of_many_lengths, optimizer_cls=ADAM
    )
    check(run, task, [pipeline(3, 9, 3)])


def weighted_mean(outputs: Tensor, labels: Tensor) -> Tensor:
    losses = nn.functional.cross_entropy(outputs, labels, reduction="none")
    return (losses * labels).sum() / labels.sum()


def small_batches() -> DataLoader[Any]:
    return DataLoader(shuffled_loader().dataset, batch_size=3, shuffle=True)


@pytest.mark.slow(quick=["uneven"])
@pytest.mark.parametrize(
    "changes",
    [
        # Batches of 8, and of 4 at the end of an epoch, in 3 or 5 micro-batches.
        pytest.param({}, id="uneven"),
        pytest.param({"get_dataloader": small_batches}, id="fewer-samples-than-micro-batches"),
        # Of 3 samples in 5 micro-batches, one with label 0 alone weighs nothing and has no mean.
        pytest.param(
            {
                "get_dataloader": small_batches,
                "loss_function": weighted_mean,
                "loss_weight": lambda batch: batch[1].sum(),
            },
            id="weighted-by-the-task",
        ),
        pytest.param({"gradient_accumulation_steps": 3, "batch_count": 20}, id="accumulation"),
    ],
)
def test_micro_batches_count_by_their_weight(run: Runtime, changes: dict[str, Any]) -> None:
    task = definition(get_model=linears, optimizer_cls=ADAM, **changes)
    check(run, task, [pipeline(3, 3, 5), ("ddp", 2, 4, {}), pipeline(2, 7, 3, "gpipe")])


def test_gradients_are_clipped_by_the_norm_of_the_whole_model(run: Runtime) -> None:
    pytest.importorskip("transformers")
    tied = partial(model_kinds.gpt2, n_layer=4)
    check(
        run,
        model_kinds.task_of("gpt2", get_model=tied, **CLIPPED),
        [pipeline(3, 2), pipeline(2, 4)],
    )


def test_bfloat16_autocast_reaches_every_stage(run: Runtime) -> None:
    pytest.importorskip("transformers")
    build = partial(model_kinds.gpt2, n_layer=4)
    task = model_kinds.task_of("gpt2", get_model=build, precision="bf16")
    expected, _ = reference.train(task, 4, loss_of=model_kinds.loss_of(task))
    losses = chain(run, task, [pipeline(3, 2), ("ddp", 1, 4, {})])
    # Micro-batches round elsewhere; float32 would be further off than this.
    assert closeness.ulps(losses, expected, of=torch.bfloat16) < 0.25
    plain, _ = reference.train(
        model_kinds.task_of("gpt2", get_model=build), 4, loss_of=model_kinds.loss_of(task)
    )
    assert closeness.ulps(losses, plain) > 0


def test_what_travels_beside_the_layers_has_the_type_that_autocast_gives_it(run: Runtime) -> None:
    # `memory` comes from a linear layer that the second stage doesn't hold.
    task = definition(get_model=odd_models.GivenToAll, precision="bf16")
    expected, _ = reference.train(task, 3)
    losses = chain(run, task, [pipeline(3, 2), pipeline(2, 3)])
    assert closeness.ulps(losses, expected, of=torch.bfloat16) < 0.25


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("gpt2", {"get_model": partial(model_kinds.gpt2, 0.2, n_layer=4)}),
        ("sequential", {"get_model": partial(linears, 0.3)}),
    ],
    ids=["gpt2", "sequential"],
)
def test_stop_and_resume_under_the_same_strategy_is_bit_equal(
    run: Runtime, kind: str, changes: dict[str, Any]
) -> None:
    pytest.importorskip("transformers")
    for name, move in (("", pipeline), ("-interleaved", interleaved)):
        whole, parts = (
            model_kinds.task_of(kind, each + name, **changes) for each in ("whole", "parts")
        )
        expected = chain(run, whole, [move(2, 7, 4)])
        assert chain(run, parts, [move(2, step, 4) for step in (1, 5, 7)]) == expected


def drawing_loss(outputs: Tensor, labels: Tensor) -> Tensor:
    return nn.functional.cross_entropy(outputs + 0.1 * torch.randn_like(outputs), labels)


def test_a_loss_that_draws_resumes_bit_equal_too(run: Runtime) -> None:
    # No layer draws here: each attempt rehearses anew, which mustn't change what the loss draws.
    whole, parts = (
        definition(name, get_model=linears, loss_function=drawing_loss)
        for name in ("whole", "parts")
    )
    expected = chain(run, whole, [pipeline(2, 4)])
    assert chain(run, parts, [pipeline(2, step) for step in (1, 3, 4)]) == expected


def leave_tied_gradients_apart() -> None:
    from saturn.techniques.pipeline.shared_parameters import SharedParameters

    SharedParameters.sum_gradients = lambda self: None  # type: ignore[method-assign]


def count_tied_gradients_twice() -> None:
    from saturn.techniques.pipeline import shared_parameters

    norm = shared_parameters.SharedParameters.gradient_norm

    def twice(self: Any) -> Tensor:
        self._counted_elsewhere.clear()
        return norm(self)

    shared_parameters.SharedParameters.gradient_norm = twice  # type: ignore[method-assign]


def weigh_micro_batches_alike() -> None:
    from saturn.training.objective import TaskObjective

    TaskObjective.weight = lambda self, batch: 1.0  # type: ignore[method-assign]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sabotage", "changes"),
    [
        (leave_tied_gradients_apart, {}),
        (count_tied_gradients_twice, CLIPPED),
        (weigh_micro_batches_alike, {}),
    ],
)
def test_known_bad_variants_are_seen(
    run: Runtime, sabotage: Callable[[], None], changes: dict[str, Any]
) -> None:
    # The comparisons above are worth something only if they fail for these.
    pytest.importorskip("transformers")
    changes = {"get_model": partial(model_kinds.gpt2, n_layer=4), **changes}
    good = model_kinds.task_of("gpt2", **changes)
    expected, _ = reference.train(good, 5, loss_of=model_kinds.loss_of(good))
    task = model_kinds.task_of("gpt2", hints={"by": Calls(sabotage)}, **changes)
    losses = chain(run, task, [pipeline(2, 5)])
    assert closeness.ulps(losses, expected) > 10 * closeness.ACROSS


def test_a_trial_finds_which_parameters_are_needed_everywhere(run: Runtime) -> None:
    task = definition(get_model=odd_models.HeadFirst, optimizer_cls=ADAM)
    run.write_task(task)
    result = run.run(task.name, "pipeline", ranks=2, kind="trial", knobs={"microbatches": 2})
    trial = result.one("trial")
    assert trial["outcome"]["outcome"] == "measured", trial
    assert trial["knobs"]["everywhere"] == ["head.bias", "head.weight", "norm.bias", "norm.weight"]
    check(run, task, [("pipeline", 3, 3, trial["knobs"]), ("ddp", 2, 4, {})])


def test_a_trial_says_why_a_model_cannot_be_cut(run: Runtime) -> None:
    # Only rank 1 finds out, in the middle of a step; nobody waits for it.
    task = definition(get_model=odd_models.SkipsAcross)
    run.write_task(task)
    result = run.run(task.name, "pipeline", ranks=2, kind="trial")
    assert result.codes == [0, 0], result.logs
    outcome = result.one("trial")["outcome"]
    assert outcome["outcome"] == "not_applicable"
    assert "not only by way of the layers in between" in outcome["reason"]


def setting(gpus: int) -> Setting:
    return Setting(gpus=gpus, device_kind="cpu", hints={})


@pytest.mark.parametrize(
    ("model", "gpus", "reason"),
    [
        (Mlp(), 1, "one device makes no pipeline"),
        (Mlp(3), 4, "`layers` has 3 layers with parameters, too few for 4 stages"),
        (model_kinds.convolutional(), 2, "`1.1` normalises over the batch"),
    ],
)
def test_not_applicable_in_words(model: nn.Module, gpus: int, reason: str) -> None:
    assert reason in (Pipeline().not_applicable(model, setting(gpus)) or "")


def test_batch_norm_that_no_longer_learns_is_no_obstacle() -> None:
    model = model_kinds.convolutional()
    for part in model.modules():
        if isinstance(part, nn.BatchNorm2d):
            part.eval()
    assert Pipeline().not_applicable(model, setting(2)) is None


def test_the_memory_bound_is_that_of_the_fullest_stage() -> None:
    model = nn.Sequential(*(nn.Linear(4, 4, bias=False) for _ in range(5)))
    # Two stages: 3 of 5 layers, each of 64 bytes, with gradients and AdamW's two moments.
    assert Pipeline().least_memory_bytes(model, setting(2), {}) == 3 * 64 * 4
    model[0].requires_grad_(False)
    # The frozen layer's stage holds another layer's weight too, for its optimizer.
    assert Pipeline().least_memory_bytes(model, setting(5), {}) == 64 + 64 * 4


def test_an_unknown_schedule_is_refused(run: Runtime) -> None:
    task = definition(get_model=linears)
    run.write_task(task)
    result = run.run(task.name, "pipeline", ranks=2, steps=1, knobs={"schedule": "zero"})
    assert (
        "schedule is `zero`; it must be one of ['1f1b', 'gpipe', 'interleaved']"
        in result.of("failed")[0]["error"]
    )


def test_stages_are_interleaved_where_there_are_layers_for_it(run: Runtime) -> None:
    sets = Pipeline().knob_sets(Mlp(4), setting(2))
    assert [knobs for knobs in sets if knobs["schedule"] == "interleaved"] == [
        {"schedule": "interleaved", "microbatches": 4}
    ]
    sets = Pipeline().knob_sets(Mlp(3), setting(2))
    assert all(knobs["schedule"] != "interleaved" for knobs in sets)
    # A device holds the layers of both of its stages.
    layers = nn.Sequential(*(nn.Linear(4, 4, bias=False) for _ in range(5)))
    interleaved = {"schedule": "interleaved"}
    assert Pipeline().least_memory_bytes(layers, setting(2), interleaved) == 3 * 64 * 4
    task = definition(get_model=partial(Mlp, 4))
    run.write_task(task)
    result = run.run(task.name, "pipeline+fsdp", ranks=4, steps=1, knobs=interleaved)
    assert "`interleaved` is for `pipeline` alone" in result.of("failed")[0]["error"]
