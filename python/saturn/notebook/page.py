"""A run as HTML for a notebook's cell: a table of its tasks, their curves, and its messages.

The page is a pure function of its arguments: no files, no clock. It needs no script and fetches
nothing, so a notebook that is saved, shared or printed shows the run as it was.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from saturn.plain.measures import number

Curve = Sequence[tuple[int, float]]

#: Colours that colour-blind people can tell apart, too (Okabe and Ito).
_COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#b8a800", "#777777")
#: At most this many tasks are shown: first those that train, then others in their order.
_MOST_TASKS = 50
#: At most this many metrics of an evaluation are shown, as in `saturn status`.
_MOST_METRICS = 4
_WIDTH, _HEIGHT, _MARGIN = 640, 200, 44
_STYLE = (
    "<style>.saturn table{border-collapse:collapse;font-variant-numeric:tabular-nums}"
    ".saturn td,.saturn th{padding:2px 10px 2px 0;text-align:left}"
    ".saturn td.n,.saturn th.n{text-align:right}.saturn pre{max-height:20em;overflow:auto}"
    ".saturn .bar{background:#8884;width:90px;height:8px;display:inline-block}"
    ".saturn .bar i{display:block;height:8px}</style>"
)


def render(status: Mapping[str, Any] | None, curves: Mapping[str, Curve], said: str) -> str:
    """The page, from a run's status, its tasks' curves, and its messages.

    `status` is the result of `Run.status` (None before the run has begun), `curves` has each task's
    losses by step, and `said` is the run's output so far.
    """
    parts = [_STYLE]
    if status is not None:
        tasks = status["tasks"]
        shown = sorted(range(len(tasks)), key=lambda n: tasks[n]["stage"] != "running")
        shown = sorted(shown[:_MOST_TASKS])
        colours = {
            tasks[number]["name"]: _COLOURS[place % len(_COLOURS)]
            for place, number in enumerate(shown)
        }
        parts.append(f"<div>{escape(_headline(status))}</div>")
        parts.append(_table([tasks[number] for number in shown], status["now_s"], colours))
        if len(tasks) > len(shown):
            parts.append(f"<div>and {len(tasks) - len(shown)} more tasks</div>")
        parts.append(_chart({name: curves.get(name, ()) for name in colours}, colours))
    if said.strip():
        lines = said.strip().splitlines()
        parts.append(
            f"<details><summary>{escape(lines[-1])}</summary><pre>{escape(said)}</pre></details>"
        )
    return f'<div class="saturn">{"".join(parts)}</div>'


def _headline(status: Mapping[str, Any]) -> str:
    tasks = status["tasks"]
    done = sum(task["stage"] == "done" for task in tasks)
    words = [f"{done} of {len(tasks)} task{'s' if len(tasks) != 1 else ''} done"]
    for stage in ("diverged", "failed", "cancelled", "stopped", "running"):
        if number := sum(task["stage"] == stage for task in tasks):
            words.append(f"{number} {stage}")
    ends = [task["expected_end_s"] for task in tasks if task["expected_end_s"] is not None]
    if status["status"] == "unfinished" and ends and (left_s := max(ends) - status["now_s"]) > 0:
        words.append(f"about {_duration(left_s)} left")
    failed = any(task["stage"] == "failed" for task in tasks)
    if status["status"] != "unfinished" and not (status["status"] == "complete" and failed):
        words.append(status["status"])
    return ", ".join(words)


def _table(tasks: Sequence[Mapping[str, Any]], now_s: float, colours: Mapping[str, str]) -> str:
    rows = [
        "<tr><th></th><th>task</th><th>stage</th><th>trains by</th><th>steps</th>"
        '<th class="n">loss</th><th>evaluation</th><th class="n">ends in</th></tr>'
    ]
    for task in tasks:
        colour = colours[task["name"]]
        share = task["step"] / task["steps"] if task["steps"] else 0.0
        steps = f"{task['step']}/{task['steps'] or '?'}"
        by = "" if task["technique"] is None else escape(task["technique"]) + " &times; "
        by += "" if task["gpus"] is None else str(task["gpus"])
        left = task["expected_end_s"]
        cells = [
            f'<td style="color:{colour}">&#9632;</td>',
            f"<td>{escape(task['name'])}</td>",
            f"<td>{escape(task['stage'])}</td>",
            f"<td>{by}</td>",
            f'<td><span class="bar"><i style="width:{100 * min(share, 1):.0f}%;'
            f'background:{colour}"></i></span> {steps}</td>',
            f'<td class="n">{_number(task["loss"])}</td>',
            f"<td>{escape(_evaluation(task))}</td>",
            f'<td class="n">{"" if left is None else _duration(max(0.0, left - now_s))}</td>',
        ]
        rows.append(f"<tr>{''.join(cells)}</tr>")
        if task["error"]:
            rows.append(f'<tr><td></td><td colspan="7">{escape(task["error"])}</td></tr>')
    return f"<table>{''.join(rows)}</table>"


def _evaluation(task: Mapping[str, Any]) -> str:
    """The metric that ranks the task; if its loss does, its last evaluation."""
    if not task["evaluation"]:
        return ""
    metric = (task["goal"] or {"metric": "loss"})["metric"]
    found = {metric: task["value"]} if metric != "loss" else task["evaluation"]["metrics"]
    told = [f"{name} {_number(value)}" for name, value in found.items()]
    return ", ".join(told[:_MOST_METRICS]) + (", …" if len(told) > _MOST_METRICS else "")


def _chart(curves: Mapping[str, Curve], colours: Mapping[str, str]) -> str:
    drawn = {
        name: [(step, loss) for step, loss in curve if math.isfinite(loss)]
        for name, curve in curves.items()
    }
    points = [point for curve in drawn.values() for point in curve]
    if not points:
        return ""
    last = max(step for step, _ in points) or 1  # a script may count from 0
    low, high = min(loss for _, loss in points), max(loss for _, loss in points)
    height = high - low or 1.0
    inner_width, inner_height = _WIDTH - _MARGIN - 8, _HEIGHT - 28

    def placed(step: int, loss: float) -> str:
        right = _MARGIN + inner_width * step / last
        return f"{right:.1f},{8 + inner_height * (high - loss) / height:.1f}"

    lines = []
    for name, curve in drawn.items():
        at = " ".join(placed(step, loss) for step, loss in curve)
        lines.append(
            f'<polyline fill="none" stroke="{colours[name]}" stroke-width="1.5" points="{at}">'
            f"<title>{escape(name)}</title></polyline>"
        )
    bottom = 8 + inner_height
    axis = "currentColor"
    texts = [
        f'<text x="{_MARGIN - 4}" y="16" text-anchor="end">{_number(high)}</text>',
        f'<text x="{_MARGIN - 4}" y="{bottom}" text-anchor="end">{_number(low)}</text>',
        f'<text x="{_WIDTH - 8}" y="{_HEIGHT - 4}" text-anchor="end">step {last}</text>',
        f'<text x="{_MARGIN}" y="{_HEIGHT - 4}">loss</text>',
    ]
    return (
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" font-size="11" fill="{axis}" '
        f'role="img" aria-label="losses by step">{"".join(texts)}<path d="M{_MARGIN} 8V{bottom}'
        f'H{_WIDTH - 8}" fill="none" stroke="{axis}" stroke-opacity="0.4"/>{"".join(lines)}</svg>'
    )


def _number(told: float | str | None) -> str:
    value = number(told)
    return "" if value is None else f"{value:.4g}"


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = seconds / 60
    return f"{minutes:.0f} min" if minutes < 90 else f"{minutes / 60:.1f} h"
