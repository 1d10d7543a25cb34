"""A loss that gets the model in its hands, and settings of the optimizer by name."""

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
from models import Mlp, definition
from saturn import Evaluation, HParams, Task
from saturn.errors import InvalidInput
from saturn.techniques.ddp import Ddp
from saturn.techniques.interface import NotApplicable, Setting
from saturn.techniques.pipeline.technique import Pipeline
from saturn.training.optimizer import build_optimizer


def twice(model: Any, batch: Any) -> torch.Tensor:
    """The model is called two times, as for consistency losses."""
    inputs, labels = batch
    one, other = model(inputs), model(-inputs)
    loss_of = torch.nn.functional.cross_entropy
    return loss_of(one, labels) + loss_of(one + other, labels)


STEP = {"loss_function": None, "training_step": twice}


def test_it_computes_the_loss_on_one_device_to_the_last_bit(tmp_path: Path) -> None:
    task = definition(**STEP)
    expected, trained = reference.train(task, 5, loss_of=twice)
    losses, weights = in_process.train(task, Ddp(), tmp_path, steps=5)
    assert losses == expected
    for name, weight in trained.state_dict().items():
        assert torch.equal(weights[name], weight), name


def test_it_computes_the_loss_on_every_device_of_a_gang(run: Runtime) -> None:
    task = definition(gradient_accumulation_steps=2, **STEP)
    expected, _ = reference.train(task, 4, loss_of=twice)
    run.write_task(task)
    for technique, steps in (("ddp", 2), ("fsdp", 4)):
        result = run.run(task.name, technique, ranks=2, steps=steps)
        assert result.codes == [0, 0], result.logs
    assert closeness.ulps(run.losses(task.name), expected) < closeness.ACROSS


def test_a_pipeline_has_no_whole_model_to_give_it() -> None:
    setting = Setting(
        gpus=2, device_kind="cpu", hints={}, model_caller=definition(**STEP).model_caller
    )
    reason = Pipeline().reason_against(Mlp(), setting)
    assert reason is not None and reason.startswith("training_step calls the model by itself")


def test_a_technique_that_asks_for_the_models_inputs_is_told_what_to_ask_for(
    tmp_path: Path,
) -> None:
    class Former(Ddp):
        def parallelise(self, module: Any, gang: Any, knobs: Any) -> Any:
            parallel = super().parallelise(module, gang, knobs)
            parallel.forward_backward = lambda batch, objective, share: objective.inputs(batch)
            return parallel

    with pytest.raises(NotApplicable, match=r"must ask for `objective.loss_of\(model, batch\)`"):
        in_process.train(definition(**STEP), Former(), tmp_path, steps=1)


def test_two_losses_are_one_too_many() -> None:
    with pytest.raises(ValueError, match="both loss_function and training_step are given"):
        Task(Mlp, list, torch.nn.functional.mse_loss, HParams(1, epochs=1), training_step=twice)


@pytest.mark.parametrize("evaluate", [Evaluation(list, dict), (list, dict)])
def test_an_evaluation_by_saturn_can_not_call_its_model(evaluate: Any) -> None:
    options = {"training_step": twice, "evaluate": evaluate}
    with pytest.raises(InvalidInput, match="but training_step calls the model by itself; give"):
        Task(Mlp, list, None, HParams(1, epochs=1), **options)


def test_parameters_are_in_the_first_group_that_names_them() -> None:
    groups = [{"params": ["*.bias"], "weight_decay": 0.0}, {"params": ["layers.0.*"], "lr": 0.5}]
    task = definition(parameter_groups=groups, optimizer_cls=partial(torch.optim.AdamW), lr=0.1)
    model = Mlp()
    optimizer = build_optimizer(task, model, torch.device("cpu"))
    names = {parameter: name for name, parameter in model.named_parameters()}
    rest, biases, first = (
        {names[parameter] for parameter in group["params"]} for group in optimizer.param_groups
    )
    assert first == {"layers.0.weight"}
    assert biases == {name for name in names.values() if name.endswith(".bias")}
    assert rest == set(names.values()) - biases - first
    settings = [(group["lr"], group["weight_decay"]) for group in optimizer.param_groups]
    assert settings == [(0.1, 0.01), (0.1, 0.0), (0.5, 0.01)]


def test_groups_keep_their_settings_through_moves(run: Runtime) -> None:
    groups = [{"params": ["*.bias"], "lr": 0.3}, {"params": ["layers.1.*"], "lr": 0.0}]
    sgd = partial(torch.optim.SGD, momentum=0.9)
    task = definition(parameter_groups=groups, optimizer_cls=sgd, lr=0.05)
    run.write_task(task)
    for technique, steps in (("fsdp", 2), ("pipeline", 4)):
        knobs = {"microbatches": 2} if technique == "pipeline" else {}
        result = run.run(task.name, technique, ranks=2, steps=steps, knobs=knobs)
        assert result.codes == [0, 0], result.logs

    def grouped(parameters: Any, lr: float) -> torch.optim.Optimizer:
        own = {id(p): name for name, p in Mlp().named_parameters()}
        assert len(own) == len(parameters)
        names = [name for name, _ in Mlp().named_parameters()]
        rates = [0.3 if "bias" in n else 0.0 if n.startswith("layers.1.") else lr for n in names]
        each = [{"params": [p], "lr": r} for p, r in zip(parameters, rates, strict=True)]
        return torch.optim.SGD(each, lr=lr, momentum=0.9)

    expected, _ = reference.train(definition(optimizer_cls=grouped, lr=0.05), 4)
    assert closeness.ulps(run.losses(task.name), expected) < closeness.ACROSS


def test_names_that_match_no_parameter_are_told_once(run: Runtime) -> None:
    groups = [
        {"params": ["*.bias", "*.bais"], "weight_decay": 0.0},
        # Every rank of a pipeline holds a part of the layers.
        {"params": ["layers.0.*", "layers.2.weight", "head.scale"], "lr": 0.5},
    ]
    run.write_task(definition(parameter_groups=groups))
    told = []
    for technique, steps in (("pipeline", 2), ("fsdp", 4)):
        knobs = {"microbatches": 2} if technique == "pipeline" else {}
        result = run.run("mlp", technique, ranks=2, steps=steps, knobs=knobs)
        assert result.codes == [0, 0], result.logs
        told += [note["text"] for note in result.of("note") if "parameter_groups" in note["text"]]
    assert told == [
        "`parameter_groups` names `*.bais`, `head.scale`, which no parameter of the model has: "
        "no setting holds for such a name"
    ]


@pytest.mark.parametrize("wrong", [{"params": ["a"]}, ["a"], [{"params": "a"}], [{"lr": 1.0}]])
def test_groups_without_names_are_refused(wrong: Any) -> None:
    with pytest.raises(TypeError, match="parameter_groups"):
        HParams(1, epochs=1, parameter_groups=wrong)
