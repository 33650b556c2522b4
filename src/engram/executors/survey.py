"""The state of many experiments: which runs are finished, which are missing, and how long those will take.

The state of a sweep is the folders of its experiments: a run with a result is finished, every other run is
missing, and running the sweep again runs the missing ones.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TypeVar

from engram.core.cores import cores
from engram.record.experiment import Experiment
from engram.record.run import Run

T = TypeVar("T")


def survey(experiments: Iterable[Experiment], out: Path) -> list[Run]:
    """The run of each experiment as its folder in `out` has it; nothing is run.

    Example:
        >>> from engram.engine.recipe import experiment
        >>> [run.status for run in survey([experiment("split-digits", "er")], Path("nowhere"))]
        ['missing']
    """
    return [Run.find(experiment, out) for experiment in experiments]


def seconds_left(runs: Sequence[Run], jobs: int | None = None) -> float | None:
    """The expected time of the runs that are not finished, estimated from those that are.

    A run is expected to take the mean time of finished runs of the same method, scenario and setting; if
    there are none, of the same scenario and setting, or else of all. The sum is divided by the number of
    parallel runs. Checkpoints are not taken into account.

    Args:
        runs: The runs of the sweep.
        jobs: Parallel runs (default: one per core).

    Returns:
        Seconds; 0 if all runs are finished, None if none are.

    Example:
        >>> from engram.engine.recipe import experiment
        >>> from engram.record.result import Seconds
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
    expected = _expected(left, done)
    # A single run is not distributed over several processes.
    return max(sum(expected) / min(jobs or cores(), len(left)), max(expected))


def expected_seconds(run: Run, done: Sequence[Run]) -> float | None:
    """How long a run is expected to take, as in `seconds_left`; None if no run is finished.

    Example:
        >>> expected_seconds(Run(), []) is None
        True
    """
    return _expected([run], done)[0] if done else None


def _expected(left: Sequence[Run], done: Sequence[Run]) -> list[float]:
    by_label = _means((run.label, run.seconds.total) for run in done)
    by_stream = _means((_stream(run), run.seconds.total) for run in done)
    whole = statistics.fmean(run.seconds.total for run in done)
    return [by_label.get(run.label, by_stream.get(_stream(run), whole)) for run in left]


def _stream(run: Run) -> tuple[str, str]:
    return run.scenario, run.setting


def _means(pairs: Iterable[tuple[T, float]]) -> dict[T, float]:
    values: dict[T, list[float]] = {}
    for key, value in pairs:
        values.setdefault(key, []).append(value)
    return {key: statistics.fmean(numbers) for key, numbers in values.items()}
