"""Which tasks share their trials, and which modules the warm parent imports."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from faces import make_task
from models import Mlp, shuffled_loader
from saturn import HParams
from saturn.runs import request
from saturn.runs.preload import preload_entries
from saturn.tasks.profile_key import profile_key
from warm_parent import PYTHON_DIR


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
import dataclasses
import threading
from collections.abc import Callable
from functools import partial

import torch
from saturn import HParams, Task
from saturn.tasks.profile_key import profile_key

WIDTH = 6
LOCK = threading.Lock()


@dataclasses.dataclass
class Config:
    width: int = WIDTH
    kinds: frozenset = frozenset({"one", "two", "three"})


class Model(torch.nn.Linear):
    \"\"\"Refers to itself, as models do.\"\"\"

    def __init__(self, width):
        super().__init__(width, 2)
        self.kind = Model

    def forward(self, inputs):
        return super().forward(inputs)


def length():
    return 7


def loader(batch_size):
    import numpy
    from layers import LENGTH

    words = {"these", "are", "in", "no", "order"}
    data = [torch.ones(LENGTH + length()) for word in sorted(words) if word not in {"a", "b"}]
    return torch.utils.data.DataLoader(data, batch_size=batch_size)


def get_model(config=Config()):
    return Model(config.width)


def task(name="task", lr=0.1, steps=1, batch_size=4, optimizer_cls=torch.optim.SGD, **more):
    return Task(
        get_model, partial(loader, batch_size), torch.nn.MSELoss(),
        HParams(lr, batch_count=steps, optimizer_cls=optimizer_cls, **more), name=name,
    )
"""
LAYERS = "LENGTH = 5\n"
#: Further lines of the script, and whether they leave the key as it is.
CHANGES = {
    "another name": ("made = task(name='other')", True),
    "another learning rate": ("made = task(lr=0.5)", True),
    "more steps": ("made = task(steps=70)", True),
    "another batch size": ("made = task(batch_size=5)", False),
    "another optimizer": ("made = task(optimizer_cls=torch.optim.Adam)", False),
    "another precision": ("made = task(precision='bf16')", False),
    "a keyword of the model": ("made = task(config=9)", False),
}
#: Other texts of the script, and whether they leave the key as it is.
EDITS = {
    "lines that move": (("WIDTH = 6", "\n\n\nWIDTH = 6  # as ever"), True),
    "a function by another name": (("def get_model(", "def make(): pass\n\ndef get_model("), True),
    "a wider layer": (("WIDTH = 6", "WIDTH = 7"), False),
    "a longer sequence": (("return 7", "return 8"), False),
    "another class body": (("super().__init__(width, 2)", "super().__init__(width, 3)"), False),
    "another element of a set": (("three", "four"), False),
}


#: Runs scripts as a person would, one after the other, each in its own directory.
RUN_SCRIPTS = """
import os, runpy, sys
for directory in sys.argv[1:]:
    os.chdir(directory)
    sys.modules.pop("layers", None)
    sys.path[0] = directory
    runpy.run_path("script.py", run_name="__main__")
"""


def keys_in(directory: Path, cases: list[tuple[str, str, str]], seed: str) -> list[str]:
    """The keys that scripts print in a process of their own: (script, last line, layers.py)."""
    directories = [directory / f"case {number}" for number in range(len(cases))]
    for each, (script, last, layers) in zip(directories, cases, strict=True):
        each.mkdir(parents=True)
        (each / "layers.py").write_text(layers)
        (each / "script.py").write_text(f"{script}\n{last}\nprint(profile_key(made))\n")
    ended = subprocess.run(
        [sys.executable, "-c", RUN_SCRIPTS, *directories],
        env={"PYTHONPATH": str(PYTHON_DIR), "PYTHONHASHSEED": seed},
        check=True,
        capture_output=True,
        text=True,
    )
    return ended.stdout.split()


