"""Tiny trainers for the tests: each is made by a function, as `Task.from_trainer` wants it.

Importing this file does not import transformers; making a trainer does.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

VOCABULARY = 48
#: Not a multiple of what makes a step: each epoch ends with less.
SAMPLES = 22

MakeTrainer = Callable[[], Any]


def texts(*, targets: bool = False) -> list[dict[str, Any]]:
    """Token sequences of different lengths; with `targets` labels of their own."""
    generator = torch.Generator().manual_seed(3)

    def tokens(length: int) -> list[int]:
        return torch.randint(3, VOCABULARY, (length,), generator=generator).tolist()

    samples = []
    for number in range(SAMPLES):
        own = tokens(6 + number % 5)
        samples.append({"input_ids": own, "labels": tokens(4 + number % 3) if targets else own})
    return samples


def labelled() -> list[dict[str, Any]]:
    return [
        {"input_ids": each["input_ids"], "labels": each["input_ids"][0] % 3} for each in texts()
    ]


def collate(samples: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
    """Padded on the right; labels that are sequences by -100."""

    def padded(key: str, value: int) -> torch.Tensor:
        longest = max(len(sample[key]) for sample in samples)
        rows = [sample[key] + [value] * (longest - len(sample[key])) for sample in samples]
        return torch.tensor(rows)

    inputs = padded("input_ids", 0)
    one_each = isinstance(samples[0]["labels"], int)
    labels = torch.tensor([sample["labels"] for sample in samples]) if one_each else None
    return {
        "input_ids": inputs,
        "attention_mask": (inputs != 0).long(),
        "labels": padded("labels", -100) if labels is None else labels,
    }


def arguments(**changes: Any) -> dict[str, Any]:
    return {
        "output_dir": Path(tempfile.gettempdir(), "saturn-trainer-output"),
        "max_steps": 6,
        "per_device_train_batch_size": 4,
        "gradient_accumulation_steps": 4,
        "learning_rate": 5e-3,
        "weight_decay": 0.1,
        "warmup_steps": 2,
        "lr_scheduler_type": "cosine",
        "logging_steps": 1,
        "save_strategy": "no",
        "disable_tqdm": True,
        "use_cpu": True,
        "dataloader_pin_memory": False,
        **changes,
    }


def llama(**config: Any) -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 2, "max_position_embeddings": 32}
    return LlamaForCausalLM(LlamaConfig(vocab_size=VOCABULARY, **sizes, **heads, **config))


def trainer(model: Any, data: Any, cls: Any = None, *, given: Any = None, **changes: Any) -> Any:
    from transformers import Trainer, TrainingArguments

    args = TrainingArguments(**arguments(**changes))
    made = cls or Trainer
    return made(model, args, train_dataset=data, data_collator=collate, **(given or {}))


def causal(**changes: Any) -> MakeTrainer:
    """A causal language model, whose head counts the items of a step."""
    return lambda: trainer(llama(), texts(), **changes)


def with_dropout(**changes: Any) -> MakeTrainer:
    return lambda: trainer(llama(attention_dropout=0.2), texts(), **changes)


def classifier(**changes: Any) -> MakeTrainer:
    """One whose head is told the items of a step, and makes nothing of it."""

    def make() -> Any:
        from transformers import BertConfig, BertForSequenceClassification

        torch.manual_seed(0)
        sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2}
        config = BertConfig(
            vocab_size=VOCABULARY,
            **sizes,
            num_attention_heads=2,
            max_position_embeddings=32,
            num_labels=3,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
        )
        return trainer(BertForSequenceClassification(config), labelled(), **changes)

    return make


def seq2seq(*, given: Any = None, **changes: Any) -> MakeTrainer:
    def make() -> Any:
        from transformers import (
            Seq2SeqTrainer,
            Seq2SeqTrainingArguments,
            T5Config,
            T5ForConditionalGeneration,
        )

        torch.manual_seed(0)
        config = T5Config(
            vocab_size=VOCABULARY,
            d_model=16,
            d_kv=8,
            d_ff=32,
            num_layers=2,
            num_heads=2,
            dropout_rate=0.1,
            decoder_start_token_id=0,
        )
        return Seq2SeqTrainer(
            T5ForConditionalGeneration(config),
            Seq2SeqTrainingArguments(**arguments(**changes)),
            train_dataset=texts(targets=True),
            data_collator=collate,
            **(given or {}),
        )

    return make


def custom_loss(*, given: Any = None, **changes: Any) -> MakeTrainer:
    """A trainer with a loss of its own, which is a mean over the rows of a batch."""

    def make() -> Any:
        from transformers import Trainer

        class Weighted(Trainer):
            def compute_loss(
                self, model: Any, inputs: Any, return_outputs: bool = False, **_: Any
            ) -> Any:
                labels = inputs.pop("labels")
                outputs = model(**inputs)
                weight = torch.tensor([1.0, 2.0, 3.0], device=labels.device)
                each = torch.nn.functional.cross_entropy(
                    outputs.logits, labels, weight=weight, reduction="none"
                )
                return (each.mean(), outputs) if return_outputs else each.mean()

        found = classifier()()
        return trainer(found.model, labelled(), Weighted, given=given, **changes)

    return make


def calling_its_own(*, unwraps: bool, **changes: Any) -> MakeTrainer:
    """One whose loss calls the trainer's own model, instead of the model that it is given."""

    def make() -> Any:
        from transformers import Trainer

        class OfItsOwn(Trainer):
            def compute_loss(
                self, model: Any, inputs: Any, return_outputs: bool = False, **_: Any
            ) -> Any:
                own = self.accelerator.unwrap_model(model) if unwraps else self.model
                outputs = own(**inputs)
                return (outputs.loss, outputs) if return_outputs else outputs.loss

        return trainer(llama(), texts(), OfItsOwn, **changes)

    return make


