"""The forgetting gate: what changed from an old model to a new one, and whether that is acceptable."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, get_args

import numpy as np

from engram.core.errors import InputError
from engram.core.folder import finite
from engram.core.jsons import JsonObject
from engram.metrics.flips import LEVEL, change_interval, exact_test, share_bounds, smallest_drop
from engram.metrics.paired import holm
from engram.results.gate.pairs import Counted, Pairs, count

Quantity = Literal["max-drop", "max-flips", "max-worst-slice-drop"]
Shown = Literal["safe", "harm"]

LEAST_LEVEL: Final = 1e-9
"""Below it, 1 - level divided among many slices is not told apart from 1."""

MEANING: Final = {
    "safe": "fails unless it is shown that the value is within the limit",
    "harm": "fails only if it is shown that the value is beyond the limit",
}


@dataclass(frozen=True, slots=True)
class Rule:
    """A limit that the new model must keep.

    Attributes:
        quantity: What is limited: the drop of accuracy on all samples, the share of samples that were lost
            (negative flips), or the largest drop of any slice.
        limit: The limit, as a fraction.
        shown: `safe` fails unless it is shown that the value is within the limit; `harm` fails only if it is
            shown that the value is beyond it.
    """

    quantity: Quantity
    limit: float
    shown: Shown = "safe"

    def __str__(self) -> str:
        unit = "%" if self.quantity == "max-flips" else "pp"
        return f"{self.quantity} {100 * self.limit:g}{unit} ({self.shown})"


@dataclass(frozen=True, slots=True)
class Change:
    """What happened to one slice.

    Attributes:
        name: The slice.
        total: Its samples.
        before: The old model's accuracy.
        after: The new model's accuracy.
        lost: Samples that only the old model classifies correctly (negative flips).
        gained: Samples that only the new model classifies correctly (positive flips).
        low: Lower end of the interval of the change of accuracy.
        high: Upper end.
        p: The p-value of the exact paired test that nothing changed.
        p_holm: The same, corrected over all slices; for all samples, `p` itself.
        smallest_drop: The smallest drop that this many samples would have shown; NaN if none.
    """

    name: str
    total: int
    before: float
    after: float
    lost: int
    gained: int
    low: float
    high: float
    p: float
    p_holm: float
    smallest_drop: float

    @property
    def change(self) -> float:
        """The accuracy after minus the accuracy before."""
        return (self.gained - self.lost) / self.total


@dataclass(frozen=True, slots=True)
class Judgement:
    """Whether a rule holds.

    Attributes:
        rule: The rule.
        passed: Whether it holds.
        value: The observed value.
        bound: The one-sided confidence bound that decides: the upper one for `safe`, the lower for `harm`.
        slice: The slice that decides.
        reason: One sentence for people.
    """

    rule: Rule
    passed: bool
    value: float
    bound: float
    slice: str
    reason: str


@dataclass(frozen=True, slots=True)
class Gate:
    """The outcome of comparing two models sample by sample.

    Attributes:
        old: Where the old model's answers come from.
        new: Where the new model's answers come from.
        overall: All samples.
        slices: Every slice, the largest drop first.
        judgements: The rules, judged.
        level: One minus the confidence of every statement.
        too_small: How many slices were left out because they are too small.
        pairs: The answers themselves.
    """

    old: str
    new: str
    overall: Change
    slices: tuple[Change, ...]
    judgements: tuple[Judgement, ...]
    level: float
    too_small: int
    pairs: Pairs

    @property
    def passed(self) -> bool:
        """Whether all rules hold."""
        return all(judgement.passed for judgement in self.judgements)

    def __repr__(self) -> str:
        """The verdict and the numbers of flips."""
        word = "passed" if self.passed else "failed"
        return (
            f"<Gate {word}: {self.overall.total} samples, {self.overall.before:.2%} to "
            f"{self.overall.after:.2%}, {self.overall.lost} lost, {self.overall.gained} gained>"
        )

    def as_json(self) -> JsonObject:
        """The outcome as one JSON object, without the samples."""

        def of_change(change: Change) -> JsonObject:
            fields = {name: getattr(change, name) for name in Change.__dataclass_fields__}
            return {**fields, "change": change.change}

        whole: JsonObject = finite(
            {
                "passed": self.passed,
                "old": self.old,
                "new": self.new,
                "level": self.level,
                "overall": of_change(self.overall),
                "slices": [of_change(change) for change in self.slices],
                "too_small": self.too_small,
                "rules": [
                    {
                        "rule": judgement.rule.quantity,
                        "limit": judgement.rule.limit,
                        "shown": judgement.rule.shown,
                        "passed": judgement.passed,
                        "value": judgement.value,
                        "bound": judgement.bound,
                        "slice": judgement.slice,
                        "reason": judgement.reason,
                    }
                    for judgement in self.judgements
                ],
            }
        )
        return whole


def parse_rule(quantity: Quantity, text: str) -> Rule:
    """A rule from its text on the command line: `1pp`, `0.01`, `1%` (for flips), with `:safe` or `:harm`.

    Raises:
        InputError: The text is not a limit.

    Example:
        >>> print(parse_rule("max-drop", "1pp"), parse_rule("max-flips", "0.5%:harm"))
        max-drop 1pp (safe) max-flips 0.5% (harm)
    """
    number, _, shown = text.strip().partition(":")
    shown = shown or "safe"
    if shown not in get_args(Shown):
        raise InputError(f"--{quantity} ends in :safe or :harm, got {text!r}")
    factor = 1.0
    for unit in ("pp", "%"):
        if number.endswith(unit):
            if unit == "%" and quantity != "max-flips":
                raise InputError(f"--{quantity} is in percentage points: write {number[:-1]}pp, got {text!r}")
            number, factor = number[: -len(unit)], 0.01
    try:
        limit = factor * float(number)
    except ValueError:
        limit = math.nan
    if limit == 0 and shown == "safe":
        raise InputError(f"no number of samples can show a limit of 0: use --{quantity} 0:harm, got {text!r}")
    if not 0 <= limit <= 1:
        example = "1%" if quantity == "max-flips" else "1pp"
        raise InputError(f"--{quantity} must be a limit from 0 to 1 such as {example} or 0.01, got {text!r}")
    if limit == factor == 1:
        meant = "1%" if quantity == "max-flips" else "1pp"
        raise InputError(f"--{quantity} {text} is 100 %, which allows everything: did you mean {meant}?")
    return Rule(quantity, limit, shown)  # type: ignore[arg-type]


def rules_of(
    *,
    max_drop: float | str | None = None,
    max_flips: float | str | None = None,
    max_worst_slice_drop: float | str | None = None,
) -> list[Rule]:
    """The rules for some limits, each a fraction or a text such as `1pp` or `1%:harm`.

    Without any limit, the drop of accuracy must be shown to be at most one percentage point.

    Example:
        >>> print(*rules_of(max_drop=0.02, max_flips="1%:harm"))
        max-drop 2pp (safe) max-flips 1% (harm)
        >>> print(*rules_of())
        max-drop 1pp (safe)
    """
    limits: dict[Quantity, float | str | None] = {
        "max-drop": max_drop,
        "max-flips": max_flips,
        "max-worst-slice-drop": max_worst_slice_drop,
    }
    if all(limit is None for limit in limits.values()):
        limits["max-drop"] = "1pp"
    return [parse_rule(name, str(limit)) for name, limit in limits.items() if limit is not None]


def judge(
    pairs: Pairs,
    rules: Sequence[Rule],
    *,
    level: float = LEVEL,
    min_samples: int | None = None,
    sources: tuple[str, str] = ("old", "new"),
) -> Gate:
    """Compare two models sample by sample, and judge rules.

    Tests and intervals of slices are two-sided with this `level`; p-values are corrected over all slices
    (Holm). Rules use one-sided bounds with confidence 1 - `level`. A worst slice is shown to be safe if every
    single slice is, which needs no correction; it is shown to be harmed if any slice is, which is corrected
    for the number of slices (Bonferroni).

    Args:
        pairs: The answers of both models.
        rules: The rules.
        level: One minus the confidence.
        min_samples: Slices with fewer samples are left out.
        sources: What the two models are called.

    Raises:
        InputError: `level` is not between `LEAST_LEVEL` and 0.5, or a rule about slices has none to judge.
    """
    if not LEAST_LEVEL <= level < 0.5:
        raise InputError(f"level must be at least {LEAST_LEVEL:g} and below 0.5, got {level:g}")
    counted = count(pairs, min_samples=min_samples)
    changes = _changes(counted, level)
    slices = sorted(changes[1:], key=lambda change: (change.change, change.name))
    judgements = [_judged(rule, counted, level) for rule in rules]
    return Gate(*sources, changes[0], tuple(slices), tuple(judgements), level, counted.too_small, pairs)


def _changes(counted: Counted, level: float) -> list[Change]:
    p = exact_test(counted.lost, counted.gained)
    corrected = [float(p[0]), *holm(p[1:])]
    low, high = change_interval(counted.lost, counted.gained, counted.total, level=level)
    # All samples are tested alone, slices at the level that the strictest of them has to pass.
    slices = max(1, len(p) - 1)
    drops = smallest_drop(counted.gained, counted.total, level=level / slices)
    drops[0] = smallest_drop(counted.gained[:1], counted.total[:1], level=level)[0]
    return [
        Change(
            name,
            int(counted.total[row]),
            float(counted.before[row] / counted.total[row]),
            float(counted.after[row] / counted.total[row]),
            int(counted.lost[row]),
            int(counted.gained[row]),
            float(low[row]),
            float(high[row]),
            float(p[row]),
            float(corrected[row]),
            float(drops[row]),
        )
        for row, name in enumerate(counted.names)
    ]


def _judged(rule: Rule, counted: Counted, level: float) -> Judgement:
    rows = slice(1, None) if rule.quantity == "max-worst-slice-drop" else slice(0, 1)
    names = counted.names[rows]
    if not names:
        raise InputError("max-worst-slice-drop needs slices: add a column to the predictions, or a label")
    lost, gained, total = counted.lost[rows], counted.gained[rows], counted.total[rows]
    safe = rule.shown == "safe"
    one_sided = level if safe else level / len(names)
    if rule.quantity == "max-flips":
        values = lost / total
        lower, upper = share_bounds(lost, total, level=one_sided)
    else:
        values = (lost - gained) / total
        low, high = change_interval(lost, gained, total, level=2 * one_sided)
        lower, upper = -high, -low
    bounds = upper if safe else lower
    # The printed limit is decimal: a bound that equals it is within it.
    beyond = bounds > rule.limit + 1e-12
    worst = int(np.argmax(bounds))
    passed = not beyond.any()
    reason = _reason(
        rule, float(values[worst]), float(bounds[worst]), int(total[worst]), passed=passed, level=level
    )
    if len(names) > 1:
        reason += f"; slice {names[worst]}" + (
            f", {int(beyond.sum())} slices in all" if beyond.sum() > 1 else ""
        )
    return Judgement(rule, passed, float(values[worst]), float(bounds[worst]), names[worst], reason)


def _reason(rule: Rule, value: float, bound: float, total: int, *, passed: bool, level: float) -> str:
    """Why a rule holds or not, in words; a drop below 0 is a rise."""
    what = "share of lost samples" if rule.quantity == "max-flips" else "drop"
    unit = "%" if rule.quantity == "max-flips" else "pp"
    seen = f"observed {'a rise of ' * (value < 0)}{100 * abs(value):.2f}{unit}"
    edge = f"{100 * abs(bound):.2f}{unit} ({100 * (1 - level):g} % confidence)"
    if rule.shown == "harm" and bound < 0:
        return f"no drop is shown: accuracy may have risen by as much as {edge}, {seen}"
    if rule.shown == "harm":
        return f"the {what} is at least {edge}, {seen}"
    if passed and bound < 0:
        return f"accuracy rose by at least {edge}, {seen}"
    if passed:
        return f"the {what} is at most {edge}, {seen}"
    needed = samples_needed(rule, level=level)
    more = f"; with {total:,} samples it cannot be shown, at least {needed:,} are needed" * (total < needed)
    return f"the {what} may be as large as {edge}, {seen}{more}"


def samples_needed(rule: Rule, *, level: float = LEVEL) -> int:
    """How many samples are needed to show that a limit is kept, if no sample flips at all.

    Example:
        >>> samples_needed(parse_rule("max-drop", "1pp")), samples_needed(parse_rule("max-flips", "1%"))
        (268, 299)
    """
    from scipy.stats import norm

    if rule.quantity == "max-flips":
        return math.ceil(math.log(level) / math.log1p(-rule.limit)) if rule.limit < 1 else 1
    squared = float(norm.ppf(1 - level)) ** 2
    return max(1, math.ceil(squared * (1 / rule.limit - 1)))
