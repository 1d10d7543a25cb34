"""One pool for several people of a machine: user ids of their own, real processes, real kills.

Each loss is compared with plain torch, bit by bit, and no step may be trained twice.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import reference
from people import Person, until
from saturn import native
from saturn.runs import joined

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("setpriv") is None,
    reason="only root can start processes of several people",
)

#: Each takes at least 8 ms in a run, so that tasks train for a while on every machine.
STEPS = 1600
NETS = """
import os
import time
import torch
from saturn import HParams, Task

def model():
    layers = torch.nn.Linear(8, 32), torch.nn.Dropout(0.1), torch.nn.Linear(32, 2)
    return torch.nn.Sequential(*layers)

def loader():
    inputs = torch.randn(500, 8, generator=torch.Generator().manual_seed(7))
    data = torch.utils.data.TensorDataset(inputs, (inputs.sum(1) > 0).long())
    return torch.utils.data.DataLoader(data, batch_size=24, shuffle=True)

def loss(outputs, labels):
    if "SATURN_ATTEMPT" in os.environ:
        time.sleep(0.008)
    return torch.nn.functional.cross_entropy(outputs, labels)

def make(steps):
    return Task(model, loader, loss, HParams(lr=0.01, batch_count=steps), techniques=["ddp"])

def at(lr):
    return Task(model, loader, loss, HParams(lr=lr, batch_count=200), techniques=["ddp"])
"""
RACE = 'function = "nets.py:at"\n[grid]\nlr = [0.1, 0.01, 1e-9]\n[run]\nstopper = "asha"\n'
SEARCH = (
    'function = "nets.py:at"\n[search]\ntrials = 3\nin_flight = 1\n'
    "[search.space]\nlr = { low = 0.01, high = 0.1 }\n"
)


class Shared:
    """A pool of one person, and a guest."""

    def __init__(self, within: Path) -> None:
        self.host, self.lena = Person(within, 0), Person(within, 1)
        self.door = self.host.home / "door"
        for person, steps in ((self.host, 2 * STEPS), (self.lena, STEPS)):
            person.write("nets.py", NETS)
            person.write("a.toml", f'function = "nets.py:make"\n[grid]\nsteps = [{steps}]\n')
        self.driver = self.host.start("serve", "--share", str(self.door), "--devices", "2")

    def kill_driver(self) -> None:
        """Kill the process that drives the pool, which `setpriv` has become."""
        self.driver.kill()
        assert self.driver.wait() == -signal.SIGKILL

    def status(self, person: Person) -> dict[str, dict[str, Any]]:
        """Each task as this person is told."""
        said = person.saturn("status", "pool", "--json")
        assert said.returncode == 0, said.stderr
        return {task["name"]: task for task in json.loads(said.stdout)["tasks"]}

    def people(self, person: Person) -> list[dict[str, Any]]:
        """The people who share the pool, as this person is told."""
        people: list[dict[str, Any]] = json.loads(person.saturn("status", "pool", "--json").stdout)[
            "people"
        ]
        return people

    def trains(self, task: str, from_step: int = 50) -> bool:
        found = self.status(self.host).get(task)
        return found is not None and found["stage"] == "running" and found["step"] > from_step

    def has_trained(self, task: str) -> bool:
        return self.status(self.host).get(task, {"step": 0})["step"] > 5

    @property
    def of_lena(self) -> Path:
        """Lena's directory of the pool."""
        return self.lena.home / "saturn" / "joined" / "pool"

    def is_over(self, *sweeps: str) -> bool:
        """Whether nothing is left to decide about these sweeps of lena's."""
        return all((self.of_lena / "steered" / name / "over").exists() for name in sweeps)

    def is_done(self, *tasks: str) -> bool:
        found = self.status(self.host)
        return all(found[task]["stage"] == "done" for task in tasks)


@pytest.fixture
def shared(tmp_path: Path) -> Iterator[Shared]:
    pool = Shared(tmp_path)
    try:
        until(lambda: (pool.door / "control.sock").exists(), "the door")
        yield pool
    finally:
        for person in (pool.host, pool.lena):
            person.end()
        pool.driver.wait()
        print(pool.host.told())


