"""The pictures of docs/solver.md, drawn from small examples.

usage: solver_pictures.py

Writes `docs/images/solver-orders.svg` and `docs/images/solver-rounds.svg`. A test compares them
with what this script draws. The script plans the examples by the page's rules; it does not call the
solver.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

IMAGES = Path(__file__).resolve().parents[1] / "docs" / "images"

HEAD = """\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" \
height="{height}" font-family="system-ui, sans-serif" font-size="14">
<title>{title}</title>
<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" \
orient="auto"><path d="M0 0L8 4L0 8z" fill="#667"/></marker></defs>
<rect width="100%" height="100%" fill="#fff"/>
"""

#: A node's GPUs in the examples of orders, and sizes in pixels: a second, a GPU.
GPUS, SECOND, ROW = 4, 24, 26
COLOURS = ["#cfe0fb", "#fbe3c0", "#d5efd0", "#f3d3e2", "#e2d8f5", "#d0ecec"]


@dataclass(frozen=True)
class Gang:
    """A task under its chosen mode."""

    name: str
    gpus: int
    runtime: int
    release: int = 0


@dataclass(frozen=True)
class Placed:
    """A gang in a plan."""

    gang: Gang
    start: int
    rows: tuple[int, ...]

    @property
    def end(self) -> int:
        """When it gives its GPUs back."""
        return self.start + self.gang.runtime


LIST = [Gang("A", 2, 6), Gang("B", 1, 3), Gang("C", 3, 4), Gang("D", 2, 2), Gang("E", 1, 5)]
#: The same, but C is released late, and D fits before it.
RELEASED = [Gang("C", 3, 4, release=7) if gang.name == "C" else gang for gang in LIST]


def by_list(gangs: list[Gang]) -> list[Placed]:
    """Each gang in turn starts when enough GPUs are free behind the gangs before it."""
    free = [0] * GPUS
    plan = []
    for gang in gangs:
        start = max(sorted(free)[gang.gpus - 1], gang.release)
        ready = [row for row in range(GPUS) if free[row] <= start]
        rows = sorted(sorted(ready, key=lambda row: -free[row])[: gang.gpus])
        for row in rows:
            free[row] = start + gang.runtime
        plan.append(Placed(gang, start, tuple(rows)))
    return plan


def by_calendar(gangs: list[Gang]) -> list[Placed]:
    """Each gang in turn starts when its GPUs are free for its whole run, perhaps in a gap."""
    plan: list[Placed] = []
    for gang in gangs:
        for start in sorted({gang.release, *(one.end for one in plan)}):
            end = start + gang.runtime
            held = {row for one in plan if one.start < end and start < one.end for row in one.rows}
            rows = [row for row in range(GPUS) if row not in held]
            if start >= gang.release and len(rows) >= gang.gpus:
                plan.append(Placed(gang, start, tuple(rows[: gang.gpus])))
                break
    return plan


def text(x: float, y: float, words: str, more: str = "") -> str:
    """A line of text."""
    return f'<text x="{x:g}" y="{y:g}" {more}>{words}</text>\n'


def chart(plan: list[Placed], left: int, top: int, title: str) -> Iterator[str]:
    """One plan: a row for each GPU, seconds to the right, and the plan's bound and end."""
    end = max(one.end for one in plan)
    area = sum(one.gang.gpus * one.gang.runtime for one in plan)
    yield text(left, top - 32, title, 'font-weight="600"')
    height = GPUS * ROW
    yield (
        f'<rect x="{left}" y="{top}" width="{end * SECOND}" height="{height}" fill="#eee" '
        'stroke="#999"/>\n'
    )
    for row in range(GPUS):
        yield text(left - 8, top + row * ROW + 18, f"GPU {row}", 'text-anchor="end" fill="#667"')
    for number, one in enumerate(plan):
        colour = COLOURS[ord(one.gang.name) - ord("A")]
        for row in one.rows:
            yield (
                f'<rect x="{left + one.start * SECOND}" y="{top + row * ROW}" '
                f'width="{one.gang.runtime * SECOND}" height="{ROW}" fill="{colour}" '
                'stroke="#667"/>\n'
            )
            x = left + (one.start + one.gang.runtime / 2) * SECOND
            words = f"{one.gang.name}" if row != one.rows[0] else f"{number + 1}: {one.gang.name}"
            yield text(x, top + row * ROW + 18, words, 'text-anchor="middle"')
    for time, words, colour, y in [
        (area / GPUS, f"area bound {area / GPUS:g} s", "#a33", top + height + 18),
        (end, f"makespan {end} s", "#223", top - 10),
    ]:
        x = left + time * SECOND
        yield (
            f'<line x1="{x:g}" y1="{top - 6}" x2="{x:g}" y2="{top + height + 6}" '
            f'stroke="{colour}" stroke-width="2"/>\n'
        )
        yield text(x, y, words, f'text-anchor="end" fill="{colour}"')


