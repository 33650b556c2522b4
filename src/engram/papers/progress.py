"""How much of each table and figure is done, and what the rest costs."""

from __future__ import annotations

from pathlib import Path

from engram.core.cores import cores
from engram.core.jsons import JsonObject
from engram.papers.catalogue import artefacts
from engram.papers.needs import needs
from engram.papers.recorded import recorded
from engram.papers.reproduce import finished_runs, runs_done


def progress(out: Path, *, seeds: int | None = None, data: Path | None = None) -> list[JsonObject]:
    """One entry per artefact, and per other reading of it that has runs or a record.

    Args:
        out: The folder of runs.
        seeds: The number of runs of each experiment (default: as many as the paper made).
        data: A folder to search for data sets first.
    """
    entries: list[JsonObject] = []
    finished = finished_runs(out)
    for artefact in artefacts().values():
        records = {record["follow"]: record for record in recorded(artefact.name)}
        usual: set[str] = set()
        for follow, pieces in [(None, artefact.pieces), *artefact.others.items()]:
            record = records.get(follow)
            done = runs_done(pieces, out, finished=finished, seeds=seeds)
            usual = done if follow is None else usual
            if follow is not None and record is None and done <= usual:
                continue
            need = needs(pieces, seeds=seeds, data=data)
            entries.append(
                {
                    "name": artefact.name,
                    "follow": follow,
                    "title": artefact.title,
                    "runs": need.runs,
                    "done": len(done),
                    "updates": need.updates,
                    "seconds": need.seconds / cores(),
                    "data": list(need.datasets),
                    "absent": list(need.absent),
                    "readings": list(artefact.others),
                    "recorded": record and {key: record[key] for key in ("scale", "verdicts", "statements")},
                }
            )
    return entries
