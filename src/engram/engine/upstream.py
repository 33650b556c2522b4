"""How much a network still knows of the data that it was pretrained on (Chen et al., 2023)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor, nn

from engram.core.errors import InputError
from engram.datasets import Images, load
from engram.datasets.transforms import prepare
from engram.engine.start import sample_shape, weights_file
from engram.evaluation.accuracy import answered_right
from engram.evaluation.kshot import features_of
from engram.models import build
from engram.models.network import Network
from engram.models.weights import FROM_FILE, load_weights
from engram.record.experiment import Experiment
from engram.scenarios.values import Colour, Grey, Normalise, Resize, Scenario, Transform

CHUNK = 4096


class Prepared:
    """Samples of a data set with their transforms applied, read on demand."""

    in_memory = False

    def __init__(self, images: Images, transforms: tuple[Transform, ...]) -> None:
        self.y, self._images, self._transforms = images.labels, images, transforms

    def rows(self, index: Tensor) -> Tensor:
        """The inputs of some samples."""
        return prepare(next(iter(self._images.read([index]))), self._transforms)


@dataclass(frozen=True, slots=True)
class Upstream:
    """The data that a pretrained network was trained on, and the network as it was then.

    Attributes:
        network: The start, with the head that it was pretrained with.
        test: The upstream test samples, at the resolution and with the normalisation of the benchmark.
    """

    network: Network
    test: Prepared

    def accuracy(self, network: nn.Module | None = None) -> float:
        """The accuracy of the original head on upstream test samples, with the features of a network.

        Args:
            network: The network whose features are used (default: the pretrained start).
        """
        device = next(self.network.parameters()).device
        right = 0
        for rows in torch.arange(len(self.test.y)).split(CHUNK):
            features = features_of(self.network if network is None else network, self.test, rows)
            with torch.no_grad():
                scores = self.network.head(features.to(device)).cpu()
            right += int(answered_right(scores, self.test.y[rows]).sum())
        return right / len(self.test.y)


def open_upstream(experiment: Experiment, *, data: Path | None = None) -> Upstream:
    """The upstream side of an experiment that starts from a pretrained network.

    Test samples are resized to the benchmark's resolution, turned to as many channels, and normalised as the
    first task is. The pretrained head is the one in the experiment's weights or, without any, the one that a
    pretrained model has; it must have a unit for every class.

    Args:
        experiment: Its `evaluation.upstream` names the data set.
        data: The folder that is searched for data sets first.

    Raises:
        InputError: The start was not pretrained on that data set, or the data set is missing.
    """
    name, start = experiment.evaluation.upstream, experiment.start
    pretrained = experiment.model.model.pretrained
    if start is None and pretrained is None:
        raise InputError(
            f"the start was not pretrained on {name}: its weights are random; give some with --weights"
        )
    if start is None and pretrained is not None and pretrained.on != name:
        known = pretrained.on or "unknown data"
        raise InputError(f"model {experiment.model.name} was pretrained on {known}, not on {name}")
    dataset = load(name, data)
    shape = sample_shape(experiment.scenario)
    model = replace(experiment.model, zero_head=False)
    network = build(model, shape=shape, n_units=len(dataset.classes), seed=0)
    if start is not None:
        head = load_weights(network, weights_file(start), sha256=start.sha256)
        if head != FROM_FILE:
            raise InputError(f"the start has no head for {name}: {head}")
    return Upstream(
        network.eval(), Prepared(dataset.test, _transforms(experiment.scenario, shape, dataset.test))
    )


def _transforms(scenario: Scenario, shape: tuple[int, ...], images: Images) -> tuple[Transform, ...]:
    """The transforms that give upstream images the shape and the normalisation of the benchmark."""
    if len(shape) != 3 or shape[1] != shape[2] or shape[0] not in (1, 3) or len(images.shape) != 3:
        raise InputError(
            f"images of shape {images.shape} cannot be converted to {shape}: they must be square"
        )
    normalised = tuple(step for step in scenario.tasks[0].transforms if isinstance(step, Normalise))
    size = () if images.shape[1:] == shape[1:] else (Resize(shape[1]),)
    return (*size, Colour() if shape[0] == 3 else Grey(), *normalised)
