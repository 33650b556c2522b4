"""What selection read: the part of a protocol's card that no single run can know."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from engram.protocols.candidates import Candidate
from engram.run.card import Card, Selected, selection_lines


def selected(
    what: str, candidates: Sequence[Candidate], *, phases: Sequence[Sequence[int]], since: int = 0
) -> tuple[Selected, ...]:
    """A choice among candidates, as their runs read data; nothing where there was only one.

    Args:
        what: What was chosen.
        candidates: All that were tried, with what their evaluations read.
        phases: Which tasks are learned together in the stream that the choice is for.
        since: The phase from which on the choice takes effect; any task after it is a later one.

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
    come = {task for tasks in phases[: since + 1] for task in tasks}
    return (
        Selected(
            what,
            len(candidates),
            tuple(sorted({part for part, _ in judged})),
            any(task not in come for _, task in judged),
        ),
    )


def audited(values: Mapping[str, Any] | None, choices: Sequence[Selected]) -> dict[str, Any]:
    """What a protocol's JSON says of its choices, and the card of the run that it ended with.

    Args:
        values: What `result.json` of that run says; without a card in it, there is none here.
        choices: Everything that was chosen.
    """
    lines = selection_lines(choices)
    found: dict[str, Any] = {
        "selection": {line.name: {"answer": line.answer, "figure": line.figure} for line in lines}
    }
    said = (values or {}).get("card")
    if said is not None:
        found["card"] = Card.of_json(said).selected(choices).as_json()
    return found
