"""The forward-transfer protocol: k-shot probes of the features on the next task (Chen et al., 2023)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import permutations

import numpy as np
import numpy.typing as npt

from engram.core.errors import InputError
from engram.core.jsons import JsonObject
from engram.engine.probing import UPSTREAM, UPSTREAM_START, probe_loss_name, probe_name, tuned_name
from engram.metrics.arrays import mean_of_known
from engram.metrics.intervals import Bounds, over_seeds
from engram.metrics.registry import bounds_of
from engram.protocols.candidates import Candidate, Grid
from engram.protocols.drive import Plan, finished
from engram.protocols.grid import SelectOn, grid, metric_name, with_validation
from engram.protocols.selection import audited, selected
from engram.record.card import Selected
from engram.record.experiment import Experiment, TransferSpec
from engram.record.run import Run

TUNED_LRS = (0.01, 0.001)
"""The learning rates that Chen et al. (2023) try for k-shot fine-tuning."""

FAR_FROM_CONVERGED = 0.5
"""A probe that leaves more than this share of a guess's loss on its own samples is far from converged."""

EXACT_UP_TO = 9
"""Up to this many runs, the p-value of a rank correlation is exact, counted over all orders."""

FROM_MATRIX = ("AvgFgt", "AvgAcc", "AvgLAcc")


@dataclass(frozen=True, slots=True)
class RunTransfer:
    """Forward transfer in one run.

    Attributes:
        run: The run's id.
        seed: The run's seed.
        linear: AvgFwt for each k: the mean over all tasks but the first of the accuracy of a linear probe.
        tuned: AvgFwt* for each k: the same with all weights trained; empty if not measured.
        diversity: AvgFDiv.
        matrix: AvgFgt, AvgAcc and AvgLAcc.
        upstream: The accuracy on the data that the start was pretrained on: first of the start itself, then
            after each task; empty if not measured.
        probe_loss: For each k, the loss that is left on the samples that the probes were trained on, relative
            to that of a guess, the mean over tasks; empty if not measured.
    """

    run: str
    seed: int
    linear: dict[int, float]
    tuned: dict[int, float]
    diversity: float
    matrix: dict[str, float]
    upstream: tuple[float, ...] = ()
    probe_loss: dict[int, float] = field(default_factory=dict)

    def as_json(self) -> JsonObject:
        """Values by the names of the paper."""
        return {
            "run": self.run,
            "seed": self.seed,
            "AvgFwt": {str(k): value for k, value in self.linear.items()},
            "AvgFwt*": {str(k): value for k, value in self.tuned.items()},
            "AvgFDiv": self.diversity,
            **self.matrix,
            **({"upstream": list(self.upstream)} if self.upstream else {}),
            "probe_loss": {str(k): value for k, value in self.probe_loss.items()},
        }


@dataclass(frozen=True, slots=True)
class MethodTransfer:
    """Forward transfer of one method.

    Attributes:
        candidates: The fields that were tried for the method.
        choice: The fields that were chosen.
        tuned_choice: For each k, the learning rate and the epochs of fine-tuning chosen on validation data.
        runs: One per seed.
        choices: The data that each choice read.
        ended: The runs themselves.
    """

    candidates: tuple[Candidate, ...]
    choice: JsonObject
    tuned_choice: dict[int, tuple[float, int]]
    runs: tuple[RunTransfer, ...]
    choices: tuple[Selected, ...] = ()
    ended: tuple[Run, ...] = ()

    def as_json(self) -> JsonObject:
        """Means over runs by the names of the paper, with intervals and all runs."""
        rows = [run.as_json() for run in self.runs]
        names = ("AvgFDiv", *FROM_MATRIX)
        intervals = {
            **{name: _interval([row[name] for row in rows], bounds_of(name)) for name in names},
            **{
                # Accuracies of probes.
                name: {k: _interval([row[name][k] for row in rows], (0, 1)) for k in rows[0][name]}
                for name in ("AvgFwt", "AvgFwt*")
            },
        }
        means: JsonObject = {name: intervals[name]["mean"] for name in names}
        for name in ("AvgFwt", "AvgFwt*"):
            means[name] = {k: interval["mean"] for k, interval in intervals[name].items()}
        if self.runs[0].upstream:
            for name, place in (("upstream start", 0), ("upstream", -1)):
                intervals[name] = _interval([run.upstream[place] for run in self.runs], (0, 1))
                means[name] = intervals[name]["mean"]
        return {
            "candidates": [candidate.as_json() for candidate in self.candidates],
            "choice": self.choice,
            "finetuning": {
                str(k): {"lr": lr, "epochs": epochs} for k, (lr, epochs) in self.tuned_choice.items()
            },
            **means,
            "summary": intervals,
            "runs": rows,
            **audited(self.ended, self.choices),
        }


