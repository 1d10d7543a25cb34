"""Checks what a change can have broken, in about a minute: formatter, lints, types, nearest tests.

    python3 scripts/check.py [SINCE]

A change is what differs from the commit SINCE (default: `HEAD`), files that git doesn't know
included. Of Rust, the crates that changed are linted and tested. Of Python, those test files run
that changed, that import what changed, or that name a changed file of another kind; then those that
reach it by way of other modules, as long as `TESTS_S` lasts. `make test` runs all.
"""

from __future__ import annotations

import ast
import functools
import json
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from setup import BIN, ROOT, build_environment

PACKAGE = ROOT / "python" / "saturn"
TESTS = ROOT / "tests" / "python"
#: What the chosen test files may take together, by `seconds.json`: there, three workers share two
#: cores. Alone, on two workers, the chosen files take two thirds of it.
TESTS_S = 60.0
#: What a file takes that is not in `seconds.json`, as `quick_gate.py` has it.
SMALL_FILE_S = 0.6
#: Exit code of pytest where it left out all tests of the chosen files.
ONLY_SLOW_TESTS = 5


def main() -> int:
    """1 if something is wrong; the first thing that is ends it."""
    began = time.monotonic()
    changed = changed_files(*sys.argv[1:2])
    if not changed:
        print("nothing has changed")
        return 0
    for command in commands(changed):
        print("$", *(str(part).replace(f"{ROOT}/", "") for part in command), flush=True)
        code = subprocess.call(command, cwd=ROOT, env=build_environment())
        if code and not ("pytest" in command and code == ONLY_SLOW_TESTS):
            return 1
    print(f"all is well, after {time.monotonic() - began:.0f} s")
    return 0


def changed_files(since: str = "HEAD") -> list[Path]:
    """Paths from the root, of files that are there or were."""
    found = set()
    for arguments in (
        ["diff", "--name-only", since],
        ["ls-files", "--others", "--exclude-standard"],
    ):
        listed = subprocess.run(
            ["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True
        )
        found.update(map(Path, listed.stdout.splitlines()))
    return sorted(found)


def commands(changed: list[Path]) -> Iterator[list[str | Path]]:
    """What to run, in this order."""
    crates = sorted({path.parts[1] for path in changed if path.parts[0] == "crates"})
    packages = [word for crate in crates for word in ("-p", crate)]
    if packages:
        yield ["cargo", "fmt", "--all", "--check"]
        yield ["cargo", "clippy", "--release", *packages, "--all-targets", "--", "-D", "warnings"]
    if any(path.suffix in (".py", ".pyi") for path in changed):
        yield [BIN / "ruff", "format", "--check", "."]
        yield [BIN / "ruff", "check", "."]
        yield [BIN / "mypy"]
    if packages:
        yield ["cargo", "test", "--release", *packages]
    if tests := nearest_tests(changed):
        names = [TESTS / f"{name}.py" for name in tests]
        yield [
            BIN / "python",
            "-m",
            "pytest",
            "-q",
            "-n",
            "2",
            "--dist",
            "loadfile",
            "--no-loadscope-reorder",
            *names,
        ]


def nearest_tests(changed: Iterable[Path]) -> list[str]:
    """Names of test files, nearest first, as many as `TESTS_S` has time for."""
    changed = list(changed)
    imports = {name_of(path): imported(path) for path in sources()}
    there = {name_of(ROOT / path) for path in changed if path.suffix == ".py"} & imports.keys()
    others = {path.name for path in changed if path.suffix not in (".py", ".rs")}
    texts = {path.stem: path.read_text() for path in TESTS.glob("test_*.py")}
    steps = {name for name, text in texts.items() if any(other in text for other in others)}
    seconds = json.loads((TESTS / "seconds.json").read_text())
    chosen: list[str] = []
    left_s, near, seen = TESTS_S, there | steps, set[str]()
    while near:
        for name in sorted(near & texts.keys(), key=lambda name: seconds.get(name, SMALL_FILE_S)):
            # What changed itself always runs.
            if name in there or seconds.get(name, SMALL_FILE_S) <= left_s:
                chosen.append(name)
                left_s -= seconds.get(name, SMALL_FILE_S)
        seen |= near
        near = {name for name, used in imports.items() if used & near} - seen
    return chosen


def sources() -> list[Path]:
    """All Python of the package and of its tests."""
    return [*PACKAGE.rglob("*.py"), *TESTS.glob("*.py")]


def name_of(path: Path) -> str:
    """`saturn.data.order`, or a test's `test_order`."""
    if path.is_relative_to(TESTS):
        return path.stem
    parts = (
        path.relative_to(PACKAGE.parent).with_suffix("").parts if PACKAGE in path.parents else ()
    )
    return ".".join(parts).removesuffix(".__init__")


@functools.cache
def imported(path: Path) -> frozenset[str]:
    """Modules that a file may import anywhere; names that are none do no harm.

    A file is read once: reading all files takes a second.
    """
    found = set[str]()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return frozenset(found)


if __name__ == "__main__":
    sys.exit(main())
