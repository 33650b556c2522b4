"""The result of a protocol, as text and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from engram.cli.output import print_json, stdout
from engram.cli.protocol.running import Conclusion, Outcome, carry_out, report_failures
from engram.core.jsons import Json, JsonMapping

if TYPE_CHECKING:
    from engram.cli.protocol.request import ProtocolRequest
    from engram.protocols.drive import Plan

NUMBERS = ("last", "baseline", "omega_all", "forgets", "tasks", "best", "worst", "final", "curves")
TRANSFER_NUMBERS = (
    *("AvgFwt", "AvgFwt*", "AvgFDiv", "AvgFgt", "AvgAcc", "AvgLAcc"),
    *("upstream start", "upstream"),
)


def conclude(request: ProtocolRequest, plan: Plan[Outcome]) -> None:
    """Carry out a plan and print its result."""
    present(request, carry_out(request, plan))


def present(request: ProtocolRequest, conclusion: Conclusion) -> None:
    """Print the result, as text or JSON, and which runs failed; exit with 1 if these may have mattered."""
    if request.options.json:
        print_json(conclusion.result)
    else:
        print_result(conclusion.result)
    report_failures(conclusion.failures)


def print_result(result: JsonMapping) -> None:
    """The candidates with their scores, the choice, the numbers of the protocol, and its card."""
    for heading, rows in tables_of(result):
        _print_candidates(heading, rows)
    if "choice" in result:
        _line(f"chosen: {_shown(result['choice'])}")
    for key in NUMBERS:
        if key in result:
            number = result[key]
            if result["protocol"] == "queue" and key in ("best", "worst"):
                number = {**number["fields"], "averages": number["averages"]}
            _line(f"{key}: {_shown(number)}")
    by_method = result.get("methods", {result["method"]: result})
    for name, part in by_method.items():
        for key in TRANSFER_NUMBERS:
            if part.get(key) not in (None, {}):
                _line(f"{name} {key}: {_shown(part[key])}")
    _print_correlations(result.get("correlations", {}))
    if result["protocol"] == "grid":
        over = result["summary"][result["metric"]]
        seeds = "1 seed" if over["n"] == 1 else f"{over['n']} seeds"
        _line(f"{result['metric']} on test data: {_shown(over['mean'])} over {seeds}")
    _print_cards(by_method)


def tables_of(result: JsonMapping) -> Iterator[tuple[str, list[tuple[str, JsonMapping]]]]:
    """What was tried: per table its heading, and rows that say where (if that is not plain) and what.

    Example:
        >>> tried = {"fields": {"lr": 0.1}, "score": 0.9}
        >>> rates = [[{"fields": {"later_lr": 0.01}, "score": 0.8}]]
        >>> result = {"candidates": [{"stream": "mine", **tried}], "streams": {"mine": {"rates": rates}}}
        >>> [(heading, [where for where, _ in rows]) for heading, rows in tables_of(result)]
        [('candidate', ['mine: ']), ('rate of a later task', ['mine, task 2: '])]
    """
    by_method = {"": result, **{f"{name}: ": part for name, part in result.get("methods", {}).items()}}
    candidates = [
        (f"{candidate['stream']}: " if "stream" in candidate else where, candidate)
        for where, part in by_method.items()
        for candidate in part.get("candidates", [])
    ]
    if candidates:
        yield "candidate", candidates
    by_stream = {"": result, **{f"{name}, ": part for name, part in result.get("streams", {}).items()}}
    rates = [
        (f"{where}task {task}: ", candidate)
        for where, part in by_stream.items()
        for task, candidates_of_task in enumerate(part.get("rates", []), start=2)
        for candidate in candidates_of_task
        if candidate["fields"] != {"later_lr": None}
    ]
    if rates:
        yield "rate of a later task", rates


def _print_candidates(heading: str, rows: list[tuple[str, JsonMapping]]) -> None:
    from engram.cli.tables import Column, print_table

    failed = any(candidate["failures"] for _, candidate in rows)
    columns = [Column(heading), Column("score", right=True), *([Column("failed")] if failed else [])]
    cells = []
    for where, candidate in rows:
        fields = " ".join(f"{key}={value}" for key, value in candidate["fields"].items()) or "defaults"
        why = ["; ".join(dict.fromkeys(candidate["failures"]))] if failed else []
        cells.append([f"{where}{fields}", _shown(candidate["score"]), *why])
    print_table(columns, cells)


def _print_correlations(correlations: JsonMapping) -> None:
    for key, by_shots in correlations.items():
        for k, correlation in by_shots.items():
            if correlation["rho"] is not None:
                _line(
                    f"Spearman's ρ of {key} and AvgFwt with {k} shots: {_shown(correlation['rho'])} "
                    f"(p = {_shown(correlation['p'])}, {correlation['n']} runs)"
                )


def _print_cards(by_method: JsonMapping) -> None:
    from engram.cli.audit import print_card
    from engram.record.card import Card

    for name, part in by_method.items():
        if "card" in part:
            stdout.print(f"\nprotocol card of {name} with the chosen fields", style="bold", markup=False)
            print_card(Card.of_json(part["card"]))


def _line(text: str) -> None:
    stdout.print(text, soft_wrap=True, markup=False)


def _shown(value: Json) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, dict):
        return " ".join(f"{key}={_shown(item)}" for key, item in value.items() if item != []) or "defaults"
    if isinstance(value, list):
        return ", ".join(_shown(item) for item in value)
    return "–" if value is None else str(value)