def assert_trained_as_plain_torch_does(
    person: Person,
    task: str,
    made: tuple[str, float] = ("make", STEPS),
    last: int | None = STEPS,
    *,
    may_repeat: bool = False,
) -> None:
    """By the metrics in the person's own directory.

    `made` is the function that made the task, and its argument. `last` is the step up to which the
    task must have trained; None: it may have been stopped at any. Only if its processes were killed
    may it have trained a step twice.
    """
    scope: dict[str, Any] = {}
    exec(NETS, scope)
    definition = scope[made[0]](made[1]).definition()
    metrics = person.home / "saturn" / "joined" / "pool" / "tasks" / task / "metrics.jsonl"
    rows = [json.loads(line) for line in metrics.read_text().splitlines()]
    steps = [row["step"] for row in rows]
    assert may_repeat or len(steps) == len(set(steps)), "no step is trained twice"
    expected, _ = reference.train(definition, max(steps))
    losses = [(row["step"], row["loss"]) for row in rows if "loss" in row]
    assert losses == [(step, expected[step]) for step, _ in losses] and len(losses) == len(steps)
    assert last is None or max(steps) == last


def test_people_share_a_pool_whose_driver_is_killed_while_their_tasks_train(shared: Shared) -> None:
    host, lena = shared.host, shared.lena
    hosts = host.start("submit", "a.toml", "--name", "hosts")
    for given in (("join", str(shared.door)), ("submit", "a.toml", "--name", "lenas")):
        said = lena.saturn(*given)
        assert said.returncode == 0, said.stderr
    assert hosts.wait() == 0, host.told()
    # A guest commands the guest's own tasks, and nobody but the host the pool.
    for refused in (
        ("cancel", "pool", "hosts-task"),
        ("pause", "pool", "hosts-task"),
        ("priority", "pool", "hosts-task", "-1"),
        ("close", "pool"),
        ("stop", "pool"),
    ):
        said = lena.saturn(*refused)
        assert said.returncode == 2, (refused, said.stderr)
    until(lambda: shared.trains("lenas-task") and shared.trains("hosts-task"), "both train")
    # A priority is among one's own tasks.
    assert lena.saturn("priority", "pool", "lenas-task", "1").returncode == 0

    assert "saturn status pool" in lena.saturn("runs").stderr, "a joined pool is spoken of"

    # Each can count on half of the devices.
    people = shared.people(lena)
    assert [one["share"] for one in people] == [0.5, 0.5]
    until(lambda: all(one["guaranteed_s"] for one in shared.people(host)), "guarantees are planned")
    explained = json.loads(lena.saturn("explain", "pool", "lenas-task", "--json").stdout)
    assert "guaranteed" in [reason["code"] for reason in explained["reasons"]]
    preview = lena.saturn("submit", "a.toml", "--name", "more", "--preview", "--json")
    assert json.loads(preview.stdout)["is_shared"], preview.stderr

    # Each is told of all tasks, and a guest of losses only the guest's.
    seen = shared.status(lena)
    assert seen["lenas-task"]["owner"] == f"person {lena.uid}"
    assert "owner" not in seen["hosts-task"]
    assert seen["lenas-task"]["loss"] is not None and seen["hosts-task"]["loss"] is None
    assert shared.status(host)["lenas-task"]["loss"] is not None
    for person, others in ((lena, "hosts-task"), (host, "lenas-task")):
        said = person.saturn("logs", "pool", others)
        assert (said.returncode, "who alone can read its logs" in said.stderr) == (2, True)
    # Ranks are processes of their own person, and nobody else can read what they write.
    directory = lena.home / "saturn" / "joined" / "pool"
    assert directory.resolve().stat().st_mode & 0o777 == 0o700
    assert (directory / "tasks" / "lenas-task" / "metrics.jsonl").stat().st_uid == lena.uid

    before = {name: task["attempt"] for name, task in shared.status(host).items()}
    shared.kill_driver()
    said = lena.saturn("status", "pool")
    assert said.returncode == 2
    assert "the process that drives the pool is not there" in said.stderr
    assert lena.saturn("logs", "pool", "lenas-task").returncode == 0, "the files are lena's"
    shared.driver = host.start("serve", "--shares", "root=3")
    until(lambda: "2 trained on" in host.told(), "the pool goes on")
    assert f"after: saturn join {shared.door}" in host.told()
    for name, task in shared.status(host).items():
        assert task["attempt"] in (before[name], None), "it went on as the same attempt"
    assert [one["share"] for one in shared.people(host)] == [0.5, 0.5], "root has no tasks"
    until(lambda: shared.is_done("lenas-task"), "lena's task is done")
    assert_trained_as_plain_torch_does(lena, "lenas-task")


