"""Saturn plans and trains many large models on one pool of GPUs.

Describe each model as a `Task`, then let `search` measure and `orchestrate` plan and train them.
`start` does the same and returns at once, with a run to which tasks may be added; `resume` goes on
with a run that was stopped; `attach` gives hold of a run of another process.
`report` and `should_stop` are what a script, `Task.script`, says and asks.
`register` adds a technique of your own to the library; `export` writes a trained model of
transformers for `from_pretrained`.
"""

from saturn.errors import (
    InvalidInput,
    NotPicklable,
    RunFailed,
    RunInterrupted,
    RunOver,
    SaturnError,
    TasksFailed,
    UnknownTechnique,
)
from saturn.evaluation import Evaluation
from saturn.exporting import export
from saturn.grid import grid
from saturn.library import deregister, register, retrieve
from saturn.live import Run, StartedRun
from saturn.reporting import report, should_stop
from saturn.result import RunResult, TaskResult
from saturn.run import attach, orchestrate, resume, search, start
from saturn.status import Status
from saturn.strategy import Strategy
from saturn.task import HParams, Task

__version__ = "0.1.0"

__all__ = [
    "Evaluation",
    "HParams",
    "InvalidInput",
    "NotPicklable",
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
    "deregister",
    "export",
    "grid",
    "orchestrate",
    "register",
    "report",
    "resume",
    "retrieve",
    "search",
    "should_stop",
    "start",
]
