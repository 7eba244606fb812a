"""torch.func's transforms."""

import warnings

import torch

_said = False


def warn_inside() -> None:
    """Warns, once in a process, if a region opens inside a transform that differentiates.

    Such transforms turn the hooks for saved tensors off, without which no region can hold anything else in a tensor's place.
    vmap alone does not.
    """
    global _said
    if _said or not torch._C._are_functorch_transforms_active():
        return
    interpreters = torch._C._functorch.get_interpreter_stack() or []
    if not any(one.key() == torch._C._functorch.TransformType.Grad for one in interpreters):
        return
    _said = True
    warnings.warn(
        "An ac2 region was opened inside a transform of torch.func that differentiates (grad, vjp, jacrev, hessian). Such "
        "transforms turn the hooks for saved tensors off, so that all that autograd saves in them is held as without a region, "
        "whatever the policy says, also where the region is around the transform. Results are the same. Differentiate with "
        "torch.autograd.grad in place of the transform: it may be called inside a region, with create_graph=True too, and what it "
        "computes is recomputed as the policy says.",
        UserWarning,
        stacklevel=3,
    )
