"""A run on a machine with little memory of its own: what can't fit is told, the rest is trained."""

from __future__ import annotations

from pathlib import Path

import memory_models
import pytest
import saturn
from saturn import HParams, InvalidInput, Task, TasksFailed
from torch import nn


def task(name: str, depth: int) -> Task:
    return Task(
        memory_models.Deep,
        memory_models.batches,
        nn.functional.cross_entropy,
        HParams(lr=0.001, batch_count=3, depth=depth),
        name=name,
    )


def test_a_model_too_large_for_the_machine_is_told_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    # With gradients and AdamW's state: 168 MB, and a tenth of that.
    with pytest.raises(TasksFailed) as failed:
        saturn.orchestrate(
            [task("huge", 10), task("small", 1)],
            techniques=["ddp"],
            devices=1,
            host_memory="100MB",
        )
    by_name = {one.name: one for one in failed.value.result.tasks}
    assert by_name["small"].status == "done"
    assert by_name["huge"].status == "failed"
    error = by_name["huge"].error
    assert error is not None and error.endswith(
        "it needs at least 168 MB of host memory, and a node allows 100 MB (host_memory)"
    )
    assert "\n" not in error


def test_sizes_that_say_nothing_are_refused() -> None:
    with pytest.raises(InvalidInput, match="host_memory is 0 bytes"):
        saturn.orchestrate([task("a", 1)], host_memory=0)
