"""The profile key of scripts: scripts with equal keys perform alike, and share their trials.

The key covers the text of the script and of the modules beside it that it imports, the versions of
the packages that any of them imports, its arguments, environment and device counts. Arguments that
change what is learnt but not how long a step takes are left out, by their names. So a sweep over
learning rates and seeds is measured once.
"""

from __future__ import annotations

import hashlib
import json
import sys

from saturn.scripts.command import ScriptDefinition
from saturn.tasks.sources import script_texts

#: Flags whose values don't change a step's time; dashes and underscores are equal.
ALIKE = frozenset(
    {
        *("lr", "learning_rate", "min_lr", "weight_decay", "warmup_ratio", "warmup_steps"),
        *("seed", "data_seed", "output_dir", "out_dir", "save_dir", "log_dir", "logging_dir"),
        *("run_name", "exp_name", "experiment_name"),
    }
)


def script_key(script: ScriptDefinition, gpu_range: list[int] | None) -> str:
    """64 hexadecimal digits, equal for scripts that perform alike."""
    described = {
        "python": sys.version_info[:2],
        "script": script_texts(script.path),
        # For the rest of a task's script, without the name of that task.
        "before": script.before[:2],
        "args": counted_args(script.args),
        "environment": sorted(script.environment.items()),
        "gpu_range": gpu_range,
    }
    return hashlib.sha256(json.dumps(described).encode()).hexdigest()


def counted_args(args: tuple[str, ...]) -> list[str]:
    """The arguments without those that don't change a step's time, and without their values."""
    counted = []
    skips = False
    for arg in args:
        is_flag = arg.startswith("-") and not _is_number(arg)
        if not is_flag:
            if not skips:
                counted.append(arg)
            skips = False
            continue
        flag, has_value, _ = arg.partition("=")
        is_alike = flag.lstrip("-").replace("-", "_").rpartition(".")[2] in ALIKE
        skips = is_alike and not has_value
        if not is_alike:
            counted.append(arg)
    return counted


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
