"""Many experiments: what is there, what is missing, and how long that will take.

A sweep is its experiments, and its state is their folders: whatever has a result is done, everything else is
missing, and running the sweep again runs what is missing.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TypeVar

from engram.executors.processes import cores
from engram.record.experiment import Experiment
from engram.record.run import Run

T = TypeVar("T")


def survey(experiments: Iterable[Experiment], out: Path) -> list[Run]:
    """What has become of each experiment so far, as the folders in `out` tell; nothing is run.

    Example:
        >>> from engram.engine.recipe import experiment
        >>> [run.status for run in survey([experiment("split-digits", "er")], Path("nowhere"))]
        ['missing']
    """
    return [Run.find(experiment, out) for experiment in experiments]


def seconds_left(runs: Sequence[Run], jobs: int | None = None) -> float | None:
    """How long the runs that are not done will take, judged by those that are.

    A run is expected to take as long as those of the same method, scenario and setting took on average; where
    there is none, those of the same scenario and setting, or else all. Divided by the number of parallel
    runs. What checkpoints save is not counted.

    Args:
        runs: The sweep.
        jobs: Parallel runs; None for one per core.

    Returns:
        Seconds; 0 where everything is done, None where nothing is done to judge by.

    Example:
        >>> from engram.engine.recipe import experiment
        >>> from engram.record.run import Seconds
        >>> done = Run(planned=experiment("split-digits", "er"), finished=True, seconds=Seconds(train=8.0))
        >>> left = [Run(planned=experiment("split-digits", "er", seed=seed)) for seed in (1, 2, 3)]
        >>> seconds_left([done, *left], jobs=2), seconds_left(left)
        (12.0, None)
    """
    left = [run for run in runs if not run.finished]
    done = [run for run in runs if run.finished]
    if not left:
        return 0.0
    if not done:
        return None
    by_label = _means((run.label, run.seconds.total) for run in done)
    by_stream = _means((_stream(run), run.seconds.total) for run in done)
    whole = statistics.fmean(run.seconds.total for run in done)
    expected = [by_label.get(run.label, by_stream.get(_stream(run), whole)) for run in left]
    # A run cannot be shared out.
    return max(sum(expected) / min(jobs or cores(), len(left)), max(expected))


def _stream(run: Run) -> tuple[str, str]:
    return run.scenario, run.setting


def _means(pairs: Iterable[tuple[T, float]]) -> dict[T, float]:
    values: dict[T, list[float]] = {}
    for key, value in pairs:
        values.setdefault(key, []).append(value)
    return {key: statistics.fmean(numbers) for key, numbers in values.items()}
