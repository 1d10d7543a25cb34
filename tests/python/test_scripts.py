"""Scripts as tasks: followed by what they report, measured, stopped, taken up again."""

from __future__ import annotations

import json
import sqlite3
import sys
from pathlib import Path
from typing import Any

import pytest
import saturn
from harness import Runtime
from live_gangs import Result
from saturn import Task, orchestrate
from saturn.scripts.key import counted_args
from saturn.scripts.task import ScriptTask
from saturn.stoppers import Target
from saturn.tasks.profile_key import profile_key

COUNTING = Path(__file__).parent / "counting_script.py"
TECHNIQUE = {"name": "script", "level": "black_box", "import": "saturn.worker.scripts.script:run"}


def write(run: Runtime, *args: object, **options: Any) -> ScriptTask:
    task = Task.script(COUNTING, args, name="count", **options)
    assert isinstance(task, ScriptTask)
    run.write_task(task.definition())
    return task


def trial(run: Runtime, *args: object, **options: Any) -> Result:
    write(run, *args, **options)
    return run.run("count", TECHNIQUE, kind="trial", gpus=1)


def training(run: Runtime, *args: object, gpus: int = 1, **options: Any) -> Result:
    write(run, *args, gpu_range=[1, 2], **options)
    return run.run("count", TECHNIQUE, steps=20, gpus=gpus)


@pytest.mark.parametrize("gpus", [1, 2])
def test_a_script_is_followed_to_its_end(run: Runtime, gpus: int) -> None:
    result = training(run, gpus=gpus)
    assert result.codes == [0], result.logs
    assert result.one("started")["step"] >= 1
    finished = result.one("finished")
    assert finished["step"] == 20 and finished["loss"] == pytest.approx(0.1 / 20)
    assert run.losses("count") == {step: pytest.approx(0.1 / step) for step in range(1, 21)}
    lines = (run.task_dir("count") / "metrics.jsonl").read_text().splitlines()
    assert sum(json.loads(line).get("evaluation") == {"accuracy": 0.5} for line in lines) == 20
    attempt = max((run.task_dir("count") / "attempts").iterdir(), key=lambda one: int(one.name))
    for rank in range(gpus):
        text = (attempt / f"rank-{rank}.log").read_text()
        assert f"environment {rank} {rank} {gpus} 127.0.0.1 1" in text


def test_a_stop_and_what_follows(run: Runtime, tmp_path: Path) -> None:
    (tmp_path / "meet").mkdir()
    args = ("--steps", 200, "--checkpoints", tmp_path / "saved", "--meet", tmp_path / "meet")
    write(run, *args, "--step_s", 0.05, gpu_range=[1, 2])
    # On two ranks, which must stop at one and the same step.
    gang = run.launch("count", TECHNIQUE, steps=200, gpus=2)
    gang.wait_for("progress", step=3)
    gang.stop()
    stopped = gang.wait()
    step = stopped.one("stopped")["step"]
    assert stopped.codes == [0] and 3 <= step < 200, stopped.logs
    assert stopped.one("checkpoint")["step"] == step
    texts = [path.read_text() for path in (run.task_dir("count") / "attempts").rglob("*.log")]
    assert len(texts) == 2 and all(f"stopped at {step}\n" in text for text in texts)
    write(run, *args, "--step_s", 0.0, gpu_range=[1, 2])
    resumed = run.run("count", TECHNIQUE, steps=200, gpus=1)
    assert resumed.one("started")["step"] == step + 1
    assert resumed.one("finished")["step"] == 200
    assert sorted(run.losses("count")) == list(range(1, 201))


def test_a_relative_checkpoint_is_in_the_scripts_own_directory(
    run: Runtime, tmp_path: Path
) -> None:
    write(run, "--steps", 200, "--checkpoints", "saved", cwd=tmp_path)
    gang = run.launch("count", TECHNIQUE, steps=200, gpus=1)
    gang.wait_for("progress", step=3)
    gang.stop()
    stopped = gang.wait()
    step = stopped.one("stopped")["step"]
    assert stopped.one("checkpoint")["step"] == step
    assert (tmp_path / "saved" / f"step-{step}").is_dir()
    resumed = run.run("count", TECHNIQUE, steps=200, gpus=1)
    assert resumed.one("started")["step"] == step + 1, resumed.logs


