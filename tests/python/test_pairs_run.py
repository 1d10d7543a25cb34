"""The driver's part of pairs: what happens to the tasks of a real run, and what its tables say."""

from __future__ import annotations

import contextlib
import io
import json
import math
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import closeness
import pair_runs
import pair_tables
import pytest
import saturn
from pair_runs import ENDLESS, EVERY, LONG, NAN_STEP, STEPS, plain_losses
from pair_tables import truths
from saturn import RunResult, native
from warm_parent import PYTHON_DIR

SATURN = Path(sys.executable).with_name("saturn")
#: Another at each run of the tests, told where a test fails.
SEED = int(os.environ.get("SATURN_TEST_SEED", str(time.time_ns() % 1_000_000)))
LOSS = ("eval_loss", "min")
#: A time in what a run prints.
TIME = r"(?:(\d+) min )?([\d.]+) s"
#: (status, steps, least attempts: plans may move a task) of each task; steps are None where they
#: depend on when something happened.
EXPECTED = {
    "well": ("done", STEPS, 1),
    "nan": ("diverged", STEPS, 1),
    "exploded": ("done", STEPS, 1),
    "raised": ("failed", None, 2),
    "searched": ("stopped", None, 1),
    "paused": ("done", LONG, 2),
    "cancelled": ("cancelled", None, 1),
    "never": ("cancelled", 0, 0),
    "killed": ("done", LONG, 2),
    "follows": ("done", STEPS, 1),
}


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RunResult, str]]:
    """The run's result, and what it printed."""
    directory = tmp_path_factory.mktemp("pairs")
    printed = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stderr(printed):
        patch.setenv("SATURN_HOME", str(directory / "home"))
        run = saturn.start(
            pair_runs.tasks(directory),
            devices=2,
            techniques=["ddp"],
            stopper=pair_runs.Searched(metric="eval_loss"),
            checkpoint_every_s=0.3,
            runs_dir=directory,
            name="it",
            raise_on_failure=False,
        )
        pair_runs.steer(run, directory, "cancelled", "paused", "raised", "killed")
        run.unpause("paused")
        result = run.wait(250)
    yield result, printed.getvalue()


def test_each_table_says_what_is_so(ended: tuple[RunResult, str]) -> None:
    result, _ = ended
    goals = dict.fromkeys(EXPECTED, LOSS)
    pair_tables.judge(result, goals, {name: LOSS for name in goals if name != "follows"})
    pair_tables.judge_order(result.rows(), "eval_loss")


def test_each_task_ends_as_what_happened_to_it_says(ended: tuple[RunResult, str]) -> None:
    assert_ended_as_expected(ended[0])


def assert_ended_as_expected(result: RunResult) -> None:
    assert [task.name for task in result.tasks] == list(EXPECTED)
    for task in result.tasks:
        status, steps, attempts = EXPECTED[task.name]
        assert task.status == status
        at_some_step = steps is None and 0 < task.steps < ENDLESS
        assert at_some_step or task.steps == steps, task.name
        assert task.attempts >= attempts, task.name
        assert task.has_diverged == (task.name == "nan")
    found = {task.name: task for task in result.tasks}
    # In training, or in an evaluation, which says so.
    error = (found["raised"].error or "").removeprefix("evaluate: ")
    assert error == "loss_function raised ValueError: this batch is bad"
    assert found["never"].error == "it comes after `cancelled`, which is not done"
    assert found["nan"].best is not None and found["nan"].best.step == NAN_STEP // EVERY * EVERY
    assert found["nan"].end_s is not None and found["follows"].start_s is not None
    assert found["nan"].end_s <= found["follows"].start_s


def test_what_happens_changes_no_loss(ended: tuple[RunResult, str]) -> None:
    assert_no_loss_is_changed(ended[0].run_dir)


