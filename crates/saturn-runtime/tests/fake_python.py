#!/usr/bin/env python3
"""Stands in for the user's interpreter in the runtime's tests: real processes, no torch.

Called as `fake_python.py -m saturn.worker.warm ...` (or `.cold`) it is a parent whose ranks do what
`behaviour.json` in their task's directory says; called as `-m saturn.worker.rank` it is one rank. A
"step" takes 10 ms; a "checkpoint" is a file `step` in the task's directory. Each rank 0 adds a line
to `told.jsonl` there: what it was told.

Files in the working directory tell warm parents what to do: `slow` to take so many seconds until
they are ready; `hang` as an import may; `threads` to have a second one; `stillborn` to die before
they are ready; `full` to find no room for the next rank's process, once; `undead` to be late, by so
many seconds, with the word that a rank has ended, as if the kernel could not end it; `deaf`, which
the first takes away, to start nothing.
"""

import contextlib
import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

STEP_S = 0.01
# What a look at any model finds: nothing against any technique.
INSPECTION = {
    "parameters": 1,
    "parameter_bytes": 4,
    "trainable_bytes": 4,
    "layers": None,
    "checkpoint_bytes": 12,
    "optimizer_state_ratio": 2.0,
    "batches_per_epoch": 50,
    "verdicts": [],
}


def main():
    lock_path = sys.argv[sys.argv.index("--workers-lock") + 1]
    lock = os.open(lock_path, os.O_RDWR | os.O_CREAT)
    fcntl.flock(lock, fcntl.LOCK_SH)
    if "saturn.worker.rank" in sys.argv:
        at = sys.argv.index("saturn.worker.rank")
        sys.exit(rank(Path(sys.argv[at + 1]), int(sys.argv[at + 2])))
    parent()


def parent():
    children = {}
    is_warm = "saturn.worker.warm" in sys.argv
    with Path("parents").open("a") as parents:
        parents.write("warm\n" if is_warm else "cold\n")
    is_deaf = Path("deaf").exists()
    Path("deaf").unlink(missing_ok=True)
    if is_warm and Path("slow").exists():
        time.sleep(float(Path("slow").read_text()))
    if is_warm and Path("hang").exists():
        time.sleep(1000)
    if is_warm and Path("stillborn").exists():
        sys.exit("an import killed it")
    cannot_fork = "has two threads" if is_warm and Path("threads").exists() else None
    say({"ready": True, "import_s": 0.0, "cannot_fork": cannot_fork})
    threading.Thread(target=reap, args=(children,), daemon=True).start()
    for line in sys.stdin:
        launch = json.loads(line)["launch"]
        if is_deaf:
            continue
        if Path("full").exists():
            Path("full").unlink()
            say({"exited": {"key": launch["key"], "pid": 0, "code": 1, "why": "no room"}})
            continue
        log = os.open(launch["log"], os.O_WRONLY | os.O_CREAT)
        child = subprocess.Popen(
            [
                sys.executable,
                __file__,
                "-m",
                "saturn.worker.rank",
                launch["spec"],
                str(launch["rank"]),
                "--workers-lock",
                sys.argv[sys.argv.index("--workers-lock") + 1],
            ],
            env={**os.environ, **launch["env"]},
            stdout=log,
            stderr=log,
            start_new_session=True,
            stdin=subprocess.DEVNULL,
        )
        os.close(log)
        children[launch["key"]] = child
        say({"launched": {"key": launch["key"], "pid": child.pid}})
    for child in children.values():
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)


def reap(children):
    gone = set()
    while True:
        time.sleep(0.01)
        for key, child in list(children.items()):
            if key not in gone and child.poll() is not None:
                gone.add(key)
                if Path("undead").exists():
                    time.sleep(float(Path("undead").read_text()))
                say({"exited": {"key": key, "pid": child.pid, "code": child.returncode}})


