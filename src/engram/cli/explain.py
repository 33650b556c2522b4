"""`engram explain`: what a number means, where it comes from, and what others mean by the same name."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated

import typer

from engram.cli.options import Plugin, load_own

if TYPE_CHECKING:
    from rich.text import Text

    from engram.metrics.explanation import Explanation
    from engram.metrics.families import Comparison


def explain(
    name: Annotated[str, typer.Argument(help="A metric (WC-ACC, WF10, forgetting) or a method (ewc).")],
    plugin: Plugin = None,
) -> None:
    """Explain a metric or a method: definition or rule, source, and a worked example or its fields."""
    from engram.cli.output import stdout
    from engram.core.errors import InputError, unknown_name
    from engram.methods import METHODS
    from engram.metrics import METRICS
    from engram.metrics.explanation import explain_name
    from engram.metrics.registry import find

    load_own(plugin)
    if name in METHODS:
        _print_method(name)
        return
    try:
        find(name)
    except InputError:
        raise unknown_name("name", name, [*METRICS, *METHODS]) from None
    explanations, comparison = explain_name(name)
    for explanation in explanations:
        _print_explanation(explanation)
    if comparison:
        _print_comparison(comparison)
    stdout.print()


def _print_method(name: str) -> None:
    from inspect import getdoc

    from rich.table import Table

    from engram.cli.output import stdout
    from engram.methods import METHODS, traits_of
    from engram.methods.fields import fields_of

    found, traits = METHODS[name], traits_of(name)
    stdout.print()
    stdout.print(_verbatim(f"{name}: {traits.family}"), style="bold")
    stdout.print(_verbatim(_flowing(getdoc(found) or "")))
    facts = Table.grid(padding=(0, 2))
    facts.add_column(style="dim")
    facts.add_column()
    if traits.paper:
        facts.add_row("paper", _verbatim(traits.paper))
    facts.add_row("needs", _verbatim(", ".join(traits.usual_needs) or "nothing beyond the stream"))
    for field in fields_of(found):
        facts.add_row(field.name, _verbatim(f"{field.doc} ({field.type}; {field.default})"))
    stdout.print()
    stdout.print(facts)
    stdout.print()


def _print_explanation(explanation: Explanation) -> None:
    from rich.table import Table

    from engram.cli.output import stdout

    page = Table.grid(padding=(0, 2))
    page.add_column(style="dim")
    page.add_column()
    for label, text in explanation.lines.items():
        page.add_row(label, _verbatim(text))
    stdout.print()
    stdout.print(_verbatim(explanation.heading), style="bold")
    stdout.print(page)


def _print_comparison(comparison: Comparison) -> None:
    from rich.table import Table

    from engram.cli.output import stdout

    stdout.print()
    stdout.print(_verbatim(f"One name, many numbers: {comparison.name!r} of one matrix"), style="bold")
    stdout.print(_verbatim(comparison.cells))
    table = Table("metric; other tools", "how")
    table.add_column("value", justify="right")
    for variant in comparison.variants:
        table.add_row(_verbatim(variant.who), _verbatim(variant.how), f"{variant.value:.4f}")
    stdout.print(table)


def _flowing(text: str) -> str:
    """Text without the line ends of the source; lists, examples and lines as `Source:` begin anew.

    Example:
        >>> _flowing("One\\ntwo.\\nSource: here.\\n\\n- a\\n- b")
        'One two.\\nSource: here.\\n\\n- a\\n- b'
    """
    return re.sub(r"(?<!\n)\n(?![\n\s\-]|[A-Z]\w*:|>>>)", " ", text)


def _verbatim(text: str) -> Text:
    """Text in which brackets are brackets: formulas would otherwise be read as markup."""
    from rich.text import Text

    return Text(text)
