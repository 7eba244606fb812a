"""Models of torchvision and transformers, unchanged, one region around each: the bits of plain PyTorch."""

import pytest
import torch

import ac2
from device import DEVICE, IS_CPU, there
from support import assert_same, run, same_bits

torchvision = pytest.importorskip("torchvision")
transformers = pytest.importorskip("transformers")

POLICIES = ["recompute_all", "save_compute_intensive", "speed", "must_save_all"]


def images(size=64, channels=3, batch=2):
    return there(torch.randn(batch, channels, size, size, generator=torch.Generator().manual_seed(2)))


def tokens(length=12, batch=2, vocabulary=64):
    return there(torch.randint(1, vocabulary, (batch, length), generator=torch.Generator().manual_seed(2)))


def classifier(name, size=64, **kwargs):
    def make():
        return torchvision.models.get_model(name, weights=None, num_classes=4, **kwargs)

    def loss(model):
        output = model(images(size))
        outputs = output if isinstance(output, (tuple, list)) else [output]
        return sum(torch.nn.functional.cross_entropy(part, torch.tensor([1, 3], device=DEVICE)) for part in outputs)

    return make, loss


def segmentation(name):
    def make():
        return torchvision.models.get_model(name, weights=None, weights_backbone=None, num_classes=3)

    return make, lambda model: model(images(48))["out"].square().mean()


def maxvit():
    def make():
        return torchvision.models.MaxVit(
            input_size=(32, 32), stem_channels=8, partition_size=2, block_channels=[8, 16], block_layers=[1, 1], head_dim=8,
            stochastic_depth_prob=0.2, num_classes=4)

    return make, classifier("maxvit_t", 32)[1]


def detection(name, **kwargs):
    def make():
        return torchvision.models.get_model(name, weights=None, weights_backbone=None, num_classes=3, **kwargs)

    def loss(model):
        targets = [{"boxes": there(torch.tensor([[4.0, 6.0, 40.0, 44.0]])), "labels": there(torch.tensor([1]))} for _ in range(2)]
        return sum(model(list(images()), targets).values())

    return make, loss


def language(config, auto=None, **settings):
    def make():
        made = getattr(transformers, config)(vocab_size=64, pad_token_id=0, bos_token_id=1, eos_token_id=2, **settings)
        return getattr(transformers, auto or "AutoModelForCausalLM").from_config(made)

    return make, lambda model: model(input_ids=tokens(), labels=tokens()).loss


_LLAMA = dict(hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2)
_BART = dict(d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4,
             encoder_ffn_dim=64, decoder_ffn_dim=64, decoder_start_token_id=2)
_BERT = dict(hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4)


def vision(config, **settings):
    def make():
        return transformers.AutoModelForImageClassification.from_config(
            getattr(transformers, config)(image_size=32, num_labels=4, **settings))

    return make, lambda model: model(images(32), labels=torch.tensor([1, 3], device=DEVICE)).loss


def whisper():
    def make():
        config = transformers.WhisperConfig(vocab_size=64, num_mel_bins=8, max_source_positions=16, max_target_positions=16,
                                            pad_token_id=0, bos_token_id=1, eos_token_id=2, **_BART)
        return transformers.WhisperForConditionalGeneration(config)

    def loss(model):
        sound = there(torch.randn(2, 8, 32, generator=torch.Generator().manual_seed(2)))
        return model(input_features=sound, labels=tokens()).loss

    return make, loss


