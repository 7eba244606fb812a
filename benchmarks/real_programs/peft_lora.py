"""LoRA of peft on a Llama from a config, with transformers' own checkpointing on, by transformers' Trainer."""

import sys

import torch
from peft import LoraConfig, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments, set_seed


def main():
    times = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    set_seed(0)
    config = LlamaConfig(
        vocab_size=512, hidden_size=64, intermediate_size=128, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2
    )
    model = get_peft_model(LlamaForCausalLM(config), LoraConfig(r=4, lora_dropout=0.1, target_modules=["q_proj", "v_proj", "down_proj"]))
    model.print_trainable_parameters()
    arguments = TrainingArguments(
        output_dir=sys.argv[1] + ".trainer",
        max_steps=4,
        per_device_train_batch_size=8 * times,
        gradient_checkpointing=True,
        logging_steps=1,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
    )
    tokens = torch.randint(0, 512, (32 * times, 64))
    Trainer(model=model, args=arguments, train_dataset=[{"input_ids": row, "labels": row} for row in tokens]).train()
    merged = model.merge_and_unload()
    torch.save(merged.state_dict(), sys.argv[1])


if __name__ == "__main__":
    main()