@pytest.mark.slow
def test_a_persons_tasks_wait_while_this_persons_agent_is_not_there(shared: Shared) -> None:
    host, lena = shared.host, shared.lena
    assert lena.saturn("join", str(shared.door)).returncode == 0
    assert lena.saturn("submit", "a.toml", "--name", "own").returncode == 0
    assert host.saturn("submit", "a.toml", "--name", "hosts").returncode == 0
    until(lambda: shared.trains("own-task"), "lena's task trains")
    for agent in lena.agents():
        os.kill(agent, signal.SIGKILL)
    until(lambda: shared.status(host)["own-task"]["stage"] == "waiting", "the pool has noticed")
    explained = json.loads(lena.saturn("explain", "pool", "own-task", "--json").stdout)
    assert explained["reasons"][0]["code"] == "owner_away"
    # It is nobody's failure, and other people's tasks go on.
    until(lambda: shared.is_done("hosts-task"), "the host's task is done")
    assert lena.saturn("join", str(shared.door)).returncode == 0
    until(lambda: shared.trains("own-task"), "lena's task trains again")
    # It goes on from where it stopped, as after any stop.
    leaving = lena.agents()
    left = lena.saturn("join", "--leave")
    assert left.returncode == 0, left.stderr
    assert lena.saturn("status", "pool").returncode == 2, "lena is in no pool"
    # An agent that leaves starts nothing any more, so another takes its place.
    assert lena.saturn("join", str(shared.door)).returncode == 0
    assert set(leaving).isdisjoint(lena.agents())
    until(lambda: shared.is_done("own-task"), "lena's task is done")
    assert "failed   own" not in host.told().split("people")[-1]


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "strike", ["nothing", "kill the driver", "kill what steers", "kill the agent"]
)
def test_a_guests_stopper_and_search_decide_about_the_guests_own_tasks(
    shared: Shared, strike: str
) -> None:
    host, lena = shared.host, shared.lena
    for person in (host, lena):
        person.write("race.toml", RACE)
    lena.write("search.toml", SEARCH)
    assert lena.saturn("join", str(shared.door)).returncode == 0
    for person, given in ((host, "hosts"), (lena, "race")):
        said = person.saturn("submit", "race.toml", "--name", given)
        assert said.returncode == 0, said.stderr
    said = lena.saturn("submit", "search.toml")
    assert said.returncode == 0, said.stderr
    until(lambda: shared.has_trained("search-trial-0"), "the search trains")
    assert lena.steering(), "lena's own processes decide"
    assert lena.saturn("cancel", "pool", "hosts").returncode == 2, "it is the host's"
    if strike == "kill the driver":
        shared.kill_driver()
        until(lambda: not lena.steering(), "nobody steers without the pool")
        assert not shared.is_over("search")
        shared.driver = host.start("serve")
    elif strike == "kill what steers":
        for pid in lena.steering():
            os.kill(pid, signal.SIGKILL)
    elif strike == "kill the agent":
        for pid in lena.agents():
            os.kill(pid, signal.SIGKILL)
        assert lena.saturn("join", str(shared.door)).returncode == 0
    until(lambda: shared.is_over("race", "search"), "nothing is left to decide", 120.0)
    ended = {name: task["stage"] for name, task in shared.status(lena).items()}
    assert [ended[f"search-trial-{number}"] for number in range(3)] == ["done"] * 3
    assert ended["race-lr=0.1"] == "done" and ended["race-lr=1e-09"] in ("stopped", "done")
    is_struck = strike == "kill the agent"
    for lr, last in ((0.1, 200), (1e-9, None)):
        assert_trained_as_plain_torch_does(
            lena, f"race-lr={lr}", ("at", lr), last, may_repeat=is_struck
        )
    # What a stopper was shown and has decided is told to its own person alone.
    judged = {one["task"] for one in json.loads(native.judged(str(host.pool())))}
    assert {"race-lr=0.1", "hosts-lr=0.1"} <= judged
    of_lena = lena.judged(shared.of_lena)
    names = {one["task"] for one in of_lena}
    assert names == {name for name in judged if not name.startswith("hosts")}
    assert any("ruling" in one for one in of_lena), of_lena


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_names_of_a_guests_sweeps_are_free_in_the_next_pool_at_the_same_door(
    shared: Shared,
) -> None:
    host, lena = shared.host, shared.lena
    lena.write("race.toml", RACE)
    assert lena.saturn("join", str(shared.door)).returncode == 0
    said = lena.saturn("submit", "race.toml")
    assert said.returncode == 0, said.stderr
    said = lena.saturn("submit", "race.toml")
    assert "the pool has a sweep `race` already" in said.stderr
    assert host.saturn("close", "pool").returncode == 0
    assert shared.driver.wait(120) == 0, host.told()
    shared.driver = host.start("serve", "--share", str(shared.door), "--devices", "2")
    until(lambda: lena.saturn("status", "pool").returncode == 0, "the next pool")
    said = lena.saturn("submit", "race.toml")
    assert said.returncode == 0, said.stderr
    until(lambda: shared.is_over("race"), "the next pool's stopper decides")
    assert shared.is_done("race-lr=0.1")
    (earlier,) = shared.of_lena.resolve().glob("steered-*")
    assert (earlier / "race" / "tuner.pkl").is_file(), "what the first pool's sweep left is kept"


