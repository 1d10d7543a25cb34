"""Records real runs for the replay: their journals, as lines of JSON, into `runs/`.

usage: record.py [NAME...]

Each recording is the header `{"recording": 1, "journal": VERSION, …}` and then one line
`[seconds, record]` for each row of the run's `journal.db`, in order and as the row is. Left out
are the run's settings, which hold the machine's paths, and the values that a stopper saw without
ruling on any task. Tracebacks are cut. `saturn simulate --replay` reads such a file as it reads a
run's directory.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
RUNS = HERE / "runs"
SATURN = Path(sys.executable).with_name("saturn")
#: A run that takes longer hangs, seconds.
LONGEST_S = 600

Strike = Callable[["Driver"], None]


class Driver:
    """A scenario in processes of its own."""

    def __init__(self, scenario: str, directory: Path, home: Path) -> None:
        self.directory = directory
        self.run_dir = directory / "saturn_runs" / "recorded"
        self._mark = f"SATURN_RECORDED={directory}"
        name, _, value = self._mark.partition("=")
        self._environment = {**os.environ, "SATURN_HOME": str(home), name: value}
        code = f"import scenarios; scenarios.{scenario}()"
        self._process = self._start([sys.executable, "-c", code])

    def _start(self, command: list[str | Path]) -> subprocess.Popen[bytes]:
        environment = {**self._environment, "PYTHONPATH": str(HERE)}
        with (self.directory / "output").open("a") as output:
            return subprocess.Popen(
                command, cwd=self.directory, env=environment, stdout=output, stderr=output
            )

    def wait(self) -> None:
        """Wait for the end of the run; raise if it failed."""
        if code := self._process.wait(timeout=LONGEST_S):
            output = (self.directory / "output").read_text()
            raise RuntimeError(f"the run ended with {code}:\n{output[-3000:]}")

    def at_step(self, step: int, task: str) -> None:
        """Wait until a task has trained that far."""
        sys.path.insert(0, str(HERE))
        import scenarios

        scenarios.watch_out(self.run_dir, step, task)

    def kill_rank(self, number: int) -> None:
        """Kill one of the ranks that train."""
        ranks = [pid for pid in self._processes() if _is_warm(pid) and _is_warm(_parent(pid))]
        os.kill(sorted(ranks)[number], signal.SIGKILL)

    def kill_driver(self) -> None:
        """Kill the process that drives the run."""
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        """Stop the run at checkpoints."""
        subprocess.run([SATURN, "stop", self.run_dir], env=self._environment, check=True)
        self._process.wait(timeout=LONGEST_S)

    def resume(self, after_s: float) -> None:
        """Go on with the run, some time later."""
        time.sleep(after_s)
        self._process = self._start([SATURN, "resume", self.run_dir])

    def _processes(self) -> list[int]:
        alive = []
        for entry in Path("/proc").iterdir():
            try:
                if self._mark.encode() in (entry / "environ").read_bytes():
                    alive.append(int(entry.name))
            except OSError:
                continue
        return alive


def _parent(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("PPid:")[2].split()[0])


def _is_warm(pid: int) -> bool:
    try:
        return "saturn.worker.warm" in Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return False


def killed_rank(driver: Driver) -> None:
    """Two ranks are killed, one after the other."""
    driver.at_step(100, "task0")
    driver.kill_rank(0)
    driver.at_step(60, "task2")
    driver.kill_rank(-1)


def killed_driver(driver: Driver) -> None:
    """The driver is killed, and another goes on."""
    driver.at_step(150, "task0")
    driver.kill_driver()
    driver.resume(after_s=2.0)


def stopped(driver: Driver) -> None:
    """A person stops the run, and resumes it."""
    driver.at_step(120, "task0")
    driver.stop()
    driver.resume(after_s=2.0)


#: Each recording: the scenario, and what is done to its run.
RECORDINGS: dict[str, tuple[str, Strike | None]] = {
    **{
        name: (name, None)
        for name in (
            *("demo", "demo_again", "demo_one_slot", "readme", "full_trials", "wide", "many"),
            *("uneven", "evaluations", "often_saved", "asha", "median", "optuna", "trainers"),
            *("lightning", "scripts", "failing_task", "wishes", "arrivals", "paused"),
            *("new_priority", "replanned", "two_nodes", "lost_node", "searched", "perceptrons"),
            *("sizes", "due"),
        )
    },
    "killed_rank": ("to_be_struck", killed_rank),
    "killed_driver": ("to_be_struck", killed_driver),
    "stopped": ("to_be_struck", stopped),
}


def record(name: str, home: Path) -> Path:
    """Make one recording: the path of its file."""
    scenario, strike = RECORDINGS[name]
    with tempfile.TemporaryDirectory(prefix="saturn-recorded-") as directory:
        driver = Driver(scenario, Path(directory), home)
        try:
            if strike is not None:
                strike(driver)
            driver.wait()
        finally:
            driver.kill_driver()
        lines = journal(driver.run_dir / "journal.db", name)
    path = RUNS / f"{name.replace('_', '-')}.jsonl"
    path.write_text("\n".join(lines) + "\n")
    return path


def journal(path: Path, name: str) -> list[str]:
    """The lines of a recording."""
    connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (began,) = connection.execute("SELECT wall FROM record WHERE seq = 1").fetchone()
    header = {"recording": 1, "journal": version, "run": name, "began": began}
    found = connection.execute("SELECT at_s, record FROM record ORDER BY seq")
    rows = [(at_s, _cut(json.loads(row))) for at_s, row in found]
    ruled = {at_s for at_s, row in rows if "ruling" in row}
    kept = [row for row in rows if row[1]["record"] != "judged" or row[0] in ruled]
    return [json.dumps(header), *(json.dumps(row, separators=(",", ":")) for row in kept)]


def _cut(value: Any) -> Any:
    """A value without tracebacks, and without the machine's paths."""
    if isinstance(value, dict):
        return {key: "" if key == "traceback" else _cut(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_cut(each) for each in value]
    if isinstance(value, str):
        return re.sub(r"(/[\w.+-]+){2,}", "…", value)
    return value


def main() -> None:
    """Record the named runs, or all."""
    RUNS.mkdir(exist_ok=True)
    names = [name.replace("-", "_") for name in sys.argv[1:]] or list(RECORDINGS)
    with tempfile.TemporaryDirectory(prefix="saturn-home-") as home:
        for name in names:
            began_s = time.monotonic()
            path = record(name, Path(home))
            took_s = time.monotonic() - began_s
            print(f"{name}: {took_s:.0f} s, {path.stat().st_size / 1000:.0f} kB", flush=True)


if __name__ == "__main__":
    main()
