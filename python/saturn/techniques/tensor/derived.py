"""Derive a plan for models that bring none, from the names of their attention and MLP layers.

Query, key and value are split by heads, and the first layers of an MLP by their outputs. The layer
after either is split by its inputs, so the code between runs on parts. An attention module often
holds the number of its heads and their total width; on a rank these are smaller (`OwnSizes`).

Names and sizes only make it likely that a derived plan is right. As for every plan, the check
(`check`) finds out before a step is trained. If the plan is wrong, there is still a plan for the
MLPs alone, or for the attention alone.

Unknown modules stay whole: embeddings, output layers, and layers of other kinds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from torch import nn

from saturn.techniques.tensor.styles import SUMMED, kind_of

#: The parts of a model that can be split independently.
ATTENTION, MLP = "attention", "mlp"

# Names of attention layers in the module that holds them.
_QUERIES = (
    *("q_proj", "query", "q", "q_lin", "q_linear", "query_proj", "Wq", "wq", "to_q", "q_attn"),
    "pos_query_proj",  # for positions, in DeBERTa
)
_KEYS = (
    *("k_proj", "key", "k", "k_lin", "k_linear", "key_proj", "Wk", "wk", "to_k"),
    "pos_key_proj",
)
_VALUES = ("v_proj", "value", "v", "v_lin", "v_linear", "value_proj", "Wv", "wv", "to_v")
#: A layer for query, key and value together; in cross-attention, for key and value.
_FUSED = ("c_attn", "qkv", "Wqkv", "qkv_proj", "in_proj")
_OUTPUTS = (
    *("o_proj", "out_proj", "o", "out", "out_lin", "c_proj", "Wo", "wo", "to_out", "dense"),
    *("proj", "projection", "output_proj"),
)
#: Names of the output layer, relative to the parent of the module that holds the others.
_OUTPUTS_BESIDE = ("output.dense", "out_proj", "o_proj")
#: Embeddings whose vectors have one number for each head.
_BIASES_BY_HEAD = ("relative_attention_bias",)
#: Names of a head's width in an attention module.
_HEAD_WIDTHS = ("head_dim", "attention_head_size", "key_value_proj_dim", "head_size", "d_kv")
#: Endings of names for a number of heads.
_NUM_HEADS = ("heads", "n_head", "num_head", "nhead")
#: Names of the width of all heads together.
_WIDTHS = (
    "all_head_size",
    "split_size",
    "inner_dim",
    "embed_dim",
    "hidden_size",
    "d_model_size",
    "dim",
)

#: Names of an MLP's first layers and of its last, relative to the module that holds them.
_MLPS: Sequence[tuple[tuple[str, ...], str]] = (
    (("gate_proj", "up_proj"), "down_proj"),
    (("up_proj",), "down_proj"),
    (("wi_0", "wi_1"), "wo"),
    (("wi",), "wo"),
    (("w1", "w3"), "w2"),
    (("w1",), "w2"),
    (("fc1",), "fc2"),
    (("c_fc",), "c_proj"),
    (("fc_in",), "fc_out"),
    (("lin1",), "lin2"),
    (("linear1",), "linear2"),
    (("layer_1",), "layer_2"),
    (("up",), "down"),
    (("ffn",), "ffn_output"),
    (("Wi",), "Wo"),
    (("weights_in",), "weights_out"),
    (("pwconv1",), "pwconv2"),
    (("dense_h_to_4h",), "dense_4h_to_h"),
    (("intermediate_dense",), "output_dense"),
    (("intermediate.dense",), "output.dense"),
)


@dataclass(frozen=True)
class OwnSizes:
    """Numbers of an attention module that are smaller on a rank when the module is split."""

    module: nn.Module
    whole: Mapping[str, int]

    def divide(self, by: int) -> None:
        """Set the module's numbers to 1/`by` of their values; 1 restores them."""
        for name, value in self.whole.items():
            setattr(self.module, name, value // by)


@dataclass(frozen=True)
class DerivedSplit:
    """A module of a derived plan, its style, and the number of pieces it can be cut into."""

    name: str
    module: nn.Module
    style: str
    units: int
    units_are: str


@dataclass
class Derived:
    """The parts of a model that can be split, under `ATTENTION` and `MLP`."""

    splits: dict[str, list[DerivedSplit]] = field(default_factory=dict)
    sizes: list[OwnSizes] = field(default_factory=list)

    def _add(self, part: str, splits: Sequence[DerivedSplit]) -> None:
        self.splits.setdefault(part, []).extend(splits)


def derive(model: nn.Module) -> Derived:
    """Derive a model's splits; each module occurs at most once."""
    found = Derived()
    taken: set[int] = set()
    by_name = dict(model.named_modules())
    for name, holder in by_name.items():
        beside = by_name[name.rpartition(".")[0]] if name else holder
        attention = _attention(name, holder, beside)
        blocks = [(ATTENTION, attention[0])] if attention is not None else []
        blocks += [(MLP, splits) for splits in _mlps(name, holder)]
        for part, splits in blocks:
            ids = {id(split.module) for split in splits}
            if not ids & taken:
                taken |= ids
                found._add(part, splits)
                if part == ATTENTION and attention is not None:
                    found.sizes.append(attention[1])
    return found


def _attention(
    name: str, holder: nn.Module, beside: nn.Module
) -> tuple[list[DerivedSplit], OwnSizes] | None:
    """The layers of an attention module; None if it is none, or of an unknown kind."""
    queries, keys, values = (_linears(holder, names) for names in (_QUERIES, _KEYS, _VALUES))
    fused = _linears(holder, _FUSED)
    outer = name.rpartition(".")[0]
    outputs = [(_join(name, each), layer) for each, layer in _linears(holder, _OUTPUTS)] or [
        (_join(outer, each), layer) for each, layer in _linears(beside, _OUTPUTS_BESIDE)
    ]
    is_separate = bool(queries and keys and values)
    if not outputs or is_separate == bool(fused) or len(fused) > 1:
        return None
    output_name, output = outputs[0]
    width, _ = _sizes(output)
    head_width = _head_width(holder, width)
    if head_width is None:
        return None
    splits = [_by_head(output_name, output, "rowwise", width, head_width)]
    for each, layer in (*queries, *keys, *values):
        features = _sizes(layer)[1]
        splits.append(_by_head(_join(name, each), layer, "colwise", features, head_width))
    for each, layer in fused:
        features = _sizes(layer)[1]
        # With a separate query (in cross-attention), the fused layer has only key and value.
        parts = 2 if queries else 3
        if features != parts * width:
            return None
        style = "colwise_halves" if queries else "colwise_thirds"
        splits.append(_by_head(_join(name, each), layer, style, width, head_width))
    num_heads = width // head_width
    for child_name, child in holder.named_children():
        if child_name in _BIASES_BY_HEAD and kind_of(child) == "nn.Embedding":
            style = "embedding_parts"
        elif _is_norm_of_heads(child, head_width):
            style = SUMMED
        else:
            continue
        splits.append(DerivedSplit(_join(name, child_name), child, style, num_heads, "heads"))
    if any(split.units == 0 for split in splits):
        return None
    return splits, _own_sizes(holder, {split.units for split in splits}, width)


def _by_head(
    name: str, layer: nn.Module, style: str, features: int, head_width: int
) -> DerivedSplit:
    return DerivedSplit(
        name, layer, style, 0 if features % head_width else features // head_width, "heads"
    )


def _head_width(holder: nn.Module, width: int) -> int | None:
    """The width of a head, as the module says, or computed from its number of heads."""
    numbers = _numbers(holder)
    for name in _HEAD_WIDTHS:
        if (said := numbers.get(name, 0)) and width % said == 0:
            return said
    for name, number in numbers.items():
        if name.endswith(_NUM_HEADS) and number > 0 and width % number == 0:
            return width // number
    return None


def _is_norm_of_heads(child: nn.Module, head_width: int) -> bool:
    parameters = list(child.parameters())
    is_norm = "norm" in type(child).__name__.lower()
    return is_norm and bool(parameters) and all(p.shape == (head_width,) for p in parameters)


def _own_sizes(holder: nn.Module, heads: set[int], width: int) -> OwnSizes:
    return OwnSizes(
        holder,
        {
            name: number
            for name, number in _numbers(holder).items()
            if (name.endswith(_NUM_HEADS) and number in heads)
            or (name in _WIDTHS and number == width)
        },
    )


def _numbers(module: nn.Module) -> dict[str, int]:
    """The whole numbers among a module's attributes."""
    return {
        name: value
        for name, value in vars(module).items()
        if isinstance(value, int) and not isinstance(value, bool)
    }


def _mlps(name: str, holder: nn.Module) -> Iterator[list[DerivedSplit]]:
    """The splits of the MLP whose layers the module holds, if it holds one."""
    for first_names, last_name in _MLPS:
        firsts = _linears(holder, first_names)
        last = _linears(holder, (last_name,))
        if len(firsts) < len(first_names) or not last:
            continue
        features, outputs = _sizes(last[0][1])
        splits = [
            DerivedSplit(_join(name, last_name), last[0][1], "rowwise", features, "inputs"),
        ]
        for each, layer in firsts:
            inputs, inner = _sizes(layer)
            # A gate and the layer that it gates may be one layer with both outputs.
            is_fused = len(firsts) == 1 and inner == 2 * features
            if inputs != outputs or (inner != features and not is_fused):
                break
            style = "colwise_halves" if is_fused else "colwise"
            splits.append(DerivedSplit(_join(name, each), layer, style, features, "outputs"))
        else:
            yield splits
            return


def _linears(holder: nn.Module, names: Sequence[str]) -> list[tuple[str, nn.Module]]:
    """The linear layers of a module that have one of these names; adapters may wrap them."""
    found = []
    for name in names:
        module: nn.Module | None = holder
        for part in name.split("."):
            module = module._modules.get(part) if module is not None else None
        if module is not None and kind_of(_unwrapped(module)) in ("nn.Linear", "Conv1D"):
            found.append((name, module))
    return found


def _unwrapped(module: nn.Module) -> nn.Module:
    base = getattr(module, "base_layer", None)
    return base if isinstance(base, nn.Module) else module


def _sizes(layer: nn.Module) -> tuple[int, int]:
    """(inputs, outputs) of a linear layer."""
    layer = _unwrapped(layer)
    weight = layer.weight
    assert isinstance(weight, nn.Parameter)
    first, second = weight.shape
    return (first, second) if kind_of(layer) == "Conv1D" else (second, first)


def _join(outer: str, name: str) -> str:
    return f"{outer}.{name}" if outer else name
