"""What a table or figure requires: updates, time on this machine, data sets."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache, partial
from itertools import pairwise
from pathlib import Path

import torch
from torch import Tensor, nn

from engram.core.dataset_info import DATASETS
from engram.datasets.find import locate
from engram.datasets.transforms import prepared_shape
from engram.engine.effects import learned_samples
from engram.engine.operations import Operations
from engram.models import build
from engram.models.image_input import sample_for
from engram.models.spec import ModelSpec
from engram.papers.sizes import updates_of
from engram.papers.values import Piece
from engram.record.experiment import Experiment
from engram.scenarios.values import Transform

OVERHEAD = 1.6
"""The time of an update relative to that of its matrix products alone; measured on small networks."""

GENERATORS = {"dgr": 6.0, "rtf": 4.8}
"""The time of an update with a generator relative to one without; measured with the networks of
Hsu et al. (2018)."""


@dataclass(frozen=True, slots=True)
class Needs:
    """What pieces require.

    Attributes:
        runs: The number of runs that they ask for, including later ones.
        updates: The number of updates of these runs.
        seconds: Their approximate duration on one core of this machine.
        datasets: The data sets that they read.
        absent: The data sets among these that are not available.
    """

    runs: int
    updates: int
    seconds: float
    datasets: tuple[str, ...]
    absent: tuple[str, ...]


def needs(pieces: Iterable[Piece], *, seeds: int | None = None, data: Path | None = None) -> Needs:
    """What pieces require if no run exists yet; a run that several pieces ask for is counted once.

    Args:
        pieces: The pieces.
        seeds: The number of runs of each experiment (default: as many as the paper made).
        data: A folder to search for data sets first.
    """
    runs = updates = seconds = 0.0
    datasets: set[str] = set()
    known: dict[tuple[str, str], list[Experiment]] = {}
    for piece in pieces:
        planned_runs = samples(piece)
        if piece.outline is not None:
            count, _ = outline_of(piece)
        else:
            planned_runs = tuple(planned for planned in planned_runs if _is_new(planned, known))
            count = len(planned_runs)
        if not planned_runs:
            continue
        # The cost does not depend on the seed.
        times = count * (1 + piece.later) * (piece.seeds if seeds is None else seeds)
        runs += times
        for planned in planned_runs:
            updates += times / len(planned_runs) * updates_of(planned)
            seconds += times / len(planned_runs) * operations(planned) * OVERHEAD / rate()
            datasets |= _read_by(planned)
    return Needs(
        runs=round(runs),
        updates=round(updates),
        seconds=seconds,
        datasets=tuple(sorted(datasets)),
        absent=tuple(name for name in sorted(datasets) if not _here(name, data)),
    )


def samples(piece: Piece) -> tuple[Experiment, ...]:
    """The runs of a piece with one seed, or a few representative ones if they are very many."""
    return outline_of(piece)[1]


@cache
def outline_of(piece: Piece) -> tuple[int, tuple[Experiment, ...]]:
    """The number of runs that a piece first asks for with one seed, and all or some of them; planned once."""
    if piece.outline is not None:
        count, few = piece.outline()
        return count, tuple(few)
    runs = piece.first_runs(1)
    return len(runs), tuple(runs)


def _is_new(planned: Experiment, known: dict[tuple[str, str], list[Experiment]]) -> bool:
    """Whether a run has not been counted yet; comparing it with similar ones is faster than hashing it."""
    similar = known.setdefault((planned.scenario.name, planned.method), [])
    if planned in similar:
        return False
    similar.append(planned)
    return True


def absent(piece: Piece, data: Path | None = None) -> tuple[str, ...]:
    """The data sets that a piece reads and that are not available.

    Args:
        piece: The piece.
        data: A folder to search for data sets first.
    """
    names = {name for planned in samples(piece) for name in _read_by(planned)}
    return tuple(name for name in sorted(names) if not _here(name, data))


def _read_by(planned: Experiment) -> set[str]:
    """The data sets that a run reads: those of its tasks, and the one of its pretrained weights."""
    names = {task.source.dataset for task in planned.scenario.tasks} | {planned.evaluation.upstream}
    return {DATASETS[name].part_of or name for name in names if name}


def operations(planned: Experiment) -> float:
    """The approximate number of floating-point operations of a run, including evaluations.

    Learning from a sample counts three times as much as evaluating it. The additional work of methods is not
    counted, except for rehearsal, which doubles the samples, and generators.

    Example:
        >>> from engram.engine.recipe import experiment
        >>> planned = experiment("split-mnist-002", "finetune", evaluation={"every": 10**9})
        >>> round(operations(planned) / 1e12, 1)
        0.8
    """
    task = planned.scenario.tasks[0]
    shape = _shape(task.source.dataset, task.transforms)
    one = forward(planned.model, shape, planned.scenario.n_units)
    updates = updates_of(planned)
    again = 2.0 if any(name in planned.settings for name in ("memory", "memory_batch")) else 1.0
    batch = min(planned.batch_size, learned_samples(planned) or planned.batch_size)
    learned = 3 * updates * batch * GENERATORS.get(planned.method, again)
    phases = len(planned.scenario.phases)
    samples = planned.evaluation.subset or 2_000
    rounds = max(updates // planned.evaluation.every_in(updates // phases), phases)
    evaluated = rounds * samples * (phases + 1) / 2
    return one * (learned + evaluated)


@cache
def forward(model: ModelSpec, shape: tuple[int, ...], n_units: int) -> float:
    """Floating-point operations of the forward pass of one sample.

    Example:
        >>> forward(ModelSpec("mlp", hidden=(400, 400)), (1, 32, 32), 10)
        1147200.0
    """
    if model.name == "mlp" and model.value is None:
        # The most frequent network, and the one that is tried with very many widths.
        widths = (math.prod(shape), *model.hidden, n_units)
        products: int = sum(inputs * outputs for inputs, outputs in pairwise(widths))
        return 2.0 * products
    if model.model.source:
        return _measured(model, shape, n_units)
    counted: list[float] = []
    # On the meta device weights have shapes only.
    with torch.device("meta"):
        network = build(model, shape=shape, n_units=n_units, seed=0).eval()
    weighted = [layer for layer in network.modules() if list(layer.parameters(recurse=False))]
    if not all(isinstance(layer, _COUNTED) for layer in weighted):
        return _measured(model, shape, n_units)
    for layer in network.modules():
        if isinstance(layer, nn.Linear | nn.Conv2d):
            layer.forward = partial(_zeros, layer, counted)  # type: ignore[method-assign]
        elif isinstance(layer, nn.BatchNorm2d):
            layer.forward = _same  # type: ignore[method-assign,assignment]
    with torch.inference_mode():
        network(torch.zeros(1, *shape))
    return sum(counted)


_COUNTED = (nn.Linear, nn.Conv2d, nn.BatchNorm2d)


def _measured(model: ModelSpec, shape: tuple[int, ...], n_units: int) -> float:
    """The operations for one sample of a network with other layers, which is built and asked."""
    network = build(model, shape=shape, n_units=n_units, seed=0).eval()
    with torch.inference_mode(), Operations() as counted:
        network(sample_for(network, shape))
    return float(counted.flops)


def _same(x: Tensor) -> Tensor:
    return x


def _zeros(layer: nn.Linear | nn.Conv2d, counted: list[float], x: Tensor) -> Tensor:
    """An output of the right shape instead of the layer's own, whose operations are counted.

    Running convolutions on the meta device instead would import a compiler, which takes longer than the rest.
    """
    if isinstance(layer, nn.Linear):
        output = x.new_zeros(*x.shape[:-1], layer.out_features)
    else:
        assert not isinstance(layer.padding, str)
        sides = [
            (side + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1
            for side, padding, dilation, kernel, stride in zip(
                x.shape[2:], layer.padding, layer.dilation, layer.kernel_size, layer.stride, strict=True
            )
        ]
        output = x.new_zeros(len(x), layer.out_channels, *sides)
    # Each output is a sum of products, one per weight.
    counted.append(2.0 * output[0].numel() * layer.weight[0].numel())
    return output


@cache
def _here(dataset: str, data: Path | None) -> bool:
    return dataset == "digits" or locate(dataset, data) is not None


@cache
def _shape(dataset: str, transforms: tuple[Transform, ...]) -> tuple[int, ...]:
    return prepared_shape(DATASETS[dataset].shape, transforms)


@cache
def rate() -> float:
    """Floating-point operations per second of one thread, in a matrix product of typical size."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        a, b = torch.randn(256, 784), torch.randn(784, 400)
        best = math.inf
        with torch.inference_mode():
            for _ in range(20):
                started = time.perf_counter()
                torch.mm(a, b)
                best = min(best, time.perf_counter() - started)
    finally:
        torch.set_num_threads(threads)
    return 2 * 256 * 784 * 400 / best
