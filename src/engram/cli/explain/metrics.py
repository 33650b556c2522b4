"""`engram explain` about metrics: the definition, a worked example, and what others mean by the same name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text

from engram.cli.explain.value import Explanation
from engram.cli.output import stdout
from engram.cli.tables import Column, print_table
from engram.core.errors import InputError

if TYPE_CHECKING:
    from engram.metrics.definitions import Comparison, Definition


def metric_names() -> list[str]:
    """The names of metrics, and those that several metrics share."""
    from engram.metrics.definitions import names

    return list(names())


def explain_metrics(name: str) -> tuple[list[Explanation], Comparison | None]:
    """The metrics that go by a name, and the numbers that others compute under it; nothing for other names.

    Example:
        >>> explanations, comparison = explain_metrics("forgetting")
        >>> [explanation.name for explanation in explanations], comparison.name
        (['FORG', 'AF', 'AvgFgt', 'BWT'], 'forgetting')
        >>> explain_metrics("ewc")
        ([], None)
    """
    from engram.metrics.definitions import compare, find

    try:
        definitions = find(name)
    except InputError:
        return [], None
    # A name that several metrics share is compared under that name, a metric of its own under its family's.
    family = name if len(definitions) > 1 else definitions[0].family
    return [_explained(definition) for definition in definitions], compare(family)


def _explained(definition: Definition) -> Explanation:
    example = definition.example()
    return Explanation(
        kind="metric",
        name=definition.name,
        heading=f"{definition.name}: {definition.title}",
        lines={
            "meaning": definition.meaning,
            "formula": definition.formula,
            "source": definition.source,
            "divisor": definition.divisor,
            "direction": definition.direction,
            "NaN": definition.undefined,
            "notes": "\n".join(definition.notes),
            "elsewhere": "\n".join(definition.elsewhere),
            "example": example.cells,
            "": f"{example.working} = {example.value:.6f}",
        },
    )


def show_comparison(comparison: Comparison) -> None:
    """Print the numbers that go by one name, computed from one matrix."""
    stdout.print()
    stdout.print(Text(f"One name, many numbers: {comparison.name!r} of one matrix", "bold"))
    stdout.print(Text(comparison.cells))
    print_table(
        [Column("metric; other tools"), Column("how"), Column("value", right=True)],
        [[variant.who, variant.how, f"{variant.value:.4f}"] for variant in comparison.variants],
    )
