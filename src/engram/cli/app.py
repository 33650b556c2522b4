"""The verbs, gathered in groups."""

from __future__ import annotations

from typing import Annotated

import typer

from engram.cli.arrange import Quiet, Verbose, arranged, artefact_names, dataset_names, verbs
from engram.cli.audit import audit
from engram.cli.compare import compare
from engram.cli.config import with_config
from engram.cli.data import data
from engram.cli.demo import demo
from engram.cli.explain import all_names, explain
from engram.cli.listing import kind_names, list_
from engram.cli.metrics import metrics
from engram.cli.output import set_verbosity
from engram.cli.protocol import protocol
from engram.cli.report import report
from engram.cli.reproduce import reproduce
from engram.cli.run import run
from engram.cli.sweep import sweep
from engram.cli.verify import verify

TRAIN, RESULTS, LOOK_UP = "Train and evaluate", "Look at results", "Look things up"

app = verbs(
    "Measures what a neural network remembers while it keeps learning.",
    name="engram",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["--help", "-h"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from engram import __version__

        typer.echo(f"engram {__version__}")
        raise typer.Exit


@app.callback(epilog="Start with `engram demo`, which takes less than a minute.")
def _engram(
    version: Annotated[
        bool,
        typer.Option("--version", help="Print the version and exit.", callback=_print_version, is_eager=True),
    ] = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Measures what a neural network remembers while it keeps learning."""
    set_verbosity(quiet=quiet, verbose=verbose)


app.command(rich_help_panel=TRAIN)(arranged(demo))
app.command(rich_help_panel=TRAIN)(arranged(with_config(run)))
app.command(rich_help_panel=TRAIN)(arranged(sweep))
app.add_typer(protocol, name="protocol", rich_help_panel=TRAIN)
app.command(rich_help_panel=TRAIN)(arranged(reproduce, name=artefact_names))
app.command(rich_help_panel=RESULTS)(arranged(report))
app.command(rich_help_panel=RESULTS)(arranged(compare))
app.command(rich_help_panel=RESULTS)(arranged(audit))
app.command(rich_help_panel=RESULTS)(arranged(metrics))
app.command("list", rich_help_panel=LOOK_UP)(arranged(list_, kind=kind_names))
app.command(rich_help_panel=LOOK_UP)(arranged(explain, name=all_names))
app.command(rich_help_panel=LOOK_UP)(arranged(data, name=dataset_names))
app.add_typer(verify, name="verify", rich_help_panel=LOOK_UP)
