"""`engram reproduce`: the papers' tables and figures, published numbers beside ours."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from engram.cli.completion import artefact_names, completion
from engram.cli.options import CheckpointEvery, Timeout, check_seconds
from engram.cli.output import fail, print_json, stderr, stdout
from engram.cli.reproduce_list import print_all
from engram.core.errors import InputError
from engram.core.jsons import JsonMapping, JsonObject
from engram.core.limits import MOST_SEEDS
from engram.core.stopping import exit_code

if TYPE_CHECKING:
    from engram.engine.where import Where
    from engram.executors import Executor
    from engram.papers.pages import Page
    from engram.papers.reproduce import Reproduced
    from engram.papers.values import Artefact, Piece, Scale
    from engram.papers.verdict import Compared
    from engram.record.experiment import Experiment
    from engram.record.run import Run

SCALES = ("full", "quick")
EXECUTORS = ("processes", "serial")
SCALED = {
    "quick": "Quick: a few updates of each run, tested on few samples. This is not the paper's set-up.",
    "small": "Small: the paper's set-up cut down, as the note says, and not compared by verdict.",
}


def reproduce(
    name: Annotated[
        str | None,
        typer.Argument(
            help="A table or figure, for example 002-table2 (default: list all).",
            autocompletion=completion(artefact_names),
        ),
    ] = None,
    scale: Annotated[
        str, typer.Option(help="full, or quick: a few updates of each run, never compared.")
    ] = "full",
    cells: Annotated[
        str | None, typer.Option(help="Only parts whose names contain this, or match it as a pattern.")
    ] = None,
    seeds: Annotated[int | None, typer.Option(help="Runs of each (default: as many as the paper).")] = None,
    follow: Annotated[
        str | None, typer.Option(help="Another reading, where paper and code disagree.")
    ] = None,
    on: Annotated[str, typer.Option(help="processes (several runs at a time) or serial.")] = "processes",
    jobs: Annotated[int | None, typer.Option(help="Parallel runs (default: one per core).")] = None,
    done: Annotated[
        bool, typer.Option("--done", help="Show what finished runs say, and run nothing.")
    ] = False,
    data: Annotated[Path | None, typer.Option(help="Folder with data sets.")] = None,
    out: Annotated[Path, typer.Option(help="Where runs and pages are kept.")] = Path("runs"),
    device: Annotated[str, typer.Option(help="cpu, cuda or mps.")] = "cpu",
    checkpoint_every: CheckpointEvery = None,
    timeout: Timeout = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Run what is missing of a table or figure, and show it beside the published one."""
    from engram.cli.options import one_of, start_computing

    one_of("scale", scale, SCALES)
    one_of("executor", on, EXECUTORS)
    if seeds is not None and not 1 <= seeds <= MOST_SEEDS:
        raise InputError(f"seeds must be at least 1 and at most {MOST_SEEDS}, got {seeds}")
    check_seconds(checkpoint_every, timeout)
    start_computing(None, device)
    from engram.engine.where import Where

    where = Where(
        out=out,
        data=data,
        device=device,
        jobs=jobs,
        checkpoint_seconds=checkpoint_every,
        timeout=timeout,
    )
    if name is None:
        for option, value in (("--cells", cells), ("--follow", follow), ("--done", done)):
            if value:
                raise InputError(f"{option} needs a table or figure: engram reproduce lists their names")
        print_all(where, seeds=seeds, json=json)
        return
    from engram.papers.catalogue import artefact
    from engram.papers.reproduce import chosen_pieces, scale_of, survey

    wanted = artefact(name)
    pieces = chosen_pieces(wanted, follow=follow, cells=cells)
    size = scale_of(follow, quick=scale == "quick")
    if not json:
        _describe(wanted, follow, size)
    if done:
        reproduced = survey(pieces, out, seeds=seeds, scale=size)
    else:
        reproduced = _run(pieces, where, on, seeds=seeds, scale=size)
    written, page = _write(
        wanted, reproduced, out / "reproduction", scale=size, follow=follow, part=cells is not None, done=done
    )
    if json:
        print_json(written if page is None else {**written, "page": str(page)})
        return
    _show(reproduced)
    for statement in _statements(written):
        stdout.print(statement, soft_wrap=True, markup=False)
    if page is not None:
        stdout.print(f"[bold]{page}[/bold]", soft_wrap=True)


def _run(
    pieces: Sequence[Piece], where: Where, on: str, *, seeds: int | None, scale: Scale
) -> list[Reproduced]:
    from engram.papers.reproduce import reproduce as run_all

    try:
        return run_all(pieces, _executor(on, where), seeds=seeds, scale=scale, data=where.data)
    except KeyboardInterrupt:
        fail(
            f"interrupted: finished runs are kept in {where.folder}; run the same command again to resume",
            code=exit_code(),
        )