MODELS = {
    "resnet18": classifier("resnet18"),
    "resnext50_32x4d": classifier("resnext50_32x4d", 32),
    "densenet121": classifier("densenet121", 32, memory_efficient=False),
    "densenet121 with checkpoints of its own": classifier("densenet121", 32, memory_efficient=True),
    "shufflenet_v2_x0_5": classifier("shufflenet_v2_x0_5"),
    "squeezenet1_1": classifier("squeezenet1_1"),
    "mnasnet0_5": classifier("mnasnet0_5"),
    "mobilenet_v2": classifier("mobilenet_v2"),
    "mobilenet_v3_small": classifier("mobilenet_v3_small"),
    "efficientnet_b0": classifier("efficientnet_b0", 32),
    "regnet_y_400mf": classifier("regnet_y_400mf", 32),
    "convnext_tiny": classifier("convnext_tiny", 32),
    "vit_b_16": classifier("vit_b_16", 32, image_size=32),
    "swin_t": classifier("swin_t", 32),
    "maxvit_t": maxvit(),
    "lraspp": segmentation("lraspp_mobilenet_v3_large"),
    "ssdlite": detection("ssdlite320_mobilenet_v3_large"),
    "fasterrcnn": detection("fasterrcnn_mobilenet_v3_large_320_fpn", min_size=64, max_size=64),
    "llama": language("LlamaConfig", **_LLAMA),
    "mistral": language("MistralConfig", sliding_window=4, **_LLAMA),
    "mixtral": language("MixtralConfig", num_local_experts=4, num_experts_per_tok=2, output_router_logits=True, **_LLAMA),
    "qwen2": language("Qwen2Config", **_LLAMA),
    "gemma2": language("Gemma2Config", head_dim=8, **_LLAMA),
    "gpt2": language("GPT2Config", n_embd=32, n_layer=2, n_head=4, n_positions=32),
    "gpt_neox": language("GPTNeoXConfig", **_BERT),
    "opt": language("OPTConfig", hidden_size=32, ffn_dim=64, num_hidden_layers=2, num_attention_heads=4, word_embed_proj_dim=32),
    "bloom": language("BloomConfig", hidden_size=32, n_layer=2, n_head=4),
    "mamba": language("MambaConfig", hidden_size=32, num_hidden_layers=2, state_size=4),
    "deepseek_v3": language(
        "DeepseekV3Config", hidden_size=32, intermediate_size=64, moe_intermediate_size=16, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=4, n_routed_experts=4, n_group=2, topk_group=1, num_experts_per_tok=2,
        kv_lora_rank=8, q_lora_rank=8, qk_rope_head_dim=4, qk_nope_head_dim=4, v_head_dim=8, first_k_dense_replace=1),
    "bert": language("BertConfig", "AutoModelForMaskedLM", **_BERT),
    "roberta": language("RobertaConfig", "AutoModelForMaskedLM", **_BERT),
    "deberta_v2": language("DebertaV2Config", "AutoModelForMaskedLM", **_BERT),
    "t5": language("T5Config", "AutoModelForSeq2SeqLM", d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4,
                   decoder_start_token_id=0),
    "bart": language("BartConfig", "AutoModelForSeq2SeqLM", **_BART),
    "whisper": whisper(),
    "hf_vit": vision("ViTConfig", patch_size=8, **_BERT),
    "dinov2": vision("Dinov2Config", patch_size=8, hidden_size=32, num_hidden_layers=2, num_attention_heads=4),
    "swinv2": vision("Swinv2Config", patch_size=2, embed_dim=16, depths=[1, 1], num_heads=[2, 2], window_size=4),
}


def step_in_a_region(model, loss, **arguments):
    """What run() says of a step in a region; the region's counts after forward, and after backward."""
    stats = []
    scope = ac2.PolicyScope(**arguments)

    def in_a_region(model):
        with scope:
            result = loss(model)
        stats.append(scope.trace.stats())
        return result

    result = run(model, in_a_region)
    return result, stats[0], scope.trace.stats()


@pytest.mark.parametrize("name", MODELS)
def test_a_model_has_the_bits_of_plain_pytorch_under_every_policy(name):
    make, loss = MODELS[name]
    torch.manual_seed(1)
    torch.set_num_threads(1)  # test files run side by side
    model = make().to(DEVICE).train()
    expected = run(model, loss)
    if not IS_CPU and not all(map(same_bits, run(model, loss).values(), expected.values())):
        pytest.skip("PyTorch itself computes other bits each time")
    for policy in POLICIES:
        result, forward, backward = step_in_a_region(model, loss, policy=policy)
        assert_same(result, expected)
        assert forward.recorded_ops > 50, policy
        assert backward.live_nodes == 0, policy
        assert policy != "recompute_all" or backward.recomputed_ops > 0
        assert policy != "must_save_all" or backward.recomputed_ops == 0
        saves = forward.saved_bytes

    for share in (8, 4, 2, 1):
        try:
            result, _, backward = step_in_a_region(model, loss, memory_budget=saves // share)
        except RuntimeError as error:
            assert share > 1 and "cannot be met" in str(error)
            continue
        assert_same(result, expected)
        assert backward.live_nodes == 0
        break
