"""A gang is told while it trains at which step to stop: set, moved, taken back, passed already."""

from __future__ import annotations

import time
from typing import Any

import closeness
import pytest
import reference
from harness import Runtime
from live_gangs import Gang
from models import Mlp, definition, shuffled_loader

MANY = 100_000


def until(step: int | None) -> dict[str, Any]:
    return {"type": "until", "step": step}


def slow_loader() -> Any:
    """So that a test can tell a gang something before it has loaded, in each of its attempts.

    A model is built in the first attempt alone.
    """
    time.sleep(1.0)
    return shuffled_loader()


def slow_steps() -> Mlp:
    """At most a hundred steps a second, so that what a test says is heard long before a step."""
    model = Mlp()
    model.register_forward_pre_hook(lambda *_: time.sleep(0.01))
    return model


def ended(gang: Gang) -> tuple[str, int]:
    """How it ended and after which step, with a checkpoint of that step."""
    result = gang.wait()
    assert result.codes == [0] * gang.world_size, result.logs
    (last,) = [m for kind in ("stopped", "finished") for m in result.of(kind)]
    checkpoints = gang.runtime.checkpoints("mlp")
    assert checkpoints[-1] == f"step-{last['step']:08d}"
    assert len(gang.runtime.losses("mlp")) == last["step"]
    return last["type"], last["step"]


@pytest.mark.parametrize("ranks", [1, 2])
class TestUntil:
    @pytest.mark.slow(quick=["2"])
    def test_a_step_ahead_is_stopped_at(self, run: Runtime, ranks: int) -> None:
        run.write_task(definition(get_model=slow_steps))
        gang = run.launch("mlp", "ddp", ranks=ranks, steps=MANY)
        gang.wait_for("started")
        gang.tell(until(120))
        assert ended(gang) == ("stopped", 120)

    @pytest.mark.slow(quick=["2"])
    def test_a_step_that_has_passed_means_now(self, run: Runtime, ranks: int) -> None:
        run.write_task(definition(get_model=slow_steps))
        gang = run.launch("mlp", "ddp", ranks=ranks, steps=MANY)
        gang.wait_for("progress", step=20)
        gang.tell(until(3))
        how, step = ended(gang)
        assert how == "stopped" and 20 <= step < MANY
        expected, _ = reference.train(definition(), step)
        assert closeness.ulps(run.losses("mlp"), expected) < closeness.ACROSS

    @pytest.mark.slow(quick=["2"])
    def test_it_replaces_the_step_of_the_spec(self, run: Runtime, ranks: int) -> None:
        run.write_task(definition(get_dataloader=slow_loader))
        for step, expected in ((4, ("stopped", 4)), (None, ("finished", 12))):
            gang = run.launch("mlp", "ddp", ranks=ranks, steps=12, stop_at_step=7)
            gang.tell(until(step))
            assert ended(gang) == expected

    @pytest.mark.slow(quick=["1"])
    def test_the_last_one_holds(self, run: Runtime, ranks: int) -> None:
        run.write_task(definition(get_model=slow_steps))
        gang = run.launch("mlp", "fsdp", ranks=ranks, steps=200)
        gang.wait_for("started")
        for step in (100, 120, None, 140):
            gang.tell(until(step))
        assert ended(gang) == ("stopped", 140)

    @pytest.mark.slow(quick=["2"])
    def test_before_the_first_step_nothing_is_trained(self, run: Runtime, ranks: int) -> None:
        run.write_task(definition())
        assert run.run("mlp", "ddp", ranks=ranks, steps=5).codes == [0] * ranks
        run.write_task(definition(get_dataloader=slow_loader))
        gang = run.launch("mlp", "fsdp", ranks=ranks, steps=9)
        gang.tell(until(2))
        assert ended(gang) == ("stopped", 5)
        gang = run.launch("mlp", "fsdp", ranks=ranks, steps=9)
        gang.stop()
        assert ended(gang) == ("stopped", 5)

    @pytest.mark.slow(quick=["2"])
    def test_one_past_the_last_step_changes_nothing(self, run: Runtime, ranks: int) -> None:
        run.write_task(definition(get_dataloader=slow_loader))
        gang = run.launch("mlp", "ddp", ranks=ranks, steps=9)
        gang.tell(until(9))
        assert ended(gang) == ("finished", 9)


@pytest.mark.slow(quick=["1"])
@pytest.mark.parametrize("rank", [0, 1])
def test_the_first_rank_that_reaches_its_step_stops_all(run: Runtime, rank: int) -> None:
    run.write_task(definition(get_model=slow_steps))
    gang = run.launch("mlp", "ddp", ranks=2, steps=MANY)
    gang.wait_for("started")
    # As if the others had not heard yet.
    gang.tell(until(120), ranks=[rank])
    assert ended(gang) == ("stopped", 120)
