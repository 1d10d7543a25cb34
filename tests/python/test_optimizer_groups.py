"""Optimizers that keep numbers in their groups: a move must not reset them, nor count as a step."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import partial
from typing import Any

import closeness
import pytest
import reference
import torch
from harness import Runtime
from models import Mlp, definition
from saturn.checkpoint import manifest
from saturn.rank.exceptions import NotApplicable
from saturn.training.optimizer import build_optimizer
from saturn.training.optimizer_groups import OptimizerGroups
from saturn.training.optimizer_settings import StandIns


class SelfScheduled(torch.optim.SGD):
    """Counts its steps in its groups, and sets the learning rate from that."""

    def __init__(self, parameters: Any, lr: float, **options: Any) -> None:
        super().__init__(parameters, lr=lr, weight_decay=0.05, **options)
        for group in self.param_groups:
            group.update(count=0, first_lr=lr, window=(0, None), label="warm-up")

    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        for group in self.param_groups:
            group["count"] += 1
            group["lr"] = group["first_lr"] / (1 + 0.2 * group["count"])
            group["window"] = (group["count"], group["count"] + 1)
        return super().step(closure)


@pytest.mark.slow(quick=["momentum"])
@pytest.mark.parametrize("options", [{}, {"momentum": 0.9}], ids=["stateless", "momentum"])
def test_what_an_optimizer_counts_goes_on_after_a_move(
    run: Runtime, options: dict[str, Any]
) -> None:
    task = definition(optimizer_cls=partial(SelfScheduled, **options), lr=0.2)
    run.write_task(task)
    for technique, ranks, steps in [("ddp", 1, 3), ("fsdp", 2, 5), ("ddp", 2, 8), ("ddp", 1, 10)]:
        # A checkpoint after each step: none of them may count either.
        result = run.run("mlp", technique, ranks=ranks, steps=steps, checkpoint_every_s=0.0)
        assert result.codes == [0] * ranks, result.logs
    expected, _ = reference.train(task, 10)
    assert closeness.ulps(run.losses("mlp"), expected) < closeness.ACROSS
    content = manifest.read(run.task_dir("mlp") / "checkpoints" / "step-00000010")
    assert content is not None
    (group,) = content["optimizer_groups"]
    assert group == {"count": 10, "lr": pytest.approx(0.2 / 3), "window": [10, 11]}


def parameters() -> list[torch.nn.Parameter]:
    return [torch.nn.Parameter(torch.ones(2)) for _ in range(3)]


def test_only_plain_values_that_changed_are_kept() -> None:
    first, second, third = parameters()
    groups = [{"params": [first, second]}, {"params": [third], "lr": 0.5}]
    optimizer = torch.optim.AdamW(groups, lr=0.1)
    kept = OptimizerGroups(optimizer)
    assert kept.changed() == [{}, {}]
    optimizer.param_groups[0].update(betas=(0.8, 0.9), scale=torch.ones(1), d=1e-6, tries=[1, None])
    optimizer.param_groups[1].update(lr=0.25, hook=print)
    changed = [{"betas": (0.8, 0.9), "d": 1e-6, "tries": [1, None]}, {"lr": 0.25}]
    assert kept.changed() == changed
    again = torch.optim.AdamW([{"params": [first]}, {"params": [third], "lr": 0.5}], lr=0.1)
    fresh = OptimizerGroups(again)
    again.param_groups[1]["eps"] = 7.0  # as by a step that does not count
    fresh.restore([{**changed[0], "betas": [0.8, 0.9]}, changed[1]])
    assert fresh.changed() == changed
    assert again.param_groups[1]["eps"] == 1e-8
    with pytest.raises(ValueError, match="settings of 1 groups of parameters; the optimizer has 2"):
        fresh.restore([{}])


class Wide(torch.optim.Optimizer):
    """SGD with a momentum that is wider than the weights."""

    def __init__(self, parameters: Any, lr: float) -> None:
        super().__init__(parameters, {"lr": lr})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for parameter in self.param_groups[0]["params"]:
            momentum = self.state[parameter].setdefault("momentum", parameter.double() * 0)
            momentum.mul_(0.9).add_(parameter.grad)
            parameter.sub_((self.param_groups[0]["lr"] * momentum).to(parameter.dtype))


def of_matrices(parameters: Any, lr: float) -> torch.optim.Optimizer:
    """An optimizer that leaves some parameters as they are."""
    return torch.optim.SGD([each for each in parameters if each.dim() > 1], lr=lr)


def compiled() -> torch.nn.Module:
    return torch.compile(Mlp(), backend="eager")  # type: ignore[return-value]


@pytest.mark.parametrize(
    "changes",
    [
        {"optimizer_cls": Wide},
        {"optimizer_cls": of_matrices, "lr": 0.5, "max_grad_norm": 0.05},
        {"get_model": compiled},
    ],
    ids=["wide-state", "clipped-with-some-left-out", "compiled"],
)
def test_a_stop_changes_no_step_of_the_optimizer(run: Runtime, changes: dict[str, Any]) -> None:
    task = definition(**changes)
    run.write_task(task)
    for steps in (3, 8):
        assert run.run("mlp", steps=steps).codes == [0]
    stopped = run.losses("mlp")
    whole = definition("whole", **changes)
    run.write_task(whole)
    assert run.run("whole", steps=8).codes == [0]
    assert stopped == run.losses("whole")


class Noisy(torch.optim.SGD):
    """Adds noise to the weights, as Langevin dynamics does."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        super().step()
        for parameter in self.param_groups[0]["params"]:
            parameter.add_(torch.randn_like(parameter), alpha=0.01)


