"""The verbs, gathered."""

import typer

from engram.cli.audit import audit
from engram.cli.compare import compare
from engram.cli.data import data
from engram.cli.demo import demo
from engram.cli.explain import explain
from engram.cli.listing import list_
from engram.cli.metrics import metrics
from engram.cli.protocol import protocol
from engram.cli.report import report
from engram.cli.reproduce import reproduce
from engram.cli.run import run
from engram.cli.sweep import sweep
from engram.cli.verify import verify

app = typer.Typer(
    name="engram",
    help="Measures what a neural network remembers while it keeps learning.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

app.command()(run)
app.command()(sweep)
app.command()(protocol)
app.command()(reproduce)
app.command()(report)
app.command()(compare)
app.command()(audit)
app.command()(metrics)
app.command()(explain)
app.command("list")(list_)
app.command()(data)
app.add_typer(verify, name="verify")
app.command()(demo)
