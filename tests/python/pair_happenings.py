"""What happens to the task of a case, played by the tests' own runtime (`harness`).

Each happening is one attempt or more. Where an attempt is to be struck at a step, the rank itself
waits or dies there, so that no case depends on how fast the machine is.
"""

from __future__ import annotations

import base64
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import cloudpickle
import pair_models
from harness import Runtime
from live_gangs import Result
from models import Calls
from pair_strikes import STRUCK, dies_at, held_at, nowhere_to_save, reports_late
from pairs import Case
from saturn.scripts.command import ScriptDefinition
from test_full_disk import nearly_full

#: The step after which something happens.
AT = 3


@dataclass
class Attempt:
    """One launch for training: on how many ranks, from which step, and what came of it."""

    ranks: int
    first: int
    result: Result
    #: One rank that computes as a plain loop does.
    is_plain: bool

    @property
    def ended(self) -> str:
        """The last word of rank 0: `finished`, `stopped` or `failed`; `died` where it had none."""
        words = [m["type"] for _, m in self.result.messages]
        return next((w for w in ("finished", "stopped", "failed") if w in words), "died")


@dataclass
class Story:
    """The attempts at a case's task, one after the other."""

    run: Runtime
    case: Case
    definition: Any
    attempts: list[Attempt] = field(default_factory=list)
    #: Techniques that refused the task, with their words.
    refusals: list[tuple[str, str]] = field(default_factory=list)
    #: A technique's spec in place of `ddp`.
    alone: Any = "ddp"
    #: Environment variables of its ranks.
    env: dict[str, str] | None = None

    @property
    def name(self) -> str:
        return str(self.definition.name)

    @property
    def gives_up(self) -> bool:
        """Whether the last attempt failed by the task's own fault.

        A script that ended early is tried again, whatever ended it.
        """
        failed = bool(self.attempts) and self.attempts[-1].ended == "failed"
        return failed and not self.is_of_script

    @property
    def draws_unlike_the_reference(self) -> bool:
        """Whether several ranks drew dropout in place of the one of `Trainer.train()`."""
        several = any(attempt.ranks > 1 for attempt in self.attempts)
        return self.case.is_trainers and self.case.has("dropout") and several

    @property
    def is_of_script(self) -> bool:
        """Whether the task is a script that trains by itself."""
        return self.case.has("script")

    def train(
        self,
        technique: Any = None,
        ranks: int = 1,
        *,
        struck: Callable[[], None] | None = None,
        meanwhile: Callable[[Any], None] | None = None,
        **options: Any,
    ) -> Attempt:
        """Launch the task and wait for its end; `struck` is called in each rank at its start."""
        definition = self.definition
        if struck is not None:
            definition = struck_by(definition, struck)
        self.run.write_task(definition)
        options.setdefault("steps", pair_models.STEPS)
        gang = self.run.launch(
            self.name, technique or self.alone, ranks=ranks, env=self.env, **options
        )
        if meanwhile is not None:
            meanwhile(gang)
        result = gang.wait()
        started = result.of("started")
        is_plain = ranks == 1 and technique in (None, "ddp")
        attempt = Attempt(ranks, started[0]["step"] if started else 0, result, is_plain)
        self.attempts.append(attempt)
        return attempt

    def ranks_at(self, step: int) -> int:
        """By how many ranks a step was trained that counts: the last attempt that trained it."""
        return next((a.ranks for a in reversed(self.attempts) if a.first < step), 1)

    def train_where_it_can(self, technique: str, ranks: int, **options: Any) -> Attempt:
        """The same; where batches must stay whole, the technique must say so, and one rank goes on.

        A task whose buffer follows the batch is refused by name, before anything is trained.
        """
        attempt = self.train(technique, ranks, **options)
        if not (self.case.has("running mean") and ranks > 1):
            return attempt
        self.attempts.remove(attempt)
        failed = attempt.result.of("failed")
        assert failed and failed[0]["kind"] == "not_applicable", attempt.result.logs
        self.refusals.append((technique, failed[0]["error"]))
        options.pop("node_gpus", None)
        return self.train("ddp", 1, **options)


def struck_by(definition: Any, struck: Callable[[], None]) -> Any:
    """The definition of a task each of whose ranks calls `struck` at its start."""
    if isinstance(definition, ScriptDefinition):
        told = {STRUCK: base64.b64encode(cloudpickle.dumps(struck)).decode()}
        return replace(definition, environment={**definition.environment, **told})
    return replace(definition, hints={**definition.hints, "struck": Calls(struck)})


