"""`engram reproduce`: the papers' tables and figures, published numbers beside ours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from engram.cli.output import INTERRUPTED, fail, print_json, stderr, stdout
from engram.core.errors import InputError, unknown_name

if TYPE_CHECKING:
    from engram.engine.where import Where
    from engram.executors import Executor
    from engram.papers.pages import Page
    from engram.papers.reproduce import Reproduced
    from engram.papers.values import Artefact
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
        str | None, typer.Argument(help="A table or figure, as 002-table2; all are listed unless given.")
    ] = None,
    scale: Annotated[
        str, typer.Option(help="full, or quick: a few updates of each run, never compared.")
    ] = "full",
    cells: Annotated[
        str | None, typer.Option(help="Only parts whose names contain this, or match it as a pattern.")
    ] = None,
    seeds: Annotated[
        int | None, typer.Option(help="Runs of each; as many as the paper made unless given.")
    ] = None,
    follow: Annotated[
        str | None, typer.Option(help="Another reading, where paper and code disagree.")
    ] = None,
    on: Annotated[str, typer.Option(help="processes (several runs at a time) or serial.")] = "processes",
    jobs: Annotated[int | None, typer.Option(help="Runs at a time; one a core unless given.")] = None,
    done: Annotated[
        bool, typer.Option("--done", help="Show what the runs that are there say, and run nothing.")
    ] = False,
    data: Annotated[Path | None, typer.Option(help="Folder with data sets.")] = None,
    out: Annotated[Path, typer.Option(help="Where runs and pages are kept.")] = Path("runs"),
    device: Annotated[str, typer.Option(help="cpu, cuda or mps.")] = "cpu",
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Run what is missing of a table or figure, and show it beside the published one."""
    if scale not in SCALES:
        raise unknown_name("scale", scale, SCALES)
    if on not in EXECUTORS:
        raise unknown_name("executor", on, EXECUTORS)
    for what, number in (("seeds", seeds), ("jobs", jobs)):
        if number is not None and number < 1:
            raise InputError(f"{what}={number} cannot be used: give 1 or more")
    from engram.cli.options import start_computing

    start_computing(None, device)
    from engram.engine.where import Where

    if name is None:
        for what, given in (("--cells", cells), ("--follow", follow), ("--done", done)):
            if given:
                raise InputError(f"{what} needs a table or figure: engram reproduce lists their names")
        _list(out, seeds=seeds, data=data, json=json)
        return
    from engram.core.files import write_json
    from engram.papers.catalogue import artefact
    from engram.papers.reproduce import chosen_pieces, record, scale_of, survey
    from engram.papers.reproduce import reproduce as run_all

    wanted = artefact(name)
    pieces = chosen_pieces(wanted, follow=follow, cells=cells)
    size = scale_of(follow, quick=scale == "quick")
    if not json:
        _describe(wanted, follow, size)
    if done:
        found = survey(pieces, out, seeds=seeds, scale=size)
    else:
        where = Where(out=out, data=data, device=device, jobs=jobs)
        try:
            found = run_all(pieces, _executor(on, where), seeds=seeds, scale=size, data=data)
        except KeyboardInterrupt:
            fail(
                f"interrupted: finished runs are kept in {out}; run the same command again to resume",
                code=INTERRUPTED,
            )
    whole = all(each.returned is not None for each in found)
    drawn = None
    shown = {each.piece.name: each.returned for each in found if not each.stopped}
    if wanted.draw is not None and shown and (whole or not done):
        drawn = wanted.draw(shown)
    written = record(wanted, found, scale=size, follow=follow, drawn=drawn)
    place = out / "reproduction"
    label = "-".join(part for part in (name, follow, "quick" if size == "quick" else None) if part)
    page = None
    if cells is None and (whole or any(each.results for each in found)):
        write_json(place / f"{label}.json", written)
    if drawn is not None:
        page = _page(drawn, written, place / (f"{label}.html" if cells is None else f"{label}-part.html"))
    if json:
        print_json(written if page is None else {**written, "page": str(page)})
        return
    _show(found)
    for said in _said(written):
        stdout.print(said, soft_wrap=True, markup=False)
    if page is not None:
        stdout.print(f"[bold]{page}[/bold]", soft_wrap=True)


def _executor(on: str, where: Where) -> Executor:
    from engram.cli.sweep import SweepBar, sweep_bar
    from engram.executors.processes import Processes
    from engram.executors.serial import Serial

    def execute(experiments: Sequence[Experiment]) -> Sequence[Run]:
        if not experiments:
            return []
        with sweep_bar() as bar:
            observers = [SweepBar(bar, len(experiments))]
            return (Serial if on == "serial" else Processes)(where, observers)(experiments)

    return execute


