"""docs/tutorial.md: done from its first line to its last, as a reader does it."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from test_pages import call

pytestmark = pytest.mark.slow

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "tutorial.md").read_text()


def steps() -> list[tuple[str, str]]:
    """(language, text) of the page's blocks, in its order."""
    return re.findall(r"^```(\w+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def done(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    words = shlex.split(command)
    if words[0] == "python":
        words[0] = sys.executable
    told = call(words, folder, folder / "home")
    assert told.returncode == 0, (command, told.stderr)
    return told


@pytest.mark.timeout(600)
def test_the_tutorial_does_what_it_says(tmp_path: Path) -> None:
    # The file that a block goes to is the last one that the text before it names.
    files = iter(["models.py", "sweep.py", "search.py", "use.py"])
    told: dict[str, subprocess.CompletedProcess[str]] = {}
    for language, text in steps():
        if language == "python":
            name = next(files)
            assert name == "use.py" or f"`{name}`" in PAGE[: PAGE.index(text)]
            (tmp_path / name).write_text(text)
        elif language == "sh":
            for command in text.splitlines():
                if command in ("pip install .", "saturn doctor"):  # test_install.py, test_doctor.py
                    continue
                # Nobody presses Ctrl-C here: the second sweep is the first one.
                told[command] = done(command.replace("second-", "first-"), tmp_path)
    done("python use.py", tmp_path)

    first, search = told["python sweep.py"], told["python search.py"]
    assert "3 tasks are measured for all 6" in first.stderr
    assert "6 of 6 tasks done" in first.stderr
    best = first.stdout.splitlines()[0]
    assert best.startswith("width256-lr0.01 ") and float(best.split()[1]) > 0.6
    assert "3 trials are known from earlier runs" in search.stderr
    rows = [line.split() for line in search.stdout.splitlines()]
    assert len(rows) == 9 and rows[0][0] == "width256-lr0.01"
    ended = [row[1] for row in rows]
    assert ended[0] == "done" and ended.count("stopped") >= 5
    num_done, num_stopped = ended.count("done"), ended.count("stopped")
    last = rf"^{num_done} of 9 tasks done in .*, {num_stopped} stopped early$"
    assert re.search(last, search.stderr, re.MULTILINE), search.stderr[-2000:]
    csv = told["saturn report first-sweep --csv"].stdout
    assert csv.startswith("task,status,accuracy,") and len(csv.splitlines()) == 7
