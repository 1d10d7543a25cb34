"""Pairs: what a task may have and what may happen to it, and cases that together have every pair.

A *case* has one value of each factor. Two values that can't go together are a `Rule`, with its
reason. Every other pair of values is in at least one case: a covering array of strength two.

    python tests/python/pairs.py            lists the cases
    python tests/python/pairs.py --table    writes docs/pairs.md
"""

from __future__ import annotations

import argparse
import functools
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from covertable import Controller

#: The first value of a factor is the plain one.
FACTORS: dict[str, tuple[str, ...]] = {
    "kind": ("managed", "trainer", "trl", "script", "black box"),
    "dropout": ("no dropout", "dropout"),
    "norm": ("no norm", "batch norm"),
    "buffer": ("no buffer", "counter", "running mean"),
    "weights": ("all trained", "tied", "frozen", "lora"),
    "evaluation": ("not evaluated", "evaluated", "best kept"),
    "accumulation": ("each batch", "accumulated"),
    "clipping": ("not clipped", "clipped"),
    "schedule": ("constant", "one cycle", "by lambda"),
    "precision": ("float32", "bf16", "fp16"),
    "data": ("in order", "shuffled", "stream", "drawing collator"),
    "last": ("whole batches", "short last batch"),
    "fault": ("no fault", "nan", "explosion", "exception"),
    "happening": (
        "nothing",
        "trial that goes on",
        "move",
        "planned switch",
        "stopped by a search",
        "pause",
        "cancel",
        "resume after a kill",
        "full disk",
        "lost node",
        "two devices",
        "another technique",
    ),
}

#: What a factor's value is in words, where its name does not say.
IN_WORDS = {
    "counter": "a buffer that counts batches, which the forward uses",
    "running mean": "a buffer that follows the batch and is used before it is updated",
    "lora": "adapters by PEFT; all other weights are frozen",
    "best kept": "the checkpoint of the best evaluation is kept",
    "accumulated": "two batches make a step",
    "drawing collator": "the collate function adds noise that it draws",
    "whole batches": "`drop_last`, or a number of samples that batches divide",
    "nan": "from some step on the loss is NaN",
    "explosion": "a learning rate at which weights grow without bound",
    "exception": "a sample of the data set raises when it is fetched",
    "trial that goes on": "a trial's steps are the task's first steps",
    "move": "stopped at a checkpoint, then trained on elsewhere under the same strategy",
    "planned switch": "stopped at a planned step, then trained on under another strategy",
    "stopped by a search": "stopped at a checkpoint, and never trained on",
    "pause": "stopped at a checkpoint, and trained on later",
    "cancel": "ended at a step",
    "resume after a kill": "all processes killed after a checkpoint, then trained on",
    "full disk": "no checkpoint can be written until there is room again",
    "lost node": "two ranks on two nodes, of which one dies",
    "two devices": "two data-parallel ranks from start to end",
    "another technique": "another technique from start to end",
}


@dataclass(frozen=True)
class Rule:
    """Values that can't go together: any of `values` of one factor with any of another's."""

    factor: str
    values: tuple[str, ...]
    other: str
    others: tuple[str, ...]
    reason: str

    def forbids(self, case: dict[str, str]) -> bool:
        return case.get(self.factor) in self.values and case.get(self.other) in self.others


RULES = (
    Rule(
        *("kind", ("trl",), "norm", ("batch norm",)),
        "TRL's trainers train language models of transformers, and none has batch norm",
    ),
    Rule(
        *("kind", ("trl",), "buffer", ("counter", "running mean")),
        "TRL's trainers train language models of transformers, whose forwards change no buffer",
    ),
    Rule(
        *("kind", ("trainer", "trl"), "data", ("stream",)),
        "`Task.from_trainer` refuses data sets without length: docs/trainer.md, Arguments",
    ),
    Rule(
        *("kind", ("trl",), "data", ("drawing collator",)),
        "SFTTrainer makes its own collator, which draws nothing",
    ),
    Rule(
        *("kind", ("trainer",), "data", ("drawing collator",)),
        "a Trainer's collator draws from Saturn's seeds, not as `train()` does (docs/trainer.md): "
        "there is no outside reference; test_drawing_trainers.py has it",
    ),
    Rule(
        *("kind", ("trainer", "trl"), "precision", ("fp16",)),
        "`Task.from_trainer` refuses `fp16`: test_trainers.py has the words",
    ),
    Rule(
        *("kind", ("black box",), "evaluation", ("evaluated", "best kept")),
        "black boxes are not tried for tasks with `evaluate`: docs/reference.md, Evaluation",
    ),
    Rule(
        *("kind", ("script",), "evaluation", ("best kept",)),
        "`Task.script` takes no `best`: a script's checkpoints are its own",
    ),
    Rule(
        *("kind", ("black box",), "happening", ("trial that goes on",)),
        "a black box's trial is a training of its own, and never goes on as the task's",
    ),
    Rule(
        *("kind", ("script",), "happening", ("planned switch", "another technique")),
        "a script trains by itself, under no technique",
    ),
    Rule(
        *("kind", ("black box",), "happening", ("planned switch", "another technique")),
        "a black box saves in its own way, which no other technique reads",
    ),
    Rule(
        *("kind", ("script", "black box"), "happening", ("lost node",)),
        "what a dead rank leaves behind is the script's or the black box's own affair; that its "
        "checkpoint counts is tried under `resume after a kill`",
    ),
)


