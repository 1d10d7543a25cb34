"""The technique `offload`, by the import path that journals hold: `technique`, and its parts."""

from __future__ import annotations

from saturn.techniques.offload.technique import Offload

__all__ = ["Offload"]
