"""`search`, `orchestrate`, `start`, `resume`, `attach`: from tasks to a run in progress.

The functions check everything that can be refused before they write to disk; planning and driving
is the business of the engine, behind `saturn.native`.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from saturn import native
from saturn.checkpoint import place
from saturn.cluster import wish
from saturn.cluster.opening import open_cluster
from saturn.errors import InvalidInput, SaturnError
from saturn.plain.sizes import parse_limit
from saturn.plain.supported import check_torch
from saturn.runs import in_pool, joined, pool, profiles, request, run_directory
from saturn.runs.live import Run
from saturn.runs.options import (
    DEFAULTS,
    ClusterOptions,
    OrchestrateOptions,
    RunOptions,
    SearchOptions,
    takes,
)
from saturn.runs.profiles import Profile
from saturn.runs.request import Packed, Wishes
from saturn.runs.result import RunResult
from saturn.runs.settings import CheckedSettings, PathLike, Settings
from saturn.runs.started import StartedRun
from saturn.stoppers.given import stoppers_of, with_metrics
from saturn.tasks.task import Task
from saturn.tuning import keeping
from saturn.tuning.pool import run_or_pool
from saturn.tuning.steered import takes_steered
from saturn.tuning.supervise import supervise
from saturn.tuning.tuner import Stopping, Tuner

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from saturn.cluster.cluster import Cluster


@takes(SearchOptions)
def search(
    tasks: Iterable[Task],
    techniques: Iterable[str] | None = None,
    log: bool = True,
    **options: Unpack[SearchOptions],
) -> RunResult:
    """Measure every task under every technique and device count; fills `task.strategies`.

    Args:
        tasks: the workload.
        techniques: names in the library; the whole library by default.
        log: show what happens on standard error.
        **options: see `saturn.runs.options`.

    Raises `InvalidInput` (nothing was started), `TasksFailed`, `RunInterrupted`, `RunFailed`.
    """
    settings = Settings(mode="search", techniques=techniques, trial_budget="full", **options)
    return started(tasks, settings, log).wait()


@takes(OrchestrateOptions)
def orchestrate(
    tasks: Iterable[Task],
    interval: float = 1000.0,
    log: bool = True,
    **options: Unpack[OrchestrateOptions],
) -> RunResult:
    """Plan the workload and train it; returns the result.

    Tasks that `search` has measured are not measured again.

    Args:
        tasks: the workload.
        interval: the longest time between two re-plans, in seconds.
        log: show what happens on standard error.
        **options: see `saturn.runs.options`.

    This is `start` followed by `Run.wait`: Ctrl-C, SIGTERM and SIGHUP stop the run at checkpoints.
    Other processes may send commands to the run meanwhile (`attach`, `saturn status`). In a pool
    (`pool="auto"`), Ctrl-C ends the waiting, and the tasks go on.

    Raises `InvalidInput` (nothing was started), `TasksFailed` once everything has ended (its
    `result` has the other tasks), `RunInterrupted`, `RunFailed`.
    """
    of_run: dict[str, Any] = {**options}
    wanted = of_run.pop("pool", None)
    if wanted is not None:
        tasks = list(tasks)
        found = in_pool.trained(wanted, tasks, of_run, _teller(log))
        if found is not None:
            return found
    return start(tasks, interval, log, **of_run).wait()


@takes(RunOptions)
def start(
    tasks: Iterable[Task],
    interval: float = 1000.0,
    log: bool = True,
    *,
    keep_open: bool = False,
    **options: Unpack[RunOptions],
) -> StartedRun:
    """Begin to plan and train the workload; returns the run in progress at once.

    A thread of this process drives the run. If the program ends without `wait`, its run is stopped
    at checkpoints.

    Args:
        tasks: the workload.
        interval: the longest time between two re-plans, in seconds.
        log: show what happens on standard error.
        keep_open: more tasks will be submitted (there may be none at first). The run goes on until
            `close`, or until its `with` block ends. Without it the run ends with its tasks.
        **options: see `saturn.runs.options`.

    Raises `InvalidInput` (nothing was started), `RunFailed`.
    """
    if isinstance(interval, str | list | tuple | set):
        # Names of techniques, which are the second argument of `search`.
        names = [interval] if isinstance(interval, str) else list(interval)
        raise TypeError(
            f"interval is {interval!r}; it must be a number of seconds. Names of techniques are "
            f"given by name: techniques={names!r}"
        )
    of_run: dict[str, Any] = {**options}
    stopper = of_run.pop("stopper", None)
    if of_run.get("max_switches") is None:
        of_run["max_switches"] = 1 if stopper is None else 0
    settings = Settings(mode="orchestrate", keep_open=keep_open, interval_s=interval, **of_run)
    return started(tasks, settings, log, tuner=lambda workload: _tuner(stopper, workload))


@takes(ClusterOptions)
def resume(
    run: PathLike,
    log: bool = True,
    *,
    device_memory: int | str | None = None,
    allow_other_hardware: bool = False,
    **options: Unpack[ClusterOptions],
) -> StartedRun:
    """Continue a run that was stopped or whose process died; returns at once.

    Its stopper continues too, and knows everything that it has seen. A run that is complete is only
    reported on.

    Args:
        run: its directory, or its name in `runs_dir`.
        log: show what happens on standard error.
        device_memory: how much each device may hold from here on, as bytes or a size; "none"
            removes the limit; by default the run's earlier limit.
        allow_other_hardware: continue even if this machine has other devices than the run began
            with.
        **options: see `saturn.runs.options`.

    Raises `InvalidInput` if there is no such run or it can't be continued, `RunFailed`.
    """
    run_dir = found(run, options.get("runs_dir", DEFAULTS["runs_dir"]))
    return resumed(
        run_dir,
        log,
        device_memory=device_memory,
        allow_other_hardware=allow_other_hardware,
        options=options,
    )


def resumed(
    run_dir: Path,
    log: bool = True,
    *,
    device_memory: int | str | None = None,
    devices: int | None = None,
    allow_other_hardware: bool = False,
    share: Path | None = None,
    shares: Mapping[str, float] | None = None,
    quotas: Mapping[str, int] | None = None,
    options: ClusterOptions,
) -> StartedRun:
    """As `resume`; `devices` is how many devices of this machine the run has from here on.

    `share` is the directory at which other people of this machine reach the run from here on.
    `shares` says how large their shares of it are, and `quotas` how many devices their tasks may
    hold at once, by login name; if they are None, as before.
    """
    began_s = time.monotonic()
    # For the runtime, 0 means no limit.
    memory = parse_limit("device_memory", device_memory, unlimited=0)
    waits = options.get("wait", False)
    wished = wish.checked(
        cluster=options.get("cluster"),
        nodes=options.get("nodes"),
        gpus_per_node=options.get("gpus_per_node"),
        devices=None,
        network_interface=options.get("network_interface"),
        wait=waits,
    )
    check_torch()
    tuner = keeping.read(run_dir)
    if tuner is not None:
        tuner.check()
    agents = None if wished is None else open_cluster(wished, run=str(run_dir), tell=_teller(log))
    going_on = StartedRun(run_dir, [], None, Profile([]), {}, tuner, agents)
    going_on._raises = options.get("raise_on_failure", True)
    going_on._begin(
        lambda write, exchange: native.resume(
            run_dir,
            write,
            is_terminal=log and sys.stderr.isatty(),
            interrupts=going_on._interrupts,
            cluster=exchange,
            device_memory_bytes=memory,
            devices=devices,
            allow_other_hardware=allow_other_hardware,
            wait=waits,
            share=None if share is None else str(share),
            shares=None if shares is None else dict(shares),
            quotas=None if quotas is None else dict(quotas),
            prepared_s=time.monotonic() - began_s,
        ),
        _write if log else None,
    )
    return supervise(going_on) if takes_steered(run_dir) else going_on


def attach(run: PathLike, *, runs_dir: PathLike = "saturn_runs") -> Run:
    """A run that another process drives, or that is over.

    Args:
        run: its directory, or its name in `runs_dir`.
        runs_dir: where run directories are.

    Raises `InvalidInput` if there is no such run.
    """
    return run_or_pool(found(run, runs_dir))


def found(run: PathLike, runs_dir: PathLike) -> Path:
    """The directory of a run; raises `InvalidInput` if there is no such run."""
    for path in (Path(run), Path(runs_dir) / run, *_pool(run)):
        if run_directory.has_begun(path) or path == joined.current():
            return path.resolve()
        if (journal := path / "journal.db").is_symlink():
            raise InvalidInput(
                f"the run {path} is not here: its journal is on another machine, at "
                f"{journal.readlink()}: resume the run, or ask about it, on that machine"
            )
    raise InvalidInput(
        f"there is no run `{run}`: neither that directory nor one of that name in "
        f"{Path(runs_dir).absolute()} holds a journal.db"
    )


def _pool(run: PathLike) -> list[Path]:
    """The newest pool, if it is meant and there is one."""
    meant = pool.meant() if str(run) == pool.NAME else None
    return [] if meant is None else [meant]


def started(
    tasks: Iterable[Task],
    settings: Settings,
    log: bool,
    tuner: Callable[[Sequence[Task]], Tuner | None] = lambda workload: None,
) -> StartedRun:
    """Begin a run of these tasks; `tuner` makes the run's tuner from them."""
    began_s = time.monotonic()
    check_torch()
    workload = request.checked_tasks(tasks, may_be_empty=settings.keep_open)
    checked = settings.checked()
    if settings.mode != "search":
        request.check_order(workload)
    # Everything that can be refused is refused before anything is on disk.
    request.check_techniques(workload, checked.entries)
    steers = tuner(workload)
    packed = request.pack(workload)
    entries = request.with_scripts(checked.entries, workload, keep_open=settings.keep_open)
    checked = replace(checked, entries=entries)
    reused = Profile([]) if checked.profile is None else profiles.load(checked.profile)
    cluster = None
    if checked.cluster is not None:
        run = Path(settings.runs_dir, settings.name or "").absolute()
        cluster = open_cluster(checked.cluster, run=str(run), tell=_teller(log))
    try:
        return _begin(workload, packed, settings, checked, reused, steers, cluster, log, began_s)
    except BaseException:
        if cluster is not None:
            cluster.close()
        raise


