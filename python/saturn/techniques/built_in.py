"""The built-in techniques: names, import paths and knobs. The library always has them.

The paths are texts, so that listing techniques doesn't import torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

#: Name → "module:class".
BUILT_IN: Mapping[str, str] = MappingProxyType(
    {
        "ddp": "saturn.techniques.ddp:Ddp",
        "fsdp": "saturn.techniques.fsdp:Fsdp",
        "tensor": "saturn.techniques.tensor:TensorParallel",
        "tensor+fsdp": "saturn.techniques.tensor:TensorFsdp",
        "offload": "saturn.techniques.offload:Offload",
        "pipeline": "saturn.techniques.pipeline:Pipeline",
        "pipeline+fsdp": "saturn.techniques.pipeline:PipelineFsdp",
        "pipeline+tensor": "saturn.techniques.pipeline:PipelineTensor",
        "pipeline+tensor+fsdp": "saturn.techniques.pipeline:PipelineTensorFsdp",
    }
)

_PIPELINE = frozenset({"attention", "cut", "microbatches", "schedule"})
#: Name → the knobs that a task may pin; `docs/builtin-techniques.md` explains them.
KNOBS: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "ddp": frozenset(
            {"activation_checkpointing", "attention", "compile", "find_unused_parameters"}
        ),
        "fsdp": frozenset(
            {
                *("activation_checkpointing", "attention", "compile"),
                *("cpu_offload", "replicate_across_nodes", "reshard_after_forward"),
            }
        ),
        "tensor": frozenset({"activation_checkpointing", "attention"}),
        "tensor+fsdp": frozenset({"activation_checkpointing", "attention", "tensor"}),
        "offload": frozenset({"attention"}),
        "pipeline": _PIPELINE | {"stages_a_device"},
        "pipeline+fsdp": _PIPELINE | {"stages"},
        "pipeline+tensor": _PIPELINE | {"tensor"},
        "pipeline+tensor+fsdp": _PIPELINE | {"stages", "tensor"},
    }
)
