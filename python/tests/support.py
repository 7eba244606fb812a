"""What tests compare: a model's loss, gradients, buffers and generator, bit for bit."""

import copy
from typing import Any, Callable, Dict, Tuple

import torch
from device import generator_states


def bits(tensor: torch.Tensor) -> Any:
    """Equal for tensors that are bitwise identical, NaNs included."""
    return tensor.detach().contiguous().view(torch.uint8).clone() if tensor.dim() else tensor.detach().clone().reshape(1).view(torch.uint8)


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.shape == b.shape and a.dtype == b.dtype and torch.equal(bits(a), bits(b))


def run(model: torch.nn.Module, step: Callable[[torch.nn.Module], torch.Tensor]) -> Dict[str, torch.Tensor]:
    """What a step with a copy of the model leaves: the loss, gradients, buffers, and the states of the generators."""
    model = copy.deepcopy(model)
    torch.manual_seed(7)
    loss = step(model)
    loss.backward()
    result = {"loss": loss.detach(), "generator": generator_states()}
    for name, parameter in model.named_parameters():
        result["gradient of " + name] = parameter.grad if parameter.grad is not None else torch.empty(0)
    for name, buffer in model.named_buffers():
        result["buffer " + name] = buffer.detach()
    return result


def assert_same(actual: Dict[str, torch.Tensor], expected: Dict[str, torch.Tensor]) -> None:
    assert actual.keys() == expected.keys()
    different = [name for name in expected if not same_bits(actual[name], expected[name])]
    assert not different, f"not bitwise identical: {different}"


def mlp(width: int = 16, depth: int = 3) -> torch.nn.Sequential:
    torch.manual_seed(1)
    layers = []
    for _ in range(depth):
        layers += [torch.nn.Linear(width, width), torch.nn.GELU(), torch.nn.Dropout(0.2)]
    return torch.nn.Sequential(*layers)


def gradients(fn: Callable[..., torch.Tensor], *shapes: Tuple[int, ...]) -> Tuple[torch.Tensor, ...]:
    """The gradients of ``fn(inputs).sum()`` for seeded inputs of these shapes."""
    generator = torch.Generator().manual_seed(3)
    inputs = [torch.randn(*shape, generator=generator).requires_grad_() for shape in shapes]
    return torch.autograd.grad(fn(*inputs).sum(), inputs)
