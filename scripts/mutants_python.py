"""Measures which mutants of training, data and checkpoint code the quick Python gate kills.

    python scripts/mutants_python.py record|again|run|table [FIRST]

`record` runs the quick gate once and writes down what each test reaches (`reached_by_tests.py`).
`run` tries a fixed sample of mutants against the tests that reach them. Answers are kept in
`tests/mutants/python.json`, so a run that was cut goes on. `again` forgets the survivors, which new
tests may kill. `table` writes `docs/mutants-python.md`.
`FIRST` takes so many of the sample only, which is a smaller sample that is as fixed.
The mutants come from Cosmic Ray, which must be installed where this file runs (`make
mutants-python` sees to that). Beside its operators stands one of our own, which skips a call.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import json
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mutants_page
import parso  # noqa: F401  (Cosmic Ray finds its operators only if parso is there already)
import reached_by_tests
from check import ROOT, TESTS, imported
from cosmic_ray import plugins
from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.operators.operator import Operator
from parso.python.tree import Keyword

FOLDERS = ("training", "data", "checkpoint")
NUM_MUTANTS = 300
#: Seconds of tests, as recorded, for each mutant: those nearest to it, then those of other files.
NEAREST_S, WIDER_S = 12.0, 75.0
RUNNERS = 2
#: Seconds beyond those of its tests after which a mutant counts as one under which they do not end.
#: Where other work takes the processor, tests take several times as long as recorded.
LIMIT_S = 240.0
WORK = ROOT / "target" / "mutants-python"
ANSWERS = ROOT / "tests" / "mutants" / "python.json"
#: Why some survivors survive, by their names.
REASONS = ROOT / "scripts" / "mutants_python.json"
#: Operators whose mutants say nothing: an exception's name in `except` is replaced by one that does
#: not exist, identity is replaced by a comparison that is the same for `None` and enums, and bits
#: of numbers that are not made of bits are changed.
LEFT_OUT = (
    *("ExceptionReplacer", "VariableReplacer", "VariableInserter", "_Is_", "_IsNot_"),
    *("_BitOr_", "_BitAnd_", "_BitXor_", "_RShift_", "_LShift_"),
)
KEPT = ("_Is_IsNot", "_IsNot_Is")


class SkipCall(Operator):
    """Replaces a statement that is a call by `pass`."""

    def mutation_positions(self, node: Any) -> Iterator[tuple[Any, Any]]:
        """Where a statement is a call and nothing else."""
        if node.type == "simple_stmt" and node.children[0].type in ("atom_expr", "power"):
            yield node.start_pos, node.end_pos

    def mutate(self, node: Any, index: int) -> Any:
        """The statement without its call."""
        first = node.children[0].get_first_leaf()
        node.children[0] = Keyword("pass", first.start_pos, first.prefix)
        return node

    @classmethod
    def examples(cls) -> Sequence[Any]:
        """No examples."""
        return ()


@dataclass(frozen=True)
class Mutant:
    """One change of one file."""

    module: str
    function: str
    operator: str
    #: Which of the operator's positions in the function.
    occurrence: int
    #: Which of its positions in the file.
    in_file: int
    line: int
    column: int

    @property
    def name(self) -> str:
        """The name that the sample is drawn by: other functions' changes don't alter it."""
        return f"{self.module}:{self.function} {self.operator} {self.occurrence}"

    @property
    def order(self) -> tuple[str, str]:
        """The mutant's place in the sample: first by what is replaced, then by what with."""
        replaced = "_".join(self.operator.split("_")[:2])
        what = f"{self.module}:{self.function} {replaced} {self.occurrence}"
        return _digest(what), _digest(self.name)

    @property
    def path(self) -> str:
        """The file, from the root."""
        return f"python/{self.module.replace('.', '/')}.py"

    def change(self) -> str:
        """The first line that differs, as it is in the mutated file; empty where lines went."""
        before, after = (ROOT / self.path).read_text().splitlines(), self.code()
        pairs = zip(before, (after or "").splitlines(), strict=False)
        return next((new.strip() for old, new in pairs if old != new), "")

    def code(self) -> str | None:
        """The mutated file; None if that is no Python."""
        operator = operators()[self.operator]
        code = mutate_code((ROOT / self.path).read_text(), operator, self.in_file)
        try:
            ast.parse(code or "")
        except SyntaxError:
            return None
        return code


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


@functools.cache
def operators() -> dict[str, Operator]:
    """The operators that are used, by their names."""
    found: dict[str, Operator] = {"SkipCall": SkipCall()}
    for full in plugins.operator_names():
        name = full.removeprefix("core/")
        if not any(word in f"{name}_" for word in LEFT_OUT) or name.endswith(KEPT):
            found[name] = plugins.get_operator(full)()
    return found


