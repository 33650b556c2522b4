"""`engram explain`: what a number means, where it comes from, and what others mean by the same name."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated

import typer

from engram.cli.options import Plugin, load_own

if TYPE_CHECKING:
    from rich.text import Text

    from engram.metrics.definitions import Comparison, Definition


def explain(
    name: Annotated[str, typer.Argument(help="A metric (WC-ACC, WF10, forgetting) or a method (ewc).")],
    plugin: Plugin = None,
) -> None:
    """Explain a metric or a method: definition or rule, source, and a worked example or its fields."""
    from engram.cli.output import stdout
    from engram.core.errors import InputError, unknown_name
    from engram.methods import METHODS
    from engram.metrics.definitions import DEFINITIONS, compare, find
    from engram.models import MODELS

    load_own(plugin)
    if name in METHODS:
        _print_method(name)
        return
    if name in MODELS:
        _print_model(name)
        return
    try:
        definitions = find(name)
    except InputError:
        known = [*(definition.name for definition in DEFINITIONS), *METHODS, *MODELS]
        raise unknown_name("name", name, known) from None
    for definition in definitions:
        _print_definition(definition)
    # A name that several metrics share is compared under that name, a metric of its own under its family's.
    family = name if len(definitions) > 1 else definitions[0].family
    comparison = compare(family)
    if comparison:
        _print_comparison(comparison)
    stdout.print()


def _print_method(name: str) -> None:
    from inspect import getdoc

    from rich.table import Table

    from engram.cli.output import stdout
    from engram.methods import METHODS
    from engram.methods.base import fields_of, usual_needs

    found = METHODS[name]
    stdout.print()
    stdout.print(_verbatim(f"{name}: {found.family}"), style="bold")
    stdout.print(_verbatim(_flowing(getdoc(found) or "")))
    facts = Table.grid(padding=(0, 2))
    facts.add_column(style="dim")
    facts.add_column()
    facts.add_row("papers", _verbatim(found.paper or "beyond the five papers"))
    facts.add_row("needs", _verbatim(", ".join(usual_needs(name, found)) or "nothing beyond the stream"))
    for field in fields_of(found):
        facts.add_row(field.name, _verbatim(f"{field.doc} ({field.type}; {field.default})"))
    stdout.print()
    stdout.print(facts)
    stdout.print()


def _print_model(name: str) -> None:
    from inspect import getdoc

    from rich.table import Table

    from engram.cli.output import stdout
    from engram.models import MODELS

    model = MODELS[name]
    stdout.print()
    stdout.print(_verbatim(f"{name}: a network"), style="bold")
    stdout.print(_verbatim(_flowing((getdoc(model.function) or "").partition("Example:")[0].strip())))
    facts = Table.grid(padding=(0, 2))
    facts.add_column(style="dim")
    facts.add_column()
    for option in model.declared:
        default = option.show(option.default)
        facts.add_row(option.name, _verbatim(f"{option.description} ({option.words}; {default})"))
    stdout.print()
    stdout.print(facts)
    stdout.print()


def _print_definition(definition: Definition) -> None:
    from rich.table import Table

    from engram.cli.output import stdout

    example = definition.example()
    page = Table.grid(padding=(0, 2))
    page.add_column(style="dim")
    page.add_column()
    lines = {
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
    }
    for label, text in lines.items():
        if text:
            page.add_row(label, _verbatim(text))
    stdout.print()
    stdout.print(_verbatim(f"{definition.name}: {definition.title}"), style="bold")
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
