"""The knob `compile`: the same training, names as they were, compiling told apart from steps."""

from __future__ import annotations

import os
import stat
from typing import Any

import closeness
import pytest
import reference
from harness import Runtime
from model_kinds import loss_of, task_of
from models import Mlp, definition
from saturn.rank.exceptions import NotApplicable, TaskError
from saturn.techniques import Setting
from saturn.techniques.ddp import Ddp
from saturn.techniques.fsdp import Fsdp
from saturn.techniques.model.compiled import compile_layers

pytestmark = pytest.mark.slow

#: Inductor compiles for minutes where nothing is kept of earlier runs: `make test-nightly` does.
IS_NIGHTLY = "SATURN_TEST_INDUCTOR" in os.environ
COMPILED = {"compile": True if IS_NIGHTLY else "aot_eager"}


def test_compiled_layers_train_alike_through_moves(run: Runtime) -> None:
    task = task_of("gpt2" if IS_NIGHTLY else "mlp", dropout=0.0)
    expected, _ = reference.train(task, 6, loss_of=loss_of(task))
    run.write_task(task)
    moves: list[tuple[str, int, int, dict[str, Any]]] = [
        ("ddp", 1, 2, {**COMPILED, "activation_checkpointing": True}),
        ("fsdp", 2, 4, COMPILED),
        ("ddp", 1, 6, {}),
    ]
    for technique, ranks, steps, knobs in moves:
        result = run.run(task.name, technique, ranks=ranks, steps=steps, knobs=knobs)
        assert result.codes == [0] * ranks, result.logs
    assert closeness.ulps(run.losses(task.name), expected) < closeness.ACROSS
    # Kept where no other user can put anything.
    assert any((run.run_dir / "compiled").rglob("*.so")) == IS_NIGHTLY
    assert stat.S_IMODE(run.run_dir.stat().st_mode) & 0o022 == 0


def test_layers_are_compiled_and_nothing_else() -> None:
    module = Mlp()
    names = list(module.state_dict())
    compile_layers(module, {"compile": "eager"})
    assert all("forward" in vars(layer) for layer in module.layers)
    assert list(module.state_dict()) == names and "forward" not in vars(module)
    with pytest.raises(NotApplicable, match="compile: Invalid backend: 'none such'"):
        compile_layers(Mlp(), {"compile": "none such"})
    compile_layers(unchanged := Mlp(), {})
    assert "forward" not in vars(unchanged.layers[0])


def test_a_trial_tells_compiling_from_steps(run: Runtime) -> None:
    task = definition(knobs={"ddp": {"compile": [COMPILED["compile"]]}})
    run.write_task(task)
    trial = run.run(task.name, "ddp", kind="trial").one("trial")
    assert trial["outcome"]["outcome"] == "measured", trial
    assert trial["knobs"] == COMPILED
    # Compiling takes seconds, a step of this model a millisecond.
    assert trial["outcome"]["step_s"] < 0.5


def test_it_is_measured_where_the_task_asks_for_it() -> None:
    def setting(**hints: Any) -> Setting:
        return Setting(gpus=2, device_kind="cpu", hints=hints)

    assert Ddp().knob_sets(Mlp(), setting()) == [{}]
    assert Ddp().knob_sets(Mlp(), setting(compile=True)) == [{}, {"compile": True}]
    assert Fsdp().knob_sets(Mlp(), setting(compile=True))[-1] == {"compile": True}
    with pytest.raises(TaskError, match="hints\\['compile'\\] is 3; it must be True or False"):
        Ddp().knob_sets(Mlp(), setting(compile=3))
