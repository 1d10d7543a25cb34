"""What the face hands to a run in progress, and what it makes of the answers, without a driver."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import saturn
from faces import make_task
from saturn import HParams, native
from saturn.runs import stopping
from saturn.stoppers import ASHA
from saturn.tuning import keeping
from saturn.tuning.tuner import Stopping
from test_run import report_of
from warm_parent import PYTHON_DIR


class FakeDriver:
    """Stands in for the compiled part: a run that goes on until it is told to end."""

    def __init__(self) -> None:
        self.request: dict[str, Any] = {}
        self.commands: list[dict[str, Any]] = []
        self.refusal: dict[str, str] | None = None
        self.presses = 0
        self.end = threading.Event()
        self.ended = threading.Event()

    def run(self, request: str, write: Any, *, interrupts: Any, **more: Any) -> str:
        self.request = json.loads(request)
        (Path(self.request["run_dir"]) / "journal.db").touch()
        assert interrupts is self
        assert self.end.wait(200)
        self.ended.set()
        tasks = [*self.request["tasks"], *self.submitted()]
        status = "interrupted" if self.presses else "complete"
        return json.dumps(report_of({"tasks": tasks}, status=status))

    def submitted(self) -> list[dict[str, Any]]:
        commands = [each for each in self.commands if each["command"] == "submit"]
        return [task for command in commands for task in command["tasks"]]

    def press(self) -> None:
        self.presses += 1
        self.end.set()

    def is_driven(self, run_dir: Path) -> bool:
        return bool(self.request) and not self.ended.is_set()

    def ask(self, run_dir: Path, line: str) -> str | None:
        if not self.is_driven(run_dir):
            return None
        if self.refusal is not None:
            return json.dumps({"ok": False, **self.refusal})
        self.commands.append(json.loads(line))
        if self.commands[-1]["command"] == "close":
            self.end.set()
        return json.dumps({"ok": True})

    def report(self, run_dir: Path) -> str:
        return json.dumps(report_of({"tasks": self.request["tasks"]}))


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[FakeDriver]:
    fake = FakeDriver()
    for name in ("run", "is_driven", "ask", "report"):
        monkeypatch.setattr(native, name, getattr(fake, name))
    monkeypatch.setattr(native, "interrupts", lambda: fake)
    monkeypatch.chdir(tmp_path)
    yield fake
    fake.end.set()


def test_start_returns_at_once_and_wait_returns_what_was_realised(driver: FakeDriver) -> None:
    first, last = make_task("a"), make_task("b", priority=3, after="a", deadline=60, release=5)
    run = saturn.start([first, last], log=False)
    assert not run.is_over
    told = driver.request["tasks"]
    assert driver.request["keep_open"] is False
    assert [task["after"] for task in told] == [[], ["a"]]
    assert [task["wishes"] for task in told] == [
        {"priority": 0, "deadline_s": None, "release_s": 0.0},
        {"priority": 3, "deadline_s": 60.0, "release_s": 5.0},
    ]
    with pytest.raises(TimeoutError, match="it goes on"):
        run.wait(timeout=0.01)
    driver.end.set()
    result = run.wait()
    assert [task.name for task in result.tasks] == ["a", "b"] and run.is_over
    assert last.selected_strategy is not None
    assert run.wait() == result, "it may be waited for twice"


def test_tasks_are_submitted_with_what_the_call_says_of_their_time(driver: FakeDriver) -> None:
    base = make_task("base")
    with saturn.start([], keep_open=True, log=False, name="it") as run:
        run.submit(base)
        late = [make_task("x", priority=1, deadline=9), make_task("y z", release=2)]
        run.submit(late, after=base, priority=7)
    submitted = driver.submitted()
    assert [task["name"] for task in submitted] == ["base", "x", "y z"]
    assert [task["dir"] for task in submitted] == ["tasks/base", "tasks/x", "tasks/_task-2"]
    assert [task["after"] for task in submitted] == [[], ["base"], ["base"]]
    assert [task["wishes"]["priority"] for task in submitted] == [0, 7, 7]
    assert [task["wishes"]["deadline_s"] for task in submitted] == [None, 9.0, None]
    assert [task["wishes"]["release_s"] for task in submitted] == [0.0, 0.0, 2.0]
    assert all((run.run_dir / task["dir"] / "task.pkl").is_file() for task in submitted)
    assert driver.commands[-1] == {"version": 1, "command": "close"}
    # What was found is handed to a task that came later, too.
    assert base.selected_strategy is not None and base.selected_strategy.technique == "ddp"


def test_what_is_known_of_a_task_need_not_be_measured_again(driver: FakeDriver) -> None:
    driver.end.set()
    task = make_task("a")
    saturn.search([task], log=False)
    driver.end.clear()
    driver.ended.clear()
    run = saturn.start([], keep_open=True, log=False, techniques=["ddp"])
    run.submit(task)
    # What is handed over may be another process's library: then everything is measured.
    saturn.attach(run.run_dir).submit(make_task("b"))
    assert [len(task["measured"]) for task in driver.submitted()] == [1, 0]
    driver.end.set()
    run.wait()


def test_tasks_from_another_process_are_judged_by_the_stoppers_metric(driver: FakeDriver) -> None:
    run = saturn.start([make_task("a")], log=False)
    # Written as `orchestrate` does; no stopper is at work here.
    keeping.write(run.run_dir, Stopping([ASHA(metric="accuracy", mode="max")]))
    saturn.attach(run.run_dir).submit(make_task("b"))
    assert [task["goal"] for task in driver.submitted()] == [{"metric": "accuracy", "mode": "max"}]
    driver.end.set()
    run.wait()


COMMANDS: list[tuple[Callable[[saturn.Run], None], dict[str, Any]]] = [
    (lambda run: run.cancel("a"), {"command": "cancel", "task": "a"}),
    (lambda run: run.pause("a"), {"command": "pause", "task": "a"}),
    (lambda run: run.unpause("a"), {"command": "unpause", "task": "a"}),
    (lambda run: run.priority("a", -2), {"command": "wish", "task": "a", "priority": -2}),
    (lambda run: run.deadline("a", 5), {"command": "wish", "task": "a", "deadline_s": 5.0}),
    (lambda run: run.deadline("a", None), {"command": "wish", "task": "a", "no_deadline": True}),
    (lambda run: run.release("a", 0), {"command": "wish", "task": "a", "release_s": 0.0}),
    (lambda run: run.after("a", ["b"]), {"command": "wish", "task": "a", "after": ["b"]}),
    (
        lambda run: run.take_back("n0", [1]),
        {"command": "take_back", "node": "n0", "devices": [1]},
    ),
    (lambda run: run.stop(), {"command": "stop", "at_once": False}),
    (lambda run: run.stop(at_once=True), {"command": "stop", "at_once": True}),
]


@pytest.mark.parametrize(("call", "command"), COMMANDS)
def test_each_command_is_a_line_to_the_driver(
    driver: FakeDriver, call: Callable[[saturn.Run], None], command: dict[str, Any]
) -> None:
    run = saturn.start([make_task("a")], log=False)
    for each in (run, saturn.attach(run.run_dir.name)):
        call(each)
    assert driver.commands == [{"version": 1, **command}] * 2
    driver.end.set()
    run.wait()


def test_a_refusal_says_why_and_leaves_nothing_behind(driver: FakeDriver) -> None:
    run = saturn.start([make_task("a")], log=False)
    # A driver of an early version gives no code.
    for code in ({"code": "name_taken"}, {}):
        driver.refusal = {**code, "error": "there is a task `a` already"}
        with pytest.raises(saturn.Refused, match="there is a task `a` already") as refused:
            run.submit(make_task("a"))
        assert refused.value.code == code.get("code")
    driver.refusal = {"code": "run_ended", "error": "it is over"}
    with pytest.raises(saturn.RunOver, match=r"it is over\. It takes no more tasks"):
        run.submit(make_task("a"))
    assert [path.name for path in (run.run_dir / "tasks").iterdir()] == ["a"]
    assert (run.run_dir / "tasks" / "a" / "task.pkl").is_file(), "the first task's own"
    driver.refusal = None
    driver.end.set()
    run.wait()
    with pytest.raises(saturn.RunOver, match=r"no process drives the run.*saturn status"):
        run.cancel("a")
    attached = saturn.attach("./" + str(run.run_dir.relative_to(Path.cwd())))
    assert attached.is_over and attached.wait().tasks[0].status == "done"


def test_a_block_that_raises_stops_the_run_at_checkpoints(driver: FakeDriver) -> None:
    with (
        pytest.raises(ZeroDivisionError),
        saturn.start([make_task("a")], keep_open=True, log=False) as run,
    ):
        run.submit(make_task(str(1 / 0)))
    assert run.is_over and driver.presses == 1
    with pytest.raises(saturn.RunInterrupted) as caught:
        run.wait()
    assert caught.value.resume_command == f"saturn resume {run.run_dir}"


@pytest.fixture(autouse=True)
def signals() -> Iterator[None]:
    """Handlers as in a plain program: other tests' libraries may have left their own."""
    plain = {
        signal.SIGINT: signal.default_int_handler,
        signal.SIGTERM: signal.SIG_DFL,
        signal.SIGHUP: signal.SIG_DFL,
    }
    before = {number: signal.signal(number, handler) for number, handler in plain.items()}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def once_handled(number: int, act: Callable[[], object]) -> None:
    """Acts from another thread, once the signal has another handler than now: it would kill us."""
    before = signal.getsignal(number)

    def wait() -> None:
        while signal.getsignal(number) == before:
            time.sleep(0.01)
        act()

    threading.Thread(target=wait, daemon=True).start()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signals_stop_a_run_that_is_waited_for(driver: FakeDriver, number: int) -> None:
    before = signal.getsignal(number)
    run = saturn.start([make_task("a")], log=False)
    once_handled(number, lambda: os.kill(os.getpid(), number))
    with pytest.raises(saturn.RunInterrupted):
        run.wait()
    assert driver.presses == 1
    assert signal.getsignal(number) == before


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_two_signals_of_timeout_are_one_wish(number: int) -> None:
    def signal_as_timeout_does() -> None:
        # Its child, and then the child's group, which the child leads or shares.
        os.kill(os.getpid(), number)
        time.sleep(0.01)
        os.kill(os.getpid(), number)

    is_over = threading.Event()
    presses: list[int] = []
    once_handled(number, lambda: (signal_as_timeout_does(), time.sleep(0.2), is_over.set()))
    assert stopping.wait(is_over, lambda: presses.append(1), None)
    assert len(presses) == 1