def modules() -> list[str]:
    """The modules that are mutated."""
    package = ROOT / "python"
    return [
        ".".join(path.relative_to(package).with_suffix("").parts)
        for folder in FOLDERS
        for path in sorted((package / "saturn" / folder).glob("*.py"))
        if path.stem != "__init__"
    ]


def sample() -> list[Mutant]:
    """The fixed sample: those of lowest digests, at most one mutant of each place in the code."""
    found = sorted(
        (mutant for module in modules() for mutant in mutants(module)), key=lambda one: one.order
    )
    chosen: dict[tuple[str, int, int], Mutant] = {}
    for mutant in found:
        place = (mutant.module, mutant.line, mutant.column)
        if place not in chosen and mutant.code() is not None:
            chosen[place] = mutant
            if len(chosen) == NUM_MUTANTS:
                break
    return list(chosen.values())


def mutants(module: str) -> Iterator[Mutant]:
    """All mutants of a module, but for those in annotations and outside of functions."""
    text = (ROOT / "python" / Path(*module.split("."))).with_suffix(".py").read_text()
    tree, nodes = ast.parse(text), list(ast_nodes(get_ast(text)))
    typed, functions = list(annotations(tree)), list(named_functions(tree))
    for name, operator in operators().items():
        places = [start for node in nodes for start, _ in operator.mutation_positions(node)]
        counts: dict[str, int] = {}
        for in_file, (line, column) in enumerate(places):
            if any(start <= (line, column) < end for start, end in typed):
                continue
            around = [function for function, first, last in functions if first <= line <= last]
            if around:
                function = around[-1]
                occurrence = counts[function] = counts.get(function, -1) + 1
                yield Mutant(module, function, name, occurrence, in_file, line, column)


def annotations(tree: ast.Module) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
    """(start, end) of each annotation."""
    for node in ast.walk(tree):
        for field in ("annotation", "returns"):
            found = getattr(node, field, None)
            if isinstance(found, ast.expr):
                assert found.end_lineno is not None and found.end_col_offset is not None
                end = (found.end_lineno, found.end_col_offset)
                yield (found.lineno, found.col_offset), end


