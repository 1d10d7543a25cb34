"""What the quick gate leaves to the nightly form, and what its tests may take.

Hooks of pytest, which `conftest.py` takes over: a test that is marked `slow` runs with `--nightly`
only; a quick test that takes longer than `QUICK_S` is named at the end, and fails if it takes three
times as long; and the files that take longest begin first, so that no worker is left with a long
file when the others have ended. Files that share a warm parent run on one worker (`TOGETHER`). What
each file takes is in `seconds.json`; `test_quick_gate.py` holds their sum against the time that the
gate has.
"""

from __future__ import annotations

import json
import os
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

#: A test that takes longer on a machine that does nothing else should be marked `slow`.
QUICK_S = 20.0
#: A test that takes longer must be marked `slow`: a cold disk does not explain it.
MOST_S = 60.0
#: The quick tests of all files, on so many workers, on two cores.
GATE_S = 7 * 60
NUM_WORKERS = 3
#: What a file takes that is not in `seconds.json`.
SMALL_FILE_S = 0.6
#: Files that share what takes long to start: they run on one worker, which starts it once.
TOGETHER = {
    "a warm parent on fake GPUs": (
        *("test_balance", "test_evaluated_training", "test_gpu_black_box", "test_gpu_failures"),
        *("test_gpu_steps", "test_gpu_trainers", "test_gpu_training"),
        "test_optimizer_form",
    )
}
GROUPS = {file: group for group, files in TOGETHER.items() for file in files}
TOO_SLOW = "make it quicker, or mark it @pytest.mark.slow, so that only `make test-nightly` runs it"
SECONDS = Path(__file__).with_name("seconds.json")


def seconds() -> dict[str, float]:
    """Seconds that the quick tests of each larger file keep one of the workers busy, by its stem.

    They come from the processor time of each file, scaled to the time that the whole suite took.
    """
    return dict(json.loads(SECONDS.read_text()))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--nightly", action="store_true", help="run the tests marked `slow` too")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out slow tests, except with `--nightly` and where a test is named by itself."""
    taken = seconds()
    items.sort(key=lambda item: before(item.path.stem, taken))
    if config.option.nightly or any("::" in argument for argument in config.args):
        return
    unknown = quick_cases(items)
    if slow := [item for item in items if is_slow(item)]:
        config.hook.pytest_deselected(items=slow)
        items[:] = [item for item in items if not is_slow(item)]
    for item in items:
        unknown.discard((item.nodeid.partition("[")[0], case_of(item)))
    if unknown:
        raise pytest.UsageError(f"marked as quick, but no case of their test: {sorted(unknown)}")


def before(file: str, taken: dict[str, float]) -> tuple[float, str, float]:
    """Sorts files: those that take longest first, and those that run together beside each other."""
    group = GROUPS.get(file, "")
    files = TOGETHER.get(group, (file,))
    own_s, all_s = (sum(taken.get(one, SMALL_FILE_S) for one in some) for some in ((file,), files))
    return -all_s, group, -own_s


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With `--dist loadfile`, has one worker run the files that run together."""
    if config.getoption("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class Together(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = super()._split_scope(nodeid)
            return GROUPS.get(Path(file).stem, file)

    return Together(config, log)


def is_slow(item: pytest.Item) -> bool:
    """Whether a test is marked `slow`, and is no case that the mark names as quick."""
    mark = item.get_closest_marker("slow")
    return mark is not None and case_of(item) not in mark.kwargs.get("quick", ())


def case_of(item: pytest.Item) -> str:
    """The values of a test's parameters, as pytest writes them; without any, nothing."""
    found = getattr(item, "callspec", None)
    return "" if found is None else found.id


def quick_cases(items: list[pytest.Item]) -> set[tuple[str, str]]:
    """(test, case) of all that marks name as quick."""
    named = set()
    for item in items:
        if (mark := item.get_closest_marker("slow")) is not None:
            test = item.nodeid.partition("[")[0]
            named.update((test, case) for case in mark.kwargs.get("quick", ()))
    return named


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Fails a test that passed but is too slow for the quick gate.

    Not in CI, whose machines are slow at times: each time another test would be too slow.
    """
    report = yield
    if is_slow(item) or call.when != "call" or "CI" in os.environ:
        return report
    if report.passed and report.duration > MOST_S * slowdown():
        report.outcome = "failed"
        report.longrepr = f"took {report.duration:.0f} s: {TOO_SLOW}"
    return report


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Names the tests that took too long for the quick gate, or did on this machine today."""
    passed = [] if config.option.nightly else terminalreporter.stats.get("passed", [])
    if slow := [report for report in passed if report.duration > QUICK_S]:
        terminalreporter.section(f"over {QUICK_S:.0f} s: {TOO_SLOW}")
        for report in slow:
            terminalreporter.line(f"{report.duration:.0f} s  {report.nodeid}")


def slowdown() -> float:
    """By how much other programs may slow a test: the mean number of processes a core."""
    return max(1.0, os.getloadavg()[0] / len(os.sched_getaffinity(0)))