def annealed(**changes: Any) -> MakeTrainer:
    """One whose loss depends on how far the training is."""

    def make() -> Any:
        from transformers import Trainer

        class Annealed(Trainer):
            def compute_loss(
                self, model: Any, inputs: Any, return_outputs: bool = False, **more: Any
            ) -> Any:
                found = super().compute_loss(model, inputs, return_outputs, **more)
                state = self.state
                factor = 1 + 3 * state.global_step / state.max_steps + state.epoch
                return (found[0] * factor, found[1]) if return_outputs else found * factor

        return trainer(llama(), texts(), Annealed, **changes)

    return make


def accuracy(prediction: Any) -> dict[str, Any]:
    """Of all rows, and what is no number; labels of -100 do not count."""
    predicted = prediction.predictions
    if predicted.ndim > prediction.label_ids.ndim:
        predicted = predicted.argmax(-1)
    counts = prediction.label_ids != -100
    right = (predicted == prediction.label_ids)[counts]
    return {"accuracy": right.mean(), "eval_rows": len(counts), "shape": list(counts.shape)}


def most_likely(logits: Any, labels: Any) -> Any:
    return logits.argmax(-1)


def evaluates(data: Any, **given: Any) -> dict[str, Any]:
    """Changes of a trainer: it evaluates on 10 samples, in batches of 4, 4 and 2."""
    return {
        "given": {"eval_dataset": data[:10], "compute_metrics": accuracy, **given},
        "eval_strategy": "steps",
        "eval_steps": 2,
        "per_device_eval_batch_size": 4,
    }


def own_optimizer(*, of: Any = None, **changes: Any) -> MakeTrainer:
    """One that was given an optimizer and a scheduler; `of` gives a model's parameters for it."""

    def make() -> Any:
        model = llama()
        parameters = model.parameters() if of is None else of(model)
        optimizer = torch.optim.SGD(parameters, lr=0.1, momentum=0.9)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
        return trainer(model, texts(), given={"optimizers": (optimizer, scheduler)}, **changes)

    return make


def lora_over_pretrained(**changes: Any) -> MakeTrainer:
    """One whose base model comes in eval mode, as pretrained ones do; its wrapper doesn't."""

    def make() -> Any:
        from peft import LoraConfig, get_peft_model
        from transformers import LlamaForCausalLM

        with tempfile.TemporaryDirectory() as directory:
            llama(attention_dropout=0.2).save_pretrained(directory)
            base = LlamaForCausalLM.from_pretrained(directory)
        torch.manual_seed(0)
        model = get_peft_model(
            base, LoraConfig(r=4, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")
        )
        assert model.training and not base.training
        return trainer(model, texts(), **changes)

    return make


def lora(**changes: Any) -> MakeTrainer:
    def make() -> Any:
        from peft import LoraConfig, get_peft_model

        torch.manual_seed(0)
        config = LoraConfig(r=4, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")
        model = get_peft_model(llama(), config)
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if "lora_B" in name:  # all zeros, which would train slowly
                    parameter.normal_(std=0.1)
        return trainer(model, texts(), **changes)

    return make


def from_init(**changes: Any) -> MakeTrainer:
    """One that makes its model when it begins."""
    return lambda: trainer(None, texts(), given={"model_init": fresh_llama}, **changes)


def fresh_llama() -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 2, "max_position_embeddings": 32}
    return LlamaForCausalLM(
        LlamaConfig(vocab_size=VOCABULARY, **sizes, **heads, attention_dropout=0.1)
    )


#: What the callback of each trainer of `watched` was told, since the last that began.
heard: list[list[tuple[str, dict[str, Any]]]] = []


def watched(*, fails: bool = False, **changes: Any) -> MakeTrainer:
    """One with a callback that keeps what it is told."""

    def make() -> Any:
        from transformers import TrainerCallback

        class Keeping(TrainerCallback):
            def keep(self, event: str, state: Any, **logs: Any) -> None:
                heard[-1].append((f"{event} {state.global_step}", logs))

            def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
                heard.append([])

            def on_epoch_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
                self.keep("epoch begins at", state)

            def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
                if fails:
                    raise OSError("nobody listens")
                self.keep("step", state, of=state.max_steps)

            def on_log(
                self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any
            ) -> None:
                names = ("loss", "learning_rate", "eval_loss")
                if plain := {key: logs[key] for key in names if key in logs}:
                    self.keep("log at", state, **plain)

            def on_evaluate(
                self, args: Any, state: Any, control: Any, metrics: Any = None, **_: Any
            ) -> None:
                self.keep("evaluated at", state, eval_loss=metrics["eval_loss"])

        given = {"callbacks": [Keeping()], "eval_dataset": texts()[:10]}
        return trainer(llama(), texts(), given=given, **changes)

    return make


def own_method(name: str) -> MakeTrainer:
    """One whose class has a method of its own."""

    def make() -> Any:
        from transformers import Trainer

        own = type("Own", (Trainer,), {name: lambda self, *args, **kwargs: None})
        return trainer(llama(), texts(), own)

    return make


def has_run() -> Any:
    made = causal(max_steps=1)()
    made.train()
    return made


def run(make: MakeTrainer) -> tuple[dict[int, float], dict[str, torch.Tensor]]:
    """(loss by step number from 1, the trained weights) of the trainer's own `train`."""
    import warnings

    from transformers import TrainerCallback

    losses: dict[int, float] = {}

    class Listener(TrainerCallback):
        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
            if "loss" in logs:
                losses[state.global_step] = float(logs["loss"])

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = make()
        made.add_callback(Listener())
        made.train()
    return losses, {name: value.clone() for name, value in made.model.state_dict().items()}
