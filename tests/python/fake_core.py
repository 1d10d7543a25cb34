"""A stand-in for the compiled core: it keeps each request, and answers with a report."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any


class FakeCore:
    """Stands in for the compiled part: notes the request, answers with a report."""

    def __init__(self, answer: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
        self.answer = answer
        self.request: dict[str, Any] = {}

    def __call__(self, request: str, write: Any, **more: Any) -> str:
        self.request = json.loads(request)
        self.write = write
        if write is not None:
            write("a line\n")
        return json.dumps(self.answer(self.request))


MEASURED = {"outcome": "measured", "step_s": 0.5, "setup_s": 1.0, "peak_memory_bytes": 9}
MEASURED = {**MEASURED, "timed_steps": 3, "batches_per_epoch": 6}
REFUSED = {"outcome": "not_applicable", "reason": "too small"}
CRASHED = {"outcome": "failed", "error": "ValueError: x", "traceback": "…"}


def report_of(request: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """A report in which every task was measured under ddp and trained."""
    tasks = [
        {
            "name": task["name"],
            "status": "done",
            "final_loss": 0.25,
            "step": 10,
            "technique": "ddp",
            "gpus": 1,
            "knobs": {"k": 1},
            "start_s": 1.0,
            "end_s": 6.0,
            "train_s": 5.0,
            "attempts": 1,
            "error": None,
            "traceback": "",
            "dir": task["dir"],
        }
        for task in request["tasks"]
    ]
    everyone = list(range(len(tasks)))
    trial = {"task": 0, "speaks_for": everyone, "gpus": 1, "knobs": {}, "reused": False}
    return {
        "version": 1,
        "status": "complete",
        "tasks": tasks,
        "trials": [
            {**trial, "technique": "ddp", "knobs": {"k": 1}, "result": MEASURED},
            {**trial, "technique": "fsdp", "result": REFUSED},
            {**trial, "technique": "fsdp", "gpus": 2, "result": CRASHED},
            {**trial, "technique": "ddp", "gpus": 2, "result": None},
        ],
        "totals": {
            "total_s": 6.0,
            "startup_s": 0.5,
            "current_practice_total_s": 9.5,
            "did_all_that_was_planned": True,
            "makespan_s": 5.0,
            "planned_makespan_s": 4.5,
            "lower_bound_s": 4.0,
            "current_practice_s": 9.0,
        },
        **changes,
    }
