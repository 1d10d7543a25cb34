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
from safetensors.torch import load_file
from saturn import Task
from saturn.errors import InvalidInput
from saturn.runs import request
from saturn.runs.profiles import Profile
from saturn.runs.request import Wishes
from saturn.scripts import task as script_task
from saturn.scripts.task import ScriptTask, makes_trainer

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
    for rest in rests:
        (measured,) = rest["measured"]
        assert (measured["step_s"], measured["setup_s"]) == (7.0, 0.0)
    # The first of them to end says what to expect of the others.
    assert rests[0]["profile_key"] == rests[1]["profile_key"]
    keys = {one["profile_key"] for one in described}
    assert len(keys) == 2, "a rest is no training"


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
