"""The picture of `docs/bench/profile.md`, as plain SVG: makespan over what trials cost."""

from __future__ import annotations

import math
from collections.abc import Sequence

_WIDTH, _HEIGHT = 760, 420
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 30, 30, 60
#: Trials are shown from this part on, on a logarithmic axis.
_LEAST = 0.01
_TICKS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
#: Makespans with a line; what is above 1 is on a logarithmic axis too.
_LINES = (1.02, 1.05, 1.1, 1.2, 1.5, 2.0, 5.0)


def picture(points: Sequence[tuple[str, float, float, float]]) -> str:
    """Name, trials (a part), makespan in the median and at 90% of each point."""

    def x(trials: float) -> float:
        span = math.log10(max(trials, _LEAST) / _LEAST) / -math.log10(_LEAST)
        return _LEFT + span * (_WIDTH - _LEFT - _RIGHT)

    def y(makespan: float) -> float:
        least, most = _LINES[0] - 1.0, _LINES[-1] - 1.0
        part = math.log(max(makespan - 1.0, least) / least) / math.log(most / least)
        return _HEIGHT - _BOTTOM - part * (_HEIGHT - _TOP - _BOTTOM)

    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
        'font-family="system-ui, sans-serif" font-size="12">',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="#ffffff"/>',
    ]
    for value in _LINES:
        lines += [
            f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y(value):.1f}" y2="{y(value):.1f}" '
            'stroke="#e2e2e2"/>',
            f'<text x="{_LEFT - 8}" y="{y(value) + 4:.1f}" text-anchor="end">{value:.2f}</text>',
        ]
    for tick in _TICKS:
        lines.append(
            f'<text x="{x(tick):.1f}" y="{_HEIGHT - _BOTTOM + 20}" text-anchor="middle">'
            f"{tick:.0%}</text>"
        )
    lines += [
        f'<text x="{(_LEFT + _WIDTH - _RIGHT) / 2:.0f}" y="{_HEIGHT - 14}" text-anchor="middle">'
        "device-seconds of trials, of those of every strategy</text>",
        f'<text x="16" y="{(_HEIGHT - _BOTTOM) / 2:.0f}" text-anchor="middle" '
        f'transform="rotate(-90 16 {(_HEIGHT - _BOTTOM) / 2:.0f})">'
        "makespan over full knowledge's: median and 90%</text>",
    ]
    for name, trials, median, high in points:
        color = "#1f6feb" if name.startswith("chosen") else "#8a8f98"
        beside, anchor = (-8, "end") if trials > 0.4 else (8, "start")
        lines += [
            f'<line x1="{x(trials):.1f}" x2="{x(trials):.1f}" y1="{y(median):.1f}" '
            f'y2="{y(high):.1f}" stroke="{color}" stroke-width="2"/>',
            f'<circle cx="{x(trials):.1f}" cy="{y(median):.1f}" r="5" fill="{color}"/>',
            f'<text x="{x(trials) + beside:.1f}" y="{y(median) + 4:.1f}" '
            f'text-anchor="{anchor}" fill="{color}">{name}</text>',
        ]
    return "\n".join([*lines, "</svg>", ""])
