"""The black box of the pairs' cases: the loop of `pair_models`, on Saturn's batches."""

from __future__ import annotations

import os
from typing import Any

import pairs
from pair_models import Loop
from saturn.core.executors.Technique import BaseTechnique


class Box(BaseTechnique):
    def execute(task, gpus, task_id, batch_count):  # noqa: N805
        (case,) = (case for case in pairs.cases() if case.label == os.environ["PAIR_CASE"])
        batches: Any = task.get_iterator()
        loop = Loop(case, iter(batches))
        if (saved := task.saved()) is not None:
            loop.load(saved)
        while True:
            try:
                loop.step()
            except StopIteration:
                break
        task.save(loop.state())
