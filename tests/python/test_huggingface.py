"""What others can do with a trained model: plain torch's way in, and Hugging Face's."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import model_kinds
import pytest
import saturn
import torch
from harness import Runtime
from models import Mlp, definition
from saturn.checkpoint import manifest

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference.md"


def lines_of_the_page() -> str:
    """The documented lines that load a checkpoint without Saturn."""
    (block,) = re.findall(
        r"```python\n(import torch\.distributed\.checkpoint.*?)```", PAGE.read_text(), re.S
    )
    return block


def loaded_as_documented(model: torch.nn.Module, checkpoint: Path) -> torch.nn.Module:
    with pytest.warns(UserWarning, match="single process"):
        exec(lines_of_the_page(), {"model": model, "checkpoint": checkpoint})
    return model.eval()


def trained(run: Runtime, task: Any, technique: str = "fsdp") -> Path:
    """Train it a little; returns its checkpoint."""
    run.write_task(task)
    result = run.run(task.name, technique, ranks=2, steps=3)
    assert result.codes == [0, 0], result.logs
    assert result.of("note") == []
    newest = manifest.newest_valid(run.task_dir(task.name) / "checkpoints")
    assert newest is not None
    return newest[0]


def test_the_page_has_three_lines() -> None:
    assert len(lines_of_the_page().splitlines()) == 3
    assert "saturn" not in lines_of_the_page()


@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_a_trained_model_is_loaded_by_from_pretrained(
    run: Runtime, tmp_path: Path, kind: str
) -> None:
    from transformers import AutoModelForCausalLM

    task = model_kinds.task_of(kind)
    checkpoint = trained(run, task)
    expected = loaded_as_documented(task.get_model(), checkpoint)
    # A fresh one is another: it did train.
    tokens = torch.arange(model_kinds.LENGTH).unsqueeze(0)
    assert not torch.equal(expected(tokens).logits, task.get_model().eval()(tokens).logits)

    drawn_next = torch.get_rng_state()
    directory = saturn.export(run.run_dir, task.name, tmp_path / "new" / "model")
    assert torch.equal(torch.get_rng_state(), drawn_next)
    names = {path.name for path in directory.iterdir()}
    assert {"config.json", "model.safetensors"} <= names
    assert not [name for name in names if name.endswith((".bin", ".pt", ".pkl"))]
    loaded = AutoModelForCausalLM.from_pretrained(directory).eval()
    assert torch.equal(loaded(tokens).logits, expected(tokens).logits)
    tied = loaded.get_input_embeddings().weight is loaded.get_output_embeddings().weight
    assert tied == (kind == "gpt2")
    with pytest.raises(saturn.InvalidInput, match="is there already"):
        saturn.export(run.run_dir, task.name, directory)


def test_a_checkpoint_that_training_removes_meanwhile_makes_way_for_the_next(
    run: Runtime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from saturn.checkpoint import huggingface
    from transformers import AutoModelForCausalLM

    task = model_kinds.task_of("gpt2")
    checkpoint = trained(run, task)
    newer = checkpoint.with_name("step-00000009")
    build = huggingface.build_model

    def build_while_training_goes_on(*arguments: Any) -> Any:
        checkpoint.rename(newer)  # as if the next were written, and this one pruned
        return build(*arguments)

    monkeypatch.setattr(huggingface, "build_model", build_while_training_goes_on)
    directory = saturn.export(run.run_dir, task.name, tmp_path / "model")
    expected = loaded_as_documented(task.get_model(), newer)
    tokens = torch.arange(model_kinds.LENGTH).unsqueeze(0)
    loaded = AutoModelForCausalLM.from_pretrained(directory).eval()
    assert torch.equal(loaded(tokens).logits, expected(tokens).logits)


@pytest.mark.slow
def test_save_dir_gets_one_too(run: Runtime, tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM

    models = tmp_path / "models"
    task = model_kinds.task_of("gpt2", save_dir=models)
    checkpoint = trained(run, task)
    trained(run, task)  # all steps are done: what is there stays
    written = sorted(path.name for path in (models / task.name).iterdir())
    assert written == ["step-00000003", "step-00000003-huggingface"]
    loaded = AutoModelForCausalLM.from_pretrained(models / task.name / written[1]).eval()
    tokens = torch.arange(model_kinds.LENGTH).unsqueeze(0)
    expected = loaded_as_documented(task.get_model(), checkpoint)
    assert torch.equal(loaded(tokens).logits, expected(tokens).logits)


def test_a_limited_device_does_not_limit_the_copy(run: Runtime, tmp_path: Path) -> None:
    def built_with_much() -> torch.nn.Module:
        torch.ones(600 * 10**6 // 4)
        return model_kinds.gpt2()

    task = model_kinds.task_of("gpt2", get_model=built_with_much, save_dir=tmp_path / "models")
    run.write_task(task)
    result = run.run(task.name, "ddp", steps=2, device_memory_bytes=200 * 10**6)
    assert result.codes == [0], result.logs
    assert result.of("note") == []
    names = {path.name for path in (tmp_path / "models" / task.name).iterdir()}
    assert names == {"step-00000002", "step-00000002-huggingface"}


def test_other_models_load_in_plain_torch(run: Runtime, tmp_path: Path) -> None:
    checkpoint = trained(run, definition())
    model = loaded_as_documented(Mlp(), checkpoint)
    again = Mlp()
    assert not torch.equal(model.head.weight, again.head.weight)
    with pytest.raises(saturn.InvalidInput, match=r"a Mlp, which is no PreTrainedModel.*three"):
        saturn.export(run.run_dir, "mlp", tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_export_says_what_is_missing(run: Runtime, tmp_path: Path) -> None:
    with pytest.raises(saturn.InvalidInput, match="is no run directory"):
        saturn.export(tmp_path / "nowhere", "mlp", tmp_path / "model")
    trained(run, definition())
    with pytest.raises(saturn.InvalidInput, match="no task `other`; it has `mlp`"):
        saturn.export(run.run_dir, "other", tmp_path / "model")
    shutil.rmtree(run.task_dir("mlp") / "checkpoints")
    with pytest.raises(saturn.InvalidInput, match="has no checkpoint in"):
        saturn.export(run.run_dir, "mlp", tmp_path / "model")
