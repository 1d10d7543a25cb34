"""A study beside a run: what it is asked and told, without a run; and one run of real training."""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import optuna
import pytest
import saturn
import saturn.optuna
from faces import make_task
from saturn import HParams, Task
from saturn.errors import InvalidInput, RunOver
from saturn.runs.live import Run
from saturn.stoppers import ASHA, Plateau, Progress, Stopper, Target, TimeLimit
from saturn.tuning import keeping
from saturn.tuning.scope import Scope
from saturn.tuning.study import StudyTuner

optuna.logging.set_verbosity(optuna.logging.ERROR)


#: Whoever ends tasks, the pruner does not.
NEVER = optuna.pruners.NopPruner()


def suggest(trial: optuna.Trial) -> Task:
    lr = trial.suggest_float("lr", 1e-3, 1e-1, log=True)
    return make_task("any", hparams=HParams(lr=lr, batch_count=8, depth=2))


def study(**changes: Any) -> optuna.Study:
    return optuna.create_study(
        **{"sampler": optuna.samplers.RandomSampler(seed=1), "study_name": "s", **changes}
    )


class FakeRun(Run):
    """A run that takes tasks."""

    def __init__(self, run_dir: Path) -> None:
        super().__init__(run_dir)
        self.tasks: dict[str, Progress] = {}
        self.parameters: dict[str, dict[str, Any]] = {}
        self.is_closed = self.is_stopped = False

    def submit(self, task: Task) -> None:
        if self.is_stopped:
            raise RunOver("it has ended")
        self.tasks[task.name] = Progress(task.name)
        self.parameters[task.name] = task.parameters

    def close(self) -> None:
        self.is_closed = True

    def stop(self) -> None:
        self.is_stopped = True

    def report(self, tuner: StudyTuner, name: str, step: int, value: float) -> list[str]:
        self.tasks[name].add(step, {"loss": value})
        return [one.ruling for one in tuner.looked(self.tasks[name], self.tasks)]

    def end(self, name: str, how: str = "done") -> None:
        self.tasks[name].stage, self.tasks[name].end = "ended", how


def scope_of(run: FakeRun, *, num_devices: int = 2) -> Scope:
    scope = Scope(run)
    scope.num_devices = num_devices
    return scope


def begun(
    tmp_path: Path, study: optuna.Study, n_trials: int = 4, stoppers: Sequence[Stopper] = ()
) -> tuple[StudyTuner, FakeRun]:
    tuner, run = StudyTuner(study, suggest, n_trials, None, None, stoppers), FakeRun(tmp_path)
    run.submit(tuner.suggested())
    tuner.began(scope_of(run), run.tasks)
    tuner.at(0.0, run.tasks)
    return tuner, run


def states(study: optuna.Study) -> list[str]:
    return [trial.state.name for trial in study.trials]


def test_as_many_are_in_flight_as_there_are_devices_and_values_go_back(tmp_path: Path) -> None:
    tuner, run = begun(tmp_path, one := study())
    assert list(run.tasks) == ["trial-0", "trial-1"]
    assert run.parameters["trial-1"] == one.trials[1].params
    assert run.report(tuner, "trial-0", 1, 0.9) == []
    assert run.report(tuner, "trial-0", 8, 0.7) == []
    run.end("trial-0")
    tuner.at(1.0, run.tasks)
    assert states(one) == ["COMPLETE", "RUNNING", "RUNNING"]
    assert one.trials[0].value == 0.7
    assert one.trials[0].intermediate_values == {1: 0.9, 8: 0.7}
    assert not run.is_closed
    run.end("trial-1", "failed")
    tuner.at(2.0, run.tasks)
    assert run.is_closed, "the last of them was suggested"
    run.end("trial-2")
    run.report(tuner, "trial-3", 1, 0.2)
    run.end("trial-3")
    tuner.run_ended(run.tasks)
    # The third ended without a value.
    assert states(one) == ["COMPLETE", "FAIL", "FAIL", "COMPLETE"]
    assert one.best_trial.number == 3
    kept = keeping.read(tmp_path)
    assert isinstance(kept, StudyTuner) and states(kept.study) == states(one)


def test_as_many_are_in_flight_as_a_resumed_run_has_devices_now(tmp_path: Path) -> None:
    _, run = begun(tmp_path, study(), n_trials=9)
    for num_devices, expected in ((4, 4), (1, 4), (5, 5)):
        kept = keeping.read(tmp_path)
        assert isinstance(kept, StudyTuner)
        kept.began(scope_of(run, num_devices=num_devices), run.tasks)
        kept.at(1.0, run.tasks)
        assert len(run.tasks) == expected


