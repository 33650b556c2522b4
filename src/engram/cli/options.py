"""Options that several verbs share, declared once, and what they have in common before they start."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, cast

import typer

from engram.core.errors import InputError, unknown_name
from engram.record.half_checked import Precision, check_precision

Plugin = Annotated[
    Path | None,
    typer.Option(help="A Python file that registers methods, models, scenarios, data sets or metrics."),
]
Data = Annotated[Path | None, typer.Option(help="Folder with data sets.")]
Out = Annotated[Path, typer.Option("--out", "-o", help="Where runs are kept.")]
Threads = Annotated[int | None, typer.Option(help="Threads to compute with (default: PyTorch's choice).")]
Device = Annotated[str, typer.Option(help="cpu, cuda or mps.")]
PrecisionOption = Annotated[
    str,
    typer.Option(
        "--precision",
        metavar="full|half-checked|auto",
        help="Evaluate in half precision, answers in doubt again in full: the same bits; auto where faster.",
    ),
]
ParallelOption = Annotated[
    str,
    typer.Option(
        "--parallel",
        metavar="auto|off|N|skip[:N]",
        help="Evaluate in N processes beside the learner: the same bits; auto where faster. skip: leave out "
        "evaluations while they are busy.",
    ),
]
Strict = Annotated[
    bool,
    typer.Option("--strict", help="Stop a method that reads or does what it must not; see `engram audit`."),
]
CheckpointEvery = Annotated[
    float | None,
    typer.Option(
        metavar="SECONDS",
        help="Lose at most this many seconds of work if a run is killed.",
        show_default="30, or more so that checkpoints take at most 3 % of the time",
    ),
]
Timeout = Annotated[
    float | None,
    typer.Option(
        metavar="SECONDS",
        help="End a run that completes no update for this many seconds; evaluations and the end of a task "
        "count as part of their update.",
        show_default="never",
    ),
]
SaveWeights = Annotated[
    str | None,
    typer.Option(metavar="final|tasks", help="Keep the weights at the end, or after every task."),
]
KeepCheckpoints = Annotated[
    str | None,
    typer.Option(
        metavar="tasks|N",
        help="Keep checkpoints at the end of every task, or also every N updates, for `engram zoom`.",
    ),
]
Slices = Annotated[
    str | None, typer.Option(help="Columns that are slices, separated by commas (default: all others).")
]
MinSamples = Annotated[int | None, typer.Option(help="Leave out slices with fewer samples.", min=1)]
Score = Annotated[
    str | None, typer.Option(help="For lm-eval, the metric that says what is right (default: the first).")
]
Track = Annotated[
    list[str] | None,
    typer.Option(
        "--track",
        metavar="TRACKER[:WHERE]",
        help="Also log to tensorboard, mlflow or wandb, in a folder, database or server. May be repeated.",
    ),
]
RunPlaces = Annotated[
    list[str], typer.Argument(help="Run folders, folders of runs, or compact stores.", metavar="RUNS")
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


def load_own(plugin: Path | None) -> None:
    """Register what a plugin file declares, if there is one."""
    if plugin is not None:
        from engram.core.plugins import load_plugin

        load_plugin(plugin)


def check_data(folder: Path | None) -> None:
    """Check that a folder with data sets exists, whether or not any of them is read.

    Example:
        >>> check_data(Path("nowhere"))
        Traceback (most recent call last):
        engram.core.errors.InputError: the data folder nowhere is not a folder: name an existing one
    """
    if folder is not None:
        from engram.datasets.find import search_folders

        search_folders(folder)


def start_computing(threads: int | None, device: str) -> None:
    """Prepare torch: threads and memory; and check that the device can be used."""
    from engram.engine.memory import keep_freed_memory
    from engram.engine.threads import prepare_threads

    prepare_threads(threads)
    keep_freed_memory()
    import torch

    usable = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    kind = device.partition(":")[0]
    if not usable.get(kind, False):
        known = " or ".join(name for name in usable if usable[name])
        raise InputError(f"device must be {known} on this machine, got {device!r}")


def check_seconds(checkpoint_every: float | None, timeout: float | None) -> None:
    """Check the options that are durations, before anything heavy is imported.

    Example:
        >>> check_seconds(0.0, None)
        Traceback (most recent call last):
        engram.core.errors.InputError: checkpoint-every must be above 0 seconds, got 0
    """
    for name, seconds in (("checkpoint-every", checkpoint_every), ("timeout", timeout)):
        if seconds is not None and not seconds > 0:
            raise InputError(f"{name} must be above 0 seconds, got {seconds:g}")


def precision_of(word: str) -> Precision:
    """The precision that a word names.

    Example:
        >>> precision_of("half")
        Traceback (most recent call last):
        engram.core.errors.InputError: unknown precision 'half'...
    """
    check_precision(word)
    return cast(Precision, word)


def one_of(name: str, value: str, known: tuple[str, ...]) -> str:
    """A word that must be one of a few."""
    if value not in known:
        raise unknown_name(name, value, known)
    return value
