"""The quick gate leaves out what it must and nothing else, and its files fit into its time."""

from __future__ import annotations

from pathlib import Path

import pytest
import quick_gate

pytest_plugins = ["pytester"]

HERE = Path(__file__).parent
TESTS = """
import pytest

def test_plain(): pass

@pytest.mark.slow
def test_long(): pass

@pytest.mark.slow(quick=["2", "3"])
@pytest.mark.parametrize("number", [1, 2, 3])
def test_some(number): pass
"""
HOOKS = "from quick_gate import *\n"


@pytest.fixture
def gate(pytester: pytest.Pytester) -> pytest.Pytester:
    pytester.makepyprojecttoml('[tool.pytest.ini_options]\nmarkers = ["slow: later"]')
    pytester.syspathinsert(HERE)
    pytester.makeconftest(HOOKS)
    return pytester


@pytest.mark.parametrize(
    ("arguments", "passed", "left_out"),
    [([], 3, 2), (["--nightly"], 5, 0), (["test_it.py::test_long"], 1, 0)],
)
def test_slow_tests_run_at_night_and_where_they_are_named(
    gate: pytest.Pytester, arguments: list[str], passed: int, left_out: int
) -> None:
    gate.makepyfile(test_it=TESTS)
    gate.runpytest(*arguments).assert_outcomes(passed=passed, deselected=left_out)


def test_a_quick_case_that_is_none_is_an_error(gate: pytest.Pytester) -> None:
    gate.makepyfile(test_it=TESTS.replace('"3"', '"4"'))
    result = gate.runpytest()
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*no case of their test: [[]('test_it.py::test_some', '4')*"])


def test_a_quick_test_that_takes_too_long_is_named_and_in_the_end_fails_and_a_slow_one_does_not(
    gate: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate.makepyfile(test_it=TESTS)
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.setattr(quick_gate, "QUICK_S", -1.0)
    result = gate.runpytest()
    result.assert_outcomes(passed=3, deselected=2)
    result.stdout.fnmatch_lines(["*over -1 s: make it quicker, or mark it @pytest.mark.slow*"])
    monkeypatch.setattr(quick_gate, "MOST_S", -1.0)
    result = gate.runpytest("--nightly")
    result.assert_outcomes(passed=2, failed=3)
    result.stdout.fnmatch_lines(["*took * s: make it quicker, or mark it @pytest.mark.slow*"])
    monkeypatch.setenv("CI", "true")
    gate.runpytest("--nightly").assert_outcomes(passed=5)


def test_the_longest_file_begins_first(
    gate: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quick_gate, "seconds", lambda: {"test_second_of_three": 9.0})
    for name in ("test_first_of_three", "test_second_of_three", "test_third_of_three"):
        gate.makepyfile(**{name: "def test_it(): pass"})
    ordered = ["test_second_of_three.py*", "test_first_of_three.py*", "test_third_of_three.py*"]
    gate.runpytest("-v").stdout.fnmatch_lines(ordered)


def test_the_files_fit_into_the_time_of_the_gate() -> None:
    taken = quick_gate.seconds()
    files = {path.stem for path in HERE.glob("test_*.py")}
    assert taken.keys() <= files, "no such file"
    small_s = quick_gate.SMALL_FILE_S * len(files - taken.keys())
    assert sum(taken.values()) + small_s <= quick_gate.GATE_S * quick_gate.NUM_WORKERS
