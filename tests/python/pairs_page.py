"""docs/pairs.md: the factors, what can't go together and why, and what the cases found.

`python tests/python/pairs.py --table` writes it; a test says whether it is up to date.
"""

from __future__ import annotations

from pathlib import Path

import pairs

PAGE = Path(__file__).resolve().parents[2] / "docs" / "pairs.md"
#: (pair or pairs, what was found, what became of it).
FOUND = (
    (
        "counter, evaluated, two devices (any two ranks)",
        "Ranks ran different numbers of evaluation batches. A forward changed a buffer in eval "
        "mode too, so ranks came to differ, without a word. Training was off by 5e4 ulps from the "
        "step after the first evaluation, metrics by 2.6e4. On one device, evaluations changed "
        "the training",
        "mended: buffers are put back before each batch of an evaluation and after it "
        "(`test_a_buffer_that_an_evaluation_changes_is_put_back`)",
    ),
    (
        "the same buffer, evaluated, of a Trainer",
        "`train()` keeps an evaluation's change of the buffer. Saturn puts the buffer back, since "
        "ranks would come to differ",
        "documented (docs/reference.md, Evaluation); the Trainer's cases count in training alone",
    ),
    (
        "an exception, a Trainer",
        "When a bad row raises, `train()` has not taken the step before that row's step, since "
        "accelerate fetches a batch ahead. Saturn has",
        "no fault",
    ),
    (
        "evaluated, accumulated, an exception: TRL's trainers",
        "The same as of transformers' own Trainer. If the bad batch and the batch before it are "
        "of one step, `train()` and Saturn end at the same step",
        "no fault",
    ),
    (
        "best kept, explosion or NaN, in a real run",
        "The table of `saturn status` shows the last evaluation, where docs/tables.md says the "
        "best: `eval_loss 94699` of a task whose best is 65284, as all other tables say",
        "known; no test of these reads that text",
    ),
    (
        "cancelled, in a real run",
        "The end in `saturn status` is when the task was cancelled, also of a task that never "
        "trained. In all other tables it is the end of its last attempt, or none",
        "known: `ended_s` is when the task itself ended",
    ),
    (
        "cancelled or stopped at once, evaluated, in a real run",
        "The last evaluation may be of steps that were lost: 0 steps, no loss, and the evaluation "
        "of step 20. Once the task is launched again, no evaluation is shown until the next, "
        "though an earlier evaluation counts",
        "known: `pair_tables.judge_evaluations` leaves such a task out until then",
    ),
    (
        "waiting, in a real run",
        "For a waiting task, `saturn status` shows the strategy of the plan, other tables the "
        "strategy that trained it last",
        "known; `pair_tables` leaves it out",
    ),
    (
        "a trial that goes on, an exception, in a real run",
        "`start_s` and `train_s` count the attempt from the trial's launch. docs/tables.md could "
        "be read as from the moment when the trial went on. No part of it is counted as a trial",
        "documented (docs/tables.md): it counts whole, since its steps are the task's first",
    ),
    (
        "lora, running mean, fp16, explosion, with `CLASSES = 6` in `pair_models.py`",
        "All losses equal the reference's to the last bit, but the last weights of the adapters "
        "are 14 to 38 units of fp16 off, on one rank and under every happening",
        "open: not looked into",
    ),
    (
        "tied, pipeline",
        "If a model's embedding is registered after its layers, its first stage lacks the "
        "embedding. The stage names the knob that it needs, `everywhere`, which a trial finds",
        "no fault",
    ),
)
HEAD = """# Pairs of features and faults

*Which features and faults are tested together, and what did these tests find?*

Faults hide where two things meet that nobody tried together. So the tests have *factors* with
values: a task's features, and the faults and commands that happen to it. A *case* has one value of
each factor. Every pair of values that can go together is in at least one case: a covering array, by
[covertable](https://pypi.org/project/covertable/). A fault hides what comes after it. So pairs
without a fault are in at least one managed and one Trainer's case without a fault.

Real ranks train each case. Losses, evaluations, the best checkpoint and weights are compared with a
reference. For a managed task the reference is a loop in plain torch that knows nothing of Saturn
but its [documented seeds](reference.md#data-and-its-random-numbers). For a Trainer, of transformers
or TRL, it is the Trainer's own `train()`. On one rank a managed task agrees to the last bit, a
Trainer to four units in the last place; elsewhere they agree up to rounding
(`tests/python/closeness.py`). There are two exceptions. Of losses after an explosion only the
beginning is compared. On several ranks, a Trainer's dropout draws other numbers. An exception or a
NaN may come before the planned fault.

A black box's saves are compared with the same loop run by itself. A script is compared with the
same script run by `python`, or by `torchrun` where it has two devices. Each step's loss, each
evaluation and all saved files agree to the last bit.

The tests play the runtime themselves. So to a rank a pause is a move, and a cancel is a stop by a
search; the driver's part is in [real runs](#real-runs). A few cases run in each gate, all of them
at night. The tests are `tests/python/test_pairs.py`, `test_pairs_scripts.py` and, of TRL's
trainers, `test_trl_trainers.py`; `python tests/python/pairs.py --table` writes this page.

## Real runs

Two runs of Saturn's own driver, on two CPU slots, have ten tasks each, and something else happens
to each task (`tests/python/test_pairs_run.py`). A task is well, becomes NaN, explodes, raises, is
stopped by the run's stopper, or is paused and taken up again. Or it is cancelled, comes after a
cancelled task, is killed, or comes after a task that diverged. Most are evaluated, some keep a best
checkpoint, some have a priority. The first run is in each gate. The second trains under several
techniques on one device and two, has a script, and is stopped at once and resumed.

Each column of each table is compared with its [definition](tables.md). The tables are those of
`result`, its rows, CSV and dataframe, `saturn report --csv`, `report.json`, `saturn status --json`,
and the console's last lines. The tables of a run that was stopped are judged too. The expected
values come from elsewhere: losses and evaluations from `metrics.jsonl`, steps from the checkpoints,
launches and ends from the journal. Losses are those of a loop in plain torch, to the last bit on
one device.

The weights that are tied, frozen or under adapters are also trained under `pipeline` and `tensor`,
and then go on without (`test_weights_under_a_technique_that_splits_layers`).
"""


def text() -> str:
    """The page."""
    factors = [[name, "; ".join(map(said, values))] for name, values in pairs.FACTORS.items()]
    rules = [
        [f"{', '.join(rule.values)} with {', '.join(rule.others)}", rule.reason]
        for rule in pairs.RULES
    ]
    of_kind = [
        [happening, *(str(count(kind, happening)) for kind in pairs.FACTORS["kind"])]
        for happening in pairs.FACTORS["happening"]
    ]
    state = (
        f"{len(pairs.allowed_pairs())} pairs are allowed, in {len(pairs.cases())} cases, which "
        "`python tests/python/pairs.py` lists."
    )
    return "\n".join(
        [
            HEAD,
            "## Factors\n",
            table(["factor", "values"], factors),
            "## What can't go together\n",
            table(["values", "why"], rules),
            "## Cases\n",
            state + "\n",
            table(["happening", *pairs.FACTORS["kind"]], of_kind),
            "## What was found\n",
            table(["pair", "what it did", "what became of it"], [list(row) for row in FOUND]),
        ]
    )


def said(value: str) -> str:
    return f"{value} ({pairs.IN_WORDS[value]})" if value in pairs.IN_WORDS else value


def count(kind: str, happening: str) -> int:
    return sum(case["kind"] == kind and case["happening"] == happening for case in pairs.cases())


def table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def write() -> None:
    PAGE.write_text(text())
