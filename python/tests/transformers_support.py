"""The switch of transformers' models for checkpointing, by the name that it has in the release that is installed."""


def enable(model, **kwargs):
    switch = getattr(model, _name(model) + "_enable")
    switch(kwargs) if kwargs else switch()


def disable(model):
    getattr(model, _name(model) + "_disable")()


def _name(model):
    return "activation_checkpointing" if hasattr(model, "activation_checkpointing_enable") else "gradient_checkpointing"