def test_a_fourth_ctrl_c_ends_the_wait_for_a_run_that_will_not_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stopping, "_SAME_WISH_S", 0.0)
    presses: list[int] = []
    never = threading.Event()

    def press() -> None:
        presses.append(1)
        os.kill(os.getpid(), signal.SIGINT)

    once_handled(signal.SIGINT, press)
    with pytest.raises(KeyboardInterrupt):
        stopping.wait(never, press, None)
    assert len(presses) == 4, "the first is not a signal's"


def test_a_handler_of_the_programs_own_is_kept_and_what_it_raises_comes_through() -> None:
    class Alarm(Exception):
        pass

    def ring(*_: Any) -> None:
        raise Alarm

    class End(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            if not self.is_set():
                os.kill(os.getpid(), signal.SIGTERM)
            return super().wait(timeout)

    is_over = End()
    before = signal.signal(signal.SIGTERM, ring)
    try:
        with pytest.raises(Alarm):
            stopping.wait(is_over, is_over.set, None)
        assert is_over.is_set(), "the run was asked to stop, and waited for"
        assert signal.getsignal(signal.SIGTERM) is ring
    finally:
        signal.signal(signal.SIGTERM, before)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: make_task(priority=1.5), TypeError, "priority is a float; it must be a whole"),
        (lambda: make_task(priority=2**31), ValueError, "priority is 2147483648; it must be from"),
        (lambda: make_task(deadline=-1), ValueError, "deadline is -1; it must be a number of sec"),
        (lambda: make_task(deadline="noon"), TypeError, "deadline is a str; it must be a number"),
        (lambda: make_task(release=float("nan")), ValueError, "release is nan; it must be a num"),
        (lambda: make_task(release=None), TypeError, "release is a NoneType; it must be a number"),
        (lambda: make_task(after=[3]), TypeError, "after holds a int; it must hold tasks or thei"),
        (
            lambda: saturn.start([make_task("a", after="b"), make_task("b")]),
            saturn.InvalidInput,
            "task `a` comes after `b`, which must stand before it in the list of tasks",
        ),
        (
            lambda: saturn.orchestrate([make_task("a", after="c")]),
            saturn.InvalidInput,
            "task `a` comes after `c`, which is not in the list of tasks",
        ),
        (lambda: saturn.start([]), saturn.InvalidInput, "tasks is empty"),
        (lambda: saturn.attach("nowhere"), saturn.InvalidInput, "there is no run `nowhere`"),
    ],
)
def test_bad_wishes_get_one_clear_message_each(
    driver: FakeDriver,
    tmp_path: Path,
    call: Callable[[], Any],
    error: type[Exception],
    message: str,
) -> None:
    with pytest.raises(error) as caught:
        call()
    assert message in str(caught.value) and "\n" not in str(caught.value)
    assert driver.request == {} and not (tmp_path / "saturn_runs").exists()


