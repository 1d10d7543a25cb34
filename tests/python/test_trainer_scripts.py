"""Scripts that make a transformers Trainer: what they would train is a task; then they go on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import closeness
import pytest

pytest.importorskip("accelerate", reason="a Trainer needs it")

import saturn
import torch
import trainer_models
import trl_models
from harness import runtime
from safetensors.torch import load_file
from saturn import Task
from saturn.errors import InvalidInput
from saturn.runs import request
from saturn.runs.profiles import Profile
from saturn.runs.request import Wishes
from saturn.scripts import task as script_task
from saturn.scripts.task import ScriptTask, makes_trainer
from saturn.tasks.profile_key import profile_key
from saturn.trainers import rest
from warm_parent import Warm

CLM = Path(__file__).parent / "clm_script.py"
ARGS = [
    *("--do_train", "--max_steps", "6", "--per_device_train_batch_size", "4", "--seed", "3"),
    *("--learning_rate", "0.01", "--report_to", "none", "--save_strategy", "no"),
]


def script(output: Path, *args: object, **options: object) -> Task:
    return Task.script(CLM, [*ARGS, "--output_dir", output, *args], **options)  # type: ignore[arg-type]


@pytest.mark.slow
def test_a_script_is_trained_and_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    own = tmp_path / "own"
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    subprocess.run(
        [sys.executable, CLM, *ARGS, "--output_dir", own, "--use_cpu"],
        check=True,
        env=environment,
        capture_output=True,
    )
    options = {"save_dir": tmp_path / "saved", "parameters": {"size": "small"}}
    task = script(tmp_path / "ours", name="clm", techniques=["ddp"], gpu_range=1, **options)
    assert not isinstance(task, ScriptTask) and task.parameters == {"size": "small"}
    result = saturn.orchestrate([task], devices=1, name="trained")
    assert [(one.name, one.status) for one in result.tasks] == [
        ("clm", "done"),
        ("clm-rest", "done"),
    ]
    assert result.tasks[0].steps == 6
    assert (tmp_path / "saved" / "clm" / "step-00000006-huggingface" / "config.json").is_file()
    assert [row["task"] for row in result.rows()] == ["clm"], "its rest trains nothing"
    weights = [load_file(path / "model.safetensors") for path in (own, tmp_path / "ours")]
    assert weights[0].keys() == weights[1].keys()
    assert closeness.ulps(weights[1], weights[0]) < closeness.ACROSS
    evals = [
        json.loads((path / "eval_results.json").read_text()) for path in (own, tmp_path / "ours")
    ]
    assert closeness.ulps(evals[1]["eval_loss"], evals[0]["eval_loss"]) < closeness.ACROSS
    state = json.loads((tmp_path / "ours" / "trainer_state.json").read_text())
    assert state["global_step"] == 6 and len(state["log_history"]) >= 6
    assert (tmp_path / "ours" / "done.json").exists()


def test_the_rest_is_planned_as_long_as_the_script_takes_to_its_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The first task of a script took 7 s, imports and all, the second one 3 s.
    now_s = iter([0.0, 7.0, 20.0, 23.0])
    monkeypatch.setattr(script_task, "time", SimpleNamespace(monotonic=lambda: next(now_s)))
    monkeypatch.setattr(script_task, "_reached_s", {})
    tasks = [script(tmp_path, name=name) for name in ("a", "b")]
    packed = request.pack(request.checked_tasks(tasks))
    described = [one.described("tasks/x", Profile([]), [], Wishes()) for one in packed]
    rests = [one for one in described if one.get("is_rest")]
    assert [one["name"] for one in rests] == ["a-rest", "b-rest"]
    for each in rests:
        (measured,) = each["measured"]
        assert (measured["step_s"], measured["setup_s"]) == (7.0, 0.0)
    # The first of them to end says what to expect of the others.
    assert rests[0]["profile_key"] == rests[1]["profile_key"]
    keys = {one["profile_key"] for one in described}
    assert len(keys) == 2, "a rest is no training"


def test_after_its_training_a_script_finds_what_train_would_have_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes = {
        **trainer_models.evaluates(trainer_models.texts()),
        "max_steps": 5,
        "gradient_accumulation_steps": 1,
        "metric_for_best_model": "loss",
    }
    changes["given"]["processing_class"] = trl_models.tokenizer()
    monkeypatch.chdir(tmp_path)
    make = trainer_models.causal(**changes)
    expected = make()
    output = expected.train()
    lines = []
    for entry in expected.state.log_history:
        if "loss" in entry:
            lines.append({"step": entry["step"], "loss": entry["loss"], "t": entry["step"]})
        elif "eval_loss" in entry:
            found = {"eval_loss": entry["eval_loss"]}
            lines.append({"step": entry["step"], "evaluation": found, "t": entry["step"]})
    task_dir = tmp_path / "tasks" / "t"
    task_dir.mkdir(parents=True)
    (task_dir / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    state = expected.state
    heard = {"best_metric": state.best_metric, "best_global_step": state.best_global_step}
    content = {"step": 5, "epoch": 0, "listener": heard}
    monkeypatch.setattr(rest.directories, "of_task", lambda *_: task_dir)
    monkeypatch.setattr(rest.manifest, "newest_valid", lambda *_: (tmp_path, content))
    monkeypatch.setattr(rest, "read_into", lambda *_: None)
    ours = make()
    found = rest.Trained(tmp_path, "t").train(ours)
    for name in ("global_step", "max_steps", "num_train_epochs", "epoch", "best_metric"):
        assert getattr(ours.state, name) == getattr(state, name), name
    for name in ("loss", "eval_loss"):
        curves = [
            [(entry["step"], entry[name]) for entry in history if name in entry]
            for history in (ours.state.log_history, state.log_history)
        ]
        assert curves[0] == curves[1]
    assert found.metrics.keys() >= output.metrics.keys() and found.global_step == 5
    assert found.training_loss == pytest.approx(output.training_loss)
    for ours_own, its_own in (
        (ours.model.config, expected.model.config),
        (ours.model.generation_config, expected.model.generation_config),
    ):
        assert ours_own.pad_token_id == its_own.pad_token_id == 0
        assert ours_own.eos_token_id == its_own.eos_token_id


OF_TWO_PLACES = """
import os, sys
from pathlib import Path
import trainer_models
from shared_name import RATE
from torch.utils.data import Dataset
from transformers import Trainer

