"""Check by computing whether the loss of a task's batch is made of the losses of its parts.

The task's first samples go through the freshly built model, all at once and in unequal parts that
are cut as slices are. Three explanations are tried: parts count by their samples, by their labels
that aren't -100, or not at all, because losses add up. If the task has a `loss_weight`, only that
is tried. If the batch has integer labels, all is computed again with labels of other classes, and
with some of them -100: the task's own data may have such labels only in a later batch. If all that
is quick, more samples of the first batch are compared too.

Random draws are the same for every sample (see `steady`). Batch norm passes its inputs through,
because Saturn computes its statistics over the global batch in any case. Parameters and inputs are
float64 if the model's code allows it: real differences are then larger than rounding, whatever the
task's precision. Noise is added to the weights, because fresh weights may be special.

The forward's changes to the model, above all to its buffers, are compared too. Each part begins
with the same buffers as the whole, and must leave the same values in them.

Later batches are not checked, except for the number of their labels (see `slicing`).
"""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from saturn.data import nested, seeds
from saturn.data.slices import Data
from saturn.rank.exceptions import TaskError
from saturn.rank.failure import describe
from saturn.tasks.definition import TaskDefinition
from saturn.training.comparing import (
    Compared,
    PartRaisedError,
    compared,
    in_words,
    is_same,
    num_samples,
    texts,
)
from saturn.training.label_cases import (
    Classes,
    Counting,
    countings_of,
    with_ignored_labels,
    with_other_classes,
)
from saturn.training.model_changes import Changes
from saturn.training.slicing import GIVEN, LABELS, SAMPLES, SUMS, WHOLE, Slicing
from saturn.training.steady import WAYS, SteadyModel, TooSlowError

#: The number of samples that are compared in any case.
_MOST_SAMPLES = 4
#: If these were quick, the comparison is repeated with at most so many samples of the batch. It may
#: then take about so many seconds.
_MOST_COMPARED, _MOST_S = 64, 2.0
#: By how much sums over more samples may differ more.
_MORE_ROUNDING = 4.0


_LIMITED = (
    "its batches can't be cut: its gradients do not grow in proportion to the loss, since the "
    "backward pass limits them (a hook, or a backward of your own), and it would limit those of "
    "parts in another way. It takes one device, or a technique that keeps batches whole, such as "
    "`tensor`"
)


def check(
    definition: TaskDefinition,
    build: Callable[[], nn.Module],
    data: Data,
    *,
    device: torch.device,
    limit_s: float | None = None,
) -> Slicing:
    """How the batches of a task may be sliced.

    `build` makes the model on the CPU, as often as it is called; the model computes on `device`.
    Raises `TooSlowError` if the check would take more than `limit_s` seconds. If the task's
    functions raise on the whole of the samples, the result says that it is unchecked.
    """
    until = None if limit_s is None else time.monotonic() + limit_s
    with seeds.forked():
        try:
            parts = data.parts_of_first(_MOST_SAMPLES)
        except nested.CutError as error:
            return Slicing(WHOLE, reason=f"its batches can't be cut: {error}")
        except TaskError as error:
            return _unchecked(definition, str(error))
        reason = ""
        found: Slicing | str
        for way in WAYS:
            model = SteadyModel(definition, build, device, way, until)
            found = _found(definition, model, parts, data.parts_of_first)
            del model
            if isinstance(found, Slicing):
                break
            reason = reason or found
            gc.collect()  # free this model before the next is built
        else:
            found = _unchecked(definition, reason)
        return replace(
            found,
            draws_in_collating=data.draws_in_collating,
            samples_first=found.samples_first and _sizes_add_up(parts),
        )


