"""The process that a run's ranks belong to if they outlive the run's driver.

It is started with one line on standard input, and says one line on its output: `"ready"`, or
`{"failed": reason}`. The rest is Rust (`saturn-runtime`: `outliving`). This module makes the
process independent of the program that starts it: it has a session of its own, so that a closing
terminal doesn't reach it, and that program is not its parent.

The runtime starts the agent of a run of this person. The line for an agent in another person's pool
(`joined`) has a `door`. That agent also answers `"there"`, if this person has one there already.

The module imports only what it needs, so that it starts at once. What keeps steered sweeps is
imported later, in a thread of its own.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path
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
    for descriptor in json.loads(setup).get("locks", ()):
        os.set_inheritable(descriptor, False)
    answers = os.dup(1)
    os.set_inheritable(answers, False)
    os.dup2(2, 1)

    def answer(said: Any) -> None:
        os.write(answers, (json.dumps(said) + "\n").encode())
        os.close(answers)

    def is_ready_in(directory: Path) -> None:
        # From now on, this person may submit steered sweeps.
        (directory / "steered").mkdir(mode=0o700, exist_ok=True)
        answer("ready")
        threading.Thread(target=_supervise, args=(directory,), daemon=True).start()

    try:
        said = json.loads(setup)
        if "door" in said:
            if not native.run_guest_agent(setup, lambda: is_ready_in(Path(said["directory"]))):
                answer("there")
        else:
            native.run_agent(setup, lambda: answer("ready"))
    except SaturnError as error:
        answer({"failed": str(error)})
        return 1
    return 0


def _supervise(directory: Path) -> None:
    """Keep a process for each of this person's steered sweeps in another person's pool."""
    from saturn.tuning.supervise import supervise_joined

    supervise_joined(directory)


if __name__ == "__main__":
    sys.exit(main())
