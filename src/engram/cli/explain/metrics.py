"""`engram explain` about metrics: the definition, a worked example, and what others mean by the same name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text

from engram.cli.explain.value import Explanation
from engram.cli.output import stdout
from engram.cli.tables import Column, print_table
from engram.core.errors import InputError

if TYPE_CHECKING:
    from engram.metrics.families import Comparison


def metric_names() -> list[str]:
    """The names of metrics, and those that several metrics share."""
    from engram.metrics.registry import names

    return list(names())


def explain_metrics(name: str) -> tuple[list[Explanation], Comparison | None]:
    """The metrics that go by a name, and the numbers that others compute under it; nothing for other names.

    Example:
        >>> explanations, comparison = explain_metrics("forgetting")
        >>> [explanation.name for explanation in explanations], comparison.name
        (['FORG', 'AF', 'FORG-unlearned', 'AvgFgt', 'BWT'], 'forgetting')
        >>> explain_metrics("ewc")
        ([], None)
    """
    from engram.metrics.explanation import explain_name
    from engram.metrics.registry import find

    try:
        metrics = find(name)
    except InputError:
        return [], None
    explanations, comparison = explain_name(name)
    explained = [
        Explanation(kind="metric", name=metric.name, heading=explanation.heading, lines=explanation.lines)
        for metric, explanation in zip(metrics, explanations, strict=True)
    ]
    return explained, comparison


def show_comparison(comparison: Comparison) -> None:
    """Print the numbers that go by one name, computed from one matrix."""
    stdout.print()
    stdout.print(Text(f"One name, many numbers: {comparison.name!r} of one matrix", "bold"))
    stdout.print(Text(comparison.cells))
    print_table(
        [Column("metric; other tools"), Column("how"), Column("value", right=True)],
        [[variant.who, variant.how, f"{variant.value:.4f}"] for variant in comparison.variants],
    )
