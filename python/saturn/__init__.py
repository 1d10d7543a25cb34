"""Saturn plans and trains many large models on one pool of GPUs.

Describe each model as a `Task`. `search` measures the tasks, and `orchestrate` plans and trains
them. `start` does the same but returns at once, with a run to which tasks may be added. `resume`
continues a run that was stopped. `attach` connects to a run of another process, and `connect` to
the pool that `saturn serve` drives.

`report` and `should_stop` are for scripts (`Task.script`): they report progress and ask for a stop.
`register` adds your own technique to the library. `export` writes a trained model of transformers
for `from_pretrained`.
"""

# ruff: noqa: E402  (a package that is missing is told of before an import fails)

from typing import Any

from saturn.plain.supported import check_packages

check_packages()

from saturn.errors import (
    InvalidInput,
    NotPicklable,
    Refused,
    RunFailed,
    RunInterrupted,
    RunOver,
    SaturnError,
    TasksFailed,
    UnknownTechnique,
)
from saturn.library import deregister, register, retrieve
from saturn.runs.connecting import connect
from saturn.runs.exporting import export
from saturn.runs.live import Run
from saturn.runs.result import RunResult, TaskResult
from saturn.runs.run import attach, orchestrate, resume, search, start
from saturn.runs.started import StartedRun
from saturn.runs.status import Status
from saturn.scripts.reporting import report, should_stop
from saturn.sweeps.grid import grid
from saturn.sweeps.sweep import read_sweep
from saturn.tasks.evaluation import Evaluation
from saturn.tasks.hparams import HParams
from saturn.tasks.strategy import Strategy
from saturn.tasks.task import Task

__all__ = [
    "Evaluation",
    "HParams",
    "InvalidInput",
    "NotPicklable",
    "Refused",
    "Run",
    "RunFailed",
    "RunInterrupted",
    "RunOver",
    "RunResult",
    "SaturnError",
    "StartedRun",
    "Status",
    "Strategy",
    "Task",
    "TaskResult",
    "TasksFailed",
    "UnknownTechnique",
    "attach",
    "connect",
    "deregister",
    "export",
    "grid",
    "orchestrate",
    "read_sweep",
    "register",
    "report",
    "resume",
    "retrieve",
    "search",
    "should_stop",
    "start",
]


def __getattr__(name: str) -> Any:
    # `import saturn` loads no compiled code; the version is that of `Cargo.toml`.
    if name == "__version__":
        from saturn._core import __version__

        return __version__
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
