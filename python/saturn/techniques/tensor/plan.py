"""Which modules of a model are split over the ranks of a tensor group, and how: its plan.

A plan maps patterns of module names to styles. It comes from the task's hint `tensor_plan`, or from
the model, where transformers gives it one. Patterns are matched name by name between the dots:
`layers.*.up` means `layers.0.up`, `layers.1.up` and so on.

This file reads plans and says what is wrong with them. It changes no module and needs no process
group.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from torch import nn
from torch.distributed.tensor import Replicate
from torch.distributed.tensor.parallel import ColwiseParallel, ParallelStyle, RowwiseParallel

from saturn.techniques.interface import NotApplicable

#: The hint with a task's own plan.
HINT = "tensor_plan"
#: Styles of modules that stay whole. `SUMMED` stand between split ones and see only this rank's
#: part of the values, such as the norm of each attention head: their gradients must be summed.
WHOLE, SUMMED = "replicate", "replicated_with_grad_allreduce"


@dataclass(frozen=True)
class _Style:
    make: Callable[[], ParallelStyle]
    dimension: int  # of the weight, which is split along it
    #: Takes and gives whole values, so it can be left out without the rest of the plan noticing.
    alone: bool


_COLUMNS = _Style(ColwiseParallel, 0, alone=False)
_ROWS = _Style(RowwiseParallel, 1, alone=False)
_COLUMNS_ALONE = _Style(lambda: ColwiseParallel(output_layouts=Replicate()), 0, alone=True)
_ROWS_ALONE = _Style(lambda: RowwiseParallel(input_layouts=Replicate()), 1, alone=True)
# An embedding's weight lies the other way round: (inputs, outputs).
_VECTORS = _Style(lambda: RowwiseParallel(input_layouts=Replicate()), 0, alone=True)
_VECTOR_PARTS = _Style(lambda: ColwiseParallel(output_layouts=Replicate()), 1, alone=True)

#: What a plan may say of each kind of module; the names are those of transformers.
_STYLES: Mapping[type[nn.Module], Mapping[str, _Style]] = {
    nn.Linear: {
        "colwise": _COLUMNS,
        "rowwise": _ROWS,
        "colwise_gather_output": _COLUMNS_ALONE,
        "colwise_rep": _COLUMNS_ALONE,
        "rowwise_split_input": _ROWS_ALONE,
        "rowwise_rep": _ROWS_ALONE,
    },
    nn.Embedding: {
        "embedding_rowwise": _VECTORS,
        "embedding_colwise": _VECTOR_PARTS,
    },
}
_KNOWN = (*_STYLES[nn.Linear], *_STYLES[nn.Embedding], SUMMED, WHOLE)


@dataclass(frozen=True)
class ModuleSplit:
    """One module of a plan."""

    name: str
    module: nn.Module
    #: How torch splits it; None where it stays whole.
    style: ParallelStyle | None
    #: Which dimension of its weight is split; None where none is, or only the style knows.
    dimension: int | None = None
    #: Whether it may be left whole, whatever the rest of the plan says.
    alone: bool = False
    #: Whether it stays whole and its gradients are summed over the ranks.
    summed: bool = False
    #: How many equal pieces there can be, and what they are: "heads" and so on.
    units: int = 0
    units_are: str = ""


class TensorPlan:
    """The plan of one model, its patterns resolved."""

    def __init__(self, module: nn.Module, hints: Mapping[str, Any]) -> None:
        """Raises `NotApplicable` where there is no plan, or one that can't be carried out."""
        hint = hints.get(HINT)
        entries = _from_model(module) if hint is None else _from_hint(module, hint)
        splits = [
            _resolve(module, *each)
            for name, part, style in entries
            for each in _within_adapter(name, part, style)
        ]
        self._splits = _with_weights_shared_alike(module, splits)
        if not any(split.style is not None for split in self._splits):
            raise NotApplicable(f"the plan of {type(module).__name__} leaves every module whole")

    def splits(self, size: int) -> list[ModuleSplit]:
        """The modules to treat for `size` ranks: those that don't divide stay whole if they may."""
        return [split for split in self._splits if not (split.alone and split.units % size)]

    def num_parts(self, module: nn.Module, size: int) -> dict[int, int]:
        """By the id of each parameter of `module`, over how many of `size` devices it is split."""
        styled = {id(split.module): split for split in self.splits(size) if split.style is not None}
        parts: dict[int, int] = {}
        for part in module.modules():
            split = styled.get(id(part))
            for name, parameter in part.named_parameters(recurse=False):
                # A bias goes with the outputs, which are the weight's first dimension. What a style
                # of the task's own splits only that style knows: it is taken to split all.
                is_split = split is not None and (name == "weight" or split.dimension != 1)
                parts[id(parameter)] = size if is_split else 1
        return parts

    def indivisible(self, size: int) -> str | None:
        """Why the model can't be split over `size` devices, with the sizes that would do."""
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