@dataclass(frozen=True)
class Case:
    """One value of each factor."""

    values: tuple[str, ...]

    def __getitem__(self, factor: str) -> str:
        return self.values[list(FACTORS).index(factor)]

    def has(self, *values: str) -> bool:
        """Whether any of `values` is among its own; they differ from factor to factor."""
        return any(value in self.values for value in values)

    @property
    def is_trainers(self) -> bool:
        """Whether a Trainer's own `train()` is its reference."""
        return self["kind"] in ("trainer", "trl")

    @property
    def as_dict(self) -> dict[str, str]:
        return dict(zip(FACTORS, self.values, strict=True))

    @property
    def label(self) -> str:
        """The values that are not the plain ones; kind and happening in any case."""
        own = [
            value
            for factor, value in self.as_dict.items()
            if factor not in ("kind", "happening") and value != FACTORS[factor][0]
        ]
        return " + ".join([self["kind"], *own, self["happening"]])


Pair = tuple[tuple[str, str], tuple[str, str]]


def forbidden(values: dict[str, str]) -> Rule | None:
    """The rule that some of these values break."""
    return next((rule for rule in RULES if rule.forbids(values)), None)


def pairs() -> Iterator[Pair]:
    """Every pair of values of two factors, allowed or not."""
    for one, other in itertools.combinations(FACTORS, 2):
        for value, another in itertools.product(FACTORS[one], FACTORS[other]):
            yield (one, value), (other, another)


def allowed_pairs() -> list[Pair]:
    return [pair for pair in pairs() if forbidden(dict(pair)) is None]


def pairs_of(case: Case) -> Iterator[Pair]:
    yield from itertools.combinations(case.as_dict.items(), 2)


#: Kinds in which Saturn itself trains, so that each value of another factor is its own affair.
TRAINED_BY_SATURN = ("managed", "trainer")


@functools.cache
def cases() -> tuple[Case, ...]:
    """The same at each call, and on each machine: three covering arrays, one after the other.

    The first has every pair. But a fault hides what comes after it, and of a script Saturn knows
    little. So there are two more, of managed tasks and of Trainers, that have every pair of the
    other factors' values without a fault.
    """
    found = set(array(FACTORS))
    for kind in TRAINED_BY_SATURN:
        healthy = {"kind": (kind,), "fault": (FACTORS["fault"][0],)}
        found.update(array({**FACTORS, **healthy}))

    def place(case: Case) -> tuple[int, ...]:
        places = [values.index(case[factor]) for factor, values in FACTORS.items()]
        return (places[0], places[-1], *places)

    return tuple(sorted(found, key=place))


def array(factors: dict[str, tuple[str, ...]]) -> list[Case]:
    """Cases that together have every pair of values which the rules allow."""

    def constraint(rule: Rule) -> dict[str, Any]:
        sides = ((rule.factor, rule.values), (rule.other, rule.others))
        ins = [{"operator": "in", "left": name, "values": list(values)} for name, values in sides]
        return {"operator": "or", "conditions": [{"operator": "not", "condition": i} for i in ins]}

    listed = {name: list(values) for name, values in factors.items()}
    rows = Controller(listed, constraints=[constraint(rule) for rule in RULES]).make()
    return [Case(tuple(row[name] for name in FACTORS)) for row in rows]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--table", action="store_true", help="write docs/pairs.md")
    if parser.parse_args().table:
        import pairs_page

        pairs_page.write()
        return
    for case in cases():
        print(case.label)


if __name__ == "__main__":
    main()
