"""The keywords of `search`, `orchestrate`, `start` and `resume`, each written and explained once.

A function takes them as `**options: Unpack[...]`, which type checkers understand. `takes` gives the
function the signature that people and tools see, with the defaults of
`saturn.runs.settings.Settings`, and inserts the explanations into its docstring.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from dataclasses import MISSING, fields
from typing import Any, TypedDict, TypeVar, cast

from saturn.loggers import Logger
from saturn.plain.names import did_you_mean
from saturn.runs.settings import PathLike, Settings

Function = TypeVar("Function", bound=Callable[..., Any])

#: The line of a function's docstring that is replaced by the keywords.
_PLACE = "        **options: "


class ClusterOptions(TypedDict, total=False):
    """The keywords of every run, resumed runs included.

    cluster: "auto" or the address of the head of a Ray cluster: the run uses the cluster's nodes
        instead of this machine's devices (see docs/cluster.md).
    nodes: how many of the cluster's nodes; by default all that have free devices.
    gpus_per_node: how many GPUs, or CPU slots, of each node; by default all that are free.
    network_interface: the network interface over which ranks on several nodes communicate, such as
        "eth0"; by default the one over which nodes reach this program's node.
    runs_dir: where run directories are.
    wait: if too few devices are free, wait for those that other runs on this machine hold. Ctrl-C
        ends the waiting. Without it, too few devices are an error.
    raise_on_failure: raise `TasksFailed` at the end if tasks failed; its `result` has the other
        tasks. False: the result is returned, and its failed tasks have an `error`.
    """

    cluster: str | None
    nodes: int | None
    gpus_per_node: int | None
    network_interface: str | None
    runs_dir: PathLike
    wait: bool
    raise_on_failure: bool


class SearchOptions(ClusterOptions, total=False):
    """The keywords of every new run.

    devices: how many GPUs to use, or CPU slots (a pinned core each) if there is no GPU; by default
        all that are free.
    nodes_per_task: how many nodes a task may use at once; all by default.
    device_memory: how much each device may hold, as bytes or a size such as "600MB" or "2GiB";
        enforced, on CPU slots too. By default, and for "none", only the device's own memory is the
        limit.
    host_memory: how much of a machine's own memory all its trials and tasks together may be
        expected to take, as bytes or a size; by default what is available at the start.
    name: the run's name, unique in `runs_dir`; made from the time by default.
    profile: the source of earlier trial results, which are not measured again. By default all
        results of earlier runs that hold for this hardware and these versions (see
        `saturn profile`). The directory of an earlier run, or a file like its `profile.json`: its
        results on the same type of device. "none": everything is measured again.
    warmup_steps: how many steps at the start of a trial are not timed.
    timed_steps: how many steps a trial times at least, two or more.
    max_timed_steps: how many steps a trial times at most; 30 by default. Timing ends earlier once
        a step's time is known to 3%, or two seconds are spent. If both numbers are equal, a trial
        times exactly that many steps and takes their median.
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
    """The keywords of every new run that trains.

    techniques: names in the library; the whole library by default.
    storage: an object store for the checkpoints, such as "s3://bucket/folder"; by default they
        are in the run directory (see docs/storage.md).
    checkpoint_every_s: seconds of training between two checkpoints of a task; by default
        chosen from what a checkpoint costs and how often the run's attempts fail.
    stall_s: seconds of silence after which a task's workers count as hung and are restarted
        from the last checkpoint. It must be more than the longest step takes. Building, loading
        and saving do not count as silence.
    outlive_s: for how many seconds tasks train on if this program dies, until `resume` takes them
        up where they are. If nobody resumes the run in that time, they stop at checkpoints. 0:
        they end with the program, and go on from their last checkpoints (see docs/runs.md).
    solver_time_limit_s: the most seconds that the solver may take for one plan. If little is
        left to train, it may take a hundredth of that.
    max_switches: how often a plan may move a task to another technique, device count or place
        while it trains. A plan only does so if trials or checkpoints have shown what that costs,
        and if it then ends 2% sooner than the best plan without. 0: never. By default 1, and 0
        with a stopper, because most tasks are then stopped long before such a move.
    seed: seed of the solver; the tasks have seeds of their own.
    trial_budget: how much to spend on trials. "worthwhile" measures every group of tasks that
        perform alike once, and then everything that is expected to save more than it costs. A
        number of device-seconds is a limit on that. "full" measures every technique on every
        device count.
    loggers: trackers that get every task's metrics, besides TensorBoard's files: names ("wandb",
        "mlflow", "trackio", or those of other packages) and `saturn.loggers` objects.
    stopper: decides by the tasks' reports which tasks go on, wait or end: one of
        `saturn.stoppers`, such as `ASHA()`, its name, such as "asha", or a function of a
        `saturn.stoppers.Progress` that returns true if the task should end; or a list of those. A
        task that it ends is `stopped`, at a checkpoint; others use its devices at once
        (docs/tuning.md).
    """

    techniques: Iterable[str] | None
    storage: str | None
    checkpoint_every_s: float | None
    stall_s: float
    outlive_s: float
    solver_time_limit_s: float
    max_switches: int | None
    seed: int
    trial_budget: float | str
    loggers: Iterable[str | Logger] | None
    stopper: Any


class OrchestrateOptions(RunOptions, total=False):
    """The keywords of `orchestrate`.

    pool: "auto": if a process drives a pool on this machine (`saturn serve`), the tasks train
        there, and this program waits until they have ended; otherwise in a run of its own. By
        default always in a run of its own. Of the other keywords the pool uses `name`, `stopper`
        and `raise_on_failure`, and has its own devices and limits. In the pool, the tasks' names
        begin with `name`, or with the program's name (see docs/pool.md).
    """

    pool: str | None


#: The defaults, for keywords that have one.
DEFAULTS = {
    **{field.name: field.default for field in fields(Settings) if field.default is not MISSING},
    "stopper": None,
    "pool": None,
}


def takes(options: type) -> Callable[[Function], Function]:
    """Make a function show, explain and check the keywords that it takes as `**options`."""

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
    """Each keyword's type, as written above; a class's own keywords precede inherited ones."""
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
    """A class of keywords, and the classes from which it inherits, in that order."""
    kinds: list[type] = [OrchestrateOptions, RunOptions, SearchOptions, ClusterOptions]
    return kinds[kinds.index(options) :]


def _documented(text: str, explained: Iterable[str]) -> str:
    """A function's docstring with the explanations of its keywords inserted."""
    lines = []
    for line in text.splitlines():
        if line.startswith(_PLACE):
            lines += [f"        {more}" for more in explained]
        else:
            lines.append(line)
    return "\n".join(lines)
