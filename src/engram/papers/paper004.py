"""004: Pfülb & Gepperth 2019, an application-oriented study of catastrophic forgetting."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise, product
from typing import Any

from engram.core.errors import InputError
from engram.core.trace import Trace
from engram.core.values import OptimizerSpec
from engram.engine.loop import complete
from engram.engine.recipe import experiment
from engram.metrics.matrix import CF_THRESHOLDS
from engram.models.spec import ModelSpec
from engram.papers.pages import Page, Panel
from engram.papers.published import Cell, cells
from engram.papers.values import AT_ENDS, Artefact, Piece, Statement, Values, together
from engram.protocols.causal import CausalOptions, CausalOutcome, causal, union_accuracy
from engram.protocols.drive import Plan, Result
from engram.record.experiment import EvaluationSpec, Experiment
from engram.scenarios import SLT_CODES, slt, split

DATASETS = {
    "CIFAR10": "cifar10",
    "Devanagari": "devanagari",
    "EMNIST": "emnist",
    "FashionMNIST": "fashion-mnist",
    "Fruits 360": "fruits-360",
    "MADBase": "madbase",
    "MNIST": "mnist",
    "NotMNIST": "notmnist",
    "SVHN": "svhn",
}
"""The data sets by the names that the tables give them."""

TYPES = ("D5-5", "D9-1", "DP10-10")
SIZES = (200, 400, 800)
TOPOLOGIES = tuple(widths for depth in (2, 3) for widths in product(SIZES, repeat=depth))
"""Two or three hidden layers, each of any of three sizes: 36."""
FIRST_RATES = (0.01, 0.001)
MEASURING_POINTS = 90
"""About how often a task is tested while it is learned."""

_DROPOUT: Mapping[str, Any] = {"dropout_input": 0.2, "dropout_hidden": 0.5}
_MOMENTUM = OptimizerSpec("sgd", lr=0.001, momentum=0.99)


@dataclass(frozen=True, slots=True)
class Way:
    """How a column of the tables is learned.

    Attributes:
        method: The method's name.
        network: What its network is beside the sizes of its layers.
        optimizer: How weights are updated; the rate is chosen.
        settings: Hyper-parameters of the method.
    """

    method: str
    network: ModelSpec
    optimizer: OptimizerSpec = _MOMENTUM
    settings: Mapping[str, Any] = field(default_factory=dict)


def _network(name: str = "mlp", **more: Any) -> ModelSpec:
    return ModelSpec(name, **{"init": "truncated-normal", **more})


_IMM = partial(Way, network=_network(**_DROPOUT), optimizer=OptimizerSpec("sgd", lr=0.01))
# While the second task is learned its own network is tested, all balances at the end.
_LATEST = {"balance": 1.0}
WAYS = {
    "FC": Way("finetune", _network()),
    "D-FC": Way("finetune", _network(**_DROPOUT)),
    "CONV": Way("finetune", _network("conv")),
    "D-CONV": Way("finetune", _network("conv", dropout_hidden=0.5)),
    "LWTA": Way("finetune", _network("lwta")),
    "EWC": Way(
        "ewc",
        _network(init="truncated-normal-.1", **_DROPOUT),
        OptimizerSpec("adam", lr=0.001),
        {"slots": "separate", "label": "true", "fisher": "sample"},
    ),
    "wtIMM mean": _IMM("imm-mean", settings=_LATEST),
    "wtIMM mode": _IMM("imm-mode", settings={"fisher": "batch", **_LATEST}),
}


@dataclass(frozen=True, slots=True)
class Reading:
    """How the paper is read, and how much of its search is done.

    Attributes:
        ways: How the columns are learned.
        choice: How Algorithm 1 is read.
        rates_for_imm: Whether the rates of the second task are tried for IMM as well.
        per_epoch: Whether measuring points are counted anew in every epoch, starting with its first update.
        permute: Whether the second task of DP10-10 is permuted.
        topologies: Hidden layers to choose from.
        points: About how often a task is tested, for dense and for convolutional networks.
        codes: The streams whose lowest values are taken; all unless given.
        asked_of_ewc: Test images that EWC is asked, drawn once; all unless given.
    """

    ways: Mapping[str, Way] = field(default_factory=lambda: WAYS)
    choice: CausalOptions = field(default_factory=CausalOptions)
    rates_for_imm: bool = False
    per_epoch: bool = True
    permute: bool = True
    topologies: tuple[tuple[int, ...], ...] = TOPOLOGIES
    points: tuple[int, int] = (MEASURING_POINTS, MEASURING_POINTS)
    codes: tuple[str, ...] = SLT_CODES
    asked_of_ewc: int | None = None

    def options(self, model: str) -> CausalOptions:
        """How the rates of the second task are chosen for a model."""
        if model == "EWC":
            return replace(self.choice, tie_strength=True)
        if "IMM" in model and not self.rates_for_imm:
            return replace(self.choice, later_rates=())
        return self.choice

    def fields(self, model: str) -> dict[str, Sequence[Any]]:
        """What is chosen on the first task."""
        convolves = self.ways[model].network.name == "conv"
        return {**({} if convolves else {"hidden": self.topologies}), "lr": FIRST_RATES}

    def streams(self, kind: str) -> list[str]:
        """The streams of a type."""
        return [code for code in self.codes if code.startswith(kind)]


FOLLOWED = Reading()
TEXT = Reading(
    ways={
        **WAYS,
        "D-CONV": replace(WAYS["D-CONV"], network=_network("conv", dropout_input=0.5, dropout_hidden=0.5)),
        "EWC": replace(WAYS["EWC"], optimizer=_MOMENTUM),
        **{
            name: replace(WAYS[name], settings={**WAYS[name].settings, "weight_transfer": False})
            for name in ("wtIMM mean", "wtIMM mode")
        },
    },
    choice=CausalOptions(choose_by="union", start="best"),
    rates_for_imm=True,
    per_epoch=False,
)
"""Where text and code differ, the text."""
CODE = Reading(
    ways={**WAYS, "D-CONV": replace(WAYS["D-CONV"], network=_network("conv", dropout_hidden=0.2))},
    permute=False,
    asked_of_ewc=100,
)
"""Where text and code differ, the released code."""
SMALL = Reading(
    topologies=((200, 200), (200, 200, 200)),
    points=(30, 10),
    codes=("D5-5a", "D5-5d", "D5-5f", "D9-1a", "D9-1b", "DP10-10"),
)
"""Layers of 200 alone, six streams, fewer measuring points: what one computer does in hours."""
SMALL_CODE = replace(SMALL, permute=False)
_TWO_STREAMS = ("D5-5a", "D9-1b")
"""The streams on which the small reading learns convolutional networks."""


def planned(model: str, code: str, dataset: str, *, reading: Reading = FOLLOWED, seed: int = 0) -> Experiment:
    """A model on a sequential learning task, before anything is chosen.

    Args:
        model: A column of the tables, as `D-FC`.
        code: The stream, as `D9-1b`.
        dataset: A data set's name.
        reading: How the paper is read.
        seed: The run's seed.

    Example:
        >>> found = planned("EWC", "D5-5a", "mnist")
        >>> found.optimizer.name, found.model.dropout_hidden, found.batch_size, found.epochs
        ('adam', 0.5, 100, 10)
    """
    way = reading.ways[model]
    base = experiment(f"slt-{code}-{dataset}", way.method, settings=way.settings, seed=seed)
    points = reading.points[way.network.name == "conv"]
    subset = reading.asked_of_ewc if model == "EWC" else None
    evaluation = EvaluationSpec(per_epoch=reading.per_epoch, before=False, subset=subset, points=points)
    scenario = replace(slt(code, dataset, permute=reading.permute), name=base.scenario.name)
    return replace(base, scenario=scenario, model=way.network, optimizer=way.optimizer, evaluation=evaluation)


def forgets(cell: Cell, value: float | None = None) -> bool | None:
    """The flag for catastrophic forgetting: best accuracy below .5, for D9-1 below .9.

    Args:
        cell: A number of table 3 or 4.
        value: What came out for it here; the published number unless given.

    Returns:
        None for numbers that have no flag: all but the best accuracies.

    Example:
        >>> ewc = next(c for c in cells("004", "3") if (c.method, c.benchmark) == ("EWC", "MNIST"))
        >>> ewc.mean, forgets(ewc), forgets(ewc, 0.46)
        (0.5, False, True)
    """
    if cell.metric != "q best":
        return None
    return (cell.mean if value is None else value) < CF_THRESHOLDS[cell.scenario]


def flags(values: Values) -> dict[Cell, tuple[bool, bool]]:
    """For each best accuracy whether the paper and whether we see catastrophic forgetting.

    Example:
        >>> cell = cells("004", "3")[0]
        >>> list(flags({cell: [0.7]}).values())
        [(True, False)]
    """
    return {
        cell: (bool(forgets(cell)), bool(forgets(cell, sum(found) / len(found))))
        for cell, found in values.items()
        if found and forgets(cell) is not None
    }


def flags_agree(found: Mapping[str, Values]) -> list[Statement]:
    """How often forgetting is catastrophic where it is in the paper.

    DP10-10 stands on its own: the released code never permutes it, and the published numbers look like that.
    """
    known = flags({cell: values for each in found.values() for cell, values in each.items()})
    said = []
    for says, permuted in (("D5-5 and D9-1", False), ("DP10-10", True)):
        of_type = {cell: pair for cell, pair in known.items() if (cell.scenario == "DP10-10") == permuted}
        if of_type:
            wrong = [
                f"{cell.benchmark} {cell.scenario} {cell.method}"
                for cell, (theirs, ours) in of_type.items()
                if theirs != ours
            ]
            equal = len(of_type) - len(wrong)
            figures = f"{equal} of {len(of_type)}" + (f", not on {', '.join(wrong)}" if wrong else "")
            says = f"{says}: forgetting is catastrophic where it is in the paper, in 90 % of the cells"
            said.append(Statement(says, equal >= 0.9 * len(of_type), figures))
    return said


@dataclass(frozen=True, slots=True)
class Curves:
    """What a figure shows of the chosen model on one stream.

    Attributes:
        first: Epochs and accuracy on D1.
        second: Epochs and accuracy on D2.
        union: Epochs and accuracy on both, while D2 is learned.
        baseline: The highest accuracy when both are learned together.
        balances: For each way to merge, the balance and the accuracy on both; empty but for IMM.
    """

    first: list[tuple[float, float]]
    second: list[tuple[float, float]]
    union: list[tuple[float, float]]
    baseline: float
    balances: Mapping[str, Sequence[tuple[float, float]]] = field(default_factory=dict)


def curves(run: Result, baseline: float) -> Curves:
    """The curves of a run through both tasks, over the epochs of the two."""
    trace, planned_run = run.trace, run.experiment
    learned = [phase[-1] for phase in planned_run.scenario.phases]
    steps = [
        [step for step, now in zip(trace.step, trace.learning, strict=True) if now == task]
        for task in learned
    ]
    # Where measuring points are counted in every epoch, a task's first update is one, and its last is none.
    ends = [later[0] - 1 if planned_run.evaluation.per_epoch else own[-1] for own, later in pairwise(steps)]
    ends.append(run.values.get("updates", steps[-1][-1]))

    def over(tasks: Sequence[int], phase: int) -> list[tuple[float, float]]:
        begin = ends[phase - 1] if phase else 0
        length = max(1, ends[phase] - begin)
        points = union_accuracy(trace, learning=learned[phase], tasks=tasks)
        return [(planned_run.epochs * (phase + (step - begin) / length), height) for step, height in points]

    one, two = learned[0], learned[1]
    return Curves(over([one], 0) + over([one], 1), over([two], 1), over([one, two], 1), baseline)


def _attempted(plan: Plan[CausalOutcome]) -> Plan[CausalOutcome | None]:
    """A plan that gives nothing where runs without which it cannot go on have failed."""
    try:
        return (yield from plan)
    except InputError:
        return None


def _learned(
    model: str, code: str, dataset: str, seeds: Sequence[int], reading: Reading
) -> Plan[CausalOutcome | None]:
    bases = [planned(model, code, dataset, reading=reading, seed=seed) for seed in seeds]
    return _attempted(causal(bases, reading.fields(model), options=reading.options(model)))


def _merged(
    code: str, dataset: str, seeds: Sequence[int], reading: Reading
) -> Plan[dict[str, CausalOutcome | None]]:
    """Both ways to merge. They learn the first task alike, so one search is enough for both."""
    mean = yield from _learned("wtIMM mean", code, dataset, seeds, reading)
    mode = None
    if mean is not None:
        chosen = {name: [value] for name, value in mean.candidates[mean.chosen].fields.items()}
        bases = [planned("wtIMM mode", code, dataset, reading=reading, seed=seed) for seed in seeds]
        mode = yield from _attempted(causal(bases, chosen, options=reading.options("wtIMM mode")))
    return {"wtIMM mean": mean, "wtIMM mode": mode}


def _read(cell: Cell, outcomes: Sequence[CausalOutcome | None]) -> list[float]:
    """A number of tables 3 to 5, one a seed: that of the stream where the quality is lowest."""
    known = [outcome for outcome in outcomes if outcome is not None]
    if len(known) < len(outcomes):
        return []
    found = []
    for runs in zip(*(outcome.runs for outcome in known), strict=True):
        worst = min(runs, key=lambda run: run.best)
        found.append(
            {
                "q best": worst.best,
                "q last": min(run.last for run in runs),
                "baseline accuracy": worst.baseline,
                "Omega_all": worst.best / worst.baseline,
            }[cell.metric]
        )
    return found


def _piece(
    benchmark: str, kind: str, model: str, wanted: tuple[Cell, ...], reading: Reading, codes: Sequence[str]
) -> Piece:
    def plan(seeds: Sequence[int]) -> Plan[Values]:
        found = yield from together(
            [_learned(model, code, DATASETS[benchmark], seeds, reading) for code in codes]
        )
        return {cell: _read(cell, found) for cell in wanted}

    return Piece(
        f"{benchmark}/{kind}/{model}",
        plan,
        wanted,
        later=_later(model, reading),
        outline=lambda: _outline(model, codes, DATASETS[benchmark], reading),
    )


def _imm_piece(
    benchmark: str, kind: str, wanted: tuple[Cell, ...], reading: Reading, codes: Sequence[str]
) -> Piece:
    def plan(seeds: Sequence[int]) -> Plan[Values]:
        found = yield from together([_merged(code, DATASETS[benchmark], seeds, reading) for code in codes])
        return {cell: _read(cell, [each[cell.method] for each in found]) for cell in wanted}

    return Piece(
        f"{benchmark}/{kind}/wtIMM",
        plan,
        wanted,
        later=_later("wtIMM mean", reading),
        outline=lambda: _outline("wtIMM mean", codes, DATASETS[benchmark], reading),
    )


def _outline(
    model: str, codes: Sequence[str], dataset: str, reading: Reading
) -> tuple[int, list[Experiment]]:
    """How many candidates there are on all streams, and one a stream with layers of the middle size."""
    standing = [planned(model, code, dataset, reading=reading, seed=0) for code in codes]
    return len(codes) * _candidates(model, reading), standing


def _candidates(model: str, reading: Reading) -> int:
    count = 1
    for values in reading.fields(model).values():
        count *= len(values)
    return count


def _later(model: str, reading: Reading) -> float:
    """How many runs follow for each candidate: the second task at each rate, and both tasks at once.

    Both ways to merge take the chosen rate once more for all balances, and `mode` learns the first task anew.
    """
    rates = len(reading.options(model).later_rates) or 1
    return (2 * rates + 5 if "IMM" in model else rates + 1) / _candidates(model, reading)


def _pieces(table: str, reading: Reading = FOLLOWED) -> tuple[Piece, ...]:
    """All pieces of a table, in the order in which it prints them."""
    groups: dict[tuple[str, str, str], list[Cell]] = {}
    for cell in cells("004", table):
        who = "wtIMM" if "IMM" in cell.method else cell.method
        groups.setdefault((cell.benchmark, cell.scenario, who), []).append(cell)
    found = []
    for (benchmark, kind, model), wanted in groups.items():
        if codes := reading.streams(kind):
            if model == "wtIMM":
                found.append(_imm_piece(benchmark, kind, tuple(wanted), reading, codes))
            else:
                found.append(_piece(benchmark, kind, model, tuple(wanted), reading, codes))
    return tuple(found)


_SMALL_ORDER = ("Devanagari", "MNIST", "FashionMNIST")
_SMALL_MODELS = ("FC", "EWC", "wtIMM", "D-FC", "LWTA", "CONV", "D-CONV")


def _small(table: str, reading: Reading = SMALL) -> tuple[Piece, ...]:
    """What the small reading has of a table: the cheapest and most telling first, convolutions last."""
    dense = {piece.name: piece for piece in _pieces(table, reading)}
    convolved = {piece.name: piece for piece in _pieces(table, replace(reading, codes=_TWO_STREAMS))}
    names = [
        *product(_SMALL_ORDER, TYPES, _SMALL_MODELS[:5]),
        *product(_SMALL_ORDER, TYPES, _SMALL_MODELS[5:]),
    ]
    found = []
    for name in ("/".join(parts) for parts in names):
        held = convolved if name.endswith("CONV") else dense
        if name in held:
            found.append(held[name])
    return tuple(found)


def _only(pieces: Sequence[Piece], kind: str) -> tuple[Piece, ...]:
    return tuple(piece for piece in pieces if f"/{kind}/" in piece.name)


# Table 1 ------------------------------------------------------------------------------------------


def counted(dataset: str, part: str) -> Experiment:
    """A run whose trace says how many samples each of the ten classes has: one class a task, one update each.

    Args:
        dataset: A data set's name.
        part: `train` or `test`.
    """
    order = (*range(1, 10), 0) if dataset == "svhn" else tuple(range(10))
    stream = split(dataset, 1, setting="class", order=order)
    unused = slt("DP10-10", dataset).tasks[0].source.unused
    tasks = tuple(replace(task, source=replace(task.source, unused=unused)) for task in stream.tasks)
    return complete(
        Experiment(
            replace(stream, name=f"classes-{dataset}", tasks=tasks),
            "finetune",
            model=ModelSpec("mlp", hidden=()),
            batch_size=1,
            updates=1,
            evaluation=EvaluationSpec(**{**AT_ENDS, "on": part}),
        )
    )


def class_counts(trace: Trace) -> list[int]:
    """How many samples each task has, read from a trace that asked all of them."""
    sizes = dict(zip(trace.task, trace.total, strict=True))
    return [sizes[task] for task in sorted(sizes)]


def _facts(benchmark: str) -> Piece:
    wanted = tuple(cell for cell in cells("004", "1") if cell.benchmark == benchmark)

    def plan(_seeds: Sequence[int]) -> Plan[Values]:
        # Counting has nothing to draw: one run, whatever the seeds.
        found = yield [counted(DATASETS[benchmark], part) for part in ("train", "test")]
        counts = {
            part: class_counts(each.trace)
            for part, each in zip(("train", "test"), found, strict=True)
            if isinstance(each, Result)
        }
        return {cell: _fact(cell, counts) for cell in wanted}

    return Piece(benchmark, plan, wanted, 1)


def _fact(cell: Cell, counts: Mapping[str, Sequence[int]]) -> list[float]:
    sizes = counts.get("train" if "train" in cell.metric else "test")
    if sizes is None:
        return []
    if cell.metric.startswith("n_"):
        return [float(sum(sizes))]
    return [100 * (max(sizes) - min(sizes)) / sum(sizes)]


# Figures ------------------------------------------------------------------------------------------


def _with_results(plan: Plan[Any]) -> Plan[tuple[Any, dict[str, Result]]]:
    """A plan's outcome, and all results that it was sent, by the ids of their runs."""
    heard: dict[str, Result] = {}
    asked = next(plan)
    while True:
        found = yield asked
        heard |= {each.experiment.id: each for each in found if isinstance(each, Result)}
        try:
            asked = plan.send(found)
        except StopIteration as end:
            return end.value, heard


