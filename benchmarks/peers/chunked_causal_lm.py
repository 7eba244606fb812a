"""A causal language model of transformers with a large vocabulary, and install(chunked_loss=...).

    python benchmarks/peers/chunked_causal_lm.py     # Llama, 4 layers of 256, 2,048 tokens, 32,768 words, on the CPU

Prints the most bytes that all tensors take during a step, on top of what was there before, as the profiler counts them, and the
least time of three steps as a ratio of the plain one's. All but "plain" checkpoint each layer.
"""

import torch
import transformers
from step_costs import least_seconds, most_bytes

import ac2.integrations.transformers as integration

ROWS, COLUMNS, WORDS = 8, 256, 32768

torch.manual_seed(0)
config = transformers.LlamaConfig(
    hidden_size=256, intermediate_size=1024, num_hidden_layers=4, num_attention_heads=8, num_key_value_heads=8, vocab_size=WORDS
)
model = transformers.LlamaForCausalLM(config).train()
ids = torch.randint(WORDS, (ROWS, COLUMNS))


def installed(**options):
    integration.install(**options)
    model.gradient_checkpointing_enable()


WAYS = {
    "plain": lambda: None,
    "transformers": lambda: model.gradient_checkpointing_enable({"use_reentrant": False}),
    "ac2": installed,
    "ac2, auto": lambda: installed(chunked_loss="auto"),
    "ac2, 64 MiB": lambda: installed(chunked_loss="64MiB"),
    "ac2, 16 MiB": lambda: installed(chunked_loss="16MiB"),
}


def run():
    model(ids, labels=ids, use_cache=False).loss.backward()


plain = None
for name, enable in WAYS.items():
    model.gradient_checkpointing_disable()
    integration.uninstall()
    enable()
    model.zero_grad()
    run()
    least = least_seconds(model.zero_grad, run)
    plain = plain or least
    print(f"{name:16} {most_bytes(model.zero_grad, run) / 2**20:7.1f} MiB   {least / plain:.2f} of plain's time")
