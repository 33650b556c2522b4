"""Do the statistics keep what they promise? Coverage, false positives and power, by simulation."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import combinations
from typing import Final, Literal

import numpy as np
import numpy.typing as npt

from benchmarks.report import Figure, Options, Report
from engram.metrics.intervals import over_seeds
from engram.metrics.paired import LEVEL, Test, holm, p_values
from engram.metrics.spending import level_of_look

Array = npt.NDArray[np.float64]
Draw = Callable[[np.random.Generator, tuple[int, int]], Array]

COVERED: Final = 91.0

_NONE: Final = 1e-12
"""A resolution so fine that the t test is the plain one."""


def measure(options: Options) -> list[Report]:
    """Simulate intervals, tests, looks and families of tests."""
    draws = 4000 if options.quick else 20_000
    return [
        intervals(draws),
        collapses(draws),
        quantised(draws),
        extended_looks(draws),
        several_metrics(draws),
        several_methods(draws // 4),
    ]


def intervals(draws: int) -> Report:
    """Coverage of 95 % intervals of means near 0 and 1."""
    report = Report("95 % intervals of a mean accuracy near 0 or 1: how often they include it")
    for name, draw, mean in _near_bounds():
        for n in (3, 5, 10):
            samples = draw(np.random.default_rng(n), (draws, n))
            logit = [over_seeds(row, bounds=(0, 1)).ci95 for row in samples]
            student = [over_seeds(row).ci95 for row in samples]
            left = np.mean([low < 0 or high > 1 for low, high in student])
            note = f"t interval {100 * _covered(student, mean):.1f} %, leaves [0, 1] in {100 * left:.0f} %"
            covered = _covered(logit, mean)
            report.figures.append(share(f"{name}, {n} seeds", covered, draws, target=COVERED, note=note))
    for n in (3, 5, 10):
        # Half a wrong answer per run: often all seeds are perfect.
        samples = np.random.default_rng(n).binomial(500, 0.999, (draws, n)) / 500
        known = [over_seeds(row, bounds=(0, 1), resolution=1 / 500).ci95 for row in samples]
        unknown = [over_seeds(row, bounds=(0, 1)).ci95 for row in samples]
        report.figures.append(
            share(
                f"0.999 of 500 test samples, {n} seeds",
                _covered(known, 0.999),
                draws,
                target=COVERED,
                note=f"without the resolution {100 * _covered(unknown, 0.999):.1f} %",
            )
        )
    return report


def _near_bounds() -> list[tuple[str, Draw, float]]:
    """Distributions of accuracies near 0 or 1, with their means."""
    drawn = 1 / (1 + np.exp(-np.random.default_rng(0).normal(3, 0.7, 2_000_000)))
    return [
        ("beta(30, 1)", lambda random, shape: random.beta(30, 1, shape), 30 / 31),
        ("beta(95, 5)", lambda random, shape: random.beta(95, 5, shape), 0.95),
        ("beta(1, 20)", lambda random, shape: random.beta(1, 20, shape), 1 / 21),
        (
            "logit-normal(3, 0.7)",
            lambda random, shape: 1 / (1 + np.exp(-random.normal(3, 0.7, shape))),
            drawn.mean(),
        ),
    ]


def collapses(draws: int) -> Report:
    """The sign-flip test where differences are symmetric, and where they are not."""
    report = Report("sign-flip test at 5 %: false positives with equal means, and power")
    for n in (6, 8, 10):
        random = np.random.default_rng(n)
        normal, heavy = random.normal(size=(draws, n)), random.standard_t(2, (draws, n))
        noise = random.normal(0, 0.005, (draws, n))
        report.figures += [
            share(f"normal differences, {n} seeds", _rejected(normal), draws, held=True),
            share(f"heavy tails, {n} seeds", _rejected(heavy), draws, held=True),
            *(
                share(
                    f"one collapse in {rare} seeds, {n} seeds",
                    # A little better on most seeds; on the others a collapse that makes the means equal.
                    _rejected(
                        np.where(random.random((draws, n)) < 1 / rare, 0.02 * (1 - rare), 0.02) + noise
                    ),
                    draws,
                    note="not symmetric: the assumption is broken",
                )
                for rare in (5, 10)
            ),
            share(f"power for d_z = 1.5, {n} seeds", _rejected(normal + 1.5), draws),
        ]
    return report


def quantised(draws: int) -> Report:
    """The t test of differences that are multiples of 1/m."""
    report = Report("t test at 5 %: false positives where a few test samples decide, and power")
    step = 1 / 1000
    for n in (2, 3, 5, 10):
        random = np.random.default_rng(n)
        for sd in (0.5, 1.0, 3.0):
            rows = np.round(random.normal(0, sd, (draws, n))) * step
            with_floor = _rejected(rows, "t", resolution=step)
            note = f"plain t test {100 * _rejected(rows, 't', resolution=_NONE):.1f} %"
            report.figures.append(
                share(f"SD of {sd:g} test samples, {n} seeds", with_floor, draws, held=True, note=note)
            )
        rows = np.where(random.random((draws, n)) < 0.5, step, -step)
        report.figures.append(
            share(
                f"one test sample up or down, {n} seeds",
                _rejected(rows, "t", resolution=step),
                draws,
                held=True,
                note=f"plain t test {100 * _rejected(rows, 't', resolution=_NONE):.1f} %",
            )
        )
    for n in (3, 5):
        rows = np.round(np.random.default_rng(n).normal(20, 5, (draws, n))) * step
        report.figures.append(
            share(
                f"power: 20 ± 5 of 1,000 test samples, {n} seeds",
                _rejected(rows, "t", resolution=step),
                draws,
                note=f"plain t test {100 * _rejected(rows, 't', resolution=_NONE):.1f} %",
            )
        )
    return report


def extended_looks(draws: int) -> Report:
    """Comparisons that are repeated with more seeds, with and without a plan."""
    report = Report("more seeds after a look: false positives and power, at 5 % in all")
    tests: tuple[Test, ...] = ("sign-flip", "t")
    for test in tests:
        for looks in ((6, 12), (6, 9, 12), (9, 18)):
            rows = np.random.default_rng(looks[-1]).normal(size=(draws, looks[-1]))
            p = {seeds: p_values(rows[:, :seeds], test)[0] for seeds in looks}
            better = {seeds: p_values(rows[:, :seeds] + 1, test)[0] for seeds in looks}
            naive = np.any([p[seeds] <= LEVEL for seeds in looks], axis=0).mean()
            planned = np.any([p[seeds] <= level_of_look(looks, seeds) for seeds in looks], axis=0).mean()
            power = np.any([better[seeds] <= level_of_look(looks, seeds) for seeds in looks], axis=0).mean()
            once = (better[looks[-1]] <= LEVEL).mean()
            name = f"{test}, {' → '.join(map(str, looks))} seeds"
            report.figures += [
                share(f"{name}, each look at 5 %", float(naive), draws, note="what the warning is about"),
                share(f"{name}, planned", float(planned), draws, held=True),
                share(
                    f"{name}, planned: power for d_z = 1",
                    float(power),
                    draws,
                    note=f"one look at the end {100 * once:.1f} %",
                ),
            ]
    return report


def several_metrics(draws: int) -> Report:
    """Four metrics of two methods that are equally good."""
    report = Report("four metrics, two equal methods, 8 seeds: any false positive at 5 %")
    random = np.random.default_rng(4)
    for correlation in (0.0, 0.3, 0.6):
        common = random.normal(size=(draws, 1, 8))
        own = random.normal(size=(draws, 4, 8))
        rows = math.sqrt(correlation) * common + math.sqrt(1 - correlation) * own
        p = p_values(rows.reshape(-1, 8), "sign-flip")[0].reshape(draws, 4)
        together = np.mean([min(holm(row)) <= LEVEL for row in p])
        name = f"correlation {correlation:g}"
        report.figures += [
            share(f"{name}, uncorrected", float((p <= LEVEL).any(axis=1).mean()), draws),
            share(f"{name}, primary metric only", float((p[:, 0] <= LEVEL).mean()), draws, held=True),
            share(f"{name}, corrected together", float(together), draws, held=True),
        ]
    return report


def several_methods(draws: int) -> Report:
    """Six methods: all pairs, and all against one."""
    report = Report("six methods, 12 seeds: any false positive at 5 %, and power for d_z = 1.5")
    random = np.random.default_rng(6)
    values = random.normal(0, 2, (draws, 1, 12)) + random.normal(size=(draws, 6, 12))
    all_pairs = list(combinations(range(6), 2))
    with_first = [(0, other) for other in range(1, 6)]
    # Differences of two methods have an SD of √2.
    shift = np.zeros((1, 6, 1))
    shift[0, 0] = 1.5 * math.sqrt(2)
    for name, pairs in (("all 15 pairs", all_pairs), ("5 pairs with a baseline", with_first)):
        equal, better = (_family(data, pairs) for data in (values, values + shift))
        raw = _family(values, pairs, corrected=False)
        report.figures += [
            share(f"{name}, uncorrected", float((raw <= LEVEL).any(axis=1).mean()), draws),
            share(f"{name}, Holm", float((equal <= LEVEL).any(axis=1).mean()), draws, held=True),
            share(f"{name}, Holm: power for one of them", float((better[:, 0] <= LEVEL).mean()), draws),
        ]
    return report


def _family(values: Array, pairs: list[tuple[int, int]], *, corrected: bool = True) -> Array:
    """The p-values of some pairs of methods, one row per table."""
    first, second = np.array(pairs).T
    rows = values[:, first] - values[:, second]
    p = p_values(rows.reshape(-1, rows.shape[-1]), "sign-flip")[0].reshape(len(values), len(pairs))
    return np.array([holm(row) for row in p]) if corrected else p


def _covered(edges: list[tuple[float, float]], mean: float) -> float:
    return float(np.mean([low <= mean <= high for low, high in edges]))


def _rejected(rows: Array, test: Test = "sign-flip", *, resolution: float = 0.0) -> float:
    return float((p_values(rows, test, resolution=resolution)[0] <= LEVEL).mean())


def share(
    what: str,
    value: float,
    draws: int,
    *,
    held: bool = False,
    target: float | None = None,
    note: str = "",
) -> Figure:
    """A share in percent, with the range that chance gives it (± 1.96 standard errors).

    Args:
        what: What was simulated.
        value: The share.
        draws: The number of simulations.
        held: Whether it should be at most the level, up to three standard errors of the simulation.
        target: What it should be at least, in percent.
        note: A remark for the table.
    """
    if held:
        target = 100 * LEVEL + 300 * math.sqrt(LEVEL * (1 - LEVEL) / draws)
    error = 196 * math.sqrt(value * (1 - value) / draws)
    low, high = max(0.0, 100 * value - error), min(100.0, 100 * value + error)
    bound: Literal["at most", "at least"] = "at most" if held else "at least"
    return Figure(what, 100 * value, low, high, draws, "%", target, bound, note)
