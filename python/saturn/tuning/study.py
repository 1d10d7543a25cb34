"""The tuner that is a study of Optuna: it suggests tasks, hears of their values, and prunes.

Stoppers may stand beside the study; then the strictest decision of pruner and stoppers counts. A
task that a stopper holds is not in flight: the study suggests another one in its place. So a search
on few devices doesn't wait for held tasks, which only a later comparison takes up again.

If a task was ended because it does badly, the study is told `PRUNED`. If a stopper ended a task
that needs no more training, the study is told its value.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from saturn import native
from saturn.errors import InvalidInput, RunOver
from saturn.plain import durable
from saturn.runs.request import reports_of
from saturn.stoppers.given import Reports, check_reported, common_metric, with_metrics
from saturn.stoppers.progress import ENDED, HELD, Progress
from saturn.stoppers.stopper import STOP, Ruling, Stopper, Tasks
from saturn.tasks.evaluation import MAX, MIN
from saturn.tasks.task import Task
from saturn.tuning import keeping
from saturn.tuning.scope import Scope
from saturn.tuning.tuner import Stopping, Tuner, strictest

if TYPE_CHECKING:
    import optuna

MakeTask = Callable[["optuna.Trial"], Task]

#: Seconds between two attempts to write a file while the disk is full.
_AGAIN_S = 5.0


def optuna_for(what: str) -> Any:
    """The package optuna; raises `InvalidInput`, which says what needs it, if it is missing."""
    try:
        import optuna
    except ImportError:
        raise InvalidInput(f"{what} needs the package optuna: pip install 'optuna>=4'") from None
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
        stoppers: Sequence[Stopper] = (),
        *,
        prefix: str = "",
    ) -> None:
        """Raises `InvalidInput` for a study of several directions.

        `prefix` is the beginning of the tasks' names.
        """
        if len(study.directions) != 1:
            raise InvalidInput(
                f"the study `{study.study_name}` has {len(study.directions)} directions; a run "
                "takes a study of one"
            )
        self.study, self._make_task = study, make_task
        self._n_trials, self._in_flight, self._metric = n_trials, in_flight, metric
        self._direction = study.direction.name.lower()
        self._prefix = prefix
        #: The stoppers as given; and with their metrics, which the first task determines.
        self._stoppers, self._stopping = list(stoppers), Stopping([])
        #: (number, parameters) of each trial that the study suggested, by its task's name.
        self._asked: dict[str, tuple[int, dict[str, Any]]] = {}
        self._told: set[str] = set()
        #: Whether the sampler wants no more trials, as after the last point of a grid.
        self._is_exhausted = False
        #: The step of the last value that was reported to a task's trial.
        self._reported: dict[str, int] = {}
        self._trials: dict[str, optuna.Trial] = {}
        self._scope: Scope | None = None
        self._is_closed = False

    def __getstate__(self) -> dict[str, Any]:
        """Pickle without the parts that belong to this process."""
        return {**self.__dict__, "_scope": None, "_trials": {}, "_is_closed": False}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take up a state; earlier versions kept less."""
        self.__dict__.update({"_is_exhausted": False, **state})

    @property
    def goal(self) -> dict[str, Any]:
        """The study's metric and mode."""
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
        """The task of the study's next trial; raises the errors of `make_task`."""
        with self._stoppable():
            trial = self.study.ask()
            try:
                return self._task_of(trial)
            except BaseException:
                self.study.tell(trial, state=optuna_for("the study").trial.TrialState.FAIL)
                raise

    def withdraw(self) -> None:
        """Mark all suggested trials as failed, because no run began."""
        for name in set(self._asked) - self._told:
            self._tell(name, None, "FAIL")

    def began(self, scope: Scope, tasks: Tasks) -> None:
        """Take up the suggested trials; submit those that an earlier process could not submit."""
        self._scope = scope
        for name, (number, _) in self._asked.items():
            if name in self._told or name in self._trials:
                continue
            (frozen,) = [
                one for one in self.study.get_trials(deepcopy=False) if one.number == number
            ]
            trial = optuna_for("the study").Trial(self.study, frozen._trial_id)
            self._trials[name] = trial
            task = tasks.get(name)
            if task is None:
                with contextlib.suppress(RunOver):  # the run is over, and only reported on
                    scope.submit(self._task_of(trial))
            else:
                # The study may know a step that the journal lost in a crash.
                known = set(frozen.intermediate_values)
                for step_of_all, value in task.values(self._goal):
                    step = step_of_all - task.first_step
                    if step not in known:
                        trial.report(value, step)
                        known.add(step)
                self._reported[name] = max(known, default=0)

    def looked(self, task: Progress, tasks: Tasks) -> Iterable[Ruling]:
        """Report the value to the trial, and ask whether pruner or stoppers end the task."""
        return strictest([*self._stopping.looked(task, tasks), *self._pruned(task)])

    def at_rest(self, tasks: Tasks) -> Iterable[Ruling]:
        """The stoppers' rulings."""
        return self._stopping.at_rest(tasks)

    def idle(self, tasks: Tasks) -> Iterable[Ruling]:
        """The rulings of the stoppers."""
        return self._stopping.idle(tasks)

    def crowded(self, tasks: Tasks) -> Iterable[Ruling]:
        """The rulings of the stoppers."""
        return self._stopping.crowded(tasks)

    def at(self, now_s: float, tasks: Tasks) -> Iterable[Ruling]:
        """Tell the study which tasks have ended, and have it suggest more."""
        self._tell_ends(tasks)
        scope = self._scope
        assert scope is not None
        # Devices come and go, and a resumed run may have more or fewer than the run had before.
        in_flight = self._in_flight or max(1, scope.num_devices)
        is_enough = not scope.takes_suggestions or self._stopping.is_enough(now_s, tasks)
        try:
            while (
                not (is_enough or self._is_exhausted)
                and len(self._asked) < self._n_trials
                and self._num_open(tasks) < in_flight
            ):
                task = self.suggested()
                self._keep(scope.directory)
                scope.submit(task)
            is_all = is_enough or self._is_exhausted or len(self._asked) >= self._n_trials
            if is_all and not self._is_closed:
                scope.close()
                self._is_closed = True
        except RunOver:
            pass  # the run was stopped; the suggested task is submitted when it resumes
        return self._stopping.at(now_s, tasks)

    def run_ended(self, tasks: Tasks) -> None:
        """Tell the study which tasks have ended since."""
        self._tell_ends(tasks)
        if self._scope is not None:
            keeping.write(self._scope.directory, self)

    def given_up(self, tasks: Tasks) -> Iterable[Ruling]:
        """Stop the run at checkpoints, so that it can be resumed; without a study it can't end.

        A pool goes on. There the tasks of the search train to their ends, the held ones too.
        """
        if self._scope is None:
            return ()
        self._scope.stop()
        return super().given_up(tasks) if self._scope.of_sweep else ()

    @property
    def _goal(self) -> str:
        assert self._metric is not None
        return self._metric

    @property
    def _mode(self) -> str:
        return MAX if self._direction == "maximize" else MIN

    def _num_open(self, tasks: Tasks) -> int:
        """How many tasks are in flight."""
        held = {name for name, task in tasks.items() if task.stage == HELD}
        return len(set(self._asked) - self._told - held)

    def _pruned(self, task: Progress) -> Iterable[Ruling]:
        """The pruner's ruling on the value that a task has just reported, if it reported one."""
        trial = self._trials.get(task.name)
        values = task.values(self._goal)
        if trial is None or task.name in self._told or not values:
            return
        step, value = values[-1]
        if step != task.step:
            return  # the task reported a stopper's metric only
        # Pruners count the steps that a trial trains, and no steps of a task that it continues.
        own_step = step - task.first_step
        if own_step > self._reported.get(task.name, 0):
            trial.report(value, own_step)
            self._reported[task.name] = own_step
        if trial.should_prune():
            reason = f"pruned by {type(self.study.pruner).__name__}"
            yield Ruling(task.name, STOP, f"{reason} at step {step}")

    def _task_of(self, trial: optuna.Trial) -> Task:
        """The task of a trial, checked; its suggested values are fixed from here on."""
        task = self._make_task(trial)
        if not isinstance(task, Task):
            raise TypeError(
                f"make_task returned a {type(task).__name__}; it must return a saturn.Task"
            )
        task.name = f"{self._prefix}trial-{trial.number}"
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
                    f'make the study with direction="{"maximize" if mode == MAX else "minimize"}" '
                    f'(in a sweep file: mode = "{mode}" under [search])'
                )
        self._set_stoppers(reports)
        self._asked[task.name] = trial.number, dict(trial.params)
        self._trials[task.name] = trial
        return task

    def _set_stoppers(self, reports: Reports) -> None:
        """Give stoppers their metrics; raises `InvalidInput` if a task never reports one."""
        ours = {None: (self._goal, self._mode), self._goal: (self._goal, self._mode)}
        filled = []
        for one in self._stoppers:
            metric, mode = ours.get(one.metric, (one.metric, None))
            filled.append(replace(one, metric=metric, mode=one.mode or mode))
        self._stopping = Stopping(with_metrics(filled, [reports]))
        self.metrics = frozenset([self._goal]) | self._stopping.metrics

    def _tell_ends(self, tasks: Tasks) -> None:
        before = len(self._told)
        for name in set(self._asked) - self._told:
            task = tasks.get(name)
            if task is None or task.stage != ENDED or task.end is None:
                continue
            values = [value for _, value in task.values(self._goal) if math.isfinite(value)]
            is_trained = task.end == "stopped" and self._stopping.is_trained(task)
            if (task.end == "done" or is_trained) and values:
                best = max(values) if self._mode == MAX else min(values)
                self._tell(name, values[-1] if self._goal == "loss" else best, "COMPLETE")
            elif task.end == "stopped":
                self._tell(name, None, "PRUNED")
            else:
                self._tell(name, None, "FAIL")
        if len(self._told) > before and self._scope is not None:
            self._keep(self._scope.directory)

    def _keep(self, directory: Path) -> None:
        """Write the study; waits while the disk is full, as the run does."""
        while True:
            try:
                return keeping.write(directory, self)
            except OSError as error:
                if not durable.is_no_space(error) or not native.is_driven(directory):
                    raise
            time.sleep(_AGAIN_S)

    def _tell(self, name: str, value: float | None, state: str) -> None:
        self._told.add(name)
        number, _ = self._asked[name]
        states = optuna_for("the study").trial.TrialState
        # A trial may have been told before a stop, without a record of that; Optuna skips it.
        with self._stoppable():
            self.study.tell(number, value, state=states[state], skip_if_finished=True)

    @contextlib.contextmanager
    def _stoppable(self) -> Iterator[None]:
        """Within this context, `study.stop()` means that no more trials are to be suggested.

        Samplers of grids call it when no point is left. Optuna itself allows the call only while
        its own `optimize` runs, and raises here.
        """

        def stop() -> None:
            self._is_exhausted = True

        self.study.stop = stop  # type: ignore[method-assign]
        try:
            yield
        finally:
            del self.study.stop
