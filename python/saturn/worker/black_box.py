"""Run a black-box technique: its `execute` to train, its `search` in a trial.

A black-box technique trains by itself, in one process that sees only its own devices. This module
counts the batches that the technique takes, keeps the states that it saves, and times it.
"""

from __future__ import annotations

import itertools
import json
import shutil
import statistics
import time
from pathlib import Path
from typing import Any

from saturn.checkpoint import manifest
from saturn.checkpoint.place import Directory
from saturn.rank.failure import describe
from saturn.rank.memory import PeakMemory
from saturn.rank.process import now_when_idle, seconds_alive
from saturn.tasks.definition import TaskDefinition
from saturn.tasks.strategy import Strategy, wrap_parameters
from saturn.techniques.black_box import BaseTechnique, bound_function
from saturn.techniques.interface import NotApplicable
from saturn.worker.black_box_task import BlackBoxTask
from saturn.worker.event_file import EventFile
from saturn.worker.export import export
from saturn.worker.load_technique import load_class
from saturn.worker.metrics import Metrics
from saturn.worker.report import Reporter
from saturn.worker.spec import Spec

#: `search` may take this many batches for each step of a trial, if the loader has no length.
_SEARCH_BATCHES_A_STEP = 10


def run(spec: Spec, definition: TaskDefinition, reporter: Reporter) -> None:
    """Train, or run a trial; the spec says which."""
    technique = load_class(spec.technique)
    if not issubclass(technique, BaseTechnique):
        raise TypeError(
            f"technique `{spec.technique.name}` is a {technique.__name__}, which is not a "
            "BaseTechnique"
        )
    if definition.evaluate is not None:
        raise NotApplicable("the task has `evaluate`, and a black-box technique trains by itself")
    if spec.kind == "train":
        _train(spec, definition, technique, reporter)
    else:
        _trial(spec, definition, technique, reporter)


def _train(
    spec: Spec, definition: TaskDefinition, technique: type[BaseTechnique], reporter: Reporter
) -> None:
    assert spec.steps is not None  # `spec.load` has checked it
    execute = bound_function(technique, "execute")
    task = _task(spec, definition, spec.knobs or {}, spec.checkpoints_dir, reporter)
    limit = task.train_until(spec.steps)
    steps = task.accumulation.steps
    events = EventFile(spec.task_dir, spec.attempt, reporter.note)
    events.begin(steps(task.start), spec.strategy_text, spec.gpus)
    events.close()
    reporter.send({"type": "started", "step": steps(task.start), "setup_s": seconds_alive()})
    if limit > 0:
        try:
            execute(task, list(range(spec.gpus)), spec.attempt, limit)
        except StopIteration:
            # `execute` took batches by `next`, and a stop request had ended the iterator.
            if not reporter.stop_requested:
                raise
        task.returned()
    reached, saved = _reached(task, spec.checkpoints_dir, limit)
    if steps(reached) < spec.steps:
        if not reporter.stop_requested:
            raise RuntimeError(
                f"technique `{spec.technique.name}`: execute returned after {reached - task.start} "
                f"of the {limit} batches that it was to train"
            )
        if saved < reached:
            reporter.note(
                f"execute stopped without saving: {reached - saved} batches are trained again"
            )
        reporter.send({"type": "stopped", "step": steps(saved)})
        return
    if saved < reached:
        reporter.note(
            f"execute returned without saving its last {reached - saved} batches: the trained "
            "model is not kept (call task.save(model.state_dict()) at the end)"
        )
    if task.loss is not None:
        _add_loss(spec, reporter, steps(reached), task.loss)
    if saved > 0 and definition.save_dir is not None:
        export(spec, definition, definition.save_dir, steps(saved), reporter)
    reporter.send({"type": "finished", "step": steps(reached), "loss": task.loss})


def _reached(task: BlackBoxTask, checkpoints_dir: Directory, limit: int) -> tuple[int, int]:
    """(batches done, batches in the last checkpoint) after `execute` has returned."""
    # Read from disk, because a process that `execute` started may have saved.
    newest = manifest.newest_valid(checkpoints_dir)
    saved = 0 if newest is None else newest[1]["batches"]
    if task.iterated:
        return task.start + task.given, saved
    return (saved if saved > task.start else task.start + limit), saved


def _trial(
    spec: Spec, definition: TaskDefinition, technique: type[BaseTechnique], reporter: Reporter
) -> None:
    search, execute = bound_function(technique, "search"), bound_function(technique, "execute")
    gpus = list(range(spec.gpus))
    memory = PeakMemory(spec.device_kind)
    memory.restart()
    scratch = spec.attempt_dir / "scratch"
    limit = _SEARCH_BATCHES_A_STEP * (spec.warmup_steps + max(2, spec.timed_steps))
    task = _task(
        *(spec, definition, {}, scratch / "search", reporter),
        limit=limit,
        each_iterator_an_epoch=True,
    )
    batches_per_epoch = task.batches_per_epoch
    setup_s = seconds_alive()
    try:
        parameters, batch_s = _answer(_search(search, task, gpus, spec.attempt))
        knobs = wrap_parameters(parameters)
        _check_plain(knobs)
        if batch_s is None:
            began = time.monotonic()
            batch_s, first_s = _time_execute(spec, definition, execute, knobs, scratch, reporter)
            setup_s += first_s - began
    except Exception as error:
        failure = describe(error, device_kind=spec.device_kind)
        told = ("task", "out_of_memory", "host_memory", "no_space", "not_applicable")
        if failure.kind in told:
            raise
        reporter.send(
            {
                "type": "trial",
                "knobs": {},
                "outcome": {
                    "outcome": "failed",
                    "error": failure.error,
                    "traceback": failure.traceback,
                },
            }
        )
        return
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    outcome: dict[str, Any] = {
        "outcome": "measured",
        "step_s": batch_s * definition.gradient_accumulation_steps,
        "setup_s": setup_s,
        "peak_memory_bytes": memory.peak_bytes(),
        "timed_steps": max(2, spec.timed_steps),
    }
    if batches_per_epoch is not None:
        outcome["batches_per_epoch"] = batches_per_epoch
    reporter.send({"type": "trial", "knobs": knobs, "outcome": outcome})


