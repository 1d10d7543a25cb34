"""What fused tasks have in common: the kind of their model, and the frozen weights that they share.

Only weights in the layers, and in the output layer, must be equal, because only these compute for
several members at once. A name is that of the model without adapters: a weight that an adapter is
put around has the same name in tasks that adapt other layers. Weights elsewhere stay a task's own;
where they are equal, they are shared too.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from saturn.fused.attention import attention_functions
from saturn.fused.parts import BASE, base_modules, is_adapter, is_frozen_linear
from saturn.fused.refusal import CannotFuse, Reason
from saturn.tasks.definition import TaskDefinition
from saturn.techniques.interface import Knobs
from saturn.techniques.model.attention import ATTENTION
from saturn.techniques.model.compiled import COMPILE
from saturn.techniques.model.layers import repeated_layers
from saturn.techniques.model.recompute import ACTIVATION_CHECKPOINTING

#: Settings of a configuration that say where a model came from, or how it is stored.
_NOT_COMPUTED = frozenset({"_name_or_path", "transformers_version", "use_cache", "architectures"})


@dataclass(frozen=True)
class Kind:
    """What the models of fused tasks must have in common beside their weights."""

    model: str
    configuration: Mapping[str, Any]
    attention: str
    recomputes: bool

    def reason_against(self, other: Kind) -> CannotFuse | None:
        """Why models of these kinds can't compute together; None if they may."""
        if self.model != other.model:
            return CannotFuse(
                Reason.OTHER_CLASS, f"one model is a {self.model}, another a {other.model}"
            )
        if self.attention != other.attention:
            return CannotFuse(
                Reason.OTHER_ATTENTION,
                f"one task computes attention by {self.attention}, another by {other.attention}",
            )
        if (key := _differing(self.configuration, other.configuration)) is not None:
            return CannotFuse(
                Reason.OTHER_CONFIGURATION,
                f"the models' configurations differ in `{key}`: {self.configuration.get(key)}, "
                f"{other.configuration.get(key)}",
            )
        if self.recomputes != other.recomputes:
            return CannotFuse(
                Reason.OTHER_RECOMPUTATION, "only one of the tasks recomputes activations"
            )
        return None


@dataclass(frozen=True)
class Base:
    """What must be equal in tasks that train over one base."""

    kind: Kind
    #: The task's settings of precision, by name.
    precision: Mapping[str, Any]
    #: Digests of the frozen weights of the layers and of the output layer, by name.
    weights: Mapping[str, str]

    def reason_against(self, other: Base) -> CannotFuse | None:
        """Why a task with this base can't train with one that has the other; None if it may."""
        if (refusal := self.kind.reason_against(other.kind)) is not None:
            return refusal
        if (key := _differing(self.precision, other.precision)) is not None:
            return CannotFuse(
                Reason.OTHER_PRECISION,
                f"`{key}` is {self.precision[key]!r} in one task, {other.precision[key]!r} in "
                "another",
            )
        # A weight that is frozen in only one of the tasks is the other's own.
        common = {name: self.weights[name] for name in self.weights if name in other.weights}
        name = _differing(common, {key: other.weights[key] for key in common})
        return None if name is None else _other_weights(name)


def _other_weights(name: str) -> CannotFuse:
    """The refusal of tasks whose frozen weight `name` differs."""
    return CannotFuse(Reason.OTHER_WEIGHTS, f"the frozen weight `{name}` differs")


def base_of(module: nn.Module, definition: TaskDefinition, knobs: Knobs) -> Base:
    """The base over which a task trains under `ddp` on one device with these knobs.

    `module` is the task's model, with weights. Raises `CannotFuse` if it can't train with others.
    """
    model = model_of(module)
    return Base(
        kind_of(model, knobs),
        {
            "precision": definition.precision,
            "deterministic": definition.deterministic,
            "tf32": definition.tf32,
        },
        {
            name: _digest(tensor)
            for name, tensor in frozen_weights(model, must_be_equal=True).items()
        },
    )


def kind_of(model: Any, knobs: Knobs) -> Kind:
    """The kind of a model of transformers. Raises `CannotFuse` if it can't train with others."""
    _refuse_alone(model, knobs)
    configuration = json.loads(json.dumps(model.config.to_dict(), default=str))
    by_task = any(getattr(layer, "gradient_checkpointing", False) for layer in model.modules())
    return Kind(
        model=f"{type(model).__module__}.{type(model).__qualname__}",
        configuration={k: v for k, v in configuration.items() if k not in _NOT_COMPUTED},
        attention=str(knobs.get(ATTENTION) or model.config._attn_implementation),
        recomputes=bool(knobs.get(ACTIVATION_CHECKPOINTING)) or by_task,
    )


