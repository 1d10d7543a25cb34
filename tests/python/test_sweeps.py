"""Sweep files: what they mean, and what is wrong with them."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import pytest
import saturn
from saturn import verbs
from saturn.errors import InvalidInput
from saturn.plain.say import say_if_long
from saturn.scripts.task import ScriptTask
from saturn.sweeps import scripts, sweep
from saturn.tasks.task import Task

COUNTING = Path(__file__).parent / "counting_script.py"
SATURN = Path(sys.executable).with_name("saturn")


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "train.py").write_text(COUNTING.read_text())
    monkeypatch.chdir(tmp_path)
    return tmp_path


def read(directory: Path, text: str) -> sweep.Sweep:
    (directory / "sweep.toml").write_text(text)
    return sweep.read(directory / "sweep.toml")


def commands(found: sweep.Sweep) -> dict[str, str]:
    assert all(isinstance(task, ScriptTask) for task in found.tasks)
    return {task.name: " ".join(task.definition().args) for task in found.tasks}


def test_grids_lists_and_conditions(directory: Path) -> None:
    found = read(
        directory,
        """
        script = "train.py"
        args = ["data", "--optim.lr={lr}"]
        gpus = [1, 2]
        [grid]
        lr = [0.1, 0.2]
        bf16 = [true, false]
        [[list]]
        size = "small"
        [[list]]
        size = "large"
        betas = [0.9, 0.99]
        [[when]]
        if = { size = "large", bf16 = [false] }
        skip = true
        [[when]]
        if = { size = "small", lr = 0.2 }
        grid = { extra = [1, 2], bf16 = true }
        """,
    )
    assert commands(found) == {
        "size=small-lr=0.1-bf16=true": "data --optim.lr=0.1 --size small --bf16",
        "size=small-lr=0.1-bf16=false": "data --optim.lr=0.1 --size small",
        "size=small-lr=0.2-bf16=true-extra=1": "data --optim.lr=0.2 --size small --bf16 --extra 1",
        "size=small-lr=0.2-bf16=true-extra=2": "data --optim.lr=0.2 --size small --bf16 --extra 2",
        "size=large-lr=0.1-bf16=true-betas=0.9_0.99": "data --optim.lr=0.1 --size large "
        "--betas 0.9 0.99 --bf16",
        "size=large-lr=0.2-bf16=true-betas=0.9_0.99": "data --optim.lr=0.2 --size large "
        "--betas 0.9 0.99 --bf16",
    }
    assert {tuple(task.gpu_range or []) for task in found.tasks} == {(1, 2)}
    assert found.tasks[0].parameters == {"size": "small", "lr": 0.1, "bf16": True}
    assert found.tasks[-1].parameters["betas"] == "0.9_0.99"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('scirpt = "train.py"', "there is no `scirpt`; did you mean `script`?"),
        ("steps = 3", "the file has neither of `script` and `function`"),
        ('script = "tran.py"', "there is no script .*/tran.py; did you mean `train.py`"),
        ('script = "train.py"\n[gird]', "there is no `gird`; did you mean `grid`?"),
        ('script = "train.py"\n[run]\ndevice = 1', "no `run.device`; did you mean `devices`?"),
        ('script = "train.py"\n[run]\ndevices = "2"', "`run.devices` is '2'; it must be a whole"),
        ('script = "train.py"\n[run]\nstopper = "ahsa"', "no stopper `ahsa`; did you mean `asha`?"),
        ('script = "train.py"\n[run.stopper]\nkind = "nan"\neta = 1', "`nan` has no `eta`; known"),
        ('script = "train.py"\nsteps = 0', "`steps` is 0; it must be at least 1"),
        ('script = "train.py"\n[grid]\nlr = []', "`lr` has no values"),
        (
            'script = "train.py"\nname = "{rl}"\n[grid]\nlr = 1',
            "`name` has `rl`, which is no parameter; known",
        ),
        (
            'script = "train.py"\n[grid]\nopt = ["sgd"]\n[[when]]\nif = {opt = "sdg"}\nskip = true',
            "`when.1..if.opt` is 'sdg', which the parameter never is; did you mean `sgd`?",
        ),
        ('script = "train.py"\n[[when]]\nskip = true', "`when.1.` has no `if`"),
        ('script = "train.py"\n[grid', "the file is not TOML: Expected"),
        ('function = "makers.py:task"', "`function` is in .*/makers.py, which is not there"),
    ],
)
def test_what_is_wrong_is_one_line(directory: Path, text: str, words: str) -> None:
    with pytest.raises(InvalidInput, match=words.replace("?", r"\?")) as caught:
        read(directory, text)
    assert "sweep.toml: " in str(caught.value) and "\n" not in str(caught.value)


def test_each_command_is_listed_as_a_shell_takes_it(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = """
        script = "train.py"
        args = ["a b", "--out", "out-{lr}", "--lr={lr}"]
        environment = { MODE = "slow one" }
        [grid]
        lr = [0.1, 0.2]
        """
    line = "env 'MODE=slow one' python train.py 'a b' --out out-0.1 --lr=0.1"
    assert read(directory, text).commands[0] == line
    monkeypatch.chdir("/")
    assert sweep.read(directory / "sweep.toml").commands[0] == f"cd {directory} && {line}"


OUT = 'script = "train.py"\nargs = ["--out", "out-{lr}"{more}]\n{option}[grid]\nlr = [0.1, 0.2]'


def test_a_parameter_that_would_not_reach_the_script_is_refused(directory: Path) -> None:
    def of(more: str = "", option: str = "") -> list[str]:
        text = OUT.replace("{more}", more).replace("{option}", option)
        return list(commands(read(directory, text)).values())

    with pytest.raises(InvalidInput, match=r'a part of `out-\{lr\}` alone\. Add "--lr=\{lr\}"'):
        of()
    assert of(', "--lr={lr}"') == ["--out out-0.1 --lr=0.1", "--out out-0.2 --lr=0.2"]
    assert of(', "--lr", "{lr}"')[0] == "--out out-0.1 --lr 0.1"
    assert of(option='only_in_text = ["lr"]\n') == ["--out out-0.1", "--out out-0.2"]
    with pytest.raises(
        InvalidInput, match="`only_in_text` has `rl`, which stands in neither `args` nor"
    ):
        of(option='only_in_text = ["rl"]\n')


def test_doubled_braces_around_a_name_are_text(directory: Path) -> None:
    """As for `str.format`, but that all other braces, as of JSON, stand for themselves."""

    def of(more: str) -> Task:
        (task,) = read(directory, f'script = "train.py"\n{more}\n[grid]\nlr = 0.1').tasks
        return task

    texts = """["{{lr}}", "--log={{step}}", "{{{lr}}}", '{"a":{"b":1}}', '{"a":{lr}}', "{lr}"]"""
    args = of(f"args = {texts}").definition().args
    assert args == ("{lr}", "--log={step}", "{0.1}", '{"a":{"b":1}}', '{"a":0.1}', "0.1")
    task = of('args = ["--at={{lr}}"]\nenvironment = { AT = "{{lr}}" }\nname = "{{lr}}-{lr}"')
    assert task.definition().args == ("--at={lr}", "--lr", "0.1"), "a text is no parameter"
    assert task.definition().environment["AT"] == "{lr}"
    assert task.name == "lr_-0.1"
    with pytest.raises(InvalidInput, match=r"no parameter; .* is meant, write `\{\{step\}\}`"):
        of('args = ["--log={step}"]')


def test_a_plan_says_that_it_can_not_know_the_devices_of_a_cluster(directory: Path) -> None:
    (directory / "sweep.toml").write_text(
        'script = "train.py"\nsteps = 9\n[grid]\nlr = [1, 2]\n[run]\ncluster = "auto"\nnodes = 2'
    )
    asked: dict[str, Any] = {"file": "sweep.toml", "devices": None, "trials": False}
    with pytest.raises(InvalidInput, match=r"has `cluster`.* saturn plan sweep.toml --devices N"):
        verbs.problem(asked)
    assert verbs.problem({**asked, "devices": 1}) == 2, "nothing is measured: but it was looked for"


def test_parameters_reach_the_script_in_its_environment(directory: Path) -> None:
    def of(variable: str, option: str = "") -> sweep.Sweep:
        more = f'environment = {{ MODE = 2, LR = "{variable}" }}\n{option}'
        return read(directory, f'script = "train.py"\n{more}\n[grid]\nlr = [0.1, 0.2]')

    found = of("{lr}")
    environments = [dict(task.definition().environment) for task in found.tasks]
    assert environments == [{"MODE": "2", "LR": "0.1"}, {"MODE": "2", "LR": "0.2"}]
    assert list(commands(found).values()) == ["", ""], "the variable is in the place of a flag"
    assert found.commands[1] == "env MODE=2 LR=0.2 python train.py"
    with pytest.raises(InvalidInput, match=r"it is a part of `at-\{lr\}` alone"):
        of("at-{lr}")
    found = of("at-{lr}", 'only_in_text = ["lr"]')
    assert [task.definition().environment["LR"] for task in found.tasks] == ["at-0.1", "at-0.2"]
    with pytest.raises(InvalidInput, match=r"`environment\.LR` has `rl`, which is no parameter"):
        of("{rl}")


def test_two_tasks_with_one_command_are_refused(directory: Path) -> None:
    with pytest.raises(
        InvalidInput, match="would run the same command, with the arguments `--lr 1`"
    ):
        read(directory, 'script = "train.py"\n[grid]\nlr = [1, "1"]')


def test_a_function_makes_the_tasks(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    (directory / "sweep_makers.py").write_text(
        "import saturn\n"
        "def made(step_s):\n"
        "    return saturn.Task.script('train.py', ['--step_s', step_s], name=None)\n"
        "def odd(step_s):\n"
        "    return step_s\n"
        "def wrong(step_s):\n"
        "    return len(step_s)\n"
    )
    grid = "\n[grid]\nstep_s = [0.1, 0.2]"
    found = read(directory, 'function = "sweep_makers.py:made"\nname = "s{step_s}"' + grid)
    assert commands(found) == {"s0.1": "--step_s 0.1", "s0.2": "--step_s 0.2"}
    for function, words in (
        ("sweep_makers.py:mad", "has no function `mad`; did you mean `made`"),
        ("sweep_makers:odd", "sweep_makers:odd returned a float; it must be a saturn.Task"),
        ("sweep_nothing:odd", "`sweep_nothing`, which can't be imported"),
        ("sweep_makers:wrong", "object of type 'float' has no len"),
    ):
        with pytest.raises(InvalidInput, match=words):
            read(directory, f'function = "{function}"' + grid)
    with pytest.raises(InvalidInput, match=r"does not take \{'step': 1\}"):
        read(directory, 'function = "sweep_makers:made"\n[grid]\nstep = 1')


MAKERS = """
import saturn