def test_ranks_with_the_same_weights_add_the_same_noise(run: Runtime) -> None:
    for name, ranks in (("one", 1), ("two", 2)):
        run.write_task(definition(name, optimizer_cls=Noisy))
        assert run.run(name, ranks=ranks, steps=6).codes == [0] * ranks
    assert closeness.ulps(run.losses("two"), run.losses("one")) < closeness.ACROSS


class Following(torch.optim.SGD):
    """Takes its step's size from all gradients that it gets."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        (group,) = self.param_groups
        group["size"] = float(sum(each.grad.pow(2).sum() for each in group["params"]))
        super().step()


def test_an_optimizer_that_follows_all_parameters_trains_no_part_of_a_model(run: Runtime) -> None:
    run.write_task(definition(optimizer_cls=Following))
    failed = run.run("mlp", "pipeline", ranks=2, steps=2).of("failed")
    named = [each for each in failed if "optimizer's `size` in group 0" in each["error"]]
    assert named and named[0]["kind"] == "not_applicable"
    assert not (run.task_dir("mlp") / "checkpoints").exists()


def by_place(parameters: Any, lr: float) -> torch.optim.Optimizer:
    groups = [{"params": [each], "lr": lr * 0.9**n} for n, each in enumerate(parameters)]
    return torch.optim.SGD(groups, lr=lr)


def with_matrices_apart(parameters: Any, lr: float) -> torch.optim.Optimizer:
    matrices = [each for each in parameters if each.dim() > 1]
    others = [each for each in parameters if each.dim() <= 1]
    return torch.optim.SGD([{"params": matrices, "weight_decay": 0.1}, {"params": others}], lr=lr)


@pytest.mark.parametrize(
    ("optimizer_cls", "is_refused"),
    [(by_place, True), (with_matrices_apart, False), (torch.optim.AdamW, False)],
)
def test_settings_by_place_are_not_those_of_a_part_of_the_model(
    optimizer_cls: Any, is_refused: bool
) -> None:
    task, module = definition(optimizer_cls=optimizer_cls), Mlp()
    whole = StandIns(module)
    module.layers[0]._parameters.clear()  # another stage holds it
    optimizer = build_optimizer(task, module, torch.device("cpu"))
    refusal = pytest.raises(NotApplicable, match=r"other settings .* \(`layers.1.weight`\)")
    with refusal if is_refused else contextlib.nullcontext():
        whole.expect_same_settings(task, module, optimizer)