def model_of(module: nn.Module) -> Any:
    """The model of transformers in a task's module, without what PEFT puts around it."""
    models = sys.modules.get("transformers.modeling_utils")
    if models is not None:
        for part in module.modules():
            if isinstance(part, models.PreTrainedModel):
                return part
    raise CannotFuse(Reason.MODEL, f"{type(module).__name__} holds no model of transformers")


def meeting_layers(model: Any) -> dict[str, nn.Module]:
    """The modules that compute for several members at once, by name, in the order of the model."""
    inside = {id(layer) for layer in repeated_layers(model)}
    head = model.get_output_embeddings()
    if head is not None and is_frozen_linear(getattr(head, BASE, head)):
        inside.add(id(head))
    return {name: module for name, module in model.named_modules() if id(module) in inside}


def _refuse_alone(model: Any, knobs: Knobs) -> None:
    """Raise `CannotFuse` if a model can't train with any other."""
    if knobs.get(COMPILE):
        raise CannotFuse(Reason.KNOBS, "compiled layers are made for one task's adapters")
    name = type(model).__name__
    attention = knobs.get(ATTENTION) or model.config._attn_implementation
    if not model._supports_attention_backend:
        raise CannotFuse(Reason.ATTENTION, f"{name} computes attention by code of its own")
    if attention not in attention_functions():
        raise CannotFuse(
            Reason.ATTENTION, f"`{attention}` attention is code of the model's own file"
        )
    layers = meeting_layers(model)
    if not layers:
        raise CannotFuse(Reason.LAYERS, f"no list of repeated layers was found in {name}")
    products = 0
    for path, layer in layers.items():
        for inner, module in base_modules(layer, path):
            _refuse_module(inner, module)
            products += is_frozen_linear(module)
    if not products:
        raise CannotFuse(Reason.NOTHING_FROZEN, f"the layers of {name} hold no frozen weights")


def _refuse_module(name: str, module: nn.Module) -> None:
    if isinstance(module, _BatchNorm):
        raise CannotFuse(Reason.LAYERS, f"the batch norm `{name}` mixes the rows of a batch")
    if module._forward_hooks or module._forward_pre_hooks or module._backward_hooks:
        raise CannotFuse(Reason.HOOKS, f"`{name}` has a hook, which would see other tasks' rows")
    if is_adapter(module) or is_frozen_linear(module):
        return
    for key, parameter in module.named_parameters(recurse=False):
        if not parameter.requires_grad and parameter.dim() > 1:
            raise CannotFuse(
                Reason.LAYERS,
                f"`{name}.{key}` belongs to a {type(module).__name__}, which may mix rows",
            )


def frozen_weights(model: Any, *, must_be_equal: bool) -> dict[str, torch.Tensor]:
    """The frozen weights and the buffers of `meeting_layers`, or all others, by name.

    What adapters add is nobody else's, frozen or not.
    """
    inside = {
        id(module)
        for layer in meeting_layers(model).values()
        for _, module in base_modules(layer, "")
    }
    found = {}
    for path, module in base_modules(model, ""):
        if is_adapter(module) or (id(module) in inside) != must_be_equal:
            continue
        tensors = [*module.named_parameters(recurse=False), *module.named_buffers(recurse=False)]
        found.update({f"{path}.{key}": each for key, each in tensors if not each.requires_grad})
    return found


def _differing(one: Mapping[str, Any], other: Mapping[str, Any]) -> str | None:
    """The first key whose values differ; None if the mappings are equal."""
    for key in sorted({*one, *other}):
        if key not in one or key not in other or one[key] != other[key]:
            return key
    return None


def _digest(tensor: torch.Tensor) -> str:
    raw = tensor.detach().cpu().contiguous().view(-1).view(torch.uint8)
    digest = hashlib.blake2b(f"{tensor.dtype} {tuple(tensor.shape)}".encode(), digest_size=16)
    digest.update(raw.numpy().data)
    return digest.hexdigest()


class SharedWeights:
    """The frozen weights of a group, held once."""

    def __init__(self) -> None:
        self._held: dict[str, torch.Tensor] = {}

    def share(self, model: Any) -> None:
        """Have `model` use the group's weights; the first member's become the group's.

        Raises `CannotFuse` if a weight differs that must be equal; then nothing was changed.
        """
        must = frozen_weights(model, must_be_equal=True)
        for name, tensor in must.items():
            if name in self._held and not _same(self._held[name], tensor):
                raise _other_weights(name)
        for name, tensor in {**frozen_weights(model, must_be_equal=False), **must}.items():
            held = self._held.setdefault(name, tensor)
            if isinstance(tensor, nn.Parameter) and held is not tensor and _same(held, tensor):
                tensor.data = held.data


def _same(one: torch.Tensor, other: torch.Tensor) -> bool:
    return (
        one.dtype == other.dtype
        and one.device == other.device
        and one.shape == other.shape
        and torch.equal(one, other)
    )