def _found(
    definition: TaskDefinition,
    model: SteadyModel,
    parts: Sequence[Any],
    more_parts: Callable[[int], Sequence[Any]],
) -> Slicing | str:
    """The finding with this way of computing, or a text that says why there is none."""
    try:
        whole = model.loss(parts[0])
    except TooSlowError:
        raise
    except Exception as error:  # the task's code is used in an unusual way, so may raise anything
        if describe(error).kind == "out_of_memory" and not model.is_largest:
            # The other ways need at least as much memory.
            return _unchecked(definition, f"the model does not fit its device: {in_words(error)}")
        return in_words(error)
    if not math.isfinite(whole):
        return f"the loss of the first samples is {whole}"
    of_whole = model.changed
    if len(parts) == 1:  # a single sample can't be cut
        may_cut = _are_rows_alike(definition, model, whole, parts[0])
        return replace(_uncut(definition), changes_buffers=bool(of_whole), samples_first=may_cut)
    if model.is_training and of_whole and (reason := _followed(model, of_whole, parts)):
        return Slicing(WHOLE, reason=reason, changes_buffers=True)
    found = _judged(definition, model, whole, parts, more_parts)
    found = replace(found, changes_buffers=bool(of_whole))
    if model.is_training and found.kind != WHOLE:
        layers, others = _skips(model, parts)
        found = replace(found, skips_layers=layers, skips_parts=others)
        if model.limits_gradients(parts[0]):
            return Slicing(WHOLE, reason=_LIMITED, changes_buffers=bool(of_whole))
    if found.kind == WHOLE:
        again = model.loss(parts[0], seed=1)
        if not is_same(whole, again, model.tolerance * abs(whole)):
            one, other = _told_apart(whole, again)
            return f"the loss of the same samples is {one}, and {other} the next time"
    return found


def _sizes_add_up(parts: Sequence[Any]) -> bool:
    """Whether the parts divide the first dimension of the whole, as they divide its samples."""
    sizes = [nested.num_samples(part) or 0 for part in parts]
    return len(parts) == 1 or sum(sizes[1:]) == sizes[0]


def _are_rows_alike(
    definition: TaskDefinition, model: SteadyModel, whole: float, batch: Any
) -> bool:
    """Whether the loss of a batch that is a single sample is made of the losses of its rows.

    It is if the sample is a ready-made batch, and may not be if its rows follow each other in time.
    """
    rows = nested.num_samples(batch) or 0
    if rows < 2:
        return True
    try:
        cut = [nested.take(batch, 0, 1), nested.take(batch, 1, rows)]
    except nested.CutError:
        return False
    return _judged(definition, model, whole, [batch, *cut]).kind != WHOLE


def _skips(model: SteadyModel, parts: Sequence[Any]) -> tuple[bool, bool]:
    """Whether a forward skips layers, and other parts, for some draws or some samples."""
    try:
        paths = model.paths(parts)
    except TooSlowError:
        raise
    except Exception:  # such as a part without a loss; the whole has been computed before
        return False, False
    used = set(paths[0])
    by_layer = [[layer for name in path if (layer := model.layer_of(name))] for path in paths]
    layers = [list(dict.fromkeys(path)) for path in by_layer]
    skips_layers = any(path != layers[0] for path in layers)
    return skips_layers, any(set(path) != used for path in paths)


def _followed(model: SteadyModel, of_whole: Changes, parts: Sequence[Any]) -> str | None:
    """Why batches can't be cut if a forward's changes depend on its batch; None if they don't."""
    changes = model.changes
    assert changes is not None, "the whole has been computed"
    for part in parts[1:]:
        try:
            model.loss(part)
        except TooSlowError:
            raise
        except Exception:  # a part has no loss; `_judged` will say more
            return None
        of_part = model.changed
        for name in changes.apart(of_whole, of_part):
            if changes.is_saved(name) or _shows(model, of_whole, of_part, parts[0]):
                sizes = f"{num_samples(parts[0]):g} samples and that of {num_samples(part):g}"
                return (
                    f"its batches can't be cut: a forward changes {changes.in_words(name)} by what "
                    f"is in the batch (that of {sizes} of them leave different values), so each "
                    "device would have another of its own. It takes one device, or a technique "
                    "that keeps batches whole, such as `tensor`"
                )
    return None


