"""003: Chen et al. 2023, whether forgetting less is good for forward transfer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

from engram.core.errors import InputError
from engram.engine.recipe import experiment
from engram.engine.start import start_from
from engram.metrics.intervals import over_seeds
from engram.models.spec import ModelSpec
from engram.papers.pages import Page, Panel
from engram.papers.published import Cell, cells
from engram.papers.values import AT_ENDS, Artefact, Piece, Statement, Values, together
from engram.protocols.drive import Plan
from engram.protocols.forward_transfer import (
    TUNED_LRS,
    Correlation,
    MethodTransfer,
    RunTransfer,
    TransferOutcome,
    forward_transfer,
    spearman,
)
from engram.record.experiment import Experiment, Start, TransferSpec
from engram.scenarios import benchmark


@dataclass(frozen=True, slots=True)
class _Stream:
    """What a row of the tables is called here.

    Attributes:
        name: The benchmark's name.
        held_out: The share of training samples that is for validation.
        shots: Samples of each class that a probe is given.
    """

    name: str
    held_out: float = 0.2
    shots: tuple[int, ...] = (5, 10, 20, 100)


_SUPERCLASSES = _Stream("cifar100-superclasses")
STREAMS = {
    "Split CIFAR-10": _Stream("split-cifar10-003"),
    "Split CIFAR-100": _Stream("split-cifar100-003"),
    "CIFAR-100 Superclasses": _SUPERCLASSES,
    "CIFAR100 Superclasses": _SUPERCLASSES,
    "CLEAR10": _Stream("clear10", held_out=5000 / 30000),
    "CLEAR100": _Stream("clear100", held_out=19991 / 99963, shots=(5, 10, 20, 40)),
    "Split ImageNet": _Stream("split-imagenet", held_out=300000 / 1281167),
}

WAYS = {
    "FT": "finetune",
    "LP-FT": "lp-ft",
    "ER": "er",
    "AGEM": "a-gem",
    "MT": "multitask",
    "FOMAML": "fomaml",
    "IND": "independent",
    "EWC": "ewc",
    "L2": "l2",
}
RANDOM = ("FT", "ER", "AGEM", "MT", "FOMAML")
"""The methods that start from random weights; IND beside them where it is a point of a correlation."""
PRETRAINED = ("FT", "LP-FT", "ER", "AGEM", "MT", "FOMAML")
MULTITASK_WEIGHTS = (1.0, 0.1, 0.01)
STRENGTHS = {"EWC": 100.0, "L2": 0.01}
PRETRAINED_EPOCHS = 20
BUFFERS = (5, 10, 20, 50)
"""The buffers of figures 11 and 12, in samples of each class; the paper's text does not name them."""
WEIGHTS_FILE = "resnet50-imagenet.pth"
"""The weights of the pretrained rows, looked for where data sets are."""


@dataclass(frozen=True, slots=True)
class Reading:
    """How much of the paper's set-up is followed.

    Attributes:
        network: The network.
        epochs: Passes over each task's data, if not the paper's.
        lr: The learning rate, if not the paper's.
        paper_rates: Methods that keep the paper's learning rate all the same.
        weights: The weights of the previous tasks' loss that are tried for MT.
        with_independent: Whether IND is a point of the correlations with random weights.
        more: Methods beside those of the tables.
    """

    network: str = "resnet50"
    epochs: int | None = None
    lr: float | None = None
    paper_rates: tuple[str, ...] = ()
    weights: tuple[float, ...] = MULTITASK_WEIGHTS
    with_independent: bool = True
    more: tuple[str, ...] = ()

    def methods(self, init: str) -> tuple[str, ...]:
        """The methods whose runs are the points of a correlation."""
        if init == "pretrained":
            return PRETRAINED
        return (*RANDOM, *(("IND",) if self.with_independent else ()), *self.more)


