"""trl's and torchtune's offloading of activations, by hooks around the model, where its layers run in regions."""

import contextlib
from typing import Any, ContextManager

import torch

from ac2._checkpointed_class import settings_of, wrap
from ac2.integrations._switch import offloading_inputs


class InRegionsToo(contextlib.AbstractContextManager):  # type: ignore[type-arg]
    """The library's ``hooks``, which offload what is saved inside of them. Tensors that regions save do
    not reach hooks around them. So inside of this context the regions of ``model`` offload their inputs themselves."""

    def __init__(self, hooks: ContextManager[Any], model: torch.nn.Module) -> None:
        self._hooks = hooks
        self._model = model

    def __enter__(self) -> Any:
        # At each time: checkpointing may have been enabled since.
        for module in self._model.modules():
            settings = settings_of(module)
            if settings is not None:
                wrap(module, offloading_inputs(settings))
        return self._hooks.__enter__()

    def __exit__(self, *exception: Any) -> Any:
        return self._hooks.__exit__(*exception)