class Files(Dataset):
    def __init__(self):
        self.rows = trainer_models.texts()
    def __len__(self):
        return len(self.rows)
    def __getitem__(self, index):
        import imported_late
        place = Path("beside").read_text()
        assert place == os.environ["PLACE"] == sys.argv[1] == imported_late.PLACE
        return self.rows[index]

made: Trainer = trainer_models.trainer(trainer_models.llama(), Files(), learning_rate=RATE)
made.train()
"""


def of_place(directory: Path, rate: float) -> Task:
    """A script's task, with modules of names that other places have too."""
    directory.mkdir()
    place = directory.name
    (directory / "train.py").write_text(OF_TWO_PLACES)
    (directory / "shared_name.py").write_text(f"RATE = {rate}")
    (directory / "imported_late.py").write_text(f"PLACE = {place!r}")
    (directory / "beside").write_text(place)
    options = {"cwd": directory, "environment": {"PLACE": place}}
    return Task.script("train.py", [place], name=place, trainer=True, **options)


def test_two_scripts_have_modules_of_one_name(tmp_path: Path) -> None:
    before = sys.modules.copy()
    tasks = [of_place(tmp_path / place, rate) for place, rate in (("a", 0.25), ("b", 0.5))]
    assert [task.hparams.lr for task in tasks] == [0.25, 0.5]
    assert len({profile_key(task) for task in tasks}) == 2, "their modules differ"
    assert not {"shared_name", "imported_late"} & sys.modules.keys()
    assert all(sys.modules[name] is before[name] for name in ("trainer_models", "trl_models"))


