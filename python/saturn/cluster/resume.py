"""`saturn resume RUN --cluster ADDRESS`: what the `saturn` program becomes to go on there.

Exit codes are those of `saturn resume`.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
from pathlib import Path

from saturn import native, stopping
from saturn.cluster import wish
from saturn.cluster.opening import open_cluster
from saturn.cluster.wish import ClusterWish
from saturn.errors import InvalidInput, SaturnError


def main() -> int:
    """Go on with the run; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m saturn.cluster.resume")
    parser.add_argument("run", type=Path)
    parser.add_argument("--cluster", required=True)
    parser.add_argument("--nodes", type=int)
    parser.add_argument("--gpus-per-node", type=int)
    parser.add_argument("--network-interface")
    parser.add_argument("--allow-other-hardware", action="store_true")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    try:
        checked = wish.checked(
            cluster=arguments.cluster,
            nodes=arguments.nodes,
            gpus_per_node=arguments.gpus_per_node,
            devices=None,
            network_interface=arguments.network_interface,
        )
        assert checked is not None  # a cluster is required
        report = _resume(arguments.run, checked, may_differ=arguments.allow_other_hardware)
    except InvalidInput as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    except SaturnError as error:
        sys.stderr.write(f"error: {error}\n")
        return 5
    if arguments.json:
        print(report)
    totals = json.loads(report)
    if totals["status"] == "interrupted":
        return 130
    return 1 if any(task["status"] == "failed" for task in totals["tasks"]) else 0


def _resume(run_dir: Path, checked: ClusterWish, *, may_differ: bool) -> str:
    interrupts, over = native.interrupts(), threading.Event()
    done: list[str] = []
    raised: list[BaseException] = []
    cluster = open_cluster(checked, run=str(run_dir))

    def drive() -> None:
        try:
            done.append(
                native.resume(
                    run_dir,
                    _write,
                    is_terminal=sys.stderr.isatty(),
                    interrupts=interrupts,
                    cluster=cluster.serve(run_dir, interrupts.press),
                    allow_other_hardware=may_differ,
                )
            )
        except BaseException as error:
            raised.append(error)
        finally:
            over.set()

    try:
        threading.Thread(target=drive, name="saturn resume", daemon=True).start()
        stopping.wait(over, interrupts.press, None)
    finally:
        cluster.close()
    if raised:
        raise raised[0]
    return done[0]


def _write(text: str) -> None:
    sys.stderr.write(text)
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())
