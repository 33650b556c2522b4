"""Importance of weights against one sample at a time, and parabolas against their naive sum."""

import warnings
from collections.abc import Callable
from functools import partial
from typing import Literal

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from engram.core.values import Batch, Heads
from engram.methods.importance import (
    Anchors,
    FisherKind,
    Label,
    batch_fisher,
    diagonal_fisher,
    fisher_information,
    output_sensitivity,
)
from engram.models import ModelSpec, build
from engram.models.network import Network

HEADS: dict[str, tuple[Heads, int | Tensor, list[int]]] = {
    "all units": ((tuple(range(6)),), 0, list(range(6))),
    "seen so far": (((0, 1, 2, 3),), 0, [0, 1, 2, 3]),
    "second head": (((0, 1, 2), (3, 4, 5)), 1, [3, 4, 5]),
}


def dense() -> Network:
    return build(ModelSpec(hidden=(7, 5)), shape=(1, 4, 4), n_units=6, seed=0)


def convolutional() -> Network:
    """Convolution, batch norm with statistics of its own, dropout, rectifiers that work in place."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        features = nn.Sequential(
            nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.ReLU(inplace=True), nn.Dropout(0.5), nn.Flatten(1)
        )
        network = Network(features, nn.Linear(12, 6))
        for _ in range(3):
            network(2 + 3 * torch.randn(8, 1, 4, 4))
    return network


def shared_layer() -> Network:
    """One linear layer that is used twice: its two gradients belong together."""

    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(16, 16)

        def forward(self, x: Tensor) -> Tensor:
            again: Tensor = self.layer(torch.tanh(self.layer(x.flatten(1))))
            return again

    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        return Network(Twice(), nn.Linear(16, 6))


def tied_weight() -> Network:
    """A layer whose weight is used once more, transposed, without the layer being called."""

    class Back(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(16, 7)

        def forward(self, x: Tensor) -> Tensor:
            return nn.functional.linear(torch.tanh(self.layer(x.flatten(1))), self.layer.weight.T)

    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        return Network(Back(), nn.Linear(16, 6))


def two_layers_of_one_weight() -> Network:
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        first, second = nn.Linear(16, 16), nn.Linear(16, 16)
        second.weight = first.weight
        return Network(nn.Sequential(nn.Flatten(1), first, nn.Tanh(), second), nn.Linear(16, 6))


NETWORKS = {
    "dense": dense,
    "convolutional": convolutional,
    "shared layer": shared_layer,
    "tied weight": tied_weight,
    "two layers of one weight": two_layers_of_one_weight,
}


def questions(kind: str, n: int = 9) -> Batch:
    generator = torch.Generator().manual_seed(1)
    heads, head, units = HEADS[kind]
    x = torch.randn(n, 1, 4, 4, generator=generator)
    y = torch.tensor(units)[torch.randint(len(units), (n,), generator=generator)]
    return Batch(x, y, heads=heads, head=head)


def one_by_one(
    network: nn.Module, batch: Batch, units: list[int], *, label: str, size: Callable[[Tensor], Tensor]
) -> list[Tensor]:
    """Sample after sample, through autograd, with the units that compete cut out."""
    network.eval()
    total = [torch.zeros_like(p) for p in network.parameters()]
    for x, y in zip(batch.x, batch.y, strict=True):
        scores = network(x[None])[:, units]
        if label == "none":
            loss = scores.square().sum()
        else:
            right = units.index(int(y)) if label == "true" else int(scores.argmax())
            loss = nn.functional.cross_entropy(scores, torch.tensor([right]))
        weights = list(network.parameters())
        gradients = torch.autograd.grad(loss, weights, allow_unused=True, materialize_grads=True)
        for sum_, gradient in zip(total, gradients, strict=True):
            sum_ += size(gradient) / len(batch)
    return total


def assert_close(actual: list[Tensor], expected: list[Tensor]) -> None:
    for one, other in zip(actual, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("label", ["predicted", "true"])
@pytest.mark.parametrize("heads", HEADS)
@pytest.mark.parametrize("name", NETWORKS)
def test_fisher_is_that_of_single_samples(name: str, heads: str, label: Label) -> None:
    network, batch = NETWORKS[name](), questions(heads)
    network.train()
    pieces = [Batch(batch.x[:8], batch.y[:8], heads=batch.heads, head=batch.head)]
    pieces.append(Batch(batch.x[8:], batch.y[8:], heads=batch.heads, head=batch.head))
    buffers = [b.clone() for b in network.buffers()]
    fisher = diagonal_fisher(network, pieces, label=label)
    assert network.training
    assert all(torch.equal(*pair) for pair in zip(buffers, network.buffers(), strict=True))
    assert_close(fisher, one_by_one(network, batch, HEADS[heads][2], label=label, size=torch.square))


class Layers(nn.Module):
    """Two dense layers, with room for what ordinary networks do between them."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(16, 7)
        self.second = nn.Linear(7, 6)

    def between(self, h: Tensor) -> Tensor:
        return h

    def forward(self, x: Tensor) -> Tensor:
        h = torch.tanh(self.first(x.flatten(1)))
        scores: Tensor = self.second(self.between(h))
        return scores


