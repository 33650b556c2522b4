"""What selection read: the part of a protocol card that no single run can know."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from engram.core.files import read_json, write_json
from engram.protocols.candidates import Candidate
from engram.record.card import SELECTION, Selected
from engram.record.run import Run
from engram.results.card import described, merged, selection_lines


def selected(
    what: str, candidates: Sequence[Candidate], *, phases: Sequence[Sequence[int]], since: int = 0
) -> tuple[Selected, ...]:
    """A choice among candidates, with the data that they were judged on; nothing where there was only one.

    Args:
        what: What was chosen.
        candidates: All that were tried, with the data that their evaluations read.
        phases: Which tasks are learned together in the stream that the choice is for.
        since: The first phase in which the choice takes effect; any task after it is a later one.

    Example:
        >>> tried = [Candidate({"lr": rate}, (0.5,), judged=(("test", 0), ("test", 1))) for rate in (1, 2)]
        >>> selected("fields", tried, phases=[[0], [1]])
        (Selected(what='fields', candidates=2, parts=('test',), later=True),)
        >>> selected("rate", tried, phases=[[0], [1]], since=1)[0].later
        False
    """
    if len(candidates) < 2:
        return ()
    judged = {pair for candidate in candidates for pair in candidate.judged}
    seen = {task for tasks in phases[: since + 1] for task in tasks}
    return (
        Selected(
            what,
            len(candidates),
            tuple(sorted({part for part, _ in judged})),
            any(task not in seen for _, task in judged),
        ),
    )


def audited(runs: Sequence[Run], choices: Sequence[Selected]) -> dict[str, Any]:
    """What a protocol's JSON says about its choices, and the card of the runs that it ended with.

    Args:
        runs: The runs that it ended with, one per seed; no card is made where one has none.
        choices: Everything that was chosen; the same choice on several streams is listed once.
    """
    choices = list(dict.fromkeys(choices))
    summary: dict[str, Any] = {
        "selection": {
            line.name: {"answer": line.answer, "figure": line.figure} for line in selection_lines(choices)
        },
        "choices": [choice.as_json() for choice in choices],
    }
    cards = [run.card for run in runs if run.card is not None]
    if cards and len(cards) == len(runs):
        summary["card"] = described(merged(cards).with_choices(choices))
    return summary


def record_choices(said: Mapping[str, Any], out: Path) -> None:
    """Write what was chosen beside the runs that a protocol ended with, so that their cards show it.

    What an earlier protocol wrote there is kept: the run was chosen by that one as well.

    Args:
        said: The outcome of the protocol as JSON.
        out: The folder of its runs.
    """
    for run, choices in _chosen_runs(said):
        file = out / run / SELECTION
        if choices and file.parent.is_dir():
            before = read_json(file) if file.is_file() else []
            known = before if isinstance(before, list) else []
            write_json(file, [*known, *(choice for choice in choices if choice not in known)])


def _chosen_runs(said: Mapping[str, Any]) -> Iterator[tuple[str, list[Any]]]:
    """The runs that a protocol ended with, on each stream and for each method, and what was chosen there."""
    # A queue ends with its best and with its worst, and both were chosen.
    ends = [end for end in (said.get("best"), said.get("worst")) if isinstance(end, Mapping)]
    for run in said.get("runs") or [run for end in ends for run in end.get("runs", [])]:
        yield (run["run"] if isinstance(run, Mapping) else run), said["choices"]
    for parts in ("streams", "methods"):
        for part in said.get(parts, {}).values():
            yield from _chosen_runs(part)
