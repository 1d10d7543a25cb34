"""`[search]` of a sweep file: what it means, what is wrong with it, and a search to its end."""

from __future__ import annotations

import json
import pickle
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import optuna
import pytest
import saturn
import saturn.optuna
from saturn import verbs
from saturn.errors import InvalidInput
from saturn.sweeps import sweep
from saturn.sweeps.space import spaces_of
from saturn.tasks.pickling import dump
from saturn.tuning.study import StudyTuner

HERE = Path(__file__).parent
SATURN = Path(sys.executable).with_name("saturn")
#: What every file here begins with.
SCRIPT = 'script = "train.py"\nargs = ["--steps", 60, "--step_s", 0.02]\nsteps = 60\n'
LR = "lr = { low = 1e-3, high = 1e-1, log = true }\n"


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "train.py").write_text((HERE / "counting_script.py").read_text())
    monkeypatch.chdir(tmp_path)
    return tmp_path


def file(directory: Path, text: str) -> Path:
    path = directory / "sweep.toml"
    path.write_text(text)
    return path


def read(directory: Path, space: str, more: str = "") -> sweep.Sweep:
    return sweep.read(
        file(directory, f"{SCRIPT}[search]\ntrials = 3\n{more}\n[search.space]\n{space}")
    )


def drawn(found: sweep.Sweep, number: int) -> list[dict[str, Any]]:
    assert found.search is not None
    study = found.search.study()
    return [found.search.values_of(study.ask()) for _ in range(number)]


def test_values_are_drawn_from_their_spaces(directory: Path) -> None:
    space = LR + (
        "rank = { low = 4, high = 64, step = 4 }\n"
        "depth = { low = 1, high = 3 }\n"
        "drop = { low = 0.0, high = 0.5, step = 0.1 }\n"
        "width = { low = 1, high = 1024, log = true }\n"
        'optimizer = { choices = ["adamw", "sgd"] }\n'
    )
    rows = drawn(read(directory, space, 'sampler = "random"'), 40)
    assert all(list(row) == ["lr", "rank", "depth", "drop", "width", "optimizer"] for row in rows)
    assert all(1e-3 <= row["lr"] <= 1e-1 for row in rows)
    # Log-uniform: about half of the values are below the middle order of magnitude.
    assert 10 < sum(row["lr"] < 1e-2 for row in rows) < 30
    assert 10 < sum(row["width"] < 32 for row in rows) < 30
    assert {row["rank"] for row in rows} <= set(range(4, 65, 4))
    assert {row["depth"] for row in rows} == {1, 2, 3}
    assert {round(row["drop"], 9) for row in rows} <= {0.0, 0.1, 0.2, 0.3, 0.4, 0.5}
    assert {row["optimizer"] for row in rows} == {"adamw", "sgd"}
    assert all(isinstance(row["rank"], int) and isinstance(row["lr"], float) for row in rows)


def test_a_seed_and_a_sampler_say_what_is_drawn(directory: Path) -> None:
    def first(more: str) -> list[dict[str, Any]]:
        return drawn(read(directory, LR, more), 3)

    assert first("") == first('sampler = "tpe"\nseed = 0') != first("seed = 1")
    study = read(directory, LR, 'sampler = "random"\nmode = "max"').search.study()  # type: ignore[union-attr]
    assert isinstance(study.sampler, optuna.samplers.RandomSampler)
    assert study.direction.name == "MAXIMIZE"
    assert isinstance(study.pruner, optuna.pruners.NopPruner)