def _shown(model: str, code: str, benchmark: str, reading: Reading) -> Piece:
    """The curves of one model on one stream; nothing where its runs failed."""
    dataset = DATASETS[benchmark]

    def plan(seeds: Sequence[int]) -> Plan[Curves | None]:
        if model == "wtIMM":
            merged, heard = yield from _with_results(_merged(code, dataset, seeds, reading))
            outcome, other = merged["wtIMM mean"], merged["wtIMM mode"]
        else:
            outcome, heard = yield from _with_results(_learned(model, code, dataset, seeds, reading))
            other = None
        if outcome is None:
            return None
        run = heard[outcome.runs[0].run]
        found = curves(run, outcome.baseline)
        if other is None:
            return found
        # Before they are merged, each of the two networks is tested on its own task.
        own = [point for point in found.first if point[0] <= run.experiment.epochs]
        balances = {"mean-IMM": outcome.runs[0].balances, "mode-IMM": other.runs[0].balances}
        return replace(found, first=own, balances=balances)

    searched = "wtIMM mean" if model == "wtIMM" else model
    return Piece(f"{model} {code} {benchmark}", plan, later=_later(searched, reading))


def _line(
    name: str, points: Sequence[tuple[float, float]], colour: str, symbol: str, **more: Any
) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": name,
        "x": [x for x, _ in points],
        "y": [round(y, 4) for _, y in points],
        "line": {"color": colour, "width": 1.6},
        "marker": {"symbol": symbol, "size": 5},
        **more,
    }