@pytest.mark.parametrize(
    ("odd", "resume"),
    [("term", True), ("deaf", True), ("deaf", False)],
    ids=["handles-sigterm", "does-not-listen", "cannot-resume"],
)
def test_what_the_stop_file_does_not_reach_gets_a_signal(
    run: Runtime, odd: str, resume: bool
) -> None:
    # It is killed after twice the time that it has to stop.
    within_s = 0.5 if odd == "deaf" else 20.0
    args = ("--step_s", 0.02, "--steps", 5000, "--odd", odd)
    write(run, *args, resume=resume, stop_within_s=within_s)
    gang = run.launch("count", TECHNIQUE, steps=5000, gpus=1)
    gang.wait_for("progress", step=2)
    gang.stop()
    result = gang.wait()
    assert result.codes == [0] and result.one("stopped")["step"] == 0, result.logs
    assert ("stopped at" in result.logs) == (odd == "term")
    # What can't go on has lost nothing that it could have kept.
    assert any("trained again" in one["text"] for one in result.of("note")) == resume


def test_a_trial_times_steps_and_goes_on_as_training(run: Runtime) -> None:
    write(run, "--odd", "length", "--step_s", 0.05)
    gang = run.launch("count", TECHNIQUE, kind="trial", gpus=1, goes_on_to=20)
    result = gang.wait()
    found = result.one("trial")
    outcome = found["outcome"]
    assert outcome["outcome"] == "measured" and 0.04 < outcome["step_s"] < 1
    assert outcome["batches_per_epoch"] == 20, "its reports say how long it is"
    assert 1 < found["step"] < 20 and result.one("finished")["step"] == 20
    assert sorted(run.losses("count")) == list(range(1, 21))


def test_a_trial_that_does_not_go_on_is_ended(run: Runtime) -> None:
    write(run, "--steps", 5000, steps=5000)
    gang = run.launch("count", TECHNIQUE, kind="trial", gpus=1)
    gang.wait_for("trial")
    gang.stop()
    result = gang.wait()
    assert result.codes == [0] and not result.of("finished")
    assert not (run.task_dir("count") / "metrics.jsonl").exists()


@pytest.mark.parametrize(
    ("odd", "kind", "words"),
    [
        ("wordless", "task", "exited with code 0 and never reported a step; have it call"),
        ("silent", "task", "has not reported a step in 1.5 s; have it call saturn.report"),
        ("exit@13", "certain", "exited with code 0 after step 12 of 20; where it is meant"),
        ("backwards@5", "certain", "reported step 1 after step 4; steps must go up"),
        ("line@2", "certain", "line 2 of SATURN_REPORT is `step 3 of 20`; it must be JSON"),
        ("crash@1", "task", "exited with code 1 before it reported a step: ValueError: a bad"),
        ("crash@7", "error", "exited with code 1 after step 6: ValueError: a bad batch"),
        ("memory@2", "out_of_memory", "CUDA out of memory"),
    ],
)
def test_what_a_script_does_wrong_is_one_line(
    run: Runtime, odd: str, kind: str, words: str
) -> None:
    result = training(run, "--odd", odd, report_within_s=1.5 if odd == "silent" else 60)
    failed = result.one("failed")
    assert failed["kind"] == kind and words in failed["error"], failed
    assert failed["error"].startswith("`counting_script.py`") and "\n" not in failed["error"]


@pytest.mark.parametrize(
    ("odd", "words"),
    [("nan@5", "loss was nan at step 5"), ("lossless", "its reports have no loss")],
)
def test_an_odd_metric_is_pointed_out(run: Runtime, odd: str, words: str) -> None:
    result = training(run, "--odd", odd)
    assert result.one("finished")["step"] == 20
    assert words in result.one("note")["text"]


def test_a_script_that_begins_anew_although_it_was_to_go_on(run: Runtime, tmp_path: Path) -> None:
    write(run, "--odd", "anew")
    (tmp_path / "saved").mkdir()
    noted = {"checkpoint": str(tmp_path / "saved"), "step": 8}
    (run.task_dir("count") / "script.json").write_text(json.dumps(noted))
    failed = run.run("count", TECHNIQUE, steps=20, gpus=1).one("failed")
    assert failed["kind"] == "certain" and "of step 8, and reported step 1" in failed["error"]
    (tmp_path / "saved").rmdir()
    result = run.run("count", TECHNIQUE, steps=20, gpus=1)
    assert (
        result.one("finished")
        and "is gone: the script begins at its first step" in result.one("note")["text"]
    )


