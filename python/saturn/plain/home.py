"""The directory of this user that outlives runs: `SATURN_HOME`, by default under the user's data.

The runtime finds it in the same way (`saturn-runtime`: `system/home.rs`).
"""

from __future__ import annotations

import os
from pathlib import Path


def home() -> Path:
    """`$SATURN_HOME`, else `$XDG_DATA_HOME/saturn`, else `~/.local/share/saturn`."""
    if given := os.environ.get("SATURN_HOME"):
        return Path(given)
    data = os.environ.get("XDG_DATA_HOME")
    return Path(data or Path.home() / ".local" / "share") / "saturn"
