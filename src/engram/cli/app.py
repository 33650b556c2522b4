"""The verbs, gathered."""

import typer

app = typer.Typer(
    name="engram",
    help="Measures what a neural network remembers while it keeps learning.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