FOLLOWED = Reading()
WITHOUT_IND = replace(FOLLOWED, with_independent=False)
RESNET18 = Reading(network="resnet18")
SMALL = Reading(network="cnn", epochs=5, lr=0.1, paper_rates=("EWC",), weights=(1.0,), more=("EWC", "L2"))
"""A small convolutional network and a tenth of the passes: what one computer does in an hour."""
SMALL_WITHOUT_IND = replace(SMALL, with_independent=False)
_SMALL_STREAM = "Split CIFAR-10"
_SMALL_SEEDS = 5


def pretrained_start() -> Start:
    """The file of weights that the pretrained rows start from.

    Where there is none the experiment can be made all the same; running it then says which file is missing.
    """
    from engram.datasets.find import search_folders

    for folder in search_folders():
        if (folder / WEIGHTS_FILE).is_file():
            return start_from(folder / WEIGHTS_FILE)
    return Start("", Path(WEIGHTS_FILE))


def planned(
    stream: str,
    method: str,
    seed: int = 0,
    *,
    init: str = "random init",
    memory: int | None = None,
    reading: Reading = FOLLOWED,
) -> Experiment:
    """A method on a benchmark, as the paper trains it.

    Args:
        stream: The benchmark, as the tables call it.
        method: The method, as the tables call it, without what is in brackets.
        seed: Draws the order of tasks, too.
        init: `random init` or `pretrained`.
        memory: Samples of each class that are remembered, if not the paper's.
        reading: How much of the set-up is followed.

    Example:
        >>> found = planned("Split CIFAR-10", "ER", seed=1)
        >>> found.model.name, found.epochs, found.batch_size, found.settings["memory"]
        ('resnet50', 50, 64, 50)
        >>> found.optimizer.schedule, found.optimizer.lr, found.scenario.held_out
        ('cosine', 0.01, 0.2)
    """
    held = STREAMS[stream]
    batch = benchmark(held.name).recipe.batch_size
    settings: dict[str, Any] = {}
    if method == "MT":
        settings["memory_batch"] = batch
    if method == "FOMAML" and stream == "Split ImageNet":
        settings["inner_steps"] = 1
    if method in STRENGTHS:
        settings["strength"] = STRENGTHS[method]
    if memory is not None:
        settings["memory"] = memory
    if method == "IND":
        settings["keep"] = False
    epochs = PRETRAINED_EPOCHS if init == "pretrained" else reading.epochs
    base = experiment(
        held.name,
        WAYS[method],
        settings=settings,
        epochs=epochs,
        lr=None if method in reading.paper_rates else reading.lr,
        evaluation=AT_ENDS,
        seed=seed,
    )
    # Weights of ImageNet need the stem that they were learned with.
    stem = "224" if init == "pretrained" else base.model.stem
    return replace(
        base,
        scenario=replace(base.scenario, held_out=held.held_out),
        model=ModelSpec(reading.network, stem=stem),
        start=pretrained_start() if init == "pretrained" else None,
    )


def _attempted(plan: Plan[TransferOutcome]) -> Plan[TransferOutcome | None]:
    """A plan that gives nothing where runs without which it cannot go on have failed."""
    try:
        return (yield from plan)
    except InputError:
        return None


@dataclass(frozen=True, slots=True)
class _Asked:
    """Which runs of a method are wanted."""

    stream: str
    method: str
    init: str
    reading: Reading = FOLLOWED
    tuned: bool = False
    memory: int | None = None
    upstream: bool = False

    def plan(self, seeds: Sequence[int]) -> Plan[MethodTransfer | None]:
        """Its runs, probed; nothing where they failed."""
        held = STREAMS[self.stream]
        bases = [
            planned(self.stream, self.method, seed, init=self.init, memory=self.memory, reading=self.reading)
            for seed in seeds
        ]
        searches = self.method == "MT" and len(self.reading.weights) > 1
        found = yield from _attempted(
            forward_transfer(
                {self.method: bases},
                {"weight": self.reading.weights} if searches else None,
                probe=TransferSpec(shots=held.shots, tuned_lrs=TUNED_LRS if self.tuned else ()),
                held_out=held.held_out,
                upstream="imagenet" if self.upstream else "",
            )
        )
        return None if found is None else found.methods[self.method]