@pytest.mark.parametrize(
    ("space", "words"),
    [
        ("", "`search.space` is empty; give each parameter a range or choices, such as lr ="),
        ("lr = 0.1", "`search.space.lr` is 0.1; it must be a table"),
        ("lr = { lwo = 1, high = 2 }", "there is no `search.space.lr.lwo`; did you mean `low`?"),
        ("lr = { low = 1 }", "`search.space.lr` has no `high`; give a range by `low` and `high`"),
        ("lr = { low = 2, high = 2 }", "`search.space.lr` goes from 2 to 2; `low` must be less"),
        ("lr = { low = 0, high = 1, log = true }", "`search.space.lr.low` is 0 with `log = true`"),
        ("lr = { low = 1, high = inf }", "`search.space.lr.high` is inf; it must be a finite"),
        ("lr = { low = 1, high = 9, step = nan }", "`search.space.lr.step` is nan; it must be a"),
        ("lr = { low = 1, high = 9, step = 0 }", "`search.space.lr.step` is 0; it must be more"),
        ("lr = { low = 1, high = 9, step = 9 }", "`search.space.lr.step` is 9, more than from"),
        ("lr = { low = 1, high = 9, step = 3 }", "from 1 by 3 to 7, and never to 9; give `high`"),
        ("lr = { low = 1, high = 9, step = 2, log = true }", "`step` and `log = true`; leave one"),
        ("lr = { choices = [] }", "`search.space.lr.choices` is empty; give the values"),
        ("lr = { choices = [1, 2, 1] }", "`search.space.lr.choices` has 1 twice; give each"),
        (
            "lr = { choices = [[1, 2]] }",
            "`search.space.lr.choices[1]` is [1, 2]; it must be a text",
        ),
        ("lr = { choices = [1], low = 1 }", "`search.space.lr` has `choices` and `low`; give eith"),
    ],
)
def test_a_space_that_makes_no_sense_is_refused(directory: Path, space: str, words: str) -> None:
    with pytest.raises(InvalidInput, match=re.escape(words)):
        read(directory, space)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("trials = 3", ""), "`search` has no `trials`, which it must have"),
        (("trials = 3", "trials = 0"), "`search.trials` is 0; it must be at least 1"),
        (("trials", "trails"), "there is no `search.trails`; did you mean `trials`?"),
        (("trials = 3", "trials = 3\nsede = 1"), "there is no `search.sede`; did you mean `seed`?"),
        (("trials = 3", 'trials = 3\nsampler = "tep"'), "`search.sampler` is 'tep'; did you mean"),
        (("trials = 3", 'trials = 3\nmode = "less"'), "`search.mode` is 'less'; known are `max`"),
        (("[search]", "[grid]\nx = [1]\n[search]"), "`grid` and `search` can't stand in one file"),
        (("steps = 60", 'steps = 60\nname = "a"'), "are called trial-0, trial-1 and so on"),
        (('"--steps"', '"--lr={rl}", "--steps"'), "`args` has `rl`, which is no parameter"),
        (('"--steps"', '"out-{lr}", "--steps"'), 'alone. Add "--lr={lr}" to `args`'),
        (("train.py", "tran.py"), "tran.py; did you mean `train.py`"),
        (('script = "train.py"', 'function = "m.py:f"'), "`steps` is for scripts"),
    ],
)
def test_a_search_that_makes_no_sense_is_refused(
    directory: Path, change: tuple[str, str], words: str
) -> None:
    text = f"{SCRIPT}[search]\ntrials = 3\n[search.space]\n{LR}"
    assert change[0] in text
    with pytest.raises(InvalidInput, match=re.escape(words)):
        sweep.read(file(directory, text.replace(*change, 1)))


