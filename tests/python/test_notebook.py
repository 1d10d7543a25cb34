"""What a notebook does differently: no file, no guard, its own streams, functions of a cell.

And what it shows: the tests have IPython's `display` played by an object of their own, and a real
kernel where Jupyter is installed.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import saturn
from faces import make_task
from saturn.notebook import view
from saturn.notebook.page import render
from saturn.notebook.view import _Losses
from warm_parent import PYTHON_DIR

CELLS = """
import io, sys
real, sys.stderr = sys.stderr, io.StringIO()

import torch
from saturn import HParams, Task, orchestrate, search

width = 8  # a global of the notebook
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, width)
        self.head = torch.nn.Linear(width, 2)
    def forward(self, inputs):
        return self.head(torch.relu(self.layer(inputs)))

data = torch.utils.data.TensorDataset(torch.randn(64, 4), torch.randint(2, (64,)))
task = Task(lambda: Net(), lambda: torch.utils.data.DataLoader(data, batch_size=8),
            torch.nn.functional.cross_entropy, HParams(lr=0.1, epochs=2), name="cell")
search([task], devices=1)
result = orchestrate([task], devices=1)

shown, sys.stderr = sys.stderr.getvalue(), real
assert "1 of 1 task done" in shown, shown
assert "\\x1b" not in shown and "\\r" not in shown, "plain lines where there is no terminal"
print(result.tasks[0].status, result.tasks[0].steps)
"""


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_cells_train_and_their_output_goes_to_the_notebooks_stream(tmp_path: Path) -> None:
    # From standard input there is no source file, as in a kernel.
    done = subprocess.run(
        [sys.executable, "-"],
        input=CELLS,
        cwd=tmp_path,
        env={
            **os.environ,
            "PYTHONPATH": str(PYTHON_DIR),
            "SATURN_HOME": str(tmp_path / "home"),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["done", "16"]
    assert done.stderr == ""


def status(**changes: Any) -> dict[str, Any]:
    task = {
        "name": "<b>",
        "stage": "running",
        "step": 5,
        "steps": 10,
        "technique": "ddp",
        "gpus": 2,
        "loss": 1.25,
        "evaluation": None,
        "goal": None,
        "value": 1.25,
        "expected_end_s": 130.0,
        "error": None,
    }
    return {"status": "unfinished", "now_s": 30.0, "tasks": [{**task, **changes}]}


def test_a_page_shows_tasks_and_curves_and_obeys_no_name() -> None:
    curve = [(1, 3.0), (2, float("nan")), (5, 1.25)]
    page = render(status(), {"<b>": curve}, "first\nlast & least\n")
    assert "<b>" not in page and "&lt;b&gt;" in page
    for words in ("0 of 1 task done, 1 running, about 2 min left", "ddp &times; 2", "5/10", "1.25"):
        assert words in page
    assert page.count("<polyline") == 1 and 'points="44.0' not in page and "nan" not in page
    assert "<summary>last &amp; least</summary>" in page
    for fetch in ("http", "src=", "<script", "url("):
        assert fetch not in page
    judged = {
        "goal": {"metric": "eval_loss", "mode": "min"},
        "value": 0.75,
        "evaluation": {"step": 4, "metrics": {"accuracy": 0.5, "eval_loss": 0.875}},
    }
    page = render(status(stage="failed", error="it <i>broke", steps=None, **judged), {}, "")
    assert "eval_loss 0.75" in page and "it &lt;i&gt;broke" in page and "accuracy" not in page
    assert "5/?" in page and "<svg" not in page
    assert "<table" not in render(None, {}, "starting") and "starting" in render(
        None, {}, "starting"
    )


def test_a_page_of_very_many_tasks_shows_those_that_train() -> None:
    tasks = [{**status()["tasks"][0], "name": f"t{n}", "stage": "waiting"} for n in range(1000)]
    tasks[900]["stage"] = "running"
    page = render({**status(), "tasks": tasks}, {}, "")
    assert "t900" in page and "and 950 more tasks" in page and len(page) < 60_000


def test_curves_are_read_as_they_grow_and_thinned(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    losses = _Losses(path)
    assert losses.read() == []
    path.write_text('{"step": 1, "loss": 3.0}\n{"step": 2, "loss": 2.0}\n{"step": 3, "lo')
    assert losses.read() == [(1, 3.0), (2, 2.0)]
    with path.open("a") as file:
        file.write('ss": null}\nnothing\n{"step": 3, "evaluation": {}}\n{"step": 2, "loss": 2.5}\n')
        file.writelines(f'{{"step": {step}, "loss": 1.0}}\n' for step in range(3, 5000))
    points = losses.read()
    assert 200 <= len(points) <= 400
    assert points == sorted(points) and points[-1][0] > 4900


class Display:
    """IPython's, as far as it is used."""

    def __init__(self, *, fails: bool = False) -> None:
        self.pages: list[str] = []
        self._fails = fails

    def __call__(self, page: Any, *, display_id: bool) -> Display:
        self.pages.append(page._repr_html_())
        return self

    def update(self, page: Any) -> None:
        if self._fails:
            raise OSError("the browser is gone")
        self.pages.append(page._repr_html_())


@pytest.mark.slow(quick=["True"])
@pytest.mark.parametrize("fails", [False, True])
def test_a_run_is_shown_in_its_cell(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    fails: bool,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SATURN_HOME", str(tmp_path / "home"))
    display = Display(fails=fails)
    monkeypatch.setattr(view, "display_of_kernel", lambda: display)
    result = saturn.orchestrate([make_task("cell", techniques=["ddp"])], devices=1)
    told = capsys.readouterr().err
    if fails:
        assert result.tasks[0].status == "done"
        assert "the table can't be shown: the browser is gone" in told
        return
    last = display.pages[-1]
    assert "1 of 1 task done, complete" in last and "10/10" in last and "<polyline" in last
    assert str(result.run_dir) in last and told == ""


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_a_kernel_shows_a_run_and_an_interrupt_stops_it_at_checkpoints(tmp_path: Path) -> None:
    from jupyter_client.manager import start_new_kernel

    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(PYTHON_DIR), os.environ.get("PYTHONPATH", "")]),
        "SATURN_HOME": str(tmp_path / "home"),
    }
    manager, client = start_new_kernel(
        extra_arguments=[], cwd=str(tmp_path), env=environment, kernel_name="python3"
    )
    pages: dict[str, str] = {}
    told: list[str] = []

    def hear(message: dict[str, Any]) -> None:
        content = message["content"]
        if message["msg_type"] in ("display_data", "update_display_data"):
            pages[content["transient"]["display_id"]] = content["data"]["text/html"]
            if "running" in content["data"]["text/html"] and not told:
                told.append("interrupted")
                manager.interrupt_kernel()
        elif message["msg_type"] == "error":
            told.append(content["ename"])

    try:
        cells = CELLS.split("data = ")
        setup = cells[0].replace("real, sys.stderr = sys.stderr, io.StringIO()", "")
        client.execute_interactive(setup, timeout=120)
        cell = "data = " + cells[1].split("search(")[0].replace("epochs=2", "epochs=20000")
        cell += "\norchestrate([task], devices=1)"
        client.execute_interactive(cell, timeout=200, output_hook=hear)
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
    assert told == ["interrupted", "RunInterrupted"]
    (page,) = pages.values()
    assert "interrupted" in page and "saturn resume" in page and "<polyline" in page