def named_functions(node: ast.AST, within: str = "") -> Iterator[tuple[str, int, int]]:
    """(name, first line, last line) of functions, outer ones first; decorators belong to them."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            name = f"{within}.{child.name}".removeprefix(".")
            if not isinstance(child, ast.ClassDef):
                first = min([child.lineno, *(one.lineno for one in child.decorator_list)])
                yield name, first, child.end_lineno or child.lineno
            yield from named_functions(child, name)
        else:
            yield from named_functions(child, within)


class Tests:
    """Which quick tests reach a mutant, nearest first."""

    def __init__(self) -> None:
        """Read what `record` wrote."""
        recorded = json.loads((WORK / "reach.json").read_text())
        self.seconds = {name: test["s"] for name, test in recorded["tests"].items()}
        self._passed = {name for name, test in recorded["tests"].items() if test["passed"]}
        self._reached: Mapping[str, Mapping[str, list[str]]] = recorded["reached"]
        self._imports = {path.stem: imported(path) for path in TESTS.glob("test_*.py")}
        #: How many blocks of all modules a test reaches: few if it is about little.
        self._breadth: dict[str, int] = {}
        for blocks in self._reached.values():
            for tests in blocks.values():
                for test in tests:
                    self._breadth[test] = self._breadth.get(test, 0) + 1

    def of(self, mutant: Mutant) -> list[str]:
        """Tests that reach the block, those first whose files import the module, then the quick."""
        reached = self._reached.get(mutant.module, {})
        tree = ast.parse((ROOT / mutant.path).read_text())
        around = [
            line
            for body, line in reached_by_tests.blocks(tree)
            if body and line <= mutant.line <= (body[-1].end_lineno or line)
        ]
        if around:
            found = reached.get(str(max(around)), [])
        else:  # in a decorator, or a default value, which stand before the function's first block
            first, last = _lines_of(mutant, tree)
            inside = (tests for line, tests in reached.items() if first <= int(line) <= last)
            found = [test for tests in inside for test in tests]
        names = set(found) & self._passed
        return sorted(names, key=lambda test: self._order(test, mutant.module))

    def _order(self, test: str, module: str) -> tuple[bool, float]:
        is_near = module in self._imports[_file_of(test)]
        return not is_near, self.seconds[test] + self._breadth[test] / 100

    def nearest(self, mutant: Mutant) -> list[str]:
        """The first tests to try."""
        return self._within(self.of(mutant), NEAREST_S)

    def wider(self, mutant: Mutant) -> list[str]:
        """The tests to try then: one of each file, then a second of each."""
        done = set(self.nearest(mutant))
        left = [test for test in self.of(mutant) if test not in done]
        rounds: dict[str, int] = {}
        places = {}
        for place, test in enumerate(left):
            name = _file_of(test)
            rounds[name] = rounds.get(name, 0) + 1
            places[test] = (rounds[name], place)
        return self._within(sorted(left, key=places.__getitem__), WIDER_S)

    def _within(self, tests: Iterable[str], seconds: float) -> list[str]:
        chosen, left = [], seconds
        for test in tests:
            if not chosen or self.seconds[test] <= left:
                chosen.append(test)
                left -= self.seconds[test]
        return chosen


def _file_of(test: str) -> str:
    return Path(test.partition("::")[0]).stem


def _lines_of(mutant: Mutant, tree: ast.Module) -> tuple[int, int]:
    return next(
        (first, last)
        for name, first, last in reversed(list(named_functions(tree)))
        if name == mutant.function and first <= mutant.line <= last
    )


def try_all(chosen: Sequence[Mutant], tests: Tests, answers: dict[str, Any]) -> None:
    """Try each mutant on its nearest tests, and then what is left on the wider set."""
    for pass_name, choose in (("nearest", tests.nearest), ("wider", tests.wider)):
        todo = [
            mutant
            for mutant in chosen
            if not answers.get(mutant.name, {}).get("killed", False)
            and pass_name not in answers.get(mutant.name, {}).get("passes", [])
        ]
        print(f"{len(todo)} mutants on their {pass_name} tests", flush=True)
        if not todo:
            continue
        queue, lock = iter(todo), threading.Lock()
        threads = [
            threading.Thread(
                target=_try_some,
                args=(number, queue, lock, pass_name, choose, tests, answers),
            )
            for number in range(RUNNERS)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


def _try_some(
    number: int,
    queue: Iterator[Mutant],
    lock: threading.Lock,
    pass_name: str,
    choose: Any,
    tests: Tests,
    answers: dict[str, Any],
) -> None:
    copy = WORK / f"copy-{number}"
    runner = subprocess.Popen(
        ["nice", "-n", "15", copy / ".venv/bin/python", "scripts/mutant_runner.py"],
        cwd=copy,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert runner.stdin is not None and runner.stdout is not None
    while True:
        with lock:
            mutant = next(queue, None)
        if mutant is None:
            break
        answer: dict[str, Any] = {"killed": False, "by": "", "s": 0.0}
        if names := choose(mutant):
            limit_s = LIMIT_S + 6.0 * sum(tests.seconds[name] for name in names)
            job = {"path": mutant.path, "code": mutant.code(), "tests": names, "limit_s": limit_s}
            runner.stdin.write(json.dumps(job) + "\n")
            runner.stdin.flush()
            answer = json.loads(runner.stdout.readline())
        with lock:
            before = answers.get(mutant.name, {"passes": [], "tests": 0, "s": 0.0})
            answers[mutant.name] = {
                **answer,
                "s": round(before["s"] + answer["s"], 2),
                "passes": [*before["passes"], pass_name],
                "tests": before["tests"] + len(names),
            }
            keep(answers)
            print(f"{mutant.name}: {answers[mutant.name]}", flush=True)
    runner.stdin.close()
    runner.wait()


def keep(answers: Mapping[str, Any]) -> None:
    """Write the answers, one a line; a run may be cut at any time."""
    lines = (f"{json.dumps(name)}: {json.dumps(answers[name])}" for name in sorted(answers))
    new = ANSWERS.with_suffix(".new")
    new.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    new.replace(ANSWERS)


def main() -> None:
    """Do what is asked for."""
    asked = sys.argv[1:] or ["record", "run", "table"]
    WORK.mkdir(parents=True, exist_ok=True)
    if "record" in asked:
        gate = ["-n", "3", "--dist", "loadfile", "--no-loadscope-reorder"]
        reached_by_tests.record(modules(), WORK, gate)
    answers = json.loads(ANSWERS.read_text()) if ANSWERS.exists() else {}
    if "again" in asked:
        answers = {name: answer for name, answer in answers.items() if answer["killed"]}
    numbers = [int(word) for word in asked if word.isdigit()]
    chosen = sample()[: numbers[0] if numbers else NUM_MUTANTS]
    if "run" in asked:
        for number in range(RUNNERS):
            reached_by_tests.copy_checkout(WORK / f"copy-{number}")
        try_all(chosen, Tests(), answers)
    if "table" in asked:
        reasons = json.loads(REASONS.read_text())
        page = mutants_page.page(chosen, answers, reasons, NUM_MUTANTS)
        (ROOT / "docs" / "mutants-python.md").write_text(page)


if __name__ == "__main__":
    main()
