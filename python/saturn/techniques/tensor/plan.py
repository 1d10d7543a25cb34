"""A plan: which modules of a model are split over the ranks of a tensor group, and how.

A plan maps patterns of module names to styles. It comes from the task's hint `tensor_plan`, or from
transformers, if the model has one there; for other models it is derived (see `derived`). Patterns
are matched name by name between the dots: `layers.*.up` means `layers.0.up`, `layers.1.up` and so
on.

This module reads plans and finds their errors. It changes no module and needs no process group.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any

from torch import nn
from torch.distributed.tensor.parallel import ColwiseParallel, ParallelStyle, RowwiseParallel

from saturn.techniques.interface import NotApplicable
from saturn.techniques.tensor.derived import ATTENTION, MLP, Derived, OwnSizes, derive
from saturn.techniques.tensor.experts import NUM_EXPERTS, SplitExperts, num_experts
from saturn.techniques.tensor.styles import EXPERTS, KNOWN, SUMMED, WHOLE, style_of

#: The hint with a task's own plan.
HINT = "tensor_plan"
#: The knob that limits a derived plan to one part of the model, named as in `derived`.
ONLY = "only"


@dataclass(frozen=True)
class ModuleSplit:
    """One module of a plan."""

    name: str
    module: nn.Module
    #: The style by which torch splits the module; None if it stays whole.
    style: ParallelStyle | None
    #: The split dimension of its weight; None if it isn't split, or only the style knows.
    dimension: int | None = None
    #: Whether its bias is split too.
    splits_bias: bool = True
    #: Whether it may stay whole, independently of the rest of the plan.
    alone: bool = False
    #: Whether it stays whole and its gradients are summed over the ranks.
    summed: bool = False
    #: How many equal pieces are possible, and what a piece is: "heads" and so on.
    units: int = 0
    units_are: str = ""


class TensorPlan:
    """The plan of one model, with its patterns resolved."""

    def __init__(
        self, module: nn.Module, hints: Mapping[str, Any], only: str | None = None
    ) -> None:
        """Raises `NotApplicable` if there is no plan, or if the plan can't be carried out.

        `only` limits a derived plan to one of its parts.
        """
        #: The parts that a derived plan splits.
        self.parts: Sequence[str] = ()
        #: Sizes in attributes of modules, which are smaller when the modules are split.
        self.own_sizes: Sequence[OwnSizes] = ()
        hint = hints.get(HINT)
        entries = list(_from_model(module) if hint is None else _from_hint(module, hint))
        is_derived = hint is None and not entries
        if only is not None and not is_derived:
            raise NotApplicable(f"the knob `{ONLY}` is for models whose plan Saturn derives")
        if is_derived:
            derived = derive(module)
            self.parts = [part for part in derived.splits if only in (None, part)]
            self.own_sizes = derived.sizes if ATTENTION in self.parts else ()
            entries = list(_derived_entries(module, derived, self.parts))
        splits = [_resolve(module, within) for each in entries for within in _within_adapter(each)]
        self._splits = _with_weights_shared_alike(module, splits)
        self.own_sizes = [
            *self.own_sizes,
            *(
                OwnSizes(split.module, {NUM_EXPERTS: split.units})
                for split in self._splits
                if isinstance(split.style, SplitExperts)
            ),
        ]
        if not any(split.style is not None for split in self._splits):
            raise NotApplicable(f"the plan of {type(module).__name__} leaves every module whole")

    def other_part(self, only: str | None) -> str | None:
        """The part to split alone, after the whole derived plan, or the part `only`, failed."""
        if only is None and {ATTENTION, MLP} <= set(self.parts):
            return MLP
        return ATTENTION if only == MLP else None

    def splits(self, size: int) -> list[ModuleSplit]:
        """The plan's modules for `size` ranks, without those that can't be split so and needn't."""
        return [split for split in self._splits if not (split.alone and split.units % size)]

    def num_parts(self, module: nn.Module, size: int) -> dict[int, int]:
        """Over how many of `size` devices each parameter of `module` is split, by its id."""
        styled = {id(split.module): split for split in self.splits(size) if split.style is not None}
        parts: dict[int, int] = {}
        for part in module.modules():
            split = styled.get(id(part))
            for name, parameter in part.named_parameters(recurse=False):
                # Only a task's own style knows what it splits; count everything as split.
                is_split = split is not None and (name == "weight" or split.splits_bias)
                parts[id(parameter)] = size if is_split else 1
        return parts

    def indivisible(self, size: int) -> str | None:
        """Why `size` devices can't share the model, with sizes that can; None if they can."""
        for split in self._splits:
            if not split.alone and split.units % size:
                return (
                    f"`{split.name}` has {split.units} {split.units_are}, which {size} devices "
                    f"can't share evenly; {self._sizes()}"
                )
        if all(split.style is None for split in self.splits(size)):
            return f"{size} devices can share no module of the plan evenly"
        return None

    def _sizes(self) -> str:
        common = math.gcd(*(split.units for split in self._splits if not split.alone))
        sizes = [str(size) for size in range(2, common + 1) if common % size == 0]
        if not sizes:
            return "no other count can, either"
        last = sizes.pop()
        return f"{', '.join(sizes)} or {last} can" if sizes else f"{last} can"


