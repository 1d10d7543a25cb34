"""Write a trained model as a Hugging Face directory: `config.json` and safetensors.

Only for models that come from there, which know how they are written and read: those of
transformers (`PreTrainedModel`) and of PEFT (`PeftModel`), which writes the adapters alone. A
tokenizer is no part of a task, so none is written.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import nn

from saturn.checkpoint.black_box_state import read_into
from saturn.checkpoint.place import Directory
from saturn.tasks.definition import TaskDefinition
from saturn.training.stepper import build_model


def can_be_written(module: nn.Module) -> bool:
    """Whether `module` is a model of these libraries; doesn't import them where nobody has."""
    models = sys.modules.get("transformers.modeling_utils")
    adapters = sys.modules.get("peft.peft_model")
    return (models is not None and isinstance(module, models.PreTrainedModel)) or (
        adapters is not None and isinstance(module, adapters.PeftModel)
    )


def trained_model(
    definition: TaskDefinition, checkpoint: Directory, content: Mapping[str, Any]
) -> nn.Module:
    """The task's model, whole, on the CPU, with the weights of a verified checkpoint."""
    # Its first weights are overwritten, and may be gone by now.
    module = build_model(replace(definition, start_from=None))
    read_into(checkpoint, content, module)
    return module


def write(module: Any, directory: Path) -> None:
    """Write a model that can be written into `directory`, which appears when it is complete."""
    scratch = directory.with_name(f".{directory.name}")
    shutil.rmtree(scratch, ignore_errors=True)
    module.save_pretrained(scratch)
    scratch.rename(directory)