#: Name, module, and what the plan says of it.
_Entry = tuple[str, nn.Module, Any]


def _from_hint(module: nn.Module, hint: Any) -> Iterator[_Entry]:
    if not isinstance(hint, Mapping) or not hint:
        raise NotApplicable(
            f"the hint `{HINT}` is {hint!r}; it must map patterns of module names to styles, such "
            'as {"layers.*.up": "colwise", "layers.*.down": "rowwise"}'
        )
    for pattern, style in hint.items():
        if not isinstance(style, ParallelStyle) and style not in _KNOWN:
            raise NotApplicable(
                f"the hint `{HINT}` says {style!r} of `{pattern}`; it may say "
                f"{', '.join(_KNOWN)}, or be a ParallelStyle of torch"
            )
        found = _matching(module, pattern)
        if not found:
            raise NotApplicable(
                f"the hint `{HINT}` names `{pattern}`, and no module of "
                f"{type(module).__name__} is called so"
            )
        yield from ((name, part, style) for name, part in found.items())


def _from_model(module: nn.Module) -> Iterator[_Entry]:
    """The plans that transformers puts on its models: this one, or those that it wraps.

    Wrapped by the user, or by PEFT, whose adapters stand in the place of single layers.
    """
    planned: list[str] = []
    for outer, model in module.named_modules():
        # Its own, not one that it has of what it wraps, whose names begin further in.
        is_own = inspect.getattr_static(model, "tp_plan", None) is not None
        plan = getattr(model, "tp_plan", None) if is_own else None
        if not isinstance(plan, Mapping) or not plan:
            continue
        if any(outer.startswith(prefix) for prefix in planned):
            continue  # a part of one that has been seen, whose plan covers it
        prefix = f"{outer}." if outer else ""
        planned.append(prefix)
        for pattern, style in plan.items():
            found = _matching(model, pattern)
            parameter = any(_matches(name, pattern) for name, _ in model.named_parameters())
            if (found and style not in _KNOWN) or (parameter and style != WHOLE):
                raise NotApplicable(
                    f"the plan that {type(model).__name__} brings splits `{pattern}` as "
                    f"`{style}`, for which torch has no style; the hint `{HINT}` can give another"
                )
            # Plans name modules that only some sizes of a model have.
            yield from ((prefix + name, part, style) for name, part in found.items())
    if not planned:
        raise NotApplicable(_no_plan(module))


