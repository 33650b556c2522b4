"""`engram reproduce`: the papers' tables and figures, published numbers beside ours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from engram.cli.completion import artefact_names, completion
from engram.cli.machines import with_machines
from engram.cli.options import CheckpointEvery, Timeout, Track, check_data, check_seconds
from engram.cli.output import fail, print_json, stderr, stdout
from engram.cli.reproduce_list import print_all
from engram.cli.tables import Column, print_table
from engram.core.errors import InputError
from engram.core.jsons import JsonMapping, JsonObject
from engram.core.limits import MOST_SEEDS
from engram.core.stopping import exit_code
from engram.core.words import number
from engram.executors.machines import Machines

if TYPE_CHECKING:
    from engram.engine.observers import Observer
    from engram.engine.where import Where
    from engram.executors import Execute
    from engram.papers.pages import Page
    from engram.papers.reproduce import Reproduced
    from engram.papers.values import Artefact, Piece, Scale
    from engram.record.experiment import Experiment
    from engram.record.run import Run

SCALES = ("full", "quick")
SCALED = {
    "quick": "Quick: a few updates of each run, tested on few samples. This is not the paper's set-up.",
    "small": "Small: the paper's set-up cut down, as the note says, and not compared by verdict.",
}


@with_machines
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
    *,
    machines: Machines,
    jobs: Annotated[int | None, typer.Option(help="Parallel runs (default: one per core).")] = None,
    done: Annotated[
        bool, typer.Option("--done", help="Show what finished runs say, and run nothing.")
    ] = False,
    extend: Annotated[
        bool, typer.Option("--extend", help="Count recorded runs as done, and judge all together.")
    ] = False,
    power: Annotated[
        bool, typer.Option("--power", help="Show which differences can be noticed, and run nothing.")
    ] = False,
    data: Annotated[Path | None, typer.Option(help="Folder with data sets.")] = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="Where runs and pages are kept.")] = Path("runs"),
    device: Annotated[str, typer.Option(help="cpu, cuda or mps.")] = "cpu",
    checkpoint_every: CheckpointEvery = None,
    timeout: Timeout = None,
    track: Track = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Run what is missing of a table or figure, and show it beside the published one."""
    from engram.cli.options import one_of, start_computing

    one_of("scale", scale, SCALES)
    if seeds is not None and not 1 <= seeds <= MOST_SEEDS:
        raise InputError(f"seeds must be at least 1 and at most {MOST_SEEDS}, got {seeds}")
    check_seconds(checkpoint_every, timeout)
    check_data(data if machines.local else None)
    start_computing(None, device if machines.local else "cpu")
    from engram.engine.where import Where

    where = Where(
        out=out,
        data=data,
        device=device,
        jobs=jobs,
        checkpoint_seconds=checkpoint_every,
        timeout=timeout,
    )
    machines.check_jobs(jobs)
    of_running: dict[str, object] = {
        "--jobs": jobs,
        "--timeout": timeout,
        "--checkpoint-every": checkpoint_every,
    }
    if name is None:
        chosen = {
            **{"--cells": cells, "--follow": follow, "--track": track},
            **{"--done": done, "--extend": extend, "--power": power},
            **of_running,
        }
        _refuse(chosen, "{} needs a table or figure: engram reproduce lists their names")
        print_all(where, seeds=seeds, json=json)
    elif power:
        from engram.cli.reproduce_power import print_power

        idle = {"--done": done, "--track": track, "--extend": extend, f"--scale {scale}": scale != "full"}
        _refuse({**idle, **of_running}, "--power counts recorded and finished runs and runs nothing: omit {}")
        print_power(name, out, follow=follow, cells=cells, seeds=seeds, json=json)
    else:
        if extend:
            _refuse({f"--scale {scale}": scale != "full"}, "--extend adds to recorded runs: omit {}")
        if done:
            _refuse({"--track": track, **of_running}, "--done runs nothing: omit {}")
        wanted = _Wanted(
            name=name,
            follow=follow,
            cells=cells,
            extend=extend,
            quick=scale == "quick",
            done=done,
            track=tuple(track or ()),
        )
        _reproduce(wanted, where, machines, seeds=seeds, json=json)


def _refuse(options: Mapping[str, object], reason: str) -> None:
    """Refuse the first option that was given and would have no effect."""
    for option, value in options.items():
        if value:
            raise InputError(reason.format(option))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wanted:
    """What to show of which table or figure."""

    name: str
    follow: str | None
    cells: str | None
    extend: bool
    quick: bool
    done: bool
    track: tuple[str, ...]