def test_a_slot_holds_no_more_than_it_may(run: Runtime) -> None:
    write(run, "--odd", "hog@3")
    limit = {"device_memory_bytes": 1 << 30}
    failed = run.run("count", TECHNIQUE, steps=20, gpus=1, **limit).one("failed")
    assert failed["kind"] == "out_of_memory" and "after step 2: MemoryError" in failed["error"]


def test_a_trial_says_that_the_length_is_missing(run: Runtime) -> None:
    failed = trial(run).one("failed")
    assert "did not say how long it trains: give the task steps=" in failed["error"]


def test_reports_are_of_no_effect_without_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SATURN_REPORT", raising=False)
    assert saturn.report(1, 0.5) is False and saturn.should_stop() is False
    with pytest.raises(TypeError, match="loss is a list; it must be a number"):
        saturn.report(1, [0.5])
    with pytest.raises(TypeError, match=r"step is 0\.5; it must be a whole number"):
        saturn.report(0.5)  # type: ignore[arg-type]


def test_what_is_checked_of_a_script_when_the_task_is_made(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"there is no script .*/train\.py"):
        Task.script(tmp_path / "train.py")
    with pytest.raises(TypeError, match=r"args is a string; it must be a list, as \['--lr', '1'\]"):
        Task.script(COUNTING, "--lr 1")
    with pytest.raises(ValueError, match="steps is 0; it must be at least 1"):
        Task.script(COUNTING, steps=0)
    mute, dashed = tmp_path / "mute.py", tmp_path / "dashed.py"
    mute.write_text("print(1)")
    dashed.write_text('add_argument("--resume-from-checkpoint")')

    def flag(path: Path, **options: Any) -> str | None:
        task = Task.script(path, **options)
        assert isinstance(task, ScriptTask)
        return task.script_definition.resume

    assert flag(mute) is None and flag(mute, resume="--load=") == "--load="
    assert flag(COUNTING) == "--resume_from_checkpoint" and flag(COUNTING, resume=False) is None
    assert flag(dashed) == "--resume-from-checkpoint"
    assert Task.script(mute).name.startswith("mute-")


def test_a_script_has_parameters() -> None:
    values = {"lr": 0.1, "size": "small", "tied": True}
    task = Task.script(COUNTING, ["--lr", 0.1], parameters=values)
    assert task.parameters == values and Task.script(COUNTING).parameters == {}
    with pytest.raises(TypeError, match="parameters holds 'lr'"):
        Task.script(COUNTING, parameters={"lr": [0.1]})


@pytest.mark.parametrize(
    ("name", "of_own_loop", "of_trainer"),
    [
        ("seed", r'such as \["--seed", "3"\]', r'such as \["--seed", "3"\]'),
        ("evaluate", r"have it report numbers: saturn\.report", r'\["--eval_strategy", "steps"\]'),
        ("evaluate_every", "the script decides when", r'\["--eval_steps", "100"\]'),
        ("best", "have it keep its best weights itself", "--load_best_model_at_end"),
        ("hints", "no technique looks into the script", r"use Task\.from_trainer"),
        ("parametres", "did you mean `parameters`", "did you mean `parameters`"),
    ],
)
def test_arguments_that_no_script_has_are_refused_with_what_to_do(
    name: str, of_own_loop: str, of_trainer: str
) -> None:
    given: dict[str, Any] = {name: 1}
    for trainer, words in ((False, of_own_loop), (True, of_trainer)):
        with pytest.raises(TypeError, match=f"Task.script.*{name}.*{words}"):
            Task.script(COUNTING, trainer=trainer, **given)


def test_a_directory_to_save_to_is_for_trainers() -> None:
    with pytest.raises(
        ValueError, match=r"counting_script\.py trains by itself: it writes its own"
    ):
        Task.script(COUNTING, save_dir="out")


def test_arguments_that_change_no_speed_are_measured_once() -> None:
    def key(*args: object, **options: Any) -> str:
        return profile_key(Task.script(COUNTING, args, **options))

    assert key("--lr", 0.1) == key("--lr", -0.2) == key("--lr=3") == key()
    assert key("--width", 1) != key("--width", 2)
    assert key() != key(gpu_range=[1, 2])
    args = ("data", "--optim.lr=1", "--bf16", "--seed", "3", "x", "--batch", "8")
    assert counted_args(args) == ["data", "--bf16", "x", "--batch", "8"]