def _list(out: Path, *, seeds: int | None, data: Path | None, json: bool) -> None:
    from engram.cli.sweep import duration
    from engram.executors.processes import cores
    from engram.papers.catalogue import artefacts
    from engram.papers.needs import needs
    from engram.papers.recorded import recorded
    from engram.papers.reproduce import finished_runs, runs_done

    entries: list[dict[str, Any]] = []
    there = finished_runs(out)
    for found in artefacts().values():
        records = {each["follow"]: each for each in recorded(found.name)}
        own: set[str] = set()
        for follow, pieces in [(None, found.pieces), *found.others.items()]:
            kept = records.get(follow)
            here = runs_done(pieces, out, there=there, seeds=seeds)
            own = here if follow is None else own
            # Another reading is listed where something is known of it alone.
            if follow is not None and kept is None and here <= own:
                continue
            need = needs(pieces, seeds=seeds, data=data)
            entries.append(
                {
                    "name": found.name,
                    "follow": follow,
                    "title": found.title,
                    "runs": need.runs,
                    "done": len(here),
                    "updates": need.updates,
                    "seconds": need.seconds / cores(),
                    "data": list(need.datasets),
                    "absent": list(need.absent),
                    "readings": list(found.others),
                    "recorded": kept and {name: kept[name] for name in ("scale", "verdicts", "statements")},
                }
            )
    if json:
        print_json({"artefacts": entries})
        return
    from rich.table import Table

    table = Table(box=None, header_style="bold", collapse_padding=True, pad_edge=False)
    table.add_column("name", no_wrap=True)
    for heading in ("runs here", "updates", "about"):
        table.add_column(heading, justify="right", no_wrap=True)
    for heading, width in (("recorded", len("reproduced,")), ("data (absent)", len("(mini-domainnet)"))):
        table.add_column(heading, overflow="fold", min_width=width)
    for entry in entries:
        table.add_row(
            entry["name"] if entry["follow"] is None else f" {entry['follow']}",
            f"{entry['done']:,}/{entry['runs']:,}" if entry["runs"] else "–",
            _large(entry["updates"]) if entry["runs"] else "–",
            duration(entry["seconds"]) if entry["runs"] else "–",
            _counted(entry["recorded"]) if entry["recorded"] else "–",
            " ".join(f"({each})" if each in entry["absent"] else each for each in entry["data"]) or "–",
        )
    stdout.print(table)
    stderr.print(
        f"about: on {cores()} cores of this machine; below a name: its other readings (--follow) of which "
        "something is known; engram reproduce NAME runs what is missing"
    )


def _large(count: int) -> str:
    """A count of updates in few letters, as 23.3 M."""
    for size, unit in ((10**6, " M"), (10**3, " k")):
        if count >= size:
            return f"{count / size:.3g}{unit}"
    return str(count)


def _counted(entry: Mapping[str, Any]) -> str:
    counts = [f"{count} {verdict}" for verdict, count in entry["verdicts"].items()]
    if said := entry["statements"]:
        counts.append(f"{sum(each['holds'] for each in said)} of {len(said)} statements hold")
    return ", ".join(counts) or "curves"


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


def _show(found: Sequence[Reproduced]) -> None:
    from rich.table import Table

    compared = [each for piece in found for each in piece.compared]
    if compared:
        table = Table(box=None, header_style="bold")
        table.add_column("cell", overflow="fold")
        for heading in ("published", "ours", "runs", "difference"):
            table.add_column(heading, justify="right", no_wrap=True)
        table.add_column("verdict", no_wrap=True)
        for each in compared:
            table.add_row(*_row(each))
        stdout.print(table)
        verdicts = [each.verdict for each in compared]
        stdout.print(", ".join(f"{verdicts.count(name)} {name}" for name in sorted(set(verdicts))))
    missing = sum(piece.missing for piece in found)
    failures = [failure for piece in found for failure in piece.failures]
    if missing:
        stdout.print(f"{missing} runs are missing")
    for piece in found:
        if piece.stopped:
            what = "stopped" if piece.results or piece.failures else "left out"
            stdout.print(f"{what}: {piece.piece.name}: {piece.stopped}", soft_wrap=True, markup=False)
    for failure in failures:
        assert failure.failure is not None
        stdout.print(f"failed: {failure.id}: {failure.failure.reason}", soft_wrap=True)


def _row(each: Compared) -> tuple[str, ...]:
    digits = 3 if each.cell.paper == "004" else 2
    ours = "–" if each.verdict == "open" else _number(each.mean, each.spread, digits)
    difference = "–" if each.verdict == "open" else f"{each.difference:+.{digits}f}"
    colour = {"reproduced": "green", "differs": "red"}.get(each.verdict)
    verdict = f"[{colour}]{each.verdict}[/{colour}]" if colour else each.verdict
    published = _number(each.cell.mean, each.cell.spread, digits)
    return each.cell.name, published, ours, str(len(each.values)), difference, verdict


def _number(mean: float, spread: float | None, digits: int) -> str:
    known = spread is not None and spread == spread
    return f"{mean:.{digits}f} ± {spread:.{digits}f}" if known else f"{mean:.{digits}f}"


def _said(written: Mapping[str, Any]) -> list[str]:
    """What the paper says in words, and whether it holds."""
    words = {True: "holds", False: "does not hold"}
    return [f"{words[each['holds']]}: {each['says']} ({each['figures']})" for each in written["statements"]]


def _page(drawn: Page, written: Mapping[str, Any], place: Path) -> Path:
    from engram.core.files import write_whole

    lead = [
        SCALED.get(written["scale"], ""),
        f"Following: {written['follow']}." if written["follow"] else "",
    ]
    followed = [] if written["follow"] else written["followed"]
    about = [*_said(written), *followed, written["note"]]
    text = drawn.html(lead=" ".join(filter(None, lead)), about=[*filter(None, about)])
    write_whole(place, lambda beside: beside.write_text(text, encoding="utf-8"))
    return place