def assert_no_loss_is_changed(run_dir: Path) -> None:
    plain = plain_losses(LONG)
    changed = {"nan": plain_losses(STEPS, has_nan=True), "exploded": plain_losses(STEPS, lr=1e6)}
    for name, truth in truths(run_dir).items():
        expected = changed.get(name, plain)
        assert set(range(1, truth.steps + 1)) <= truth.losses.keys()
        for step, loss in truth.losses.items():
            assert repr(loss) == repr(expected[step]), (name, step)


def test_the_run_is_told_by_its_definitions(ended: tuple[RunResult, str]) -> None:
    result, printed = ended
    totals = json.loads((result.run_dir / "report.json").read_text())["totals"]
    words = {"done": 5, "diverged": 1, "failed": 1, "cancelled": 2, "stopped": 1}
    assert {word: totals[word] for word in words} == words and totals["tasks"] == 10
    attempts = [one for truth in truths(result.run_dir).values() for one in truth.attempts]
    last_s = max(attempt.end_s for attempt in attempts)
    assert result.total_s == totals["total_s"] == pytest.approx(last_s + result.startup_s)
    assert result.startup_s > 0.3, "a process that imports torch takes longer"
    pattern = (
        rf"5 of 10 tasks done in {TIME}, {TIME} of it to start, "
        r"1 diverged, 1 failed, 2 cancelled, 1 stopped early"
    )
    assert_said(pattern, printed, result.total_s, within_s=0.6)
    for task in result.tasks:
        if task.status in ("done", "diverged"):
            assert task.final_loss is not None
            loss = "nan" if math.isnan(task.final_loss) else f"{task.final_loss:.3g}"
            verb = "done" if task.status == "done" else "diverge"
            words = rf"\S+ +{verb} +{task.name} +{task.steps} steps in {TIME}.* loss {loss},.*"
            assert_said(words, printed, task.train_s, within_s=0.06)


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_a_run_that_is_stopped_at_once_and_resumed(tmp_path: Path) -> None:
    """On one device and two, under several techniques; what it says in between holds too."""
    names = [task.name for task in pair_runs.wide_tasks(tmp_path)]
    bests = dict.fromkeys(("well", "raised", "killed"), LOSS) | {"paused": ("accuracy", "max")}
    run = saturn.start(
        pair_runs.wide_tasks(tmp_path),
        devices=2,
        techniques=["ddp", "fsdp"],
        checkpoint_every_s=0.3,
        runs_dir=tmp_path,
        name="it",
        log=False,
    )
    pair_runs.steer(run, tmp_path, "cancelled", "paused", "killed")
    run.cancel("dropped")
    run.stop(at_once=True)
    with pytest.raises(saturn.RunInterrupted):
        run.wait(60)
    text = native.report(run.run_dir)
    between = RunResult.from_report(json.loads(text), run.run_dir)
    pair_tables.judge(between, bests, bests)
    first = truths(run.run_dir)
    going_on = saturn.resume(run.run_dir, log=False, raise_on_failure=False)
    pair_runs.steer(going_on, tmp_path, "raised")
    going_on.unpause("paused")
    result = going_on.wait(120)
    pair_tables.judge(result, bests, bests)
    ends = {"nan": "diverged", "exploded": "diverged", "raised": "failed"}
    ends |= dict.fromkeys(("cancelled", "dropped"), "cancelled")
    assert {task.name: task.status for task in result.tasks} == {
        name: ends.get(name, "done") for name in names
    }
    plain = plain_losses(8 * STEPS)
    for name, truth in truths(run.run_dir).items():
        if name in ("well", "raised", "paused", "cancelled", "killed"):
            found = {step: loss for step, loss in truth.losses.items() if step in plain}
            expected = {step: plain[step] for step in found}
            assert closeness.ulps(found, expected) < closeness.ACROSS, name
        assert truth.attempts[: len(first[name].attempts)] == first[name].attempts, name
        assert truth.planned_s == first[name].planned_s or first[name].planned_s is None


