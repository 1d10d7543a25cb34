"""The process that a run's ranks belong to if they outlive the run's driver.

The runtime starts it with one line on standard input, and reads one line of its output: `"ready"`,
or `{"failed": reason}`. The rest is Rust (`saturn-runtime`: `outliving`). This module makes the
process independent of the driver: it has a session of its own, so that a closing terminal doesn't
reach it, and the driver is not its parent.

The module imports only what it needs, so that it starts at once.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from saturn import native
from saturn.errors import SaturnError


def main() -> int:
    """The program: `python -m saturn.runs.agent`."""
    setup = sys.stdin.readline()
    if os.fork():
        os._exit(0)
    os.setsid()
    # Whoever inherits a lock holds the devices until it ends, so no rank may.
    for descriptor in json.loads(setup)["locks"]:
        os.set_inheritable(descriptor, False)
    answers = os.dup(1)
    os.set_inheritable(answers, False)
    os.dup2(2, 1)

    def answer(said: Any) -> None:
        os.write(answers, (json.dumps(said) + "\n").encode())
        os.close(answers)

    try:
        native.run_agent(setup, lambda: answer("ready"))
    except SaturnError as error:
        answer({"failed": str(error)})
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