def _several(asked: Mapping[str, _Asked], seeds: Sequence[int]) -> Plan[dict[str, MethodTransfer | None]]:
    """The runs of several methods, by what they are called."""
    found = yield from together([each.plan(seeds) for each in asked.values()])
    return dict(zip(asked, found, strict=True))


def _plain(method: str) -> str:
    """A method's name without what is in brackets.

    Example:
        >>> _plain("Vanilla L2 (lambda=0.01)"), _plain("ER (m=50)")
        ('L2', 'ER')
    """
    return method.partition(" (")[0].removeprefix("Vanilla ")


def _init(cell: Cell) -> str:
    return cell.setting.partition(";")[0]


def _shots(cell: Cell) -> int:
    """The number of samples of each class that a cell speaks of."""
    return int((cell.setting + " " + cell.metric).partition("k=")[2].split(";")[0])


_POINTS: Mapping[str, Callable[[RunTransfer, Cell], float]] = {
    "AvgFgt": lambda run, _: 100 * run.matrix["AvgFgt"],
    "AvgAcc": lambda run, _: 100 * run.matrix["AvgAcc"],
    "AvgLAcc": lambda run, _: 100 * run.matrix["AvgLAcc"],
    "AvgFDiv": lambda run, _: run.diversity,
    "AvgFwt^k": lambda run, cell: 100 * run.linear[_shots(cell)],
}


def _numbers(wanted: tuple[Cell, ...], reading: Reading) -> Piece:
    """The numbers of one method on one benchmark."""
    first = wanted[0]
    asked = _Asked(first.benchmark, _plain(first.method), _init(first), reading)

    def plan(seeds: Sequence[int]) -> Plan[Values]:
        found = yield from asked.plan(seeds)
        runs = () if found is None else found.runs
        return {cell: [_POINTS[cell.metric.split(" ")[0]](run, cell) for run in runs] for cell in wanted}

    name = f"{first.benchmark}/{_init(first)}/{first.method}"
    return Piece(name, plan, wanted, 5, later=_later(asked.method, reading))


def _later(method: str, reading: Reading) -> float:
    """The weight of MT is chosen first, and the choice run twice more: as it is, and probed."""
    return 2 / len(reading.weights) if method == "MT" and len(reading.weights) > 1 else 0.0


def correlation(
    found: Mapping[str, MethodTransfer | None], x: str, *, shots: int | None = None, tuned: bool = False
) -> Correlation | None:
    """Spearman's ρ over methods and runs, of AvgFgt with the transfer of so many shots or with AvgFDiv.

    Args:
        found: The runs of each method; None for one that failed, then there is no correlation.
        x: `AvgFwt` or `AvgFDiv`.
        shots: Samples of each class of the transfer.
        tuned: Whether all weights were trained.
    """
    if any(method is None for method in found.values()):
        return None
    runs = [run for method in found.values() if method is not None for run in method.runs]

    def other(run: RunTransfer) -> float:
        return run.diversity if x == "AvgFDiv" else (run.tuned if tuned else run.linear)[cast(int, shots)]

    return spearman([run.matrix["AvgFgt"] for run in runs], [other(run) for run in runs])


