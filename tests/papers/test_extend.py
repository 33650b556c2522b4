"""Records that grow: recorded runs count as done, further seeds are added, and all are judged together."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from engram.core.errors import InputError
from engram.core.files import write_json
from engram.core.folder import FAILURE
from engram.core.jsons import JsonMapping
from engram.papers.catalogue import artefact
from engram.papers.extend import extended, judged, record_of, remaining, with_finished
from engram.papers.power import power
from engram.papers.recorded import everything
from engram.papers.reproduce import chosen_pieces, record, reproduce
from engram.papers.values import Piece
from engram.record.experiment import Experiment
from engram.record.run import Run

TABLE, CELL = "002-table2", "Split MNIST/domain/SGD/AvgAcc"
MADE_WITH = {"python": "9", "engram": "9"}


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> JsonMapping:
    """The record of the table as if only the seeds 0, 1 and 2 of one cell had been run."""
    whole = record_of(TABLE)
    parts = [
        {
            **part,
            "seeds": [0, 1, 2],
            "runs": part["runs"][:3],
            "missing": 7,
            "cells": [
                {**cell, "ours": {**cell["ours"], "values": cell["ours"]["values"][:3]}}
                for cell in part["cells"]
            ],
        }
        if part["piece"] == CELL
        else part
        for part in whole["pieces"]
    ]
    shortened = judged({**whole, "pieces": parts})
    others = [other for other in everything() if other is not whole]
    monkeypatch.setattr("engram.papers.recorded.everything", lambda: (*others, shortened))
    return shortened


def part_of(written: JsonMapping, name: str = CELL) -> JsonMapping:
    parts: dict[str, JsonMapping] = {part["piece"]: part for part in written["pieces"]}
    return parts[name]


def piece() -> Piece:
    [one] = chosen_pieces(artefact(TABLE), cells=CELL)
    return one


def save(seeds: Sequence[int], out: Path) -> None:
    """Finished runs with made-up values: 63.0 for seed 0, 63.1 for seed 1, and so on."""
    for planned in piece().first_runs(seeds):
        Run(
            planned=planned,
            finished=True,
            stored={"AvgAcc": 0.63 + planned.seed / 1000},
            updates=7,
            versions=MADE_WITH,
        ).save(out / planned.id)


def test_runs_of_any_seeds_are_added_in_their_order(short: JsonMapping, tmp_path: Path) -> None:
    save([9, 4, 5], tmp_path)
    grown = with_finished(TABLE, tmp_path)
    part, before = part_of(grown), part_of(short)
    assert part["seeds"] == [0, 1, 2, 4, 5, 9]
    assert [run["seed"] for run in part["runs"]] == [0, 1, 2, 4, 5, 9]
    assert part["runs"][:3] == before["runs"]
    assert [run["id"] for run in part["runs"][3:]] == [run.id for run in piece().first_runs([4, 5, 9])]
    [cell] = part["cells"]
    assert cell["ours"]["values"][:3] == before["cells"][0]["ours"]["values"]
    assert cell["ours"]["values"][3:] == pytest.approx([63.4, 63.5, 63.9])
    assert part["missing"] == 4
    assert cell["detectable"] < before["cells"][0]["detectable"], "judged by all of them"
    assert grown["versions"] == [*short["versions"], MADE_WITH]
    assert judged(grown) == grown
    others = [part for part in grown["pieces"] if part["piece"] != CELL]
    assert others == [part for part in short["pieces"] if part["piece"] != CELL], "nothing else changes"


def test_the_recorded_runs_come_first(short: JsonMapping, tmp_path: Path) -> None:
    """Runs with recorded seeds are not asked for, and do not count where they were made again."""
    save([0, 1, 2, 3], tmp_path)
    values = part_of(with_finished(TABLE, tmp_path))["cells"][0]["ours"]["values"]
    assert values[:3] == part_of(short)["cells"][0]["ours"]["values"]
    assert values[3:] == pytest.approx([63.3])


def test_nothing_new_changes_nothing(short: JsonMapping, tmp_path: Path) -> None:
    assert with_finished(TABLE, tmp_path) == short
    assert with_finished(TABLE, tmp_path, seeds=3)["pieces"] != short["pieces"], "none is missing then"


def test_every_cell_is_counted_and_statements_are_judged_anew(short: JsonMapping, tmp_path: Path) -> None:
    save(range(3, 10), tmp_path)
    for planned in piece().first_runs(range(3, 10)):
        # Below all other methods, so that the order of methods breaks.
        run = Run.find(planned, tmp_path)
        replace(run, stored={"AvgAcc": 0.1}).save()
    grown = with_finished(TABLE, tmp_path)
    assert part_of(grown)["cells"][0]["verdict"] == "differs"
    assert sum(grown["verdicts"].values()) == 42 and grown["verdicts"]["differs"] == 1
    assert [statement["holds"] for statement in short["statements"]] == [True] * 3
    assert [statement["holds"] for statement in grown["statements"]] == [True, False, True]


def test_a_run_that_failed_is_named_once(short: JsonMapping, tmp_path: Path) -> None:
    [planned] = piece().first_runs([3])
    write_json(
        tmp_path / planned.id / FAILURE, {"kind": "diverged", "reason": "the loss became nan", "details": ""}
    )
    part = part_of(with_finished(TABLE, tmp_path))
    assert [failure["id"] for failure in part["failures"]] == [planned.id]
    assert len(part["runs"]) == len(part["cells"][0]["ours"]["values"]) == 3


def test_only_what_the_record_lacks_is_run(short: JsonMapping) -> None:
    requested: list[int] = []

    def execute(experiments: Sequence[Experiment]) -> list[Run]:
        requested.extend(planned.seed for planned in experiments)
        return [Run(planned=planned, stored={"AvgAcc": 0.632}) for planned in experiments]

    outcomes = reproduce(remaining([piece()], short), execute, seeds=5)
    assert requested == [3, 4]
    grown = extended(artefact(TABLE), short, record(artefact(TABLE), outcomes, scale="full"))
    assert len(part_of(grown)["cells"][0]["ours"]["values"]) == 5


def test_power_counts_recorded_and_finished_runs(short: JsonMapping, tmp_path: Path) -> None:
    save([7], tmp_path)
    [sgd] = power(TABLE, tmp_path, cells=CELL, seeds=20)
    assert (sgd.runs, sgd.planned) == (4, 20)
    assert sgd.then < sgd.now


def test_what_cannot_grow_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be extended: the numbers of 'MNIST/class/finetune'"):
        with_finished("000-table3", tmp_path)
    with pytest.raises(InputError, match="002-table2 has no record that follows code"):
        record_of("002-table2", follow="code")
    with pytest.raises(InputError, match="unknown table or figure"):
        record_of("002-tabel2")
    with pytest.raises(InputError, match="scaled down"):
        power("004-table3", tmp_path, follow="small")
    with pytest.raises(InputError, match="no published numbers"):
        power("002-figure3", tmp_path)
