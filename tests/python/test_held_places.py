"""`saturn shell`: devices of the pool for a person, until the person leaves or the time is over."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from saturn.scripts import hold
from served import SATURN, Served

#: Two scripts that each count to 10 in a second.
SWEEP = f"""
script = {str(Path(__file__).with_name("counting_script.py"))!r}
steps = 10
args = ["--steps", "10", "--step_s", "0.1"]
[grid]
lr = [0.1, 0.2]
"""


def told(served: Served, *command: str, cwd: Path, code: int = 0) -> tuple[dict[str, object], str]:
    """What `saturn shell --json` tells of its place, and its standard error."""
    shown, said = served.verb("shell", "--json", *command, cwd=cwd, code=code)
    return json.loads(shown.splitlines()[0]), said


@pytest.mark.timeout(300)
def test_a_place_is_held_for_a_command_and_training_goes_on_after_it(
    served: Served, tmp_path: Path
) -> None:
    (tmp_path / "count.toml").write_text(SWEEP)
    cores = "import os; print(sorted(os.sched_getaffinity(0)), flush=True); raise SystemExit(7)"
    shown, said = served.verb(
        *("shell", "--for", "1h", "--", sys.executable, "-c", cores), cwd=tmp_path, code=7
    )
    assert len(json.loads(shown)) == 1, "one slot is one core"
    assert "the place waits in the plan as the task `shell`" in said
    assert "you have 1 core (" in said and "the place is given back" in said
    served.until(lambda: served.stages(tmp_path)["shell"] == "done")
    # The device is wanted by training too, which the place does not outlast.
    served.verb("submit", "count.toml", cwd=tmp_path)
    began_s = time.monotonic()
    # A process that has lost its parent is ended with the place too.
    orphan = "sleep 1234 & exec sleep 1000"
    place, said = told(served, "--for", "2s", "--", "sh", "-c", f"({orphan}) & wait", cwd=tmp_path)
    assert not running("sleep", "1234")
    assert place["task"] == "shell-2" and place["gpus"] is None and "until" in place
    assert "the place's time is over" in said and time.monotonic() - began_s < 100
    served.until(lambda: set(served.stages(tmp_path).values()) == {"done"})
    served.until(lambda: not any((tmp_path / "home" / "shells").iterdir()))


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_place_ends_with_the_person_or_with_the_pool(served: Served, tmp_path: Path) -> None:
    def begun(*more: str) -> subprocess.Popen[str]:
        command = [SATURN, "shell", "--json", "--for", "1h", *more, "--", "sleep", "1000"]
        return subprocess.Popen(
            command,
            env=served.environment,
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def stage(task: str) -> str | None:
        return served.stages(tmp_path).get(task)

    first = begun()
    assert first.stdout is not None and json.loads(first.stdout.readline())["task"] == "shell"
    # A second place waits for the one device, says why, and can be given up.
    waiting = begun()
    served.until(lambda: stage("shell-2") == "waiting")
    time.sleep(1.5)
    waiting.send_signal(signal.SIGINT)
    said = waiting.communicate(timeout=60)[1]
    assert waiting.returncode == 130 and stage("shell-2") == "cancelled"
    assert "waiting, expected in about" in said
    # The person's process is killed, and with it go the command and the place.
    (command,) = children(first.pid)
    first.kill()
    first.communicate()
    served.until(lambda: stage("shell") == "done" and not Path(f"/proc/{command}").exists())
    # The pool is stopped: the place is lost, and does not come back with the pool.
    lost = begun()
    assert lost.stdout is not None and json.loads(lost.stdout.readline())["task"] == "shell-3"
    served.process.send_signal(signal.SIGINT)
    assert served.process.wait(100) == 130
    said = lost.communicate(timeout=60)[1]
    assert lost.returncode == 5 and "the pool ended the task `shell-3` before its time" in said
    served.serve()
    served.until(lambda: stage("shell-3") in ("done", "cancelled"))
    served.until(lambda: not any((tmp_path / "home" / "shells").iterdir()))


def running(*command: str) -> bool:
    """Whether a process runs this command."""
    wanted = "\0".join(command).encode() + b"\0"
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and (entry / "cmdline").read_bytes() == wanted:
                return True
    return False


def children(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


@pytest.mark.timeout(300)
def test_what_is_no_place_is_refused(served: Served, tmp_path: Path) -> None:
    for arguments, words in (
        (("--for", "soon"), "`soon` is no duration; expected one such as 2h"),
        (("--for", "0s"), "it must be from 1s to 30d"),
        (("--for", "9999999d"), "it must be from 1s to 30d"),
        (("--for", "1h", "--gpus", "0"), "--gpus is 0; it must be at least 1"),
        (("--for", "1h", "--", "no-such-program"), "there is no program `no-such-program`"),
    ):
        _, said = served.verb("shell", *arguments, cwd=tmp_path, code=2)
        assert words in said
    served.process.send_signal(signal.SIGINT)
    served.process.wait(100)
    _, said = served.verb("shell", "--for", "1h", cwd=tmp_path, code=2)
    assert "no process drives the pool" in said and "saturn serve" in said


def test_a_place_of_a_person_who_has_left_ends_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = tmp_path / "report.jsonl"
    monkeypatch.setenv("SATURN_REPORT", str(report))
    directory = tmp_path / "place"
    monkeypatch.setattr(sys, "argv", ["hold", "--output_dir", str(directory)])
    hold.main()  # also if the directory has gone
    directory.mkdir()
    (directory / hold.STEPS).write_text("100")
    (directory / hold.PERSON).touch()
    hold.main()
    ends = [json.loads(line) for line in report.read_text().splitlines()]
    assert [(end["step"], end["total_steps"]) for end in ends] == [(1, 1), (1, 1)]
    assert not directory.exists()


def test_a_lock_is_seen_while_its_file_is_open(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    assert not hold.is_locked(path)
    with hold.lock(path):
        assert hold.is_locked(path)
    assert not hold.is_locked(path)
