"""The picture of the crates on their floors, drawn from the dependencies that their manifests name.

usage: floors.py [--check]

A crate's floor is one above the highest floor that it uses. An arrow leads from a crate to each
crate that it uses, but not where another arrow already leads there through a third crate. Writes
`docs/images/floors.svg`, which ARCHITECTURE.md shows. With `--check`, writes nothing, and fails if
the picture is not up to date.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PICTURE = ROOT / "docs" / "images" / "floors.svg"

#: Sizes in pixels: the picture's width, a floor's height, a box, the column of floor numbers.
WIDTH, FLOOR, BOX, MARGIN = 760, 88, (176, 40), 60
HEAD = """\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" \
height="{height}" font-family="system-ui, sans-serif" font-size="15">
<title>The crates on their floors: an arrow leads from a crate to a crate that it uses</title>
<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" \
orient="auto"><path d="M0 0L8 4L0 8z" fill="#667"/></marker></defs>
<rect width="100%" height="100%" fill="#fff"/>
"""

Uses = dict[str, set[str]]


def uses() -> Uses:
    """The crates of this workspace that each crate uses outside its tests."""
    found = {}
    for manifest in sorted(ROOT.glob("crates/*/Cargo.toml")):
        sections = re.split(r"^\[(.+)\]$", manifest.read_text(), flags=re.MULTILINE)
        bodies = dict(zip(sections[1::2], sections[2::2], strict=True))
        names = re.findall(r"^(saturn-\w+)\b", bodies["dependencies"], re.MULTILINE)
        found[manifest.parent.name] = set(names)
    return found


def floors(used: Uses) -> dict[str, int]:
    """The floor of each crate; the lowest is 0."""

    def floor(crate: str) -> int:
        return max((floor(other) + 1 for other in used[crate]), default=0)

    return {crate: floor(crate) for crate in used}


def arrows(used: Uses) -> list[tuple[str, str]]:
    """The uses to draw: those to which no longer way leads."""

    def reached(crate: str) -> set[str]:
        return used[crate].union(*(reached(other) for other in used[crate]))

    return [
        (crate, other)
        for crate in sorted(used)
        for other in sorted(used[crate])
        if not any(other in reached(third) for third in used[crate])
    ]


def draw(used: Uses) -> str:
    """The picture as SVG."""
    floor_of = floors(used)
    top = max(floor_of.values())
    places = {}
    for floor in range(top + 1):
        crates = sorted(crate for crate in floor_of if floor_of[crate] == floor)
        for index, crate in enumerate(crates):
            x = MARGIN + (WIDTH - MARGIN) * (index + 0.5) / len(crates)
            places[crate] = round(x), (top - floor) * FLOOR + FLOOR // 2
    lines = [HEAD.format(width=WIDTH, height=(top + 1) * FLOOR)]
    half = BOX[1] // 2
    for crate, other in arrows(used):
        (x, y), (to_x, to_y) = places[crate], places[other]
        line = f'x1="{x}" y1="{y + half}" x2="{to_x}" y2="{to_y - half}"'
        lines.append(f'<line {line} stroke="#667" marker-end="url(#tip)"/>\n')
    for floor in range(top + 1):
        y = (top - floor) * FLOOR + FLOOR // 2
        lines.append(f'<text x="16" y="{y + 5}" fill="#667">floor {floor}</text>\n')
    for crate, (x, y) in sorted(places.items()):
        corner = f'x="{x - BOX[0] // 2}" y="{y - half}" width="{BOX[0]}" height="{BOX[1]}"'
        lines.append(f'<rect {corner} rx="6" fill="#eef2fb" stroke="#46a"/>\n')
        lines.append(f'<text x="{x}" y="{y + 5}" text-anchor="middle">{crate}</text>\n')
    return "".join(lines) + "</svg>\n"


def main() -> None:
    """Write the picture, or check it."""
    picture = draw(uses())
    if sys.argv[1:] == ["--check"]:
        if PICTURE.read_text() != picture:
            sys.exit("docs/images/floors.svg is not up to date: run scripts/floors.py")
    else:
        PICTURE.write_text(picture)


if __name__ == "__main__":
    main()