@dataclass(frozen=True, slots=True)
class Correlation:
    """Spearman's rank correlation over runs.

    Attributes:
        rho: The correlation; NaN if one of the two is constant.
        p: The two-sided p-value: with up to nine runs the share of all orders that correlate as strongly,
            with more by Student's t; NaN with fewer than three runs.
        n: The number of runs.
    """

    rho: float
    p: float
    n: int


@dataclass(frozen=True, slots=True)
class TransferOutcome:
    """Forward transfer of several methods.

    Attributes:
        methods: The results of each method.
        correlations: Over methods and runs, of AvgFgt and of AvgFDiv with AvgFwt for each k.
    """

    methods: dict[str, MethodTransfer]
    correlations: dict[str, dict[int, Correlation]]

    def as_json(self) -> JsonObject:
        """All results; with a single method, its numbers are at the top level."""
        by_method = {name: method.as_json() for name, method in self.methods.items()}
        correlations = {
            name: {str(k): {"rho": c.rho, "p": c.p, "n": c.n} for k, c in by_shots.items()}
            for name, by_shots in self.correlations.items()
        }
        results = next(iter(by_method.values())) if len(by_method) == 1 else {"methods": by_method}
        far = {str(k): loss for k, loss in far_from_converged(self).items()}
        return {**results, "correlations": correlations, "far_from_converged": far}


def forward_transfer(
    groups: Mapping[str, Sequence[Experiment]],
    fields: Grid | None = None,
    *,
    probe: TransferSpec | None = None,
    metric: str = "AvgLAcc",
    on: SelectOn = "validation",
    held_out: float = 0.2,
    upstream: str = "",
) -> Plan[TransferOutcome]:
    """Probe each method's features on the next task after every task but the last.

    Fields are chosen first, by the average learning accuracy on validation data, as in Chen et al. (2023).
    Then, after task j, a linear head is trained on k samples of each class of task j + 1 on fixed features
    (Fwt), all weights of a copy are trained on them (Fwt*, if the probe has learning rates for it), and the
    diversity of the features on the test samples of task j + 1 is measured (FDiv). Averages are over the
    N - 1 tasks after the first. The learning rate and the epochs of fine-tuning are chosen per method and k
    by the mean validation accuracy over tasks and runs; the paper does not say how. With the same seed, every
    method gets the same k samples.

    Args:
        groups: For each method, the experiment, once per seed.
        fields: Fields to choose first; the same for all methods.
        probe: How to probe.
        metric: The metric to choose fields by.
        on: The data to choose fields on.
        held_out: The share of training samples used for validation, if anything is chosen on validation data.
        upstream: The data set that the start was pretrained on: after each task, the accuracy of the
            pretrained head on its test set is measured with the current features, at the benchmark's
            resolution.

    Example:
        >>> from engram.protocols.drive import drive
        >>> from engram.record.tables import Tables
        >>> from engram.engine.recipe import experiment
        >>> def made_up(experiments):
        ...     metrics = {"AvgFgt": -0.2, "AvgAcc": 0.7, "AvgLAcc": 0.9}
        ...     readings = ((9, 0, 1, "Fwt 5", 0.8), (18, 1, 2, "Fwt 5", 0.6), (9, 0, 1, "FDiv", 3.0))
        ...     tables = Tables(readings=readings)
        ...     return [Run(planned=planned, stored=metrics, tables=tables) for planned in experiments]
        >>> probe = TransferSpec(shots=(5,))
        >>> plan = forward_transfer({"er": [experiment("split-digits", "er")]}, probe=probe)
        >>> results = drive(plan, made_up).as_json()
        >>> results["AvgFwt"], results["AvgFDiv"], results["AvgFgt"]
        ({'5': 0.7}, 3.0, -0.2)
    """
    probe = probe or TransferSpec()
    if not groups or not all(groups.values()):
        raise InputError("forward transfer needs at least one experiment for each method, one per seed")
    metric = metric_name(metric, [base for bases in groups.values() for base in bases])
    methods: dict[str, MethodTransfer] = {}
    for name, bases in groups.items():
        methods[name] = yield from _method_transfer(
            bases, fields, probe, metric=metric, on=on, held_out=held_out, upstream=upstream
        )
    return TransferOutcome(methods, _correlations(methods, probe.shots))


