"""A script in the manner of those that train a language model with a Trainer of transformers.

It parses arguments, builds a model and data, trains, evaluates, and saves what it has found.
"""

import json
import math
import sys
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch.utils.data import Dataset
from transformers import (
    HfArgumentParser,
    LlamaConfig,
    LlamaForCausalLM,
    Trainer,
    TrainingArguments,
    set_seed,
)


@dataclass
class ModelArguments:
    hidden_size: int = field(default=32, metadata={"help": "of the model"})
    num_samples: int = field(default=48)


class Texts(Dataset):
    def __init__(self, count: int, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.ids = torch.randint(0, 64, (count, 12), generator=generator)

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"input_ids": self.ids[index], "labels": self.ids[index]}


def main() -> None:
    parser = HfArgumentParser((ModelArguments, TrainingArguments))
    model_args, args = parser.parse_args_into_dataclasses()
    set_seed(args.seed)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=64,
            hidden_size=model_args.hidden_size,
            intermediate_size=2 * model_args.hidden_size,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_key_value_heads=2,
        )
    )
    trainer = Trainer(
        model=model,
        args=args,
        train_dataset=Texts(model_args.num_samples, 1) if args.do_train else None,
        eval_dataset=Texts(16, 2),
    )
    if args.do_train:
        result = trainer.train(resume_from_checkpoint=args.resume_from_checkpoint)
        trainer.save_model()
        trainer.log_metrics("train", result.metrics)
        trainer.save_metrics("train", result.metrics)
        trainer.save_state()
    metrics = trainer.evaluate()
    metrics["perplexity"] = math.exp(metrics["eval_loss"])
    trainer.save_metrics("eval", metrics)
    Path(args.output_dir, "done.json").write_text(json.dumps(sys.argv[1:]))


if __name__ == "__main__":
    main()