class LayerAside(Layers):
    """A layer whose output the scores do not depend on."""

    def __init__(self) -> None:
        super().__init__()
        self.aside = nn.Linear(7, 3)

    def between(self, h: Tensor) -> Tensor:
        self.aside(h)
        return h


class Scaling(Layers):
    """A weight outside of dense layers."""

    def __init__(self) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.tensor(1.5))

    def between(self, h: Tensor) -> Tensor:
        return h * self.factor


class Branching(Scaling):
    def between(self, h: Tensor) -> Tensor:
        return super().between(h) if h.sum() > 0 else h


class Remembering(Scaling):
    """It keeps its activations."""

    def between(self, h: Tensor) -> Tensor:
        self.latest = h
        return super().between(h)


class NamedInput(Layers):
    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.second(input=torch.tanh(self.first(input=x.flatten(1))))
        return scores


class FixedFeatures(Layers):
    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            h = torch.tanh(self.first(x.flatten(1)))
        scores: Tensor = self.second(h)
        return scores


class Patches(Layers):
    """Its layers see several patches of each sample at once, as rows."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(8, 4)
        self.second = nn.Linear(8, 6)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.tanh(self.first(x.reshape(-1, 8)))
        scores: Tensor = self.second(h.reshape(len(x), 8))
        return scores


class OverwrittenInput(Layers):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.sub_(0.1))


class OverwrittenInputOfOtherLayers(Scaling):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.sub_(0.1))


class Preprocessed(Layers):
    """It prepares its input with NumPy."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(torch.from_numpy(np.sign(x.numpy())))


def with_hook() -> nn.Module:
    """A dense layer whose output a hook replaces."""
    network = Layers()
    network.first.register_forward_hook(lambda layer, inputs, result: 3 * result)
    return network


def with_own_forward() -> nn.Module:
    network = Layers()
    plain = network.first.forward
    network.first.forward = lambda x: 3 * plain(x)  # type: ignore[assignment, method-assign]
    return network


def with_normed_weight() -> nn.Module:
    network = Layers()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        nn.utils.weight_norm(network.first)
    return network


@pytest.mark.parametrize(
    "make",
    [
        LayerAside,
        Branching,
        Remembering,
        NamedInput,
        FixedFeatures,
        Patches,
        OverwrittenInput,
        OverwrittenInputOfOtherLayers,
        Preprocessed,
        with_hook,
        with_own_forward,
        with_normed_weight,
    ],
)
def test_networks_of_ones_own_have_the_fisher_of_single_samples(make: Callable[[], nn.Module]) -> None:
    torch.manual_seed(0)
    network, batch = make(), questions("seen so far")
    fisher = diagonal_fisher(network, [batch], label="true")
    assert_close(fisher, one_by_one(network, batch, HEADS["seen so far"][2], label="true", size=torch.square))


def test_activations_that_a_network_keeps_can_be_used_afterwards() -> None:
    network, batch = Remembering(), questions("all units")
    network(batch.x)
    diagonal_fisher(network, [batch])
    assert torch.isfinite(network.latest).all()


