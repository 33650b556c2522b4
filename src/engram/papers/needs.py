"""What a table or figure takes: updates, time on this machine, data."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch
from torch import Tensor, nn

from engram.core.dataset_info import DATASETS
from engram.datasets.find import locate
from engram.datasets.transforms import prepared_shape
from engram.models import build
from engram.models.spec import ModelSpec
from engram.papers.sizes import updates_of
from engram.papers.values import Piece
from engram.record.experiment import Experiment
from engram.scenarios.values import Transform

OVERHEAD = 1.6
"""How much longer an update takes than its matrix products at their best; measured on small networks."""

GENERATORS = {"dgr": 6.0, "rtf": 4.8}
"""How much longer an update with a generator takes than one without; measured with the networks of
Hsu et al. (2018)."""


@dataclass(frozen=True, slots=True)
class Needs:
    """What pieces take.

    Attributes:
        runs: How many runs they ask for, later ones included.
        updates: How many updates these make.
        seconds: About how long they take on one core of this machine.
        datasets: The data sets they read.
        absent: Those of them that are not here.
    """

    runs: int
    updates: int
    seconds: float
    datasets: tuple[str, ...]
    absent: tuple[str, ...]


def needs(pieces: Iterable[Piece], *, seeds: int | None = None, data: Path | None = None) -> Needs:
    """What pieces take if nothing of them is done yet; a run that several ask for is counted once.

    Args:
        pieces: The pieces.
        seeds: How many runs of each (default: as many as the paper made).
        data: Where data sets are looked for first.
    """
    runs = updates = seconds = 0.0
    datasets: set[str] = set()
    known: dict[tuple[str, str], list[Experiment]] = {}
    for piece in pieces:
        if piece.outline is not None:
            count, standing = piece.outline()
        else:
            standing = [planned for planned in piece.first_runs(1) if _is_new(planned, known)]
            count = len(standing)
        if not standing:
            continue
        # Seeds differ in what they draw, not in what they take.
        times = count * (1 + piece.later) * (piece.seeds if seeds is None else seeds)
        runs += times
        for planned in standing:
            updates += times / len(standing) * updates_of(planned)
            seconds += times / len(standing) * operations(planned) * OVERHEAD / rate()
            datasets |= _read_by(planned)
    return Needs(
        runs=round(runs),
        updates=round(updates),
        seconds=seconds,
        datasets=tuple(sorted(datasets)),
        absent=tuple(name for name in sorted(datasets) if not _here(name, data)),
    )


def _is_new(planned: Experiment, known: dict[tuple[str, str], list[Experiment]]) -> bool:
    """Whether a run was not seen before; comparing it with similar ones is faster than hashing it."""
    similar = known.setdefault((planned.scenario.name, planned.method), [])
    if planned in similar:
        return False
    similar.append(planned)
    return True


def absent(piece: Piece, data: Path | None = None) -> tuple[str, ...]:
    """The data sets that a piece reads and that are not here.

    Args:
        piece: The piece.
        data: Where data sets are looked for first.
    """
    standing = piece.first_runs(1) if piece.outline is None else piece.outline()[1]
    names = {name for planned in standing for name in _read_by(planned)}
    return tuple(name for name in sorted(names) if not _here(name, data))


def _read_by(planned: Experiment) -> set[str]:
    """The data sets that a run reads: those of its tasks, and the one that its first weights come from."""
    names = {task.source.dataset for task in planned.scenario.tasks} | {planned.evaluation.upstream}
    return {DATASETS[name].part_of or name for name in names if name}


def operations(planned: Experiment) -> float:
    """About how many floating-point operations a run makes, evaluations included.

    A learned sample is counted three times as much as an evaluated one; what a method does besides is not
    counted, except that rehearsal doubles the samples, and that generators are trained and sampled.

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
    learned = 3 * updates * planned.batch_size * GENERATORS.get(planned.method, again)
    phases = len(planned.scenario.phases)
    samples = planned.evaluation.subset or 2_000
    rounds = max(updates // planned.evaluation.every_in(updates // phases), phases)
    evaluated = rounds * samples * (phases + 1) / 2
    return one * (learned + evaluated)


@cache
def forward(model: ModelSpec, shape: tuple[int, ...], n_units: int) -> float:
    """Floating-point operations of one sample's way through a network.

    Example:
        >>> forward(ModelSpec("mlp", hidden=(400, 400)), (1, 32, 32), 10)
        1147200.0
    """
    counted = []

    def count(layer: nn.Module, _: object, output: Tensor) -> None:
        # Each number that comes out is a sum of products, one for each weight that leads to it.
        weight = layer.get_parameter("weight")
        counted.append(2.0 * output[0].numel() * weight[0].numel())

    # Nothing is computed: on this device tensors have shapes and no numbers.
    with torch.device("meta"), torch.inference_mode():
        network = build(model, shape=shape, n_units=n_units, seed=0).eval()
        for layer in network.modules():
            if isinstance(layer, nn.Linear | nn.Conv2d):
                layer.register_forward_hook(count)
        network(torch.zeros(2, *shape))
    return sum(counted)


@cache
def _here(dataset: str, data: Path | None) -> bool:
    return dataset == "digits" or locate(dataset, data) is not None


@cache
def _shape(dataset: str, transforms: tuple[Transform, ...]) -> tuple[int, ...]:
    return prepared_shape(DATASETS[dataset].shape, transforms)


@cache
def rate() -> float:
    """Floating-point operations per second of one thread, in a matrix product as networks have them."""
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
