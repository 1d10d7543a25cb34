"""What a notebook does differently: no file, no guard, its own streams, functions of a cell."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from harness import PYTHON_DIR

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
