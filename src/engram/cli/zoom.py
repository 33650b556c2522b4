"""`engram zoom`: look again at a stretch of a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, cast

import typer

from engram.cli.options import (
    Data,
    Device,
    Json,
    Plugin,
    Threads,
    check_data,
    load_own,
    one_of,
    start_computing,
)
from engram.cli.output import print_json, stderr, stdout
from engram.core.dataset_info import INPUT_KINDS, InputKind
from engram.core.errors import InputError
from engram.core.words import counted
from engram.record.zoom import PARTS

if TYPE_CHECKING:
    from engram.datasets.files import Reading
    from engram.engine.where import Where
    from engram.engine.zoom import Stretch
    from engram.record.run import Run

PAGE: Final = "zoom.html"
ZOOMS: Final = "zooms"
"""The folder in that of a run which holds its zooms."""


def zoom(
    run: Annotated[Path, typer.Argument(help="The folder of a run, or STORE/ID.", metavar="RUN")],
    steps: Annotated[str, typer.Option(metavar="A:B", help="The first and the last update to look at.")],
    every: Annotated[int, typer.Option(help="Evaluate after every N updates.")] = 1,
    samples: Annotated[
        str, typer.Option(metavar="own|all", help="The samples that the run was evaluated on, or all.")
    ] = "own",
    on: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Evaluate on other samples: an npz file, a table or a folder of images; or on the train, "
            "test or validation data of the run.",
        ),
    ] = None,
    own: Annotated[
        list[Path] | None,
        typer.Option("--own", help="The file of your own that the run learned from. May be repeated."),
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="The network of your own that the run used, FILE.py:FACTORY.")
    ] = None,
    weights: Annotated[Path | None, typer.Option(help="The weights that the run started from.")] = None,
    label: Annotated[str | None, typer.Option(help="The column of a table that has the labels.")] = None,
    features: Annotated[
        str | None, typer.Option(help="The columns of a table that are inputs, separated by commas.")
    ] = None,
    inputs: Annotated[str | None, typer.Option(help="What samples of your own are.")] = None,
    test_share: Annotated[
        float | None, typer.Option(help="The share of your own samples that the run was tested on.")
    ] = None,
    size: Annotated[int | None, typer.Option(help="Height and width of images in folders.")] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="The folder to write (default: one in RUN/zooms)."),
    ] = None,
    plugin: Plugin = None,
    data: Data = None,
    device: Device = "cpu",
    threads: Threads = None,
    json: Json = False,
) -> None:
    """Learn a stretch of a run again, to the same bits, and evaluate every update of it.

    Learning starts from the last checkpoint before A that the run kept (`engram run --keep-checkpoints
    tasks`), or from the beginning. The folder holds the evaluations, as a run, and a page. Exits with 1 if
    answers differ from those of the run: another machine, another version of torch.
    """
    first, last = steps_of(steps)
    check_data(data)
    start_computing(threads, device)
    from engram.datasets.files import Reading
    from engram.engine.where import Where
    from engram.engine.zoom import Stretch, check_place, check_stretch, save_zoom
    from engram.results.runs import one_run
    from engram.results.zoom import look_closely
    from engram.results.zoom_page import write_zoom

    columns = tuple(part.strip() for part in (features or "").split(",") if part.strip())
    how = Reading(label=label, features=columns, inputs=kind_of_input(inputs), size=size)
    check_reading(how, [*(own or []), *([Path(on)] if on and on not in PARTS else [])])
    if test_share is not None and not own:
        raise InputError(
            "test-share is of files that the run learned from: name them with --own, or leave it out"
        )
    stretch = Stretch(first=first, last=last, every=every, samples=samples, on=on, how=how)
    load_own(plugin)
    load_files(own or [], model, replace(how, test_share=test_share))
    whole = one_run(run)
    check_stretch(whole, stretch)
    place = place_of(whole, stretch) if out is None else out
    check_place(place, whole)
    made = _made(whole, stretch, Where(out=None, data=data, device=device), weights)
    closely = look_closely(save_zoom(made, place), whole)
    write_zoom(closely, place / PAGE)
    if json:
        print_json({**closely.as_json(), "folder": str(place), "page": str(place / PAGE)})
    else:
        for line in closely.summary():
            stdout.print(line, markup=False, soft_wrap=True)
        stderr.print(f"wrote {place / PAGE}", markup=False, soft_wrap=True)
    if closely.zoom.compared.same is False:
        raise typer.Exit(1)


def steps_of(text: str) -> tuple[int, int]:
    """The updates that `A:B` names.

    Example:
        >>> steps_of("120:180")
        (120, 180)
        >>> steps_of("120")
        Traceback (most recent call last):
        engram.core.errors.InputError: steps must be A:B, the first and the last update, got '120'
    """
    first, _, last = text.partition(":")
    try:
        return int(first), int(last)
    except ValueError:
        raise InputError(f"steps must be A:B, the first and the last update, got {text!r}") from None


def kind_of_input(word: str | None) -> InputKind | None:
    """What samples are said to be."""
    return None if word is None else cast(InputKind, one_of("kind of input", word, INPUT_KINDS))


def check_reading(how: Reading, files: Sequence[Path]) -> None:
    """Refuse columns where no file is a table, and what else no file would be read by.

    Raises:
        InputError: There is none, or a size is not positive.
    """
    from engram.datasets.files import is_table

    if how.size is not None and how.size < 1:
        raise InputError(f"size must be at least 1, got {how.size}")
    if how.size is not None and not any(file.is_dir() for file in files if file.exists()):
        raise InputError("size is that of images in folders, and none was given: leave it out")
    if how.inputs is not None and not files:
        raise InputError("inputs says what samples of your own are, and none were given: leave it out")
    if (how.label is not None or how.features) and not any(is_table(file) for file in files):
        raise InputError("label and features are columns of a table, and none was given: leave them out")


def load_files(own: Sequence[Path], model: str | None, how: Reading) -> None:
    """Register the files of a user's own that a run learned from, and its network."""
    from engram.datasets.files import fitting, own_file
    from engram.models.from_file import model_from_file

    for file in own:
        own_file(file, fitting(file, how))
    if model is not None:
        model_from_file(model)


def place_of(run: Run, stretch: Stretch) -> Path:
    """The folder of a zoom inside that of its run.

    Raises:
        InputError: The run has no folder, because it is in a compact store.
    """
    if run.folder is None:
        raise InputError(f"the run {run.id} has no folder, and a store is not changed: name one with --out")
    return run.folder / ZOOMS / stretch.name(run)


def _made(run: Run, stretch: Stretch, where: Where, weights: Path | None) -> Run:
    """Make the zoom, with a progress bar; the number of updates is said first where there are many."""
    from engram.cli.progress import ProgressDisplay
    from engram.engine.zoom import zoom as look_again
    from engram.record.checkpoints import kept_checkpoints

    if not kept_checkpoints(run.folder) and stretch.first:
        stderr.print(
            f"the run kept no checkpoints: {counted(stretch.last, 'update')} are learned again from the "
            "beginning (engram run --again --keep-checkpoints tasks keeps them)",
            markup=False,
            soft_wrap=True,
        )
    with ProgressDisplay(1) as display:
        return look_again(run, stretch, where, [display], weights=weights)