@pytest.mark.parametrize("label", ["predicted", "true"])
def test_tokens_into_dense_layers(label: Label) -> None:
    class Tokens(Layers):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x.float())

    torch.manual_seed(0)
    network, numbers = Tokens(), questions("all units")
    batch = Batch((5 * numbers.x).long(), numbers.y, heads=numbers.heads)
    fisher = diagonal_fisher(network, [batch], label=label)
    assert_close(fisher, one_by_one(network, batch, list(range(6)), label=label, size=torch.square))


@pytest.mark.parametrize(
    ("make", "measure"),
    [
        (dense, partial(diagonal_fisher, label="true")),
        (dense, batch_fisher),
        (dense, output_sensitivity),
        (dense, partial(output_sensitivity, kind="sample")),
        (convolutional, partial(diagonal_fisher, label="true")),
    ],
)
def test_sums_of_many_batches_in_half_precision(
    make: Callable[[], Network], measure: Callable[..., list[Tensor]]
) -> None:
    """In bfloat16, a sum of equal parts does not grow after the 256th."""
    network, batch = make().bfloat16(), questions("all units", n=2)
    one = Batch(batch.x.bfloat16(), batch.y, heads=batch.heads)
    once, often = measure(network, [one]), measure(network, [one] * 300)
    assert all(mean.dtype == torch.bfloat16 for mean in often)
    assert all(torch.equal(*pair) for pair in zip(once, often, strict=True))


def test_fisher_with_a_head_for_each_sample() -> None:
    network, both = dense(), questions("second head")
    first = Batch(both.x, both.y - 3, heads=both.heads, head=0)
    mixed = Batch(
        torch.cat([first.x, both.x]),
        torch.cat([first.y, both.y]),
        heads=both.heads,
        head=torch.tensor([0] * 9 + [1] * 9),
    )
    apart = [diagonal_fisher(network, [one], label="true") for one in (first, both)]
    mean = [(a + b) / 2 for a, b in zip(*apart, strict=True)]
    assert_close(diagonal_fisher(network, [mixed], label="true"), mean)


@pytest.mark.parametrize("make", [dense, OverwrittenInput])
def test_fisher_of_frozen_layers_is_found_too(make: Callable[[], nn.Module]) -> None:
    network, batch = make(), questions("all units")
    expected = diagonal_fisher(network, [batch])
    next(network.children()).requires_grad_(False)
    assert_close(diagonal_fisher(network, [batch]), expected)


@pytest.mark.parametrize("label", ["predicted", "sampled", "true"])
def test_a_dense_network_is_asked_once_per_batch(label: Label) -> None:
    """Its answers to the batch are also those that the gradients are of."""
    network, batch, asked = dense(), questions("seen so far"), 0

    def note(*_: object) -> None:
        nonlocal asked
        asked += 1

    network.register_forward_hook(note)
    with torch.no_grad():
        diagonal_fisher(network, [batch, batch], label=label, generator=torch.Generator())
    assert asked == 2


def test_sampled_labels_follow_the_softmax() -> None:
    """For one linear layer and input 1, the expected squared gradient is p (1 − p)."""
    layer = nn.Linear(1, 3, bias=False)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[1.0], [0.0], [-1.0]]))
    many = Batch(torch.ones(20_000, 1), torch.zeros(20_000, dtype=torch.int64), heads=((0, 1, 2),))
    fisher = diagonal_fisher(layer, [many], label="sampled", generator=torch.Generator().manual_seed(0))
    chance = torch.softmax(layer.weight.detach().squeeze(1), dim=0)
    torch.testing.assert_close(fisher[0].squeeze(1), chance * (1 - chance), rtol=0, atol=0.01)


@pytest.mark.parametrize(("kind", "factors"), [("batch", (1, 1)), ("batch-scaled", (8, 1))])
def test_batch_variants_square_the_gradient_of_a_batch(kind: FisherKind, factors: tuple[int, int]) -> None:
    network, batch = dense(), questions("seen so far")
    pieces = [
        Batch(batch.x[:8], batch.y[:8], heads=batch.heads),
        Batch(batch.x[8:], batch.y[8:], heads=batch.heads),
    ]
    expected = [torch.zeros_like(p) for p in network.parameters()]
    for piece, factor in zip(pieces, factors, strict=True):
        loss = nn.functional.cross_entropy(network(piece.x)[:, :4], piece.y)
        for sum_, gradient in zip(
            expected, torch.autograd.grad(loss, list(network.parameters())), strict=True
        ):
            sum_ += factor * gradient.square() / 2
    assert_close(fisher_information(network, pieces, kind=kind, label="true"), expected)


