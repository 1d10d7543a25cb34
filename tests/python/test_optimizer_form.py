"""Which form of torch's optimizers steps: the fused one beside an accelerator, if that is open."""

from __future__ import annotations

import pickle
import re
from functools import partial
from typing import Any

import closeness
import pytest
import reference
import torch
from harness import Runtime
from model_kinds import task_of
from saturn.trainers.optimizer import read
from saturn.training.optimizer_form import FormChosen, choose_form, suit_gradients
from torch import nn
from torch.optim import SGD, Adagrad, Adam, AdamW, NAdam
from torch.optim.lr_scheduler import LambdaLR

FORMS: list[tuple[Any, bool | None]] = [
    (AdamW, True),
    (partial(Adam, weight_decay=0.1), True),
    (partial(SGD, momentum=0.9), True),
    (Adagrad, True),
    (lambda parameters, lr: AdamW(parameters, lr=lr), True),
    (partial(AdamW, foreach=False), None),
    (partial(AdamW, fused=False), False),
    (FormChosen(AdamW), None),
    (type("Own", (AdamW,), {}), None),
]


def taken(make: Any, parameters: list[nn.Parameter], **options: Any) -> torch.optim.Optimizer:
    """The optimizer after five steps, on gradients that are the same each time."""
    optimizer = choose_form(make(parameters, lr=0.1), make, **options)
    for number in range(5):
        for parameter in parameters:
            parameter.grad = torch.full_like(parameter, 0.5 - 0.2 * number)
        suit_gradients(optimizer)
        optimizer.step()
    return optimizer


def two() -> list[nn.Parameter]:
    return [nn.Parameter(torch.linspace(-1.0, 1.0, 64)), nn.Parameter(torch.tensor(0.5))]


@pytest.mark.parametrize(("make", "expected"), FORMS)
def test_the_fused_form_is_taken_where_the_task_leaves_it_open(
    make: Any, expected: bool | None
) -> None:
    found, plain = two(), two()
    optimizer = taken(make, found, on_accelerator=True)
    assert optimizer.param_groups[0]["fused"] is expected
    taken(make, plain, on_accelerator=False)
    with torch.no_grad():
        assert closeness.ulps(found[0], plain[0]) < closeness.SUMMED


def test_on_cpu_slots_and_for_what_has_no_fused_form_nothing_changes() -> None:
    assert taken(AdamW, two(), on_accelerator=False).param_groups[0]["fused"] is None
    assert "fused" not in taken(NAdam, two(), on_accelerator=True).param_groups[0]
    differentiable = choose_form(AdamW(two(), differentiable=True), AdamW, on_accelerator=True)
    assert differentiable.param_groups[0]["fused"] is None
    narrow = [nn.Parameter(torch.ones(3, dtype=torch.bfloat16))]
    assert taken(AdamW, narrow, on_accelerator=True).param_groups[0]["fused"] is None


@pytest.mark.filterwarnings("ignore:Sparse invariant checks")
@pytest.mark.parametrize("make", [SGD, Adagrad])
def test_sparse_gradients_are_still_taken(make: Any) -> None:
    table = nn.Embedding(4, 2, sparse=True)
    before = table.weight.detach().clone()
    optimizer = choose_form(make(table.parameters(), lr=0.1), make, on_accelerator=True)
    assert optimizer.param_groups[0]["fused"]
    table(torch.tensor([1])).sum().backward()
    suit_gradients(optimizer)
    optimizer.step()
    assert (table.weight != before).any(dim=1).tolist() == [False, True, False, False]


def test_a_trainers_optimizer_keeps_its_form_and_a_modules_may_be_fused() -> None:
    model = nn.Linear(2, 2)
    for is_chosen, expected in ((True, None), (False, True)):
        reading = read(AdamW(model.parameters()), model, form_is_chosen=is_chosen)
        made_by = pickle.loads(pickle.dumps(reading.optimizer_cls))  # as it travels to the workers
        optimizer = choose_form(made_by(two(), lr=0.1), made_by, on_accelerator=True)
        assert optimizer.param_groups[0]["fused"] is expected


def says_its_form(optimizer: torch.optim.Optimizer) -> LambdaLR:
    """A scheduler that prints the form of each step."""

    def factor(done: int) -> float:
        if done:
            on = sorted({state["step"].device.type for state in optimizer.state.values()})
            print(f"form {optimizer.param_groups[0]['fused']} counts on {','.join(on)}")
        return 1.0

    return LambdaLR(optimizer, factor)


#: Technique, ranks, knobs, kind of device; whether it is the fused form, and where counts of steps
#: are. Parameters that are numbers stay on the device under `cpu_offload`.
MOVES: list[tuple[str, int, dict[str, Any], str, tuple[str, str]]] = [
    ("ddp", 1, {}, "cuda", ("True", "cuda")),
    ("ddp", 2, {}, "cpu", ("None", "cpu")),
    ("fsdp", 2, {"cpu_offload": True}, "cuda", ("True", "cpu,cuda")),
    ("fsdp", 2, {}, "cuda", ("True", "cuda")),
    ("offload", 1, {}, "cuda", ("True", "cpu")),
    ("fsdp", 2, {}, "cpu", ("None", "cpu")),
]


def test_a_task_moves_between_the_forms_and_trains_as_plain_torch_does(gpu_run: Runtime) -> None:
    # The model has a parameter that is a number, whose state is as large as its count of steps.
    optimizer_cls = partial(AdamW, eps=1e-3)
    task = task_of(
        "scaled",
        optimizer_cls=optimizer_cls,
        lr_scheduler=says_its_form,
        batch_count=2 * len(MOVES),
    )
    gpu_run.write_task(task)
    for number, (technique, ranks, knobs, device_kind, expected) in enumerate(MOVES):
        options = {"ranks": ranks, "knobs": knobs, "device_kind": device_kind}
        result = gpu_run.run(task.name, technique, steps=2 * number + 2, **options)
        assert result.codes == [0] * ranks, result.logs
        found = re.findall(r"form (\w+) counts on (\S+)", result.logs)
        assert found and set(found) == {expected}, (technique, found)
    expected_losses, _ = reference.train(task, 2 * len(MOVES))
    assert closeness.ulps(gpu_run.losses(task.name), expected_losses) < closeness.ACROSS
