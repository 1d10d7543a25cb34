"""Optuna's suggestions as tasks of a run: values go back to the study, and its pruner prunes.

    study = optuna.create_study(direction="minimize", pruner=optuna.pruners.HyperbandPruner())
    result = saturn.optuna.optimize(study, make_task, n_trials=50)

`make_task(trial)` returns a `saturn.Task` made of what the trial suggests. Several are trained at
once, each under whatever technique and on as many devices as the plan gives it; as soon as one
ends the study is asked for the next. A trial's number names its task: `trial-7`.

The study is kept with the run, and `saturn resume` goes on with both. What the run trains no more
(the trials of a run that is never resumed) stays `RUNNING` in the study.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from saturn import run as runs
from saturn.errors import InvalidInput, RunOver
from saturn.evaluation import MAX, MIN
from saturn.live import Run, StartedRun
from saturn.request import PathLike, Settings, reports_of
from saturn.result import RunResult
from saturn.stoppers.given import check_reported, common_metric
from saturn.stoppers.progress import ENDED, Progress
from saturn.stoppers.stopper import STOP, Ruling, Tasks
from saturn.task import Task
from saturn.tuning import keeping
from saturn.tuning.tuner import Tuner

if TYPE_CHECKING:
    import optuna

MakeTask = Callable[["optuna.Trial"], Task]

#: Of a run, what `start` says otherwise than `saturn.start`.
_OURS = {"tasks", "stopper", "keep_open"}


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
    """Train `n_trials` suggestions of a study; returns what was realised, the study has the values.

    Args:
        study: of one direction. It may have trials already.
        make_task: makes the task of a trial; it travels with the run.
        n_trials: how many are suggested in this run.
        in_flight: how many at once; as many as there are devices by default.
        metric: what the study goes by: a metric of the tasks' evaluations, or `"loss"`, the mean
            over the last steps. By default as `Task(best=…)` says, else the loss. Of a metric of
            evaluations the best value goes back, of the loss the last.
        log: show what happens on standard error.
        options: keywords of `saturn.orchestrate`, but for `stopper`: the study's pruner ends tasks.

    Raises what `saturn.orchestrate` raises, and what `make_task` raises.
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
    """`optimize`, which returns at once, with the run in progress (see `saturn.start`)."""
    _optuna()
    for name in _OURS & set(options):
        raise InvalidInput(f"`{name}` can't be given with a study: the study's trials decide that")
    for name, value in (("n_trials", n_trials), ("in_flight", in_flight)):
        is_whole = isinstance(value, int) and not isinstance(value, bool)
        if value is not None and (not is_whole or value < 1):
            raise InvalidInput(f"{name} is {value!r}; it must be a whole number from 1 on")
    tuner = StudyTuner(study, make_task, n_trials, in_flight, metric)
    if "interval" in options:
        options["interval_s"] = options.pop("interval")
    options.setdefault("trial_budget", "worthwhile")
    options.setdefault("max_switches", 0)  # most tasks never come to a step far ahead
    settings = Settings(mode="orchestrate", keep_open=True, **options)
    # The first of them is made here: what is wrong with `make_task` is raised before anything runs.
    try:
        return runs.started([tuner.suggested()], settings, log, tuner=lambda workload: tuner)
    except BaseException:
        tuner.withdraw()
        raise


def resume(
    run: PathLike, study: optuna.Study | None = None, log: bool = True, **options: Any
) -> StartedRun:
    """Go on with the run of a study; as `saturn.resume`, and `saturn resume` does the same.

    Args:
        run: its directory, or its name in `runs_dir`.
        study: to go on with instead of the study that is kept with the run; it must have the trials
            of the run's tasks.
        log: show what happens on standard error.
        options: keywords of `saturn.resume`.

    Raises `InvalidInput` where the study has another direction, or its trials other parameters.
    """
    if study is not None:
        run_dir = runs.found(run, options.get("runs_dir", "saturn_runs"))
        tuner = _kept(run_dir)
        tuner.study = study
        tuner.check()
        keeping.write(run_dir, tuner)
    return runs.resume(run, log, **options)