def _over_time(found: Curves) -> dict[str, Any]:
    """Accuracy over the epochs of both tasks, the second on grey, as the paper's figure 4 has it."""
    last = max([x for x, _ in [*found.first, *found.second]], default=20.0)
    merges = bool(found.balances)
    data = [
        _line("test: D1", found.first, "c0", "triangle-up"),
        _line("test: D2", found.second, "c2", "square"),
        *([] if merges else [_line("test: D1 ∪ D2", found.union, "c3", "circle")]),
        {
            "type": "scatter",
            "mode": "lines",
            "name": "baseline, highest",
            "x": [0, last],
            "y": [round(found.baseline, 4)] * 2,
            "line": {"color": "ink", "dash": "dash", "width": 1.2},
        },
    ]
    layout = {
        "xaxis": {"title": {"text": "epoch"}, "range": [0, last]},
        "yaxis": {"title": {"text": "test accuracy"}, "range": [0, 1.02]},
        "shapes": [
            {
                "type": "rect",
                "yref": "paper",
                "x0": last / 2,
                "x1": last,
                "y0": 0,
                "y1": 1,
                "layer": "below",
                "line": {"width": 0},
                "fillcolor": "soft/0.16",
            }
        ],
    }
    return {"data": data, "layout": layout}


def _over_balance(found: Curves) -> dict[str, Any]:
    """Accuracy of the merged network over α, as the right half of the paper's figure 6."""
    looks = {"mean-IMM": ("c3", "circle"), "mode-IMM": ("c1", "diamond")}
    data = [_line(name, points, *looks[name]) for name, points in found.balances.items()]
    layout = {
        "xaxis": {"title": {"text": "alpha"}, "range": [0, 1]},
        "yaxis": {"title": {"text": "test accuracy on D1 ∪ D2"}, "range": [0, 1.02]},
    }
    return {"data": data, "layout": layout}


