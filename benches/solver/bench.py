"""Saturn's solver beside CP-SAT and the exact program, on fresh problems of every size.

usage: bench.py [--seeds N] [--switch-seeds N] [--resolve-seeds N] [--first-seed N]
                [--replan-seeds N] [--queue-seeds N] [--queue-times 1,10] [--tail-seeds N]
                [--fact-seeds N] [--robust-seeds N] [--robust-moves N]
                [--punctual N] [--times 0.1,1,10] [--cp-sat SECONDS] [--classes SUBSTRING]
                [--measure PATH] [--before PATH] [--cpu] [--out FILE]

Needs `ortools`, and `cargo build --release -p saturn-solver --examples`. Every figure is a
makespan over the best lower bound that any solve of that problem proved (the optimum, where one
proved it). Plans with switches stand in a table of their own, over the configuration linear
program. Every solver gets two threads. Plans of Saturn have passed the checker. No seeds of a table
leave it out. `--before` names the `measure` of another build, to stand beside this one in the table
of re-plans; `--cpu` counts what solves use of the cores there in place of time on the wall, and
leaves waiting for a core out of how late answers come.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import facts
import robust
from problems import CLASSES, REPLAN_CLASSES, SWITCH_CLASSES, SWITCH_COST_S, Problem
from queues import NUM_ORDERS, QUEUE_CLASSES, list_heuristic

CP_SAT_TASKS = 100
MILP_TASKS = 14
RESOLVED = ["100 tasks, 64 GPUs", "100 tasks, 72 GPUs, 3 types"]


def measured(
    program: Path, file: Path, solver: str, seconds: float, switches: int = 0, *more: str
) -> dict[str, Any]:
    """What Saturn finds in `seconds`, with the peak memory of its process in MB."""
    command = [str(program), "--solver", solver, "--time-limit", str(seconds)]
    command += ["--max-switches", str(switches), *more, str(file)]
    timed = ["/usr/bin/time", "-f", "%M", *command] if Path("/usr/bin/time").exists() else command
    done = subprocess.run(timed, capture_output=True, text=True, check=True)
    answer: dict[str, Any] = json.loads(done.stdout)
    answer["memory_mb"] = int(done.stderr.split()[-1]) / 1024 if timed is not command else None
    return answer


def shown(ratios: list[float | None]) -> str:
    """Mean and worst of the ratios; how many are missing."""
    known = [ratio for ratio in ratios if ratio is not None]
    if not known:
        return "no plan"
    missing = f", {len(ratios) - len(known)} without" if len(known) < len(ratios) else ""
    return f"{statistics.mean(known):.4f} ({max(known):.4f}{missing})"


def bench_class(name: str, options: argparse.Namespace) -> list[str]:
    """One row of the table."""
    times = [float(text) for text in options.times.split(",")]
    ratios: dict[str, list[float | None]] = {}
    proven = optimal_at = 0
    memory = 0.0
    for seed in range(options.first_seed, options.first_seed + options.seeds):
        problem = CLASSES[name](f"{name}/{seed}")
        num_tasks = len(problem["tasks"])  # type: ignore[arg-type]
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "problem.json"
            file.write_text(json.dumps(problem))
            answers = {
                f"{limit:g} s": measured(options.measure, file, "auto", limit) for limit in times
            }
            if num_tasks <= MILP_TASKS:
                answers["MILP"] = measured(options.measure, file, "milp", max(times))
            answers["current practice"] = measured(options.measure, file, "current-practice", 1)
        if options.cp_sat > 0 and num_tasks <= CP_SAT_TASKS:
            from cp_sat import solve as cp_sat  # needs `ortools`, which other tables don't

            answers["CP-SAT"] = cp_sat(problem, options.cp_sat, 2)
        bound = max(answer.get("lower_bound_s", 0.0) for answer in answers.values())
        for column, answer in answers.items():
            makespan = answer["makespan_s"]
            ratios.setdefault(column, []).append(makespan / bound if makespan else None)
        last = answers[f"{times[-1]:g} s"]
        proven += last["status"] == "optimal"
        if len(times) > 1:
            best = min(one["makespan_s"] for one in answers.values() if one["makespan_s"])
            optimal_at += answers[f"{times[-2]:g} s"]["makespan_s"] <= best * (1 + 1e-6)
        memory = max(memory, max((one.get("memory_mb") or 0) for one in answers.values()))
        print(f"{name} seed {seed}: {last['makespan_s'] / bound:.4f}", file=sys.stderr, flush=True)
    columns = [f"{limit:g} s" for limit in times] + ["MILP", "CP-SAT", "current practice"]
    cells = [shown(ratios[column]) if column in ratios else "-" for column in columns]
    share = f"{proven}/{options.seeds}"
    return [name, *cells, share, f"{optimal_at}/{options.seeds}", f"{memory:.0f}"]


def bench_switches(name: str, options: argparse.Namespace) -> list[str]:
    """One row of the table of plans with switches."""
    times = [float(text) for text in options.times.split(",")]
    ratios: dict[str, list[float | None]] = {}
    switches = []
    for seed in range(options.first_seed, options.first_seed + options.switch_seeds):
        problem: Problem = SWITCH_CLASSES[name](f"{name}/{seed}")
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "problem.json"
            file.write_text(json.dumps(problem))
            answers = {
                f"{limit:g} s": measured(options.measure, file, "auto", limit, switches=1)
                for limit in times
            }
            # The bounds of plans without switches don't hold here.
            bound = max(answer["lower_bound_s"] for answer in answers.values())
            answers["whole"] = measured(options.measure, file, "auto", times[-1])
        for column, answer in answers.items():
            makespan = answer["makespan_s"]
            ratios.setdefault(column, []).append(makespan / bound if makespan else None)
        last = answers[f"{times[-1]:g} s"]
        switches.append(last["switches"])
        print(
            f"{name}, switches, seed {seed}: {last['makespan_s'] / bound:.4f}",
            file=sys.stderr,
            flush=True,
        )
    cells = [shown(ratios[f"{limit:g} s"]) for limit in times]
    return [name, *cells, shown(ratios["whole"]), f"{statistics.mean(switches):.1f}"]


def bench_queues(name: str, options: argparse.Namespace) -> list[str]:
    """One row of the table of weighted completion."""
    columns = [f"{float(text):g} s" for text in options.queue_times.split(",")]
    columns.append("list heuristic")
    ratios: dict[str, list[float | None]] = {column: [] for column in columns}
    for seed in range(options.first_seed, options.first_seed + options.queue_seeds):
        problem = QUEUE_CLASSES[name](f"{name}/{seed}")
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "problem.json"
            file.write_text(json.dumps(problem))
            objective = ("--objective", "completion")
            answers = [
                measured(options.measure, file, "auto", float(text), 0, *objective)
                for text in options.queue_times.split(",")
            ]
        bound = max(answer["completion_bound_s"] for answer in answers)
        sums = [answer["completion_s"] for answer in answers]
        is_small = len(problem["tasks"]) <= CP_SAT_TASKS  # type: ignore[arg-type]
        sums.append(list_heuristic(problem, f"{name}/{seed}") if is_small else None)
        for column, value in zip(columns, sums, strict=True):
            ratios[column].append(value / bound if value else None)
        told = ", ".join(f"{column}: {ratios[column][-1]}" for column in columns)
        print(f"{name}, completion, seed {seed}: {told}", file=sys.stderr, flush=True)
    cells = [shown(ratios[column]) if any(ratios[column]) else "-" for column in columns]
    return [name, *cells]


def bench_tails(name: str, options: argparse.Namespace) -> list[str]:
    """One row of the table of tails: how late plans end, and what an earlier last end costs."""
    free: dict[str, float] = {}
    cells: dict[str, list[float | None]] = {}
    for seed in range(options.first_seed, options.first_seed + options.tail_seeds):
        problem = QUEUE_CLASSES[name](f"{name}/{seed}")
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "problem.json"
            file.write_text(json.dumps(problem))
            for tail in ("", *options.tails.split(",")):
                moves = str(options.tail_moves * len(problem["tasks"]))  # type: ignore[arg-type]
                chosen = ["--objective", "completion", "--max-moves", moves]
                chosen += ["--tail", tail] if tail else []
                # Moves are the limit: so a busy machine gives the same plans.
                answer = measured(options.measure, file, "auto", 3600.0, 0, *chosen)
                free = free if tail else answer
                ends = answer["makespan_s"] / free["lower_bound_s"]
                cells.setdefault(f"{tail} ends", []).append(ends)
                if tail:
                    costs = answer["completion_s"] / free["completion_s"]
                    cells.setdefault(f"{tail} costs", []).append(costs)
                print(
                    f"{name}, tail {tail}, seed {seed}: {ends:.3f}, {answer['completion_s']:.0f}",
                    file=sys.stderr,
                    flush=True,
                )
    return [name, *(shown(ratios) for ratios in cells.values())]


def bench_resolves(name: str, options: argparse.Namespace) -> list[list[str]]:
    """A row for each change of a problem that is solved again from the plan at hand."""
    answers: dict[str, list[dict[str, float]]] = {}
    for seed in range(options.first_seed, options.first_seed + options.resolve_seeds):
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "problem.json"
            file.write_text(json.dumps(CLASSES[name](f"{name}/{seed}")))
            program = options.measure.with_name("resolve")
            done = subprocess.run([str(program), str(file)], capture_output=True, check=True)
        for line in done.stdout.splitlines():
            answer = json.loads(line)
            answers.setdefault(answer.pop("change"), []).append(answer)
            print(f"{name}, {line.decode()}", file=sys.stderr, flush=True)
    rows = []
    for change, several in answers.items():
        ratios = [one["warm_makespan_s"] / one["cold_makespan_s"] for one in several]
        slowest_ms = max(one["warm_s"] for one in several) * 1000
        rows.append([name, change, f"{slowest_ms:.0f} ms", shown(ratios)])  # type: ignore[arg-type]
    return rows


def bench_replans(name: str, options: argparse.Namespace) -> list[str]:
    """One row of the table of re-plans: what is left of a problem after a share of its plan."""
    columns = ("in_force", "cold", "warm", "free", "before")
    ratios: dict[str, list[float | None]] = {column: [] for column in columns}
    tasks, running, moved = [], [], []
    cpu = ["--cpu"] if options.cpu else []
    for seed in range(options.first_seed, options.first_seed + options.replan_seeds):
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "problem.json"
            file.write_text(json.dumps(REPLAN_CLASSES[name](f"{name}/{seed}")))
            program = str(options.measure.with_name("replan"))
            command = [program, "--seed", str(seed), "--write", folder, *cpu, str(file)]
            answer = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
            if options.before:
                replan = str(Path(folder) / "replan.json")
                command = [str(options.before), "--time-limit", "1", *cpu, replan]
                done = subprocess.run(command, capture_output=True, check=True)
                before = json.loads(done.stdout)
                answer["before"] = before["makespan_s"]
                answer["bound"] = max(answer["bound"], before["lower_bound_s"])
        for column in columns:
            value = answer.get(column)
            ratios[column].append(value / answer["bound"] if value else None)
        tasks.append(answer["tasks"])
        running.append(answer["running"])
        moved.append(answer["warm_moved"])
        print(f"{name}, {answer}", file=sys.stderr, flush=True)
    counts = f"{statistics.mean(running):.0f} of {statistics.mean(tasks):.0f}"
    cells = [shown(ratios[column]) for column in columns if column != "before" or options.before]
    return [name, counts, *cells, f"{statistics.mean(moved):.0f}"]


def bench_punctual(options: argparse.Namespace) -> list[list[str]]:
    """A row for each objective and size: how late answers come, at a limit and when interrupted."""
    program = str(options.measure.with_name("punctual"))
    command = [program, "--problems", str(options.punctual), "--seed", str(options.first_seed)]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    own = "own_" if options.cpu else ""
    rows = []
    for line in done.stdout.splitlines():
        answer = json.loads(line)
        taken, late = answer[f"{own}over_limit"], answer[f"{own}late_ms"]
        names = ("median", "q99", "worst")
        cells = ["-" if taken[name] is None else f"{taken[name]:.3f}" for name in names]
        cells += ["-" if late[name] is None else f"{max(late[name], 0.0):.1f} ms" for name in names]
        counts = str(answer["limits"]), str(answer["interrupts"])
        rows.append(
            [answer["objective"], answer["tasks"], counts[0], *cells[:3], counts[1], *cells[3:]]
        )
    return rows


def bench_facts(options: argparse.Namespace) -> str:
    """The tables of other objectives and facts, and of soft deadlines."""
    seeds = range(options.first_seed, options.first_seed + options.fact_seeds)
    times = [float(text) for text in options.queue_times.split(",")]
    shown_times = [f"{limit:g} s" for limit in times]
    rows = []
    for one in facts.FACT_CLASSES:
        found = [
            facts.ratios_of(measured, options.measure, one, f"{one[0]}/{seed}", times)
            for seed in seeds
        ]
        rows.append([one[0], one[1], *(shown(list(column)) for column in zip(*found, strict=True))])
    soft_rows = [
        facts.soft_row(
            measured, options.measure, one, [f"{one[0]}/{seed}" for seed in seeds], times
        )
        for one in facts.SOFT_CLASSES
    ]
    header = ["problems", "objective", *shown_times, f"list heuristic, best of {NUM_ORDERS}"]
    soft_header = ["problems", "objective", *(f"tardiness, {text}" for text in shown_times)]
    soft_header += ["its bound", *(f"objective, {text}" for text in shown_times)]
    return (
        "\n## Other objectives and facts\n\n"
        f"100 tasks, {options.fact_seeds} seeds: mean (worst) value over the best lower bound that "
        "any of the solves proved. The list heuristic (`benches/solver/facts.py`) keeps owners' "
        f"caps, and no hard deadlines.\n\n{table([header, *rows])}\n\n"
        "Soft deadlines: mean (worst) tardiness over that of the list heuristic, which takes tasks "
        "with a deadline first and does not keep the most late end; then the objective over the "
        f"heuristic's.\n\n{table([soft_header, *soft_rows])}\n"
    )


def bench_robust(options: argparse.Namespace) -> str:
    """The table of robust plans."""
    seeds = [str(options.first_seed + number) for number in range(options.robust_seeds)]
    classes = [one for one in robust.ROBUST_CLASSES if options.classes in one[0]]
    rows = [
        robust.row(measured, options.measure, one, seeds, options.robust_moves) for one in classes
    ]
    header = ["problems", "objective", "plans", "as planned", "best plan, 80 % quantile"]
    header += ["chosen, same draws", "chosen, fresh draws"]
    return (
        "\n## Robust plans\n\n"
        f"{options.robust_seeds} seeds, {options.robust_moves} moves for each task, so a busy "
        f"machine gives the same plans. {robust.ESTIMATED:.0%} of the strategies have an error of "
        f"{robust.ESTIMATE_ERROR:.0%}, the others of {robust.MEASURED_ERROR:.0%}. Mean (worst): "
        "the chosen plan over the best plan as planned; the 80 % quantile of the best plan over "
        f"its value as planned; the quantile of the chosen plan over that of the best plan, in the "
        f"{robust.SOLVER_DRAWS} draws of the solver and in {robust.NUM_DRAWS} fresh draws that "
        "other code follows (`benches/solver/robust.py`).\n\n"
        f"{table([header, *rows])}\n"
    )


def table(rows: list[list[str]]) -> str:
    """Rows as Markdown, the first as header."""
    lines = [rows[0], ["---"] * len(rows[0]), *rows[1:]]
    return "\n".join("| " + " | ".join(row) + " |" for row in lines)


def main() -> None:
    """Prints the table, and writes it to `--out`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--switch-seeds", type=int, default=20, help="seeds of plans with switches")
    parser.add_argument("--resolve-seeds", type=int, default=5, help="seeds of re-solves")
    parser.add_argument("--replan-seeds", type=int, default=3, help="seeds of re-plans")
    parser.add_argument("--queue-seeds", type=int, default=20, help="seeds of weighted completion")
    parser.add_argument("--punctual", type=int, default=1000, help="problems with a short limit")
    parser.add_argument("--queue-times", default="1,10", help="their time limits, seconds")
    parser.add_argument(
        "--tail-seeds", type=int, default=3, help="seeds of plans with a short tail"
    )
    parser.add_argument("--tails", default="1.25,1.15", help="their tails, over the bound")
    parser.add_argument("--tail-moves", type=int, default=20_000, help="moves for each task")
    parser.add_argument("--fact-seeds", type=int, default=3, help="seeds of objectives and facts")
    parser.add_argument("--robust-seeds", type=int, default=3, help="seeds of robust plans")
    parser.add_argument("--robust-moves", type=int, default=20_000, help="their moves a task")
    parser.add_argument("--before", type=Path, help="the `measure` of another build, for re-plans")
    parser.add_argument("--cpu", action="store_true", help="re-plans, lateness: time of cores")
    parser.add_argument("--first-seed", type=int, default=100)
    parser.add_argument("--times", default="0.1,1,10")
    parser.add_argument("--cp-sat", type=float, default=10.0, help="seconds; 0 leaves it out")
    parser.add_argument("--classes", default="", help="only those whose name contains this")
    parser.add_argument("--measure", type=Path, default=Path("target/release/examples/measure"))
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    begun = time.perf_counter()
    times = [f"{float(text):g} s" for text in options.times.split(",")]
    last, before = times[-1], times[-2] if len(times) > 1 else times[-1]
    header = ["problems", *times, f"MILP {last}", f"CP-SAT {options.cp_sat:g} s"]
    header += ["current practice", f"proven at {last}", f"best known at {before}", "peak MB"]
    names = [name for name in CLASSES if options.classes in name and options.seeds]
    rows = [bench_class(name, options) for name in names]
    switch_header = ["problems", *times, f"without switches {last}", f"switches at {last}"]
    names = [name for name in SWITCH_CLASSES if options.classes in f"{name}, switches"]
    names = names if options.switch_seeds else []
    switch_rows = [bench_switches(name, options) for name in names]
    resolved = [name for name in RESOLVED if options.classes in name and options.resolve_seeds]
    resolve_rows = [row for name in resolved for row in bench_resolves(name, options)]
    names = [name for name in REPLAN_CLASSES if options.classes in name and options.replan_seeds]
    replan_rows = [bench_replans(name, options) for name in names]
    names = [name for name in QUEUE_CLASSES if options.classes in name and options.queue_seeds]
    queue_rows = [bench_queues(name, options) for name in names]
    names = [name for name in QUEUE_CLASSES if options.classes in name and options.tail_seeds]
    tail_rows = [bench_tails(name, options) for name in names]
    fact_tables = bench_facts(options) if options.fact_seeds else ""
    robust_table = bench_robust(options) if options.robust_seeds else ""
    punctual_rows = bench_punctual(options) if options.punctual else []
    command = "python benches/solver/bench.py " + " ".join(sys.argv[1:])
    text = (
        "# The solver measured\n\n"
        "*How far are plans from the proven bound, and from the plans of other solvers?*\n\n"
        f"`{command}` ({time.perf_counter() - begun:.0f} s): mean (worst) makespan over the best "
        "lower bound that any of the solves proved.\n"
    )
    if rows:
        text += f"\n{table([header, *rows])}\n"
    if switch_rows:
        text += (
            f"\n## Planned switches\n\nOne switch a task at {SWITCH_COST_S:g} s, "
            f"{options.switch_seeds} seeds: mean (worst) makespan over the configuration linear "
            f"program, which switches without cost could reach.\n\n"
            f"{table([switch_header, *switch_rows])}\n"
        )
    if queue_rows:
        queue_times = [f"{float(text):g} s" for text in options.queue_times.split(",")]
        queue_header = ["problems", *queue_times, f"list heuristic, best of {NUM_ORDERS}"]
        text += (
            "\n## Weighted completion\n\n"
            f"{options.queue_seeds} seeds, weights 1 to 4: mean (worst) sum of weight times end "
            "over the best lower bound that any of the solves proved. The list heuristic "
            "(`benches/solver/queues.py`) does not keep deadlines.\n\n"
            f"{table([queue_header, *queue_rows])}\n"
        )
    if tail_rows:
        tail_header = ["problems", "ends, no tail"]
        for tail in options.tails.split(","):
            tail_header += [f"ends, {tail}", f"costs, {tail}"]
        text += (
            "\n## Weighted completion with a short tail\n\n"
            f"{options.tail_seeds} seeds, {options.tail_moves} moves for each task: mean (worst) "
            "last end over the lower bound of the makespan, and sum of weight times end over that "
            "of the plan without a "
            f"tail (`--tail`).\n\n{table([tail_header, *tail_rows])}\n"
        )
    text += fact_tables + robust_table
    if resolve_rows:
        resolve_header = ["problems", "change", "slowest", "warm over cold at 1 s"]
        text += (
            "\n## Re-solving from the plan at hand\n\n"
            f"{options.resolve_seeds} seeds: mean (worst) makespan over that of a solve from "
            f"nothing in a second.\n\n{table([resolve_header, *resolve_rows])}\n"
        )
    if replan_rows:
        replan_header = [
            "problems",
            "running",
            "plan in force",
            "re-plan",
            "from the plan in force",
        ]
        replan_header += ["nothing runs", *(["before"] if options.before else []), "moved"]
        text += (
            "\n## Re-planning what runs\n\n"
            f"{options.replan_seeds} seeds, 1 s{' of two cores' if options.cpu else ''}: a plan "
            "has run for 5 to 60% of its makespan, runtimes were wrong by 15%, moving a running "
            "task costs 60 s. Mean (worst) makespan over the best bound that any of the solves "
            "proved; "
            "`nothing runs` is the same problem where staying has no price, a relaxation.\n\n"
            f"{table([replan_header, *replan_rows])}\n"
        )
    if punctual_rows:
        punctual_header = ["objective", "tasks", "limits", "median", "99 %", "worst"]
        punctual_header += ["interrupted", "median", "99 %", "worst"]
        text += (
            "\n## Limits and interruptions\n\n"
            f"{options.punctual} random problems with any facts, limits of 50 to 300 ms: time "
            "taken over the limit; of the solves that are interrupted at a random moment, the time "
            f"until the answer{', without waiting for a core' if options.cpu else ''}.\n\n"
            f"{table([punctual_header, *punctual_rows])}\n"
        )
    print(text)
    if options.out:
        options.out.write_text(text)


if __name__ == "__main__":
    main()
