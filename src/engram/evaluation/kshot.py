"""The k-shot probe: how well a few samples of a task that was not learned yet are learned from here (003).

Everything here works on features that were computed once, or on a copy of the network: the network itself,
its modes, its gradients and the global random states stay as they are.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from engram.core.errors import InputError
from engram.evaluation.accuracy import answered_right
from engram.evaluation.guard import same_randomness, untouched
from engram.evaluation.samples import EvaluationSet, chunks

CHUNK = 512


class Examples(NamedTuple):
    """Inputs or features with their labels, classes counted from 0."""

    x: Tensor
    y: Tensor


class Shots(NamedTuple):
    """A few samples of each class: which rows they are, and the how-manieth of its class each is, from 0."""

    rows: Tensor
    rank: Tensor


def draw_shots(y: Tensor, most: int, *, generator: torch.Generator) -> Shots:
    """Up to `most` samples of each class, drawn without replacement; a class that has fewer gives all.

    The samples with a rank below k are the k-shot samples, so that more shots contain fewer.

    Example:
        >>> drawn = draw_shots(torch.tensor([0, 0, 0, 1]), 2, generator=torch.Generator())
        >>> len(drawn.rows), drawn.rank.tolist()
        (3, [0, 1, 0])
    """
    rows, ranks = [], []
    for label in y.unique():
        members = torch.nonzero(y == label).squeeze(1)
        chosen = members[torch.randperm(len(members), generator=generator)[:most]]
        rows.append(chosen)
        ranks.append(torch.arange(len(chosen)))
    return Shots(torch.cat(rows), torch.cat(ranks))


def features_of(network: nn.Module, data: EvaluationSet, rows: Tensor | None = None) -> Tensor:
    """The network's features of some samples (all, if None), one flat row a sample, in evaluation mode.

    Raises:
        InputError: The network does not keep its features apart.

    Example:
        >>> from engram.evaluation.samples import TensorSet
        >>> from engram.models.network import Network
        >>> net = Network(nn.Flatten(1), nn.Linear(4, 2))
        >>> features_of(net, TensorSet(torch.ones(3, 1, 2, 2), torch.zeros(3))).shape
        torch.Size([3, 4])
    """
    extract = getattr(network, "features", None)
    if not isinstance(extract, nn.Module):
        raise InputError(
            f"{type(network).__name__} has no features to probe: "
            "wrap the network with engram.models.network.Network.wrap"
        )
    index = torch.arange(len(data.y)) if rows is None else rows
    device = next((p.device for p in network.parameters()), torch.device("cpu"))
    with untouched(network):
        found = [
            extract(data.rows(index[part]).to(device)).flatten(1).cpu() for part in chunks(len(index), CHUNK)
        ]
        return torch.cat(found)


def linear_probe(
    given: Examples,
    asked: Examples,
    *,
    lr: float = 0.01,
    epochs: int = 100,
    batch_size: int = 50,
    generator: torch.Generator,
) -> float:
    """The accuracy of a new linear layer on some features, trained on others.

    Softmax regression by plain SGD with a constant rate, shuffled in every pass; batches are of nearly equal
    size, `batch_size` at most. Initial weights are drawn as PyTorch draws them. A network that was trained to
    no numbers at all answers nothing right. Fwt of 003, whose learning rate, passes and batches are the
    defaults.

    Args:
        given: The features that are learned.
        asked: The features that are asked.
        lr: The learning rate.
        epochs: Passes over the given samples.
        batch_size: Samples in an update, at most.
        generator: Initial weights and order of samples.

    Example:
        >>> apart = Examples(torch.tensor([[2.0, 0.0], [0.0, 2.0]]), torch.tensor([0, 1]))
        >>> linear_probe(apart, apart, lr=0.5, generator=torch.Generator())
        1.0
    """
    classes = 1 + max(int(given.y.max()), int(asked.y.max()))
    wanted = functional.one_hot(given.y, classes).float()
    weight, bias = _fresh_head(given.x.shape[1], classes, generator)
    with torch.inference_mode():
        for _ in range(epochs):
            order = torch.randperm(len(given.y), generator=generator)
            for part in chunks(len(order), batch_size):
                x, target = given.x[order[part]], wanted[order[part]]
                # The gradient of the mean cross-entropy, written out: autograd would cost more.
                error = (torch.addmm(bias, x, weight).softmax(dim=1) - target) / len(x)
                weight.addmm_(x.T, error, alpha=-lr)
                bias.sub_(error.sum(dim=0), alpha=lr)
        right = answered_right(torch.addmm(bias, asked.x, weight), asked.y)
    return float(right.float().mean())


def tuned_probe(
    network: nn.Module,
    given: Examples,
    asked: Sequence[Examples],
    *,
    lr: float = 0.01,
    epochs: Sequence[int] = (10, 50, 100),
    batch_size: int = 50,
    generator: torch.Generator,
) -> dict[int, tuple[float, ...]]:
    """The accuracies of a copy of the network, all of whose weights were trained on a few samples.

    The copy gets a new linear layer for the classes of these samples; SGD with a constant rate, as in
    `linear_probe`. One training serves all numbers of passes.

    Args:
        network: Has `features`; it is copied.
        given: The inputs that are learned.
        asked: Sets of inputs that are asked.
        lr: The learning rate.
        epochs: After how many passes they are asked.
        batch_size: Samples in an update, at most.
        generator: Initial weights of the layer, order of samples, and the network's own randomness.

    Returns:
        For each number of passes, the accuracy on each set.

    Example:
        >>> from engram.models.network import Network
        >>> net = Network(nn.Linear(2, 2, bias=False), nn.Linear(2, 5))
        >>> data = Examples(torch.tensor([[2.0, 0.0], [0.0, 2.0]]), torch.tensor([0, 1]))
        >>> found = tuned_probe(net, data, [data], lr=0.5, epochs=(1, 100), generator=torch.Generator())
        >>> sorted(found), found[100]
        ([1, 100], (1.0,))
    """
    device = next((p.device for p in network.parameters()), torch.device("cpu"))
    classes = 1 + max(int(found.y.max()) for found in (given, *asked))
    with same_randomness():
        torch.manual_seed(int(torch.randint(2**62, (), generator=generator)))
        features = copy.deepcopy(network.features).requires_grad_(True)
        assert isinstance(features, nn.Module)
        with torch.no_grad():
            width = features.eval()(given.x[:1].to(device)).flatten(1).shape[1]
        head = nn.Linear(width, classes).to(device)
        weight, bias = _fresh_head(width, classes, generator)
        with torch.no_grad():
            head.weight.copy_(weight.T)
            head.bias.copy_(bias)
        learner = nn.Sequential(features, nn.Flatten(1), head)
        step = torch.optim.SGD(learner.parameters(), lr=lr)
        found: dict[int, tuple[float, ...]] = {}
        for done in range(1, max(epochs) + 1):
            learner.train()
            order = torch.randperm(len(given.y), generator=generator)
            for part in chunks(len(order), batch_size):
                x, y = given.x[order[part]].to(device), given.y[order[part]].to(device)
                step.zero_grad(set_to_none=True)
                functional.cross_entropy(learner(x), y).backward()
                step.step()
            if done in epochs:
                found[done] = tuple(_accuracy(learner, each, device) for each in asked)
    return found


def _fresh_head(width: int, classes: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Weights and bias of a linear layer as PyTorch would draw them, from a generator of one's own."""
    reach = 1 / math.sqrt(width)
    weight = torch.empty(width, classes).uniform_(-reach, reach, generator=generator)
    return weight, torch.empty(classes).uniform_(-reach, reach, generator=generator)


def _accuracy(network: nn.Module, asked: Examples, device: torch.device) -> float:
    network.eval()
    right = 0
    with torch.inference_mode():
        for part in chunks(len(asked.y), CHUNK):
            answers = answered_right(network(asked.x[part].to(device)), asked.y[part].to(device))
            right += int(answers.sum())
    return right / len(asked.y)
