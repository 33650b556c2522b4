"""The data that selection read: the part of a protocol card that a single run cannot know."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from engram.core.files import read_json, write_json
from engram.core.jsons import Json, JsonMapping, JsonObject
from engram.protocols.candidates import Candidate
from engram.record.card import SELECTION, Selected
from engram.record.run import Run
from engram.results.card import described, merged, selection_lines


def selected(
    what: str, candidates: Sequence[Candidate], *, phases: Sequence[Sequence[int]], since: int = 0
) -> tuple[Selected, ...]:
    """A choice among candidates, with the data that they were judged on; empty if there was only one.

    Args:
        what: A name for what was chosen.
        candidates: All candidates, with the data that their evaluations read.
        phases: The tasks of each phase of the stream that the choice is for.
        since: The first phase in which the choice takes effect; tasks of later phases are later tasks.

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


def audited(runs: Sequence[Run], choices: Sequence[Selected]) -> JsonObject:
    """The choices of a protocol, and the card of its final runs, as they appear in its JSON.

    Args:
        runs: The final runs, one per seed; if one has no card, there is none for all.
        choices: All choices; the same choice on several streams is listed once.
    """
    choices = list(dict.fromkeys(choices))
    summary: JsonObject = {
        "selection": {
            line.name: {"answer": line.answer, "figure": line.figure} for line in selection_lines(choices)
        },
        "choices": [choice.as_json() for choice in choices],
    }
    cards = [run.card for run in runs if run.card is not None]
    if cards and len(cards) == len(runs):
        summary["card"] = described(merged(cards).with_choices(choices))
    return summary


def record_choices(outcome: JsonMapping, out: Path) -> None:
    """Write the choices into the folders of a protocol's final runs, so that their cards show them.

    Choices of earlier protocols are kept: the run depends on those as well.

    Args:
        outcome: The outcome of the protocol as JSON.
        out: The folder of its runs.
    """
    for run, choices in _chosen_runs(outcome):
        file = out / run / SELECTION
        if choices and file.parent.is_dir():
            before = read_json(file) if file.is_file() else []
            known = before if isinstance(before, list) else []
            write_json(file, [*known, *(choice for choice in choices if choice not in known)])


def _chosen_runs(outcome: JsonMapping) -> Iterator[tuple[str, list[Json]]]:
    """The final runs of a protocol, on each stream and for each method, with their choices."""
    # A queue has two final groups of runs, the best and the worst, and both were chosen.
    groups = [group for group in (outcome.get("best"), outcome.get("worst")) if isinstance(group, Mapping)]
    for run in outcome.get("runs") or [run for group in groups for run in group.get("runs", [])]:
        yield (run["run"] if isinstance(run, Mapping) else run), outcome["choices"]
    for parts in ("streams", "methods"):
        for part in outcome.get(parts, {}).values():
            yield from _chosen_runs(part)