def _correlations(table: str, wanted: tuple[Cell, ...], reading: Reading, *, seeds: int = 5) -> Piece:
    """The correlations of one benchmark and initialisation, over all methods and runs."""
    first = wanted[0]
    init, tuned = _init(first), table == "5"
    methods = reading.methods(init)
    if table == "4":
        methods = tuple(method for method in methods if method != "IND")
    asked = {method: _Asked(first.benchmark, method, init, reading, tuned=tuned) for method in methods}

    def plan(seeds: Sequence[int]) -> Plan[Values]:
        found = yield from _several(asked, seeds)
        values = {}
        for cell in wanted:
            if table == "4":
                got = correlation(found, "AvgFDiv")
            else:
                got = correlation(found, "AvgFwt", shots=_shots(cell), tuned=tuned)
            values[cell] = [] if got is None else [got.rho]
        return values

    name = f"{first.benchmark}/{init}"
    return Piece(name, plan, wanted, seeds, later=_later("MT", reading) / len(methods))


def _grouped(table: str) -> list[tuple[Cell, ...]]:
    """The cells of a table that come from the same runs."""
    groups: dict[tuple[str, ...], list[Cell]] = {}
    for cell in cells("003", table):
        groups.setdefault((cell.benchmark, _init(cell), cell.method), []).append(cell)
    return [tuple(group) for group in groups.values()]


def _small_group(table: str) -> list[tuple[Cell, ...]]:
    return [
        group
        for group in _grouped(table)
        if group[0].benchmark == _SMALL_STREAM and _init(group[0]) == "random init"
    ]


def _small_numbers(table: str) -> tuple[Piece, ...]:
    return tuple(replace(_numbers(group, SMALL), seeds=_SMALL_SEEDS) for group in _small_group(table))


# Figures ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Compared:
    """What a figure shows of one benchmark.

    Attributes:
        methods: For each method, AvgFgt of each run, and for each k the transfer of each run.
        failed: Methods whose runs failed.
        tuned: Whether the transfer is that of fine-tuning.
        upstream: For each method the accuracy on ImageNet after the last task of each run; nothing where runs
            do not start from its weights.
    """

    methods: Mapping[str, tuple[list[float], dict[int, list[float]]]]
    failed: tuple[str, ...] = ()
    tuned: bool = False
    upstream: Mapping[str, list[float]] = field(default_factory=dict)


def _compared(name: str, asked: Mapping[str, _Asked], *, seeds: int = 5) -> Piece:
    tuned = any(each.tuned for each in asked.values())

    def plan(seeds: Sequence[int]) -> Plan[Compared]:
        found = yield from _several(asked, seeds)
        methods = {
            label: (
                [100 * run.matrix["AvgFgt"] for run in each.runs],
                {
                    k: [100 * (run.tuned if tuned else run.linear)[k] for run in each.runs]
                    for k in each.runs[0].linear
                },
            )
            for label, each in found.items()
            if each is not None
        }
        failed = tuple(label for label in asked if label not in methods)
        upstream = {
            label: [100 * run.upstream[-1] for run in each.runs]
            for label, each in found.items()
            if each is not None and each.runs[0].upstream
        }
        return Compared(methods, failed, tuned, upstream)

    later = max(_later(each.method, each.reading) for each in asked.values()) / len(asked)
    return Piece(name, plan, seeds=seeds, later=later)


def _of_methods(stream: str, init: str, reading: Reading, *, tuned: bool = False, seeds: int = 5) -> Piece:
    asked = {
        method: _Asked(stream, method, init, reading, tuned=tuned, upstream=init == "pretrained")
        for method in reading.methods(init)
    }
    return _compared(f"{stream}, {init}", asked, seeds=seeds)


def _of_buffers(stream: str, init: str) -> Piece:
    asked = {f"ER, m = {memory}": _Asked(stream, "ER", init, memory=memory) for memory in BUFFERS}
    return _compared(f"{stream}, {init}", asked)


