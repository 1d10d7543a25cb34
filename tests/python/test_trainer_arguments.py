"""Every argument of `TrainingArguments` is in the table, and what the table says of it is so."""

from __future__ import annotations

import dataclasses
import re
import sys
from pathlib import Path
from typing import Any

import in_process
import pytest
import trainer_models
from saturn import Task
from saturn.data.slices import Position
from saturn.errors import InvalidInput
from saturn.tasks.profile_key import profile_key
from saturn.techniques.ddp import Ddp
from saturn.trainers import arguments
from saturn.trainers.arguments import ARGUMENTS, HONOURED, IRRELEVANT, REFUSED
from saturn.training.evaluation import Evaluator
from trainer_models import MakeTrainer, texts

pytest.importorskip("transformers")
pytest.importorskip("accelerate")

#: Their code is for several versions of each other, and says so.
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]
PAGE = Path(__file__).parents[2] / "docs/trainer-arguments.md"
#: Values other than the default, where `not default` and `default + 1` are none.
OTHERS: dict[str, Any] = {
    "save_strategy": "epoch",
    "include_num_input_tokens_seen": "all",
    "log_level": "debug",
    "log_level_replica": "debug",
    "activation_checkpointing": True,
    "gradient_checkpointing": True,
    "torch_compile": True,
    "disable_tqdm": False,
    "auto_find_batch_size": True,
    "debug": "underflow_overflow",
    "save_total_limit": 2,
}
#: Where they are read by something that no tiny trainer has.
NOT_READ_HERE = {
    "optim_target_modules": "by the optimizers that project gradients, which are refused",
    "length_column_name": "of datasets of `datasets`, where samples are grouped by length",
    "hub_strategy": "by the refusal of the strategies that push checkpoints",
}
#: What reads arguments whatever they are.
ALL_READERS = {
    "__post_init__",
    "_arguments",
    "<dictcomp>",
    "reasons_against",
    "to_dict",
    "__repr__",
}


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Trainers make their output directory, wherever they are."""
    monkeypatch.chdir(tmp_path)


def fields() -> list[dataclasses.Field[Any]]:
    from transformers import TrainingArguments

    return list(dataclasses.fields(TrainingArguments))


def names(verdict: str) -> list[str]:
    return sorted(name for name, argument in ARGUMENTS.items() if argument.verdict == verdict)


def other_than_default(name: str) -> Any:
    (field,) = (field for field in fields() if field.name == name)
    default = None if field.default is dataclasses.MISSING else field.default
    if name in OTHERS:
        return OTHERS[name]
    if isinstance(default, bool):
        return not default
    return default + 1 if isinstance(default, int | float) else "other"


def with_argument(name: str, value: Any, **changes: Any) -> MakeTrainer:
    """One whose argument was set once it was made: not every value can be given without more."""

    def make() -> Any:
        made = trainer_models.causal(**changes)()
        setattr(made.args, name, value)
        return made

    return make


def test_every_argument_of_this_transformers_is_in_the_table_and_no_other_is() -> None:
    known = {field.name for field in fields()}
    assert known - set(ARGUMENTS) == set(), "say what becomes of these in arguments.py"
    assert set(ARGUMENTS) - known == set(), "these are of other versions"
    assert known.isdisjoint(arguments.OF_OTHER_VERSIONS)


def test_the_page_is_what_the_table_says() -> None:
    said = "run `python -m saturn.trainers.arguments > docs/trainer-arguments.md`"
    assert PAGE.read_text() == arguments.page(), said
    index = (PAGE.parent / "index.md").read_text()
    assert "(trainer-arguments.md)" in index


@pytest.mark.parametrize("name", names(REFUSED))
def test_another_value_of_what_is_refused_raises(name: str) -> None:
    value, argument = other_than_default(name), ARGUMENTS[name]
    changes = trainer_models.evaluates(texts()) if argument.of_evaluation else {}
    told = f"`{name}=False`: " if value is False else f"`{name}`: "
    with pytest.raises(InvalidInput, match=re.escape(told + argument.why)):
        Task.from_trainer(with_argument(name, value, **changes))
    if argument.of_evaluation:
        Task.from_trainer(with_argument(name, value, **changes), evaluate=None)


@pytest.mark.parametrize("name", names(IRRELEVANT))
def test_any_value_of_what_is_irrelevant_is_taken_and_shares_its_trials(name: str) -> None:
    make = with_argument(name, other_than_default(name))
    known = profile_key(Task.from_trainer(trainer_models.causal(), name="task"))
    assert profile_key(Task.from_trainer(make, name="task")) == known


@pytest.mark.parametrize("name", arguments.REFUSED_VALUES)
def test_values_that_are_refused_are_refused_with_their_reason(name: str) -> None:
    for value, reason in arguments.REFUSED_VALUES[name].items():
        with pytest.raises(InvalidInput, match=re.escape(f"`{name}={value}`: {reason}")):
            Task.from_trainer(with_argument(name, value))


def test_every_optimizer_of_transformers_is_taken_or_refused_by_name() -> None:
    from transformers.training_args import OptimizerNames

    for optim in OptimizerNames:
        kinds = [kind for kind in arguments.REFUSED_OPTIMIZERS if kind in optim.value]
        made = trainer_models.causal()().args
        made.optim = optim
        told = list(arguments.reasons_against(made, evaluates=False))
        assert len(told) == bool(kinds), optim


def test_an_argument_that_nobody_knows_must_have_its_default(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delitem(ARGUMENTS, "weight_decay")
    with pytest.raises(InvalidInput, match="`weight_decay`: Saturn doesn't know this argument"):
        Task.from_trainer(trainer_models.causal(weight_decay=0.2))
    Task.from_trainer(trainer_models.causal(weight_decay=0.0))


def test_what_is_honoured_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By Saturn's code or by the trainer's that Saturn calls, once the arguments are made."""
    import huggingface_hub
    from transformers import TrainingArguments

    read: set[str] = set()
    known = {field.name for field in fields()}

    def spy(self: Any, name: str) -> Any:
        if name in known and sys._getframe(1).f_code.co_name not in ALL_READERS:
            read.add(name)
        return object.__getattribute__(self, name)

    monkeypatch.setattr(TrainingArguments, "__getattribute__", spy)
    uploads: list[str] = []
    monkeypatch.setattr(
        huggingface_hub.HfApi,
        "create_repo",
        lambda self, name, **_: huggingface_hub.RepoUrl(f"https://huggingface.co/someone/{name}"),
    )
    monkeypatch.setattr(
        huggingface_hub.HfApi,
        "upload_folder",
        lambda self, **options: uploads.append(options["repo_id"]) or "there",
    )
    make = trainer_models.causal(
        **trainer_models.evaluates(texts()),
        metric_for_best_model="accuracy",
        load_best_model_at_end=True,
        save_strategy="steps",
        save_steps=2,
        push_to_hub=True,
        hub_model_id="model",
        max_steps=2,
    )
    by_epochs = trainer_models.causal(max_steps=-1, num_train_epochs=0.5)
    for number, each in enumerate((make, by_epochs)):
        task = Task.from_trainer(each, name="spied").definition()
        with in_process.gang_of_one(tmp_path / str(number)) as gang:
            stepper = in_process.stepper_of(task, Ddp(), gang)
            listener = task.step_loss.listener(print)
            listener.began(0)
            staged = stepper.stage(next(stepper.pieces(Position())))
            loss = stepper.step(staged, stop=False, save=False).result().loss
            listener.stepped(1, loss)
            if task.evaluate is not None:
                Evaluator(task, stepper.parallel, gang, note=print, draws=stepper.draws).run()
                task.step_loss.publish(lambda module: None, 1)
    assert uploads == ["someone/model"]
    honoured = set(names(HONOURED))
    assert honoured - read == set(NOT_READ_HERE)
    assert NOT_READ_HERE.keys() <= honoured
