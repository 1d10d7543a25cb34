"""Saves that go on while training does: what they block, what they keep, how they fail."""

from __future__ import annotations

import errno
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import closeness
from harness import Runtime
from models import Calls, Mlp, definition
from saturn.checkpoint import checkpoints, manifest
from saturn.tasks.definition import TaskDefinition

#: Longer than many steps.
SLOW_S = 0.4


def task(sabotage: Callable[[], None], name: str = "mlp") -> TaskDefinition:
    model = partial(Mlp, dropout=0.1)
    return definition(name, get_model=model, hints={"by": Calls(sabotage)})


def in_background() -> None:
    """Lets every save but the first of an attempt go to the background."""
    checkpoints._LEAST_BACKGROUND_BYTES = 0
    checkpoints._LEAST_WAITING_SHARE = -1.0


def slowly_in_background() -> None:
    commit = manifest.commit

    def slow(*arguments: Any) -> Any:
        time.sleep(SLOW_S)
        return commit(*arguments)

    manifest.commit = slow
    in_background()


def failing_once() -> None:
    """The second save of an attempt, the first in the background, finds the disk full."""
    commit, calls = manifest.commit, []

    def full(*arguments: Any) -> Any:
        calls.append(arguments)
        if len(calls) == 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        return commit(*arguments)

    manifest.commit = full
    in_background()


def failing_always() -> None:
    def full(*_: Any) -> Any:
        raise OSError(errno.ENOSPC, "No space left on device")

    manifest.commit = full
    in_background()


def test_training_goes_on_and_is_the_same(run: Runtime) -> None:
    run.write_task(task(slowly_in_background, "slow"))
    result = run.run("slow", "ddp", ranks=2, steps=300, checkpoint_every_s=0.0)
    assert result.codes == [0, 0], result.logs
    first, *others, last = result.of("checkpoint")
    assert first["step"] == 1 and first["blocked_s"] == first["save_s"]
    assert last["step"] == 300 and last["blocked_s"] == last["save_s"] >= SLOW_S
    assert others
    for save in others:
        # However busy the machine is, training does not wait for the slow part.
        assert 0 < save["blocked_s"] <= save["save_s"] - SLOW_S
    # One at a time, and steps in between, however few of them a slow machine takes meanwhile.
    steps = [save["step"] for save in result.of("checkpoint")]
    assert steps == sorted(set(steps)) and len(steps) < 300
    assert run.checkpoints("slow") == [f"step-{step:08d}" for step in steps[-2:]]

    run.write_task(task(in_background, "plain"))
    assert run.run("plain", "ddp", ranks=2, steps=300).codes == [0, 0]
    assert closeness.ulps(run.losses("slow"), run.losses("plain")) == 0.0


def test_a_stop_waits_for_the_save_and_then_saves(run: Runtime) -> None:
    run.write_task(task(slowly_in_background))
    gang = run.launch("mlp", "fsdp", ranks=2, steps=10**6, checkpoint_every_s=0.0)
    gang.wait_for("checkpoint", count=1)
    gang.stop()
    result = gang.wait()
    assert result.codes == [0, 0], result.logs
    stopped = result.one("stopped")["step"]
    assert result.of("checkpoint")[-1]["step"] == stopped
    assert run.checkpoints("mlp")[-1] == f"step-{stopped:08d}"
    assert not any(name.startswith(manifest.UNFINISHED) for name in run.checkpoints("mlp"))
    # What was saved in the background is the state of its step, not of a later one.
    again = run.run("mlp", "ddp", ranks=2, steps=stopped + 2)
    assert again.one("started")["step"] == stopped


def test_one_that_fails_is_told_and_the_next_is_waited_for(run: Runtime) -> None:
    run.write_task(task(failing_once))
    # How many steps pass while a save is written is the disk's affair: it trains until enough are.
    gang = run.launch("mlp", "fsdp", ranks=2, steps=10**6, checkpoint_every_s=0.0)
    gang.wait_for("checkpoint", count=4)
    gang.stop()
    result = gang.wait()
    assert result.codes == [0, 0], result.logs
    notes = [note["text"] for note in result.of("note")]
    (note,) = [text for text in notes if "could not be written" in text]
    assert "could not be written (no_space): OSError: [Errno 28] No space left on device" in note
    failed_step = int(note.split()[4])
    saves = result.of("checkpoint")
    assert failed_step not in [save["step"] for save in saves]
    assert saves[1]["blocked_s"] == saves[1]["save_s"]
    assert len(saves) > 3 and saves[-1]["step"] == result.one("stopped")["step"]


def test_one_that_fails_while_training_waits_fails_the_attempt(run: Runtime) -> None:
    run.write_task(task(in_background))
    assert run.run("mlp", "ddp", ranks=2, steps=3).codes == [0, 0]
    run.write_task(task(failing_always))
    result = run.run("mlp", "ddp", ranks=2, steps=6)
    assert result.codes == [1, 1]
    kinds = {failed["kind"] for failed in result.of("failed")}
    assert kinds == {"no_space"}
    assert "No space left" in result.of("failed")[0]["error"]
    assert manifest.newest_valid(run.task_dir("mlp") / "checkpoints")[1]["step"] == 3  # type: ignore[index]
