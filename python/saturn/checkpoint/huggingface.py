"""Write a trained model as a Hugging Face directory: `config.json` and safetensors.

Only for models that come from there (`transformers.PreTrainedModel`), which know how they are
written and read. A tokenizer is no part of a task, so none is written.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import nn

from saturn.checkpoint.black_box_state import read_into
from saturn.definition import TaskDefinition
from saturn.training.stepper import build_model


def is_pretrained_model(module: nn.Module) -> bool:
    """Whether `module` is a model of transformers; doesn't import it where nobody has."""
    models = sys.modules.get("transformers.modeling_utils")
    return models is not None and isinstance(module, models.PreTrainedModel)


def trained_model(
    definition: TaskDefinition, checkpoint: Path, content: Mapping[str, Any]
) -> nn.Module:
    """The task's model, whole, on the CPU, with the weights of a verified checkpoint."""
    module = build_model(definition)
    read_into(checkpoint, content, module)
    return module


def write(module: Any, directory: Path) -> None:
    """Write a transformers model into `directory`, which appears when it is complete."""
    scratch = directory.with_name(f".{directory.name}")
    shutil.rmtree(scratch, ignore_errors=True)
    module.save_pretrained(scratch)
    scratch.rename(directory)
