"""ac2.integrations of diffusers and timm: each trains by its own switch with the bits of plain training."""

import re
from typing import Any

import pytest
import torch

import ac2
from integrations_support import INPUT, Block, assert_as_plain, integration, train
from integrations_support import uninstalls  # noqa: F401: fixtures


def regions_of_functions() -> int:
    _, _, functions = ac2.report().partition("Run by ac2.checkpoint, or by a library in its place:")
    return sum(map(int, re.findall(r": (\d+) regions?$", functions, re.MULTILINE)))


# diffusers


def unet() -> Any:
    import diffusers

    torch.manual_seed(1)
    return diffusers.UNet2DConditionModel(
        sample_size=16,
        block_out_channels=(8, 16),
        layers_per_block=1,
        down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
        norm_num_groups=4,
        cross_attention_dim=8,
        attention_head_dim=2,
        dropout=0.1,
    ).train()


def denoise(model: Any) -> torch.Tensor:
    return model(INPUT.reshape(1, 4, 16, 16), torch.tensor([3]), torch.ones(1, 5, 8)).sample.square().mean()


@pytest.mark.parametrize("policy", [None, "save_compute_intensive"])
def test_diffusers_trains_by_its_own_switch_as_without_checkpointing(policy):
    diffusers = integration("diffusers")
    plain = train(unet(), denoise)
    diffusers.install(policy)
    model = unet()
    model.enable_gradient_checkpointing()
    assert model.is_gradient_checkpointing
    assert_as_plain(train(model, denoise), plain)
    assert "diffusers.models.resnet.ResnetBlock2D: " in ac2.report()
    diffusers.uninstall()
    of_its_own = train(model, denoise)
    assert of_its_own.nodes == 0 and model.is_gradient_checkpointing
    model.disable_gradient_checkpointing()
    assert train(model, denoise).nodes == 0


def test_a_function_of_a_diffusers_models_own_is_called():
    called = []

    def own(function, *args):
        called.append(function)
        return function(*args)

    integration("diffusers").install()
    model = unet()
    model.enable_gradient_checkpointing(own)
    assert train(model, denoise).nodes == 0
    assert called


# timm


TIMM = {
    "vit_tiny_patch16_224": dict(
        img_size=16, patch_size=4, depth=3, embed_dim=24, num_heads=2, drop_path_rate=0.1
    ),  # checkpoint
    "convnext_atto": dict(depths=(1, 1, 2, 1), dims=(8, 8, 16, 16)),  # checkpoint_seq
    "resnet10t": {},  # checkpoint_seq of nested parts; batch norms
}


def timm_model(name: str) -> torch.nn.Module:
    import timm

    torch.manual_seed(1)
    return timm.create_model(name, num_classes=5, **TIMM[name]).train()


def classify(model: torch.nn.Module) -> torch.Tensor:
    size = 16 if hasattr(model, "patch_embed") else 32
    return model(torch.randn(2, 3, size, size, generator=torch.Generator().manual_seed(0))).square().mean()


@pytest.mark.parametrize("name", TIMM)
def test_timm_trains_by_its_own_switch_as_without_checkpointing(name):
    timm = integration("timm")
    plain = train(timm_model(name), classify)
    timm.install()
    model = timm_model(name)
    model.set_grad_checkpointing(True)
    assert_as_plain(train(model, classify), plain)
    timm.uninstall()
    assert train(model, classify).nodes == 0


@pytest.mark.parametrize(
    "options", [{}, {"every": 2}, {"every": 4, "skip_last": True}, {"skip_last": True, "flatten": True}]
)
def test_timms_checkpoint_seq_makes_a_region_of_each_of_its_parts(options, monkeypatch):
    timm = integration("timm")
    import timm.models as timm_models

    parts = [torch.nn.Sequential(Block(), Block()) for _ in range(5)]
    x = INPUT.clone().requires_grad_()
    calls = []
    original = torch.utils.checkpoint.checkpoint
    monkeypatch.setattr(
        torch.utils.checkpoint, "checkpoint", lambda *args, **kwargs: calls.append(args) or original(*args, **kwargs)
    )
    torch.manual_seed(0)
    expected = timm_models.checkpoint_seq(parts, x, **options)
    monkeypatch.undo()
    before = regions_of_functions()
    timm.install()
    torch.manual_seed(0)
    assert torch.equal(timm_models.checkpoint_seq(parts, x, **options), expected)
    assert regions_of_functions() - before == len(calls) > 0


def test_no_region_is_opened_in_eval_and_under_no_grad():
    integration("timm").install()
    for name in TIMM:
        model = timm_model(name)
        model.set_grad_checkpointing()
        before = ac2.live_node_count()
        loss = classify(model.eval())
        with torch.no_grad():
            classify(model.train())
        assert ac2.live_node_count() == before
        del loss


def test_timms_models_compile_in_one_graph():
    integration("timm").install("save_compute_intensive")
    model = timm_model("vit_tiny_patch16_224").eval()  # no dropped paths
    model.set_grad_checkpointing()
    ac2.integrations.timm.install("save_compute_intensive", off_in_eval=False)
    classify(model).backward()
    expected = {name: parameter.grad for name, parameter in model.named_parameters()}
    model.zero_grad()
    classify(torch.compile(model, backend="aot_eager", fullgraph=True)).backward()
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(parameter.grad, expected[name])