def _half(values: Sequence[float]) -> float:
    """Half of the 95 % interval of the mean; 0 for a single run."""
    low, high = over_seeds(values).ci95
    return (high - low) / 2 if len(values) > 1 else 0.0


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _bars(by_method: Mapping[str, Sequence[float]], title: str) -> dict[str, Any]:
    data = [
        {
            "type": "bar",
            "name": title,
            "x": list(by_method),
            "y": [_mean(values) for values in by_method.values()],
            "error_y": {"type": "data", "array": [_half(values) for values in by_method.values()]},
            "marker": {"color": [f"c{place % 8}" for place in range(len(by_method))]},
            "showlegend": False,
        }
    ]
    return {"data": data, "layout": {"yaxis": {"title": {"text": title}}}}


def _lines(found: Compared) -> dict[str, Any]:
    data = []
    for place, (name, (_, by_shots)) in enumerate(found.methods.items()):
        data.append(
            {
                "type": "scatter",
                "mode": "lines+markers",
                "name": name,
                "x": [str(k) for k in by_shots],
                "y": [_mean(values) for values in by_shots.values()],
                "error_y": {"type": "data", "array": [_half(values) for values in by_shots.values()]},
                "line": {"color": f"c{place % 8}"},
            }
        )
    star = "*" if found.tuned else ""
    layout = {
        "xaxis": {"title": {"text": "k, samples of each class"}, "type": "category"},
        "yaxis": {"title": {"text": f"AvgFwt{star} (%)"}},
    }
    return {"data": data, "layout": layout}


def _scatter(found: Compared, shots: int) -> dict[str, Any]:
    data = [
        {
            "type": "scatter",
            "mode": "markers",
            "name": name,
            "x": forgetting,
            "y": by_shots[shots],
            "marker": {"color": f"c{place % 8}", "size": 9},
        }
        for place, (name, (forgetting, by_shots)) in enumerate(found.methods.items())
    ]
    star = "*" if found.tuned else ""
    layout = {
        "xaxis": {"title": {"text": "AvgFgt (%)"}},
        "yaxis": {"title": {"text": f"AvgFwt{star} with k = {shots} (%)"}},
    }
    return {"data": data, "layout": layout}


def _rank(found: Compared, shots: int) -> str:
    x = [value for forgetting, _ in found.methods.values() for value in forgetting]
    y = [value for _, by_shots in found.methods.values() for value in by_shots[shots]]
    got = spearman(x, y)
    chance = "p < 0.001" if got.p < 0.001 else f"p = {got.p:.3f}"
    return f"k = {shots}: ρ = {got.rho:.2f} ({chance}, {got.n} runs)"


_SCATTERED = 20
"""The number of shots of the scatter plot."""


def _drawn(title: str) -> Callable[[Mapping[str, Any]], Page]:
    def draw(returned: Mapping[str, Compared]) -> Page:
        panels, notes = [], []
        for name, found in returned.items():
            notes += [f"{name}: the runs of {method} failed." for method in found.failed]
            if not found.methods:
                continue
            shots = next(iter(found.methods.values()))[1]
            ranks = "Spearman's ρ over methods and runs. " + "; ".join(_rank(found, k) for k in shots) + "."
            forgetting = {method: values for method, (values, _) in found.methods.items()}
            panels += [
                Panel(
                    f"{name}: forgetting",
                    _bars(forgetting, "AvgFgt (%), 0 is no forgetting"),
                    "Mean over runs, 95 % interval.",
                ),
                Panel(f"{name}: transfer", _lines(found), "Mean over runs, 95 % interval."),
                Panel(f"{name}: transfer against forgetting", _scatter(found, _SCATTERED), ranks),
            ]
            if found.upstream:
                panels.append(
                    Panel(
                        f"{name}: upstream",
                        _bars(found.upstream, "accuracy on ImageNet (%)"),
                        "After the last task, by the head that ImageNet was learned with; 95 % interval.",
                    )
                )
        return Page(title, panels, notes=notes)

    return draw