def test_a_batch_of_one_is_a_sample() -> None:
    network, batch = convolutional(), questions("second head")
    singles = [
        Batch(x[None], y[None], heads=batch.heads, head=1) for x, y in zip(batch.x, batch.y, strict=True)
    ]
    assert_close(
        batch_fisher(network, singles, label="predicted"),
        diagonal_fisher(network, [batch], label="predicted"),
    )


@pytest.mark.parametrize("heads", HEADS)
@pytest.mark.parametrize("name", NETWORKS)
def test_sensitivity_of_samples_is_that_of_single_samples(name: str, heads: str) -> None:
    network, batch = NETWORKS[name](), questions(heads)
    sensitivity = output_sensitivity(network, [batch], kind="sample")
    assert_close(sensitivity, one_by_one(network, batch, HEADS[heads][2], label="none", size=torch.abs))


@pytest.mark.parametrize("heads", HEADS)
def test_sensitivity_of_batches(heads: str) -> None:
    network, batch = convolutional(), questions(heads)
    sensitivity = output_sensitivity(network, [batch, batch])
    network.eval()
    loss = network(batch.x)[:, HEADS[heads][2]].square().mean()
    assert_close(sensitivity, [g.abs() for g in torch.autograd.grad(loss, list(network.parameters()))])


@pytest.mark.parametrize("kind", ["batch", "sample"])
def test_units_out_of_the_competition_do_not_matter(kind: Literal["batch", "sample"]) -> None:
    network, batch = dense(), questions("second head")
    head = list(network.parameters())[-2:]
    for importance in (diagonal_fisher(network, [batch]), output_sensitivity(network, [batch], kind=kind)):
        weight, bias = importance[-2:]
        assert weight.shape == head[0].shape
        assert not weight[:3].any()
        assert not bias[:3].any()
        assert weight[3:].any()


def random_slots(n: int, generator: torch.Generator) -> list[tuple[list[Tensor], list[Tensor]]]:
    slots = []
    for _ in range(n):
        importance = [torch.rand(4, 3, generator=generator), torch.rand(5, generator=generator)]
        importance[1][:2] = 0
        slots.append(
            (importance, [torch.randn(4, 3, generator=generator), torch.randn(5, generator=generator)])
        )
    return slots


@pytest.mark.parametrize("n", [1, 2, 12])
def test_many_anchors_are_the_sum_of_their_parabolas(n: int) -> None:
    generator = torch.Generator().manual_seed(n)
    slots, anchors = random_slots(n, generator), Anchors()
    weights = [
        nn.Parameter(torch.randn(4, 3, generator=generator)),
        nn.Parameter(torch.randn(5, generator=generator)),
    ]
    naive = torch.zeros(())
    for importance, centre in slots:
        anchors.add(importance, centre)
        for omega, place, weight in zip(importance, centre, weights, strict=True):
            naive = naive + (omega * (weight - place).square()).sum()
    value = anchors.penalty(weights)
    torch.testing.assert_close(value, naive, rtol=1e-5, atol=1e-6)
    slopes = torch.autograd.grad(value, weights)
    assert_close(list(slopes), list(torch.autograd.grad(naive, weights)))
    by_hand, pulls = anchors.pulls(weights)
    assert torch.equal(by_hand, value.detach())
    assert_close([2 * pull for pull in pulls], list(slopes))
    assert anchors.bytes == 2 * 4 * (12 + 5)


def test_a_moved_anchor_adds_up_and_decays() -> None:
    anchors, one = Anchors(), torch.ones(2)
    anchors.move([one], [0 * one])
    anchors.move([one], [3 * one], decay=0.5)
    # One anchor at 3 with importance 1.5, for two weights at 1.
    assert anchors.penalty([nn.Parameter(one)]).item() == 2 * 1.5 * 4
