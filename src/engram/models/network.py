"""Every network: features, and one linear layer over all output units."""

from __future__ import annotations

from torch import Tensor, nn

from engram.core.errors import InputError


class Network(nn.Module):
    """Features and head, apart, so that probes can look at either.

    The head has a unit for every class of every task. The head of one task is a slice of it, an unknown
    number of classes is a mask over it.

    Attributes:
        features: Inputs to features, one flat row a sample.
        head: Features to the scores of all output units.
        width: How many features there are.

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

    @property
    def width(self) -> int:
        """How many features the head sees."""
        return self.head.in_features

    def forward(self, x: Tensor) -> Tensor:
        """The scores of all output units."""
        scores: Tensor = self.head(self.features(x))
        return scores

    @classmethod
    def wrap(cls, module: nn.Module, *, head: str = "fc") -> Network:
        """Anybody's network, whose last layer is the linear one called `head` (`classifier.2` is fine too).

        The module itself is used, not a copy: its last layer becomes the head, and an identity takes that
        layer's place.

        Example:
            >>> net = Network.wrap(nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2)), head="2")
            >>> net.head, net.features[2]
            (Linear(in_features=3, out_features=2, bias=True), Identity())
        """
        known = [name for name, layer in module.named_modules() if name and isinstance(layer, nn.Linear)]
        if head not in known:
            listed = f"choose one of {', '.join(known)}" if known else "it has none at all"
            raise InputError(f"{type(module).__name__} has no linear layer called {head!r}: {listed}")
        last = module.get_submodule(head)
        assert isinstance(last, nn.Linear)
        module.set_submodule(head, nn.Identity())
        return cls(module, last)
