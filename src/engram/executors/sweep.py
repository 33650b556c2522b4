"""Many experiments in local processes: what is there, what is missing, and how long that will take.

A sweep is its experiments, and its state is their folders: whatever has a result is done, everything else is
missing, and running the sweep again runs what is missing.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import TypeVar

from engram.engine.experiment import Experiment
from engram.executors.processes import Row, cores, find_row, run_in_processes

T = TypeVar("T")


def survey(experiments: Iterable[Experiment], out: Path) -> list[Row]:
    """What has become of each experiment so far, as the folders in `out` tell; nothing is run.

    Example:
        >>> from engram.protocols.sweep_file import expand
        >>> plan = expand({"scenario": "split-digits", "method": ["er", "ewc"]})
        >>> [row.status for row in survey(plan.experiments, Path("nowhere"))]
        ['missing', 'missing']
    """
    return [find_row(experiment, out) for experiment in experiments]


def seconds_left(rows: Sequence[Row], jobs: int | None = None) -> float | None:
    """How long the runs that are not done will take, judged by those that are.

    A run is expected to take as long as those of the same method, scenario and setting took on average; where
    there is none, those of the same scenario and setting, or else all. Divided by the number that runs at a
    time. What checkpoints save is not counted.

    Args:
        rows: The sweep.
        jobs: How many run at a time; None for one a core.

    Returns:
        Seconds; 0 where everything is done, None where nothing is done to judge by.

    Example:
        >>> from engram.engine.recipe import experiment
        >>> folder = Path("nowhere")
        >>> done = Row(experiment("split-digits", "er"), folder, result={"seconds": {"total": 8.0}})
        >>> left = [Row(experiment("split-digits", "er", seed=seed), folder) for seed in (1, 2, 3)]
        >>> seconds_left([done, *left], jobs=2), seconds_left(left)
        (12.0, None)
    """
    left = [row.experiment for row in rows if row.status != "done"]
    took = [(row.experiment, float(row.result["seconds"]["total"])) for row in rows if row.result is not None]
    if left and not took:
        return None
    by_label = _means((planned.label, seconds) for planned, seconds in took)
    by_stream = _means((_stream(planned), seconds) for planned, seconds in took)
    whole = statistics.fmean(seconds for _, seconds in took) if took else 0.0
    expected = [by_label.get(each.label, by_stream.get(_stream(each), whole)) for each in left]
    # A run cannot be shared out.
    return max(sum(expected) / min(jobs or cores(), len(left)), max(expected)) if left else 0.0


def run_sweep(
    experiments: Sequence[Experiment],
    out: Path,
    *,
    jobs: int | None = None,
    data: Path | None = None,
    device: str = "cpu",
    plugin: Path | None = None,
    strict: bool = False,
    ended: Callable[[Row], None] | None = None,
    follow: Callable[[Experiment, float], None] | None = None,
) -> list[Row]:
    """Run what is missing of a sweep, in local processes, and return what has become of every experiment.

    Runs that failed are rows like the others, with their reasons. `run_in_processes` of `processes.py`
    says what happens to runs that crash, are killed or are interrupted, and what a script must do.

    Args:
        experiments: The sweep, as `engram.protocols.sweep_file.expand` gives it.
        out: Where runs are kept.
        jobs: How many run at a time; None for one a core.
        data: Where data sets are looked for first.
        device: Where to compute.
        plugin: A Python file that registers methods.
        strict: Whether to stop a method that reads what it should not; that run then fails.
        ended: Called with the row of every run that ended, those first that were done already.
        follow: Called a few times a second with an experiment under way, and which share of it is done.
    """
    rows: dict[str, Row] = {}
    with closing(
        run_in_processes(
            experiments,
            out,
            jobs=jobs,
            data=data,
            device=device,
            plugin=plugin,
            strict=strict,
            follow=follow,
        )
    ) as ending:
        for row in ending:
            rows[row.experiment.id] = row
            if ended is not None:
                ended(row)
    return [rows[planned.id] for planned in experiments]


def _stream(planned: Experiment) -> tuple[str, str]:
    return planned.scenario.name, planned.scenario.setting.kind


def _means(pairs: Iterable[tuple[T, float]]) -> dict[T, float]:
    found: dict[T, list[float]] = {}
    for key, value in pairs:
        found.setdefault(key, []).append(value)
    return {key: statistics.fmean(values) for key, values in found.items()}