def test_a_search_asks_nothing_of_a_tasks_time(driver: FakeDriver) -> None:
    driver.end.set()
    saturn.search([make_task("a", after="base", priority=1, hparams=HParams(0.1, 1))], log=False)
    assert "wishes" not in driver.request["tasks"][0] and "after" not in driver.request["tasks"][0]


UNWAITED = """
import sys, threading
sys.path.insert(0, {tests!r})
import saturn
from saturn import native
from test_live_face import FakeDriver
from faces import make_task
driver = FakeDriver()
native.run, native.is_driven, native.interrupts = driver.run, driver.is_driven, lambda: driver
saturn.start([make_task("a")], log=False, name="it")
print("script ends")
{last}
"""


@pytest.mark.parametrize("last", ["", "raise SystemExit(0)"])
def test_a_program_that_ends_without_waiting_stops_its_run(tmp_path: Path, last: str) -> None:
    script = UNWAITED.format(tests=str(Path(__file__).parent), last=last)
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(PYTHON_DIR), "SATURN_HOME": str(tmp_path / "home")},
        capture_output=True,
        text=True,
        timeout=200,
        check=True,
    )
    run_dir = tmp_path / "saturn_runs" / "it"
    assert done.stdout == "script ends\n"
    assert done.stderr.endswith(f"stops at checkpoints; to go on: saturn resume {run_dir}\n")