def say(message):
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def rank(spec_path, index):
    spec = json.loads(spec_path.read_text())
    task_dir = Path(spec["task_dir"])
    behaviour = json.loads((task_dir / "behaviour.json").read_text())
    print("a line in the log")
    stream = socket.socket(socket.AF_UNIX)
    if behaviour.get("silent_death") == spec["kind"]:
        sys.exit("no word on the socket, only this in the log")
    stream.connect(spec["socket"])
    orders = stream.makefile("r")
    stopping = threading.Event()

    def listen():
        for line in orders:
            if json.loads(line)["type"] == "stop":
                stopping.set()
        os._exit(3)  # the driver is gone

    def tell(kind, **rest):
        stream.sendall((json.dumps({"type": kind, **rest}) + "\n").encode())

    tell("hello", attempt=spec["attempt"], rank=index, pid=os.getpid())
    threading.Thread(target=listen, daemon=True).start()
    if spec["kind"] == "inspect":
        tell("inspected", inspection=INSPECTION)
        return 0
    if index == 0:
        with (task_dir / "told.jsonl").open("a") as told:
            wanted = ("attempt", "kind", "device_memory_bytes", "devices", "cores")
            told.write(json.dumps({key: spec[key] for key in wanted}) + "\n")
    if spec["kind"] == "trial":
        if index == 0:
            step_s = STEP_S * (1 if spec["gpus"] == 1 else 0.6)
            tell(
                "trial",
                knobs={},
                outcome={
                    "outcome": "measured",
                    "step_s": step_s,
                    "setup_s": 0.05,
                    "peak_memory_bytes": 1,
                    "timed_steps": 3,
                    "batches_per_epoch": 50,
                },
            )
        return 0
    train(spec, behaviour, index, tell, stopping)
    return 0


def train(spec, behaviour, index, tell, stopping):
    saved = Path(spec["task_dir"]) / "step"
    step = int(saved.read_text()) if saved.exists() else 0
    if index == 0:
        tell("started", step=step, setup_s=0.05)
    if behaviour.get("orphan"):
        # A process that holds the socket open and would outlive its rank.
        subprocess.Popen(["sleep", "1000"], close_fds=False)
    if behaviour.get("escape"):
        escape(spec)
    # In a run of one task, the number of the attempt counts its launches: the first is a look.
    well = 1 + behaviour.get("trials", 0)
    misbehaves = spec["attempt"] <= behaviour.get("bad_attempts", 0) + well
    while step < spec["steps"]:
        time.sleep(STEP_S)
        step += 1
        if misbehaves and step == behaviour["at_step"]:
            misbehave(behaviour["how"], index, tell)
        if index == 0:
            tell("progress", step=step, loss=1.0 / step, step_s=STEP_S)
            if step % 20 == 0:
                save(saved, step, tell)
        if stopping.is_set():
            if index == 0:
                save(saved, step, tell)
                tell("stopped", step=step)
            return
    if index == 0:
        save(saved, step, tell)
        tell("finished", step=step, loss=0.5)


def escape(spec):
    """Leaves a process behind in a session, a group and under a parent of its own."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.closerange(0, 100)
            (Path(spec["task_dir"]) / "escaped").write_text(str(os.getpid()))
            time.sleep(1000)
        os._exit(0)


def misbehave(how, index, tell):
    if how == "raise":
        tell("failed", kind="task", error="ValueError: odd", traceback="Traceback: odd")
        os._exit(1)
    if how == "garbage":
        sys.stdout.flush()
        tell("no such report")
        time.sleep(1000)
    if how == "sleep":
        time.sleep(1000)
    if how == "die":
        os.kill(os.getpid(), signal.SIGSEGV)
    if how == "one_dies" and index == 1:
        os.kill(os.getpid(), signal.SIGSEGV)
    if how == "warm_parent_dies":
        os.kill(os.getppid(), signal.SIGKILL)


def save(path, step, tell):
    fresh = path.with_suffix(".new")
    fresh.write_text(str(step))
    fresh.rename(path)
    tell("checkpoint", step=step, save_s=0.0, blocked_s=0.0)


main()