def _drawn(title: str) -> Callable[[Mapping[str, Any]], Page]:
    def draw(returned: Mapping[str, Curves | None]) -> Page:
        panels, failed = [], []
        for name, found in returned.items():
            if found is None:
                failed.append(f"{name}: its runs failed, so there is nothing to show.")
                continue
            if found.balances:
                caption = (
                    "Each network before it is merged. "
                    f"Highest of all balances: {_highest(found)}; baseline {found.baseline:.2f}."
                )
            else:
                heights = [height for _, height in found.union]
                caption = (
                    f"On D1 ∪ D2: best {max(heights):.2f}, last {heights[-1]:.2f}; "
                    f"baseline {found.baseline:.2f}."
                )
            panels.append(Panel(name, _over_time(found), caption))
            if found.balances:
                panels.append(Panel(f"{name}: merged", _over_balance(found)))
        return Page(title, panels, notes=failed)

    return draw


def _highest(found: Curves) -> str:
    tops = {name: max(points, key=lambda point: point[1]) for name, points in found.balances.items()}
    return ", ".join(f"{name} {height:.2f} at α = {alpha:.2f}" for name, (alpha, height) in tops.items())


_ALL = tuple(DATASETS)
_IMM_SETS = ("CIFAR10", "Devanagari", "FashionMNIST", "MADBase", "MNIST", "SVHN")
_HERE = ("Devanagari", "MNIST", "FashionMNIST")
_SURFACES = "The paper draws these curves as surfaces in three dimensions; here each data set has a panel."