def _within_adapter(name: str, module: nn.Module, style: Any) -> Iterator[_Entry]:
    """What a style of a layer means where PEFT's LoRA has wrapped it: of its parts, the same.

    Its output is that of the layer itself, plus B(A(x)). Of a layer split by its outputs, B is
    split alike, and A is whole; by its inputs, A is, and B is whole.
    """
    base = getattr(module, "base_layer", None)
    if not isinstance(base, nn.Module):
        yield name, module, style
        return
    if isinstance(style, ParallelStyle):
        raise NotApplicable(
            f"the plan says {style!r} of `{name}`, which an adapter wraps; only the styles that "
            "have a name are known for that"
        )
    yield f"{name}.base_layer", base, style
    # All other styles take and give whole values, as the adapter does.
    split = {"colwise": "lora_B", "rowwise": "lora_A"}.get(style)
    for held, part in getattr(module, split, {}).items() if split else ():
        yield f"{name}.{split}.{held}", part, style


def _no_plan(module: nn.Module) -> str:
    kind = type(module).__name__
    if any(type(part).__name__ == "Conv1D" for part in module.modules()):
        return (
            f"{kind} brings no plan, and its layers are Conv1D, which can't be split: only "
            "nn.Linear and nn.Embedding can"
        )
    return (
        f"{kind} brings no plan; the hint `{HINT}` can give one, such as "
        f'hints={{"{HINT}": {{"layers.*.up": "colwise", "layers.*.down": "rowwise"}}}}'
    )


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


def _resolve(model: nn.Module, name: str, module: nn.Module, said: Any) -> ModuleSplit:
    if said in (WHOLE, SUMMED):
        return ModuleSplit(name, module, None, summed=said == SUMMED)
    if isinstance(said, ParallelStyle) and not isinstance(said, ColwiseParallel | RowwiseParallel):
        return ModuleSplit(name, module, said)
    style = _style(name, module, said)
    weight = module.weight
    assert isinstance(weight, nn.Parameter)
    units, units_are = (
        weight.shape[style.dimension],
        "outputs" if style.dimension == 0 else "inputs",
    )
    if not style.alone and (heads := _heads(_parent(model, name), units)):
        units, units_are = heads, "heads"
    return ModuleSplit(
        *(name, module, style.make(), style.dimension, style.alone),
        units=units,
        units_are=units_are,
    )


def _parent(model: nn.Module, name: str) -> nn.Module:
    """What the module of this name belongs to; of an adapter's parts, what the adapter does."""
    parent = model.get_submodule(name.rpartition(".")[0])
    while name and (isinstance(parent, nn.ModuleDict) or hasattr(parent, "base_layer")):
        name = name.rpartition(".")[0]
        parent = model.get_submodule(name.rpartition(".")[0])
    return parent


def _heads(attention: nn.Module, features: int) -> int | None:
    """How many heads `features` are, if any: a head is never cut.

    Attention sees its values as (…, heads, head_dim), and says in numbers how many there are.
    """
    head_dim = getattr(attention, "head_dim", None)
    for said in (attention, getattr(attention, "config", None)):
        for attribute, heads in getattr(said, "__dict__", {}).items():
            whole = isinstance(heads, int) and isinstance(head_dim, int) and heads > 0
            if whole and "head" in attribute and heads * head_dim == features:
                return int(heads)
    return None


def _style(name: str, module: nn.Module, said: str | ParallelStyle) -> _Style:
    kind = next((kind for kind in _STYLES if isinstance(module, kind)), None)
    if kind is None:
        raise NotApplicable(
            f"the plan splits `{name}`, which is a {type(module).__name__}; only nn.Linear and "
            "nn.Embedding can be split"
        )
    if isinstance(said, ParallelStyle):
        rows = isinstance(said, RowwiseParallel)
        return _Style(lambda: said, int(rows != (kind is nn.Embedding)), alone=False)
    if said not in _STYLES[kind]:
        raise NotApplicable(
            f"the plan says `{said}` of `{name}`, which is an nn.{kind.__name__}; that can be "
            f"{', '.join(_STYLES[kind])}"
        )
    return _STYLES[kind][said]


def _with_weights_shared_alike(
    module: nn.Module, splits: Sequence[ModuleSplit]
) -> list[ModuleSplit]:
    """The splits, without those of weights that other modules share and would split otherwise."""
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
