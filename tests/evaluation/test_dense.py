"""Chains of dense layers are computed faster, and everything else by the network itself."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from engram.evaluation.dense import fusing_works, scorer
from engram.models import build
from engram.models.network import Network
from engram.models.spec import ModelSpec

SHAPE = (1, 8, 8)


def mlp(**fields: object) -> nn.Module:
    return build(ModelSpec("mlp", hidden=(30, 20), **fields), shape=SHAPE, n_units=5, seed=0).eval()  # type: ignore[arg-type]


def hooked() -> nn.Module:
    network = mlp()
    next(layer for layer in network.modules() if isinstance(layer, nn.Linear)).register_forward_hook(
        lambda _layer, _inputs, outputs: outputs + 1
    )
    return network


class Doubled(nn.Sequential):
    """A chain with a forward pass of its own."""

    def forward(self, x: Tensor) -> Tensor:
        """Twice the scores."""
        for layer in self:
            x = layer(x)
        return 2 * x


class Named(nn.Module):
    """A network that calls a part of it `chain`."""

    def __init__(self) -> None:
        super().__init__()
        self.chain = nn.Sequential(nn.Flatten(1), nn.Linear(64, 5))

    def forward(self, x: Tensor) -> Tensor:
        """Three times the scores."""
        scores: Tensor = 3 * self.chain(x)
        return scores


class Halved(Network):
    """A network of ours with a forward pass of its own."""

    def forward(self, x: Tensor) -> Tensor:
        """Half the scores."""
        scores: Tensor = self.head(self.features(x)) / 2
        return scores


CHAINS: dict[str, Callable[[], nn.Module]] = {
    "mlp": mlp,
    "with dropout": lambda: mlp(dropout_input=0.2, dropout_hidden=0.5),
    "without bias": lambda: nn.Sequential(nn.Flatten(1), nn.Linear(64, 5, bias=False)).eval(),
    "nested": lambda: nn.Sequential(
        nn.Flatten(1), nn.Sequential(nn.Linear(64, 9), nn.ReLU()), nn.Linear(9, 5)
    ),
}
OTHERS: dict[str, Callable[[], nn.Module]] = {
    "convolutions": lambda: build(ModelSpec("cnn"), shape=(1, 28, 28), n_units=5, seed=0).eval(),
    "other activation": lambda: nn.Sequential(nn.Flatten(1), nn.Linear(64, 9), nn.Tanh(), nn.Linear(9, 5)),
    "rectified at once": lambda: nn.Sequential(nn.Flatten(1), nn.ReLU(), nn.Linear(64, 5)),
    "64 bits": lambda: mlp().double(),
    "hooks": hooked,
    "part called chain": Named,
    "own forward pass of a network": lambda: Halved(nn.Flatten(1), nn.Linear(64, 5)),
    "own forward pass": lambda: Doubled(nn.Flatten(1), nn.Linear(64, 5)),
    "inner batch norm": lambda: nn.Sequential(nn.Flatten(1), nn.Linear(64, 9), nn.BatchNorm1d(9)).eval(),
}


@pytest.mark.parametrize("name", CHAINS)
def test_chains_are_computed_by_another_function(name: str) -> None:
    if not fusing_works():
        pytest.skip("needs oneDNN, which this PyTorch does not have")
    network, x = CHAINS[name](), torch.randn(70, *SHAPE)
    with torch.inference_mode():
        fused = scorer(network)
        assert fused is not network
        torch.testing.assert_close(fused(x), network(x), atol=1e-5, rtol=1e-5)
        # Samples of another type are passed on to the network itself.
        with pytest.raises(RuntimeError, match="dtype"):
            fused(x.double())


@pytest.mark.parametrize("name", OTHERS)
def test_everything_else_is_the_network_itself(name: str) -> None:
    network = OTHERS[name]()
    assert scorer(network) is network


def test_a_network_is_left_as_it_is() -> None:
    network = mlp()
    before = {name: value.clone() for name, value in network.state_dict().items()}
    with torch.inference_mode():
        scorer(network)(torch.randn(70, *SHAPE))
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