def _write(
    wanted: Artefact,
    reproduced: Sequence[Reproduced],
    place: Path,
    *,
    scale: Scale,
    follow: str | None,
    part: bool,
    done: bool,
) -> tuple[JsonObject, Path | None]:
    """Record what came out, and draw the figure if there is one; a part of an artefact is not recorded."""
    from engram.core.files import write_json
    from engram.papers.reproduce import record

    whole = all(piece.returned is not None for piece in reproduced)
    shown = {piece.piece.name: piece.returned for piece in reproduced if not piece.stopped}
    drawn = wanted.draw(shown) if wanted.draw is not None and shown and (whole or not done) else None
    written = record(wanted, reproduced, scale=scale, follow=follow, drawn=drawn)
    label = "-".join(word for word in (wanted.name, follow, "quick" if scale == "quick" else None) if word)
    if not part and (whole or any(piece.results for piece in reproduced)):
        write_json(place / f"{label}.json", written)
    if drawn is None:
        return written, None
    return written, _page(drawn, written, place / (f"{label}-part.html" if part else f"{label}.html"))


def _executor(on: str, where: Where) -> Executor:
    from engram.cli.progress import ProgressDisplay
    from engram.executors import executor_for

    def execute(experiments: Sequence[Experiment]) -> Sequence[Run]:
        if not experiments:
            return []
        with ProgressDisplay(len(experiments)) as display:
            return executor_for(where, [display], serial=on == "serial")(experiments)

    return execute


def _describe(wanted: Artefact, follow: str | None, scale: str) -> None:
    stderr.print(f"[bold]{wanted.name}[/bold]: {wanted.title}")
    if scale in SCALED:
        stderr.print(SCALED[scale])
    if follow is not None:
        stderr.print(f"following: {follow}")
    else:
        for line in wanted.followed:
            stderr.print(f"  {line}")
        if wanted.others:
            stderr.print(f"  other readings: --follow {', '.join(wanted.others)}")
    if wanted.note:
        stderr.print(f"  {wanted.note}")


def _show(reproduced: Sequence[Reproduced]) -> None:
    from rich.table import Table

    compared = [row for piece in reproduced for row in piece.compared]
    if compared:
        table = Table(box=None, header_style="bold")
        table.add_column("cell", overflow="fold")
        for heading in ("published", "ours", "runs", "difference"):
            table.add_column(heading, justify="right", no_wrap=True)
        table.add_column("verdict", no_wrap=True)
        for row in compared:
            table.add_row(*_cells(row))
        stdout.print(table)
        verdicts = [row.verdict for row in compared]
        stdout.print(", ".join(f"{verdicts.count(name)} {name}" for name in sorted(set(verdicts))))
    missing = sum(piece.missing for piece in reproduced)
    failures = [failure for piece in reproduced for failure in piece.failures]
    if missing:
        stdout.print(f"{missing} runs are missing")
    for piece in reproduced:
        if piece.stopped:
            what = "stopped" if piece.results or piece.failures else "left out"
            stdout.print(f"{what}: {piece.piece.name}: {piece.stopped}", soft_wrap=True, markup=False)
    for failure in failures:
        assert failure.failure is not None
        stdout.print(f"failed: {failure.id}: {failure.failure.reason}", soft_wrap=True, markup=False)


def _cells(compared: Compared) -> tuple[str, ...]:
    digits = 3 if compared.cell.paper == "004" else 2
    ours = "–" if compared.verdict == "open" else _number(compared.mean, compared.spread, digits)
    difference = "–" if compared.verdict == "open" else f"{compared.difference:+.{digits}f}"
    colour = {"reproduced": "green", "differs": "red"}.get(compared.verdict)
    verdict = f"[{colour}]{compared.verdict}[/{colour}]" if colour else compared.verdict
    published = _number(compared.cell.mean, compared.cell.spread, digits)
    return compared.cell.name, published, ours, str(len(compared.values)), difference, verdict


def _number(mean: float, spread: float | None, digits: int) -> str:
    known = spread is not None and spread == spread
    return f"{mean:.{digits}f} ± {spread:.{digits}f}" if known else f"{mean:.{digits}f}"


def _statements(written: JsonMapping) -> list[str]:
    """What the paper says in words, and whether it holds."""
    words = {True: "holds", False: "does not hold"}
    return [
        f"{words[statement['holds']]}: {statement['says']} ({statement['figures']})"
        for statement in written["statements"]
    ]


def _page(drawn: Page, written: JsonMapping, place: Path) -> Path:
    from engram.core.files import write_whole

    lead = [
        SCALED.get(written["scale"], ""),
        f"Following: {written['follow']}." if written["follow"] else "",
    ]
    followed = [] if written["follow"] else written["followed"]
    about = [*_statements(written), *followed, written["note"]]
    text = drawn.html(lead=" ".join(filter(None, lead)), about=[*filter(None, about)])
    write_whole(place, lambda beside: beside.write_text(text, encoding="utf-8"))
    return place
