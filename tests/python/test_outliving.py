"""Tasks that train on if the program that drives their run is killed, until another takes them up.

Each loss is compared with plain torch, bit by bit, and no step may be trained twice: a task that
was taken up did not go back to a checkpoint.
"""

from __future__ import annotations

import fcntl
import itertools
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import saturn
from agents import agents_with
from saturn.runs.settings import Settings
from sweep_run import SATURN, TASKS, Run, assert_trained_as_plain_torch_does, has_begun

#: Kills of drivers, and now and then of an agent or a rank.
NUM_KILLS = int(os.environ.get("SATURN_TEST_KILLS", "8"))
#: Another at each run of the tests, told where a test fails.
SEED = int(os.environ.get("SATURN_TEST_SEED", str(time.time_ns() % 1_000_000)))


def records(run: Run, kind: str) -> list[dict[str, Any]]:
    """The journal's records of one kind, in order."""
    with sqlite3.connect(f"file:{run.path}/journal.db?mode=ro", uri=True) as journal:
        rows = [json.loads(row) for (row,) in journal.execute("SELECT record FROM record")]
    return [row for row in rows if row["record"] == kind]


def launches(run: Run) -> list[int]:
    """The tasks of all attempts that were launched to train, or went on to, by number."""
    task_of = {one["attempt"]: one["task"] for one in records(run, "launched")}
    trains = [one["task"] for one in records(run, "launched") if one["purpose"] == "train"]
    return trains + [task_of[one["attempt"]] for one in records(run, "went_on")]


def assert_no_step_was_trained_twice(run: Run) -> None:
    for task in TASKS:
        text = (run.path / "tasks" / task / "metrics.jsonl").read_text()
        steps = [json.loads(line)["step"] for line in text.splitlines()]
        assert len(steps) == len(set(steps)), task


def agents(run: Run) -> list[int]:
    """The processes that the run's ranks belong to."""
    return agents_with(f"SATURN_TEST_MARK={run.directory}")


def killed_while_it_trains(tmp_path: Path, outlive_s: float) -> Run:
    run = Run(tmp_path, "--outlive", str(outlive_s))
    run.wait_for_step(300)
    run.process.kill()
    assert run.wait() == -signal.SIGKILL
    return run


def test_tasks_train_on_when_their_driver_is_killed_and_resume_takes_them_up(
    tmp_path: Path,
) -> None:
    run = killed_while_it_trains(tmp_path, 120)
    assert agents(run), "the ranks belong to it"
    status = run.saturn("status")
    assert "no process drives the run; its tasks train on" in status.stderr
    closed = run.saturn("close")
    assert "its tasks train on; to take it up: saturn resume" in closed.stderr
    # It trains, or it is done, and nobody has heard so yet.
    at = len(run.losses("lr0.01"))
    deadline = time.monotonic() + 60
    while (now := len(run.losses("lr0.01"))) == at < 1200:
        assert time.monotonic() < deadline, "it does not train"
        time.sleep(0.02)
    assert now > at or at == 1200
    resumed = run.saturn("resume")
    assert resumed.returncode == 0, resumed.stderr
    assert "1 trained on" in resumed.stderr
    assert len(records(run, "resumed")[0]["adopted"]) == 1
    assert_trained_as_plain_torch_does(run)
    assert_no_step_was_trained_twice(run)
    assert sorted(launches(run)) == [0, 1]
    run.assert_nothing_lives()


@pytest.mark.slow
def test_trackers_are_told_of_tasks_that_are_taken_up(tmp_path: Path) -> None:
    run = Run(tmp_path, "--outlive", "600", "--logged")
    run.wait_for_step(300)
    run.process.kill()
    assert run.wait() == -signal.SIGKILL
    resumed = run.saturn("resume")
    assert resumed.returncode == 0, resumed.stderr
    assert "1 trained on" in resumed.stderr
    for task in TASKS:
        told = [line.split() for line in (run.path / f"logged-{task}").read_text().splitlines()]
        steps = [int(value) for word, value in told if word == "step"]
        assert sorted(set(steps)) == list(range(1, 1201)), task
        assert told[-1] == ["ended", "done"]
    run.assert_nothing_lives()


@pytest.mark.slow
def test_a_resume_that_is_refused_ends_nothing(tmp_path: Path) -> None:
    run = killed_while_it_trains(tmp_path, 600)
    refused = run.saturn("resume", "--devices", "0")
    assert refused.returncode == 2, refused.stderr
    assert agents(run), "its tasks train on"
    resumed = run.saturn("resume")
    assert resumed.returncode == 0, resumed.stderr
    assert "1 trained on" in resumed.stderr
    assert_trained_as_plain_torch_does(run)
    run.assert_nothing_lives()