def _reproduce(wanted: _Wanted, where: Where, machines: Machines, *, seeds: int | None, json: bool) -> None:
    """Run or survey the pieces of a table or figure, and show, record and draw what came out."""
    from engram.interop.trackers import trackers_of
    from engram.papers.catalogue import artefact
    from engram.papers.extend import extended, part_of, record_of, remaining
    from engram.papers.reproduce import chosen_pieces, scale_of, survey

    whole = artefact(wanted.name)
    pieces = chosen_pieces(whole, follow=wanted.follow, cells=wanted.cells)
    earlier = part_of(record_of(wanted.name, follow=wanted.follow), pieces) if wanted.extend else None
    if earlier is not None:
        pieces = remaining(pieces, earlier)
    size = scale_of(wanted.follow, quick=wanted.quick)
    if not json:
        _describe(whole, wanted.follow, size)
    if wanted.done:
        reproduced = survey(pieces, where.folder, seeds=seeds, scale=size)
    else:
        execute = _executor(machines, where, trackers_of(wanted.track))
        reproduced = _run(pieces, where, execute, seeds=seeds, scale=size)
    written, drawn = _record(whole, reproduced, scale=size, follow=wanted.follow, done=wanted.done)
    if earlier is not None:
        written = extended(whole, earlier, written)
    page = _write(written, drawn, where.folder / "reproduction", part=wanted.cells is not None)
    if json:
        print_json(written if page is None else {**written, "page": str(page)})
        return
    _show(written, reproduced)
    for statement in _statements(written):
        stdout.print(statement, soft_wrap=True, markup=False)
    if page is not None:
        stdout.print(f"[bold]{page}[/bold]", soft_wrap=True)


def _run(
    pieces: Sequence[Piece], where: Where, execute: Execute, *, seeds: int | None, scale: Scale
) -> list[Reproduced]:
    from engram.papers.reproduce import reproduce as run_all

    try:
        return run_all(pieces, execute, seeds=seeds, scale=scale, data=where.data)
    except KeyboardInterrupt:
        fail(
            f"interrupted: finished runs are kept in {where.folder}; run the same command again to resume",
            code=exit_code(),
        )


def _record(
    wanted: Artefact, reproduced: Sequence[Reproduced], *, scale: Scale, follow: str | None, done: bool
) -> tuple[JsonObject, Page | None]:
    """The record of what came out, and the figure if there is one."""
    from engram.papers.reproduce import record

    whole = all(piece.returned is not None for piece in reproduced)
    shown = {piece.piece.name: piece.returned for piece in reproduced if not piece.stopped}
    drawn = wanted.draw(shown) if wanted.draw is not None and shown and (whole or not done) else None
    return record(wanted, reproduced, scale=scale, follow=follow, drawn=drawn), drawn


def _write(written: JsonMapping, drawn: Page | None, place: Path, *, part: bool) -> Path | None:
    """Write the record and the page of a figure; a part of an artefact is not recorded."""
    from engram.core.files import write_json

    scale = "quick" if written["scale"] == "quick" else None
    label = "-".join(word for word in (written["name"], written["follow"], scale) if word)
    finished = not any(piece["missing"] or piece["stopped"] for piece in written["pieces"])
    if not part and (finished or any(piece["runs"] for piece in written["pieces"])):
        write_json(place / f"{label}.json", written)
    if drawn is None:
        return None
    return _page(drawn, written, place / (f"{label}-part.html" if part else f"{label}.html"))


def _executor(machines: Machines, where: Where, observers: Sequence[Observer]) -> Execute:
    from engram.cli.progress import ProgressDisplay
    from engram.executors import executor_for

    def execute(experiments: Sequence[Experiment]) -> Sequence[Run]:
        if not experiments:
            return []
        with ProgressDisplay(len(experiments)) as display:
            return executor_for(where, [display, *observers], machines=machines)(experiments)

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


def _show(written: JsonMapping, reproduced: Sequence[Reproduced]) -> None:
    compared = [cell for piece in written["pieces"] for cell in piece["cells"]]
    if compared:
        numbers = ("published", "ours", "runs", "difference", "detectable")
        columns = [Column("cell", below=True), *(Column(title, right=True) for title in numbers)]
        digits = 3 if written["name"].startswith("004") else 2
        print_table([*columns, Column("verdict")], [_cells(cell, digits) for cell in compared])
        stdout.print(", ".join(f"{count} {name}" for name, count in written["verdicts"].items()))
        stderr.print(
            "detectable: the smallest difference that would have been called differs; "
            "engram explain VERDICT says what a verdict means"
        )
    missing = sum(piece["missing"] for piece in written["pieces"])
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


def _cells(cell: JsonMapping, digits: int) -> tuple[str, ...]:
    theirs, ours = cell["published"], cell["ours"]
    return (
        cell["cell"],
        number(theirs["mean"], theirs["spread"], digits),
        number(ours["mean"], ours["spread"], digits),
        str(len(ours["values"])),
        "–" if cell["difference"] is None else f"{cell['difference']:+.{digits}f}",
        number(cell["detectable"], None, digits),
        cell["verdict"],
    )


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
