"""Run a command while other programs keep every core busy: `busy.py COMMAND …`."""

from __future__ import annotations

import os
import subprocess
import sys

SPIN = "while True: pass"


def main() -> int:
    """The program; ends with the command's exit code."""
    spinning = [subprocess.Popen([sys.executable, "-c", SPIN]) for _ in range(os.cpu_count() or 1)]
    try:
        return subprocess.run(sys.argv[1:], check=False).returncode
    finally:
        for process in spinning:
            process.kill()
            process.wait()


if __name__ == "__main__":
    sys.exit(main())