DRIVER = """
import sys
from pathlib import Path

import pair_runs
import saturn

if __name__ == "__main__":
    directory = Path(sys.argv[1])
    saturn.orchestrate(
        pair_runs.tasks(directory), devices=2, techniques=["ddp"], checkpoint_every_s=0.3,
        stopper=pair_runs.Searched(metric="eval_loss"), runs_dir=directory, name="it",
        raise_on_failure=False, outlive_s=600,
    )
"""


class KilledDrivers:
    """A run whose driver is killed now and then, while tasks train on, and another takes it up."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "it"
        self.num_kills = 0
        self._log = directory / "said"
        self._chance = random.Random(SEED)
        script = directory / "driver.py"
        script.write_text(DRIVER)
        self._driver = self._started(sys.executable, script, directory)
        self._kill_at_s = math.inf

    def _started(self, *command: object) -> subprocess.Popen[bytes]:
        with self._log.open("a") as log:
            return subprocess.Popen([str(one) for one in command], stdout=log, stderr=log)

    def has_ended(self) -> bool:
        """Whether the run has; kills the driver if it is time to."""
        if self._driver.poll() is not None:
            return True
        if time.monotonic() > self._kill_at_s:
            self._driver.kill()
            if self._driver.wait() == -signal.SIGKILL:
                self.num_kills += 1
                time.sleep(self._chance.choice([0.0, 0.5]))
                self._driver = self._started(SATURN, "resume", self.path)
            self._kill_at_s = math.inf
        return False

    def trains(self) -> None:
        """A task trains: the driver may be killed, before long."""
        if self._kill_at_s == math.inf:
            self._kill_at_s = time.monotonic() + self._chance.uniform(0.0, 1.0)

    def steer(self, directory: Path) -> None:
        """As `pair_runs.steer`, between kills; then wait for the end."""
        acts = ["cancelled", "paused", "raised", "killed"]
        ends_s = time.monotonic() + 280
        while not self.has_ended():
            assert time.monotonic() < ends_s, f"it does not end; left: {acts}"
            time.sleep(0.02)
            try:
                run = saturn.attach("it", runs_dir=directory)
                trains = {
                    task["name"]
                    for task in run.status()["tasks"]
                    if task["stage"] == "running" and task["step"] >= pair_runs.AT
                }
                if trains:
                    self.trains()
                if name := next((name for name in acts if name in trains), None):
                    if name == "cancelled":
                        run.cancel(name)
                    elif name == "paused":
                        run.pause(name)
                    else:
                        (directory / name).touch()
                    acts.remove(name)
                elif not acts:
                    run.unpause("paused")
            except saturn.SaturnError:
                pass  # it has no driver that is ready, or nothing is paused


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_whatever_happens_to_tasks_drivers_may_be_killed_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SATURN_HOME", str(tmp_path / "home"))
    path = [str(PYTHON_DIR), str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, path)))
    drivers = KilledDrivers(tmp_path)
    drivers.steer(tmp_path)
    print(f"seed {SEED}: {drivers.num_kills} kills")
    said = (tmp_path / "said").read_text()
    report = json.loads(native.report(drivers.path))
    result = RunResult.from_report(report, drivers.path)
    assert report["status"] == "complete", said
    assert drivers.num_kills > 0, said
    goals = dict.fromkeys(EXPECTED, LOSS)
    pair_tables.judge(result, goals, {name: LOSS for name in goals if name != "follows"})
    assert_ended_as_expected(result)
    assert_no_loss_is_changed(drivers.path)


def assert_said(pattern: str, printed: str, seconds: float, *, within_s: float) -> None:
    """One line fits the pattern, and the first time in it is that of so many seconds.

    From ten seconds on, which a busy machine may take, times are told in whole ones.
    """
    found = [fits for line in printed.splitlines() if (fits := re.fullmatch(pattern, line.strip()))]
    assert len(found) == 1, (pattern, printed)
    minutes, told = found[0][1] or 0, found[0][2]
    within_s = within_s if "." in told else 0.6
    assert 60 * int(minutes) + float(told) == pytest.approx(seconds, abs=within_s)
