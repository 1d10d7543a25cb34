"""TRL's trainers as tasks: with their own losses, collators and references."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import closeness
import in_process
import pair_tasks
import pairs
import pytest
import torch
import trainer_models
import trl_models
from harness import Runtime, runtime
from pair_happenings import play
from pair_judge import judge
from saturn import Task
from saturn.errors import InvalidInput
from saturn.techniques.ddp import Ddp
from warm_parent import Warm

pytest.importorskip("trl")

#: Their code is for several versions of each other, and says so.
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Trainers make their output directory, wherever they are."""
    monkeypatch.chdir(tmp_path)


KINDS = {
    "sft": trl_models.sft(),
    "sft-packed": trl_models.sft(packing=True, packing_strategy="wrapped"),
    "sft-completion": trl_models.sft(kind="completion"),
    "sft-lora": trl_models.sft(with_lora=True),
    "dpo": trl_models.dpo(),
    "dpo-lora": trl_models.dpo(with_lora=True),
    "reward": trl_models.reward(),
}


@pytest.mark.slow(quick=["sft-packed", "sft-lora", "dpo-lora", "reward"])
@pytest.mark.parametrize("kind", KINDS)
def test_on_one_slot_its_weights_are_the_trainers_to_the_last_bit(
    kind: str, tmp_path: Path
) -> None:
    make = KINDS[kind]
    definition = Task.from_trainer(make).definition()
    expected_losses, expected = trainer_models.run(make)
    losses, weights = in_process.train(definition, Ddp(), tmp_path, steps=max(expected_losses))
    assert closeness.ulps(losses, expected_losses) < closeness.SUMMED
    assert weights.keys() == expected.keys()
    for name, weight in expected.items():
        assert torch.equal(weights[name], weight), name


def test_one_that_makes_its_batches_with_the_model_is_refused() -> None:
    reason = "GRPOTrainer overrides `_prepare_inputs`: it makes a step's batches with the model"
    with pytest.raises(InvalidInput, match=re.escape(reason)):
        Task.from_trainer(trl_models.grpo)


@pytest.fixture(scope="module")
def warm_with_trl(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Warm]:
    """A parent that has what each rank would spend seconds on."""
    lock = tmp_path_factory.mktemp("trl") / "workers.lock"
    preload = "trl:SFTTrainer,trl:DPOTrainer,transformers:LlamaForCausalLM,peft:get_peft_model"
    parent = Warm(lock, preload=preload)
    assert parent.ready.get("ready") is True
    yield parent
    parent.close()


@pytest.fixture
def ranks(tmp_path: Path, warm_with_trl: Warm) -> Iterator[Runtime]:
    """A run directory whose gangs are forked from that parent."""
    with runtime(tmp_path, warm_with_trl) as opened:
        yield opened


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sft-lora", "dpo-lora"])
def test_through_moves_its_losses_are_the_trainers(kind: str, ranks: Runtime) -> None:
    make = KINDS[kind]
    task = Task.from_trainer(make, name=kind)
    ranks.write_task(task.definition())
    for technique, steps in (("ddp", 2), ("fsdp", 4)):
        result = ranks.run(task.name, technique, ranks=2, steps=steps)
        assert result.codes == [0, 0], result.logs
    expected, _ = trainer_models.run(make)
    found = ranks.losses(task.name)
    assert closeness.ulps(found, {step: expected[step] for step in found}) < closeness.ACROSS


CASES = {case.label: case for case in pairs.cases() if case["kind"] == "trl"}


@pytest.mark.slow
@pytest.mark.parametrize("label", CASES, ids=list(CASES))
def test_a_trl_case_trains_as_the_trainer_does(ranks: Runtime, label: str) -> None:
    """Pairs of what a task has and what happens to it: docs/pairs.md."""
    case = CASES[label]
    task = Task.from_trainer(partial(pair_tasks.trainer_of, case), name="task")
    story = play(ranks, case, task.definition())
    judge(story, pair_tasks.expected_of_trainer(case))