def test_a_search_without_optuna_says_how_to_get_it(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(InvalidInput, match="`search` needs the package optuna: pip install"):
        read(directory, LR)


def test_spaces_are_told_in_words() -> None:
    spaces = spaces_of(
        {
            "lr": {"low": 1e-5, "high": 1e-2, "log": True},
            "rank": {"low": 4, "high": 64, "step": 4},
            "drop": {"low": 0.0, "high": 0.5, "step": 0.1},
            "bf16": {"choices": [True, "auto"]},
        }
    )
    assert [str(space) for space in spaces.values()] == [
        "1e-05 to 0.01, log-uniform",
        "whole numbers, 4 to 64 by 4",
        "0.0 to 0.5 by 0.1",
        'one of true, "auto"',
    ]


def test_a_suggested_value_reaches_the_script_by_its_environment(directory: Path) -> None:
    (directory / "sweep.toml").write_text(
        f'{SCRIPT}environment = {{ LR = "{{lr}}" }}\n[search]\ntrials = 3\n[search.space]\n{LR}'
    )
    found = sweep.read(directory / "sweep.toml")
    assert found.search is not None and found.command_of is not None
    assert found.command_of({"lr": 0.5}) == "env LR=0.5 python train.py --steps 60 --step_s 0.02"
    task = found.search.make({"lr": 0.5})
    assert task.script_definition.environment["LR"] == "0.5"
    assert "--lr" not in task.script_definition.args


def test_the_tasks_of_a_search_can_not_be_read_beforehand(directory: Path) -> None:
    read(directory, LR)
    with pytest.raises(InvalidInput, match=r"made while it runs; use `saturn sweep`"):
        saturn.read_sweep("sweep.toml")


def test_a_list_says_what_is_drawn_and_a_plan_that_it_can_not_know(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (first,) = drawn(read(directory, LR), 1)
    asked: dict[str, Any] = {"file": "sweep.toml", "list": True, "start": {"json": False}}
    assert verbs.run_sweep(asked) == 0
    assert capsys.readouterr().out.splitlines() == [
        "3 tasks, drawn while it runs by tpe with seed 0:",
        "  lr  0.001 to 0.1, log-uniform",
        "the first:",
        f"  trial-0  python train.py --steps 60 --step_s 0.02 --lr {first['lr']}",
    ]
    verbs.run_sweep(asked | {"start": {"json": True}})
    told = json.loads(capsys.readouterr().out)
    assert told["search"]["trials"] == 3 and told["search"]["space"]["lr"]["high"] == 0.1
    assert told["first"]["parameters"] == first
    asked["start"] = {"json": True}
    read(directory, 'way = { choices = ["a", true] }')
    verbs.run_sweep(asked)
    assert json.loads(capsys.readouterr().out)["search"]["space"] == {
        "way": {"choices": ["a", True]}
    }
    with pytest.raises(InvalidInput, match=r"suggested while it runs.*sweep sweep.toml --list"):
        verbs.problem({"file": "sweep.toml", "devices": None, "trials": False})


def test_a_function_makes_the_tasks_also_of_a_search_that_goes_on(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    (directory / "search_makers.py").write_text(
        "import saturn\n"
        "def made(step_s, way):\n"
        "    return saturn.Task.script('train.py', ['--step_s', step_s, way])\n"
    )
    text = 'function = "search_makers.py:made"\n[search]\ntrials = 3\n[search.space]\n'
    space = 'step_s = { low = 0.1, high = 0.2 }\nway = { choices = ["a"] }\n'
    search = sweep.read(file(directory, text + space)).search
    assert search is not None
    tuner = StudyTuner(search.study(), search.task_of, 3, None, None)
    tuner.suggested()
    kept = pickle.loads(dump(tuner, "the study"))  # as `saturn resume` finds it
    task = kept.suggested()
    assert task.name == "trial-1" and task.parameters["way"] == "a"
    assert task.definition().args == ("--step_s", str(task.parameters["step_s"]), "a")
    more = space + "wy = { low = 0, high = 1 }\n"
    with pytest.raises(InvalidInput, match=r"search_makers.py:made does not take .*'wy'"):
        sweep.read(file(directory, text + more))


def test_a_function_that_ignores_what_is_searched_is_refused(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    (directory / "search_ignorers.py").write_text(
        "import saturn\n"
        "def made(**values):\n"
        "    return saturn.Task.script('train.py', ['--lr', 0.1])\n"
    )
    text = 'function = "search_ignorers.py:made"\n[search]\ntrials = 3\n[search.space]\n'
    with pytest.raises(InvalidInput, match=r"would train the same: .*`lr` does not reach the task"):
        sweep.read(file(directory, text + LR))


def test_options_of_the_command_line_reach_the_search(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of a cluster too, and before what the file says; without one, nothing of it is said."""
    given: list[dict[str, Any]] = []

    def told(*args: Any, **options: Any) -> Any:
        given.append(options)
        raise InvalidInput("enough")

    monkeypatch.setattr("saturn.sweeps.search.optimize", told)
    monkeypatch.setattr(verbs, "orchestrate", told)
    file(directory, f"{SCRIPT}[search]\ntrials = 3\n[search.space]\n{LR}[run]\nnodes = 3\nseed = 5")
    (directory / "plain.toml").write_text(f"{SCRIPT}[run]\nnodes = 3\nseed = 5")
    flags = ["--cluster", "10.0.0.1:6379", "--nodes", "2", "--network-interface", "eth1"]
    program = "import sys; print(sys.argv[-1])"
    # The program's own words, as Python gets them.
    (directory / "python3").write_text(f"#!/bin/sh\nexec {sys.executable} -c '{program}' \"$@\"\n")
    (directory / "python3").chmod(0o755)
    (directory / "saturn").write_bytes(SATURN.read_bytes())
    (directory / "saturn").chmod(0o755)
    for name in ("sweep.toml", "plain.toml"):
        words = subprocess.run(
            [directory / "saturn", "sweep", *flags, name],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        ).stdout
        with pytest.raises(InvalidInput, match="enough"):
            verbs.run_sweep(json.loads(words))
        of_cluster = {"cluster": "10.0.0.1:6379", "nodes": 2, "network_interface": "eth1"}
        assert given[-1].items() >= {**of_cluster, "seed": 5}.items()
        assert "gpus_per_node" not in given[-1]


def run_saturn(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([SATURN, *args], capture_output=True, text=True, timeout=300, check=False)


# That a study trains is quick in `test_optuna`, and that a file does in `test_sweeps`.
@pytest.mark.slow
def test_a_search_from_the_file_to_its_end(directory: Path) -> None:
    """The ranking names the values; and the study has learned what the tasks reported."""
    text = SCRIPT.replace("0.02", "0.005") + "resume = false\n[search]\ntrials = 4\n"
    file(directory, f"{text}[search.space]\n{LR}[run]\ndevices = 2\nname = 'it'\n")
    done = run_saturn("sweep", "sweep.toml")
    assert done.returncode == 0, done.stderr
    rows = [re.split(r"\s+", line) for line in done.stdout.splitlines()]
    study = saturn.optuna.study_of("it")
    assert [trial.state.name for trial in study.trials] == ["COMPLETE"] * 4
    by_lr = sorted(study.trials, key=lambda trial: trial.params["lr"])  # the loss is lr / step
    assert [row[1:] for row in rows] == [
        [f"trial-{trial.number}", f"lr={trial.params['lr']}"] for trial in by_lr
    ]
    assert study.best_trial.number == by_lr[0].number
    assert "new study" not in done.stderr
    assert run_saturn("resume", "it").stdout == done.stdout, "there is nothing left but to rank"


@pytest.mark.slow
def test_a_search_with_a_stopper_goes_on_after_it_was_interrupted(directory: Path) -> None:
    """`asha` holds and ends tasks, whose trials are pruned; others are suggested meanwhile."""
    own = f'["--lr", "{{lr}}", "--checkpoints", "{directory}/{{lr}}", '
    text = SCRIPT.replace("[", own) + "[search]\ntrials = 9\n"
    file(
        directory,
        f'{text}[search.space]\n{LR}[run]\ndevices = 2\nname = "it"\nstopper = "asha"\n',
    )
    third = directory / "saturn_runs" / "it" / "tasks" / "trial-2" / "metrics.jsonl"
    with subprocess.Popen(
        [SATURN, "sweep", "sweep.toml"], stderr=subprocess.PIPE, text=True
    ) as begun:
        while not third.exists() and begun.poll() is None:
            time.sleep(0.02)
        begun.send_signal(signal.SIGINT)
        _, said = begun.communicate(timeout=60)
    assert begun.returncode == 130 and "saturn resume" in said, said
    before = [trial.params for trial in saturn.optuna.study_of("it").trials]
    assert 3 <= len(before) < 9
    resumed = run_saturn("resume", "it")
    assert resumed.returncode == 0 and "Warning" not in resumed.stderr, resumed.stderr
    assert len(resumed.stdout.splitlines()) == 9 and "lr=" in resumed.stdout, "it ranks them"
    trials = saturn.optuna.study_of("it").trials
    assert [trial.params for trial in trials][: len(before)] == before and len(trials) == 9
    states = [trial.state.name for trial in trials]
    assert set(states) == {"COMPLETE", "PRUNED"} and "COMPLETE" in states, states
    assert states.count("PRUNED") >= 4
    best = min(trials, key=lambda trial: trial.params["lr"])
    assert best.state.name == "COMPLETE", "the best is trained to its end"
