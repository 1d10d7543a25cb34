"""`saturn web`: a program asks and steers a run by HTTP, and a browser shows it."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import http.client
import http.server
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import browser
import pytest
from served import Served
from sweep_run import TASKS, Run

SATURN = Path(sys.executable).with_name("saturn")
#: Tasks that train for minutes, unless they are cancelled.
MODELS = """
import time
import torch
from saturn import HParams, Task

class Slow(torch.nn.Linear):
    def forward(self, inputs):
        time.sleep(0.02)
        return super().forward(inputs)

def model():
    return Slow(8, 2)

def loader():
    inputs = torch.randn(64, 8, generator=torch.Generator().manual_seed(1))
    data = torch.utils.data.TensorDataset(inputs, (inputs.sum(1) > 0).long())
    return torch.utils.data.DataLoader(data, batch_size=16, shuffle=True)

def make(lr):
    loss = torch.nn.functional.cross_entropy
    return Task(model, loader, loss, HParams(lr=lr, batch_count=6000))
"""
SWEEP = 'function = "nets.py:make"\n[grid]\nlr = [0.1, 0.01]\n'


class Web:
    """`saturn web` in a directory, and a client of it."""

    def __init__(self, directory: Path, *arguments: str, environment: Any = None) -> None:
        self.process = subprocess.Popen(
            [SATURN, "web", *arguments, "--port", "0", "--json"],
            cwd=directory,
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
            # Whoever starts the tests in the background leaves Ctrl-C ignored.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        assert self.process.stdout is not None
        self.said: dict[str, Any] = json.loads(self.process.stdout.readline())
        self.head = {"Authorization": f"Bearer {self.said['token']}", "Connection": "close"}

    def open(self, method: str, path: str, body: Any = None, **more: str) -> Any:
        """The response to a request on a connection of its own."""
        connection = http.client.HTTPConnection("127.0.0.1", self.said["port"], timeout=60)
        text = None if body is None else json.dumps(body)
        connection.request(method, path, text, {**self.head, **more})
        return connection.getresponse()

    def get(self, path: str, status: int = 200) -> Any:
        with self.open("GET", path) as response:
            assert response.status == status, response.read()
            return json.loads(response.read())

    def command(self, run: str, key: str, **command: Any) -> Any:
        more = {"Content-Type": "application/json", "X-Saturn": "1", "Idempotency-Key": key}
        with self.open("POST", f"/api/v1/runs/{run}/commands", command, **more) as response:
            return json.loads(response.read())

    def events(self, run: str, after: int, until: str) -> list[dict[str, Any]]:
        """The events after a number, up to one of the kind `until`; the connection is then cut."""
        found: list[dict[str, Any]] = []
        path = f"/api/v1/runs/{run}/events"
        with self.open("GET", path, **{"Last-Event-ID": str(after)}) as stream:
            name = ""
            while not found or found[-1]["kind"] != until:
                line = stream.readline().decode().rstrip("\n")
                if line.startswith("event: "):
                    name = line.removeprefix("event: ")
                elif line.startswith("data: ") and name == "":
                    found.append(json.loads(line.removeprefix("data: ")))
                elif line == "":
                    name = ""
        return found

    def stage(self, run: str, task: str) -> str:
        return str(self.get(f"/api/v1/runs/{run}/tasks/{task}")["task"]["stage"])

    def running(self, run: str) -> list[str]:
        """The tasks that train, once there is one."""
        deadline = time.monotonic() + 120
        while True:
            tasks = self.get(f"/api/v1/runs/{run}/tasks?stage=running&fields=name")["tasks"]
            if tasks:
                return [task["name"] for task in tasks]
            assert time.monotonic() < deadline
            time.sleep(0.1)

    def until(self, run: str, task: str, stage: str) -> None:
        deadline = time.monotonic() + 120
        while (found := self.stage(run, task)) != stage:
            assert time.monotonic() < deadline, found
            time.sleep(0.1)


@contextlib.contextmanager
def web(directory: Path, *arguments: str, environment: Any = None) -> Iterator[Web]:
    """Serves the runs of a directory for a while."""
    served = Web(directory, *arguments, environment=environment)
    try:
        yield served
    finally:
        served.process.send_signal(signal.SIGINT)
        assert served.process.wait(20) == 0
        assert served.process.stdout is not None
        served.process.stdout.close()


def test_only_who_has_the_token_is_answered(tmp_path: Path) -> None:
    (tmp_path / "none").mkdir()
    with web(tmp_path, "none") as served:
        assert served.get("/api/v1/runs") == {"version": 1, "runs": []}
        assert served.get("/api/v1/runs/x", 404)["code"] == "no_such_run"
        assert "/api/v1/runs/{run}/events" in served.get("/api/v1/openapi.json")["paths"]
        served.head = {"Connection": "close"}
        assert served.get("/api/v1/runs", 401)["code"] == "not_logged_in"
        served.head |= {"Authorization": f"Bearer {'0' * 64}"}
        assert served.get("/api/v1/runs", 401)["code"] == "not_logged_in"
        port = str(served.said["port"])
        command = [SATURN, "web", "none", "--port", port]
        taken = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
        assert taken.returncode == 2 and "saturn web --port 0" in taken.stderr


def test_what_is_no_run_is_refused_in_words(tmp_path: Path) -> None:
    done = subprocess.run([SATURN, "web", "x"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 2 and "no run at `x`" in done.stderr and done.stdout == ""


def test_addresses_that_are_not_http_are_refused(tmp_path: Path) -> None:
    (tmp_path / "none").mkdir()
    command = [SATURN, "web", "none", "--port", "0", "--webhook", "ftp://ada/a-secret"]
    refused = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert refused.returncode == 2 and "does not begin with http" in refused.stderr
    assert "a-secret" not in refused.stderr


class Receiver:
    """A receiver of webhooks that fails at first, and what it has taken."""

    def __init__(self, secret: bytes, num_failures: int) -> None:
        self.taken: list[dict[str, Any]] = []
        self.num_failures = num_failures
        receiver = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                code = "sha256=" + hmac.new(secret, body, hashlib.sha256).hexdigest()
                is_right = self.headers["X-Saturn-Signature-256"] == code
                receiver.num_failures -= 1
                if is_taken := is_right and receiver.num_failures < 0:
                    receiver.taken.append(json.loads(body))
                self.send_response(204 if is_taken else 500)
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.server.server_port}/hook"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


@pytest.mark.slow
def test_a_receiver_is_told_of_a_run_although_the_server_is_killed(tmp_path: Path) -> None:
    receiver = Receiver(b"a secret", num_failures=2)
    (tmp_path / "secret").write_text("a secret\n")
    (tmp_path / "address").write_text(receiver.address + "\n")
    hooks = ("saturn_runs", "--webhook", "@address", "--webhook-secret", "secret")
    (tmp_path / "saturn_runs").mkdir()
    environment = {**os.environ, "SATURN_HOME": str(tmp_path / "home")}
    first = Web(tmp_path, *hooks, environment=environment)
    run = Run(tmp_path)
    run.wait_for_step(300)
    first.process.kill()
    first.process.wait()
    assert first.process.stdout is not None
    first.process.stdout.close()
    assert run.wait() == 0, run.stderr.read_text()
    with web(tmp_path, *hooks, environment=environment):
        deadline = time.monotonic() + 60
        while not any(one["task"] is None for one in receiver.taken):
            assert time.monotonic() < deadline, receiver.taken
            time.sleep(0.05)
    done = [one["task"] for one in receiver.taken if one["what"] == "done"]
    assert sorted(done[:-1]) == sorted(TASKS) and done[-1] is None
    assert receiver.taken[-1]["why"] == "2 tasks: 2 done"
    ids = [one["id"] for one in receiver.taken]
    assert len(ids) == len(set(ids))
    receiver.server.shutdown()
    receiver.server.server_close()


@pytest.fixture
def pool(tmp_path: Path) -> Iterator[tuple[Served, Path]]:
    """A pool with two tasks, of which one trains at a time."""
    (tmp_path / "sweep").mkdir()
    (tmp_path / "sweep" / "nets.py").write_text(MODELS)
    (tmp_path / "sweep" / "sweep.toml").write_text(SWEEP)
    served = Served(tmp_path / "home")
    try:
        served.verb("submit", "sweep.toml", "--name", "s", cwd=tmp_path / "sweep")
        yield served, tmp_path
    finally:
        served.process.kill()
        served.process.wait()


@pytest.mark.slow
def test_a_program_follows_and_steers_a_pool(pool: tuple[Served, Path]) -> None:
    served, directory = pool
    with web(directory, environment=served.environment) as face:
        [run] = face.get("/api/v1/runs")["runs"]
        assert (run["name"], run["pool"], run["tasks"]) == ("pool", True, 2)
        found = face.events("pool", 0, "planned")
        [first] = face.running("pool")
        tasks = face.get("/api/v1/runs/pool/tasks?fields=name")["tasks"]
        [other] = [task["name"] for task in tasks if task["name"] != first]
        assert face.command("pool", "a", command="pause", task=first)["ok"]
        # The connection was cut meanwhile: nothing is missed.
        found += face.events("pool", found[-1]["event"], "paused")
        assert [event["event"] for event in found] == list(range(1, len(found) + 1))
        assert found[-1]["task"] == first and first in found[-1]["text"]
        face.until("pool", first, "paused")
        face.until("pool", other, "running")
        explained = face.get(f"/api/v1/runs/pool/tasks/{first}")["explanation"]
        assert explained["reasons"][0]["code"] == "paused"
        # A command that is sent again with its key is not carried out again.
        assert face.command("pool", "b", command="unpause", task=first)["ok"]
        assert face.command("pool", "b", command="unpause", task=first)["ok"]
        again = face.command("pool", "c", command="unpause", task=first)
        assert again["code"] == "not_paused" and not again["ok"]
        refused = face.command("pool", "d", command="cancel", task="nobody")
        assert refused["code"] == "unknown_task"
        for task in (first, other):
            assert face.command("pool", task, command="cancel", task=task)["ok"]
        assert face.command("pool", "e", command="close")["ok"]
        assert served.process.wait(60) == 0
        [run] = face.get("/api/v1/runs")["runs"]
        assert (run["state"], run["cancelled"]) == ("complete", 2)
        assert face.command("pool", "f", command="close")["code"] in ("not_driven", "run_ended")


#: What runs over the right edge of the window.
OVER = "document.documentElement.scrollWidth - innerWidth"


@pytest.mark.slow
@pytest.mark.skipif(browser.found() is None, reason=browser.MISSING)
def test_a_browser_shows_a_pool_live_and_pauses_a_task(pool: tuple[Served, Path]) -> None:
    served, directory = pool
    with web(directory, environment=served.environment) as face, browser.page() as page:
        page.visit(face.said["url"])
        page.until("location.pathname === '/' && location.hash === ''")
        page.until("document.querySelector('h1')?.textContent === 'Runs'")
        for path in ("/", "/runs/pool"):
            for width, look in ((1280, "light"), (400, "dark")):
                page.visit(face.said["address"] + path, width=width, look=look)
                page.until("document.getElementById('live').className === 'on'")
                assert page.evaluate(OVER) <= 0, (path, width)
        page.until("document.querySelectorAll('.gantt .bar').length > 0")
        page.until("document.querySelectorAll('#running tbody tr').length === 1")
        steps = "document.querySelector('#running tbody tr td:nth-child(4)').innerText"
        before = page.evaluate(steps)
        page.until(f"{steps} !== {json.dumps(before)}")
        page.evaluate("document.querySelector('#running a').click()")
        page.until("document.querySelector('[data-command*=pause]') !== null")
        page.evaluate("document.querySelector('[data-command*=pause]').click()")
        page.until("document.querySelector('#said').textContent === 'done: Pause'")
        page.until("document.querySelector('#head .badge').textContent === 'paused'")
        page.evaluate("document.getElementById('leave').click()")
        page.until("location.pathname === '/login'")
        page.visit(face.said["address"] + "/runs/pool")
        assert page.evaluate("location.pathname") == "/login"
