"""Whatever is killed whenever, a run goes on, and trains as if nothing had happened.

Each kill is of a real process at a random moment: the driver, a rank, the warm parent, or all at
once. After it no process of a dead driver lives, and every checkpoint that is called complete is
whole. In the end every loss is that of plain torch.

    SATURN_TEST_KILLS=100 SATURN_TEST_SEED=7 pytest tests/python/test_random_kills.py

does more than fifteen.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from saturn.checkpoint import manifest
from sweep_run import TASKS, Run, assert_trained_as_plain_torch_does

pytestmark = pytest.mark.slow

NUM_KILLS = int(os.environ.get("SATURN_TEST_KILLS", "15"))
#: Another at each run of the tests, told where a test fails.
SEED = int(os.environ.get("SATURN_TEST_SEED", str(time.time_ns() % 1_000_000)))
#: Longest that processes may outlive their driver, on a busy machine: a parent that has just begun
#: still imports torch, before it sees that its driver is gone.
ORPHANS_S = 30.0
#: Longest from the start of a driver to its first rank, on a busy machine.
FIRST_RANK_S = 180.0
#: Victims of which one is the driver.
WITH_DRIVER = ("driver", "all at once")


class Killer:
    """Kills processes of a run at random moments."""

    def __init__(self, run: Run, chance: random.Random) -> None:
        self._run = run
        self._chance = chance
        self._done: list[str] = []
        #: The newest checkpoint when a rank was last killed: a task whose ranks die again and again
        #: without coming further is given up, as it should be.
        self._saved: dict[str, list[Path]] | None = None

    def kill(self) -> str | None:
        """Kill something some time from now: what; `None` where the run was over first."""
        self._wait()
        if self._run.process.poll() is not None:
            return None
        ranks, parents = self._run.ranks(), self._run.warm_parents()
        choices: dict[str, Callable[[], list[int]]] = {"driver": lambda: [self._run.process.pid]}
        choices["all at once"] = self._run.processes
        saved = {task: self._run.checkpoints(task) for task in TASKS}
        if saved != self._saved:
            if ranks:
                choices["rank"] = lambda: [self._chance.choice(ranks)]
            if parents:
                choices["warm parent"] = lambda: [self._chance.choice(parents)]
        victim = self._chance.choice(sorted(choices))
        for pid in choices[victim]():
            # It may just have ended.
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if victim not in WITH_DRIVER:
            self._saved = saved
        elif (code := self._run.process.wait(timeout=100)) == 0:
            # It ended by itself while a victim was chosen. The kill hit a process that was over,
            # since no killed process ends with 0; what it trained is then looked at as ever.
            return None
        else:
            assert code == -signal.SIGKILL, self._run.stderr.read_text()
        return victim

    def _wait(self) -> None:
        """Until a random moment: of the start, or of the life of ranks."""
        if self._chance.random() < 0.3:
            time.sleep(self._chance.uniform(0.0, 4.0))
            return
        deadline = time.monotonic() + FIRST_RANK_S
        while not self._run.ranks() and self._run.process.poll() is None:
            assert time.monotonic() < deadline, "no rank is ever started"
            time.sleep(0.02)
        time.sleep(self._chance.uniform(0.0, 1.5))


def assert_checkpoints_are_whole(run: Run) -> None:
    """Every checkpoint that has its name has all of its files, as they were written."""
    for task in TASKS:
        for _ in range(2):
            # One may be removed while it is looked at, as there is a newer one.
            wrong = [_wrong(directory) for directory in run.checkpoints(task)]
            if not any(wrong):
                break
        assert not any(wrong), wrong


def _wrong(directory: Path) -> str | None:
    content = manifest.read(directory)
    if content is None:
        return f"{directory} has no manifest" if directory.exists() else None
    found = manifest.verify(directory, content)
    return f"{directory}: {found}" if found and directory.exists() else None


@pytest.mark.timeout(120 + 60 * NUM_KILLS)
def test_random_kills_change_no_loss(tmp_path_factory: pytest.TempPathFactory) -> None:
    print(f"SATURN_TEST_SEED={SEED}")
    chance = random.Random(SEED)
    kills: list[str] = []
    while len(kills) < NUM_KILLS:
        run = Run(tmp_path_factory.mktemp("killed"))
        killer = Killer(run, chance)
        while len(kills) < NUM_KILLS and (victim := killer.kill()) is not None:
            kills.append(victim)
            print(f"kill {len(kills)}: {victim}, at {time.monotonic():.1f} s")
            assert_checkpoints_are_whole(run)
            if victim in WITH_DRIVER:
                run.assert_nothing_lives(ORPHANS_S)
                if not (run.path / "journal.db").exists():
                    break  # killed before there was a run
                run.resume()
        else:
            assert run.wait() == 0, run.stderr.read_text()
            run.assert_nothing_lives(ORPHANS_S)
            assert_trained_as_plain_torch_does(run)
    assert set(WITH_DRIVER) & set(kills)


class Now(random.Random):
    """Kills the driver at once."""

    def random(self) -> float:
        return 0.0

    def uniform(self, a: float, b: float) -> float:
        return 0.0

    def choice(self, seq: Any) -> Any:
        return "driver"


def kill_of(program: str, tmp_path: Path) -> str | None:
    """What a kill says of a driver that ends by itself, where the killer last saw it alive."""
    process = subprocess.Popen([sys.executable, "-c", program])
    if "sleep" not in program:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    process.poll = lambda: None  # type: ignore[method-assign]
    (tmp_path / "stderr").write_text("it broke")
    none: Callable[..., list[int]] = lambda *_: []  # noqa: E731
    run = SimpleNamespace(process=process, ranks=none, warm_parents=none, checkpoints=none)
    run.processes, run.stderr = none, tmp_path / "stderr"
    return Killer(cast(Run, run), Now()).kill()


def test_a_run_that_ends_before_its_kill_is_over(tmp_path: Path) -> None:
    assert kill_of("", tmp_path) is None
    assert kill_of("import time; time.sleep(100)", tmp_path) == "driver"
    with pytest.raises(AssertionError, match="it broke"):
        kill_of("raise SystemExit(3)", tmp_path)
