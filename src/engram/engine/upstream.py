"""How much of what a pretrained network knew is still known (003)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor, nn

from engram.core.errors import InputError
from engram.datasets import Images, load
from engram.datasets.transforms import prepare
from engram.engine.start import sample_shape
from engram.evaluation.accuracy import answered_right
from engram.evaluation.kshot import features_of
from engram.models import build
from engram.models.network import Network
from engram.models.weights import FROM_FILE, load_weights
from engram.record.experiment import Experiment
from engram.scenarios.values import Colour, Grey, Normalise, Resize, Scenario, Transform

CHUNK = 4096


class Prepared:
    """Samples of a data set as a network gets them, read when they are asked for."""

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
        """The share of upstream test samples that the original head answers right on a network's features.

        Args:
            network: Whose features; the start's own unless given.
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
        data: Where data sets are looked for first.

    Raises:
        InputError: The start knows nothing of that data set, or the data set is not there.
    """
    name, start = experiment.evaluation.upstream, experiment.start
    pretrained = experiment.model.model.pretrained
    if start is None and pretrained is None:
        raise InputError(
            f"the start was not pretrained on {name}, its weights are random: give some with --weights"
        )
    if start is None and pretrained is not None and pretrained.on != name:
        known = pretrained.on or "nobody knows what"
        raise InputError(f"model {experiment.model.name} was pretrained on {known}, not on {name}")
    found = load(name, data)
    shape = sample_shape(experiment.scenario)
    model = replace(experiment.model, zero_head=False)
    network = build(model, shape=shape, n_units=len(found.classes), seed=0)
    if start is not None:
        said = load_weights(network, start.file, sha256=start.sha256)
        if said != FROM_FILE:
            raise InputError(f"the start has no head for {name}: {said}")
    return Upstream(network.eval(), Prepared(found.test, _transforms(experiment.scenario, shape, found.test)))


def _transforms(scenario: Scenario, shape: tuple[int, ...], images: Images) -> tuple[Transform, ...]:
    """What gives upstream images the shape and the normalisation of the benchmark's."""
    if len(shape) != 3 or shape[1] != shape[2] or shape[0] not in (1, 3) or len(images.shape) != 3:
        raise InputError(f"images of shape {images.shape} cannot be brought to {shape}: they must be square")
    normalised = tuple(each for each in scenario.tasks[0].transforms if isinstance(each, Normalise))
    size = () if images.shape[1:] == shape[1:] else (Resize(shape[1]),)
    return (*size, Colour() if shape[0] == 3 else Grey(), *normalised)
