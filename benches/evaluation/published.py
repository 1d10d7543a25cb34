"""The published grids: what the papers print, what the estimator predicts, what a bound allows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from page_tables import Rows, Table
from program import answer, simulated
from workloads import (
    HERE,
    LEARNING_RATES,
    NODES,
    PIPELINES,
    PRECISIONS,
    PUBLISHED,
    num_steps,
    published_hours,
)

PAGE = "published.md"
FASTEST, HABIT = "current-practice-fastest", "current-practice-habit"
NAMES = {"gpipe": "GPipe", "1f1b": "1F1B"}
#: Seeds of the random policy.
SEEDS = 10
HOUR_S = 3600.0


def hours(prediction: dict[str, Any], policy: str) -> float:
    """Mean makespan of a policy."""
    return float(prediction[policy]["makespan_s"]) / HOUR_S


def workload(grid: str, precision: str, pipeline: str, nodes: int) -> Path:
    """A workload's file."""
    return HERE / "published" / f"{grid}-{precision}-{pipeline}-{nodes}.toml"


def printed(_quick: bool) -> Rows:
    """What the papers print, and each number over that of current practice."""
    for grid, policies in published_hours().items():
        practice = policies["current practice"]
        for policy, (one, two) in policies.items():
            shares = [f"{value / of:.2f}" for value, of in zip((one, two), practice, strict=True)]
            yield [grid, policy, f"{one:.2f}", f"{two:.2f}", *shares]


def fastest(quick: bool) -> Rows:
    """Current practice takes the fastest technique: what is left to gain."""
    for grid in PUBLISHED:
        for precision in PRECISIONS:
            for nodes in NODES:
                if quick and (grid, precision, nodes) != ("text", "bf16", 1):
                    continue
                found = simulated(
                    workload(grid, precision, "gpipe", nodes), ["saturn", FASTEST, HABIT]
                )
                practice, bound = hours(found, FASTEST), found["bound_s"] / HOUR_S
                saturn = hours(found, "saturn")
                published = published_share(grid, nodes)
                yield [
                    *(grid, precision, str(nodes), f"{practice:.2f}", f"{bound:.2f}"),
                    *(f"{bound / practice:.2f}", f"{saturn / practice:.2f}", published),
                ]


def published_share(grid: str, nodes: int) -> str:
    """Saturn's published hours over the published hours of current practice."""
    policies = published_hours()[grid]
    place = nodes - 1
    return f"{policies['saturn'][place] / policies['current practice'][place]:.2f}"


def habit(quick: bool) -> Rows:
    """Current practice by habit; and Saturn's hours if one number scales all."""
    for grid in PUBLISHED:
        for precision in PRECISIONS:
            for pipeline in PIPELINES if grid == "text" else PIPELINES[:1]:
                if quick:
                    continue
                found = [
                    simulated(
                        workload(grid, precision, pipeline, nodes), ["saturn", FASTEST, HABIT]
                    )
                    for nodes in NODES
                ]
                practice = [hours(one, HABIT) for one in found]
                saturn = [hours(one, "saturn") for one in found]
                published = published_hours()[grid]
                scale = published["current practice"][0] / practice[0]
                name = NAMES[pipeline] if grid == "text" else "not used"
                yield [
                    *(grid, precision, name, two(practice)),
                    two([a / b for a, b in zip(saturn, practice, strict=True)]),
                    " / ".join(published_share(grid, nodes) for nodes in NODES),
                    *(two([scale * one for one in saturn]), two(published["saturn"])),
                ]


def two(values: list[float]) -> str:
    """Numbers for one and for two nodes."""
    return " / ".join(f"{value:.2f}" for value in values)


def columns(quick: bool) -> Rows:
    """Every published column beside its prediction, over current practice by habit."""
    for grid, precision in (
        ("text", "fp32"),
        ("text", "tf32"),
        ("image", "tf32"),
        ("image", "bf16"),
    ):
        for policy in ("random", "optimus", "optimus-dynamic", "saturn"):
            if quick and (precision, policy) != ("bf16", "optimus"):
                continue
            shares = []
            for nodes in NODES:
                path = workload(grid, precision, "gpipe", nodes)
                seeds = ("--seeds", str(SEEDS)) if policy == "random" else ()
                practice = hours(simulated(path, [HABIT]), HABIT)
                shares.append(hours(simulated(path, [policy], *seeds), policy) / practice)
            published = published_hours()[grid]
            was = [
                a / b for a, b in zip(published[policy], published["current practice"], strict=True)
            ]
            yield [grid, precision, policy, two(shares), two(was)]


def peak(_quick: bool) -> Rows:
    """Hours that eight A100s need for ViT-G at their dense bfloat16 peak."""
    models, batches, samples = PUBLISHED["image"]
    total = 0.0
    for model, config in models.items():
        sizes = ("--batch", ",".join(map(str, batches)), "--precision", "bf16")
        rows = answer("estimate", config, "--gpu", "a100-40gb", *sizes)["rows"]
        for batch in batches:
            bound_s = next(
                row["bound_s"] for row in rows if (row["batch"], row["gpus"]) == (batch, 8)
            )
            steps = num_steps(samples, batch)
            needed = LEARNING_RATES * steps * bound_s / HOUR_S
            total += needed
            yield [
                f"{model}, batch {batch}",
                *(
                    str(LEARNING_RATES),
                    str(steps),
                    f"{bound_s:.4f}",
                    f"{needed:.2f}",
                    f"{needed / 2:.2f}",
                ),
            ]
    yield ["sum", str(LEARNING_RATES * len(batches)), "", "", f"{total:.2f}", f"{total / 2:.2f}"]
    for policy in ("current practice", "saturn"):
        one, both = published_hours()["image"][policy]
        yield [f"published: {policy}, twelve tasks", "12", "", "", f"{one:.2f}", f"{both:.2f}"]
    share = [total / nodes / published_hours()["image"]["saturn"][nodes - 1] for nodes in NODES]
    yield [
        "share of the peak that Saturn's hours would need",
        "",
        "",
        "",
        *(f"{100 * one:.0f} %" for one in share),
    ]


TABLES = [
    Table(
        "printed",
        PAGE,
        [
            "workload",
            "policy",
            "1 node, h",
            "2 nodes, h",
            "1 node, over practice",
            "2 nodes, over practice",
        ],
        printed,
        2,
    ),
    Table(
        "fastest",
        PAGE,
        [
            *("workload", "precision", "nodes", "practice, h", "bound, h", "bound over practice"),
            *("Saturn over practice", "published"),
        ],
        fastest,
        3,
    ),
    Table(
        "habit",
        PAGE,
        [
            *("workload", "precision", "pipeline", "practice, h", "Saturn over practice"),
            *("published", "Saturn, scaled, h", "published, h"),
        ],
        habit,
        3,
    ),
    Table(
        "columns",
        PAGE,
        ["workload", "precision", "policy", "over practice by habit", "published"],
        columns,
        3,
    ),
    Table(
        "peak",
        PAGE,
        ["tasks", "number", "steps", "s/step at the peak", "1 node, h", "2 nodes, h"],
        peak,
    ),
]