def test_where_nobody_resumes_the_run_tasks_stop_at_checkpoints(tmp_path: Path) -> None:
    run = killed_while_it_trains(tmp_path, 0.1)
    run.assert_nothing_lives()
    # The devices are free: another run takes them.
    other = run.saturn("resume")
    assert other.returncode == 0, other.stderr
    assert "adopted" not in records(run, "resumed")[0]
    assert_trained_as_plain_torch_does(run)
    assert_no_step_was_trained_twice(run)


@pytest.mark.slow
def test_tasks_that_train_on_are_stopped_by_saturn_stop(tmp_path: Path) -> None:
    run = killed_while_it_trains(tmp_path, 600)
    stopped = run.saturn("stop")
    assert stopped.returncode == 0, stopped.stderr
    assert "to go on: saturn resume" in stopped.stderr
    run.assert_nothing_lives()
    again = run.saturn("stop")
    assert again.returncode == 2
    assert "no process drives the run" in again.stderr
    assert run.saturn("resume").returncode == 0
    assert_trained_as_plain_torch_does(run)
    assert_no_step_was_trained_twice(run)


@pytest.mark.slow
def test_on_other_devices_tasks_go_on_from_their_checkpoints(tmp_path: Path) -> None:
    run = killed_while_it_trains(tmp_path, 600)
    resumed = run.saturn("resume", "--device-memory", "none")
    assert resumed.returncode == 0, resumed.stderr
    assert "trained on" not in resumed.stderr
    assert_trained_as_plain_torch_does(run)
    run.assert_nothing_lives()


@pytest.mark.slow
def test_a_killed_agent_is_replaced_and_its_tasks_go_on_from_their_checkpoints(
    tmp_path: Path,
) -> None:
    run = Run(tmp_path, "--outlive", "600")
    run.wait_for_step(300)
    (agent,) = agents(run)
    os.kill(agent, signal.SIGKILL)
    assert run.wait() == 0, run.stderr.read_text()
    assert "ended unexpectedly" in run.stderr.read_text()
    assert_trained_as_plain_torch_does(run)
    run.assert_nothing_lives()


def waits_for(lock: Path) -> threading.Thread:
    """Wait for a device as another run does, and leave it at once; alive until then."""

    def wait() -> None:
        with lock.open() as file:
            fcntl.flock(file, fcntl.LOCK_EX)

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    return thread


@pytest.mark.slow
def test_a_run_that_was_taken_up_keeps_its_devices_when_its_agent_dies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SATURN_LOCKS_DIR", str(tmp_path / "locks"))
    run = killed_while_it_trains(tmp_path, 600)
    (agent,) = agents(run)
    run.resume()
    while not records(run, "resumed"):
        assert run.process.poll() is None, run.stderr.read_text()
        time.sleep(0.01)
    (lock,) = (tmp_path / "locks").glob("*.lock")
    waiting = waits_for(lock)
    time.sleep(0.1)
    os.kill(agent, signal.SIGKILL)
    while not [pid for pid in agents(run) if pid != agent]:
        assert run.process.poll() is None, run.stderr.read_text()
    assert waiting.is_alive(), "another run could take the device"
    assert run.wait() == 0, run.stderr.read_text()
    assert_trained_as_plain_torch_does(run)
    run.assert_nothing_lives()
    waiting.join(timeout=20)
    assert not waiting.is_alive(), "the run leaves the device at its end"


@pytest.mark.slow
def test_a_process_that_can_not_be_ended_costs_its_device_under_the_next_driver_too(
    tmp_path: Path,
) -> None:
    run = Run(tmp_path, "--outlive", "600")

    def is_tried() -> bool:
        launched = records(run, "launched") if has_begun(run.path) else []
        return any(one["purpose"] == "trial" for one in launched) and bool(run.ranks())

    while not is_tried():
        assert run.process.poll() is None, run.stderr.read_text()
    # Nobody reaps the rank of the trial: it stays, as a process that waits for a device does.
    frozen = [*run.warm_parents(), *run.ranks()]
    for pid in frozen:
        os.kill(pid, signal.SIGSTOP)
    run.process.kill()
    run.wait()
    run.resume()
    while not (aside := records(run, "set_aside")):
        assert run.process.poll() is None, run.stderr.read_text()
        time.sleep(0.05)
    assert "were killed and have not ended (1 of them)" in aside[0]["reason"]
    launched = len(records(run, "launched"))
    time.sleep(1.0)
    assert len(records(run, "launched")) == launched, "its device is not used"
    for pid in run.warm_parents():
        os.kill(pid, signal.SIGCONT)
    assert run.wait() == 0, run.stderr.read_text()
    assert [one["reason"] for one in records(run, "taken_back")] == ["its processes are gone"]
    assert_trained_as_plain_torch_does(run)
    run.assert_nothing_lives()


