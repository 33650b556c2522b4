"""Michel et al. (2023): accuracy and forgetting relative to a random classifier."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np

from engram.core.errors import InputError
from engram.engine.recipe import experiment
from engram.metrics.arrays import Matrix
from engram.metrics.matrix import (
    accuracy_difficulty,
    average_accuracy,
    average_forgetting,
    forgetting_difficulty,
    random_accuracy,
)
from engram.papers.pages import Floats, Page, Panel, Traces, curve
from engram.papers.plans import Plan
from engram.papers.published import PAPERS, Cell, cells
from engram.papers.values import AT_ENDS, Artefact, Piece, Statement, Values
from engram.protocols.online import OnlineOutcome, online
from engram.record.experiment import Experiment

# The random classifier ----------------------------------------------------------------------------

TOY_CLASSES = (2, 4, 6, 8, 10)
"""Classes seen after each task of tables 1 and 2."""


def random_classifier(classes_seen: Sequence[int]) -> Matrix:
    """The accuracy matrix of a classifier that guesses among the classes seen so far.

    Example:
        >>> random_classifier([2, 4])
        array([[0.5 ,  nan],
               [0.25, 0.25]])
    """
    rows = np.repeat(random_accuracy(classes_seen)[:, np.newaxis], len(classes_seen), axis=1)
    return np.where(np.tril(np.ones_like(rows)) > 0, rows, np.nan)


def _random_value(cell: Cell) -> float:
    """A number of tables 1 and 2, in percent."""
    acc = random_classifier(TOY_CLASSES)
    learned, task = _place(cell)
    if task is not None:
        if cell.metric == "a_kj":
            return 100 * float(acc[learned, task])
        # With one column known, the mean over tasks is that of this task.
        acc = np.where(np.arange(len(acc)) == task, acc, np.nan)
    after_each_task = average_accuracy(acc) if cell.metric == "AA_k" else average_forgetting(acc)
    return 100 * float(after_each_task[learned])


def _place(cell: Cell) -> tuple[int, int | None]:
    """Row and column of a number: `after task 3; task 1`, or `after task 3` for a mean over tasks.

    Example:
        >>> _place(cells("001", "1")[2])
        (1, 0)
    """
    match = re.fullmatch(r"after task (\d+)(?:; task (\d+))?", cell.setting)
    if match is None:
        raise InputError(f"the setting of a cell must be 'after task K; task J', got {cell.setting!r}")
    return int(match[1]) - 1, None if match[2] is None else int(match[2]) - 1


def _random_piece(table: str) -> Piece:
    wanted = cells("001", table)

    def plan(seeds: Sequence[int]) -> Plan[Values]:
        yield []
        return {cell: [_random_value(cell)] for cell in wanted}

    return Piece("random classifier", plan, wanted, exact=True)


# Figures ------------------------------------------------------------------------------------------

METHODS = {"finetune": "finetune", "ER": "er", "GDumb": "gdumb"}
STREAMS = {"CIFAR100": "split-cifar100", "Tiny ImageNet": "split-tiny-imagenet"}
SMALL_PASSES = 16
"""Passes of GDumb over its memory when scaled down; its learning-rate schedule ends with a full cycle."""

NEAR, FLAT, STRONG = 10.0, 0.5, 5.0
"""Thresholds in points: near 0, still rising, and rising strongly."""

_COLOURS = {"ER": "c0", "GDumb": "c1", "finetune": "c2"}


def streamed(row: str, stream: str, seed: int, *, small: bool = False) -> Experiment:
    """A run of figures 3 and 4: each sample once, all tasks so far evaluated when a task ends.

    The paper gives few details of training; this follows the public code of its first author on the same
    streams. Scaled down, it uses a slim ResNet-18, and ten instead of 64 remembered samples per update.

    Args:
        row: The name of the method in the paper.
        stream: The name of the data set in the paper.
        seed: The seed of the run, which also determines the order of classes.
        small: Whether to scale it down to what two cores can compute.

    Example:
        >>> planned = streamed("ER", "CIFAR100", 0)
        >>> planned.model.name, planned.batch_size, planned.settings["memory_batch"]
        ('resnet18', 10, 64)
        >>> planned = streamed("ER", "CIFAR100", 0, small=True)
        >>> planned.model.name, planned.settings["memory_batch"]
        ('slim-resnet18', 10)
    """
    fewer = {"ER": {"memory_batch": 10}, "GDumb": {"epochs": SMALL_PASSES}} if small else {}
    return experiment(
        STREAMS[stream],
        METHODS[row],
        model="slim-resnet18" if small else None,
        settings=fewer.get(row),
        evaluation=AT_ENDS,
        seed=seed,
    )


def _streamed_piece(row: str, stream: str, *, small: bool = False) -> Piece:
    def plan(seeds: Sequence[int]) -> Plan[OnlineOutcome]:
        return (yield from online([streamed(row, stream, seed, small=small) for seed in seeds]))

    return Piece(f"{stream}/{row}", plan)


def _page(names: tuple[str, str], returned: Mapping[str, OnlineOutcome]) -> Page:
    """Two metrics after each task, the original one above and the rescaled one below."""
    streams = _by_stream(returned)
    panels = [_panel(metric, stream, streams[stream]) for metric in names for stream in streams]
    number = {"AA": 3, "AF": 4}[names[0]]
    title = f"{PAPERS['001']}, figure {number}: {names[0]} and {names[1]} after each task"
    notes = ("Means over seeds; bands, where there are several: one sample standard deviation.",)
    return Page(title, panels, notes=notes)


def _panel(metric: str, stream: str, rows: Mapping[str, OnlineOutcome]) -> Panel:
    """A metric after each task, one line per method."""
    data: Traces = []
    for row, outcome in rows.items():
        values = 100 * _after_each_task(outcome, metric)
        data += curve(
            row,
            range(1, values.shape[1] + 1),
            values,
            colour=_COLOURS[row],
            within=(-100.0, 100.0),
            mode="lines+markers",
            marker={"color": _COLOURS[row], "size": 5},
        )
    layout = {
        "xaxis": {"title": {"text": "tasks learned"}, "showgrid": False},
        "yaxis": {"title": {"text": f"{metric} in %"}, "rangemode": "tozero"},
    }
    return Panel(f"{metric} on {stream}", {"data": data, "layout": layout})


def says_of_accuracy(returned: Mapping[str, OnlineOutcome]) -> list[Statement]:
    """The statements of the paper on AA and RAA, for streams with all three methods."""
    statements = []
    for stream, rows in _complete(returned).items():
        aa, raa = _mean_curves(rows, "AA"), _mean_curves(rows, "RAA")
        falls = all(values[-1] < values[0] for values in aa.values())
        statements.append(Statement(f"{stream}: AA falls for all methods", falls, _ends(aa)))
        flat = raa["finetune"][1:]
        low, high = float(flat.min()), float(flat.max())
        statements.append(
            Statement(
                f"{stream}: RAA of finetune is about constant and near 0 (within {NEAR:g} points)",
                max(abs(low), abs(high)) <= NEAR,
                f"{low:.1f} to {high:.1f} after the second task and later",
            )
        )
        if stream == "CIFAR100":
            late = raa["ER"][-max(2, len(raa["ER"]) // 3) :]
            slope = float(np.polyfit(np.arange(len(late)), late, 1)[0])
            says = f"{stream}: RAA of ER has no plateau, it still rises by more than {FLAT:g} points a task"
            figures = f"{slope:+.2f} points a task in the last third"
            statements.append(Statement(says, slope > FLAT, figures))
    return statements


def says_of_forgetting(returned: Mapping[str, OnlineOutcome]) -> list[Statement]:
    """The statements of the paper on AF and RAF, for streams with all three methods."""
    statements = []
    for stream, rows in _complete(returned).items():
        # Nothing can be forgotten before the second task.
        af, raf = (
            {row: values[1:] for row, values in _mean_curves(rows, name).items()} for name in ("AF", "RAF")
        )
        plain, rescaled = (
            {row: float(values[-1] - values[0]) for row, values in curves.items()} for curves in (af, raf)
        )
        says = f"{stream}: AF is rather constant or rises slightly (ends within {NEAR:g} points of its start)"
        statements.append(Statement(says, max(map(abs, plain.values())) <= NEAR, _ends(af)))
        figures = "; ".join(f"{row}: AF {plain[row]:+.1f}, RAF {rescaled[row]:+.1f} points" for row in raf)
        steep = all(rescaled[row] > max(STRONG, plain[row]) for row in ("finetune", "ER"))
        says = f"{stream}: RAF of finetune and ER rises strongly (over {STRONG:g} points), and more than AF"
        statements.append(Statement(says, steep, figures))
        less = rescaled["GDumb"] < min(rescaled["finetune"], rescaled["ER"])
        says = f"{stream}: RAF of GDumb rises less than that of the others"
        statements.append(Statement(says, less, figures))
    return statements


def _ends(curves: Mapping[str, Floats]) -> str:
    """The first and the last value of each method."""
    return ", ".join(f"{row} {values[0]:.1f} to {values[-1]:.1f}" for row, values in curves.items())


def _by_stream(returned: Mapping[str, OnlineOutcome]) -> dict[str, dict[str, OnlineOutcome]]:
    """The methods of each stream."""
    streams: dict[str, dict[str, OnlineOutcome]] = {}
    for name, outcome in returned.items():
        stream, row = name.split("/")
        streams.setdefault(stream, {})[row] = outcome
    return streams


def _complete(returned: Mapping[str, OnlineOutcome]) -> dict[str, dict[str, OnlineOutcome]]:
    """The methods of each stream that has all three."""
    streams = _by_stream(returned)
    return {stream: rows for stream, rows in streams.items() if rows.keys() == METHODS.keys()}


def _after_each_task(outcome: OnlineOutcome, metric: str) -> Floats:
    """A metric after each task, one row per run."""
    return np.asarray([run.after_each_task(metric) for run in outcome.search.results], dtype=np.float64)


def _mean_curves(rows: Mapping[str, OnlineOutcome], metric: str) -> dict[str, Floats]:
    """The mean over seeds of a metric after each task, in percent, for each method."""
    return {row: 100 * np.mean(_after_each_task(outcome, metric), axis=0) for row, outcome in rows.items()}


def _coefficients(seeds: Sequence[int]) -> Plan[dict[int, dict[str, list[float]]]]:
    """γ and β after each of 20 and 100 tasks with equal numbers of classes."""
    yield []
    return {
        tasks: {
            "γ (accuracy)": accuracy_difficulty(range(1, tasks + 1)).tolist(),
            "β (forgetting)": forgetting_difficulty(range(1, tasks + 1)).tolist(),
        }
        for tasks in (20, 100)
    }


def _coefficients_page(returned: Mapping[str, dict[int, dict[str, list[float]]]]) -> Page:
    [coefficients] = returned.values()
    panels = []
    for tasks, series in coefficients.items():
        data: Traces = []
        for (name, values), colour in zip(series.items(), ("c0", "c1"), strict=True):
            data += curve(name, range(1, tasks + 1), [values], colour=colour)
        layout = {
            "xaxis": {"title": {"text": "tasks learned"}, "showgrid": False},
            "yaxis": {"title": {"text": "coefficient"}, "range": [0, 1.03]},
        }
        panels.append(Panel(f"K = {tasks}", {"data": data, "layout": layout}))
    return Page(f"{PAPERS['001']}, figure 2: how difficulty rescales accuracy and forgetting", panels)


_FOLLOWED_AF = (
    "f may be negative, as Definition 3.2 is printed; its proof and common code take 0 then",
    "RAF has the general coefficient of Definitions 4.1 and 4.2: for equal class counts that of Eq. 6",
)
_FOLLOWED_STREAMS = (
    "learning rate, network and batch sizes are not in the paper: those of its first author's public code",
    "the captions of figures 3 and 4 say K = 5; the text has 10 tasks of CIFAR100 and 100 of Tiny ImageNet",
    "ER learns from the very first batch as well; ER and GDumb crop and flip their samples; the memory of "
    "GDumb is greedily balanced, as the paper says",
)
_SMALL = (
    "`small` runs CIFAR100 alone, with a slim ResNet-18, 10 remembered samples in an update of ER, and "
    f"{SMALL_PASSES} passes of GDumb over its memory instead of 30"
)


def _streams_figure(number: int, names: tuple[str, str], title: str) -> Artefact:
    pieces = tuple(_streamed_piece(row, stream) for stream in STREAMS for row in METHODS)
    small = tuple(_streamed_piece(row, "CIFAR100", small=True) for row in METHODS)
    draw: Callable[[Mapping[str, OnlineOutcome]], Page] = partial(_page, names)
    return Artefact(
        f"001-figure{number}",
        title,
        pieces,
        (*_FOLLOWED_STREAMS, *(_FOLLOWED_AF if "AF" in names else ())),
        others={"small": small},
        draw=draw,
        statements=says_of_accuracy if names[0] == "AA" else says_of_forgetting,
        note=f"The paper prints no numbers, and does not say how many runs it made; {_SMALL}.",
    )


ARTEFACTS = (
    Artefact(
        "001-table1",
        "Accuracy of a random classifier in five tasks of two classes",
        (_random_piece("1"),),
        note="Computed, not run.",
    ),
    Artefact(
        "001-table2",
        "Forgetting of a random classifier in five tasks of two classes",
        (_random_piece("2"),),
        _FOLLOWED_AF[:1],
        note="Computed, not run. The printed 4.16 and 6.66 are 4.1667 and 6.6667 cut off, not rounded.",
    ),
    Artefact(
        "001-figure2",
        "The coefficients γ and β for 20 and 100 tasks",
        (Piece("coefficients", _coefficients),),
        _FOLLOWED_AF[1:],
        draw=_coefficients_page,
        note="Computed, not run.",
    ),
    _streams_figure(3, ("AA", "RAA"), "Average accuracy and its rescaled form in two online streams"),
    _streams_figure(4, ("AF", "RAF"), "Average forgetting and its rescaled form in two online streams"),
)
