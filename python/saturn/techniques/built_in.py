"""The list of built-in techniques: name and import path. Always in the library."""

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
    }
)