def _shows(model: SteadyModel, one: Changes, other: Changes, batch: Any) -> bool:
    """Whether the next loss depends on which of two changes a forward has made.

    Buffers that aren't saved may be caches, such as of positions up to the longest row so far.
    """
    first, second = (model.loss(batch, after=after) for after in (one, other))
    return not is_same(first, second, model.tolerance * abs(first))


def _uncut(definition: TaskDefinition) -> Slicing:
    return Slicing(SAMPLES if definition.loss_weight is None else GIVEN)


def _unchecked(definition: TaskDefinition, reason: str) -> Slicing:
    return replace(_uncut(definition), unchecked=reason)


def _judged(
    definition: TaskDefinition,
    model: SteadyModel,
    whole: float,
    parts: Sequence[Any],
    more_parts: Callable[[int], Sequence[Any]] | None = None,
) -> Slicing:
    """How the loss of `parts[0]` is made of the losses of the other parts.

    `more_parts` gives as many more samples as it is asked for, in parts of the same kind.
    """
    began = time.monotonic()
    try:
        first = compared(model, whole, parts[1:])
        a_sample_s = (time.monotonic() - began) / max(1.0, num_samples(parts[0]))
        first = replace(first, is_of_task=True)
        natural, cases = [first], _with_other_labels(definition, model, parts)
        if more_parts is not None and 2 * _MOST_COMPARED * a_sample_s < _MOST_S:
            natural += _of_more(model, more_parts(_MOST_COMPARED))
    except TooSlowError:
        raise
    except PartRaisedError as error:
        return Slicing(WHOLE, reason=str(error))
    cases = [case for case in (*natural, *cases) if math.isfinite(case.whole)]
    sizes_add_up = _sizes_add_up(parts)
    for candidate in _candidates(definition, parts[0], model.classes, sizes_add_up=sizes_add_up):
        weigh = candidate.weigher(definition) or num_samples
        explains = Compared.adds_up if candidate.adds_up else lambda case: case.is_made_by(weigh)  # noqa: B023
        if all(explains(case) for case in cases):
            return _by_samples_if_equal(candidate, natural) or candidate
    reason = _reason(definition, cases)
    alike = _while_all_labels_count(definition, natural, cases)
    if alike is not None:
        return replace(alike, whole_if_labels_differ=reason)
    return Slicing(WHOLE, reason=reason)


def _of_more(model: SteadyModel, parts: Sequence[Any]) -> list[Compared]:
    """A comparison of more samples; none if there are no more, or if they can't be computed.

    More samples show what a few don't: a rare class, rows of another length, a loss that keeps the
    largest losses of a batch.
    """
    if len(parts) == 1 or num_samples(parts[0]) <= _MOST_SAMPLES:
        return []
    try:
        whole = model.loss(parts[0])
    except TooSlowError:
        raise
    except Exception:  # they may not fit the device
        return []
    case = compared(model, whole, parts[1:])
    return [replace(case, tolerance=_MORE_ROUNDING * case.tolerance, is_of_task=True)]


def _with_other_labels(
    definition: TaskDefinition, model: SteadyModel, parts: Sequence[Any]
) -> list[Compared]:
    """Comparisons with other labels than the task's first samples have."""
    # Only the task's own data shows what its `loss_weight` makes of other labels.
    if definition.loss_weight is not None or not model.takes_odd_labels:
        return []
    cases = []
    for other in with_other_classes(parts, model.classes, may_guess=model.computes_losses_on_cpu):
        try:
            whole = model.loss(other[0], has_odd_labels=True)
        except TooSlowError:
            raise
        except Exception:  # the loss does not know these classes
            continue
        cases.append(compared(model, whole, other[1:], has_odd_labels=True))
    for counting, masked in with_ignored_labels(parts, model.classes):
        try:
            whole = model.loss(masked[0], has_odd_labels=True)
            case = compared(model, whole, masked[1:], has_odd_labels=True)
        except TooSlowError:
            raise
        except Exception:  # a loss that doesn't know ignored labels will never meet any
            continue
        cases.append(replace(case, ignoring=counting))
    return cases