def _figure(
    number: str,
    title: str,
    full: Sequence[tuple[str, str, str]],
    small: Sequence[tuple[str, str, str]],
    *,
    note: str = "",
) -> Artefact:
    """A figure: models, streams and data sets, all of them and those of the small reading."""
    return Artefact(
        f"004-{number}",
        title,
        tuple(_shown(*each, FOLLOWED) for each in full),
        _FOLLOWED,
        {
            "text": tuple(_shown(*each, TEXT) for each in full),
            "code": tuple(_shown(*each, CODE) for each in full),
            "small": tuple(_shown(*each, SMALL) for each in small),
        },
        _drawn(title),
        " ".join(part for part in (note, _SMALL_NOTE) if part),
    )


def _each(model: str, code: str, benchmarks: Sequence[str]) -> list[tuple[str, str, str]]:
    return [(model, code, benchmark) for benchmark in benchmarks]


_FOLLOWED = (
    "DP10-10: the second task is permuted, as the paper says; in the released code it is the first task once "
    "more, and the published numbers look like that (`code`)",
    "the rate of the second task is chosen by accuracy on D2, as Algorithm 1 and the code do; the text says "
    "D1 ∪ D2 (`text`)",
    "the second task goes on from the last weights of the first, as in the code; the text says from the best "
    "over time (`text`)",
    "EWC learns with Adam, as in the code; the text says momentum .99 for all but IMM (`text`). Its strength "
    "is 1/ε2 with a factor ½, its initial weights have deviation and biases .1, as in the code",
    "EWC is tested on all test samples; the released code asks one batch of 100 over and over, which raises "
    "the best",
    "IMM goes on from the weights of the first task at the same rate, as in the code; the text "
    "re-initialises and tries the rates of the second task (`text`). Dropout is off in tests; in the code it "
    "stays on with two hidden layers",
    "D-CONV drops .5 after the dense layer; the text says input and hidden layers (`text`), the code drops "
    ".2 there (`code`)",
    "LWTA: a layer of size S has 2 S units, as in the code",
    "all choices are made on test data, as published",
    "pixels of MNIST are in [0, 1], all others in [−1, 1], as in the code",
)
_SMALL_NOTE = (
    "The reading `small` is a cut of the search: MNIST, Fashion-MNIST and Devanagari; streams D5-5a, d, f, "
    "D9-1a, b and DP10-10, whose lowest value stands for the type; hidden layers of 200 alone (two and three "
    "of them, both rates) instead of 36 topologies; 30 measuring points a task instead of 90, 10 for CONV "
    "and D-CONV, which are learned on D5-5a and D9-1b alone. `small-code` is DP10-10 of it without the "
    "permutation."
)
_DATA_NOTE = (
    "MNIST has the last 55,000 of its training images, as published. Devanagari has the first ten characters "
    "of its own split (published: the ten largest, a tenth of them for tests), EMNIST its digits in their "
    "own order (published: by frequency)."
)


