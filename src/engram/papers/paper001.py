"""001: Michel et al. 2023, accuracy and forgetting relative to a random classifier."""

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
from engram.papers.published import Cell, cells
from engram.papers.values import AT_ENDS, Artefact, Piece, Statement, Values
from engram.protocols.drive import Plan
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
    found = average_accuracy(acc) if cell.metric == "AA_k" else average_forgetting(acc)
    return 100 * float(found[learned])


def _place(cell: Cell) -> tuple[int, int | None]:
    """Row and column of a number: `after task 3; task 1`, or `after task 3` for a mean over tasks.

    Example:
        >>> _place(cells("001", "1")[2])
        (1, 0)
    """
    found = re.fullmatch(r"after task (\d+)(?:; task (\d+))?", cell.setting)
    if found is None:
        raise InputError(f"{cell.setting!r} does not say where a number stands: give 'after task K; task J'")
    return int(found[1]) - 1, None if found[2] is None else int(found[2]) - 1


def _random_piece(table: str) -> Piece:
    wanted = cells("001", table)

    def plan(seeds: Sequence[int]) -> Plan[Values]:
        yield []
        return {cell: [_random_value(cell)] for cell in wanted}

    return Piece("random classifier", plan, wanted)


# Figures ------------------------------------------------------------------------------------------

METHODS = {"finetune": "finetune", "ER": "er", "GDumb": "gdumb"}
STREAMS = {"CIFAR100": "split-cifar100", "Tiny ImageNet": "split-tiny-imagenet"}
SMALL_PASSES = 16
"""How often GDumb sees its memory in the small reading: its learning rate ends at the end of a cycle."""

NEAR, FLAT, STRONG = 10.0, 0.5, 5.0
"""In points: how near 0 is near, a slope that is still one, and a rise that is strong."""

_INK = {"ER": "c0", "GDumb": "c1", "finetune": "c2"}