@dataclass(frozen=True)
class _Entry:
    """A module, and the plan's style for it."""

    name: str
    module: nn.Module
    style: Any
    #: How many equal pieces are possible, and what a piece is; None if not known yet.
    units: int | None = None
    units_are: str = ""


def _from_hint(module: nn.Module, hint: Any) -> Iterator[_Entry]:
    if not isinstance(hint, Mapping) or not hint:
        raise NotApplicable(
            f"the hint `{HINT}` is {hint!r}; it must map patterns of module names to styles, such "
            'as {"layers.*.up": "colwise", "layers.*.down": "rowwise"}'
        )
    for pattern, style in hint.items():
        if not isinstance(style, ParallelStyle) and style not in KNOWN:
            raise NotApplicable(
                f"the hint `{HINT}` says {style!r} of `{pattern}`; it may say "
                f"{', '.join(KNOWN)}, or be a ParallelStyle of torch"
            )
        found = _matching(module, pattern)
        if not found:
            raise NotApplicable(
                f"the hint `{HINT}` names `{pattern}`, and no module of "
                f"{type(module).__name__} is called so"
            )
        yield from (_Entry(name, part, style) for name, part in found.items())


def _from_model(module: nn.Module) -> Iterator[_Entry]:
    """The plans of transformers' models: of this model, or of those that it wraps.

    The user may have wrapped them, or PEFT, whose adapters replace single layers.
    """
    planned: list[str] = []
    for outer, model in module.named_modules():
        # Only an attribute of its own: a wrapper may forward its inner model's plan, whose names
        # begin further in.
        is_own = inspect.getattr_static(model, "tp_plan", None) is not None
        plan = getattr(model, "tp_plan", None) if is_own else None
        if not isinstance(plan, Mapping) or not plan:
            continue
        if any(outer.startswith(prefix) for prefix in planned):
            continue  # a part of a model that was seen before, whose plan covers it
        prefix = f"{outer}." if outer else ""
        planned.append(prefix)
        for pattern, style in plan.items():
            found = _matching(model, pattern)
            parameter = any(
                _matches(name, pattern) and num_experts(_parent(model, name)) is None
                for name, _ in model.named_parameters()
            )
            if found and all(num_experts(part) is not None for part in found.values()):
                style = EXPERTS  # this style covers the plan's entries for the experts' tensors
            if (found and style not in KNOWN) or (parameter and style != WHOLE):
                raise NotApplicable(
                    f"the plan that {type(model).__name__} brings splits `{pattern}` as "
                    f"`{style}`, for which torch has no style; `fsdp`, `pipeline` and `offload` "
                    f"need none, and the hint `{HINT}` can give another plan"
                )
            # A plan may name modules that only some sizes of a model have.
            yield from (_Entry(prefix + name, part, style) for name, part in found.items())


def _derived_entries(module: nn.Module, derived: Derived, parts: Sequence[str]) -> Iterator[_Entry]:
    if not parts:
        raise NotApplicable(
            f"{type(module).__name__} brings no plan, and has no attention or MLP whose layers "
            f"have names that are known; the hint `{HINT}` can give a plan, such as "
            f'hints={{"{HINT}": {{"layers.*.up": "colwise", "layers.*.down": "rowwise"}}}}'
        )
    for part in parts:
        for split in derived.splits[part]:
            yield _Entry(split.name, split.module, split.style, split.units, split.units_are)


