"""Selective activation checkpointing: what a policy does not save is recomputed in backward, op by op.

    import ac2

    with ac2.PolicyScope("save_compute_intensive"):
        loss = loss_fn(model(x), y)
    loss.backward()          # replays the ops whose results were not saved; the model's code does not run again

No change to a model is needed, and gradients are bitwise those of plain PyTorch. A program that uses
``torch.utils.checkpoint`` changes its import: ``checkpoint``, ``checkpoint_sequential``,
``create_selective_checkpoint_contexts`` and ``checkpoint_wrapper`` are here under their names.

Everything is done by a C++ runtime (``libac2.so``, in this package), which C++ extensions may link too:
``find_package(ac2)`` with ``CMAKE_PREFIX_PATH`` set to ``ac2.cmake_prefix_path``.
"""

from ac2 import _launching

#: ``python -m ac2`` begins: the package is imported anew when the program asks for it.
_is_launching: bool = _launching.is_launching()

if not _is_launching:
    from ac2 import _torch_version

    _torch_version.check()

    from ac2 import _C, _signatures, forms, policies
    from ac2._C import (
        DisableCheckpointing,
        FormUse,
        MemoryBudget,
        OffloadMemory,
        OffloadOptions,
        Plan,
        PlanSummary,
        RecomputeScope,
        SaveScope,
        SaveWithHooks,
        Trace,
        TraceStats,
        is_checkpoint_enabled,
        is_recomputing,
        offload_memory,
        release_offload_memory,
    )
    from ac2._checkpoint import (
        checkpoint,
        checkpoint_sequential,
        create_selective_checkpoint_contexts,
    )
    from ac2._chunks import in_chunks, linear_cross_entropy, query_chunked_attention, tiled_mlp
    from ac2._form import Form
    from ac2._modules import apply_checkpointing, checkpoint_wrapper, last_trace, remove_checkpointing
    from ac2._notebook import load_ipython_extension, unload_ipython_extension
    from ac2._patch import patch_torch_checkpoint
    from ac2._plans import StepPlanner, current_decision, load_plan, plan
    from ac2._policy import CheckpointPolicy, by_operator
    from ac2._replayable import replayable
    from ac2._report import (
        explain,
        explain_held,
        live_node_count,
        report,
        to_chrome_trace,
        to_dot,
        write_report,
    )
    from ac2._scope import PolicyScope, apply_ac_policy_fn
    from ac2._tensors import expose, managed_elsewhere, name_tensor, tag_with_policy
    from ac2._units import unit
    from ac2._version import __version__

    sqrt_segments = _signatures.with_readable_errors("ac2", _C.sqrt_segments)
    whatever_fits = _signatures.with_readable_errors("ac2", _C.whatever_fits)
    for _class in (DisableCheckpointing, MemoryBudget, OffloadOptions, RecomputeScope, SaveScope, SaveWithHooks):
        _signatures.give_readable_errors(_class)
    del _class

    #: For ``CMAKE_PREFIX_PATH``: ``find_package(ac2)`` finds the library that this package uses.
    cmake_prefix_path: str = _torch_version.package_directory()

__all__ = [
    "CheckpointPolicy",
    "DisableCheckpointing",
    "Form",
    "FormUse",
    "MemoryBudget",
    "OffloadMemory",
    "OffloadOptions",
    "Plan",
    "PlanSummary",
    "PolicyScope",
    "RecomputeScope",
    "SaveScope",
    "SaveWithHooks",
    "StepPlanner",
    "Trace",
    "TraceStats",
    "__version__",
    "apply_ac_policy_fn",
    "apply_checkpointing",
    "by_operator",
    "checkpoint",
    "checkpoint_sequential",
    "checkpoint_wrapper",
    "cmake_prefix_path",
    "create_selective_checkpoint_contexts",
    "current_decision",
    "explain",
    "explain_held",
    "expose",
    "forms",
    "in_chunks",
    "is_checkpoint_enabled",
    "is_recomputing",
    "last_trace",
    "linear_cross_entropy",
    "live_node_count",
    "load_ipython_extension",
    "load_plan",
    "managed_elsewhere",
    "name_tensor",
    "offload_memory",
    "patch_torch_checkpoint",
    "plan",
    "policies",
    "query_chunked_attention",
    "release_offload_memory",
    "remove_checkpointing",
    "replayable",
    "report",
    "sqrt_segments",
    "tag_with_policy",
    "tiled_mlp",
    "to_chrome_trace",
    "to_dot",
    "unit",
    "unload_ipython_extension",
    "whatever_fits",
    "write_report",
]
