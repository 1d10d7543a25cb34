"""docs/techniques.md: its blocks are one script, which does what the page says."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import closeness
import pytest
from warm_parent import worker_env

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = (DOCS / "techniques.md").read_text()

pytestmark = pytest.mark.slow

AND_THEN = """
import json

ways = lambda task: [
    [s.technique, s.gpus, s.status, s.reason, dict(s.knobs)] for s in task.strategies
]
losses = lambda name, task: [
    json.loads(line)["loss"]
    for line in open(f"saturn_runs/{name}/tasks/{task}/metrics.jsonl")
]
print(json.dumps({
    "done": [task.status for task in (*result.tasks, *other.tasks)],
    "steps": result.tasks[0].steps,
    "ways": {task.name: ways(task) for task in (first, second)},
    "managed": losses("managed", "second"),
    "ddp": losses("ddp", "third"),
}))
"""


@pytest.mark.timeout(240)
def test_the_page_is_a_script_that_runs(tmp_path: Path) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    script = tmp_path / "page.py"
    script.write_text("".join(blocks) + AND_THEN)
    done = subprocess.run(
        [sys.executable, str(script)],
        cwd=tmp_path,
        env={**worker_env(), "SATURN_HOME": str(tmp_path / "home")},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout)
    assert found["done"] == ["done", "done"] and found["steps"] == 18
    # On two devices it can't run; that would save nothing, so nobody asks.
    (one,) = found["ways"]["first"]
    assert one[:3] == ["my-loop", 1, "measured"] and one[4] == {"foreach": True}
    one, two = sorted(found["ways"]["second"], key=lambda way: way[1])
    assert one[:4] == ["summed", 1, "not_applicable", "one device has nothing to sum"]
    assert two[:3] == ["summed", 2, "measured"] and set(two[4]) == {"flat"}
    assert len(found["managed"]) == len(found["ddp"]) == 18
    assert closeness.ulps(found["managed"], found["ddp"]) < closeness.ACROSS