def _method_transfer(
    bases: Sequence[Experiment],
    fields: Grid | None,
    probe: TransferSpec,
    *,
    metric: str,
    on: SelectOn,
    held_out: float,
    upstream: str,
) -> Plan[MethodTransfer]:
    """Choose the fields of one method, and probe the choice."""
    if len(bases[0].scenario.phases) < 2:
        raise InputError(f"forward transfer needs at least two tasks: {bases[0].scenario.name} has one")
    chosen: Sequence[Experiment] = bases
    candidates: tuple[Candidate, ...] = ()
    choice: JsonObject = {}
    if probe.tuned_lrs or (fields and on == "validation"):
        chosen = [with_validation(base, held_out) for base in bases]
    if fields:
        search = yield from grid(chosen, fields, metric=metric, on=on, held_out=held_out)
        chosen = [result.experiment for result in search.results]
        candidates, choice = search.candidates, search.choice
    results = yield [
        replace(planned, evaluation=replace(planned.evaluation, transfer=probe, upstream=upstream))
        for planned in chosen
    ]
    runs = [finished(result) for result in results]
    tuned = {k: _tuning(runs, probe, k) for k in probe.shots} if probe.tuned_lrs else {}
    choices = selected("fields", candidates, phases=bases[0].scenario.phases)
    if tuned:
        # This tunes the probe: it does not change what the learner does.
        tried = len(probe.tuned_lrs) * len(probe.tuned_epochs)
        choices += (Selected("the probe's fine-tuning", tried, ("validation",), later=False),)
    return MethodTransfer(
        candidates,
        choice,
        tuned,
        tuple(_run_transfer(run, probe, tuned) for run in runs),
        choices,
        tuple(runs),
    )


def spearman(x: Sequence[float], y: Sequence[float]) -> Correlation:
    """Spearman's ρ: the correlation of ranks, ties sharing their mean rank, with its p-value.

    Pairs with a NaN are left out. With up to nine pairs the p-value is exact: the share of all orders of one
    side whose correlation is as far from 0. With more it is that of Student's t, as in Chen et al. (2023),
    but never below that of one order and its reverse, 2 / n!.

    Example:
        >>> correlation = spearman([1, 2, 3, 4, 5], [1, 2, 4, 3, 5])
        >>> round(correlation.rho, 6), round(correlation.p, 4), correlation.n
        (0.9, 0.0833, 5)
        >>> round(spearman([1, 2, 3, 4], [5, 6, 7, 8]).p, 4)  # 2 of 24 orders
        0.0833
        >>> spearman([1, 1, 1], [1, 2, 3]).rho
        nan
    """
    from scipy.stats import rankdata, spearmanr

    pairs = [(a, b) for a, b in zip(x, y, strict=True) if not (math.isnan(a) or math.isnan(b))]
    n = len(pairs)
    if n < 2 or any(len({pair[side] for pair in pairs}) == 1 for side in (0, 1)):
        return Correlation(math.nan, math.nan, n)
    known = np.array(pairs, dtype=np.float64)
    tested = spearmanr(known[:, 0], known[:, 1])
    if n <= 2:
        p = math.nan
    elif n <= EXACT_UP_TO:
        p = _share_of_orders(rankdata(known[:, 0]), rankdata(known[:, 1]))
    else:
        p = max(float(tested.pvalue), 2 / math.factorial(n))
    return Correlation(float(tested.statistic), p, n)


