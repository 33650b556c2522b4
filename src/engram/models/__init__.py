"""Networks by name. Torch is imported when one is built, not before."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from engram.core.errors import InputError
from engram.core.registry import Registry
from engram.models.spec import ModelSpec

if TYPE_CHECKING:
    from engram.models.network import Network

__all__ = ["MODELS", "ModelSpec", "build"]

Builder = Callable[[ModelSpec, tuple[int, ...], int], "Network"]
"""From a specification, the shape of one sample and the number of output units to a network."""

MODELS: Registry[Builder] = Registry(
    "model",
    {
        "mlp": "engram.models.mlp:mlp",
        "lwta": "engram.models.lwta:lwta",
        "cnn": "engram.models.cnn:cnn",
        "conv": "engram.models.conv:conv",
        "slim-resnet18": "engram.models.resnet:slim_resnet18",
        "resnet18": "engram.models.resnet:resnet18",
        "resnet50": "engram.models.resnet:resnet50",
    },
)

_WITHOUT_DROPOUT = {
    "dropout_input": ("lwta", "cnn", "conv", "slim-resnet18", "resnet18", "resnet50"),
    "dropout_hidden": ("lwta", "cnn", "slim-resnet18", "resnet18", "resnet50"),
}
_CONV_STD = 0.1


def build(spec: ModelSpec, *, shape: tuple[int, ...], n_units: int, seed: int) -> Network:
    """A new network with initial weights that depend on `spec`, `shape`, `n_units` and `seed` alone.

    PyTorch's global random state is left as it was.

    Args:
        spec: Which network.
        shape: The shape of one sample; images are (channels, height, width).
        n_units: How many output units, over all tasks.
        seed: Draws the initial weights.

    Example:
        >>> net = build(ModelSpec(hidden=(64,)), shape=(1, 8, 8), n_units=10, seed=0)
        >>> net.width, net.head.out_features
        (64, 10)
    """
    import torch

    from engram.models.initialisation import truncated_normal

    builder = MODELS[spec.name]
    for field, networks in _WITHOUT_DROPOUT.items():
        if getattr(spec, field) and spec.name in networks:
            raise InputError(f"model {spec.name} has no {field}: leave it at 0, or use mlp")
    if n_units < 1:
        raise InputError(f"{n_units} output units cannot be built: give at least 1")
    # Only the processor's generator draws here, so the other devices' are not touched at all.
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        network = builder(spec, shape, n_units)
        if spec.init == "truncated-normal":
            truncated_normal(network, std=_CONV_STD if spec.name == "conv" else None)
    return network
