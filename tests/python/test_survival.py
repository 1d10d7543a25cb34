"""Runs that are interrupted, killed and resumed, with real processes and real training.

Each is compared, loss by loss, with plain torch: on one device by one strategy, the losses must be
the same bits.
"""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import pytest
import saturn
from sweep_run import Run, assert_trained_as_plain_torch_does, plain_losses


@pytest.mark.slow
def test_ctrl_c_stops_at_checkpoints_and_resume_finishes(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.wait_for_step(300)
    run.process.send_signal(signal.SIGINT)
    assert run.wait() == 130
    shown = run.stderr.read_text()
    assert f"saturn resume {run.path}" in shown
    run.assert_nothing_lives()
    # Stopped at a checkpoint: not one step is trained twice.
    saved = int(run.checkpoints("lr0.01")[-1].name.removeprefix("step-"))
    assert saved == max(run.losses("lr0.01"))

    resumed = run.saturn("resume")
    assert resumed.returncode == 0, resumed.stderr
    assert_trained_as_plain_torch_does(run)
    run.assert_nothing_lives()
    # A run that is complete is only reported on.
    again = run.saturn("resume", "--json")
    assert again.returncode == 0
    assert json.loads(again.stdout)["totals"]["done"] == 2


@pytest.mark.slow
def test_a_second_ctrl_c_ends_at_once_and_keeps_checkpoints(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.wait_for_step(300)
    saved = run.checkpoints("lr0.01")
    run.process.send_signal(signal.SIGINT)
    # Within a second it would be the same wish.
    time.sleep(1.1)
    run.process.send_signal(signal.SIGINT)
    # A shell calls both 130. The second: the run had stopped already, and Python itself was struck.
    assert run.wait() in (130, -signal.SIGINT)
    run.assert_nothing_lives()
    assert run.checkpoints("lr0.01")[-1] >= saved[-1]
    assert run.saturn("resume").returncode == 0
    assert_trained_as_plain_torch_does(run)


def test_a_killed_driver_takes_its_workers_along_and_resume_finishes(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.wait_for_step(400)
    run.process.kill()
    assert run.wait() == -signal.SIGKILL
    run.assert_nothing_lives()
    resumed = run.saturn("resume")
    assert resumed.returncode == 0, resumed.stderr
    assert_trained_as_plain_torch_does(run)
    # As `saturn sweep` lists the tasks of its run, to the last digit.
    tasks = {task.name: task.value for task in saturn.attach(run.path).wait().tasks}
    ranked = sorted(tasks.items(), key=lambda one: one[1])
    assert resumed.stdout == "".join(f"{value:<12.6g}{name}\n" for name, value in ranked)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGKILL])
def test_a_killed_rank_goes_back_to_its_checkpoint(tmp_path: Path, number: signal.Signals) -> None:
    run = Run(tmp_path)
    run.wait_for_step(400)
    ranks = run.ranks()
    assert len(ranks) == 1
    os.kill(ranks[0], number)
    assert run.wait() == 0, run.stderr.read_text()
    assert f"signal {number.value}" in run.stderr.read_text()
    assert_trained_as_plain_torch_does(run)


@pytest.mark.slow
def test_a_run_killed_during_its_trials_goes_on(tmp_path: Path) -> None:
    run = Run(tmp_path)
    deadline = time.monotonic() + 200
    while not (run.path / "tasks" / "lr0.01" / "attempts").exists():
        assert time.monotonic() < deadline, run.stderr.read_text()
        time.sleep(0.005)
    run.process.kill()
    run.wait()
    resumed = run.saturn("resume")
    assert resumed.returncode == 0, resumed.stderr
    assert_trained_as_plain_torch_does(run)


# What fails is told in the quick form too, by `test_bad_input`.
@pytest.mark.slow
def test_a_task_that_fails_stops_no_other_and_the_exit_code_tells(tmp_path: Path) -> None:
    run = Run(tmp_path, "--cursed")
    assert run.wait() == 1
    shown = run.stderr.read_text()
    assert "in fail_late" in shown, "the worker's own traceback"
    assert "the twenty-first batch is cursed" in shown
    assert run.losses("lr0.001") == plain_losses()["lr0.001"]
    assert run.stdout.read_text() == ""
    assert run.saturn("resume").returncode == 1