def stop_when_held(path: Path, gang: Any, *, is_of_script: bool = False) -> None:
    """Ask a gang to stop while its rank waits; a gang that has failed before is left alone."""

    def ended(gang: Any) -> bool:
        with gang.changed:
            return any(message["type"] in ("failed", "finished") for _, message in gang.messages)

    deadline = time.monotonic() + 200
    while not (path / "held").exists() and not ended(gang) and time.monotonic() < deadline:
        time.sleep(0.005)
    if not ended(gang):
        gang.stop()
        stop_file = gang.logs[0].with_name("stop")
        while is_of_script and not stop_file.exists() and time.monotonic() < deadline:
            time.sleep(0.005)
    while not gang.has_been_read() and time.monotonic() < deadline:
        time.sleep(0.005)
    time.sleep(0.05)  # the rank's thread that has read it acts on it
    (path / "go").touch()


def release_after_trial(path: Path, gang: Any) -> None:
    """Let a rank that waits go on once its gang has said what the trial found."""
    gang.wait_for("trial")
    (path / "go").touch()


def nothing(story: Story) -> None:
    story.train()


def trial_that_goes_on(story: Story) -> None:
    options: dict[str, Any] = {}
    if story.is_of_script:  # so small a script would end before its trial has
        path = directory_of(story)
        options["struck"] = partial(reports_late, AT + 2, path)
        options["meanwhile"] = partial(release_after_trial, path)
    story.train(kind="trial", knobs={}, goes_on_to=pair_models.STEPS, steps=None, **options)


def directory_of(story: Story) -> Path:
    path = story.run.task_dir(story.name)
    path.mkdir(parents=True, exist_ok=True)
    return path


def stopped(story: Story) -> None:
    path = directory_of(story)
    stop = partial(stop_when_held, path, is_of_script=story.is_of_script)
    story.train(struck=partial(held_at, AT, path), meanwhile=stop)


def moved(story: Story) -> None:
    stopped(story)
    if not story.gives_up:
        story.train()


def switched(story: Story) -> None:
    story.train(stop_at_step=AT)
    if not story.gives_up:
        story.train_where_it_can(*other_technique(story.case))


def killed(story: Story) -> None:
    story.train(struck=partial(dies_at, AT + 1, 0), checkpoint_every_s=0.0)
    if not story.gives_up:
        story.train()


def full_disk(story: Story) -> None:
    struck = nowhere_to_save if story.is_of_script else nearly_full
    story.train(struck=struck, checkpoint_every_s=0.0)
    if story.attempts[-1].result.of("failed")[0]["kind"] == "no_space":
        story.train()


def lost_node(story: Story) -> None:
    attempt = story.train_where_it_can(
        *("ddp", 2), struck=partial(dies_at, AT + 1, 1), checkpoint_every_s=0.0, node_gpus=(1, 1)
    )
    task_failed = any(m["kind"] == "task" for m in attempt.result.of("failed"))
    if not task_failed and attempt.ended != "finished":
        story.train()


def two_devices(story: Story) -> None:
    if story.case.has("black box", "script"):
        story.train(gpus=2)
        return
    story.train_where_it_can("ddp", 2)


def other(story: Story) -> None:
    story.train_where_it_can(*other_technique(story.case))


def other_technique(case: Case) -> tuple[str, int]:
    """One that can train the case, and its number of ranks."""
    if case.has("running mean"):
        return "offload", 1
    if case["kind"] != "managed" or case.has("dropout", "batch norm", "lora", "counter", "tied"):
        return "fsdp", 2
    return "pipeline", 2


HAPPENINGS: dict[str, Callable[[Story], None]] = {
    "nothing": nothing,
    "trial that goes on": trial_that_goes_on,
    "move": moved,
    "planned switch": switched,
    "stopped by a search": stopped,
    "pause": moved,
    "cancel": stopped,
    "resume after a kill": killed,
    "full disk": full_disk,
    "lost node": lost_node,
    "two devices": two_devices,
    "another technique": other,
}


def play(run: Runtime, case: Case, definition: Any, **options: Any) -> Story:
    """What happens to a case's task; `options` are the story's."""
    story = Story(run, case, definition, **options)
    HAPPENINGS[case["happening"]](story)
    return story
