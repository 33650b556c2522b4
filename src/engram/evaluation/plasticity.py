"""The plasticity probe: dormant units and the effective rank of a network's features."""

from __future__ import annotations

from torch import nn

from engram.evaluation.kshot import features_of
from engram.evaluation.samples import EvaluationSet
from engram.metrics.plasticity import dormant_units, effective_rank

DORMANT_UNITS, EFFECTIVE_RANK = "dormant units", "effective rank"
"""The names of the readings."""


def plasticity(network: nn.Module, data: EvaluationSet) -> dict[str, float]:
    """The share of dormant units among the network's features, and the features' effective rank.

    The features are what the head sees: the last hidden layer. The network is not changed.

    Args:
        network: A network with a submodule `features`.
        data: The samples; within a run, the test set of the task that was just learned.

    Example:
        >>> import torch
        >>> from engram.evaluation.samples import TensorSet
        >>> from engram.models.network import Network
        >>> data = TensorSet(torch.tensor([[1.0, 0.0], [2.0, 0.0]]), torch.tensor([0, 1]))
        >>> plasticity(Network(nn.Identity(), nn.Linear(2, 2)), data)
        {'dormant units': 0.5, 'effective rank': 1.0}
    """
    features = features_of(network, data).double().numpy()
    return {DORMANT_UNITS: dormant_units(features), EFFECTIVE_RANK: effective_rank(features)}