@pytest.mark.slow
def test_a_run_whose_agent_and_driver_are_killed_resumes(tmp_path: Path) -> None:
    run = Run(tmp_path, "--outlive", "600")
    run.wait_for_step(300)
    for pid in run.processes():
        os.kill(pid, signal.SIGKILL)
    run.wait()
    resumed = run.saturn("resume")
    assert resumed.returncode == 0, resumed.stderr
    assert_trained_as_plain_torch_does(run)
    run.assert_nothing_lives()


@pytest.mark.slow
def test_a_program_that_ends_leaves_nothing_behind(tmp_path: Path) -> None:
    run = Run(tmp_path, "--outlive", "600")
    run.wait_for_step(300)
    run.process.send_signal(signal.SIGINT)
    assert run.wait() == 130
    run.assert_nothing_lives()
    assert run.saturn("resume").returncode == 0
    assert_trained_as_plain_torch_does(run)
    assert_no_step_was_trained_twice(run)
    run.assert_nothing_lives()


def wait_for_another_step(run: Run) -> None:
    """Wait until a task trains, or the run has ended."""
    at = sum(len(run.losses(task)) for task in TASKS)
    while run.process.poll() is None:
        if sum(len(run.losses(task)) for task in TASKS) > at:
            return
        time.sleep(0.02)


class Commands:
    """Commands to a run, one after the other, whether or not a process drives it.

    Each gives a higher priority to the task that trains first, so that no plan changes. By the
    number its effect is found in the journal.
    """

    def __init__(self, run: Run) -> None:
        self.run = run
        self.done: list[int] = []
        self.unsure: list[int] = []
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._give, daemon=True)
        self._thread.start()

    def _give(self) -> None:
        for number in itertools.count(1):
            if self._is_over.wait(0.05):
                return
            given = subprocess.run(
                [SATURN, "priority", self.run.path, TASKS[0], str(number)],
                env=self.run.environment,
                capture_output=True,
                check=False,
            )
            (self.unsure if given.returncode else self.done).append(number)

    def end(self) -> None:
        """Give no more."""
        self._is_over.set()
        self._thread.join(timeout=60)

    def assert_each_has_its_effect_once(self) -> None:
        """What was answered was done once; what was not may have been, before its driver died."""
        self.end()
        times = Counter(one["wishes"]["priority"] for one in records(self.run, "wished"))
        assert [number for number in self.done if times[number] != 1] == [], f"seed {SEED}"
        assert [number for number in self.unsure if times[number] > 1] == [], f"seed {SEED}"


@pytest.mark.slow
def test_a_driver_may_be_killed_at_any_moment_and_no_step_and_no_command_is_lost(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """More kills: SATURN_TEST_KILLS=300."""
    chance = random.Random(SEED)
    num_kills = num_in_training = num_adopted = num_commands = 0
    while num_kills < NUM_KILLS:
        run = Run(tmp_path_factory.mktemp("killed"), "--outlive", "600")
        while not has_begun(run.path):
            assert run.process.poll() is None, run.stderr.read_text()
            time.sleep(0.01)
        commands = Commands(run)
        while num_kills < NUM_KILLS:
            if is_in_training := chance.random() < 0.5:
                wait_for_another_step(run)
            time.sleep(chance.uniform(0.0, 0.5 if is_in_training else 2.5))
            run.process.kill()
            if run.process.wait(timeout=100) == 0:
                break
            num_kills += 1
            num_in_training += is_in_training
            # While nobody drives the run, for longer or shorter.
            time.sleep(chance.choice([0.0, 0.0, chance.uniform(0.0, 1.0)]))
            run.resume()
        assert run.wait() == 0, f"seed {SEED}: {run.stderr.read_text()}"
        commands.assert_each_has_its_effect_once()
        num_commands += len(commands.done)
        assert_trained_as_plain_torch_does(run)
        assert_no_step_was_trained_twice(run)
        # A driver that was killed within a trial had the trial repeated, and nothing else.
        assert sorted(launches(run)) == [0, 1], f"seed {SEED}"
        num_adopted += sum(len(one.get("adopted", [])) for one in records(run, "resumed"))
        run.assert_nothing_lives()
    print(
        f"seed {SEED}: {num_kills} kills, {num_in_training} of them in training; "
        f"{num_adopted} times a task was taken up; {num_commands} commands"
    )
    assert num_adopted > 0 and num_commands > 0


def test_on_a_cluster_tasks_end_with_the_program() -> None:
    with pytest.raises(saturn.InvalidInput, match="outlive_s: on a cluster"):
        Settings(mode="orchestrate", cluster="auto", outlive_s=60).checked()


def test_the_agent_says_why_it_can_not_start(tmp_path: Path) -> None:
    answer = subprocess.run(
        [sys.executable, "-m", "saturn.runs.agent"],
        input='{"locks": [], "nonsense": 1}\n',
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "missing field" in json.loads(answer.stdout)["failed"]
