"""The figures: one panel for forgetting, one for forward transfer, and one for both together."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from engram.metrics.intervals import over_seeds
from engram.papers.pages import Page, Panel, Plotly
from engram.papers.paper003.runs import FOLLOWED, Interpretation, MethodRuns, transfers
from engram.papers.plans import Plan
from engram.papers.values import Piece, Statement
from engram.protocols.forward_transfer import Correlation, MethodTransfer, spearman

BUFFERS = (5, 10, 20, 50)
"""The buffer sizes of figures 11 and 12, in samples per class; they are not in the paper's text."""
SCATTERED = 20
"""The number of shots of the scatter plot."""


@dataclass(frozen=True, slots=True)
class TransferComparison:
    """What a figure shows of one benchmark.

    Attributes:
        methods: AvgFgt of each run and, for each k, the transfer of each run, by method.
        failed: Methods whose runs failed.
        tuned: Whether transfer is measured by fine-tuning.
        upstream: The accuracy on ImageNet after the last task of each run, by method; empty if runs do not
            start from ImageNet weights.
    """

    methods: Mapping[str, tuple[list[float], dict[int, list[float]]]]
    failed: tuple[str, ...] = ()
    tuned: bool = False
    upstream: Mapping[str, list[float]] = field(default_factory=dict)

    @property
    def transfer_name(self) -> str:
        """The name of the transfer metric, with a star if it is measured by fine-tuning."""
        return "AvgFwt*" if self.tuned else "AvgFwt"

    @property
    def shots(self) -> list[int]:
        """The numbers of shots with which transfer was measured."""
        return sorted({k for _, by_shots in self.methods.values() for k in by_shots})

    def correlation(self, shots: int) -> Correlation:
        """Spearman's ρ of forgetting and transfer, over methods and runs."""
        forgetting = [value for values, _ in self.methods.values() for value in values]
        transfer = [value for _, by_shots in self.methods.values() for value in by_shots[shots]]
        return spearman(forgetting, transfer)


def _compare(by_method: Mapping[str, MethodTransfer | None], *, tuned: bool) -> TransferComparison:
    finished = {label: transfer for label, transfer in by_method.items() if transfer is not None}
    methods = {
        label: (
            [100 * run.matrix["AvgFgt"] for run in transfer.runs],
            {
                k: [100 * (run.tuned if tuned else run.linear)[k] for run in transfer.runs]
                for k in transfer.runs[0].linear
            },
        )
        for label, transfer in finished.items()
    }
    upstream = {
        label: [100 * run.upstream[-1] for run in transfer.runs]
        for label, transfer in finished.items()
        if transfer.runs[0].upstream
    }
    failed = tuple(label for label in by_method if label not in finished)
    return TransferComparison(methods, failed, tuned, upstream)


def _piece(name: str, method_runs: Mapping[str, MethodRuns], *, seeds: int = 5) -> Piece:
    tuned = any(runs.tuned for runs in method_runs.values())

    def plan(seeds: Sequence[int]) -> Plan[TransferComparison]:
        return _compare((yield from transfers(method_runs, seeds)), tuned=tuned)

    later = max(runs.later for runs in method_runs.values()) / len(method_runs)
    return Piece(name, plan, seeds=seeds, later=later)


def of_methods(
    row: str, init: str, interpretation: Interpretation = FOLLOWED, *, tuned: bool = False, seeds: int = 5
) -> Piece:
    """All methods on one benchmark."""
    method_runs = {
        method: MethodRuns(row, method, init, interpretation, tuned=tuned, upstream=init == "pretrained")
        for method in interpretation.methods(init)
    }
    return _piece(f"{row}, {init}", method_runs, seeds=seeds)


def of_buffers(row: str, init: str) -> Piece:
    """ER with several buffers on one benchmark."""
    method_runs = {f"ER, m = {memory}": MethodRuns(row, "ER", init, memory=memory) for memory in BUFFERS}
    return _piece(f"{row}, {init}", method_runs)


# Statements ---------------------------------------------------------------------------------------


def correlate(returned: Mapping[str, TransferComparison]) -> list[Statement]:
    """Whether less forgetting correlates with more transfer, over methods and runs."""
    statements = []
    for name, comparison in returned.items():
        for k in comparison.shots:
            rank = comparison.correlation(k)
            says = f"{name}: AvgFgt and AvgFwt with {k} shots correlate positively, p < .05"
            figures = f"ρ = {rank.rho:.2f}, p = {rank.p:.2g}, {rank.n} runs"
            statements.append(Statement(says, rank.rho > 0 and rank.p < 0.05, figures))
    return statements


