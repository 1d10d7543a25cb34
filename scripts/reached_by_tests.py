"""Records which quick tests reach which blocks of Python code, in all processes they start.

A private copy of the checkout is instrumented: each block of the chosen modules begins with a call
that writes down the block and the test that runs at that time. Ranks are other processes, which
coverage tools miss; the call finds the current test in a file of its pytest worker. Beside this
stands what each test took. `scripts/mutants_python.py` chooses the tests of a mutant by this.
"""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
#: What git ignores and tests need all the same.
BUILT = ("python/saturn/_core.abi3.so", "python/saturn/_core.pyi")
PROBE = '''\
"""Writes down that a block was reached."""

import os

DIRECTORY = {directory!r}
_seen = set()
_open, _read, _write, _close = os.open, os.read, os.write, os.close


def forget():
    _seen.clear()


os.register_at_fork(after_in_child=forget)


def reached(module, line):
    if (module, line) in _seen:
        return
    _seen.add((module, line))
    worker = os.environ.get("PYTEST_XDIST_WORKER", "master")
    try:
        source = _open(f"{{DIRECTORY}}/current-{{worker}}", os.O_RDONLY)
        test = _read(source, 4096).decode()
        _close(source)
        sink = _open(f"{{DIRECTORY}}/reached-{{worker}}", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        _write(sink, f"{{module}}\\t{{line}}\\t{{test}}\\n".encode())
        _close(sink)
    except OSError:
        pass
'''
PLUGIN = """\
import json, os, pytest
from saturn import _reach

WORKER = os.environ.get("PYTEST_XDIST_WORKER", "master")

@pytest.hookimpl(tryfirst=True)
def pytest_runtest_logstart(nodeid, location):
    with open(f"{_reach.DIRECTORY}/current-{WORKER}", "w") as sink:
        sink.write(nodeid)
    _reach.forget()

def pytest_runtest_logreport(report):
    if "PYTEST_XDIST_WORKER" not in os.environ:
        with open(f"{_reach.DIRECTORY}/reports", "a") as sink:
            said = [report.nodeid, report.when, report.outcome, report.duration]
            sink.write(json.dumps(said) + "\\n")
"""


def copy_checkout(to: Path) -> None:
    """A checkout of its own at `to`: its files, and hard links of its environment.

    The environment's package `saturn` is the copy's, so processes that tests start import it too.
    An environment that is there already stays, since its links take a minute.
    """
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    to.mkdir(parents=True, exist_ok=True)
    for entry in to.iterdir():
        if entry.name != ".venv":
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
    for name in (*listed.stdout.splitlines(), *BUILT):
        if (ROOT / name).is_file():
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, to / name)
    if (to / ".venv").exists():
        return
    subprocess.run(["cp", "-al", f"{(ROOT / '.venv').resolve()}/", to / ".venv"], check=True)
    for link in (to / ".venv").glob("lib/python*/site-packages/saturn.pth"):
        link.unlink()  # else the text of the linked file would change
        link.write_text(f"{to / 'python'}\n")


def blocks(tree: ast.Module) -> Iterator[tuple[list[ast.stmt], int]]:
    """(statements, line of the first) of each block inside of functions, but for docstrings."""
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            for node in ast.walk(function):
                for name in ("body", "orelse", "finalbody"):
                    body = getattr(node, name, None)
                    if isinstance(body, list) and not isinstance(node, ast.ClassDef):
                        yield body, first_line(body)


def first_line(body: Sequence[ast.stmt]) -> int:
    """The line where a block's code begins; 0 of an empty one."""
    return body[0].lineno if body else 0


def instrument(path: Path, module: str) -> None:
    """Let each block of a file say that it was reached."""
    tree = ast.parse(path.read_text())
    done: set[int] = set()
    for body, line in list(blocks(tree)):
        if not body or id(body) in done:
            continue
        done.add(id(body))
        first = body[0]
        is_doc = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
        call = ast.parse(f"_reach.reached({module!r}, {line})").body
        at = 1 if is_doc and isinstance(first.value.value, str) else 0
        body[at:at] = call
    after = 0
    for number, node in enumerate(tree.body):
        if isinstance(node, ast.ImportFrom) and node.module == "__future__":
            after = number + 1
    tree.body[after:after] = ast.parse("from saturn import _reach").body
    path.unlink()
    path.write_text(ast.unparse(ast.fix_missing_locations(tree)))


def record(modules: Sequence[str], work: Path, arguments: Sequence[str]) -> Path:
    """Run the quick gate once in an instrumented copy; returns the file with what was reached."""
    copy, told = work / "reach", work / "told"
    copy_checkout(copy)
    shutil.rmtree(told, ignore_errors=True)
    told.mkdir(parents=True)
    package = copy / "python" / "saturn"
    (package / "_reach.py").write_text(PROBE.format(directory=str(told)))
    (package / "_reach_plugin.py").write_text(PLUGIN)
    for module in modules:
        instrument(copy / "python" / Path(*module.split(".")).with_suffix(".py"), module)
    command = [copy / ".venv/bin/python", "-m", "pytest", "-q", "-p", "saturn._reach_plugin"]
    began = time.monotonic()
    subprocess.run([*command, *arguments], cwd=copy, check=False, env={**os.environ, "CI": "1"})
    print(f"recorded in {time.monotonic() - began:.0f} s", file=sys.stderr)
    return collect(told, work / "reach.json")


def collect(told: Path, to: Path) -> Path:
    """Write one file: what each test took and whether it passed, and the tests of each block."""
    tests: dict[str, dict[str, float | bool]] = {}
    for line in (told / "reports").read_text().splitlines():
        name, _, outcome, duration_s = json.loads(line)
        test = tests.setdefault(name, {"s": 0.0, "passed": True})
        test["s"] += duration_s
        test["passed"] = test["passed"] and outcome == "passed"
    reached: dict[str, dict[str, list[str]]] = {}
    for path in told.glob("reached-*"):
        for line in path.read_text().splitlines():
            module, number, test_name = line.split("\t")
            found = reached.setdefault(module, {}).setdefault(number, [])
            if test_name not in found:
                found.append(test_name)
    to.write_text(json.dumps({"tests": tests, "reached": reached}))
    return to
