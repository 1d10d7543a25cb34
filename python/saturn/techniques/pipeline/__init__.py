"""`pipeline` and what it combines with, by the import paths that journals hold.

They are in `technique`, and its parts beside it.
"""

from __future__ import annotations

from saturn.techniques.pipeline.technique import (
    Pipeline,
    PipelineFsdp,
    PipelineTensor,
    PipelineTensorFsdp,
)

__all__ = ["Pipeline", "PipelineFsdp", "PipelineTensor", "PipelineTensorFsdp"]