_FOLLOWED = (
    "the learning rate falls along a quarter cosine to 0 within each task, as printed; the cited work has a "
    "half cosine",
    "FOMAML: the gradient is computed anew in every update and summed, with nothing drawn of earlier tasks "
    "in the first one; as printed it is computed once",
    "AvgFDiv has the class weights m_c/m that the printed formula lacks: without them it can never be "
    "positive, and all published values are",
    "correlations with random weights have IND as the sixth method, which fits the printed p-values (30 "
    "points), with the forgetting of its newest network: were it 0, as of one network a task, the points "
    "that forget least would be those that transfer worst, and ρ at most .17 where .92 is printed "
    "(`without-ind` leaves IND out)",
    "left open by the paper and chosen here: crops with a margin of an eighth of the image, in mean colour; "
    "no momentum, no weight decay, a 3×3 stem for small images, "
    "A-GEM's batch as large as the training batch, 95 % intervals of Student's t",
)
_NOTE = f"Pretrained rows start from ResNet-50's weights of ImageNet, {WEIGHTS_FILE} in the data folder."
_SMALL_NOTE = (
    "The reading `small` is Split CIFAR-10 with random weights: the small convolutional network of 002 "
    "instead of ResNet-50, 5 passes over each task instead of 50, rate .1 (that of the paper's range with "
    "which FT learns best in so few passes; EWC, which diverges at it, has .01), the weight of MT 1 without "
    f"a search, {_SMALL_SEEDS} seeds, in figures EWC and L2 beside the others: it shows signs and ranks, "
    "not levels. `small-without-ind` leaves IND out of the correlations."
)


def _of_numbers(table: str, title: str, *, reading: Reading = FOLLOWED, note: str = "") -> Artefact:
    return Artefact(
        f"003-table{table}",
        title,
        tuple(_numbers(group, reading) for group in _grouped(table)),
        _FOLLOWED,
        {"small": _small_numbers(table)},
        note=" ".join(part for part in (note, _NOTE, _SMALL_NOTE) if part),
    )


def _of_correlations(table: str, title: str) -> Artefact:
    others = {}
    if table != "4":
        others["without-ind"] = tuple(_correlations(table, group, WITHOUT_IND) for group in _grouped(table))
    if table != "5":
        others |= {
            name: tuple(
                _correlations(table, group, replace(reading, more=()), seeds=_SMALL_SEEDS)
                for group in _small_group(table)
            )
            for name, reading in (("small", SMALL), ("small-without-ind", SMALL_WITHOUT_IND))
            if table != "4" or reading is SMALL
        }
    return Artefact(
        f"003-table{table}",
        title,
        tuple(_correlations(table, group, FOLLOWED) for group in _grouped(table)),
        _FOLLOWED,
        others,
        note=f"A correlation is one number of all runs together. {_NOTE} {_SMALL_NOTE}",
    )


def correlate(found: Mapping[str, Compared]) -> list[Statement]:
    """Whether less forgetting goes with more transfer, over methods and runs."""
    said = []
    for name, shown in found.items():
        shots = sorted({k for _, transfers in shown.methods.values() for k in transfers})
        for k in shots:
            pairs = [pair for fgt, by_k in shown.methods.values() for pair in zip(fgt, by_k[k], strict=True)]
            got = spearman([fgt for fgt, _ in pairs], [fwt for _, fwt in pairs])
            says = f"{name}: AvgFgt and AvgFwt with {k} shots correlate positively, p < .05"
            figures = f"ρ = {got.rho:.2f}, p = {got.p:.2g}, {len(pairs)} runs"
            said.append(Statement(says, got.rho > 0 and got.p < 0.05, figures))
    return said


def _figure(
    number: int,
    title: str,
    pieces: Sequence[Piece],
    *,
    small: bool = False,
    note: str = "",
) -> Artefact:
    others = {}
    if small:
        others = {
            name: (_of_methods(_SMALL_STREAM, "random init", reading, seeds=_SMALL_SEEDS),)
            for name, reading in (("small", SMALL), ("small-without-ind", SMALL_WITHOUT_IND))
        }
    notes = (note, _NOTE, _SMALL_NOTE if small else "")
    return Artefact(
        f"003-figure{number}",
        title,
        tuple(pieces),
        _FOLLOWED,
        others,
        _drawn(title),
        " ".join(part for part in notes if part),
        correlate if title.startswith(_AGAINST) else None,
    )