def orders() -> str:
    """How an order becomes a plan."""
    title = "The order A B C D E as a plan: by a list, and by a calendar with a gap"
    lines = [HEAD.format(width=760, height=204, title=title)]
    lines += chart(by_list(LIST), 70, 62, "A list: A, B, C, D, E")
    lines += chart(by_calendar(RELEASED), 470, 62, "A calendar: C is released at 7 s")
    lines.append(text(70, 198, "grey: idle GPUs", 'fill="#667"'))
    return "".join(lines) + "</svg>\n"


#: Two threads share the items of a round. Pixels of each item, in the order in which they begin.
THREADS = 2
FIRST = [26, 30, 24, 22, 28, 25, 23, 30]
#: How many times as long as the first round each round is.
LENGTHS = [1.0, 1.5, 2.25]
#: Sizes in pixels: the height of a bar, the space between rounds.
BAR, BETWEEN = 30, 34


@dataclass(frozen=True)
class Item:
    """An item of a round: its number, its thread, and its place in pixels."""

    number: int
    thread: int
    left: float
    right: float


def course(left: float) -> list[list[Item]]:
    """The items of each round. The thread that is free first takes the next item."""
    found = []
    for length in LENGTHS:
        free = [left] * THREADS
        items = []
        for number, pixels in enumerate(FIRST, 1):
            thread = free.index(min(free))
            begin = free[thread]
            free[thread] += pixels * length
            items.append(Item(number, thread, begin, free[thread]))
        found.append(items)
        left = max(free) + BETWEEN
    return found


def rounds() -> str:
    """What a limit cuts from the course of a search."""
    title = "A search on two threads, in rounds of eight items, and where two limits would cut it"
    top = 50
    done = course(90)
    begin = done[0][0].left
    short = done[1][4].left + 15
    limits = [(short, "limit t"), (begin + 2 * (short - begin), "limit 2t")]
    width = round(done[-1][-1].right + 60)
    lines = [HEAD.format(width=width, height=150, title=title)]
    for thread in range(THREADS):
        y = top + thread * (BAR + 6) + 20
        lines.append(text(20, y, f"thread {thread + 1}", 'fill="#667"'))
    middle = top + BAR + 3
    for number, items in enumerate(done):
        for item in items:
            y = top + item.thread * (BAR + 6)
            lines.append(
                f'<rect x="{item.left:g}" y="{y}" width="{item.right - item.left:g}" '
                f'height="{BAR}" fill="{COLOURS[number]}" stroke="#667"/>\n'
            )
            x = (item.left + item.right) / 2
            lines.append(text(x, y + 20, str(item.number), 'text-anchor="middle"'))
        right = max(item.right for item in items)
        lines.append(text(items[0].left, top + 2 * BAR + 28, f"round {number + 1}", 'fill="#667"'))
        if number + 1 < len(done):
            lines.append(
                f'<line x1="{right + 4:g}" y1="{middle}" x2="{right + BETWEEN - 4:g}" '
                f'y2="{middle}" stroke="#667" stroke-width="2" marker-end="url(#tip)"/>\n'
            )
    for x, words in limits:
        lines.append(
            f'<line x1="{x:g}" y1="{top - 14}" x2="{x:g}" y2="{top + 2 * BAR + 12}" '
            'stroke="#a33" stroke-width="2" stroke-dasharray="5 3"/>\n'
        )
        lines.append(text(x, top - 20, words, 'text-anchor="middle" fill="#a33"'))
    return "".join(lines) + "</svg>\n"


#: Each picture's file, and who draws it.
PICTURES = {
    IMAGES / "solver-orders.svg": orders,
    IMAGES / "solver-rounds.svg": rounds,
}


def main() -> None:
    """Write the pictures."""
    for path, draw in PICTURES.items():
        path.write_text(draw())


if __name__ == "__main__":
    main()
