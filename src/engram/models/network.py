"""The base class of all networks: features, and one linear layer with all output units."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from torch import Tensor, nn

from engram.core.errors import InputError
from engram.models.image_input import output_shape


class Network(nn.Module):
    """A network whose features and head are separate, so that probes can use either.

    The head has a unit for every class of every task. The head of one task is a slice of it, an unknown
    number of classes is a mask over it.

    Attributes:
        features: Inputs to features, one flat row per sample.
        head: Features to the scores of all output units.
        width: How many features there are.
        renamed: Converts the name of a weight in files of other libraries to its name here; None if there are
            no such files.

    Example:
        >>> net = Network(nn.Sequential(nn.Flatten(1), nn.Linear(4, 3), nn.ReLU()), nn.Linear(3, 2))
        >>> import torch
        >>> net(torch.zeros(5, 1, 2, 2)).shape, net.width
        (torch.Size([5, 2]), 3)
    """

    def __init__(self, features: nn.Module, head: nn.Linear) -> None:
        super().__init__()
        self.features = features
        self.head = head
        self.renamed: Callable[[str], str] | None = None

    @property
    def width(self) -> int:
        """How many features the head sees."""
        return self.head.in_features

    def forward(self, x: Tensor) -> Tensor:
        """The scores of all output units."""
        scores: Tensor = self.head(self.features(x))
        return scores

    def chain(self) -> tuple[nn.Module, nn.Module]:
        """The parts in the order in which a sample passes them, so that an evaluator can fuse them."""
        return self.features, self.head

    def with_units(self, name: str, shape: tuple[int, ...], n_units: int) -> Network:
        """The same network, checked on samples of some shape, with a new head if the number of units differs.

        The new head has the data type and the device of the old one.

        Example:
            >>> Network(nn.Flatten(1), nn.Linear(4, 1000)).with_units("flat", (2, 2), 10).head.out_features
            10
            >>> Network(nn.Identity(), nn.Linear(4, 10)).with_units("deep", (2, 4), 10)
            Traceback (most recent call last):
            engram.core.errors.InputError: model deep has features of shape (2, 4) for samples ...
        """
        features_shape = output_shape(self.features, shape)
        if features_shape != (self.width,):
            raise InputError(
                f"model {name} has features of shape {features_shape} for samples of shape {shape}, and a "
                f"head that takes {self.width}: let it give one flat row per sample"
            )
        if self.head.out_features != n_units:
            like = self.head.weight
            # Drawn on the CPU, whose generator is seeded.
            self.head = nn.Linear(self.width, n_units, dtype=like.dtype).to(like.device)
        return self

    @classmethod
    def wrap(cls, module: nn.Module, *, head: str | None = "fc") -> Network:
        """Any module, whose last layer is the linear one called `head` (for example `classifier.2`).

        Without a name, it is the linear layer that the module registered last. The module itself is used, not
        a copy: its last layer becomes the head, and is replaced by an identity in the module.

        Example:
            >>> net = Network.wrap(nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2)), head="2")
            >>> net.head, net.features[2]
            (Linear(in_features=3, out_features=2, bias=True), Identity())
            >>> net.renamed("0.weight"), net.renamed("2.weight")
            ('features.0.weight', 'head.weight')
        """
        known = [name for name, layer in module.named_modules() if name and isinstance(layer, nn.Linear)]
        if head is None and known:
            head = known[-1]
        if head not in known:
            listed = f"choose one of {', '.join(known)}" if known else "it has none at all"
            called = "" if head is None else f" called {head!r}"
            raise InputError(f"{type(module).__name__} has no linear layer{called}: {listed}")
        assert head is not None
        last = module.get_submodule(head)
        assert isinstance(last, nn.Linear)
        module.set_submodule(head, nn.Identity())
        network = cls(module, last)
        network.renamed = partial(_name_in_wrapped, f"{head}.")
        return network


M = TypeVar("M", bound=nn.Module)


def frozen_copy(module: M) -> M:
    """A copy of a module in evaluation mode, whose weights are not trained.

    Example:
        >>> older = frozen_copy(nn.Linear(2, 1))
        >>> older.training, older.weight.requires_grad
        (False, False)
    """
    return copy.deepcopy(module).requires_grad_(False).eval()


def _name_in_wrapped(head: str, name: str) -> str:
    return f"head.{name.removeprefix(head)}" if name.startswith(head) else f"features.{name}"
