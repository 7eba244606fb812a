"""What ac2.integrations replaces in libraries that tests cannot install, written after their sources: the same names
and signatures, and PyTorch's checkpoint below them."""

import dataclasses
import importlib.machinery
import importlib.util
import sys
import types
from typing import Any, Callable, Dict

import torch
import torch.utils.checkpoint as torch_checkpoint
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper as ptd_checkpoint_wrapper


def provide(library: str) -> bool:
    """Whether the library is there by itself; its stand-in is in sys.modules otherwise, from now on."""
    module = sys.modules.get(library)
    if module is not None:
        return not getattr(module, "is_a_stand_in", False)
    if importlib.util.find_spec(library) is not None:
        return True
    for name, members in _STAND_INS[library]().items():
        module = types.ModuleType(name)
        module.__path__ = []  # type: ignore[attr-defined]
        module.__spec__ = importlib.machinery.ModuleSpec(name, None, is_package=True)  # libraries look for others by it
        vars(module).update(members, is_a_stand_in=True)
        sys.modules[name] = module
        parent, _, child = name.rpartition(".")
        if parent:
            setattr(sys.modules[parent], child, module)
    return False


def _deepspeed() -> Dict[str, Dict[str, Any]]:
    """DeepSpeed 0.19: runtime/activation_checkpointing/checkpointing.py, runtime/pipe/module.py. Of
    runtime/zero/parameter_offload.py a class that nothing makes."""

    class DeepSpeedZeRoOffload:
        def __init__(self, module: Any) -> None:
            raise RuntimeError("it needs DeepSpeed")

    def checkpoint(function: Any, *args: Any, **kwargs: Any) -> Any:
        return torch_checkpoint.checkpoint(function, *args, use_reentrant=True, **kwargs)

    def non_reentrant_checkpoint(function: Any, *args: Any) -> Any:
        return torch_checkpoint.checkpoint(function, *args, use_reentrant=False)

    class PipelineModule(torch.nn.Module):
        def __init__(
            self,
            layers: Any,
            num_stages: Any = None,
            activation_checkpoint_interval: int = 0,
            activation_checkpoint_func: Callable[..., Any] = checkpoint,
        ) -> None:
            super().__init__()
            self.activation_checkpoint_func = activation_checkpoint_func
            self.forward_funcs = torch.nn.ModuleList(layers)
            self.set_checkpoint_interval(activation_checkpoint_interval)

        def set_checkpoint_interval(self, interval: int) -> None:
            self.activation_checkpoint_interval = interval

        def forward(self, x: Any) -> Any:
            size = self.activation_checkpoint_interval or len(self.forward_funcs)
            for start in range(0, len(self.forward_funcs), size):
                part = torch.nn.Sequential(*self.forward_funcs[start : start + size])

                def exec_func(*inputs: Any, part: Any = part) -> Any:
                    return part(inputs[0])

                x = (
                    self.activation_checkpoint_func(exec_func, x)
                    if self.activation_checkpoint_interval
                    else exec_func(x)
                )
            return x

    checkpointing = {
        "PARTITION_ACTIVATIONS": False,
        "CPU_CHECKPOINT": False,
        "checkpoint": checkpoint,
        "non_reentrant_checkpoint": non_reentrant_checkpoint,
    }
    return {
        "deepspeed": {"init_distributed": lambda *args, **kwargs: None},
        "deepspeed.runtime": {},
        "deepspeed.runtime.activation_checkpointing": {},
        "deepspeed.runtime.activation_checkpointing.checkpointing": checkpointing,
        "deepspeed.runtime.pipe": {},
        "deepspeed.runtime.pipe.module": {"PipelineModule": PipelineModule},
        "deepspeed.runtime.zero": {},
        "deepspeed.runtime.zero.parameter_offload": {"DeepSpeedZeRoOffload": DeepSpeedZeRoOffload},
    }


def _megatron() -> Dict[str, Dict[str, Any]]:
    """Megatron Core 0.16: core/tensor_parallel/random.py. Its checkpoint() asks for a GPU's generator, so that this is
    the function in its place alone."""

    def checkpoint(function: Any, distribute_saved_activations: bool, *args: Any) -> Any:
        raise RuntimeError("it needs a GPU")

    class CheckpointWithoutOutput:
        def __init__(self, fp8: Any = False) -> None:
            self.ctx = None
            self.outputs: Any = None

        def checkpoint(self, run_function: Any, *args: Any) -> Any:
            raise RuntimeError("it needs a GPU")

        def _recompute(self, _: Any) -> None:
            if self.ctx is not None:
                raise RuntimeError("it needs a GPU")

        def discard_output_and_register_recompute(self, hook_tensor: torch.Tensor) -> None:
            for output in self.outputs:
                output.untyped_storage().resize_(0)
            if hook_tensor.requires_grad:
                hook_tensor.register_hook(self._recompute)

    members = {"checkpoint": checkpoint, "CheckpointWithoutOutput": CheckpointWithoutOutput}
    return {
        "megatron": {},
        "megatron.core": {"__version__": "0.16"},
        "megatron.core.tensor_parallel": members,
        "megatron.core.tensor_parallel.random": members,
    }