def streamed(row: str, stream: str, seed: int, *, small: bool = False) -> Experiment:
    """A run of figures 3 and 4: each sample once, all tasks so far asked when a task ends.

    The paper says little of how it trains, so this is what its first author's public code does on the same
    streams. The small reading has the slim ResNet-18, and ten remembered samples instead of 64 in an update.

    Args:
        row: The method, as the paper calls it.
        stream: The data set, as the paper calls it.
        seed: The run's seed, which also draws the order of classes.
        small: Whether to scale it down to what two cores can do.

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


def _compared(names: tuple[str, str], found: Mapping[str, OnlineOutcome]) -> Page:
    """Two metrics after each task, the usual one above and the rescaled one below."""
    streams = dict.fromkeys(name.split("/")[0] for name in found)
    panels = []
    for metric in names:
        for stream in streams:
            data: Traces = []
            for name, outcome in found.items():
                where, row = name.split("/")
                if where != stream:
                    continue
                runs = [result.after_each_task(metric) for result in outcome.search.results]
                data += curve(
                    row,
                    range(1, len(runs[0]) + 1),
                    100 * np.asarray(runs),
                    colour=_INK[row],
                    within=(-100.0, 100.0),
                    mode="lines+markers",
                    marker={"color": _INK[row], "size": 5},
                )
            layout = {
                "xaxis": {"title": {"text": "tasks learned"}, "showgrid": False},
                "yaxis": {"title": {"text": f"{metric} in %"}, "rangemode": "tozero"},
            }
            panels.append(Panel(f"{metric} on {stream}", {"data": data, "layout": layout}))
    number = {"AA": 3, "AF": 4}[names[0]]
    notes = ("Means over seeds; bands, where there are several: one sample standard deviation.",)
    return Page(f"001, figure {number}: {names[0]} and {names[1]} after each task", panels, notes=notes)


def says_of_accuracy(found: Mapping[str, OnlineOutcome]) -> list[Statement]:
    """What the paper says of AA and RAA, of the streams whose three methods are there."""
    said = []
    for stream, rows in _by_stream(found).items():
        aa, raa = (
            {row: _mean_curve(outcome, name) for row, outcome in rows.items()} for name in ("AA", "RAA")
        )
        ends = ", ".join(f"{row} {each[0]:.1f} to {each[-1]:.1f}" for row, each in aa.items())
        falls = all(each[-1] < each[0] for each in aa.values())
        said.append(Statement(f"{stream}: AA falls for all methods", falls, ends))
        flat = raa["finetune"][1:]
        low, high = float(flat.min()), float(flat.max())
        said.append(
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
            said.append(Statement(says, slope > FLAT, f"{slope:+.2f} points a task in the last third"))
    return said


def says_of_forgetting(found: Mapping[str, OnlineOutcome]) -> list[Statement]:
    """What the paper says of AF and RAF, of the streams whose three methods are there."""
    said = []
    for stream, rows in _by_stream(found).items():
        af, raf = (
            {row: _mean_curve(outcome, name)[1:] for row, outcome in rows.items()} for name in ("AF", "RAF")
        )
        rise = {row: float(each[-1] - each[0]) for row, each in raf.items()}
        plain = {row: float(each[-1] - each[0]) for row, each in af.items()}
        ends = ", ".join(f"{row} {each[0]:.1f} to {each[-1]:.1f}" for row, each in af.items())
        says = f"{stream}: AF is rather constant or rises slightly (ends within {NEAR:g} points of its start)"
        said.append(Statement(says, max(map(abs, plain.values())) <= NEAR, ends))
        figures = "; ".join(f"{row}: AF {plain[row]:+.1f}, RAF {rise[row]:+.1f} points" for row in rise)
        steep = all(rise[row] > max(STRONG, plain[row]) for row in ("finetune", "ER"))
        says = f"{stream}: RAF of finetune and ER rises strongly (over {STRONG:g} points), and more than AF"
        said.append(Statement(says, steep, figures))
        less = rise["GDumb"] < min(rise["finetune"], rise["ER"])
        said.append(Statement(f"{stream}: RAF of GDumb rises less than that of the others", less, figures))
    return said


def _by_stream(found: Mapping[str, OnlineOutcome]) -> dict[str, dict[str, OnlineOutcome]]:
    """The methods of each stream that has all three."""
    streams: dict[str, dict[str, OnlineOutcome]] = {}
    for name, outcome in found.items():
        stream, row = name.split("/")
        streams.setdefault(stream, {})[row] = outcome
    return {stream: rows for stream, rows in streams.items() if rows.keys() == METHODS.keys()}


def _mean_curve(outcome: OnlineOutcome, metric: str) -> Floats:
    """A metric after each task in percent, the mean over seeds."""
    runs = [result.after_each_task(metric) for result in outcome.search.results]
    mean: Floats = 100 * np.mean(np.asarray(runs, dtype=np.float64), axis=0)
    return mean


def _coefficients(seeds: Sequence[int]) -> Plan[dict[int, dict[str, list[float]]]]:
    """γ and β after each of 20 and 100 tasks with equally many classes."""
    yield []
    found = {}
    for tasks in (20, 100):
        classes = range(1, tasks + 1)
        found[tasks] = {
            "γ (accuracy)": accuracy_difficulty(classes).tolist(),
            "β (forgetting)": forgetting_difficulty(classes).tolist(),
        }
    return found


def _figure2(found: Mapping[str, dict[int, dict[str, list[float]]]]) -> Page:
    [coefficients] = found.values()
    panels = []
    for tasks, series in coefficients.items():
        data: Traces = []
        for (name, values), ink in zip(series.items(), ("c0", "c1"), strict=True):
            data += curve(name, range(1, tasks + 1), [values], colour=ink)
        layout = {
            "xaxis": {"title": {"text": "tasks learned"}, "showgrid": False},
            "yaxis": {"title": {"text": "coefficient"}, "range": [0, 1.03]},
        }
        panels.append(Panel(f"K = {tasks}", {"data": data, "layout": layout}))
    return Page("001, figure 2: how difficulty rescales accuracy and forgetting", panels)


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
    draw: Callable[[Mapping[str, OnlineOutcome]], Page] = partial(_compared, names)
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
        draw=_figure2,
        note="Computed, not run.",
    ),
    _streams_figure(3, ("AA", "RAA"), "Average accuracy and its rescaled form in two online streams"),
    _streams_figure(4, ("AF", "RAF"), "Average forgetting and its rescaled form in two online streams"),
)