def test_a_module_beside_a_script_counts(tmp_path: Path) -> None:
    script, module = tmp_path / "main.py", tmp_path / "beside_it.py"
    script.write_text("import beside_it\n")
    module.write_text("width = 1\n")
    first = profile_key(Task.script(script))
    module.write_text("width = 1  # as ever\n")
    assert profile_key(Task.script(script)) == first
    module.write_text("width = 22\n")
    assert profile_key(Task.script(script)) != first
    assert str(tmp_path) not in sys.path


def test_the_metrics_of_its_last_report_are_told_before_its_end(run: Runtime) -> None:
    result = training(run)
    told = result.of("evaluated")
    # Reports come faster than the journal wants metrics: the first, and the last.
    assert [message["step"] for message in told] == [1, 20]
    assert all(message["metrics"] == {"accuracy": 0.5} for message in told)
    types = [message["type"] for _, message in result.messages]
    assert types.index("finished") > max(i for i, kind in enumerate(types) if kind == "evaluated")


def test_scripts_are_ranked_by_the_metric_that_they_are_judged_by(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import sys, saturn\n"
        "for step in range(1, 5):\n"
        "    saturn.report(step, 1 / step, total_steps=4, accuracy=float(sys.argv[1]))\n"
    )
    tasks = [Task.script(script, [value], name=f"s{value}") for value in ("0.1", "0.9", "0.5")]
    target = Target(metric="accuracy", mode="max", value=2.0)
    result = orchestrate(tasks, devices=2, runs_dir=tmp_path, log=False, stopper=target)
    assert [row["task"] for row in result.rows()] == ["s0.9", "s0.5", "s0.1"]
    assert [row["accuracy"] for row in result.rows()] == [0.9, 0.5, 0.1]
    report = json.loads((result.run_dir / "report.json").read_text())
    assert report["tasks"][0]["evaluation"]["last"]["metrics"] == {"accuracy": 0.1}


def test_a_script_that_failed_after_its_last_checkpoint_is_done_once_it_ends_well(
    tmp_path: Path,
) -> None:
    """Its evaluation dies, as by a reboot; resumed at its last step it has no step to report."""
    script, state = tmp_path / "train.py", tmp_path / "state"
    script.write_text(
        "import sys, saturn\n"
        "from pathlib import Path\n"
        f"state = Path({str(state)!r})\n"
        "resumed = '--resume_from_checkpoint' in sys.argv\n"
        "for step in () if resumed else range(1, 4):\n"
        "    state.touch()\n"
        "    saved = {'checkpoint': state} if step == 3 else {}\n"
        "    saturn.report(step, 1 / step, total_steps=3, **saved)\n"
        "sys.exit(0 if resumed else 'the evaluation fails')\n"
    )
    task = Task.script(script, name="s", steps=3)
    result = orchestrate([task], devices=1, runs_dir=tmp_path, log=False)
    (found,) = result.tasks
    assert (found.status, found.attempts) == ("done", 2), found.error


def test_a_script_that_ends_early_has_trained_the_steps_that_it_reported(tmp_path: Path) -> None:
    """Otherwise its steps would look quick, in later runs too."""
    script = tmp_path / "train.py"
    script.write_text(
        "import saturn, time\n"
        "for step in range(1, 61):\n"
        "    time.sleep(0.05)\n"
        "    saturn.report(step, 1 / step, total_steps=60 if step == 60 else 100_000)\n"
    )
    result = orchestrate([Task.script(script, name="s")], devices=1, runs_dir=tmp_path, log=False)
    task = saturn.attach(result.run_dir).status().task("s")
    assert (task["stage"], task["step"], task["steps"]) == ("done", 60, 100_000)
    with sqlite3.connect(result.run_dir / "journal.db") as journal:
        rows = [json.loads(row) for (row,) in journal.execute("SELECT record FROM record")]
    journal.close()
    seconds = [row["step_s"] for row in rows if row["record"] in ("clocked", "observed")]
    assert seconds and all(step_s > 0.04 for step_s in seconds), seconds