def test_a_key_is_of_the_content_alone_in_every_process_and_place(tmp_path: Path) -> None:
    as_ever = (KEY_SCRIPT, "made = task()", LAYERS)
    cases = {"nothing": (as_ever, True)}
    for what, (last, same) in CHANGES.items():
        cases[what] = ((KEY_SCRIPT, last, LAYERS), same)
    for what, (edit, same) in EDITS.items():
        assert edit[0] in KEY_SCRIPT
        cases[what] = ((KEY_SCRIPT.replace(*edit), "made = task()", LAYERS), same)
    for what, layers, same in (
        ("what a function imports when it is called", "LENGTH = 55\n", False),
        ("a comment there", "# Nothing else.\nLENGTH = (5)\n", True),
    ):
        cases[what] = ((KEY_SCRIPT, "made = task()", layers), same)
    (key,) = keys_in(tmp_path / "first", [as_ever], "1")
    assert len(key) == 64
    others = keys_in(tmp_path / "second", [case for case, _ in cases.values()], "2")
    judged = zip(cases.items(), others, strict=True)
    assert [what for (what, (_, same)), other in judged if (other == key) != same] == []


def imports_inside() -> Any:
    from sklearn.datasets import load_digits

    return load_digits


def imports_a_neighbour() -> Any:
    from .numpy import zeros  # type: ignore[import-not-found]  # the caller's own `numpy`

    return zeros


def test_installed_modules_of_the_functions_are_preloaded() -> None:
    import numpy as np

    task = make_task(get_model=lambda: np.zeros(1))
    entries = preload_entries([task.definition().dumps()], [imports_inside])
    assert entries == ["numpy", "sklearn.datasets", "sklearn.datasets:load_digits"]
    assert preload_entries([], [imports_a_neighbour]) == []


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


def test_what_own_modules_import_counts_and_is_only_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    package = tmp_path / "my_package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "models.py").write_text(
        "from . import parts\nimport numpy\ndef build():\n    from .late import WIDTH\n"
    )
    (package / "parts.py").write_text("DEPTH = 1\n")
    (package / "late.py").write_text("WIDTH = 1\nraise RuntimeError('it is never imported')\n")
    import my_package.models  # type: ignore[import-not-found]

    def key() -> str:
        return profile_key(make_task(get_model=my_package.models.build))

    keys = [key()]
    for name in ("parts.py", "late.py", "__init__.py"):
        assert key() == keys[-1]
        (package / name).write_text("CHANGED = 2\n")
        keys.append(key())
    assert len(set(keys)) == 4


def test_tensors_arrays_and_odd_values_count_by_what_is_in_them() -> None:
    import numpy as np

    def keys(make: Callable[[], Any], other: Callable[[], Any]) -> tuple[str, str, str]:
        def key(value: Any) -> str:
            return profile_key(make_task(get_model=lambda: value))

        return key(make()), key(make()), key(other())

    nested: list[Any] = [1]
    nested.append(nested)
    for make, other in (
        (lambda: torch.arange(9.0), lambda: torch.arange(9.0) + 1),
        (lambda: torch.zeros(3), lambda: torch.zeros(3, requires_grad=True)),
        (lambda: torch.zeros(3, dtype=torch.bfloat16), lambda: torch.zeros(3)),
        (lambda: np.arange(6).reshape(2, 3), lambda: np.arange(6).reshape(3, 2)),
        (lambda: np.array(["a", None], object), lambda: np.array(["b", None], object)),
        (
            lambda: torch.nn.Linear(2, 2, device="meta"),
            lambda: torch.nn.Linear(3, 2, device="meta"),
        ),
        (lambda: {"a", "b", 1}, lambda: {"a", "b", 2}),
        (lambda: bytearray(b"abc"), lambda: bytearray(b"abd")),
        (lambda: list(range(100)), lambda: [*range(99), 7]),
        (lambda: (True, 1.0, 1, None), lambda: (1, 1.0, 1, None)),
        (lambda: torch.float32, lambda: torch.float16),
        (lambda: Path("a"), lambda: Path("b")),
        (lambda: nested, lambda: [1, [1]]),
    ):
        one, same, another = keys(make, other)
        assert one == same != another


def test_functions_that_carry_much_are_told_of_once(capsys: pytest.CaptureFixture[str]) -> None:
    corpus = torch.zeros(40_000_000)
    tasks = [make_task(f"t{number}", get_dataloader=lambda: corpus) for number in range(3)]
    packed = request.pack(tasks)
    assert len({each.key for each in packed}) == 1
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert "`t0` and 2 more carry a Tensor of 160 MB in `corpus`" in told
    request.pack([make_task("small")])
    assert capsys.readouterr().err == ""