def test_pruners_count_the_steps_that_a_task_has_trained_since_it_continues(tmp_path: Path) -> None:
    pruner = optuna.pruners.ThresholdPruner(upper=1.0, n_warmup_steps=10)
    tuner, run = begun(tmp_path, one := study(pruner=pruner))
    run.tasks["trial-0"].first_step = 100
    assert run.report(tuner, "trial-0", 109, 1.1) == []
    tuner.run_ended(run.tasks)
    kept = keeping.read(tmp_path)
    assert isinstance(kept, StudyTuner)
    kept.began(scope_of(run), run.tasks)
    assert run.report(kept, "trial-0", 110, 1.1) == ["stop"]
    assert kept.study.trials[0].intermediate_values == {9: 1.1, 10: 1.1}
    assert one.trials[0].intermediate_values == {9: 1.1}


def test_a_task_that_diverged_failed_although_it_had_good_values(tmp_path: Path) -> None:
    tuner, run = begun(tmp_path, one := study())
    assert run.report(tuner, "trial-0", 1, 0.1) == []
    run.report(tuner, "trial-0", 2, math.nan)
    run.end("trial-0", "diverged")
    run.report(tuner, "trial-1", 2, 0.5)
    run.end("trial-1")
    tuner.at(1.0, run.tasks)
    assert states(one)[:2] == ["FAIL", "COMPLETE"]
    assert one.trials[0].value is None and one.best_trial.number == 1


def test_a_pruner_ends_tasks(tmp_path: Path) -> None:
    pruner = optuna.pruners.ThresholdPruner(upper=1.0)
    tuner, run = begun(tmp_path, one := study(pruner=pruner))
    assert run.report(tuner, "trial-0", 1, 0.9) == []
    assert run.report(tuner, "trial-0", 2, 1.1) == ["stop"]
    run.end("trial-0", "stopped")
    tuner.at(1.0, run.tasks)
    assert states(one)[0] == "PRUNED" and one.trials[0].value == 1.1


def test_a_task_that_a_stopper_holds_makes_room_for_another(tmp_path: Path) -> None:
    tuner, run = begun(tmp_path, one := study(pruner=NEVER), 3, [ASHA(min_steps=2)])
    for name in ("trial-0", "trial-1"):
        run.tasks[name].steps = 8
        assert run.report(tuner, name, 2, 0.5) == ["hold"]
        run.tasks[name].stage = "held"
    tuner.at(1.0, run.tasks)
    assert list(run.tasks) == ["trial-0", "trial-1", "trial-2"] and run.is_closed
    # The third is the best of three: it goes on, and the others end once all is at rest.
    run.tasks["trial-2"].steps = 8
    assert run.report(tuner, "trial-2", 2, 0.4) == []
    run.report(tuner, "trial-2", 8, 0.3)
    run.end("trial-2")
    rested = {ruling.task: ruling.ruling for ruling in tuner.at_rest(run.tasks)}
    assert rested == {"trial-0": "stop", "trial-1": "stop"}
    for name in rested:
        run.end(name, "stopped")
    tuner.run_ended(run.tasks)
    assert states(one) == ["PRUNED", "PRUNED", "COMPLETE"] and one.best_value == 0.3
    kept = keeping.read(tmp_path)
    assert isinstance(kept, StudyTuner) and list(kept.at_rest(run.tasks)) == []


def test_a_task_that_a_stopper_ends_as_trained_has_a_value(tmp_path: Path) -> None:
    stoppers = [Target(value=0.1), Plateau(steps=4)]
    tuner, run = begun(tmp_path, one := study(pruner=NEVER), 2, stoppers)
    assert run.report(tuner, "trial-0", 1, 0.5) == []
    assert run.report(tuner, "trial-0", 2, 0.1) == ["stop"]
    assert run.report(tuner, "trial-1", 1, 0.4) == []
    assert run.report(tuner, "trial-1", 5, 0.4) == ["stop"]
    run.end("trial-0", "stopped")
    run.end("trial-1", "stopped")
    tuner.at(1.0, run.tasks)
    assert states(one) == ["COMPLETE", "COMPLETE"] and one.best_value == 0.1


def test_a_task_that_reports_once_more_before_it_stops_is_trained_all_the_same(
    tmp_path: Path,
) -> None:
    tuner, run = begun(
        tmp_path, one := study(pruner=NEVER), 2, [Target(value=0.1), Plateau(steps=4)]
    )
    assert run.report(tuner, "trial-0", 2, 0.09) == ["stop"]
    run.report(tuner, "trial-0", 3, 0.2)
    assert run.report(tuner, "trial-1", 1, 0.4) == []
    assert run.report(tuner, "trial-1", 5, 0.4) == ["stop"]
    run.report(tuner, "trial-1", 6, 0.3)
    run.end("trial-0", "stopped")
    run.end("trial-1", "stopped")
    tuner.at(1.0, run.tasks)
    assert states(one) == ["COMPLETE", "COMPLETE"]
    assert [trial.value for trial in one.trials] == [0.2, 0.3]


