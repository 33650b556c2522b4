"""All tables and figures: none is missing, every number belongs to one piece, all can be planned."""

import csv
import json
import math
from collections import Counter
from collections.abc import Sequence
from importlib import import_module
from importlib.resources import files
from itertools import islice
from pathlib import Path

import pytest
from tests.papers.made_up import execute

from engram.core.errors import InputError
from engram.papers.catalogue import artefact, artefacts
from engram.papers.plans import quick
from engram.papers.published import PAPERS, Cell, cells
from engram.papers.sizes import QUICK_UPDATES, scaled_down, updates_of
from engram.papers.values import Artefact, Piece
from engram.protocols.drive import drive


def numbered(paper: str, kind: str, numbers: Sequence[int]) -> list[str]:
    return [f"{paper}-{kind}{number}" for number in numbers]


WANTED = [
    *numbered("000", "table", range(1, 7)),
    *numbered("000", "figure", range(2, 10)),
    *numbered("001", "table", (1, 2)),
    *numbered("001", "figure", (2, 3, 4)),
    *numbered("002", "table", range(2, 7)),
    *numbered("002", "figure", (3, 4, 5)),
    *numbered("003", "table", range(1, 7)),
    *numbered("003", "figure", (1,)),
    *numbered("004", "table", (1, 3, 4, 5)),
    *numbered("004", "figure", (4, 6)),
]


IN_THE_TEXT = {"000-table2": "text(sec3.3)"}
"""Numbers that a paper's text gives, by the table with which they come out."""


def printed(name: str) -> tuple[Cell, ...]:
    """The numbers that a table has to give."""
    paper, table = name.split("-table")
    return cells(paper, table) + (cells(paper, IN_THE_TEXT[name]) if name in IN_THE_TEXT else ())


def published_tables() -> list[str]:
    folder = files("engram.papers") / "published"
    rows = [row for file in folder.iterdir() for row in csv.DictReader(file.read_text("utf-8").splitlines())]
    return sorted({f"{row['paper']}-table{row['table']}" for row in rows})


def readings(of: Artefact) -> dict[str, tuple[Piece, ...]]:
    """The pieces by reading: the usual one, and the others."""
    return {"": of.pieces, **of.others}


def some(pieces: Sequence[Piece], *, limit: int = 3, most: int = 100) -> list[Piece]:
    """The first pieces that ask for no more than a hundred runs to begin with."""
    small = (piece for piece in pieces if len(piece.first_runs(1)) <= most)
    return list(islice(small, limit)) or list(pieces[:1])


def names_of(kind: str = "") -> list[object]:
    """Names of all tables and figures, or of one kind; 004 has hundreds of runs per number and is slow."""
    return [
        pytest.param(name, marks=[pytest.mark.slow] if name.startswith("004") else [])
        for name in sorted(artefacts())
        if kind in name
    ]


@pytest.mark.parametrize("name", WANTED)
def test_every_table_and_figure_is_defined(name: str) -> None:
    reproduced = artefact(name)
    assert reproduced.name == name
    assert reproduced.title
    assert reproduced.pieces
    assert (reproduced.draw is not None) == ("-figure" in name)


def test_every_published_table_is_wanted() -> None:
    texts = {f"{name.split('-')[0]}-table{place}" for name, place in IN_THE_TEXT.items()}
    assert {name for name in WANTED if "-table" in name} | texts == set(published_tables())


@pytest.mark.parametrize("name", [name for name in WANTED if "-table" in name])
def test_every_published_number_belongs_to_exactly_one_piece(name: str) -> None:
    wanted = Counter(printed(name))
    assert max(wanted.values()) == 1
    assert Counter(cell for piece in artefact(name).pieces for cell in piece.cells) == wanted
    # Another reading may leave out what it says nothing of, and a scaled-down one what takes long.
    for reading, pieces in artefact(name).others.items():
        again = Counter(cell for piece in pieces for cell in piece.cells)
        assert again <= wanted, reading


def test_names_are_unique() -> None:
    for reproduced in artefacts().values():
        for reading, pieces in readings(reproduced).items():
            doubled = [name for name, times in Counter(p.name for p in pieces).items() if times > 1]
            assert not doubled, (reproduced.name, reading)
    for table in published_tables():
        names = Counter(cell.name for cell in cells(*table.split("-table")))
        assert max(names.values()) == 1, table


def test_no_two_tables_have_the_same_name() -> None:
    names = [
        reproduced.name
        for paper in PAPERS
        for reproduced in import_module(f"engram.papers.paper{paper}").ARTEFACTS
    ]
    assert len(names) == len(set(names)) == len(artefacts())
    assert all(name.startswith(tuple(PAPERS)) for name in names)


@pytest.mark.parametrize("name", names_of())
def test_runs_can_be_planned_without_data(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ENGRAM_DATA", str(tmp_path))
    assert all(piece.seeds >= 1 and piece.later >= 0 for piece in artefact(name).pieces)
    for reading, pieces in readings(artefact(name)).items():
        for piece in some(pieces) if reading else pieces:
            runs = piece.first_runs(1)
            assert all(updates_of(planned) > 0 for planned in runs[:3]), piece.name
            assert len({planned.id for planned in runs[:3]}) == len(runs[:3]), piece.name


def test_a_name_that_nearly_exists_is_suggested() -> None:
    with pytest.raises(InputError, match="did you mean '002-table2'"):
        artefact("002-tabel2")


@pytest.mark.slow
@pytest.mark.parametrize("name", names_of("-table"))
def test_quick_tables_give_a_value_for_every_number(name: str) -> None:
    for reading, pieces in readings(artefact(name)).items():
        for piece in some(pieces, limit=1 if reading else 3):
            returned = drive(quick(piece.plan([0])), execute)
            assert set(returned) == set(piece.cells), piece.name
            values = [value for numbers in returned.values() for value in numbers]
            assert len(values) >= len(piece.cells)
            assert all(math.isfinite(value) for value in values), piece.name


@pytest.mark.parametrize("name", names_of("-figure"))
@pytest.mark.slow
def test_quick_figures_are_drawn(name: str) -> None:
    figure = artefact(name)
    assert figure.draw is not None
    for pieces in (figure.pieces, *(some(reading, limit=1) for reading in readings(figure).values())):
        page = figure.draw({piece.name: drive(quick(piece.plan([0])), execute) for piece in pieces})
        text = page.html()
        assert json.dumps(page.numbers())
        assert text.startswith("<!doctype html>")
        assert 'data-figure="panel-0"' in text


@pytest.mark.parametrize("name", names_of())
def test_quick_runs_are_short(name: str) -> None:
    for pieces in readings(artefact(name)).values():
        for piece in some(pieces):
            for planned in piece.first_runs(1):
                short = scaled_down(planned)
                for phase in range(len(short.scenario.phases)):
                    assert short.steps(10**6, phase=phase) <= QUICK_UPDATES
                assert short.evaluation.subset is not None
