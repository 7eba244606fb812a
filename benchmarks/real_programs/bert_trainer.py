"""A BERT that learns masked tokens by transformers' Trainer in bfloat16 autocast, with its own checkpoints and the best one loaded."""

import sys

import torch
from transformers import BertConfig, BertForMaskedLM, Trainer, TrainingArguments, set_seed


def rows(count):
    generator = torch.Generator().manual_seed(1)
    tokens = torch.randint(5, 300, (count, 64), generator=generator)
    masked = torch.rand(tokens.shape, generator=generator) < 0.15
    return [
        {"input_ids": row.masked_fill(mask, 4), "attention_mask": torch.ones_like(row), "labels": row.masked_fill(~mask, -100)}
        for row, mask in zip(tokens, masked)
    ]


def main():
    times = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    set_seed(0)
    config = BertConfig(vocab_size=300, hidden_size=96, num_hidden_layers=3, num_attention_heads=4, intermediate_size=192)
    model = BertForMaskedLM(config)
    arguments = TrainingArguments(
        output_dir=sys.argv[1] + ".trainer",
        num_train_epochs=2,
        per_device_train_batch_size=8 * times,
        bf16=True,
        eval_strategy="epoch",
        save_strategy="epoch",
        load_best_model_at_end=True,
        logging_steps=2,
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
    )
    trainer = Trainer(model=model, args=arguments, train_dataset=rows(24 * times), eval_dataset=rows(8))
    trainer.train()
    print(f"eval loss {trainer.evaluate()['eval_loss']!r}")
    torch.save(model.state_dict(), sys.argv[1])


if __name__ == "__main__":
    main()