def task(get_model=len, **options):
    given = {key: options.pop(key) for key in ("lr", "steps") if key in options}
    hparams = saturn.HParams(given.pop("lr", 0.1), given.pop("steps", 5))
    return saturn.Task(get_model, list, print, hparams, **options)

def ignores(**kw):
    return task()

def half(lr, where, width):
    return task(lr=lr, name=f"mine-{lr}-{where}-{width}", save_dir=f"out-{where}")

def closes(width):
    def get_model():
        return width
    return task(get_model)

def passes(**kw):
    return task(**kw)
"""


def test_two_files_have_no_modules_of_one_name(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    makes = (
        "import torch, saturn\n"
        "def make(lr):\n"
        "    hparams = saturn.HParams(lr=lr, steps=3)\n"
        "    return saturn.Task(torch.nn.Identity, list, torch.nn.functional.mse_loss, hparams)\n"
    )
    for place in ("one", "other"):
        (directory / place).mkdir()
        (directory / place / "makers_of_one_name.py").write_text(makes)
    text = 'function = "{}"\n[grid]\nlr = [0.1, 0.2]'
    named = "makers_of_one_name.py:make"
    assert len(read(directory / "one", text.format(named)).tasks) == 2
    assert len(read(directory / "one", text.format(named)).tasks) == 2
    for function in (named, "makers_of_one_name:make"):
        with pytest.raises(InvalidInput, match="imported another module `makers_of_one_name`"):
            read(directory / "other", text.format(function))


def test_a_function_that_ignores_a_parameter_is_refused(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    (directory / "equal_makers.py").write_text(MAKERS)

    def of(function: str, grid: str) -> list[Any]:
        text = f'function = "equal_makers.py:{function}"\n[grid]\n{grid}'
        return list(read(directory, text).tasks)

    with pytest.raises(
        InvalidInput,
        match=r"tasks `lr=0\.1` and `lr=0\.2` would train the same: equal_makers\.py:ignores "
        "makes them equal, so `lr` does not reach the task",
    ):
        of("ignores", "lr = [0.1, 0.2]")
    with pytest.raises(InvalidInput, match="so `where` does not reach the task"):
        of("half", "lr = [0.1, 0.2]\nwhere = ['a', 'b']\nwidth = 3")
    with pytest.raises(InvalidInput, match="so `width` does not reach the task"):
        of("half", "lr = [0.1, 0.2]\nwhere = 'a'\nwidth = [3, 4]")
    for function, grid in (
        ("closes", "width = [3, 4]"),
        ("passes", "lr = [0.1, 0.2]\nsteps = [3, 4]\nseed = [0, 1]"),
        ("passes", "gpu_range = [1, 2]\ntechniques = [['ddp'], ['fsdp']]"),
        ("passes", "lr = [0.1]"),
    ):
        assert of(function, grid), (function, grid)


def test_the_schema_is_one_and_says_what_each_thing_is() -> None:
    def walk(schema: dict[str, Any], where: str) -> None:
        assert schema.get("description"), where
        for name, inner in schema.get("properties", {}).items():
            walk(inner, f"{where}.{name}")

    schema = sweep.schema()
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    walk(schema, "sweep")
    import inspect

    keywords = set(inspect.signature(saturn.orchestrate).parameters)
    assert set(schema["properties"]["run"]["properties"]) <= keywords


def test_a_file_is_read_in_python(directory: Path) -> None:
    (directory / "sweep.toml").write_text(
        'script = "train.py"\n[grid]\nlr = [0.1, 0.2]\n[run]\ndevices = 2\nstopper = "asha"'
    )
    tasks, options = saturn.read_sweep("sweep.toml")
    assert [task.parameters for task in tasks] == [{"lr": 0.1}, {"lr": 0.2}]
    assert options == {"devices": 2, "stopper": "asha"}
    with pytest.raises(InvalidInput, match="can't be read: No such file"):
        saturn.read_sweep(directory / "swep.toml")


def test_grid_in_python() -> None:
    found = saturn.grid({"a-b": 1}, x=[1, 2], y=("u", "v"), where=lambda one: one["x"] < 2)
    assert found == [{"a-b": 1, "x": 1, "y": "u"}, {"a-b": 1, "x": 1, "y": "v"}]
    with pytest.raises(ValueError, match="`x` has no values"):
        saturn.grid(x=[])


def test_made_names_are_unique_beside_names_that_end_in_a_number() -> None:
    combinations = [{"x": "a"}, {"x": "a"}, {"x": "a-2"}, {"x": "a"}]
    assert sweep._names("{x}", combinations) == ["a", "a-3", "a-2", "a-4"]


def test_a_list_becomes_several_arguments_and_stands_in_no_text() -> None:
    parameters = {"layers": [64, 128]}
    args = ["--layers", "{layers}", "--wide"]
    assert scripts.arguments({"args": args}, parameters) == ["--layers", "64", "128", "--wide"]
    with pytest.raises(ValueError, match=r"`args` has `\{layers\}` within a text"):
        scripts.arguments({"args": ["--layers={layers}"]}, parameters)
    with pytest.raises(ValueError, match=r"`environment.LAYERS` has `\{layers\}` within"):
        scripts.with_environment({"environment": {"LAYERS": "{layers}"}}, parameters)


def test_a_person_at_a_terminal_is_told_what_takes_long(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def said(is_terminal: bool, after_s: float) -> str:
        monkeypatch.setattr(sys.stderr, "isatty", lambda: is_terminal)
        with say_if_long("making the tasks", after_s):
            time.sleep(0.1)
        return capsys.readouterr().err

    assert said(True, 0.0) == "making the tasks\n"
    assert said(True, 60.0) == said(False, 0.0) == ""