def _while_all_labels_count(
    definition: TaskDefinition, natural: Sequence[Compared], cases: Sequence[Compared]
) -> Slicing | None:
    """The finding if samples count alike as long as none of their labels is ignored; else None.

    `natural` are the comparisons of the task's own samples. An example is a mean over labels plus a
    penalty that is a mean over samples. With ignored labels, the two are means over different
    things, and no weight serves both.
    """
    if definition.loss_weight is not None:
        return None
    odd = {case.ignoring for case in cases if not case.is_made_by(num_samples)}
    counting = odd.pop() if len(odd) == 1 else None
    return None if counting is None else _by_samples_if_equal(_counted_by(counting), natural)


def _counted_by(counting: Counting, first_label: int = 0) -> Slicing:
    return Slicing(
        LABELS,
        labels=counting.name,
        first_label=first_label,
        ignored=counting.ignored,
        is_mask=counting.is_mask,
    )


def _by_samples_if_equal(found: Slicing, natural: Sequence[Compared]) -> Slicing | None:
    """`found`, counted by samples while all have equally many labels: ranks then needn't sum."""
    if found.kind != LABELS:
        return None
    batches = [part for case in natural for part in case.batches]
    each = {found.counted_labels(part) / num_samples(part) for part in batches}
    number = each.pop()
    if each or not number.is_integer():
        return None
    return replace(found, kind=SAMPLES, labels_each=int(number))


def _candidates(
    definition: TaskDefinition, batch: Any, classes: Collection[Classes], *, sizes_add_up: bool
) -> Iterator[Slicing]:
    if definition.loss_weight is not None:
        yield Slicing(GIVEN)
        return
    yield Slicing(SAMPLES)
    arrays = dict(nested.arrays(batch))
    for counting in countings_of(batch, classes):
        for first_label in (0, 1) if arrays[counting.name].dim() > 1 else (0,):
            yield _counted_by(counting, first_label)
    # A sum is scaled by the samples of a slice: its batches must have them in the first dimension.
    if sizes_add_up:
        yield Slicing(SUMS)


def _reason(definition: TaskDefinition, cases: Sequence[Compared]) -> str:
    weigh = definition.loss_weight or num_samples
    case = next((case for case in cases if not case.is_made_by(weigh)), cases[0])
    where = "" if case.is_of_task else " where labels are of other classes"
    if (ignoring := case.ignoring) is not None:
        where = f" where some {ignoring.in_words} are {ignoring.ignored}"
    sizes = [nested.num_samples(batch) or 0 for batch in case.batches]
    total = sum(float(weigh(batch)) for batch in case.batches)
    mean = (
        sum(
            float(weigh(batch)) * loss
            for batch, loss in zip(case.batches, case.losses, strict=True)
            if weigh(batch)
        )
        / total
        if total
        else math.nan
    )
    together, apart = _told_apart(case.whole, mean)
    by = "`loss_weight`" if definition.loss_weight is not None else "samples"
    advice = (
        "correct `loss_weight`"
        if definition.loss_weight is not None
        else "say `loss_weight=` (what a batch counts, such as the number of its tokens)"
    )
    return (
        f"its batches can't be cut{where}: the loss of {sum(sizes)} samples together is "
        f"{together}, the mean of {texts(sizes)} by themselves is {apart} (weighted by {by}). "
        f"Where the loss is a mean over something else, {advice}; where it compares samples with "
        "each other, as a contrastive loss or the balance of experts does, it takes one device, or "
        "a technique that keeps batches whole, such as `tensor`"
    )


def _told_apart(one: float, other: float) -> tuple[str, str]:
    """Two numbers in few digits, or in all digits if few would show them as equal."""
    texts = f"{one:.6g}", f"{other:.6g}"
    return texts if texts[0] != texts[1] else (repr(one), repr(other))
