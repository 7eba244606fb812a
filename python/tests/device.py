"""The device on which some tests have their tensors: `AC2_TEST_DEVICE`, such as `cuda`; without it the CPU.

On another device than the CPU, importing this module makes PyTorch choose ops that compute the same bits each time, where it
has such ops.
"""

import os

import torch

DEVICE = torch.device(os.environ.get("AC2_TEST_DEVICE", "cpu"))
IS_CPU = DEVICE.type == "cpu"

if not IS_CPU:
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = False


def there(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor of the CPU on the device; the tensor itself if the device is the CPU."""
    return tensor if IS_CPU else tensor.to(DEVICE)


def generator_states() -> torch.Tensor:
    """The states of the default generators of the CPU and of the device, in one tensor."""
    state = torch.get_rng_state()
    return state if IS_CPU else torch.cat([state, torch.get_device_module(DEVICE).get_rng_state(DEVICE)])
