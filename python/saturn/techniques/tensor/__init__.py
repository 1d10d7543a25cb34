"""`tensor` and `tensor+fsdp`, under the import path in journals; `technique` has them."""

from __future__ import annotations

from saturn.techniques.tensor.technique import TensorFsdp, TensorParallel

__all__ = ["TensorFsdp", "TensorParallel"]