def _table(number: str, title: str) -> Artefact:
    others = {
        "text": _pieces(number, TEXT),
        "code": _pieces(number, CODE),
        "small": _small(number),
    }
    if coded := _only(_small(number, SMALL_CODE), "DP10-10"):
        others["small-code"] = coded
    return Artefact(
        f"004-table{number}",
        title,
        _pieces(number),
        _FOLLOWED,
        others,
        note=f"{_DATA_NOTE} {_SMALL_NOTE}",
        statements=flags_agree if number in ("3", "4") else None,
    )


_B_MODELS = ("FC", "D-FC", "CONV", "D-CONV", "LWTA", "EWC", "wtIMM")

ARTEFACTS = (
    Artefact(
        "004-table1",
        "Nine data sets: samples and class imbalance",
        tuple(_facts(benchmark) for benchmark in DATASETS),
        note=_DATA_NOTE,
    ),
    _table(
        "3", "Best and last accuracy of six models after sequential learning, and catastrophic forgetting"
    ),
    _table("4", "Accuracy of merged networks (IMM) at their best balance"),
    _table("5", "Baseline and Ω of six models"),
    _figure(
        "figure2",
        "FC on DP10-10",
        _each("FC", "DP10-10", _ALL),
        _each("FC", "DP10-10", _HERE),
        note=_SURFACES,
    ),
    _figure(
        "figure3",
        "D-FC on D5-5",
        _each("D-FC", "D5-5a", _ALL),
        _each("D-FC", "D5-5a", _HERE),
        note=f"{_SURFACES} The paper does not say which stream of the type it shows: this is D5-5a.",
    ),
    _figure(
        "figure4",
        "EWC: best and last accuracy",
        [*_each("EWC", "D9-1c", ["EMNIST"]), ("EWC", "D9-1a", "EMNIST"), ("EWC", "D9-1b", "Devanagari")],
        [("EWC", "D9-1b", "MNIST"), ("EWC", "D9-1a", "MNIST"), ("EWC", "D9-1b", "Devanagari")],
        note="In the small reading MNIST stands for EMNIST, and D9-1b for D9-1c.",
    ),
    _figure(
        "figure5",
        "EWC on D5-5d",
        _each("EWC", "D5-5d", _ALL),
        _each("EWC", "D5-5d", _HERE),
        note=_SURFACES,
    ),
    _figure(
        "figure6",
        "IMM on D5-5f of Devanagari: both networks, and the merged one over α",
        _each("wtIMM", "D5-5f", ["Devanagari"]),
        _each("wtIMM", "D5-5f", ["Devanagari"]),
    ),
    _figure(
        "figure7",
        "IMM on D5-5b",
        _each("wtIMM", "D5-5b", _IMM_SETS),
        _each("wtIMM", "D5-5a", _HERE),
        note=f"{_SURFACES} The small reading shows D5-5a.",
    ),
    _figure(
        "figure8",
        "IMM on D9-1c",
        _each("wtIMM", "D9-1c", _IMM_SETS),
        _each("wtIMM", "D9-1b", _HERE),
        note=f"{_SURFACES} The small reading shows D9-1b.",
    ),
    _figure(
        "figure9",
        "All models on D9-1b and EWC on D5-5d, over time",
        [
            *(
                (model, "D9-1b", benchmark)
                for model in _B_MODELS
                for benchmark in ("EMNIST", "MNIST", "Devanagari")
                # IMM was not computed on EMNIST.
                if (model, benchmark) != ("wtIMM", "EMNIST")
            ),
            *_each("EWC", "D5-5d", ("EMNIST", "MNIST", "Devanagari")),
        ],
        [
            *((model, "D9-1b", benchmark) for model in _B_MODELS for benchmark in ("MNIST", "Devanagari")),
            *_each("EWC", "D5-5d", ("MNIST", "Devanagari")),
        ],
        note="The plots of the paper's appendix B, which have no number there.",
    ),
)