def _search(search: Any, task: BlackBoxTask, gpus: list[int], task_id: int) -> Any:
    """Call `search`; returns its answer."""
    try:
        return search(task, gpus, task_id)
    except StopIteration as error:
        raise RuntimeError(
            "search raised StopIteration: while it runs, task.get_iterator() gives one epoch at a "
            "time, or a few dozen batches of a loader without length"
        ) from error


def _answer(found: Any) -> tuple[Any, float | None]:
    """(parameters, seconds a batch or None) out of what `search` returned."""
    if not (isinstance(found, tuple) and len(found) == 2):
        return found, None
    parameters, batch_s = found
    if batch_s is None:
        if parameters is None:
            raise NotApplicable(
                "search returned (None, None): the technique can't run this task on these devices"
            )
        return parameters, None
    if isinstance(batch_s, bool) or not isinstance(batch_s, int | float):
        return found, None  # the pair itself is the parameters: its second half is no time
    if not 0 < batch_s < float("inf"):
        raise ValueError(f"search returned {batch_s} seconds a batch; it must be positive")
    return parameters, float(batch_s)


def _check_plain(knobs: dict[str, Any]) -> None:
    try:
        json.dumps(knobs, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise TypeError(
            "search returned parameters that are not plain data (numbers, strings, lists, "
            f"mappings with string keys): {error}"
        ) from error


def _time_execute(
    spec: Spec,
    definition: TaskDefinition,
    execute: Any,
    knobs: dict[str, Any],
    scratch: Path,
    reporter: Reporter,
) -> tuple[float, float]:
    """(seconds a batch, when the first batch was requested), from `execute` on a few batches."""
    timed_steps = max(2, spec.timed_steps)
    gpus = list(range(spec.gpus))
    # One batch more than is timed. If `execute` counts batches itself, it never asks for a batch
    # after its last batch. Then nobody sees when the last batch ends.
    count = spec.warmup_steps + timed_steps + 1
    task = _task(spec, definition, knobs, scratch / "execute", reporter, limit=count)
    began = time.monotonic()
    execute(task, gpus, spec.attempt, count)
    if task.iterated:
        seconds = [later - sooner for sooner, later in itertools.pairwise(task.times)]
        if len(seconds) < spec.warmup_steps + 2:
            raise RuntimeError(f"execute took {task.given} of the {count} batches of its trial")
        return statistics.median(seconds[spec.warmup_steps :]), task.times[0]
    # `execute` read the loader itself, so only the whole call can be timed. A second call with one
    # batch shows what a call costs besides its batches.
    longer_s = now_when_idle() - began
    task = _task(spec, definition, knobs, scratch / "execute-once", reporter, limit=1)
    again = time.monotonic()
    execute(task, gpus, spec.attempt, 1)
    shorter_s = now_when_idle() - again
    batch_s = (longer_s - shorter_s) / (count - 1)
    return (batch_s if batch_s > 0 else longer_s / count), began


def _add_loss(spec: Spec, reporter: Reporter, step: int, loss: float) -> None:
    """Open the metrics anew for each loss: a process that `execute` started may report it."""
    metrics = Metrics(spec.task_dir, EventFile(spec.task_dir, spec.attempt, reporter.note))
    metrics.add(step, loss)
    metrics.close()


def _task(
    spec: Spec,
    definition: TaskDefinition,
    knobs: dict[str, Any],
    checkpoints_dir: Directory,
    reporter: Reporter,
    *,
    limit: int = 0,
    each_iterator_an_epoch: bool = False,
) -> BlackBoxTask:
    is_training = spec.kind == "train"

    def report(message: dict[str, Any]) -> None:
        if message["type"] == "progress" and message["loss"] is not None:
            _add_loss(spec, reporter, message["step"], message["loss"])
        reporter.send(message)

    return BlackBoxTask(
        definition,
        checkpoints_dir,
        {
            "task": spec.task,
            "technique": spec.technique.name,
            "gpus": spec.gpus,
            "knobs": knobs,
            "attempt": spec.attempt,
        },
        strategy=Strategy(technique=spec.technique.name, gpus=spec.gpus, knobs=knobs),
        limit=limit,
        each_iterator_an_epoch=each_iterator_an_epoch,
        stop_requested=lambda: is_training and reporter.stop_requested,
        report=report if is_training else lambda message: None,
        now=time.monotonic if is_training else now_when_idle,
    )
