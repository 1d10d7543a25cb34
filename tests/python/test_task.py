"""Tasks: what is kept, what is refused, and how their functions are called."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from faces import make_task
from models import Mlp
from saturn import HParams, Task
from saturn.plain.names import is_path_safe, slug
from saturn.tasks import definition
from saturn.tasks.strategy import unwrap_parameters, wrap_parameters
from saturn.training.accumulation import Accumulation
from torch.optim.lr_scheduler import LinearLR, ReduceLROnPlateau


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: HParams(lr=0.1), ValueError, "epochs, steps and batch_count; none is given"),
        (
            lambda: HParams(0.1, epoch=3, width=8),
            ValueError,
            "none is given (`epoch` would go to get_model; did you mean `epochs`?)",
        ),
        (
            lambda: HParams(0.1, max_steps=3),
            ValueError,
            "none is given (`max_steps` would go to get_model; say HParams(steps=3))",
        ),
        (lambda: HParams(0.1, width=8), ValueError, "none is given"),
        (lambda: HParams(epochs=1), TypeError, "HParams needs `lr`"),
        (
            lambda: HParams(learning_rate=0.1, epochs=1),
            TypeError,
            "HParams needs `lr`: `learning_rate` is no argument of it; say HParams(lr=0.1)",
        ),
        (lambda: HParams(l_r=0.1, epochs=1), TypeError, "argument of it; did you mean `lr`?"),
        (
            lambda: HParams(0.1, 1, lr=0.1),
            TypeError,
            "`lr` is given to HParams twice: by its place, and by its name",
        ),
        (
            lambda: HParams(0.1, 1, None, None, 2),
            TypeError,
            "HParams takes 4 arguments without their names, and 5 are given",
        ),
        (lambda: make_task(nme="a"), TypeError, "has no argument `nme`; did you mean `name`?"),
        (lambda: Task(Mlp), TypeError, "needs `get_dataloader`, `loss_function` and `hparams`"),
        (lambda: HParams(0.1, 1, 2), ValueError, "given are epochs and batch_count"),
        (lambda: HParams(-1, epochs=1), ValueError, "lr is -1; it must be a positive number"),
        (lambda: HParams(float("nan"), epochs=1), ValueError, "lr is nan"),
        (lambda: HParams("1e-3", epochs=1), TypeError, "lr is a str; it must be a number"),
        (lambda: HParams(0.1, epochs=0), ValueError, "epochs is 0; it must be at least 1"),
        (lambda: HParams(0.1, batch_count=1.5), TypeError, "batch_count is a float"),
        (lambda: HParams(0.1, epochs=True), TypeError, "epochs is a bool"),
        (lambda: HParams(0.1, 1, optimizer_cls="adam"), TypeError, "such as torch.optim.SGD"),
        (
            lambda: HParams(0.1, 1, gradient_accumulation_steps=0),
            ValueError,
            "gradient_accumulation_steps is 0; it must be at least 1",
        ),
        (lambda: HParams(0.1, 1, max_grad_norm=0), ValueError, "max_grad_norm is 0; it must be"),
        (lambda: HParams(0.1, 1, max_grad_norm="1"), TypeError, "max_grad_norm is a str"),
        (
            lambda: HParams(0.1, 1, precision="fp8"),
            ValueError,
            "precision is 'fp8'; it must be one of `float32`, `bf16`",
        ),
        (lambda: HParams(0.1, 1, lr_scheduler=0.5), TypeError, "lr_scheduler is a float"),
        (
            lambda: HParams(0.1, 1, lr_scheduler=partial(ReduceLROnPlateau, patience=2)),
            ValueError,
            "lr_scheduler is ReduceLROnPlateau, which follows the loss",
        ),
        (lambda: make_task(get_model=Mlp()(torch.ones(1, 12))), TypeError, "get_model is a Tensor"),
        (lambda: make_task(get_model=Mlp()), TypeError, "get_model is a Mlp, a model; it must"),
        (lambda: make_task(get_dataloader=[1]), TypeError, "get_dataloader is a list"),
        (lambda: make_task(loss_function="mse"), TypeError, "loss_function is a str"),
        (lambda: make_task(loss_weight=1.0), TypeError, "loss_weight is a float"),
        (lambda: make_task(hparams={"lr": 1}), TypeError, "it must be saturn.HParams(lr=…, …)"),
        (lambda: make_task(name=""), ValueError, "name is ''; it must be a non-empty string"),
        (lambda: make_task(name="-x"), ValueError, "name is '-x', which a command takes for an "),
        (lambda: make_task(gpu_range=[]), ValueError, "gpu_range is empty"),
        (lambda: make_task(gpu_range=[1, 0]), ValueError, "gpu_range holds 0"),
        (lambda: make_task(gpu_range=[1.5]), ValueError, "gpu_range holds 1.5"),
        (lambda: make_task(hints=["is_transformer"]), TypeError, "hints is a list"),
        (lambda: make_task(seed=-1), ValueError, "seed is -1"),
        (lambda: make_task(seed="x"), ValueError, "seed is 'x'"),
    ],
)
def test_bad_arguments_are_refused_with_what_would_be_right(
    make: Callable[[], Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error) as caught:
        make()
    assert message in str(caught.value)


def test_a_task_keeps_what_it_was_given() -> None:
    task = make_task(gpu_range=range(4, 0, -2), hparams=HParams(0.1, 3, depth=5), save_dir="out")
    assert task.gpu_range == [2, 4] and task.hparams.kwargs == {"depth": 5}
    assert task.hparams.optimizer_cls is torch.optim.AdamW and task.save_dir == Path("out")
    options = {"gradient_accumulation_steps": 4, "max_grad_norm": 1, "precision": "bf16"}
    hparams = HParams(0.1, 3, depth=5, lr_scheduler=LinearLR, **options)
    defined = make_task(hparams=hparams).definition()
    assert hparams.kwargs == {"depth": 5} and defined.lr_scheduler is LinearLR
    assert {key: getattr(defined, key) for key in options} == options
    assert task.strategies == [] and task.selected_strategy is None
    assert make_task(gpu_range=3).gpu_range == [3]
    assert repr(task) == "Task('a', HParams(lr=0.1, epochs=3, depth=5))"
    names = {make_task(None).name for _ in range(5)}
    assert len(names) == 5 and all(name.startswith("task-") for name in names)


@pytest.mark.parametrize(
    ("function", "kwargs", "expected"),
    [
        (lambda: "none", {}, "none"),
        (lambda kwargs: kwargs, {"a": 1}, {"a": 1}),
        (lambda kwargs: kwargs, {}, {}),
        (lambda a, b=2: (a, b), {"a": 1}, (1, 2)),
        (lambda **all: all, {"a": 1, "b": 2}, {"a": 1, "b": 2}),
        (dict, {"a": 1}, {"a": 1}),
    ],
)
def test_get_model_is_called_as_it_wants_to_be(
    function: Any, kwargs: dict[str, Any], expected: Any
) -> None:
    assert definition.call_get_model(function, kwargs) == expected


@pytest.mark.parametrize(
    "parameters", [{"a": 1}, {}, {"parameters": 3}, [1, 2], "text", 7, {"parameters": 1, "b": 2}]
)
def test_parameters_survive_as_knobs(parameters: Any) -> None:
    knobs = wrap_parameters(parameters)
    assert all(isinstance(key, str) for key in knobs)
    assert unwrap_parameters(json.loads(json.dumps(knobs))) == parameters


@pytest.mark.parametrize("an_epoch", [None, 1, 2, 5, 6, 12])
def test_steps_are_as_many_batches_as_they_take(an_epoch: int | None) -> None:
    for steps, a_step in itertools.product(range(1, 30), range(1, 8)):
        counted = HParams(
            0.1, steps=steps, gradient_accumulation_steps=a_step, epoch_batches=an_epoch
        )
        assert f"steps={steps}" in repr(counted)
        batches = counted.batch_count
        accumulation = Accumulation(Task(len, list, len, counted).definition(), None)
        assert accumulation.steps(batches) == steps and accumulation.batches(steps) == batches
        # Counted as a loop would: step by step.
        done = 0
        for _ in range(steps):
            done += accumulation.next_step(done)
        assert done == batches


def test_names_are_mapped_as_the_runtime_maps_them() -> None:
    assert [slug(name, 3) for name in ("gpt2-lr1e-5", "_x", "a b", "é", "", "a" * 129)] == [
        "gpt2-lr1e-5",
        *["_task-3"] * 5,
    ]
    assert is_path_safe("A.b_c=d+e-f") and not is_path_safe("-a") and not is_path_safe("a\n")


def sized(width: int = 8, *, depth: int = 1) -> torch.nn.Module:
    return torch.nn.Linear(width, depth)


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ({"weight_decay": 0.1}, r"functools.partial\(torch.optim.AdamW, weight_decay=0.1\)"),
        ({"learning_rate": 0.1}, r"say HParams\(lr=0.1\)"),
        ({"max_steps": 100}, r"say HParams\(steps=100\)"),
        ({"batch_size": 8}, "it is the loader's"),
        ({"max_grad_nrom": 1.0}, "did you mean `max_grad_norm`"),
        ({"dept": 3}, "did you mean `depth`"),
    ],
)
def test_keywords_that_would_reach_get_model_by_mistake_are_refused(
    given: dict[str, Any], meant: str
) -> None:
    [name] = given
    with pytest.raises(TypeError, match=f"HParams has no keyword `{name}`.*sized.*{meant}"):
        make_task(get_model=sized, hparams=HParams(0.1, 1, width=4, **given))


def any_names(**kwargs: Any) -> torch.nn.Module:
    return sized(kwargs["width"])


def one_mapping(settings: dict[str, Any]) -> torch.nn.Module:
    return sized(settings["width"])


def named(width: int, weight_decay: float) -> torch.nn.Module:
    return sized(width)


def test_keywords_that_get_model_takes_are_its_own() -> None:
    make_task(get_model=named, hparams=HParams(0.1, 1, width=4, weight_decay=0.1))
    for get_model in (any_names, one_mapping):
        make_task(get_model=get_model, hparams=HParams(0.1, 1, width=4, dropout=0.1))


@pytest.mark.parametrize("get_model", [any_names, one_mapping])
def test_options_of_other_libraries_do_not_vanish_in_any_names(
    get_model: Callable[..., Any],
) -> None:
    with pytest.raises(
        TypeError,
        match=r"no keyword `weight_decay`.* takes it only as it takes any name; it is the "
        r"optimizer's: .*; or, if it is the model's, HParams\(model_kwargs=\{'weight_decay': 0.1\}",
    ):
        make_task(get_model=get_model, hparams=HParams(0.1, 1, width=4, weight_decay=0.1))
    hparams = HParams(0.1, 1, width=4, model_kwargs={"weight_decay": 0.1, "steps": 3, "lr": 7})
    task = make_task(get_model=get_model, hparams=hparams)
    kwargs = {"width": 4, "weight_decay": 0.1, "steps": 3, "lr": 7}
    assert task.definition().kwargs == kwargs
    assert task.parameters == kwargs | {"lr": 0.1}
    assert repr(hparams) == (
        "HParams(lr=0.1, epochs=1, width=4, "
        "model_kwargs={'weight_decay': 0.1, 'steps': 3, 'lr': 7})"
    )


def test_model_kwargs_are_checked() -> None:
    with pytest.raises(TypeError, match="`width` is given twice: as a keyword, and in model_kw"):
        HParams(0.1, 1, width=4, model_kwargs={"width": 5})
    for wrong, words in ((["width"], "model_kwargs is a list"), ({1: 2}, "model_kwargs holds 1")):
        with pytest.raises(TypeError, match=words):
            HParams(0.1, 1, model_kwargs=wrong)
    with pytest.raises(TypeError, match=r"model_kwargs holds `dept`, but sized.*`depth`"):
        make_task(get_model=sized, hparams=HParams(0.1, 1, model_kwargs={"dept": 3}))
