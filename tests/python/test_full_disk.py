"""A full disk: told apart as `no_space`, and no reason to lose more than what can't be written.

`/dev/full` stands for it: what is written there fails with ENOSPC.
"""

from __future__ import annotations

import errno
import json
import os
import sys
from pathlib import Path
from typing import Any

import black_boxes
import pytest
import torch
from harness import Runtime
from models import Calls, Mlp, definition, shuffled_loader
from saturn.checkpoint import manifest
from saturn.rank.failure import describe
from saturn.worker.metrics import Metrics
from techniques_of_tests import spec_of

FULL = OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize(
    "error",
    [
        FULL,
        OSError(errno.EDQUOT, "Disk quota exceeded"),
        RuntimeError("PytorchStreamWriter failed: No space left on device"),
        OSError(
            "Caught OSError in DataLoader worker process 0: [Errno 28] No space left on device"
        ),
    ],
)
def test_a_full_disk_is_a_kind_of_its_own(error: Exception) -> None:
    assert describe(error).kind == "no_space"


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (OSError(errno.EIO, "Input/output error"), "error"),
        (ValueError("No space left on device"), "error"),
        # Shared memory is memory.
        (RuntimeError("unable to allocate shared memory(shm) for file </torch_1>: No space left on "
                      "device (28)"), "out_of_memory"),
    ],
)  # fmt: skip
def test_what_is_none(error: Exception, kind: str) -> None:
    assert describe(error).kind == kind


def full_disk() -> Mlp:
    """Nothing can be committed."""

    def commit(*_: Any) -> Any:
        raise FULL

    manifest.commit = commit
    return Mlp()


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_save_without_space_ends_the_attempt_and_leaves_nothing_behind(
    run: Runtime, ranks: int
) -> None:
    run.write_task(definition())
    assert run.run("mlp", "ddp", ranks=ranks, steps=3).codes == [0] * ranks
    run.write_task(definition(get_model=full_disk))
    result = run.run("mlp", "ddp", ranks=ranks, steps=6)
    assert result.codes == [1] * ranks, result.logs
    assert {failed["kind"] for failed in result.of("failed")} == {"no_space"}
    # What was half-written takes no space.
    assert run.checkpoints("mlp") == ["step-00000003"]
    run.write_task(definition())
    result = run.run("mlp", "ddp", ranks=ranks, steps=6)
    assert result.codes == [0] * ranks and result.one("started")["step"] == 3, result.logs


@pytest.mark.parametrize("technique", ["ddp", spec_of(black_boxes.NeedsSpace, "black_box")])
def test_a_trial_without_space_says_nothing_of_its_strategy(run: Runtime, technique: Any) -> None:
    run.write_task(definition(get_model=full_disk))
    result = run.run("mlp", technique, kind="trial")
    assert result.codes == [1], result.logs
    assert result.one("failed")["kind"] == "no_space" and not result.of("trial")


def full_loader() -> Any:
    raise FULL


def test_the_tasks_own_functions_are_not_to_blame(run: Runtime) -> None:
    run.write_task(definition(get_dataloader=full_loader))
    assert run.run("mlp", "ddp", steps=3).one("failed")["kind"] == "no_space"


def test_metrics_that_cannot_be_written_end_nothing(run: Runtime) -> None:
    run.write_task(definition())
    (run.task_dir("mlp") / "metrics.jsonl").symlink_to("/dev/full")
    result = run.run("mlp", "ddp", ranks=2, steps=5)
    assert result.codes == [0, 0], result.logs
    assert result.one("finished")["step"] == 5
    assert "the losses from step 1 on can't be written" in result.one("note")["text"]
    # Neither those of a black box.
    assert run.run("mlp", spec_of(black_boxes.OfClass, "black_box"), steps=9).codes == [0]


def test_metrics_are_kept_until_there_is_space(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even where the last line went in half."""
    write, room = os.write, 70

    def limited(descriptor: int, data: Any) -> int:
        nonlocal room
        if room == 0:
            raise FULL
        written = write(descriptor, data[:room])
        room -= written
        return written

    monkeypatch.setattr(os, "write", limited)
    metrics = Metrics(tmp_path)
    for step in range(1, 4):
        metrics.add(step, 0.5)
    assert metrics.failure is FULL
    room = 10_000
    metrics.add(4, 0.5)
    assert metrics.failure is None
    metrics.close()
    lines = (tmp_path / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == [1, 2, 3, 4]


def printing() -> Mlp:
    """From here on the log is on a full disk."""
    full = os.open("/dev/full", os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(full, stream)
    model = Mlp()

    def say(*_: Any) -> None:
        print("a word of the task's own")
        sys.stdout.buffer.write(b"bytes\n")
        sys.stderr.write("another")
        sys.stderr.flush()

    model.register_forward_pre_hook(say)
    return model


@pytest.mark.slow(quick=["False"])
@pytest.mark.parametrize("cold", [False, True])
def test_a_log_that_cannot_be_written_ends_nothing(run: Runtime, cold: bool) -> None:
    run.write_task(definition(get_model=printing))
    assert run.run("mlp", "ddp", steps=3, cold=cold).codes == [0]


def test_a_log_that_cannot_be_opened_ends_nothing(run: Runtime) -> None:
    run.write_task(definition())
    gang = run.launch("mlp", "ddp", steps=3, log=Path("/dev/null/rank-0.log"))
    assert gang.wait().codes == [0]


def test_what_is_printed_goes_to_the_log(run: Runtime) -> None:
    run.write_task(definition(get_dataloader=chatty_loader))
    logs = run.run("mlp", "ddp", steps=1).logs
    assert "schöne Daten\n" in logs and "raw" in logs


def chatty_loader() -> Any:
    print("schöne Daten")
    sys.stdout.buffer.write(b"raw")
    torch.manual_seed(0)
    return shuffled_loader()


def nearly_full() -> None:
    import shutil

    usage = shutil.disk_usage
    shutil.disk_usage = lambda path: usage(path)._replace(free=1000)  # type: ignore[assignment]


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_checkpoint_that_has_no_room_is_not_begun(run: Runtime, ranks: int) -> None:
    run.write_task(definition(hints={"by": Calls(nearly_full)}))
    result = run.run("mlp", "fsdp", ranks=ranks, steps=3)
    assert result.codes == [1] * ranks, result.logs
    told = {(failed["kind"], failed["error"].split("]")[-1]) for failed in result.of("failed")}
    assert len(told) == 1
    [(kind, error)] = told
    assert kind == "no_space"
    assert "would write" in error and "room for 1 kB; nothing was written" in error
    assert f"the disk of `{run.task_dir('mlp') / 'checkpoints'}` has" in error
    assert run.checkpoints("mlp") == []
    run.write_task(definition())
    assert run.run("mlp", "fsdp", ranks=ranks, steps=3).codes == [0] * ranks
