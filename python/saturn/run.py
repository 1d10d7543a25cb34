"""`search`, `orchestrate`, `start`, `resume`, `attach`: from tasks to a run in progress."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from saturn import native, profiles, request, run_directory
from saturn.checkpoint import place
from saturn.cluster import wish
from saturn.cluster.opening import open_cluster
from saturn.errors import InvalidInput, SaturnError
from saturn.live import Run, StartedRun
from saturn.loggers import Logger
from saturn.profiles import Profile
from saturn.request import CheckedSettings, Packed, PathLike, Settings, Wishes
from saturn.result import RunResult
from saturn.sizes import parse_size
from saturn.stoppers.given import stoppers_of, with_metrics
from saturn.supported import check_torch
from saturn.task import Task
from saturn.tuning import keeping
from saturn.tuning.tuner import Stopping, Tuner

if TYPE_CHECKING:
    from saturn.cluster.cluster import Cluster


def search(
    tasks: Iterable[Task],
    techniques: Iterable[str] | None = None,
    log: bool = True,
    *,
    devices: int | None = None,
    cluster: str | None = None,
    nodes: int | None = None,
    gpus_per_node: int | None = None,
    nodes_per_task: int | None = None,
    network_interface: str | None = None,
    device_memory: int | str | None = None,
    host_memory: int | str | None = None,
    name: str | None = None,
    runs_dir: PathLike = "saturn_runs",
    profile: PathLike | None = None,
    warmup_steps: int = 1,
    timed_steps: int = 3,
    max_timed_steps: int | None = None,
) -> RunResult:
    """Measure every task under every technique and device count; fills `task.strategies`.

    Args:
        tasks: the workload.
        techniques: names in the library; all of it by default.
        log: show what happens on standard error.
        devices: how many GPUs to use, or CPU slots (a pinned core each) where there is no GPU; all
            by default.
        cluster: "auto" or the address of the head of a Ray cluster, to run on its nodes in place of
            this machine's devices (see docs/cluster.md).
        nodes: how many of the cluster's nodes; all that have free devices by default.
        gpus_per_node: how many GPUs, or CPU slots, of each; all that are free by default.
        nodes_per_task: how many of the nodes a task may take at once, at most; all by default.
        network_interface: the network by which ranks on several nodes talk, such as "eth0"; by
            default the one by which nodes reach this program's.
        device_memory: what each device may hold, as bytes or a size such as "600MB" or "2GiB";
            enforced, on CPU slots too. By default there is no limit but the device's own memory.
        host_memory: what all trials and tasks that run at once on a machine may be expected to take
            of its own memory, as bytes or a size; by default what is available at the start.
        name: the run's name, unique in `runs_dir`; made from the time by default.
        runs_dir: where the run directory goes.
        profile: where trials of earlier runs are taken from, which are not measured again. By
            default all that earlier runs found, as far as it holds for this hardware and these
            versions (see `saturn profile`). The directory of an earlier run, or a file like its
            `profile.json`: its trials on the same type of device. "none": all is measured anew.
        warmup_steps: how many first steps of a trial are not timed.
        timed_steps: how many steps a trial times at least, two or more.
        max_timed_steps: how many steps a trial times at most; 30 by default. It ends earlier once
            a step's time is known to 3%, or two seconds are spent. Where both numbers are the
            same, a trial times so many steps and takes their median.

    Raises `InvalidInput` (nothing was started), `TasksFailed`, `RunInterrupted`, `RunFailed`.
    """
    settings = Settings(
        mode="search",
        techniques=techniques,
        devices=devices,
        cluster=cluster,
        nodes=nodes,
        gpus_per_node=gpus_per_node,
        nodes_per_task=nodes_per_task,
        network_interface=network_interface,
        device_memory=device_memory,
        host_memory=host_memory,
        name=name,
        runs_dir=runs_dir,
        profile=profile,
        warmup_steps=warmup_steps,
        timed_steps=timed_steps,
        max_timed_steps=max_timed_steps,
    )
    return started(tasks, settings, log).wait()


def orchestrate(
    tasks: Iterable[Task],
    interval: float = 1000.0,
    log: bool = True,
    *,
    techniques: Iterable[str] | None = None,
    devices: int | None = None,
    cluster: str | None = None,
    nodes: int | None = None,
    gpus_per_node: int | None = None,
    nodes_per_task: int | None = None,
    network_interface: str | None = None,
    device_memory: int | str | None = None,
    host_memory: int | str | None = None,
    name: str | None = None,
    runs_dir: PathLike = "saturn_runs",
    storage: str | None = None,
    profile: PathLike | None = None,
    checkpoint_every_s: float | None = None,
    stall_s: float = 600.0,
    solver_time_limit_s: float = 2.0,
    max_switches: int | None = None,
    seed: int = 0,
    warmup_steps: int = 1,
    timed_steps: int = 3,
    max_timed_steps: int | None = None,
    trial_budget: float | str = "worthwhile",
    loggers: Iterable[str | Logger] | None = None,
    stopper: Any = None,
) -> RunResult:
    """Plan the workload and train it; returns what was realised.

    Tasks that `search` has measured are not measured again.

    Args:
        tasks: the workload.
        interval: the longest time between two re-plans, seconds.
        log: show what happens on standard error.
        techniques: names in the library; all of it by default.
        devices: how many GPUs to use, or CPU slots (a pinned core each) where there is no GPU; all
            by default.
        cluster: "auto" or the address of the head of a Ray cluster, to run on its nodes in place of
            this machine's devices (see docs/cluster.md).
        nodes: how many of the cluster's nodes; all that have free devices by default.
        gpus_per_node: how many GPUs, or CPU slots, of each; all that are free by default.
        nodes_per_task: how many of the nodes a task may take at once, at most; all by default.
        network_interface: the network by which ranks on several nodes talk, such as "eth0"; by
            default the one by which nodes reach this program's.
        device_memory: what each device may hold, as bytes or a size such as "600MB" or "2GiB";
            enforced, on CPU slots too. By default there is no limit but the device's own memory.
        host_memory: what all trials and tasks that run at once on a machine may be expected to take
            of its own memory, as bytes or a size; by default what is available at the start.
        name: the run's name, unique in `runs_dir`; made from the time by default.
        runs_dir: where the run directory goes.
        storage: an object store for the checkpoints, such as "s3://bucket/folder"; the run
            directory has them by default (see docs/storage.md).
        profile: where trials of earlier runs are taken from, which are not measured again. By
            default all that earlier runs found, as far as it holds for this hardware and these
            versions (see `saturn profile`). The directory of an earlier run, or a file like its
            `profile.json`: its trials on the same type of device. "none": all is measured anew.
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
        warmup_steps: how many first steps of a trial are not timed.
        timed_steps: how many steps a trial times at least, two or more.
        max_timed_steps: how many steps a trial times at most; 30 by default. It ends earlier once
            a step's time is known to 3%, or two seconds are spent. Where both numbers are the
            same, a trial times so many steps and takes their median.
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

    It is `start` and then `Run.wait`: Ctrl-C, SIGTERM and SIGHUP stop the run at checkpoints, and
    other processes may ask for things meanwhile (`attach`, `saturn status`).

    Raises `InvalidInput` (nothing was started), `TasksFailed` once everything has ended,
    `RunInterrupted`, `RunFailed`.
    """
    return start(
        tasks,
        interval,
        log,
        techniques=techniques,
        devices=devices,
        cluster=cluster,
        nodes=nodes,
        gpus_per_node=gpus_per_node,
        nodes_per_task=nodes_per_task,
        network_interface=network_interface,
        device_memory=device_memory,
        host_memory=host_memory,
        name=name,
        runs_dir=runs_dir,
        storage=storage,
        profile=profile,
        checkpoint_every_s=checkpoint_every_s,
        stall_s=stall_s,
        solver_time_limit_s=solver_time_limit_s,
        max_switches=max_switches,
        seed=seed,
        warmup_steps=warmup_steps,
        timed_steps=timed_steps,
        max_timed_steps=max_timed_steps,
        trial_budget=trial_budget,
        loggers=loggers,
        stopper=stopper,
    ).wait()


def start(
    tasks: Iterable[Task],
    interval: float = 1000.0,
    log: bool = True,
    *,
    keep_open: bool = False,
    techniques: Iterable[str] | None = None,
    devices: int | None = None,
    cluster: str | None = None,
    nodes: int | None = None,
    gpus_per_node: int | None = None,
    nodes_per_task: int | None = None,
    network_interface: str | None = None,
    device_memory: int | str | None = None,
    host_memory: int | str | None = None,
    name: str | None = None,
    runs_dir: PathLike = "saturn_runs",
    storage: str | None = None,
    profile: PathLike | None = None,
    checkpoint_every_s: float | None = None,
    stall_s: float = 600.0,
    solver_time_limit_s: float = 2.0,
    max_switches: int | None = None,
    seed: int = 0,
    warmup_steps: int = 1,
    timed_steps: int = 3,
    max_timed_steps: int | None = None,
    trial_budget: float | str = "worthwhile",
    loggers: Iterable[str | Logger] | None = None,
    stopper: Any = None,
) -> StartedRun:
    """Begin to plan and train the workload; returns at once, with the run in progress.

    A thread of this process drives the run. A program that ends without `wait` stops its run at
    checkpoints.

    With `keep_open` more tasks will be submitted (there may be none at first): the run goes on
    until `close`, or until its `with` block ends. Without it the run ends when its tasks have. All
    else is as for `orchestrate`.

    Raises `InvalidInput` (nothing was started), `RunFailed`.
    """
    if max_switches is None:
        max_switches = 1 if stopper is None else 0
    settings = Settings(
        mode="orchestrate",
        keep_open=keep_open,
        techniques=techniques,
        devices=devices,
        cluster=cluster,
        nodes=nodes,
        gpus_per_node=gpus_per_node,
        nodes_per_task=nodes_per_task,
        network_interface=network_interface,
        device_memory=device_memory,
        host_memory=host_memory,
        name=name,
        runs_dir=runs_dir,
        storage=storage,
        profile=profile,
        interval_s=interval,
        checkpoint_every_s=checkpoint_every_s,
        stall_s=stall_s,
        solver_time_limit_s=solver_time_limit_s,
        max_switches=max_switches,
        seed=seed,
        warmup_steps=warmup_steps,
        timed_steps=timed_steps,
        max_timed_steps=max_timed_steps,
        trial_budget=trial_budget,
        loggers=loggers,
    )
    return started(tasks, settings, log, tuner=lambda workload: _tuner(stopper, workload))


def resume(
    run: PathLike,
    log: bool = True,
    *,
    device_memory: int | str | None = None,
    allow_other_hardware: bool = False,
    cluster: str | None = None,
    nodes: int | None = None,
    gpus_per_node: int | None = None,
    network_interface: str | None = None,
    runs_dir: PathLike = "saturn_runs",
) -> StartedRun:
    """Go on with a run that was stopped or whose process died; returns at once.

    It goes on with its stopper, which knows all that it has seen. A run that is complete is only
    reported on.

    Args:
        run: its directory, or its name in `runs_dir`.
        log: show what happens on standard error.
        device_memory: what each device may hold from here on, as bytes or a size; "none" lifts the
            limit; by default the limit that the run had.
        allow_other_hardware: go on although this machine has other devices than the run began with.
        cluster: "auto" or the address of the head of a Ray cluster to go on with; by default it
            goes on on this machine.
        nodes: how many of the cluster's nodes; all that have free devices by default.
        gpus_per_node: how many GPUs, or CPU slots, of each; all that are free by default.
        network_interface: the network by which ranks on several nodes talk, such as "eth0"; by
            default the one by which nodes reach this program's.
        runs_dir: where runs are.

    Raises `InvalidInput` where there is no such run or it can't go on so, `RunFailed`.
    """
    run_dir = found(run, runs_dir)
    # In the runtime's words 0 is no limit.
    memory = 0 if device_memory == "none" else parse_size("device_memory", device_memory)
    wished = wish.checked(
        cluster=cluster,
        nodes=nodes,
        gpus_per_node=gpus_per_node,
        devices=None,
        network_interface=network_interface,
    )
    check_torch()
    tuner = keeping.read(run_dir)
    if tuner is not None:
        tuner.check()
    agents = None if wished is None else open_cluster(wished, run=str(run_dir))
    going_on = StartedRun(run_dir, [], None, Profile([]), {}, tuner, agents)
    going_on._begin(
        lambda write, exchange: native.resume(
            run_dir,
            write,
            is_terminal=log and sys.stderr.isatty(),
            interrupts=going_on._interrupts,
            cluster=exchange,
            device_memory_bytes=memory,
            allow_other_hardware=allow_other_hardware,
        ),
        _write if log else None,
    )
    return going_on


def attach(run: PathLike, *, runs_dir: PathLike = "saturn_runs") -> Run:
    """A run that another process drives, or that is over.

    Args:
        run: its directory, or its name in `runs_dir`.
        runs_dir: where runs are.

    Raises `InvalidInput` where there is no run.
    """
    return Run(found(run, runs_dir))


def found(run: PathLike, runs_dir: PathLike) -> Path:
    """The directory of a run; raises `InvalidInput` where there is none."""
    for path in (Path(run), Path(runs_dir) / run):
        if run_directory.has_begun(path):
            return path.resolve()
        if (journal := path / "journal.db").is_symlink():
            raise InvalidInput(
                f"the run {path} is not here: its journal is on another machine, at "
                f"{journal.readlink()}: go on with it, and ask about it, there"
            )
    raise InvalidInput(
        f"there is no run `{run}`: neither that directory nor one of that name in "
        f"{Path(runs_dir).absolute()} holds a journal.db"
    )


def started(
    tasks: Iterable[Task],
    settings: Settings,
    log: bool,
    tuner: Callable[[Sequence[Task]], Tuner | None] = lambda workload: None,
) -> StartedRun:
    """A run of these tasks that has begun, with what `tuner` makes of them."""
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
        cluster = open_cluster(checked.cluster, run=str(run))
    try:
        return _begin(workload, packed, settings, checked, reused, steers, cluster, log)
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
) -> StartedRun:
    run_dir = run_directory.create(settings.runs_dir, settings.name, settings.mode)
    try:
        if checked.storage is not None:
            place.keep_in(run_dir, checked.storage)
        run_directory.write_loggers(run_dir, checked.loggers)
        directories = run_directory.write_tasks(run_dir, workload, [each.pickle for each in packed])
        # A search only measures: when a task may train plays no part in it.
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
    except (SaturnError, OSError):
        run_directory.remove_unbegun(run_dir)
        raise
    return run


def _tuner(stopper: Any, workload: Sequence[Task]) -> Tuner | None:
    if stopper is None:
        return None
    given = stoppers_of(stopper)
    return Stopping(with_metrics(given, [request.reports_of(task) for task in workload]))


def _write(text: str) -> None:
    # Looked up each time: notebooks put their own stream there.
    sys.stderr.write(text)
    sys.stderr.flush()
