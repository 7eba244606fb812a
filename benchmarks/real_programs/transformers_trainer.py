"""A GPT-2 of four layers, from a config, by transformers' Trainer: dropout, accumulation, evaluation, clipping, a schedule."""

import sys

import torch
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, set_seed


class Tokens(Dataset):
    def __init__(self, count, length):
        generator = torch.Generator().manual_seed(1)
        self.rows = torch.randint(0, 512, (count, length), generator=generator)

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return {"input_ids": self.rows[index], "labels": self.rows[index]}


def main():
    times = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    set_seed(0)
    config = GPT2Config(vocab_size=512, n_positions=128, n_embd=128, n_layer=4, n_head=4, bos_token_id=0, eos_token_id=0)
    model = GPT2LMHeadModel(config)
    arguments = TrainingArguments(
        output_dir=sys.argv[1] + ".trainer",
        max_steps=4,
        per_device_train_batch_size=8 * times,
        gradient_accumulation_steps=2,
        eval_strategy="steps",
        eval_steps=2,
        warmup_steps=1,
        logging_steps=1,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
    )
    trainer = Trainer(model=model, args=arguments, train_dataset=Tokens(64 * times, 128), eval_dataset=Tokens(16, 128))
    result = trainer.train()
    print(f"loss {result.training_loss!r}")
    torch.save(model.state_dict(), sys.argv[1])


if __name__ == "__main__":
    main()
