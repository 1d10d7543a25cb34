"""Take the arguments of a call apart, and put them together again.

This does the same as torch's tree functions. It is faster if nothing is nested, as in most calls of
layers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch.utils import _pytree as pytree

_CONTAINERS = (tuple, list, dict)


class Arguments:
    """The arguments of one call: their leaves and their structure."""

    leaves: list[Any]

    def __init__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Take tuples, lists and mappings apart; any other value is a leaf."""
        self._num_args, self._names = len(args), tuple(kwargs)
        self._structure: pytree.TreeSpec | None = None
        self.leaves = [*args, *kwargs.values()]
        if any(isinstance(leaf, _CONTAINERS) for leaf in self.leaves):
            self.leaves, self._structure = pytree.tree_flatten((args, kwargs), is_leaf=_is_leaf)

    @property
    def layout(self) -> tuple[int, tuple[str, ...]] | None:
        """Equal for calls with the same structure; None if arguments are nested."""
        return None if self._structure is not None else (self._num_args, self._names)

    def rebuilt(self, leaves: Sequence[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Arguments with the same structure and other leaves."""
        if self._structure is not None:
            args, kwargs = pytree.tree_unflatten(leaves, self._structure)
            return args, kwargs
        number = self._num_args
        return tuple(leaves[:number]), dict(zip(self._names, leaves[number:], strict=True))


def map_leaves(function: Callable[[Any], Any], tree: Any) -> Any:
    """`tree` with `function` applied to its leaves."""
    return function(tree) if _is_leaf(tree) else pytree.tree_map(function, tree, is_leaf=_is_leaf)


def _is_leaf(value: Any) -> bool:
    return not isinstance(value, _CONTAINERS)
