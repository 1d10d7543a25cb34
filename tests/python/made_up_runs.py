"""Pages and records of made-up runs, written by saturn-view's example `report_pages`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def write(directory: Path, *tasks: int) -> None:
    """Write them into `directory`; `tasks` is how many the largest run has, 1,000 by default.

    The whole workspace is named to cargo: with the features of one crate, its dependencies would be
    compiled a second time, which takes minutes.
    """
    build = ["cargo", "build", "--quiet", "--release", "--workspace", "--example", "report_pages"]
    setup = [sys.executable, ROOT / "scripts" / "setup.py", "--run"]
    subprocess.run([*setup, *build], cwd=ROOT, check=True)
    program = ROOT / "target" / "release" / "examples" / "report_pages"
    subprocess.run([program, directory, *map(str, tasks)], check=True)