def _share_of_orders(x: npt.NDArray[np.float64], y: npt.NDArray[np.float64]) -> float:
    """The share of all orders of `y` that correlate with `x` at least as strongly as this one."""
    centred = x - x.mean()
    strength = np.abs(y[_orders(len(y))] @ centred)
    return float(np.mean(strength >= abs(y @ centred) - 1e-9))


@lru_cache(maxsize=2)
def _orders(n: int) -> npt.NDArray[np.int8]:
    return np.array(list(permutations(range(n))), dtype=np.int8)


def _correlations(
    methods: Mapping[str, MethodTransfer], shots: Sequence[int]
) -> dict[str, dict[int, Correlation]]:
    runs = [run for method in methods.values() for run in method.runs]
    against = {
        "AvgFgt": [run.matrix["AvgFgt"] for run in runs],
        "AvgFDiv": [run.diversity for run in runs],
    }
    return {
        name: {k: spearman(values, [run.linear[k] for run in runs]) for k in shots}
        for name, values in against.items()
    }


def _run_transfer(result: Run, probe: TransferSpec, tuned: Mapping[int, tuple[float, int]]) -> RunTransfer:
    return RunTransfer(
        result.experiment.id,
        result.experiment.seed,
        {k: _mean(result, probe_name(k)) for k in probe.shots},
        {
            k: _mean(result, tuned_name(k, lr=lr, epochs=epochs, on="test"))
            for k, (lr, epochs) in tuned.items()
        },
        _mean(result, "FDiv"),
        {name: result.metric(name) for name in FROM_MATRIX},
        (*result.reading(UPSTREAM_START).values(), *result.reading(UPSTREAM).values()),
        {k: _mean(result, name) for k in probe.shots if result.reading(name := probe_loss_name(k))},
    )


def far_from_converged(outcome: TransferOutcome) -> dict[int, float]:
    """The shots whose probes are far from converged, and the greatest share of a guess's loss that is left.

    Their AvgFwt tells more about the probe's learning rate and epochs than about the features.

    Example:
        >>> run = RunTransfer("a", 0, {5: 0.5, 20: 0.9}, {}, 3.0, {}, probe_loss={5: 0.98, 20: 0.3})
        >>> method = MethodTransfer((), {}, {}, (run,))
        >>> far_from_converged(TransferOutcome({"er": method}, {}))
        {5: 0.98}
    """
    left: dict[int, float] = {}
    for run in (run for method in outcome.methods.values() for run in method.runs):
        for shots, loss in run.probe_loss.items():
            # Not finite where the probe diverged.
            if not loss <= FAR_FROM_CONVERGED:
                left[shots] = max(left.get(shots, loss), loss)
    return left


def _tuning(runs: Sequence[Run], probe: TransferSpec, shots: int) -> tuple[float, int]:
    """The learning rate and the epochs of fine-tuning with the best mean validation accuracy."""
    settings = [(lr, epochs) for lr in probe.tuned_lrs for epochs in probe.tuned_epochs]

    def score(setting: tuple[float, int]) -> float:
        name = tuned_name(shots, lr=setting[0], epochs=setting[1], on="validation")
        return float(np.mean([_mean(run, name) for run in runs]))

    return max(settings, key=score)


def _mean(result: Run, name: str) -> float:
    """The mean of a reading over tasks."""
    return mean_of_known(np.array(list(result.reading(name).values()), dtype=np.float64))


def _interval(values: Sequence[float], bounds: Bounds | None) -> JsonObject:
    return over_seeds(values, bounds=bounds).as_json()