def test_a_rank_is_the_scripts_process_while_it_trains(
    tmp_path: Path, warm_with_models: Warm
) -> None:
    task = of_place(tmp_path / "a", 0.25)
    (tmp_path / "run").mkdir()
    with runtime(tmp_path / "run", warm_with_models) as ranks:
        ranks.write_task(task.definition())
        result = ranks.run("a", "ddp", ranks=1, steps=1)
        assert result.codes == [0], result.logs


def test_what_a_script_must_not_do_is_said(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="ended without calling train"):
        Task.script(CLM, ["--output_dir", tmp_path, "--report_to", "none"])
    with pytest.raises(InvalidInput, match="resume_from_checkpoint='x'"):
        script(tmp_path, "--resume_from_checkpoint", "x")
    with pytest.raises(ValueError, match=r"steps is given, and clm_script\.py makes"):
        script(tmp_path, steps=3)


def test_what_makes_a_trainer_is_seen_in_its_text(tmp_path: Path) -> None:
    assert makes_trainer(CLM)
    assert not makes_trainer(Path(__file__).parent / "counting_script.py")
    path = tmp_path / "script.py"
    for text, is_one in (
        ("from trl import SFTTrainer\nSFTTrainer(model).train()", True),
        ("from trl import SFTTrainer\nimport saturn\nSFTTrainer(model)\nsaturn.report(1)", False),
        ("from transformers import AutoModel\nmodel.train()", False),
        ("this is no Python", False),
    ):
        path.write_text(text)
        assert makes_trainer(path) == is_one, text


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # their own
def test_the_scripts_of_trl_are_trained_unmodified(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trl = pytest.importorskip("trl", reason="it ships the scripts")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    trainer_models.llama(pad_token_id=0, eos_token_id=1).save_pretrained("model")
    trl_models.tokenizer().save_pretrained("model")
    texts = [trl_models.sentences(shift) for shift in (0, 3, 5)]
    rows = {
        "sft": [{"text": text} for text in texts[0]],
        "dpo": [
            {"prompt": prompt, "chosen": chosen, "rejected": rejected}
            for prompt, chosen, rejected in zip(*texts, strict=True)
        ],
    }
    lora = ["--use_peft", "--lora_r", "4", "--lora_target_modules", "q_proj", "v_proj"]
    tasks = []
    for kind, more in (("sft", lora), ("dpo", [])):
        (tmp_path / kind).mkdir()
        lines = [json.dumps(row) for row in rows[kind]]
        (tmp_path / kind / "train.jsonl").write_text("\n".join(lines))
        args = [
            *(
                "--model_name_or_path",
                "model",
                "--dataset_name",
                kind,
                "--output_dir",
                f"{kind}-out",
            ),
            *("--max_steps", 2, "--per_device_train_batch_size", 2, "--learning_rate", 0.01),
            *("--report_to", "none", "--bf16", "False", "--activation_checkpointing", "False"),
        ]
        path = Path(trl.__file__).parent / "scripts" / f"{kind}.py"
        tasks.append(Task.script(path, [*args, *more], name=kind, techniques=["ddp"], gpu_range=1))
    result = saturn.orchestrate(tasks, devices=2)
    assert {one.name: one.steps for one in result.tasks} == {
        "sft": 2,
        "sft-rest": 1,
        "dpo": 2,
        "dpo-rest": 1,
    }
    adapter = load_file("sft-out/adapter_model.safetensors")
    # LoRA begins with a product of nothing.
    changed = [tensor for name, tensor in adapter.items() if "lora_B" in name]
    assert changed and all(tensor.abs().max() > 0 for tensor in changed)
    before, after = (load_file(f"{name}/model.safetensors") for name in ("model", "dpo-out"))
    assert any(not torch.equal(before[name], tensor) for name, tensor in after.items())