def test_what_is_no_door_is_refused(tmp_path: Path) -> None:
    lena, tomas = Person(tmp_path, 1), Person(tmp_path, 2)
    said = lena.saturn("join", str(tmp_path / "nowhere"))
    assert (said.returncode, "is not the door of a pool" in said.stderr) == (2, True)
    said = lena.saturn("join", str(tomas.home))
    assert (said.returncode, "saturn serve --share" in said.stderr) == (2, True)
    said = lena.saturn("join", "--leave")
    assert (said.returncode, "you have not joined a pool" in said.stderr) == (2, True)
    # A door in which a third person may write could lead to a pool of that person.
    door = tomas.home / "door"
    (door / "agents").mkdir(parents=True)
    os.chown(door, tomas.uid, tomas.uid)
    door.chmod(0o777)
    said = lena.saturn("join", str(door))
    assert (said.returncode, "others than its owner may write" in said.stderr) == (5, True)
    until(lambda: not lena.agents(), "no agent stays")


def test_whoever_joins_again_waits_for_the_agent_that_leaves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tomas = Person(tmp_path, 2)
    door = tomas.home / "door"
    (door / "agents").mkdir(parents=True)
    os.chown(door, tomas.uid, tomas.uid)
    monkeypatch.setenv("SATURN_HOME", str(tmp_path / "own"))
    directory = tmp_path / "own" / "joined" / "_".join(door.parts[1:])
    directory.mkdir(parents=True)
    (directory / "leave").touch()
    told: list[str] = []
    others: list[bool] = []
    with (directory / "agent.lock").open("wb") as agent:
        fcntl.flock(agent, fcntl.LOCK_EX)

        def tell(line: str) -> None:
            told.append(line)
            fcntl.flock(agent, fcntl.LOCK_UN)

        monkeypatch.setattr(
            joined, "_start_agent", lambda *_: others.append(joined._has_agent(directory))
        )
        joined.join(door, tell)
    assert len(told) == 1 and "still stop at checkpoints" in told[0]
    assert others == [False], "an agent is started once the other has ended"
    assert not (directory / "leave").exists()


def test_a_share_of_nobody_is_refused(tmp_path: Path) -> None:
    tomas = Person(tmp_path, 2)
    door = tomas.home / "door"
    said = tomas.saturn("serve", "--share", str(door), "--shares", "no-such-person=2")
    assert (said.returncode, "neither the login name of a person" in said.stderr) == (2, True)


@pytest.mark.slow
def test_a_person_holds_no_more_devices_than_the_quota(shared: Shared) -> None:
    host, lena = shared.host, shared.lena
    host.saturn("stop", "pool")
    shared.driver.wait(timeout=60)
    shared.driver = host.start("serve", "--quotas", f"{lena.uid}=1")
    until(lambda: "devices at once at most" in host.told(), "the quota is told")
    assert lena.saturn("join", str(shared.door)).returncode == 0
    lena.write("two.toml", f'function = "nets.py:make"\n[grid]\nsteps = [{STEPS}, {STEPS + 1}]\n')
    assert lena.saturn("submit", "two.toml", "--name", "own").returncode == 0
    until(lambda: len(shared.status(host)) == 2, "both are in the pool")
    tasks = list(shared.status(host))
    until(lambda: any(shared.trains(task, 5) for task in tasks), "one of lena's tasks trains")
    stages = [shared.status(host)[task]["stage"] for task in tasks]
    waiting = tasks[stages.index("waiting")]
    said = json.loads(lena.saturn("explain", "pool", waiting, "--json").stdout)
    assert "waits_quota" in [reason["code"] for reason in said["reasons"]], said
    # The other device is the host's, who has no quota.
    assert host.saturn("submit", "a.toml", "--name", "hosts").returncode == 0
    until(lambda: shared.trains("hosts-task"), "the host's task trains beside it")
    of_lena = next(one for one in shared.people(host) if one["uid"] == lena.uid)
    assert (of_lena["devices"], of_lena["quota"]) == (1, 1)
    until(lambda: shared.is_done(*tasks), "lena's tasks are done")
    for task, steps in zip(tasks, (STEPS, STEPS + 1), strict=True):
        assert_trained_as_plain_torch_does(lena, task, ("make", steps), steps)
