"""The copy of a crate that holds all of its mutants, and which of them compile (`mutants.py`).

The copy and its build stay in `target/mutants`. rustc names the lines of what does not compile.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from schemata import SWITCH, Mutant, weave
from setup import ROOT, build_environment

#: Two campaigns at the same time need two folders.
WORK = Path(os.environ.get("SATURN_MUTANTS_FOLDER", ROOT / "target" / "mutants"))
TREE = WORK / "tree"


def copy_checkout(crate: str) -> None:
    """Brings the copy up to date, but for the crate's own source, which `write` writes.

    What did not change keeps its time, and so its build.
    """
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    names = {name for name in listing.stdout.split("\0") if name and (ROOT / name).is_file()}
    for old in [*(TREE / "crates").rglob("*.rs")]:
        if str(old.relative_to(TREE)) not in names and old.name != "mutant_switch.rs":
            old.unlink()
    for name in (one for one in names if not one.startswith(f"crates/{crate}/src/")):
        put(TREE / name, (ROOT / name).read_bytes())
    if not (TREE / "target").exists():
        # HiGHS and SQLite are built there already.
        (TREE / "target" / "release").mkdir(parents=True)
        for part in ("build", "deps", ".fingerprint"):
            shutil.copytree(
                ROOT / "target" / "release" / part,
                TREE / "target" / "release" / part,
                symlinks=True,
            )


def put(path: Path, content: bytes) -> None:
    """Writes a file if that changes it."""
    if not path.exists() or path.read_bytes() != content:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def compiled(
    crate: str, found: list[Mutant], most: int
) -> tuple[dict[int, Mutant], dict[int, int]]:
    """Those of the sample that compile together, by their numbers, and the function of each.

    The copy holds them afterwards.
    """
    # Some will not compile; the sample is the first `most` of those that do.
    pool = dict(enumerate(found[: most + most // 4 + 5], start=1))
    # Told again only when something of it has changed.
    text = "".join(path.read_text() for path in sources(crate))
    text += "".join(one.key for one in pool.values())
    stamp = WORK / f"refused-{hashlib.sha256(text.encode()).hexdigest()[:16]}.json"
    if stamp.exists():
        bad = set(json.loads(stamp.read_text()))
    else:
        bad = all_refused(crate, pool)
        stamp.write_text(json.dumps(sorted(bad)))
    good = [number for number in pool if number not in bad]
    pool = {number: pool[number] for number in good[:most]}
    functions, _ = write(crate, pool)
    return pool, functions


def all_refused(crate: str, pool: dict[int, Mutant]) -> set[int]:
    """The mutants that do not compile: of what is left without them, rustc says more."""
    bad: set[int] = set()
    while True:
        _, places = write(crate, {number: pool[number] for number in pool if number not in bad})
        more = refused(crate, places)
        print(f"{len(more)} mutants do not compile", flush=True)
        if not more:
            return bad
        bad |= more


def sources(crate: str) -> list[Path]:
    """The crate's source in the checkout."""
    return sorted((ROOT / "crates" / crate / "src").rglob("*.rs"))


@dataclass(frozen=True)
class Place:
    """Lines of a written file that belong to these mutants."""

    file: str
    first: int
    last: int
    numbers: tuple[int, ...]


def write(crate: str, mutants: dict[int, Mutant]) -> tuple[dict[int, int], list[Place]]:
    """Writes the crate with its mutants into the copy, narrow places first."""
    by_file: dict[str, dict[int, Mutant]] = defaultdict(dict)
    for number, one in mutants.items():
        by_file[one.file][number] = one
    functions: dict[int, int] = {}
    places: list[Place] = []
    num_functions = 0
    source = Path("crates") / crate / "src"
    for path in sources(crate):
        name = str(path.relative_to(ROOT))
        text = path.read_text()
        woven, spots, own = weave(text, by_file[name], num_functions)
        num_functions += len(set(own.values()))
        functions |= own
        places += [Place(name, *spot) for spot in spots]
        if path == ROOT / source / "lib.rs":
            # `1 - 2` in a mutant is found when it runs.
            allowed = "#![allow(warnings, arithmetic_overflow, unconditional_panic)]"
            woven = f"{allowed} {woven}\nmod mutant_switch;\n"
        put(TREE / name, woven.encode())
    put(TREE / source / "mutant_switch.rs", SWITCH.format(num=max(1, num_functions)).encode())
    return functions, sorted(places, key=lambda one: one.last - one.first)


def cargo(*arguments: str) -> Iterator[dict[str, object]]:
    """What cargo says in the copy, message by message."""
    said = subprocess.run(
        ["cargo", *arguments, "--message-format", "json"],
        cwd=TREE,
        env=build_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        check=False,
    )
    yield from map(json.loads, said.stdout.splitlines())


def refused(crate: str, places: list[Place]) -> set[int]:
    """The mutants in whose lines rustc finds errors."""
    bad: set[int] = set()
    for one in cargo("check", "--release", "--workspace", "--lib"):
        message = one.get("message")
        if not isinstance(message, dict) or message["level"] != "error" or not message["spans"]:
            continue
        spans = [span for span in message["spans"] if span["is_primary"]]
        hit = [place.numbers for span in spans for place in places if is_at(place, span)]
        if not hit:
            raise SystemExit(message["rendered"])
        bad.update(hit[0])
    return bad


def is_at(place: Place, span: dict[str, object]) -> bool:
    """Whether an error's span lies in these lines."""
    first, last = span["line_start"], span["line_end"]
    assert isinstance(first, int) and isinstance(last, int)
    return place.file == span["file_name"] and place.first <= first and last <= place.last
