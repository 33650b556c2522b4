"""Whether runs are what was written: every file against its checksum, every metric against the trace."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from engram.core.errors import InputError
from engram.record.checkpoints import damaged_checkpoints
from engram.record.incomplete import why_incomplete
from engram.record.run import Run, Status
from engram.record.weights import damaged_weights
from engram.results.runs import load_run, run_folders
from engram.results.store import is_store, read_store

_ROUNDING = 1e-9
"""Sums may differ in their last bits between versions of NumPy and between machines."""


@dataclass(frozen=True, slots=True)
class Checked:
    """One run that was checked.

    Attributes:
        folder: Its folder; its id for a run of a compact store.
        status: What it is; `damaged` if a problem was found in a finished one.
        problems: What is wrong with it, one line each; for a run that is not finished, why.
    """

    folder: Path
    status: Status
    problems: tuple[str, ...] = ()


def check_runs(paths: Iterable[Path]) -> Iterator[Checked]:
    """Check all runs in some folders or compact stores.

    Everything in them is read, and every metric is computed once more.

    Raises:
        InputError: A path is not a folder.
    """
    for path in paths:
        if is_store(path):
            yield from map(check_run, read_store(path))
            continue
        for folder in run_folders(path):
            yield check_run(load_run(folder))


def check_run(run: Run) -> Checked:
    """Check a run that was loaded.

    Example:
        >>> check_run(Run(description={"id": "a", "label": "er"}, folder=Path("nowhere"))).status
        'missing'
    """
    place = Path(run.id) if run.folder is None else run.folder
    if not run.finished:
        return Checked(place, run.status, (why_incomplete(run),))
    problems = []
    # In a compact store, the sealed result is read for `by_task`.
    for name in ("trace", "ends", "readings", "samples", "answers", "scores", "by_task"):
        try:
            getattr(run, name)
        except InputError as error:
            problems.append(str(error))
    if not problems:
        problems += _wrong_metrics(run)
    problems += damaged_checkpoints(run.folder)
    # Those of a run in a compact store stay in its folder.
    problems += [] if run.folder is None else damaged_weights(run.folder, run.weights)
    return Checked(place, "damaged" if problems else "done", tuple(problems))


def _wrong_metrics(run: Run) -> list[str]:
    """The stored metrics that are not those of the trace."""
    from engram.metrics.registry import computed

    ours = [name for name, metric in computed().items() if metric.is_ours and name in run.stored]
    try:
        values = run.measure(only=ours).final
    except InputError as error:
        return [str(error)]
    return [
        f"{name} is stored as {run.stored[name]:.6g}, but the trace gives {value:.6g}: it was changed, or "
        "made by a version that computed it differently"
        for name, value in values.items()
        if not _same(run.stored[name], value)
    ]


def _same(one: float, other: float) -> bool:
    return math.isclose(one, other, rel_tol=_ROUNDING, abs_tol=_ROUNDING) or (
        math.isnan(one) and math.isnan(other)
    )