@pytest.mark.parametrize("stopper", [TimeLimit(seconds=5), Target(value=0.1, stop_all=True)])
def test_a_stopper_that_ends_all_ends_the_search(tmp_path: Path, stopper: Stopper) -> None:
    tuner, run = begun(tmp_path, study(), 9, [stopper])
    run.report(tuner, "trial-0", 1, 0.5)
    assert list(tuner.at(4.0, run.tasks)) == [] and not run.is_closed
    run.report(tuner, "trial-0", 2, 0.05)
    run.end("trial-0", "stopped")
    rulings = list(tuner.at(5.0, run.tasks))
    assert [(one.task, one.ruling) for one in rulings] == [("trial-1", "stop")]
    assert list(run.tasks) == ["trial-0", "trial-1"] and run.is_closed


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("kind", ["grid", "brute force"])
def test_a_grid_ends_the_search_after_its_last_point(kind: str, tmp_path: Path) -> None:
    def one_of_three(trial: optuna.Trial) -> Task:
        lr = trial.suggest_categorical("lr", [0.1, 0.2, 0.3])
        return make_task("any", hparams=HParams(lr=lr, batch_count=8, depth=2))

    sampler: Any = optuna.samplers.GridSampler({"lr": [0.1, 0.2, 0.3]}, seed=1)
    if kind == "brute force":
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it is experimental
            sampler = optuna.samplers.BruteForceSampler(seed=1)
    of_grid = study(sampler=sampler)
    # Optuna's own search with as many trials ends after three, too.
    tuner, run = StudyTuner(of_grid, one_of_three, 10, 1, None), FakeRun(tmp_path)
    run.submit(tuner.suggested())
    tuner.began(scope_of(run), run.tasks)
    for number in range(3):
        assert not run.is_closed
        run.report(tuner, f"trial-{number}", 8, 0.5 - number)
        run.end(f"trial-{number}")
        tuner.at(0.0, run.tasks)
    assert run.is_closed and len(run.tasks) == 3
    assert sorted(each["lr"] for each in run.parameters.values()) == [0.1, 0.2, 0.3]
    assert of_grid.best_value == -1.5
    kept = keeping.read(tmp_path)
    assert isinstance(kept, StudyTuner) and kept._is_exhausted


def test_stoppers_go_by_the_metric_of_the_study_or_by_their_own(tmp_path: Path) -> None:
    def evaluated(trial: optuna.Trial) -> Task:
        lr = trial.suggest_float("lr", 0.1, 1.0)
        evaluate = {"evaluate": lambda model: {"acc": 1.0}, "best": ("acc", "max")}
        return make_task("any", hparams=HParams(lr=lr, batch_count=8), **evaluate)

    stoppers = [Target(value=0.9), Plateau(metric="loss", steps=9)]
    one = study(direction="maximize", pruner=NEVER)
    tuner, run = StudyTuner(one, evaluated, 1, None, None, stoppers), FakeRun(tmp_path)
    run.submit(tuner.suggested())
    tuner.began(scope_of(run), run.tasks)
    assert tuner.metrics == {"acc", "loss"}
    task = run.tasks["trial-0"]
    for step, values, says in (
        (8, {"acc": 0.5}, []),
        (8, {"loss": 0.1}, []),  # the study has heard of this step, and is told nothing again
        (9, {"loss": 0.2}, []),
        (16, {"acc": 0.95}, ["stop"]),
        (17, {"loss": 0.2}, ["stop"]),
    ):
        task.add(step, values)
        assert [ruling.ruling for ruling in tuner.looked(task, run.tasks)] == says
    assert one.trials[0].intermediate_values == {8: 0.5, 16: 0.95}
    # More is better for the stopper too, though no task says so.
    one = study(direction="maximize", pruner=NEVER)
    tuner, run = begun(tmp_path, one, 1, [Target(value=0.9)])
    assert run.report(tuner, "trial-0", 1, 0.8) == []
    assert run.report(tuner, "trial-0", 2, 0.9) == ["stop"]


def test_a_study_goes_on_with_what_it_knew_and_submits_what_it_could_not(tmp_path: Path) -> None:
    tuner, run = begun(tmp_path, study())
    run.report(tuner, "trial-0", 1, 0.9)
    run.end("trial-0")
    run.is_stopped = True
    tuner.at(1.0, run.tasks)  # a third was suggested, and the run took it no more
    kept = keeping.read(tmp_path)
    assert isinstance(kept, StudyTuner)
    kept.check()
    run.is_stopped = False
    run.tasks["trial-1"].add(1, {"loss": 0.8})  # seen by the process that ended, and not kept
    kept.began(scope_of(run), run.tasks)
    assert list(run.tasks) == ["trial-0", "trial-1", "trial-2"]
    assert run.parameters["trial-2"] == kept.study.trials[2].params
    assert kept.study.trials[1].intermediate_values == {1: 0.8}
    kept.at(2.0, run.tasks)
    assert states(kept.study) == ["COMPLETE", "RUNNING", "RUNNING"]