# Panels -------------------------------------------------------------------------------------------


def _half(values: Sequence[float]) -> float:
    """Half the width of the 95 % interval of the mean; 0 for a single run."""
    low, high = over_seeds(values).ci95
    return (high - low) / 2 if len(values) > 1 else 0.0


def _means(groups: Collection[Sequence[float]]) -> Plotly:
    """Means over runs, with their intervals as error bars."""
    return {
        "y": [_mean(values) for values in groups],
        "error_y": {"type": "data", "array": [_half(values) for values in groups]},
    }


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _colour(place: int) -> str:
    return f"c{place % 8}"


def _bars(by_method: Mapping[str, Sequence[float]], title: str) -> Plotly:
    bars = {
        "type": "bar",
        "name": title,
        "x": list(by_method),
        **_means(by_method.values()),
        "marker": {"color": [_colour(place) for place in range(len(by_method))]},
        "showlegend": False,
    }
    return {"data": [bars], "layout": {"yaxis": {"title": {"text": title}}}}


def _lines(comparison: TransferComparison) -> Plotly:
    data = [
        {
            "type": "scatter",
            "mode": "lines+markers",
            "name": name,
            "x": [str(k) for k in by_shots],
            **_means(by_shots.values()),
            "line": {"color": _colour(place)},
        }
        for place, (name, (_, by_shots)) in enumerate(comparison.methods.items())
    ]
    layout = {
        "xaxis": {"title": {"text": "k, samples of each class"}, "type": "category"},
        "yaxis": {"title": {"text": f"{comparison.transfer_name} (%)"}},
    }
    return {"data": data, "layout": layout}


def _scatter(comparison: TransferComparison, shots: int) -> Plotly:
    data = [
        {
            "type": "scatter",
            "mode": "markers",
            "name": name,
            "x": forgetting,
            "y": by_shots[shots],
            "marker": {"color": _colour(place), "size": 9},
        }
        for place, (name, (forgetting, by_shots)) in enumerate(comparison.methods.items())
    ]
    layout = {
        "xaxis": {"title": {"text": "AvgFgt (%)"}},
        "yaxis": {"title": {"text": f"{comparison.transfer_name} with k = {shots} (%)"}},
    }
    return {"data": data, "layout": layout}


def _rank(comparison: TransferComparison, shots: int) -> str:
    rank = comparison.correlation(shots)
    chance = "p < 0.001" if rank.p < 0.001 else f"p = {rank.p:.3f}"
    return f"k = {shots}: ρ = {rank.rho:.2f} ({chance}, {rank.n} runs)"


def _panels(name: str, comparison: TransferComparison) -> list[Panel]:
    """Forgetting, transfer, one against the other, and the accuracy on ImageNet where it was measured."""
    ranks = "; ".join(_rank(comparison, k) for k in next(iter(comparison.methods.values()))[1])
    forgetting = {method: values for method, (values, _) in comparison.methods.items()}
    interval = "Mean over runs, 95 % interval."
    panels = [
        Panel(f"{name}: forgetting", _bars(forgetting, "AvgFgt (%), 0 is no forgetting"), interval),
        Panel(f"{name}: transfer", _lines(comparison), interval),
        Panel(
            f"{name}: transfer against forgetting",
            _scatter(comparison, SCATTERED),
            f"Spearman's ρ over methods and runs. {ranks}.",
        ),
    ]
    if comparison.upstream:
        caption = "After the last task, by the head that ImageNet was learned with; 95 % interval."
        panels.append(
            Panel(f"{name}: upstream", _bars(comparison.upstream, "accuracy on ImageNet (%)"), caption)
        )
    return panels


def page(title: str) -> Callable[[Mapping[str, TransferComparison]], Page]:
    """A function that draws the figure: the panels of each benchmark, and notes on failed runs."""

    def draw(returned: Mapping[str, TransferComparison]) -> Page:
        panels, notes = [], []
        for name, comparison in returned.items():
            notes += [f"{name}: the runs of {method} failed." for method in comparison.failed]
            if comparison.methods:
                panels += _panels(name, comparison)
        return Page(title, panels, notes=notes)

    return draw
