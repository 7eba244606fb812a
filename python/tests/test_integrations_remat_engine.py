"""ac2.integrations of torch_remat and TransformerEngine, and torchtitan's RegionAC, which is made of the former."""

import pytest
import torch

import ac2
from ac2 import CheckpointPolicy
from integrations_support import INPUT, Block, Model, assert_as_plain, integration, square, train
from integrations_support import uninstalls  # noqa: F401: fixtures
from support import assert_same

# torch_remat


class MarkedBlock(Block):
    """Marked as torchtitan's blocks are: regions that are saved where their names are in ``saved``."""

    saved = ()

    def forward(self, x):
        import torch_remat as remat

        def part(name):
            return remat.region(getattr(self, name), name, recompute=name not in self.saved)

        h = part("wide")(x)
        remat.recompute_needs_tensor(h)
        return x + self.dropout(part("narrow")(torch.nn.functional.gelu(h)))


def marked(saved=()):
    model = Model()
    torch.manual_seed(1)
    model.layers = torch.nn.ModuleList(MarkedBlock() for _ in range(3))
    for layer in model.layers:
        layer.saved = saved
    return model


def through_remat(model, **options):
    import torch_remat as remat

    x = INPUT
    for i, layer in enumerate(model.layers):
        x = remat.checkpoint(region_name=f"layers.{i}", **options)(layer)(x)
    return x.square().mean()


def test_torch_remats_checkpoints_are_regions_that_save_what_its_regions_keep():
    remat = integration("torch_remat")
    plain = train(Model(), square)
    remat.install()
    nothing, wide = train(marked(), through_remat), train(marked(["wide"]), through_remat)
    for run in (nothing, wide):
        assert_as_plain(run, plain)
    assert wide.held - nothing.held == 3 * 32 * 64 * 4  # a wide result a block
    assert_same(train(marked(["wide"]), square).tensors, plain.tensors)  # outside of all checkpoints


def test_torch_remats_hooks_pack_what_regions_keep():
    remat = integration("torch_remat")
    plain = train(Model(), square)
    remat.install()
    packed = []

    def pack(tensor):
        packed.append(tuple(tensor.shape))
        return tensor.clone()

    run = train(marked(["wide"]), lambda model: through_remat(model, saved_tensors_hooks=(pack, lambda tensor: tensor)))
    assert_as_plain(run, plain)
    assert packed == [(32, 64)] * 6
    with pytest.raises(NotImplementedError, match="RNG state"):
        through_remat(Model(), preserve_rng_state=True)


def test_blocks_and_random_numbers_run_once():
    remat = integration("torch_remat")
    remat.install(CheckpointPolicy.PREFER_RECOMPUTE)
    import torch_remat

    calls = []

    def block(x):
        calls.append(None)
        return {"y": [torch.nn.functional.dropout(torch_remat.region(torch.sin, "sine", recompute=False)(x).exp(), 0.5)]}

    x = torch.randn(8, requires_grad=True)
    torch_remat.checkpoint()(block)(x)["y"][0].sum().backward()
    assert len(calls) == 1


# torchtitan


class TitanModel(Model):
    def __init__(self, model=None):
        super().__init__()
        self.layers = torch.nn.ModuleDict({str(i): layer for i, layer in enumerate((model or self).layers)})

    def forward(self, x):
        for layer in self.layers.values():
            x = layer(x)
        return x


def test_torchtitans_region_ac_goes_through_ac2():
    torchtitan = integration("torchtitan")
    from torchtitan.distributed import activation_checkpoint

    if not hasattr(activation_checkpoint, "RegionAC"):
        pytest.skip("this torchtitan has no RegionAC")
    integration("torch_remat")
    plain = train(Model(), square)
    torchtitan.install()

    def trained(names):
        model = TitanModel(marked())
        activation_checkpoint.RegionAC.Config(save_regions=names).build().apply(model)
        return train(model, square)

    nothing, wide = trained([]), trained(["wide"])
    for run in (nothing, wide):
        assert_same(dict(enumerate(run.tensors.values())), dict(enumerate(plain.tensors.values())))
        assert run.nodes > 0
    assert wide.held - nothing.held == 3 * 32 * 64 * 4


def test_remat_ac_saves_modules_of_blocks_by_their_names():
    remat_ac = integration("torchtitan").RematAC

    def trained(names):
        model = TitanModel()
        remat_ac.Config(save_regions=names).build().apply(model)
        assert list(model.state_dict()) == list(TitanModel().state_dict())
        return train(model, square)

    plain = train(TitanModel(), square)
    nothing, wide, both = trained([]), trained(["wide"]), trained(["w*", "narr?w"])
    for run in (nothing, wide, both):
        assert_as_plain(run, plain)
    assert wide.held - nothing.held == 3 * 32 * 64 * 4
    assert both.held == wide.held  # no derivative reads the other's result
    with pytest.raises(ValueError, match='no module of a block is called "wids".*Did you mean wide'):
        trained(["wide", "wids"])
    with pytest.raises(TypeError, match="expected a list of names of modules"):
        remat_ac.Config(save_regions="wide")
    with pytest.raises(ValueError, match='such as "64MiB"'):
        remat_ac.Config(memory_budget="64MB")


# TransformerEngine


@pytest.mark.parametrize("name", ["pytorch", "distributed"])
def test_transformer_engines_function_runs_in_a_region(name):
    engine = integration("transformer_engine")
    import transformer_engine.pytorch as te

    def loss(model, *options, **given):
        x = INPUT
        for layer in model.layers:
            function = te.checkpoint if name == "pytorch" else te.distributed.checkpoint
            x = function(layer, *options, x, **given)
        return x.square().mean()

    plain = train(Model(), square)
    engine.install()
    assert_as_plain(train(Model(), loss), plain)
    assert_as_plain(train(Model(), lambda model: loss(model, use_reentrant=False, tp_group=None, get_rng_state_tracker=list)), plain)
    with pytest.warns(UserWarning, match="distribute_saved_activations has no effect under ac2.*Set it to False"):
        assert_as_plain(train(Model(), lambda model: loss(model, distribute_saved_activations=True)), plain)
    with pytest.warns(UserWarning, match="distribute_saved_activations has no effect"):
        assert_as_plain(train(Model(), lambda model: loss(model, True, list, None)), plain)


def test_transformer_engines_context_fn_says_what_is_saved():
    engine = integration("transformer_engine")
    import transformer_engine.pytorch as te
    from torch.utils.checkpoint import create_selective_checkpoint_contexts

    def saves_products():
        return create_selective_checkpoint_contexts([torch.ops.aten.mm.default])

    def loss(model, **given):
        x = INPUT
        for layer in model.layers:
            x = te.checkpoint(layer, x, **given)
        return x.square().mean()

    plain = train(Model(), square)
    engine.install()
    nothing, products = train(Model(), loss), train(Model(), lambda model: loss(model, context_fn=saves_products))
    assert_as_plain(products, plain)
    assert products.held - nothing.held == 3 * 32 * 64 * 4
    assert ac2.live_node_count() == 0
