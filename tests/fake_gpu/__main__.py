"""Runs a program, with all that it starts, on fake GPUs.

PYTHONPATH=tests python -m fake_gpu [--devices 4] [--bytes 1073741824] -- COMMAND …
"""

from __future__ import annotations

import argparse
import os
import sys

from fake_gpu.environment import environment
from fake_gpu.requirements import why_not


def main() -> None:
    """The program."""
    parser = argparse.ArgumentParser(prog="python -m fake_gpu")
    parser.add_argument("--devices", type=int, default=4, help="how many GPUs the machine has")
    parser.add_argument("--bytes", type=int, default=1 << 30, help="what each of them holds")
    parser.add_argument("command", nargs="+")
    given = parser.parse_args()
    if (reason := why_not()) is not None:
        sys.exit(reason)
    os.environ.update(environment(devices=given.devices, device_bytes=given.bytes))
    os.execvp(given.command[0], given.command)


if __name__ == "__main__":
    main()