def _torchtitan() -> Dict[str, Dict[str, Any]]:
    """torchtitan 0.3: distributed/activation_checkpoint.py, config/configurable.py."""

    class Configurable:
        @dataclasses.dataclass(kw_only=True, slots=True)
        class Config:
            def build(self, **kwargs: Any) -> Any:
                return self._owner(config=dataclasses.replace(self), **kwargs)  # type: ignore[attr-defined]

        def __init_subclass__(cls, **kwargs: Any) -> None:
            super().__init_subclass__(**kwargs)
            cls.Config._owner = cls  # type: ignore[attr-defined]

    class ActivationCheckpointing(Configurable):
        @dataclasses.dataclass(kw_only=True, slots=True)
        class Config(Configurable.Config):
            preserve_rng_state: bool = True
            determinism_check: str = "default"
            debug: bool = False

        def __init__(self, config: Any, dump_folder: str = "") -> None:
            self.config = config

        def apply(self, model: torch.nn.Module) -> None:
            layers = model.get_submodule("layers")
            for layer_id, block in layers.named_children():
                layers.register_module(layer_id, self._wrap_block(block, base_fqn=f"layers.{layer_id}"))

        def _wrap(self, module: torch.nn.Module, **kwargs: Any) -> torch.nn.Module:
            # The module's name, which ac2 replaces.
            function = sys.modules["torchtitan.distributed.activation_checkpoint"].ptd_checkpoint_wrapper
            config = self.config
            return function(
                module,
                preserve_rng_state=config.preserve_rng_state,
                determinism_check=config.determinism_check,
                early_stop=False,
                debug=config.debug,
                **kwargs,
            )

    class FullAC(ActivationCheckpointing):
        @dataclasses.dataclass(kw_only=True, slots=True)
        class Config(ActivationCheckpointing.Config):
            pass

        def _wrap_block(self, module: torch.nn.Module, *, base_fqn: Any = None) -> torch.nn.Module:
            return self._wrap(module)

    class SelectiveAC(ActivationCheckpointing):
        @dataclasses.dataclass(kw_only=True, slots=True)
        class Config(ActivationCheckpointing.Config):
            force_recompute_mm_shapes_by_fqns: list = dataclasses.field(default_factory=list)

        def _wrap_block(self, module: torch.nn.Module, *, base_fqn: Any = None) -> torch.nn.Module:
            mm = torch.ops.aten.mm.default
            policies = torch_checkpoint.CheckpointPolicy

            def make_policy() -> Callable[..., Any]:
                meta = {"forward_mm_count": 0, "recompute_mm_count": 0}

                def policy(ctx: Any, func: Any, *args: Any, **kwargs: Any) -> Any:
                    mode = "recompute" if ctx.is_recompute else "forward"
                    meta[f"{mode}_mm_count"] += func == mm
                    save = func == mm and meta[f"{mode}_mm_count"] % 2 == 1
                    return policies.MUST_SAVE if save else policies.PREFER_RECOMPUTE

                return policy

            contexts = torch_checkpoint.create_selective_checkpoint_contexts
            return self._wrap(module, context_fn=lambda: contexts(make_policy()))

    class RegionAC(ActivationCheckpointing):
        """Of pull requests 4497 and 4614, after their texts: a release that has it is not out."""

        @dataclasses.dataclass(kw_only=True, slots=True)
        class Config(ActivationCheckpointing.Config):
            save_regions: list = dataclasses.field(default_factory=list)

        def _wrap_block(self, module: torch.nn.Module, *, base_fqn: Any = None) -> torch.nn.Module:
            provide("torch_remat")
            remat = sys.modules["torch_remat"]
            module.saved = self.config.save_regions
            module.forward = remat.checkpoint(region_name=base_fqn, preserve_rng_state=False)(module.forward)
            return module

    members = {
        "ptd_checkpoint_wrapper": ptd_checkpoint_wrapper,
        "ActivationCheckpointing": ActivationCheckpointing,
        "FullAC": FullAC,
        "SelectiveAC": SelectiveAC,
        "RegionAC": RegionAC,
    }
    return {"torchtitan": {}, "torchtitan.distributed": {}, "torchtitan.distributed.activation_checkpoint": members}


def _torch_remat() -> Dict[str, Dict[str, Any]]:
    """torch_remat 0.2.2: _api.py. A region with recompute=False is computed again here, too."""

    def checkpoint(
        *,
        region_name: Any = None,
        determinism_check: str = "none",
        preserve_rng_state: bool = False,
        saved_tensors_hooks: Any = None,
        recompute_state_hooks: Any = (),
    ) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        if preserve_rng_state:
            raise NotImplementedError("torch_remat.checkpoint does not preserve torch's RNG state")

        def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
            def checkpointed(*args: Any, **kwargs: Any) -> Any:
                return torch_checkpoint.checkpoint(function, *args, use_reentrant=False, **kwargs)

            return checkpointed

        return decorate

    def region(function: Callable[..., Any], name: str, *, recompute: bool) -> Callable[..., Any]:
        if not name:
            raise ValueError("region name must not be empty")
        return function

    members = {"checkpoint": checkpoint, "region": region, "recompute_needs_tensor": lambda *tensors: None}
    return {"torch_remat": members, "torch_remat._api": members}


def _transformer_engine() -> Dict[str, Dict[str, Any]]:
    """TransformerEngine 2.20: pytorch/distributed.py. Of functions without its modules it makes PyTorch's checkpoint."""

    def checkpoint(function: Any, *args: Any, **kwargs: Any) -> Any:
        use_reentrant = kwargs.pop("use_reentrant", True)
        for name in ("distribute_saved_activations", "tp_group", "get_rng_state_tracker"):
            kwargs.pop(name, None)
        return torch_checkpoint.checkpoint(function, *args, use_reentrant=use_reentrant, **kwargs)

    members = {"checkpoint": checkpoint}
    return {
        "transformer_engine": {"__version__": "2.20"},
        "transformer_engine.pytorch": members,
        "transformer_engine.pytorch.distributed": members,
    }


_STAND_INS = {
    "deepspeed": _deepspeed,
    "megatron": _megatron,
    "torch_remat": _torch_remat,
    "torchtitan": _torchtitan,
    "transformer_engine": _transformer_engine,
}
LIBRARIES = tuple(_STAND_INS)
