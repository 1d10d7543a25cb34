"""The keywords of `search`, `orchestrate`, `start` and `resume`, each written and explained once.

A function takes them as `**options: Unpack[...]`, which type checkers know. `takes` gives it the
signature that people and tools see, with the defaults of `saturn.runs.request.Settings`,
and writes what the keywords mean into its documentation.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from dataclasses import MISSING, fields
from typing import Any, TypedDict, TypeVar, cast

from saturn.loggers import Logger
from saturn.plain.names import did_you_mean
from saturn.runs.request import PathLike, Settings

Function = TypeVar("Function", bound=Callable[..., Any])

#: The line of a function's documentation that the keywords take the place of.
_PLACE = "        **options: "


class ClusterOptions(TypedDict, total=False):
    """Of every run, a resumed one too.

    cluster: "auto" or the address of the head of a Ray cluster, to run on its nodes in place of
        this machine's devices (see docs/cluster.md).
    nodes: how many of the cluster's nodes; all that have free devices by default.
    gpus_per_node: how many GPUs, or CPU slots, of each; all that are free by default.
    network_interface: the network by which ranks on several nodes talk, such as "eth0"; by
        default the one by which nodes reach this program's.
    runs_dir: where run directories are.
    wait: wait for devices that other runs on this machine hold, where too few are free. Ctrl-C
        ends the waiting. Without it, that is an error.
    raise_on_failure: raise `TasksFailed` at the end where tasks failed; its `result` has the
        others. False: the result is returned, and its failed tasks have an `error`.
    """

    cluster: str | None
    nodes: int | None
    gpus_per_node: int | None
    network_interface: str | None
    runs_dir: PathLike
    wait: bool
    raise_on_failure: bool


class SearchOptions(ClusterOptions, total=False):
    """Of every new run.

    devices: how many GPUs to use, or CPU slots (a pinned core each) where there is no GPU; all
        that are free by default.
    nodes_per_task: how many of the nodes a task may take at once, at most; all by default.
    device_memory: what each device may hold, as bytes or a size such as "600MB" or "2GiB";
        enforced, on CPU slots too. By default there is no limit but the device's own memory.
    host_memory: what all trials and tasks that run at once on a machine may be expected to take
        of its own memory, as bytes or a size; by default what is available at the start.
    name: the run's name, unique in `runs_dir`; made from the time by default.
    profile: where trials of earlier runs are taken from, which are not measured again. By
        default all that earlier runs found, as far as it holds for this hardware and these
        versions (see `saturn profile`). The directory of an earlier run, or a file like its
        `profile.json`: its trials on the same type of device. "none": all is measured anew.
    warmup_steps: how many first steps of a trial are not timed.
    timed_steps: how many steps a trial times at least, two or more.
    max_timed_steps: how many steps a trial times at most; 30 by default. It ends earlier once
        a step's time is known to 3%, or two seconds are spent. Where both numbers are the
        same, a trial times so many steps and takes their median.
    """

    devices: int | None
    nodes_per_task: int | None
    device_memory: int | str | None
    host_memory: int | str | None
    name: str | None
    profile: PathLike | None
    warmup_steps: int
    timed_steps: int
    max_timed_steps: int | None


class RunOptions(SearchOptions, total=False):
    """Of every new run that trains.

    techniques: names in the library; all of it by default.
    storage: an object store for the checkpoints, such as "s3://bucket/folder"; the run
        directory has them by default (see docs/storage.md).
    checkpoint_every_s: seconds of training between two checkpoints of a task; by default
        chosen from what a checkpoint costs and how often the run's attempts fail.
    stall_s: seconds of silence after which a task's workers count as hung and are restarted
        from the last checkpoint; more than its longest step takes. Building, loading and saving
        do not count as silence.
    solver_time_limit_s: seconds that the solver may take for one plan.
    max_switches: how often a task may be planned to change its technique, device count or place
        in mid-run, where trials or checkpoints have shown what that costs; a plan with such
        switches must end 2% sooner than the best without. 0 plans none. By default 1, and 0
        with a stopper: most tasks never come to a step far ahead.
    seed: seed of the solver; the tasks have seeds of their own.
    trial_budget: how much to spend on trials. "worthwhile" measures every group of tasks that
        perform alike once, and then what is expected to save more than it costs; a number of
        device-seconds is a limit on that; "full" measures every technique on every device
        count.
    loggers: trackers that are told of every task besides TensorBoard's files: names ("wandb",
        "mlflow", "trackio", or what other packages bring) and `saturn.loggers` objects.
    stopper: which tasks go on, wait or end by what they report: one of `saturn.stoppers`, such
        as `ASHA()`, its name, such as "asha", a function of a `saturn.stoppers.Progress` that
        is true where the task should end, or a list of those. What it ends is `stopped`, at a
        checkpoint; others use its devices at once (docs/tuning.md).
    """

    techniques: Iterable[str] | None
    storage: str | None
    checkpoint_every_s: float | None
    stall_s: float
    solver_time_limit_s: float
    max_switches: int | None
    seed: int
    trial_budget: float | str
    loggers: Iterable[str | Logger] | None
    stopper: Any


#: The defaults, where there is one.
DEFAULTS = {
    **{field.name: field.default for field in fields(Settings) if field.default is not MISSING},
    "stopper": None,
}


def takes(options: type) -> Callable[[Function], Function]:
    """Have a function show, explain and check the keywords that it takes as `**options`."""

    def change(function: Function) -> Function:
        before = inspect.signature(function)
        own = [one for one in before.parameters.values() if one.kind is not one.VAR_KEYWORD]
        kind = inspect.Parameter.KEYWORD_ONLY
        keywords = [
            inspect.Parameter(name, kind, default=DEFAULTS[name], annotation=annotation)
            for name, annotation in _annotations(options).items()
        ]
        signature = before.replace(parameters=[*own, *keywords])

        @functools.wraps(function)
        def checked(*args: Any, **given: Any) -> Any:
            for name in given:
                if name not in signature.parameters:
                    unexpected = f"{function.__name__}() got an unexpected keyword argument"
                    hint = did_you_mean(name, signature.parameters)
                    raise TypeError(f"{unexpected} '{name}'; {hint}")
            return function(*args, **given)

        checked.__signature__ = signature  # type: ignore[attr-defined]
        checked.__annotations__ = {one.name: one.annotation for one in (*own, *keywords)}
        checked.__annotations__["return"] = signature.return_annotation
        checked.__doc__ = _documented(function.__doc__ or "", _explained(options))
        return cast(Function, checked)

    return change


def _annotations(options: type) -> dict[str, Any]:
    """Each keyword's type as written above; a kind's own keywords come before inherited ones."""
    found: dict[str, Any] = {}
    for kind in reversed(_kinds(options)):
        of_kind = {
            name: getattr(annotation, "__forward_arg__", annotation)
            for name, annotation in kind.__annotations__.items()
            if name not in found
        }
        found = of_kind | found
    return found


def _explained(options: type) -> list[str]:
    """The lines that explain the keywords under `Args:`, in the order of `_annotations`."""
    lines: list[str] = []
    for kind in _kinds(options):
        text = inspect.cleandoc(kind.__doc__ or "")
        lines += text.splitlines()[2:]
    return lines


def _kinds(options: type) -> list[type]:
    """A kind of keywords and the kinds that it inherits from, itself first."""
    kinds: list[type] = [RunOptions, SearchOptions, ClusterOptions]
    return kinds[kinds.index(options) :]


def _documented(text: str, explained: Iterable[str]) -> str:
    """A function's documentation with the keywords in their place."""
    lines = []
    for line in text.splitlines():
        if line.startswith(_PLACE):
            lines += [f"        {more}" for more in explained]
        else:
            lines.append(line)
    return "\n".join(lines)
