"""Saturn plans and trains many large models on one pool of GPUs.

Describe each model as a `Task`, then let `search` measure and `orchestrate` plan and train them.
`register` adds a technique of your own to the library; `export` writes a trained model of
transformers for `from_pretrained`.
"""

from saturn.errors import (
    InvalidInput,
    NotPicklable,
    RunFailed,
    RunInterrupted,
    SaturnError,
    TasksFailed,
    UnknownTechnique,
)
from saturn.exporting import export
from saturn.library import deregister, register, retrieve
from saturn.result import RunResult, TaskResult
from saturn.run import orchestrate, search
from saturn.strategy import Strategy
from saturn.task import HParams, Task

__version__ = "0.1.0"

__all__ = [
    "HParams",
    "InvalidInput",
    "NotPicklable",
    "RunFailed",
    "RunInterrupted",
    "RunResult",
    "SaturnError",
    "Strategy",
    "Task",
    "TaskResult",
    "TasksFailed",
    "UnknownTechnique",
    "deregister",
    "export",
    "orchestrate",
    "register",
    "retrieve",
    "search",
]