def study_of(run: PathLike, *, runs_dir: PathLike = "saturn_runs") -> optuna.Study:
    """The study that is kept with a run, as it was when it last suggested or was told something."""
    return _kept(runs.found(run, runs_dir)).study


def _kept(run_dir: Path) -> StudyTuner:
    tuner = keeping.read(run_dir)
    if not isinstance(tuner, StudyTuner):
        raise InvalidInput(f"the run {run_dir} has no study")
    return tuner


def _optuna() -> Any:
    try:
        import optuna
    except ImportError:
        raise InvalidInput(
            "saturn.optuna needs the package optuna: pip install 'optuna>=4'"
        ) from None
    return optuna


class StudyTuner(Tuner):
    """A study beside its run: it suggests tasks, hears of values, and prunes."""

    suggests = True

    def __init__(
        self,
        study: optuna.Study,
        make_task: MakeTask,
        n_trials: int,
        in_flight: int | None,
        metric: str | None,
    ) -> None:
        """Take them; raises `InvalidInput` for a study of several directions."""
        if len(study.directions) != 1:
            raise InvalidInput(
                f"the study `{study.study_name}` has {len(study.directions)} directions; a run "
                "takes a study of one"
            )
        self.study, self._make_task = study, make_task
        self._n_trials, self._in_flight, self._metric = n_trials, in_flight, metric
        self._direction = study.direction.name.lower()
        #: By the names of their tasks: number and parameters of each trial that was asked for.
        self._asked: dict[str, tuple[int, dict[str, Any]]] = {}
        self._told: set[str] = set()
        self._trials: dict[str, optuna.Trial] = {}
        self._run: Run | None = None
        self._is_closed = False

    def __getstate__(self) -> dict[str, Any]:
        """Without what belongs to this process."""
        return {**self.__dict__, "_run": None, "_trials": {}, "_is_closed": False}

    @property
    def goal(self) -> dict[str, Any]:
        """What the study goes by."""
        return {"goal": {"metric": self._goal, "mode": self._mode}}

    def check(self) -> None:
        """Refuse a study that is not the one that suggested the run's tasks."""
        direction = self.study.direction.name.lower()
        name = self.study.study_name
        if direction != self._direction:
            raise InvalidInput(
                f"the study `{name}` is to {direction}, and that of the run was to "
                f"{self._direction}; go on with a study that is to {self._direction}"
            )
        known = {trial.number: trial.params for trial in self.study.get_trials(deepcopy=False)}
        for task, (number, parameters) in self._asked.items():
            if known.get(number) != parameters:
                found = "no such trial" if number not in known else f"{known[number]} there"
                raise InvalidInput(
                    f"the study `{name}` has {found}, and task `{task}` of the run was made with "
                    f"{parameters}; go on with the study that suggested that"
                )

    def suggested(self) -> Task:
        """The task of the study's next trial; raises what `make_task` raises."""
        trial = self.study.ask()
        try:
            return self._task_of(trial)
        except BaseException:
            self.study.tell(trial, state=_optuna().trial.TrialState.FAIL)
            raise

    def withdraw(self) -> None:
        """No run came of it: what was suggested has failed."""
        for name in set(self._asked) - self._told:
            self._tell(name, None, "FAIL")

    def began(self, run: Run, tasks: Tasks) -> None:
        """Take up what was suggested, and submit what an earlier process could not."""
        self._run = run
        for name, (number, _) in self._asked.items():
            if name in self._told or name in self._trials:
                continue
            (frozen,) = [
                one for one in self.study.get_trials(deepcopy=False) if one.number == number
            ]
            trial = _optuna().Trial(self.study, frozen._trial_id)
            self._trials[name] = trial
            task = tasks.get(name)
            if task is None:
                with contextlib.suppress(RunOver):  # it is only reported on
                    run.submit(self._task_of(trial))
            else:
                for step, value in task.values(self._goal):
                    if step not in frozen.intermediate_values:
                        trial.report(value, step)

    def looked(self, task: Progress, tasks: Tasks) -> Iterable[Ruling]:
        """Hand the value to the trial, and ask whether it is pruned."""
        trial = self._trials.get(task.name)
        values = task.values(self._goal)
        if trial is None or task.name in self._told or not values:
            return
        step, value = values[-1]
        trial.report(value, step)
        if trial.should_prune():
            reason = f"pruned by {type(self.study.pruner).__name__}"
            yield Ruling(task.name, STOP, f"{reason} at step {step}")

    def at(self, now_s: float, tasks: Tasks) -> Iterable[Ruling]:
        """Tell of what has ended, and have more suggested."""
        self._tell_ends(tasks)
        run = self._run
        assert run is not None
        if self._in_flight is None:
            self._in_flight = max(1, run.status()["pool"]["devices"])
        try:
            while len(self._asked) < self._n_trials and self._num_open() < self._in_flight:
                task = self.suggested()
                keeping.write(run.run_dir, self)
                run.submit(task)
            if len(self._asked) >= self._n_trials and not self._is_closed:
                run.close()
                self._is_closed = True
        except RunOver:
            pass  # it was stopped; what was suggested is submitted when it goes on
        return ()

    def over(self, tasks: Tasks) -> None:
        """Tell of what has ended since."""
        self._tell_ends(tasks)
        if self._run is not None:
            keeping.write(self._run.run_dir, self)

    def given_up(self, tasks: Tasks) -> Iterable[Ruling]:
        """Without the study the run has no end: it stops at checkpoints, and can be resumed."""
        if self._run is not None:
            self._run.stop()
        return ()

    @property
    def _goal(self) -> str:
        assert self._metric is not None
        return self._metric

    @property
    def _mode(self) -> str:
        return MAX if self._direction == "maximize" else MIN

    def _num_open(self) -> int:
        return len(set(self._asked) - self._told)

    def _task_of(self, trial: optuna.Trial) -> Task:
        """The task of a trial, checked; what it suggests is fixed from here on."""
        task = self._make_task(trial)
        if not isinstance(task, Task):
            raise TypeError(
                f"make_task returned a {type(task).__name__}; it must return a saturn.Task"
            )
        task.name = f"trial-{trial.number}"
        task.parameters = trial.params
        reports = reports_of(task)
        if self._metric is None:
            best = {reports.best[0]} if reports.best is not None else set()
            self._metric = common_metric("study", [reports], best)
        check_reported("study", self._metric, [reports])
        if reports.best is not None and reports.best[0] == self._metric:
            mode = reports.best[1]
            if mode != self._mode:
                raise InvalidInput(
                    f"the study `{self.study.study_name}` is to {self._direction} "
                    f"`{self._metric}`, of which the {mode} is the best by best= of its tasks; "
                    f'make the study with direction="{"maximize" if mode == MAX else "minimize"}"'
                )
        self.metrics = frozenset([self._metric])
        self._asked[task.name] = trial.number, dict(trial.params)
        self._trials[task.name] = trial
        return task

    def _tell_ends(self, tasks: Tasks) -> None:
        before = len(self._told)
        for name in set(self._asked) - self._told:
            task = tasks.get(name)
            if task is None or task.stage != ENDED or task.end is None:
                continue
            values = [value for _, value in task.values(self._goal) if math.isfinite(value)]
            if task.end == "done" and values:
                best = max(values) if self._mode == MAX else min(values)
                self._tell(name, values[-1] if self._goal == "loss" else best, "COMPLETE")
            elif task.end == "stopped":
                self._tell(name, None, "PRUNED")
            else:
                self._tell(name, None, "FAIL")
        if len(self._told) > before and self._run is not None:
            keeping.write(self._run.run_dir, self)

    def _tell(self, name: str, value: float | None, state: str) -> None:
        self._told.add(name)
        number, _ = self._asked[name]
        states = _optuna().trial.TrialState
        # One that was told of before the run stopped, and not written down, is passed over.
        self.study.tell(number, value, state=states[state], skip_if_finished=True)
