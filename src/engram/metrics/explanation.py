"""The content of `engram explain` and `engram list metrics` for metrics, without formatting."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from engram.core.jsons import JsonObject
from engram.metrics.examples import worked_example
from engram.metrics.families import Comparison, same_name
from engram.metrics.registry import METRICS, Metric, find

_ON_SUBSETS: Final = (
    "An extreme of noisy estimates is biased: a minimum is too low, a largest change too large. Where a "
    "subset of the test samples is evaluated, results also have a corrected value and a 95 % interval for "
    "the value on the whole test sets, from random parts of the subset (`engram run`, `engram metrics`, the "
    "report, `frame()`). The value as measured stays the metric. With 1,000 samples the correction is small, "
    "and the interval is what to look at. Subsets that are redrawn for every evaluation cannot be corrected. "
    "With `--samples two-level`, the curve between evaluations of all samples is estimated from a part of "
    "them first, and the interval counts that too."
)


@dataclass(frozen=True, slots=True)
class Explanation:
    """The explanation of one metric.

    Attributes:
        heading: Its name and title.
        lines: Non-empty texts by label, in the order in which they are shown.
    """

    heading: str
    lines: dict[str, str]


def explain_metric(metric: Metric) -> Explanation:
    """The definition of a metric, and a worked example that is computed on the fly.

    Raises:
        InputError: The metric is from a plugin, and its function fails on the example.

    Example:
        >>> explanation = explain_metric(METRICS["BWT"])
        >>> explanation.heading, list(explanation.lines)
        ('BWT: backward transfer',
         ['meaning', 'formula', 'source', 'divisor', 'direction', 'range', 'NaN', 'elsewhere', 'example', ''])
        >>> explanation.lines[""]
        '((.75 − .98) + (.60 − .90) + (.85 − .95) + (.90 − .96)) / 4 = -0.172500'
    """
    definition = metric.definition
    example = worked_example(metric)
    lines = {
        "meaning": definition.meaning,
        "formula": definition.formula,
        "source": metric.source,
        "divisor": definition.divisor,
        "direction": metric.direction,
        "range": "" if metric.bounds is None else f"{metric.bounds[0]:g} to {metric.bounds[1]:g}",
        "NaN": definition.undefined,
        "notes": "\n".join(definition.notes),
        "elsewhere": "\n".join(definition.elsewhere),
        "on subsets": "" if metric.extreme is None else _ON_SUBSETS,
        "registered in": "" if metric.is_ours else metric.where,
    }
    if example is not None:
        lines["example"] = example.cells
        lines[""] = f"{example.working or metric.name} = {example.value:.6f}"
    return Explanation(
        f"{metric.name}: {metric.title}", {label: text for label, text in lines.items() if text}
    )


def explain_name(name: str) -> tuple[list[Explanation], Comparison | None]:
    """The metrics that share a name, and what other tools compute under it.

    Raises:
        InputError: There is no such metric; similar names are suggested.

    Example:
        >>> explanations, comparison = explain_name("forgetting")
        >>> len(explanations), comparison.name
        (5, 'forgetting')
    """
    metrics = find(name)
    # A shared name is compared under that name, the name of a single metric under that of its family.
    family = name if len(metrics) > 1 else metrics[0].family
    return [explain_metric(metric) for metric in metrics], same_name(family)


def list_metrics() -> tuple[list[JsonObject], list[str]]:
    """One entry per metric for `engram list metrics`, and one line per metric that could not be loaded.

    Example:
        >>> entries, broken = list_metrics()
        >>> entries[0]["name"], entries[0]["title"], broken
        ('ACC', 'average accuracy', [])
    """
    metrics, broken = METRICS.loaded()
    entries = [
        {
            "name": metric.name,
            "title": metric.title,
            "description": metric.definition.meaning or metric.title,
            "higher_is_better": metric.higher_is_better,
            "needs": list(metric.needs),
            "source": metric.source,
        }
        for metric in metrics.values()
    ]
    return entries, broken
