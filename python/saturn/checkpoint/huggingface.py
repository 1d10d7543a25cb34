"""Write a trained model as a Hugging Face directory: `config.json` and safetensors.

Only models that know how to write themselves can be written: those of transformers
(`PreTrainedModel`), and those of PEFT (`PeftModel`), which write only their adapters. A tokenizer
is no part of a task, so none is written.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import nn
from torch.distributed.checkpoint.api import CheckpointException

from saturn.checkpoint import manifest
from saturn.checkpoint.black_box_state import read_into
from saturn.checkpoint.place import Directory
from saturn.tasks.definition import TaskDefinition
from saturn.training.stepper import build_model

#: How often a checkpoint is read anew because training removed the one before.
_READ_AGAIN = 3


def can_be_written(module: nn.Module) -> bool:
    """Whether `module` is a model of these libraries; does not import them."""
    models = sys.modules.get("transformers.modeling_utils")
    adapters = sys.modules.get("peft.peft_model")
    return (models is not None and isinstance(module, models.PreTrainedModel)) or (
        adapters is not None and isinstance(module, adapters.PeftModel)
    )


def trained_model(
    definition: TaskDefinition, checkpoint: Directory, content: Mapping[str, Any]
) -> nn.Module:
    """The task's whole model on the CPU, with the weights of a verified checkpoint."""
    # The starting weights are overwritten anyway, and their files may be gone by now.
    module = build_model(replace(definition, start_from=None))
    read_into(checkpoint, content, module)
    return module


def newest_model(
    definition: TaskDefinition, checkpoints: Directory, newest: tuple[Directory, Mapping[str, Any]]
) -> tuple[nn.Module, Directory]:
    """The same with the weights of the newest checkpoint of a task that may train meanwhile.

    Training removes old checkpoints. If it removes `newest`, which verified, while the model is
    built or the checkpoint is read, the checkpoint that is the newest by then is read. Returns
    the model, and the checkpoint that it is from.
    """
    module = build_model(replace(definition, start_from=None))
    for reads_left in reversed(range(1 + _READ_AGAIN)):
        checkpoint, content = newest
        try:
            read_into(checkpoint, content, module)
            break
        except (OSError, CheckpointException):
            if reads_left == 0 or manifest.read(checkpoint) is not None:
                raise
            found = manifest.newest_valid(checkpoints)
            if found is None:
                raise
            newest = found
    return module, checkpoint


def write(module: Any, directory: Path) -> None:
    """Write such a model into `directory`, which appears only when it is complete."""
    scratch = directory.with_name(f".{directory.name}")
    shutil.rmtree(scratch, ignore_errors=True)
    module.save_pretrained(scratch)
    scratch.rename(directory)
