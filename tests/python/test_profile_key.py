"""Which tasks share their trials, and which modules the warm parent imports."""

from __future__ import annotations

import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from faces import make_task
from harness import PYTHON_DIR
from models import Mlp, shuffled_loader
from saturn import HParams
from saturn.preload import preload_entries
from saturn.profile_key import profile_key


def test_only_what_decides_performance_is_in_the_profile_key() -> None:
    one = make_task("one", hparams=HParams(0.1, batch_count=5), seed=1)
    scheduler = torch.optim.lr_scheduler.LinearLR
    same = make_task("two", hparams=HParams(0.2, epochs=7, lr_scheduler=scheduler), seed=2)
    assert profile_key(one) == profile_key(same)
    others = [
        make_task(get_model=partial(Mlp, 4)),
        make_task(get_dataloader=lambda: shuffled_loader()),
        make_task(loss_function=torch.nn.MSELoss()),
        make_task(hparams=HParams(0.1, batch_count=5, depth=9)),
        make_task(hparams=HParams(0.1, batch_count=5, optimizer_cls=torch.optim.SGD)),
        make_task(hparams=HParams(0.1, batch_count=5, gradient_accumulation_steps=2)),
        make_task(hparams=HParams(0.1, batch_count=5, precision="bf16")),
        make_task(hparams=HParams(0.1, batch_count=5, max_grad_norm=1.0)),
        make_task(hints={"is_transformer": True}),
        make_task(gpu_range=[1]),
    ]
    keys = {profile_key(task) for task in (one, *others)}
    assert len(keys) == 1 + len(others)


KEY_SCRIPT = """
import torch
from saturn import HParams, Task
from saturn.profile_key import profile_key

class Model(torch.nn.Linear):
    pass

task = Task(lambda: Model(2, 2), lambda: [], torch.nn.MSELoss(), HParams(0.1, 1))
print(profile_key(task))
"""


def test_profile_keys_are_the_same_in_another_process(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(KEY_SCRIPT)
    keys = {
        subprocess.run(
            [sys.executable, tmp_path / "script.py"],
            env={"PYTHONPATH": str(PYTHON_DIR), "PYTHONHASHSEED": seed},
            check=True,
            capture_output=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(keys) == 1


def imports_inside() -> Any:
    from sklearn.datasets import load_digits

    return load_digits


def test_installed_modules_of_the_functions_are_preloaded() -> None:
    import numpy as np

    task = make_task(get_model=lambda: np.zeros(1))
    entries = preload_entries([task.definition().dumps()], [imports_inside])
    assert entries == ["numpy", "sklearn.datasets", "sklearn.datasets:load_digits"]


def test_the_text_of_the_users_own_modules_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    keys = []
    for width in (2, 2, 3):
        text = f"import torch\ndef load_model():\n    return torch.nn.Linear({width}, 2)\n"
        (tmp_path / "my_models.py").write_text(text)
        monkeypatch.delitem(sys.modules, "my_models", raising=False)
        import my_models  # type: ignore[import-not-found]

        keys.append(profile_key(make_task(get_model=my_models.load_model)))
    assert keys[0] == keys[1] != keys[2]
