"""Networks by name. Torch is imported when one is built, not before."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from engram.core.errors import InputError
from engram.core.lazy import lazy_package
from engram.models.spec import MODELS, Model, ModelSpec, Pretrained, accept_model

if TYPE_CHECKING:
    from torch import nn

    from engram.models.network import Network as Network

__all__ = ["MODELS", "Model", "ModelSpec", "Network", "Pretrained", "build", "model"]

__getattr__, __dir__ = lazy_package(__name__, {".network": ("Network",)})


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
    from engram.models.spec import check_used, shared_options

    chosen = spec.model
    if spec.value is None:
        # Recipes set hidden layers and the stem for any network, whether it has them or not.
        optional = [name for name in shared_options() if name not in ("hidden", "stem")]
        changed = [name for name in optional if spec.options[name] != shared_options()[name].default]
        check_used(spec.name, tuple(changed))
    if n_units < 1:
        raise InputError(f"output units must be at least 1, got {n_units}")
    if spec.init != "default" and chosen.pretrained is not None:
        raise InputError(f"model {spec.name} has weights of its own: leave init at default")
    # Only the CPU's generator is used here, so that those of other devices need not be saved.
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        network = chosen.build(spec, shape, n_units)
        if spec.init == "truncated-normal":
            truncated_normal(network, std=chosen.init_std)
        elif spec.init == "truncated-normal-.1":
            truncated_normal(network, std=0.1, bias=0.1)
    if spec.zero_head:
        for weights in network.head.parameters():
            torch.nn.init.zeros_(weights)
    return network


Make = TypeVar("Make", bound="Callable[..., nn.Module]")


def model(
    name: str, *, head: str | None = "fc", pretrained: Pretrained | None = None
) -> Callable[[Make], Make]:
    """Register your own network under a name that all commands know (`--model NAME --plugin FILE`).

    What is decorated is a function that makes a module, any `nn.Module`, from the shape of one sample and the
    number of output units. Its further parameters are the network's options: typed, with a default, and with
    bounds and a description as `Annotated[int, Field(ge=1, description="…")]`. They are keyword options of
    `engram.experiment`, keys of sweep files, fields of grids, and `--set model.NAME=VALUE` on the command
    line.

    The module's last layer becomes the head, and what comes before it the features, one flat row per sample.
    A head with another number of units, as pretrained modules have it, is replaced by a fresh one. Random
    weights are drawn from PyTorch's global generator, which is seeded for the function.

    The name, the options and the file that the function is written in are the network's identity in an
    experiment. Weights that matter are better given as a file, whose content is part of the identity
    (`engram run … --weights FILE`).

    Args:
        name: What it is called.
        head: What the module's last, linear layer is called in it; None for the last one that it has.
        pretrained: What it was trained on, and how its inputs are normalised, if it comes with weights.

    Example:
        >>> from torch import nn
        >>> @model("test-bottleneck", head="2")
        ... def bottleneck(shape, n_units, *, width: int = 3):
        ...     "A narrow one."
        ...     return nn.Sequential(nn.Flatten(), nn.Linear(shape[0], width), nn.Linear(width, 1000))
        >>> network = build(ModelSpec("test-bottleneck"), shape=(8,), n_units=10, seed=0)
        >>> network.width, network.head
        (3, Linear(in_features=3, out_features=10, bias=True))
    """

    def register(make: Make) -> Make:
        MODELS.add_own(
            name, accept_model(name, make, head=head, pretrained=pretrained), origin=make.__module__
        )
        return make

    return register