@pytest.mark.filterwarnings("error")
def test_a_study_is_told_nothing_again_that_only_its_run_has_lost(tmp_path: Path) -> None:
    pruner = optuna.pruners.ThresholdPruner(upper=1.0)
    tuner, run = begun(tmp_path, study(pruner=pruner))
    run.report(tuner, "trial-1", 1, 0.9)
    assert run.report(tuner, "trial-1", 2, 1.1) == ["stop"]  # which the run, as it stops, refuses
    tuner.run_ended(run.tasks)
    run.tasks["trial-1"] = Progress("trial-1")
    run.tasks["trial-1"].add(1, {"loss": 0.9})
    kept = keeping.read(tmp_path)
    assert isinstance(kept, StudyTuner)
    kept.began(scope_of(run), run.tasks)
    assert run.report(kept, "trial-1", 2, 1.1) == ["stop"], "it is pruned after all"
    assert kept.study.trials[1].intermediate_values == {1: 0.9, 2: 1.1}


def test_another_study_is_refused_in_words(tmp_path: Path) -> None:
    tuner, _ = begun(tmp_path, study())
    (tmp_path / "journal.db").touch()
    keeping.write(tmp_path, tuner)
    with pytest.raises(InvalidInput, match="`s` is to maximize, and that of the run was to minim"):
        saturn.optuna.resume(tmp_path, study(direction="maximize"))
    with pytest.raises(InvalidInput, match="`s` has no such trial, and task `trial-0` of the run"):
        saturn.optuna.resume(tmp_path, study())
    other = study()
    other.ask().suggest_float("width", 1, 2)
    with pytest.raises(InvalidInput, match=r"has {'width': .*} there, and task .*{'lr': .*}"):
        saturn.optuna.resume(tmp_path, other)
    tuner.check()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"n_trials": 0}, "n_trials is 0; it must be a whole number from 1 on"),
        ({"in_flight": 2.0}, "in_flight is 2.0; it must be"),
        ({"keep_open": True}, "`keep_open` can't be given with a study"),
        ({"stopper": "ahsa"}, "there is no stopper `ahsa`; did you mean `asha`?"),
        ({"stopper": ASHA(metric="acc")}, "the stopper ASHA goes by `acc`, which task `trial-0`"),
        ({"study": study(directions=["minimize"] * 2)}, "`s` has 2 directions; a run takes"),
        ({"metric": "acc"}, "the study goes by `acc`, which task `trial-0` never reports"),
    ],
)
def test_what_can_not_be_a_search_is_refused_before_anything_runs(
    tmp_path: Path, arguments: dict[str, Any], says: str
) -> None:
    given: dict[str, Any] = {"study": study(), "make_task": suggest, "n_trials": 2, **arguments}
    with pytest.raises(InvalidInput, match=re.escape(says)):
        saturn.optuna.start(**given, runs_dir=tmp_path)
    assert list(tmp_path.iterdir()) == []
    assert "RUNNING" not in states(given["study"])


def test_a_study_of_another_direction_than_its_tasks_is_refused(tmp_path: Path) -> None:
    def evaluated(trial: optuna.Trial) -> Task:
        lr = trial.suggest_float("lr", 0.1, 1.0)
        evaluate = {"evaluate": lambda model: {"acc": 1.0}, "best": ("acc", "max")}
        return make_task("any", hparams=HParams(lr=lr, batch_count=8), **evaluate)

    one = study()
    with pytest.raises(InvalidInput, match='study with direction="maximize"'):
        saturn.optuna.start(one, evaluated, 2, runs_dir=tmp_path)
    assert states(one) == ["FAIL"]


@pytest.mark.timeout(240)
def test_a_study_trains(tmp_path: Path) -> None:
    result = saturn.optuna.optimize(
        one := study(),
        suggest,
        3,
        runs_dir=tmp_path,
        name="it",
        devices=2,
        techniques=["ddp"],
        log=False,
    )
    assert states(one) == ["COMPLETE"] * 3
    values = {f"trial-{trial.number}": trial.value for trial in one.trials}
    best = min(values, key=lambda name: values[name] or 0.0)
    assert best == f"trial-{one.best_trial.number}"
    frame = result.dataframe()
    assert list(frame["lr"]) == [one.trials[int(name[6:])].params["lr"] for name in frame["task"]]
    assert states(saturn.optuna.study_of("it", runs_dir=tmp_path)) == ["COMPLETE"] * 3
