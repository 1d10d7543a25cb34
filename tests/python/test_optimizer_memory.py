"""Optimizers whose training a stop, or a pipeline, would change without a word are refused."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import closeness
import in_process
import pytest
import reference
import torch
from harness import Runtime
from models import definition
from saturn.rank.exceptions import TaskError
from saturn.techniques.ddp import Ddp


class SlowWeights(torch.optim.SGD):
    """Every third step goes half of the way back to where the last three began."""

    def __init__(self, parameters: Any, lr: float) -> None:
        super().__init__(parameters, lr=lr)
        self.own = [p for group in self.param_groups for p in group["params"]]
        self.slow = [p.detach().clone() for p in self.own]
        self.steps = 0

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        result = super().step(closure)
        self.steps += 1
        for parameter, slow in zip(self.own, self.slow, strict=True):
            if self.steps % 3 == 0:
                parameter.copy_(slow.lerp_(parameter, 0.5))
        return result


class InAttribute(torch.optim.SGD):
    """Keeps its momentum by parameter, and not in its state."""

    def __init__(self, parameters: Any, lr: float) -> None:
        super().__init__(parameters, lr=lr)
        self.momenta: dict[Any, torch.Tensor] = {}

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        for group in self.param_groups:
            for p in group["params"]:
                self.momenta[p] = self.momenta.get(p, 0.0) * 0.9 + p.grad
                p.sub_(self.momenta[p], alpha=group["lr"])


class Wrapper(torch.optim.Optimizer):
    """Steps another optimizer, whose state is that one's alone."""

    def __init__(self, parameters: Any, lr: float) -> None:
        super().__init__(list(parameters), {"lr": lr})
        self.inner = torch.optim.AdamW(self.param_groups, lr=lr)

    def step(self, closure: Any = None) -> Any:
        return self.inner.step(closure)


class SharingWrapper(Wrapper):
    def __init__(self, parameters: Any, lr: float) -> None:
        super().__init__(parameters, lr)
        self.state = self.inner.state
        self.name = "constant"


@pytest.mark.parametrize(
    ("optimizer", "kept"), [(SlowWeights, "steps"), (InAttribute, "momenta"), (Wrapper, "inner")]
)
def test_what_no_checkpoint_holds_is_refused(optimizer: Any, kept: str, tmp_path: Path) -> None:
    task = definition(optimizer_cls=optimizer)
    with pytest.raises(TaskError, match=f"a {optimizer.__name__}, keeps `{kept}` outside of its"):
        in_process.train(task, Ddp(), tmp_path, steps=1)


def test_a_wrapper_that_shares_its_state_trains(tmp_path: Path) -> None:
    task = definition(optimizer_cls=SharingWrapper)
    losses, _ = in_process.train(task, Ddp(), tmp_path, steps=3)
    assert losses == reference.train(task, 3)[0]


class Limiting(torch.optim.SGD):
    """Limits the norm of all gradients itself, as some optimizers for large batches do."""

    def step(self, closure: Any = None) -> Any:
        own = [p for group in self.param_groups for p in group["params"]]
        torch.nn.utils.clip_grad_norm_(own, 0.1)
        return super().step(closure)


class OneByOne(torch.optim.SGD):
    """An optimizer that is not torch's, and steps each parameter by itself."""


@pytest.mark.parametrize("optimizer", [Limiting, OneByOne])
def test_a_pipeline_refuses_what_steps_parameters_by_each_other(
    optimizer: Any, run: Runtime
) -> None:
    task = definition(optimizer_cls=optimizer, lr=0.3)
    run.write_task(task)
    split = partial(run.run, task.name, "pipeline", ranks=2, knobs={"microbatches": 2})
    result = split(steps=4)
    if optimizer is Limiting:
        failed = result.of("failed")[0]
        assert failed["kind"] == "not_applicable"
        assert "a Limiting, steps each parameter by all gradients" in failed["error"]
        assert run.run(task.name, "fsdp", ranks=2, steps=4).codes == [0, 0]
    else:
        assert result.codes == [0, 0], result.logs
    expected, _ = reference.train(task, 4)
    assert closeness.ulps(run.losses(task.name), expected) < closeness.ACROSS