def _within_adapter(entry: _Entry) -> Iterator[_Entry]:
    """Apply a layer's style to its parts, if PEFT's LoRA has wrapped the layer.

    The output is the layer's own output plus B(A(x)). If the layer is split by outputs, B is split
    by outputs too, and A is whole. If it is split by inputs, A is split by inputs, and B is whole.
    """
    name, module, style = entry.name, entry.module, entry.style
    base = getattr(module, "base_layer", None)
    if not isinstance(base, nn.Module):
        yield entry
        return
    if isinstance(style, ParallelStyle):
        raise NotApplicable(
            f"the plan says {style!r} of `{name}`, which an adapter wraps; only the styles that "
            "have a name are known for that"
        )
    yield replace(entry, name=f"{name}.base_layer", module=base)
    # All other styles take and give whole values, so the adapter works unchanged.
    split = {"rowwise": "lora_A", **dict.fromkeys(_GIVE_PARTS, "lora_B")}.get(style)
    for held, part in getattr(module, split, {}).items() if split else ():
        yield replace(entry, name=f"{name}.{split}.{held}", module=part)


#: Styles of layers whose output is only this rank's part.
_GIVE_PARTS = ("colwise", "colwise_halves", "colwise_thirds")


def _matching(module: nn.Module, pattern: str) -> dict[str, nn.Module]:
    """Modules whose names match, each once."""
    found: dict[int, tuple[str, nn.Module]] = {}
    for name, part in module.named_modules(remove_duplicate=False):
        if _matches(name, pattern):
            found.setdefault(id(part), (name, part))
    return dict(found.values())


def _matches(name: str, pattern: str) -> bool:
    names, patterns = name.split("."), pattern.split(".")
    return len(names) == len(patterns) and all(map(fnmatchcase, names, patterns))


def _resolve(model: nn.Module, entry: _Entry) -> ModuleSplit:
    name, module, said = entry.name, entry.module, entry.style
    if said in (WHOLE, SUMMED):
        return ModuleSplit(name, module, None, summed=said == SUMMED)
    if isinstance(said, ParallelStyle) and not isinstance(said, ColwiseParallel | RowwiseParallel):
        return ModuleSplit(name, module, said)
    style = style_of(name, module, said)
    if (experts := num_experts(module)) is not None:
        return ModuleSplit(
            *(name, module, style.make(), style.dimension), units=experts, units_are="experts"
        )
    weight = module.weight
    assert isinstance(weight, nn.Parameter)
    units = weight.shape[style.dimension] // style.parts
    units_are = "outputs" if style.by_outputs else "inputs"
    if entry.units is not None:
        units, units_are = entry.units, entry.units_are
    elif not style.alone and (heads := _heads(_parent(model, name), units)):
        units, units_are = heads, "heads"
    return ModuleSplit(
        *(name, module, style.make(), style.dimension, style.by_outputs, style.alone),
        units=units,
        units_are=units_are,
    )


def _parent(model: nn.Module, name: str) -> nn.Module:
    """The parent of the module of this name; for a part of an adapter, the adapter's parent."""
    parent = model.get_submodule(name.rpartition(".")[0])
    while name and (isinstance(parent, nn.ModuleDict) or hasattr(parent, "base_layer")):
        name = name.rpartition(".")[0]
        parent = model.get_submodule(name.rpartition(".")[0])
    return parent


def _heads(attention: nn.Module, features: int) -> int | None:
    """How many heads make up `features`, None if not heads do: a head is never cut.

    Attention sees its values as (…, heads, head_dim), and has the number of heads as an attribute.
    """
    head_dim = getattr(attention, "head_dim", None)
    for said in (attention, getattr(attention, "config", None)):
        for attribute, heads in getattr(said, "__dict__", {}).items():
            whole = isinstance(heads, int) and isinstance(head_dim, int) and heads > 0
            if whole and "head" in attribute and heads * head_dim == features:
                return int(heads)
    return None


def _with_weights_shared_alike(
    module: nn.Module, splits: Sequence[ModuleSplit]
) -> list[ModuleSplit]:
    """The splits, without weights that other modules share but would split otherwise."""
    by_module = {id(split.module): split for split in splits}
    owners: dict[int, list[tuple[str, ModuleSplit | None]]] = {}
    for name, part in module.named_modules():
        for parameter in part._parameters.values():
            if parameter is not None:
                owners.setdefault(id(parameter), []).append((name, by_module.get(id(part))))
    left_whole: set[int] = set()
    for sharing in owners.values():
        if len(sharing) == 1 or len({split and split.dimension for _, split in sharing}) == 1:
            continue
        for _, split in sharing:
            if split is None or split.style is None:
                continue
            if not split.alone:
                others = " and ".join(f"`{name}`" for name, other in sharing if other is not split)
                raise NotApplicable(
                    f"`{split.name}` shares its weight with {others}; the plan must split them "
                    "alike"
                )
            left_whole.add(id(split))
    return [split for split in splits if id(split) not in left_whole]
