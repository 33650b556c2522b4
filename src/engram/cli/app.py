"""The command line's verbs: where each one is, and under which heading the help lists it."""

from __future__ import annotations

from typing import Annotated, ClassVar

import typer

from engram.cli.arrange import Quiet, Verbose
from engram.cli.output import set_verbosity
from engram.cli.verbs import LazyVerb, Verbs, group_of_verbs

TRAIN, RESULTS, LOOK_UP = "Train and evaluate", "Look at results", "Look things up"


class _Engram(Verbs):
    lazy: ClassVar = {
        "demo": LazyVerb(
            "engram.cli.demo:demo",
            "Run fine-tuning, ER and EWC on Split-Digits with three seeds, and write a report.",
            TRAIN,
        ),
        "run": LazyVerb(
            "engram.cli.run:run",
            "Run METHOD on SCENARIO, evaluate it while it learns, and summarise over seeds.",
            TRAIN,
        ),
        "sweep": LazyVerb(
            "engram.cli.sweep:sweep",
            "Run every combination in FILE that has not been run yet; exit 1 if any of them fails.",
            TRAIN,
        ),
        "protocol": LazyVerb(
            "engram.cli.protocol:protocol",
            "Choose and compare by a paper's protocol, and keep every run that it needs.",
            TRAIN,
        ),
        "reproduce": LazyVerb(
            "engram.cli.reproduce:reproduce",
            "Run what is missing of a table or figure, and show it beside the published one.",
            TRAIN,
        ),
        "status": LazyVerb(
            "engram.cli.status:status",
            "Say which runs of FOLDER are done, under way, failed and left, and how long the rest takes.",
            RESULTS,
        ),
        "report": LazyVerb(
            "engram.cli.report:report",
            "Write one self-contained HTML page about finished runs.",
            RESULTS,
        ),
        "compare": LazyVerb(
            "engram.cli.compare:compare",
            "Compare methods on the same scenario, paired by seed: ranking, tests, effect sizes.",
            RESULTS,
        ),
        "table": LazyVerb(
            "engram.cli.table:table",
            "Lay out finished runs as a table: experiments by metrics, over seeds, one block per scenario.",
            RESULTS,
        ),
        "gate": LazyVerb(
            "engram.cli.gate:gate",
            "Compare two models sample by sample; exit 1 unless the new one is shown to keep the limits.",
            RESULTS,
        ),
        "history": LazyVerb(
            "engram.cli.history:history",
            "Write a page about many versions of a model: slices over time, samples lost and back.",
            RESULTS,
        ),
        "flips": LazyVerb(
            "engram.cli.flips:flips",
            "Count the samples that were lost and gained between two moments of a run.",
            RESULTS,
        ),
        "gaps": LazyVerb(
            "engram.cli.gaps:gaps",
            "List every stability gap of a run: one row per task switch and earlier task.",
            RESULTS,
        ),
        "samples": LazyVerb(
            "engram.cli.samples:samples",
            "Count how often each test sample was forgotten; list those never and always known.",
            RESULTS,
        ),
        "autopsy": LazyVerb(
            "engram.cli.autopsy:autopsy",
            "Write a page about the deepest dip of a run: what fell, why, and how it came back.",
            RESULTS,
        ),
        "zoom": LazyVerb(
            "engram.cli.zoom:zoom",
            "Learn a stretch of a run again, to the same bits, and evaluate every update of it.",
            RESULTS,
        ),
        "compute": LazyVerb(
            "engram.cli.compute:compute",
            "Compare methods at equal compute: accuracy over counted operations instead of updates.",
            RESULTS,
        ),
        "audit": LazyVerb(
            "engram.cli.audit:audit",
            "Print the protocol card of finished runs: measured during the run, not declared.",
            RESULTS,
        ),
        "compact": LazyVerb(
            "engram.cli.compacting:compact",
            "Write finished runs to few Parquet files, which other commands read like the folder.",
            RESULTS,
        ),
        "import": LazyVerb(
            "engram.cli.importing:import_",
            "Turn the log of another tool into a table for `engram metrics`.",
            RESULTS,
        ),
        "metrics": LazyVerb(
            "engram.cli.metrics:metrics",
            "Compute all metrics of an evaluation table, an accuracy matrix or a run.",
            RESULTS,
        ),
        "list": LazyVerb(
            "engram.cli.listing:list_",
            "List scenarios, models, methods, metrics, data sets or optimizers.",
            LOOK_UP,
        ),
        "explain": LazyVerb(
            "engram.cli.explain:explain",
            "Explain a metric, method, scenario, model, setting, data set, card question or verdict.",
            LOOK_UP,
        ),
        "data": LazyVerb(
            "engram.cli.data:data",
            "List data sets and where each was found; or download and check one.",
            LOOK_UP,
        ),
        "verify": LazyVerb("engram.cli.verify:verify", "Checks that anybody can repeat.", LOOK_UP),
    }


app = group_of_verbs(
    "engram",
    "Measures what a neural network remembers while it keeps learning.",
    _Engram,
    epilog="Start with `engram demo`, which takes less than a minute.",
    completion=True,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from engram import __version__

        typer.echo(f"engram {__version__}")
        raise typer.Exit


@app.callback()
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
