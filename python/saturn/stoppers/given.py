"""Turn the value of `stopper=` into a list of stoppers whose metrics are known.

Names and tables are as in a sweep file: `"asha"`, `{"kind": "asha", "eta": 4}`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, replace
from typing import Any

from saturn.errors import InvalidInput
from saturn.plain.names import did_you_mean
from saturn.stoppers.halving import ASHA
from saturn.stoppers.progress import LOSS
from saturn.stoppers.rules import Function, Median, NaN, Plateau, Target, TimeLimit
from saturn.stoppers.stopper import Stopper
from saturn.tasks.evaluation import EVAL_LOSS, MAX, MIN

#: Stoppers by their names in a sweep file.
KINDS: dict[str, type[Stopper]] = {
    "asha": ASHA,
    "median": Median,
    "plateau": Plateau,
    "target": Target,
    "nan": NaN,
    "time": TimeLimit,
}


@dataclass(frozen=True, kw_only=True)
class Reports:
    """What a task will report, as far as that is known before it runs."""

    name: str
    #: Whether it certainly reports no metric except its loss.
    only_loss: bool
    #: The (metric, mode) of its `best`.
    best: tuple[str, str] | None
    evaluates: bool


def stoppers_of(given: Any) -> list[Stopper]:
    """The stoppers of a value of `stopper=`; raises `TypeError` or `InvalidInput`."""
    if isinstance(given, Stopper | str | Mapping) or callable(given):
        given = [given]
    if not isinstance(given, Iterable):
        raise TypeError(
            f"stopper is a {type(given).__name__}; it must be one of saturn.stoppers, a function "
            "of a Progress, a name, or a list of those"
        )
    made = [_stopper(one) for one in given]
    if not made:
        raise InvalidInput("stopper is an empty list; give one, or None")
    return made


def _stopper(given: Any) -> Stopper:
    if isinstance(given, type) and issubclass(given, Stopper):
        raise TypeError(f"stopper is the class {given.__name__}; it must be {given.__name__}(…)")
    if isinstance(given, Stopper):
        return given
    if isinstance(given, str):
        given = {"kind": given}
    if isinstance(given, Mapping):
        return _of_table(dict(given))
    if callable(given):
        return Function(function=given)
    raise TypeError(
        f"stopper holds a {type(given).__name__}; it must hold stoppers of saturn.stoppers, "
        "functions of a Progress, or names"
    )


def _of_table(table: dict[str, Any]) -> Stopper:
    kind = table.pop("kind", None)
    if kind not in KINDS:
        near = did_you_mean(str(kind), KINDS)
        raise InvalidInput(f"there is no stopper `{kind}`; {near}")
    known = [one.name for one in fields(KINDS[kind])]
    for key in table:
        if key not in known:
            raise InvalidInput(f"the stopper `{kind}` has no `{key}`; {did_you_mean(key, known)}")
    for one in fields(KINDS[kind]):
        if one.default is MISSING and one.name not in table:
            raise InvalidInput(
                f'the stopper `{kind}` needs `{one.name}`: {{ kind = "{kind}", {one.name} = … }}'
            )
    try:
        return KINDS[kind](**table)
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"the stopper `{kind}`: {error}") from error


def with_metrics(stoppers: Sequence[Stopper], tasks: Sequence[Reports]) -> list[Stopper]:
    """The stoppers with metric and mode; `InvalidInput` if a task never reports the metric."""
    return [
        _with_metric(stopper, tasks) if stopper.goes_by_metric else stopper for stopper in stoppers
    ]


def _with_metric(stopper: Stopper, tasks: Sequence[Reports]) -> Stopper:
    kind = "stopper" if isinstance(stopper, Function) else f"stopper {type(stopper).__name__}"
    metric, mode = stopper.metric, stopper.mode
    bests = {task.best for task in tasks if task.best is not None}
    if metric is None:
        metric = common_metric(kind, tasks, {name for name, _ in bests})
    if mode is None:
        modes = {mode for name, mode in bests if name == metric}
        mode = modes.pop() if len(modes) == 1 else MIN
    check_reported(kind, metric, tasks)
    return replace(stopper, metric=metric, mode=mode)


def check_reported(kind: str, metric: str, tasks: Sequence[Reports]) -> None:
    """Refuse tasks that never report the metric of a stopper, which messages call `kind`."""
    without = [task.name for task in tasks if task.only_loss]
    if metric != LOSS and without:
        raise InvalidInput(
            f"the {kind} goes by `{metric}`, which task `{without[0]}` never reports, since it "
            "evaluates nothing; give the task an evaluation (evaluate=; a Trainer has "
            f'eval_strategy), or the {kind} metric="{LOSS}"'
        )


def common_metric(kind: str, tasks: Sequence[Reports], bests: set[str]) -> str:
    """The metric by which all tasks define their best, out of `bests`; else the loss."""
    if not any(task.evaluates for task in tasks):
        return LOSS
    unsaid = [task.name for task in tasks if task.evaluates and task.best is None]
    if len(bests) == 1 and not unsaid:
        return bests.pop()
    if unsaid:
        raise InvalidInput(
            f"the {kind} has no metric, and task `{unsaid[0]}` does not say which of its metrics "
            f'counts; give metric="{EVAL_LOSS}" or another, or the task best=("{EVAL_LOSS}", '
            f'"{MIN}")'
        )
    shown = ", ".join(f"`{name}`" for name in sorted(bests))
    raise InvalidInput(
        f"the {kind} has no metric, and the tasks have several ({shown}); give metric= and "
        f'mode="{MIN}" or "{MAX}"'
    )
