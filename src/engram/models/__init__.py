"""Networks by name. Torch is imported when one is built, not before."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, TypeVar

from engram.core.errors import InputError
from engram.core.registry import Registry
from engram.models.spec import ModelSpec, Pretrained, check_used

if TYPE_CHECKING:
    from torch import nn

    from engram.models.network import Network

__all__ = ["MODELS", "PRETRAINED", "ModelSpec", "Pretrained", "build", "model"]

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
        "efficientnet-lite0": "engram.models.efficientnet_lite0:efficientnet_lite0",
    },
)

PRETRAINED: dict[str, Pretrained] = {
    "efficientnet-lite0": Pretrained("imagenet", mean=(127 / 255,) * 3, std=(128 / 255,) * 3),
}
"""The models that come with weights of their own."""

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
    usual, optional = ModelSpec(), ("dropout_input", "dropout_hidden", "block")
    check_used(spec.name, [name for name in optional if getattr(spec, name) != getattr(usual, name)])
    if n_units < 1:
        raise InputError(f"{n_units} output units cannot be built: give at least 1")
    if spec.init != "default" and spec.name in PRETRAINED:
        raise InputError(f"model {spec.name} has weights of its own: leave init at default")
    # Only the processor's generator draws here, so the other devices' are not touched at all.
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        network = builder(spec, shape, n_units)
        if spec.init == "truncated-normal":
            truncated_normal(network, std=_CONV_STD if spec.name == "conv" else None)
        elif spec.init == "truncated-normal-.1":
            truncated_normal(network, std=0.1, bias=0.1)
    if spec.zero_head:
        for weights in network.head.parameters():
            torch.nn.init.zeros_(weights)
    return network


Make = TypeVar("Make", bound="Callable[[tuple[int, ...], int], nn.Module]")


def model(name: str, *, head: str = "fc", pretrained: Pretrained | None = None) -> Callable[[Make], Make]:
    """Give a network of one's own a name, under which every command knows it (`--model NAME --plugin FILE`).

    What is decorated is a function that makes a module, any `nn.Module`, from the shape of one sample and the
    number of output units. The module's last layer becomes the head, and what comes before it the features,
    one flat row a sample. A head with another number of units, as pretrained modules have it, is replaced by
    a fresh one. Random weights are drawn from PyTorch's global generator, which is seeded for the function.

    The name is the network's identity in an experiment: weights that matter are better given as a file, whose
    content is part of the identity (`engram run … --weights FILE`).

    Args:
        name: What it is called.
        head: What the module's last, linear layer is called in it.
        pretrained: What it was trained on, and how its inputs are normalised, if it comes with weights.

    Example:
        >>> from torch import nn
        >>> @model("test-bottleneck", head="2")
        ... def bottleneck(shape, n_units):
        ...     "A narrow one."
        ...     return nn.Sequential(nn.Flatten(), nn.Linear(shape[0], 3), nn.Linear(3, 1000))
        >>> network = build(ModelSpec("test-bottleneck"), shape=(8,), n_units=10, seed=0)
        >>> network.width, network.head
        (3, Linear(in_features=3, out_features=10, bias=True))
    """

    def register(make: Make) -> Make:
        @wraps(make)
        def builder(_spec: ModelSpec, shape: tuple[int, ...], n_units: int) -> Network:
            from engram.models.network import Network

            made = make(shape, n_units)
            network = made if isinstance(made, Network) else Network.wrap(made, head=head)
            return network.with_units(name, shape, n_units)

        MODELS.add_own(name, builder)
        PRETRAINED.pop(name, None)
        if pretrained is not None:
            PRETRAINED[name] = pretrained
        return make

    return register
