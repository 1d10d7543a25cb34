"""MLflow: a run for each task, in an experiment that has the run's name.

The package mlflow is imported only when a task's tracked run begins.
"""

from __future__ import annotations

import contextlib
import itertools
import re
from collections.abc import Sequence
from typing import Any

from saturn.loggers.interface import Logger, Point, TrackedRun, TrackedTask, require

#: The most that MLflow takes in one call.
_MOST_METRICS, _MOST_PARAMETERS = 1000, 100
#: MLflow's words for how a task ended; any other end is `KILLED`.
_STATUS = {"done": "FINISHED", "diverged": "FAILED", "failed": "FAILED"}


class MLflow(Logger):
    """Tracks tasks in MLflow, on a server or in files of this machine.

    Args:
        experiment: where tracked runs go; made if it doesn't exist. The run's name by default.
        tracking_uri: where MLflow keeps them; `MLFLOW_TRACKING_URI` or its own by default.
        name: the logger's name, unique among those of a run.
    """

    def __init__(
        self,
        experiment: str | None = None,
        *,
        tracking_uri: str | None = None,
        name: str = "mlflow",
    ) -> None:
        self.name = name
        self._experiment, self._tracking_uri = experiment, tracking_uri

    def check(self) -> None:
        require("mlflow", self.name)

    def start(self, task: TrackedTask) -> TrackedRun:
        from mlflow.entities import Param
        from mlflow.tracking import MlflowClient

        client = MlflowClient(tracking_uri=self._tracking_uri)
        if task.tracked_id is not None:
            client.update_run(task.tracked_id, status="RUNNING")
            return _Run(client, task.tracked_id)
        experiment = self._experiment or task.run
        found = client.get_experiment_by_name(experiment)
        number = client.create_experiment(experiment) if found is None else found.experiment_id
        tags = {"saturn.run": task.run, "saturn.task": task.name}
        run_id = client.create_run(number, run_name=task.name, tags=tags).info.run_id
        parameters = [Param(_allowed(key), str(value)[:500]) for key, value in task.config.items()]
        try:
            for first in range(0, len(parameters), _MOST_PARAMETERS):
                client.log_batch(run_id, params=parameters[first : first + _MOST_PARAMETERS])
        except BaseException:
            # Another try begins another run.
            with contextlib.suppress(Exception):
                client.delete_run(run_id)
            raise
        return _Run(client, run_id)


class _Run(TrackedRun):
    def __init__(self, client: Any, run_id: str) -> None:
        self._client = client
        self.id = run_id

    def log(self, points: Sequence[Point]) -> None:
        from mlflow.entities import Metric

        metrics = iter(
            Metric(_allowed(name), value, int(point.at_s * 1000), point.step)
            for point in points
            for name, value in point.values.items()
        )
        while some := list(itertools.islice(metrics, _MOST_METRICS)):
            self._client.log_batch(self.id, metrics=some)

    def moved(self, step: int, strategy: str, gpus: int) -> None:
        self._client.set_tag(self.id, "saturn.strategy", strategy)

    def ended(self, status: str) -> None:
        self._client.set_terminated(self.id, _STATUS.get(status, "KILLED"))


def _allowed(name: str) -> str:
    """The name, with `_` for each character that MLflow refuses in names, as `@` in `acc@1`."""
    return re.sub(r"[^\w .:/-]", "_", name)
