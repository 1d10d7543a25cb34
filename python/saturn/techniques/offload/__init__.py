"""The technique `offload`, under the import path in journals; `technique` has it."""

from __future__ import annotations

from saturn.techniques.offload.technique import Offload

__all__ = ["Offload"]