def _begin(
    workload: list[Task],
    packed: list[Packed],
    settings: Settings,
    checked: CheckedSettings,
    reused: Profile,
    steers: Tuner | None,
    cluster: Cluster | None,
    log: bool,
    began_s: float,
) -> StartedRun:
    run_dir = run_directory.create(settings.runs_dir, settings.name, settings.mode)
    try:
        if checked.storage is not None:
            place.keep_in(run_dir, checked.storage)
        run_directory.write_surroundings(run_dir)
        run_directory.write_loggers(run_dir, checked.loggers)
        directories = run_directory.write_tasks(run_dir, workload, [each.pickle for each in packed])
        request.put_checkpoints(run_dir, packed, directories)
        # A search only measures, so the tasks' schedule doesn't matter.
        wishes = None if settings.mode == "search" else Wishes()
        goal = {}
        if steers is not None:
            keeping.write(run_dir, steers)
            goal = steers.goal
        described = {
            **checked.described,
            "run_dir": str(run_dir),
            "preload": request.preload(packed),
            "techniques": run_directory.write_techniques(run_dir, checked.entries),
            "tasks": [
                goal | each.described(directory, reused, checked.entries, wishes)
                for each, directory in zip(packed, directories, strict=True)
            ],
        }
        names = [each.task.name for each in packed]
        placed = dict(zip(names, directories, strict=True))
        run = StartedRun(run_dir, packed, checked, reused, placed, steers, cluster)
        run._raises = settings.raise_on_failure
        described["prepared_s"] = time.monotonic() - began_s
        asked = json.dumps(described, allow_nan=False)
        run._begin(
            lambda write, exchange: native.run(
                asked,
                write,
                is_terminal=log and sys.stderr.isatty(),
                interrupts=run._interrupts,
                cluster=exchange,
            ),
            _write if log else None,
        )
    except (SaturnError, OSError, KeyboardInterrupt):
        run_directory.remove_unbegun(run_dir)
        raise
    return run


def _tuner(stopper: Any, workload: Sequence[Task]) -> Tuner | None:
    if stopper is None:
        return None
    given = stoppers_of(stopper)
    return Stopping(with_metrics(given, [request.reports_of(task) for task in workload]))


def _teller(log: bool) -> Callable[[str], None]:
    """Writes a line for a person, if this run writes any."""
    return (lambda line: _write(line + "\n")) if log else (lambda _: None)


def _write(text: str) -> None:
    # Looked up at each call, because a notebook replaces the stream.
    sys.stderr.write(text)
    sys.stderr.flush()
