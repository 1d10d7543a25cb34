"""Optuna's suggestions as tasks of a run: values go back to the study, and its pruner prunes.

    study = optuna.create_study(direction="minimize", pruner=optuna.pruners.HyperbandPruner())
    result = saturn.optuna.optimize(study, make_task, n_trials=50)

`make_task(trial)` returns a `saturn.Task` made of the trial's suggested values. Several tasks train
at once, each under the technique and on the devices that the plan gives it. As soon as one ends,
the study is asked for the next. A trial's number names its task: `trial-7`.

The study is kept with the run, and `saturn resume` continues both. If a run is never resumed, its
unfinished trials stay `RUNNING` in the study.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from saturn.errors import InvalidInput
from saturn.runs import run as runs
from saturn.runs.result import RunResult
from saturn.runs.settings import PathLike, Settings
from saturn.runs.started import StartedRun
from saturn.stoppers.given import stoppers_of
from saturn.tuning import keeping
from saturn.tuning.study import MakeTask, StudyTuner, optuna_for

if TYPE_CHECKING:
    import optuna

#: Keywords of `saturn.start` that this module's `start` sets itself.
_OURS = {"tasks", "keep_open"}


def optimize(
    study: optuna.Study,
    make_task: MakeTask,
    n_trials: int,
    *,
    in_flight: int | None = None,
    metric: str | None = None,
    log: bool = True,
    **options: Any,
) -> RunResult:
    """Train `n_trials` suggestions of a study; returns the run's result. The study has the values.

    Args:
        study: a study of one direction. It may already have trials.
        make_task: makes the task of a trial; it travels with the run.
        n_trials: how many trials are suggested in this run.
        in_flight: how many train at once; by default as many as there are devices.
        metric: the metric of the study: a metric of the tasks' evaluations, or `"loss"`, the mean
            over the last steps. By default as `Task(best=…)` says, else the loss. For a metric of
            evaluations the study gets the best value, for the loss the last.
        log: show what happens on standard error.
        options: keywords of `saturn.start`. A `stopper` decides beside the study's pruner:
            the stricter decision counts. By default it uses the study's metric.

    Raises the errors of `saturn.orchestrate` and of `make_task`.
    """
    return start(
        study, make_task, n_trials, in_flight=in_flight, metric=metric, log=log, **options
    ).wait()


def start(
    study: optuna.Study,
    make_task: MakeTask,
    n_trials: int,
    *,
    in_flight: int | None = None,
    metric: str | None = None,
    log: bool = True,
    **options: Any,
) -> StartedRun:
    """Like `optimize`, but returns the run in progress at once (see `saturn.start`)."""
    optuna_for("saturn.optuna")
    for name in _OURS & set(options):
        raise InvalidInput(f"`{name}` can't be given with a study: the study's trials decide that")
    for name, value in (("n_trials", n_trials), ("in_flight", in_flight)):
        is_whole = isinstance(value, int) and not isinstance(value, bool)
        if value is not None and (not is_whole or value < 1):
            raise InvalidInput(f"{name} is {value!r}; it must be a whole number from 1 on")
    stopper = options.pop("stopper", None)
    stoppers = [] if stopper is None else stoppers_of(stopper)
    tuner = StudyTuner(study, make_task, n_trials, in_flight, metric, stoppers)
    if "interval" in options:
        options["interval_s"] = options.pop("interval")
    options.setdefault("trial_budget", "worthwhile")
    options.setdefault("max_switches", 0)  # most tasks are stopped long before a move would pay
    settings = Settings(mode="orchestrate", keep_open=True, **options)
    # The first task is made here, so that errors of `make_task` are raised before anything runs.
    try:
        return runs.started([tuner.suggested()], settings, log, tuner=lambda workload: tuner)
    except BaseException:
        tuner.withdraw()
        raise


def resume(
    run: PathLike, study: optuna.Study | None = None, log: bool = True, **options: Any
) -> StartedRun:
    """Continue the run of a study, like `saturn.resume`; `saturn resume` does the same.

    Args:
        run: its directory, or its name in `runs_dir`.
        study: replaces the study that is kept with the run; it must have the trials of the run's
            tasks.
        log: show what happens on standard error.
        options: keywords of `saturn.resume`.

    Raises `InvalidInput` if the study has another direction, or its trials other parameters.
    """
    if study is not None:
        run_dir = runs.found(run, options.get("runs_dir", "saturn_runs"))
        tuner = _kept(run_dir)
        tuner.study = study
        tuner.check()
        keeping.write(run_dir, tuner)
    return runs.resume(run, log, **options)


def study_of(run: PathLike, *, runs_dir: PathLike = "saturn_runs") -> optuna.Study:
    """The study that is kept with a run, as it was at its last suggestion or value."""
    return _kept(runs.found(run, runs_dir)).study


def _kept(run_dir: Path) -> StudyTuner:
    tuner = keeping.read(run_dir)
    if not isinstance(tuner, StudyTuner):
        raise InvalidInput(f"the run {run_dir} has no study")
    return tuner
