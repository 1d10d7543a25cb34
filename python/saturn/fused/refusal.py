"""Why tasks can't be fused: a reason for programs, and a sentence for people."""

from __future__ import annotations

from enum import Enum

from saturn.rank.exceptions import NotApplicable


class Reason(Enum):
    """Each reason why a task can't be fused, at all or with another task."""

    #: It is no model of transformers.
    MODEL = "model"
    #: Its attention can't be computed for each member apart.
    ATTENTION = "attention"
    #: Its layers hold a module that computes over all rows of a batch, or a module of another kind.
    LAYERS = "layers"
    #: Somebody else's hook is in the layers, and would see the rows of other members.
    HOOKS = "hooks"
    #: No weight of the layers is frozen, so nothing is shared.
    NOTHING_FROZEN = "nothing_frozen"
    #: A knob changes the layers in a way that is not provided for.
    KNOBS = "knobs"
    #: The tasks have models of different classes.
    OTHER_CLASS = "other_class"
    #: The tasks' models have different configurations.
    OTHER_CONFIGURATION = "other_configuration"
    #: The tasks train in different precision, or by other settings of torch's kernels.
    OTHER_PRECISION = "other_precision"
    #: The tasks compute attention by different back ends.
    OTHER_ATTENTION = "other_attention"
    #: Only some of the tasks recompute activations.
    OTHER_RECOMPUTATION = "other_recomputation"
    #: A frozen weight differs.
    OTHER_WEIGHTS = "other_weights"
    #: A layer is called with arguments of which nobody knows to whom they belong.
    ARGUMENTS = "arguments"
    #: A step of the group is not the step that a task takes alone.
    OTHER_NUMBERS = "other_numbers"


class CannotFuse(NotApplicable):
    """A task can't be fused; the message says why, in words."""

    def __init__(self, reason: Reason, text: str) -> None:
        super().__init__(f"it can't train with others over one base: {text}")
        self.reason = reason
