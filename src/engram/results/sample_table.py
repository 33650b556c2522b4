"""The samples of a run as a table: how often each was learned and forgotten, and what it is now."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from engram.metrics.sample_curve import Fates
from engram.record.run import Run
from engram.record.samples import ID, LABEL
from engram.results.moments import samples_of

if TYPE_CHECKING:
    import polars

KINDS: Final = ("never known", "always known", "unforgettable", "forgotten", "back")
"""What can become of a sample; see `sample_table`."""


def sample_table(run: Run) -> polars.DataFrame:
    """One row per test sample that was evaluated: its task, its position, and what became of it.

    The columns are `task` (its number in the order of learning, from 1), `name`, `position` (among the
    evaluated samples of the task, from 0), `id` and `label` (as far as they were recorded), `events` (its
    forgetting events: how often the answer turned from right to wrong), `learned` (how often from wrong to
    right), `right` (now), and `kind`:

    - `never known`: wrong at every evaluation since its task began;
    - `always known`: right at every evaluation since its task was learned, whatever happened before;
    - `unforgettable`: learned, and never forgotten since, but not right when its task ended;
    - `forgotten`: forgotten at least once since, and wrong now;
    - `back`: forgotten at least once since, and right now.

    Source: Toneva et al. (2019) for forgetting events.

    Raises:
        InputError: Other samples were drawn for every evaluation, or the trace has no bits.
    """
    import polars as pl

    samples = samples_of(run)
    tables = []
    for column in range(len(samples.rows)):
        fates = samples.fates(column)
        if fates is None:
            continue
        ids, labels = _who(run, column, len(fates.ever))
        tables.append(
            pl.DataFrame(
                {
                    "task": np.full(len(fates.ever), column + 1),
                    "name": [run.task_name(column)] * len(fates.ever),
                    "position": np.arange(len(fates.ever)),
                    "id": pl.Series(ids, dtype=pl.String),
                    "label": pl.Series(labels, dtype=pl.String),
                    "events": fates.forgotten,
                    "learned": fates.learned,
                    "right": fates.now,
                    "kind": kinds_of(fates),
                }
            )
        )
    return pl.concat(tables)


def _who(run: Run, column: int, count: int) -> tuple[list[str | None], list[str | None]]:
    """The ids and labels of the samples of a task; None where they were not recorded."""
    unknown: list[str | None] = [None] * count
    task = run.curve.tasks[column]
    if run.samples is None or not isinstance(task, int):
        return unknown, unknown
    table = run.samples.of_task(task)
    if len(table) != count:
        return unknown, unknown
    labels = [None if label is None else str(label) for label in table[LABEL].to_list()]
    return [str(value) for value in table[ID].to_list()], labels


def kinds_of(fates: Fates) -> list[str]:
    """What became of each sample, in words.

    Example:
        >>> events = np.array([0, 3, 0, 1, 2])
        >>> flags = [np.array([char == "1" for char in text]) for text in ("01111", "01000", "01101")]
        >>> kinds_of(Fates(learned=events, forgotten=events, ever=flags[0], kept=flags[1], now=flags[2]))
        ['never known', 'always known', 'unforgettable', 'forgotten', 'back']
    """
    states = [~fates.ever, fates.kept, fates.forgotten == 0, ~fates.now]
    return [str(kind) for kind in np.select(states, KINDS[:4], KINDS[4])]
