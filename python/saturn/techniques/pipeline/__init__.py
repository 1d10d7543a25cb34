"""`pipeline` and its combinations, under the import paths in journals.

`technique` has them; the other modules are its parts.
"""

from __future__ import annotations

from saturn.techniques.pipeline.technique import (
    Pipeline,
    PipelineFsdp,
    PipelineTensor,
    PipelineTensorFsdp,
)

__all__ = ["Pipeline", "PipelineFsdp", "PipelineTensor", "PipelineTensorFsdp"]
