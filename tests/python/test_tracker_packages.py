"""What the trackers' own packages are told: MLflow, W&B, Trackio."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from saturn.loggers import (
    MLflow,
    Point,
    TrackedRun,
    TrackedTask,
    Trackio,
    WandB,
    mlflow,
    wandb,
)
from tracked_run import ENVIRONMENT, Followed, ended, trains
from trackers_of_tests import Book, read


class _Client:
    """What MLflow's client and W&B's run are told of an end."""

    def __init__(self) -> None:
        self.id, self.told = "id", ""

    def set_terminated(self, run_id: str, status: str) -> None:
        self.told = f"{run_id} {status}"

    def finish(self, exit_code: int) -> None:
        self.told = str(exit_code)


@pytest.mark.parametrize(
    ("status", "mlflow_status", "exit_code"),
    [
        ("done", "FINISHED", "0"),
        ("diverged", "FAILED", "1"),
        ("failed", "FAILED", "1"),
        ("cancelled", "KILLED", "0"),
        ("stopped", "KILLED", "0"),
    ],
)
def test_each_end_has_its_word_in_a_tracker(
    tmp_path: Path, status: str, mlflow_status: str, exit_code: str
) -> None:
    client = _Client()
    mlflow._Run(client, "id").ended(status)
    assert client.told == f"id {mlflow_status}"
    wandb._Run(client).ended(status)
    assert client.told == exit_code
    run = Followed(tmp_path / "run", Book(tmp_path))
    assert run.follow(trains(0), ended(status)) == []
    assert read(tmp_path / "book-run-t.jsonl")[-1] == {"ended": status}
    assert status in str(TrackedRun.ended.__doc__)


class _Server:
    """An MLflow client that takes no names but MLflow's, and is away for the first call."""

    def __init__(self, tracking_uri: str | None = None) -> None:
        self.runs: dict[str, list[str]] = {}
        self.is_away = True

    def get_experiment_by_name(self, name: str) -> Any:
        return SimpleNamespace(experiment_id="0")

    def create_run(self, *_: Any, **__: Any) -> Any:
        run_id = str(len(self.runs))
        self.runs[run_id] = []
        return SimpleNamespace(info=SimpleNamespace(run_id=run_id))

    def delete_run(self, run_id: str) -> None:
        self.runs[run_id] = ["deleted"]

    def log_batch(self, run_id: str, params: Any = (), metrics: Any = ()) -> None:
        if self.is_away:
            self.is_away = False
            raise ConnectionError("MLflow is away")
        for one in (*params, *metrics):
            if not re.fullmatch(r"[/\w.\- :]*", one.key):
                raise ValueError(f"Invalid name: {one.key}")
            self.runs[run_id].append(one.key)


def test_mlflow_gets_names_that_it_takes_and_no_run_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = _Server()
    entities = SimpleNamespace(
        Param=lambda key, value: SimpleNamespace(key=key),
        Metric=lambda key, *_: SimpleNamespace(key=key),
    )
    modules = {
        "mlflow": SimpleNamespace(),
        "mlflow.entities": entities,
        "mlflow.tracking": SimpleNamespace(MlflowClient=lambda tracking_uri: server),
    }
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    task = TrackedTask("run", tmp_path, "t", tmp_path, {"lr": 0.1, "a[0]": 1}, None)
    with pytest.raises(ConnectionError):
        MLflow().start(task)
    run = MLflow().start(task)
    run.log([Point(1, {"train/loss": 0.5, "eval/acc@1": 0.25}, 0.0)])
    assert server.runs == {"0": ["deleted"], "1": ["lr", "a_0_", "train/loss", "eval/acc_1"]}


@pytest.mark.skipif(not importlib.util.find_spec("wandb"), reason="W&B is not installed")
def test_wandb_keeps_one_run(tmp_path: Path) -> None:
    run = Followed(tmp_path / "run", WandB("p", mode="offline"))
    run.write(1, 5)
    assert run.follow(trains(0)) == []
    run.write(6, 9, evaluates=True)
    assert run.follow(trains(5), ended("done")) == []
    names = {path.name.rpartition("-")[2] for path in run.task.rglob("offline-run-*")}
    assert len(names) == 1


@pytest.mark.skipif(not importlib.util.find_spec("mlflow"), reason="MLflow is not installed")
def test_mlflow_keeps_one_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from mlflow.tracking import MlflowClient

    # Files are enough for mlflow-skinny; it wants to be told that they are meant.
    monkeypatch.setitem(ENVIRONMENT, "MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    uri = (tmp_path / "mlruns").as_uri()
    run = Followed(tmp_path / "run", MLflow(tracking_uri=uri))
    run.write(1, 5)
    assert run.follow(trains(0)) == []
    run.write(4, 9, evaluates=True)
    assert run.follow(trains(3), ended("done")) == []
    client = MlflowClient(tracking_uri=uri)
    (experiment,) = [one for one in client.search_experiments() if one.name == "run"]
    (found,) = client.search_runs([experiment.experiment_id])
    assert found.info.status == "FINISHED" and found.data.params == {"lr": "0.1"}
    history = client.get_metric_history(found.info.run_id, "train/loss")
    assert sorted(metric.step for metric in history) == list(range(1, 10))


@pytest.mark.skipif(not importlib.util.find_spec("trackio"), reason="Trackio is not installed")
def test_trackio_keeps_one_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ENVIRONMENT, "TRACKIO_DIR", str(tmp_path / "trackio"))
    run = Followed(tmp_path / "run", Trackio())
    run.write(1, 5)
    assert run.follow(trains(0)) == []
    run.write(4, 9, evaluates=True)
    assert run.follow(trains(3), ended("done")) == []
    read_back = (
        "import json; from trackio.sqlite_storage import SQLiteStorage as s; "
        "print(json.dumps([[run, [row['step'] for row in s.get_logs('run', run)]] "
        "for run in s.get_runs('run')]))"
    )
    shown = subprocess.run(
        [sys.executable, "-c", read_back],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(shown.stdout) == [["t", [*range(1, 10)]]]
