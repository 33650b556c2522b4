"""The diversity probe: how well a network's features separate the classes of a task."""

from torch import nn

from engram.evaluation.kshot import features_of
from engram.evaluation.samples import EvaluationSet
from engram.metrics.diversity import feature_diversity


def diversity(network: nn.Module, data: EvaluationSet) -> float:
    """FDiv of the network's features on a task's samples: see `engram.metrics.diversity.feature_diversity`.

    For AvgFDiv (Chen et al. 2023) the samples are the test set of the task that is learned next.

    Example:
        >>> import torch
        >>> from engram.evaluation.samples import TensorSet
        >>> from engram.models.network import Network
        >>> apart = TensorSet(torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]]),
        ...                   torch.tensor([0, 0, 1, 1]))
        >>> round(diversity(Network(nn.Identity(), nn.Linear(2, 2)), apart), 6)
        1.021651
    """
    return feature_diversity(features_of(network, data).double().numpy(), data.y.numpy())
