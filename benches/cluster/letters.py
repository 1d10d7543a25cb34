"""What it costs to drive a hundred agents: a run on stand-in agents, whose letters Ray carries.

Real: the driver (engine, journal, launcher), the threads that carry letters, Ray's calls between
processes, with its token. Stand-ins: agents and ranks (`stand_ins.py`), the shared storage.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray
import saturn
import torch
from saturn import HParams, Task, native
from saturn.cluster.agent import About
from saturn.cluster.carrier import Carrier
from saturn.cluster.seating import Seat
from saturn.cluster.wish import ClusterWish
from stand_ins import Handle, Host

#: Seconds between the last gang's start and the measurement.
_SETTLE_S = 5.0
#: By when all gangs train.
_MOST_S = 300.0


class StandInSeat(Seat):
    """A seat whose agent ends with its host."""

    def free(self, *, has_head: bool = True) -> None:
        """Nothing is its own."""


@dataclass
class Counted:
    """An exchange that counts the letters that it was given, and those that it refused."""

    exchange: native.Exchange
    num_letters: int = 0
    num_refused: int = 0
    num_deliveries: int = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.exchange, name)

    def deliver(self, agent: int, letters: list[str]) -> int:
        """Count, and hand on."""
        self.num_letters += len(letters)
        self.num_deliveries += bool(letters)
        try:
            return self.exchange.deliver(agent, letters)
        except saturn.SaturnError:
            self.num_refused += 1
            raise


class StandInCluster:
    """What `saturn.cluster.cluster.Cluster` is to a run."""

    address = "auto"

    def __init__(self, hosts: list[Any], num_agents: int, num_ranks: int) -> None:
        self._node_id = ray.get_runtime_context().get_node_id()
        self._seats = []
        for number in range(num_agents):
            node = {"name": f"n{number:03}", "gpus": num_ranks, "type": "stand-in"}
            held = {"node": node, "device_memory_bytes": None, "text": "a stand-in"}
            description = {
                "kind": "cpu",
                "nodes": [held],
                "host_memory_bytes": None,
                "warnings": [],
            }
            about = About(
                pid=0, versions={}, asks_for_token=True, description=json.dumps(description)
            )
            handle = Handle(hosts[number % len(hosts)], number // len(hosts))
            seat = StandInSeat(
                node_id=self._node_id, name=node["name"], actor=handle, group=None, about=about
            )
            self._seats.append(seat)
        self.counted: Counted | None = None
        self._carrier: Carrier | None = None

    def serve(self, run_dir: Path, press: Callable[[], None]) -> Any:
        """Carry letters as for a real cluster."""
        wish = ClusterWish(address="auto", nodes=len(self._seats), gpus_per_node=None)
        exchange = native.exchange()
        self.counted = Counted(exchange)
        self._carrier = Carrier(self.counted, wish, "CPU", run_dir, press)
        for seat in self._seats:
            self._carrier.join(seat)
        self._carrier.start()
        return exchange

    @property
    def num_seated(self) -> int:
        """Agents that the carrier has not given up."""
        return 0 if self._carrier is None else len(self._carrier.seats)

    def close(self) -> None:
        """Stop carrying."""
        if self._carrier is not None:
            self._carrier.stop()
            self._carrier = None


def _get_model() -> torch.nn.Module:
    return torch.nn.Linear(1, 1)


def _get_dataloader() -> Any:
    data = torch.utils.data.TensorDataset(torch.zeros(64, 1), torch.zeros(64, 1))
    return torch.utils.data.DataLoader(data, batch_size=8)


def _task(number: int, num_ranks: int) -> Task:
    hparams = HParams(lr=1e-3 * (1 + number), batch_count=10_000_000)
    loss = torch.nn.functional.mse_loss
    return Task(
        *(_get_model, _get_dataloader, loss, hparams),
        name=f"t{number:03}",
        gpu_range=[num_ranks],
        techniques=["ddp"],
    )


def _threads_s() -> dict[str, float]:
    """Seconds of the processor that this process's threads have used, by name."""
    tick = os.sysconf("SC_CLK_TCK")
    found: dict[str, float] = {}
    for thread in Path("/proc/self/task").iterdir():
        name, _, rest = (thread / "stat").read_text().partition("(")[2].rpartition(")")
        fields = rest.split()
        name = name.rstrip("0123456789-")
        found[name] = found.get(name, 0.0) + (int(fields[11]) + int(fields[12])) / tick
    return found


def measure(
    *, num_agents: int, num_ranks: int, reports_a_second: float, seconds: float
) -> dict[str, Any]:
    """Drive them, and say what that took."""
    ray.init("local", num_cpus=8, include_dashboard=False, log_to_driver=False)
    num_hosts = min(num_agents, 5)
    a_host = -(-num_agents // num_hosts)
    host = ray.remote(concurrency_groups={"orders": 1, "news": a_host})(Host)
    hosts = [host.options(num_cpus=0).remote(a_host, reports_a_second) for _ in range(num_hosts)]
    ray.get([one.num_reports.remote() for one in hosts])
    cluster = StandInCluster(hosts, num_agents, num_ranks)
    import saturn.runs.run as runs

    runs.open_cluster = lambda wish, *, run: cluster
    with tempfile.TemporaryDirectory() as directory:
        run = saturn.start(
            [_task(number, num_ranks) for number in range(num_agents)],
            cluster="auto",
            runs_dir=directory,
            log=False,
        )
        began = time.monotonic()
        while sum((task["step"] or 0) > 0 for task in run.status()["tasks"]) < num_agents:
            if time.monotonic() - began > _MOST_S or run.is_over:
                sys.exit(f"not all train:\n{run.status()}")
            time.sleep(0.5)
        time.sleep(_SETTLE_S)
        counted = cluster.counted
        assert counted is not None
        before = _state(counted, hosts)
        time.sleep(seconds)
        after = _state(counted, hosts)
        num_seated = cluster.num_seated
        run.stop(at_once=True)
        closer = threading.Thread(target=_await_end, args=(run,), daemon=True)
        closer.start()
        closer.join(60.0)
    threads = {
        name: (after["threads"][name] - before["threads"].get(name, 0.0))
        for name in after["threads"]
    }
    wall_s = after["at"] - before["at"]
    return {
        "agents": num_agents,
        "hosts": num_hosts,
        "ranks": num_agents * num_ranks,
        "seconds": wall_s,
        "share": (after["cpu_s"] - before["cpu_s"]) / wall_s,
        "threads": {name: used / wall_s for name, used in threads.items() if used / wall_s > 0.005},
        "reports_a_second": (after["reports"] - before["reports"]) / wall_s,
        "letters_a_second": (after["letters"] - before["letters"]) / wall_s,
        "deliveries_a_second": (after["deliveries"] - before["deliveries"]) / wall_s,
        "num_refused": counted.num_refused,
        "num_lost": num_agents - num_seated,
    }


def _await_end(run: saturn.StartedRun) -> None:
    with suppress(saturn.RunInterrupted):
        run.wait()


def _state(counted: Counted, hosts: list[Any]) -> dict[str, Any]:
    reports = sum(ray.get([one.num_reports.remote() for one in hosts]))
    return {
        "at": time.monotonic(),
        "cpu_s": time.process_time(),
        "threads": _threads_s(),
        "reports": reports,
        "letters": counted.num_letters,
        "deliveries": counted.num_deliveries,
    }


if __name__ == "__main__":
    asked = json.loads(sys.argv[1])
    print(json.dumps(measure(**asked)))