def _random(streams: Sequence[str], reading: Reading = FOLLOWED, *, tuned: bool = False) -> list[Piece]:
    return [_of_methods(stream, "random init", reading, tuned=tuned) for stream in streams]


def _pretrained(streams: Sequence[str], *, tuned: bool = False) -> list[Piece]:
    return [_of_methods(stream, "pretrained", FOLLOWED, tuned=tuned) for stream in streams]


_CIFAR = ("Split CIFAR-10", "Split CIFAR-100", "CIFAR-100 Superclasses")
_AGAINST = "Forgetting against forward transfer"

ARTEFACTS = (
    _of_correlations("1", "Spearman's correlation of forgetting and forward transfer (linear probe)"),
    _of_numbers("2", "Forgetting and feature diversity of seven methods on six benchmarks"),
    _of_numbers("3", "Average accuracy and learning accuracy of seven methods on six benchmarks"),
    _of_correlations("4", "Spearman's correlation of forgetting and feature diversity"),
    _of_correlations("5", "Spearman's correlation of forgetting and forward transfer (fine-tuning)"),
    _of_numbers(
        "6",
        "EWC and L2 on Split CIFAR-10 with ResNet-18: forgetting and forward transfer",
        reading=RESNET18,
        note="How EWC's importance was computed is not published: here it is that of each sample, with the "
        "network's own answer as label.",
    ),
    _figure(1, f"{_AGAINST}: Split CIFAR-100", _random(["Split CIFAR-100"]), small=True),
    _figure(
        3, f"{_AGAINST}: Split CIFAR-10 and CLEAR100", _random(["Split CIFAR-10", "CLEAR100"]), small=True
    ),
    _figure(4, f"{_AGAINST}, pretrained: Split CIFAR-10 and Split CIFAR-100", _pretrained(_CIFAR[:2])),
    _figure(
        5,
        f"{_AGAINST}: CIFAR-100 Superclasses, CLEAR10 and Split ImageNet",
        _random(["CIFAR-100 Superclasses", "CLEAR10", "Split ImageNet"]),
    ),
    _figure(
        6,
        f"{_AGAINST}, pretrained: CIFAR-100 Superclasses, CLEAR10 and CLEAR100",
        _pretrained(["CIFAR-100 Superclasses", "CLEAR10", "CLEAR100"]),
    ),
    _figure(7, f"{_AGAINST}, ResNet-18", _random(_CIFAR, RESNET18)),
    _figure(8, f"{_AGAINST} (fine-tuning): CIFAR", _random(_CIFAR, tuned=True)),
    _figure(
        9,
        f"{_AGAINST} (fine-tuning): CLEAR and ImageNet",
        _random(["CLEAR10", "CLEAR100", "Split ImageNet"], tuned=True),
    ),
    _figure(
        10, f"{_AGAINST} (fine-tuning), pretrained", _pretrained([*_CIFAR, "CLEAR10", "CLEAR100"], tuned=True)
    ),
    _figure(
        11,
        f"{_AGAINST}: ER with several buffers",
        [_of_buffers(stream, "random init") for stream in _CIFAR[1:]],
        note="The sizes of the buffers are not in the paper's text; here they are 5, 10, 20 and 50 a class.",
    ),
    _figure(
        12,
        f"{_AGAINST}, pretrained: ER with several buffers",
        [_of_buffers(stream, "pretrained") for stream in _CIFAR[1:]],
        note="The sizes of the buffers are not in the paper's text; here they are 5, 10, 20 and 50 a class.",
    ),
)
