"""`engram reproduce`: the papers' tables and figures, published numbers beside ours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from engram.cli.output import INTERRUPTED, fail, print_json, stderr, stdout
from engram.core.errors import InputError, unknown_name

if TYPE_CHECKING:
    from engram.papers.reproduce import Reproduced
    from engram.papers.values import Artefact
    from engram.papers.verdict import Compared
    from engram.protocols.drive import Executor, Failure, Result
    from engram.run.experiment import Experiment

SCALES = ("full", "quick")
EXECUTORS = ("processes", "serial")
QUICK = "Quick: a few updates of each run. These numbers are not the paper's set-up."


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
    if name is None:
        _list(out, seeds=seeds, data=data, json=json)
        return
    from engram.core.files import write_json
    from engram.papers.catalogue import artefact
    from engram.papers.reproduce import chosen_pieces, record, survey
    from engram.papers.reproduce import reproduce as run_all

    wanted = artefact(name)
    pieces = chosen_pieces(wanted, follow=follow, cells=cells)
    if not json:
        _describe(wanted, follow, scale)
    if done:
        found = survey(pieces, out, seeds=seeds, scale=scale)  # type: ignore[arg-type]
    else:
        executor = _executor(on, out, jobs=jobs, data=data, device=device)
        try:
            found = run_all(pieces, executor, seeds=seeds, scale=scale)  # type: ignore[arg-type]
        except KeyboardInterrupt:
            fail(
                f"interrupted: finished runs are kept in {out}; the same command goes on from there",
                code=INTERRUPTED,
            )
    written = record(wanted, found, scale=scale, follow=follow)  # type: ignore[arg-type]
    place = out / "reproduction"
    label = "-".join(part for part in (name, follow, "quick" if scale == "quick" else None) if part)
    if cells is None:
        write_json(place / f"{label}.json", written)
    whole = all(each.returned is not None for each in found)
    drawn = f"{label}.html" if cells is None else f"{label}-part.html"
    page = _drawn(wanted, found, written, place / drawn) if whole or not done else None
    if json:
        print_json(written if page is None else {**written, "page": str(page)})
        return
    _show(found)
    for said in _said(written):
        stdout.print(said, soft_wrap=True, markup=False)
    if page is not None:
        stdout.print(f"[bold]{page}[/bold]", soft_wrap=True)


def _executor(on: str, out: Path, *, jobs: int | None, data: Path | None, device: str) -> Executor:
    if on == "serial":
        from engram.protocols.serial import Serial

        return Serial(out, data=data, device=device)
    from engram.cli.sweep import Watcher, sweep_bar
    from engram.protocols.parallel import Parallel

    def watched(experiments: Sequence[Experiment]) -> Sequence[Result | Failure]:
        if not experiments:
            return []
        with sweep_bar() as bar:
            seen = Watcher(bar, len(experiments))
            run = Parallel(out, jobs=jobs, data=data, device=device, ended=seen.ended, follow=seen.follow)
            return run(experiments)

    return watched


def _list(out: Path, *, seeds: int | None, data: Path | None, json: bool) -> None:
    from engram.cli.sweep import duration
    from engram.papers.catalogue import artefacts
    from engram.papers.needs import needs
    from engram.papers.recorded import recorded
    from engram.papers.reproduce import runs_done
    from engram.run.processes import cores

    entries: list[dict[str, Any]] = []
    for found in artefacts().values():
        need = needs(found.pieces, seeds=seeds, data=data)
        kept = recorded(found.name)
        entries.append(
            {
                "name": found.name,
                "title": found.title,
                "runs": need.runs,
                "updates": need.updates,
                "seconds": need.seconds / cores(),
                "data": list(need.datasets),
                "absent": list(need.absent),
                "done": runs_done(found.pieces, out, seeds=seeds),
                "readings": list(found.others),
                "recorded": [
                    {name: each.get(name) for name in ("follow", "verdicts", "statements")} for each in kept
                ],
            }
        )
    if json:
        print_json({"artefacts": entries})
        return
    from rich.table import Table

    table = Table(box=None, header_style="bold")
    table.add_column("name", no_wrap=True)
    for heading in ("runs here", "updates", "about"):
        table.add_column(heading, justify="right", no_wrap=True)
    for heading, width in (("recorded", len("reproduced,")), ("absent data", len("mini-domainnet,"))):
        table.add_column(heading, overflow="fold", min_width=width)
    for entry in entries:
        table.add_row(
            entry["name"],
            f"{entry['done']:,}/{entry['runs']:,}" if entry["runs"] else "–",
            f"{entry['updates']:,}" if entry["runs"] else "–",
            duration(entry["seconds"]) if entry["runs"] else "–",
            "; ".join(_counted(each) for each in entry["recorded"]) or "–",
            ", ".join(entry["absent"]) or "–",
        )
    stdout.print(table)
    stderr.print(f"about: on {cores()} cores of this machine; engram reproduce NAME runs what is missing")


def _counted(entry: dict[str, Any]) -> str:
    counts = [f"{count} {verdict}" for verdict, count in entry["verdicts"].items()]
    if said := entry["statements"]:
        counts.append(f"{sum(each['holds'] for each in said)} of {len(said)} statements hold")
    found = ", ".join(counts) or "curves"
    return f"{entry['follow']}: {found}" if entry["follow"] else found


def _describe(wanted: Artefact, follow: str | None, scale: str) -> None:
    stderr.print(f"[bold]{wanted.name}[/bold]: {wanted.title}")
    if scale == "quick":
        stderr.print(QUICK)
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
            stdout.print(f"stopped: {piece.piece.name}: {piece.stopped}", soft_wrap=True, markup=False)
    for failure in failures:
        stdout.print(f"failed: {failure.experiment.id}: {failure.reason}", soft_wrap=True)


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


def _drawn(
    wanted: Artefact, found: Sequence[Reproduced], written: Mapping[str, Any], place: Path
) -> Path | None:
    if wanted.draw is None:
        return None
    from engram.core.files import write_whole

    returned: dict[str, Any] = {each.piece.name: each.returned for each in found}
    lead = [
        QUICK if written["scale"] == "quick" else "",
        f"Following: {written['follow']}." if written["follow"] else "",
    ]
    followed = [] if written["follow"] else written["followed"]
    about = [*_said(written), *followed, written["note"]]
    text = wanted.draw(returned).html(lead=" ".join(filter(None, lead)), about=[*filter(None, about)])
    write_whole(place, lambda beside: beside.write_text(text, encoding="utf-8"))
    return place
