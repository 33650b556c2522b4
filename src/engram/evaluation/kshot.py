"""The k-shot probe: how well a task that was not learned yet is learned from a few samples.

See Chen et al. (2023). Everything here works on features that were computed once, or on a copy of the
network: the network itself, its modes, its gradients and the global random states do not change.
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
    """A few samples of each class: their rows, and the rank of each within its class, counted from 0."""

    rows: Tensor
    rank: Tensor


def draw_shots(y: Tensor, most: int, *, generator: torch.Generator) -> Shots:
    """Up to `most` samples of each class, drawn without replacement; a class that has fewer gives all.

    The samples with a rank below k are the k-shot samples, so larger draws contain the smaller ones.

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
    """The network's features of some samples (all, if None), one flat row per sample, in evaluation mode.

    Raises:
        InputError: The network has no submodule `features`.

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
        pieces = [
            extract(data.rows(index[part]).to(device)).flatten(1).cpu() for part in chunks(len(index), CHUNK)
        ]
        return torch.cat(pieces)


class Probed(NamedTuple):
    """What a probe reached.

    Attributes:
        accuracy: The share of test samples that it classifies correctly.
        loss: The mean cross-entropy that is left on the samples it was trained on, relative to that of a
            guess (ln of the number of classes): near 1 it has learned nothing, near 0 it fits them.
    """

    accuracy: float
    loss: float


def linear_probe(
    training: Examples,
    test: Examples,
    *,
    lr: float = 0.01,
    epochs: int = 100,
    batch_size: int = 50,
    generator: torch.Generator,
) -> Probed:
    """The accuracy of a new linear layer on some features, trained on others, and how far its training came.

    Softmax regression with plain SGD and a constant learning rate, shuffled in every epoch; batches have
    nearly equal sizes, `batch_size` at most. Initial weights are drawn as PyTorch draws them. If the weights
    become NaN, no answer counts as correct. The defaults are those of Fwt in Chen et al. (2023); where
    features are small, as those of small networks are, they leave the layer far from converged.

    Args:
        training: The features to train on.
        test: The features to evaluate on.
        lr: The learning rate.
        epochs: Passes over the training samples.
        batch_size: Samples per update, at most.
        generator: Draws the initial weights and the order of samples.

    Example:
        >>> apart = Examples(torch.tensor([[2.0, 0.0], [0.0, 2.0]]), torch.tensor([0, 1]))
        >>> probed = linear_probe(apart, apart, lr=0.5, generator=torch.Generator())
        >>> probed.accuracy, round(probed.loss, 1)
        (1.0, 0.0)
    """
    classes = 1 + max(int(training.y.max()), int(test.y.max()))
    wanted = functional.one_hot(training.y, classes).float()
    weight, bias = _fresh_head(training.x.shape[1], classes, generator)
    with torch.inference_mode():
        for _ in range(epochs):
            order = torch.randperm(len(training.y), generator=generator)
            for part in chunks(len(order), batch_size):
                x, target = training.x[order[part]], wanted[order[part]]
                # The gradient of the mean cross-entropy, written out: autograd would cost more.
                error = (torch.addmm(bias, x, weight).softmax(dim=1) - target) / len(x)
                weight.addmm_(x.T, error, alpha=-lr)
                bias.sub_(error.sum(dim=0), alpha=lr)
        right = answered_right(torch.addmm(bias, test.x, weight), test.y)
        left = functional.cross_entropy(torch.addmm(bias, training.x, weight), training.y)
    # A single class is known without learning.
    guess = math.log(classes) if classes > 1 else 1.0
    return Probed(float(right.float().mean()), float(left) / guess)


def tuned_probe(
    network: nn.Module,
    training: Examples,
    tests: Sequence[Examples],
    *,
    lr: float = 0.01,
    epochs: Sequence[int] = (10, 50, 100),
    batch_size: int = 50,
    generator: torch.Generator,
) -> dict[int, tuple[float, ...]]:
    """The accuracies of a copy of the network after training all its weights on a few samples.

    The copy gets a new linear layer for the classes of these samples; SGD with a constant learning rate, as
    in `linear_probe`. It is trained once and evaluated after each number of epochs.

    Args:
        network: A network with `features`; it is copied.
        training: The inputs to train on.
        tests: Sets of inputs to evaluate on.
        lr: The learning rate.
        epochs: After how many epochs to evaluate.
        batch_size: Samples per update, at most.
        generator: Draws the initial weights of the layer, the order of samples, and the seed of the
            network's own randomness.

    Returns:
        For each number of epochs, the accuracy on each set.

    Example:
        >>> from engram.models.network import Network
        >>> net = Network(nn.Linear(2, 2, bias=False), nn.Linear(2, 5))
        >>> data = Examples(torch.tensor([[2.0, 0.0], [0.0, 2.0]]), torch.tensor([0, 1]))
        >>> scores = tuned_probe(net, data, [data], lr=0.5, epochs=(1, 100), generator=torch.Generator())
        >>> sorted(scores), scores[100]
        ([1, 100], (1.0,))
    """
    device = next((p.device for p in network.parameters()), torch.device("cpu"))
    classes = 1 + max(int(examples.y.max()) for examples in (training, *tests))
    with same_randomness():
        torch.manual_seed(int(torch.randint(2**62, (), generator=generator)))
        learner = _with_fresh_head(network, training.x[:1].to(device), classes, generator)
        optimizer = torch.optim.SGD(learner.parameters(), lr=lr)
        accuracies: dict[int, tuple[float, ...]] = {}
        for done in range(1, max(epochs) + 1):
            learner.train()
            order = torch.randperm(len(training.y), generator=generator)
            for part in chunks(len(order), batch_size):
                x, y = training.x[order[part]].to(device), training.y[order[part]].to(device)
                optimizer.zero_grad(set_to_none=True)
                functional.cross_entropy(learner(x), y).backward()
                optimizer.step()
            if done in epochs:
                accuracies[done] = tuple(_accuracy(learner, test, device) for test in tests)
    return accuracies


def _with_fresh_head(
    network: nn.Module, sample: Tensor, classes: int, generator: torch.Generator
) -> nn.Sequential:
    """A copy of the network's features below a new linear layer; all its weights are trained."""
    features = copy.deepcopy(network.features).requires_grad_(True)
    assert isinstance(features, nn.Module)
    with torch.no_grad():
        width = features.eval()(sample).flatten(1).shape[1]
    head = nn.Linear(width, classes).to(sample.device)
    weight, bias = _fresh_head(width, classes, generator)
    with torch.no_grad():
        head.weight.copy_(weight.T)
        head.bias.copy_(bias)
    return nn.Sequential(features, nn.Flatten(1), head)


def _fresh_head(width: int, classes: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Weights and bias of a linear layer as PyTorch would draw them, from a generator of one's own."""
    reach = 1 / math.sqrt(width)
    weight = torch.empty(width, classes).uniform_(-reach, reach, generator=generator)
    return weight, torch.empty(classes).uniform_(-reach, reach, generator=generator)


def _accuracy(network: nn.Module, test: Examples, device: torch.device) -> float:
    network.eval()
    right = 0
    with torch.inference_mode():
        for part in chunks(len(test.y), CHUNK):
            answers = answered_right(network(test.x[part].to(device)), test.y[part].to(device))
            right += int(answers.sum())
    return right / len(test.y)
