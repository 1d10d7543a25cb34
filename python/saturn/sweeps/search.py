"""The `[search]` of a sweep file: a study of Optuna, whose suggestions become the sweep's tasks.

`saturn.optuna` trains the study. A trial's values become a task as the file says: in this process,
and after `saturn resume` in another. So everything that makes the task is plain data or a function
of a module. The optuna package is imported only when a study is made.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from saturn.optuna import optimize
from saturn.stoppers.given import stoppers_of
from saturn.sweeps.space import Space, spaces_of
from saturn.tasks.evaluation import MAX, MIN
from saturn.tasks.task import Task
from saturn.tuning.study import StudyTuner, optuna_for

if TYPE_CHECKING:
    import optuna

    from saturn.runs.result import RunResult


@dataclass(frozen=True, kw_only=True)
class Search:
    """The search that a file describes."""

    #: Each parameter's space, by name.
    space: Mapping[str, Space]
    #: Makes a task from the values of its parameters.
    make: Callable[[dict[str, Any]], Task]
    trials: int
    #: Explained in `saturn.optuna.start`, like the next two.
    in_flight: int | None = None
    metric: str | None = None
    mode: str = MIN
    sampler: str = "tpe"
    seed: int = 0

    @classmethod
    def of(cls, table: Mapping[str, Any], make: Callable[[dict[str, Any]], Task]) -> Search:
        """Read a `[search]` that matches the schema; raises `ValueError`.

        Raises `InvalidInput` if the package optuna is missing.
        """
        optuna_for("`search`")
        options = {key: value for key, value in table.items() if key != "space"}
        return cls(space=spaces_of(table["space"]), make=make, **options)

    @property
    def ends(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Two sets of values that the search might suggest, with which the file can be checked."""
        pairs = {name: space.ends for name, space in self.space.items()}
        return {name: one for name, (one, _) in pairs.items()}, {
            name: other for name, (_, other) in pairs.items()
        }

    def study(self) -> optuna.Study:
        """Make a new study."""
        package = optuna_for("`search`")
        verbosity = package.logging.get_verbosity()
        package.logging.set_verbosity(package.logging.WARNING)  # so that Optuna doesn't announce it
        try:
            study: optuna.Study = package.create_study(
                study_name="search",
                direction="maximize" if self.mode == MAX else "minimize",
                sampler=self._sampler(package),
                pruner=package.pruners.NopPruner(),  # only stoppers of the run end tasks
            )
        finally:
            package.logging.set_verbosity(verbosity)
        return study

    def first(self) -> dict[str, Any]:
        """The values that the search will suggest first."""
        return self.values_of(self.study().ask())

    def values_of(self, trial: optuna.Trial) -> dict[str, Any]:
        """The values that a trial suggests, in the order of the file."""
        return {name: space.suggest(trial, name) for name, space in self.space.items()}

    def task_of(self, trial: optuna.Trial) -> Task:
        """The task of a trial."""
        return self.make(self.values_of(trial))

    def tuner(self, stopper: Any, *, prefix: str) -> StudyTuner:
        """The tuner for a pool; `prefix` is the beginning of its tasks' names."""
        stoppers = [] if stopper is None else stoppers_of(stopper)
        return StudyTuner(
            *(self.study(), self.task_of, self.trials, self.in_flight, self.metric, stoppers),
            prefix=prefix,
        )

    def train(self, **options: Any) -> RunResult:
        """Suggest tasks and train them; `options` are keywords of `saturn.orchestrate`."""
        return optimize(
            self.study(),
            self.task_of,
            self.trials,
            in_flight=self.in_flight,
            metric=self.metric,
            **options,
        )

    def _sampler(self, package: Any) -> Any:
        if self.sampler == "random":
            return package.samplers.RandomSampler(seed=self.seed)
        with warnings.catch_warnings():
            # Optuna before version 5 calls `constant_liar` experimental.
            warnings.simplefilter("ignore", package.exceptions.ExperimentalWarning)
            # Several tasks train at once, and none may be suggested twice meanwhile.
            return package.samplers.TPESampler(seed=self.seed, constant_liar=True)
