"""What is recorded: the page shows it, runs are those that are planned, and what differs is explained."""

from pathlib import Path

import pytest

from engram.core.folder import finite
from engram.papers.catalogue import artefact
from engram.papers.recorded import cited, corrections, document, everything, explained, recorded
from engram.papers.reproduce import chosen_pieces, scale_of
from engram.papers.summary import filled
from engram.papers.verdict import compare

PAGE = Path(__file__).parents[2] / "docs" / "reproduction.md"
SUMMARY = PAGE.with_name("reproduced.md")


def test_the_page_is_made_from_the_records() -> None:
    assert PAGE.read_text("utf-8") == document(), "python -m engram.papers.renew"


def test_the_summary_has_the_numbers_of_the_records() -> None:
    page = SUMMARY.read_text("utf-8")
    assert filled(page) == page, "python -m engram.papers.renew"
    assert page.count("<!-- end -->") >= 5
    changed = page.replace("94.70 ± 2.61", "94.71 ± 2.61")
    assert changed != page and filled(changed) == page, "what is written there by hand is put right"


@pytest.mark.parametrize("record", everything(), ids=lambda record: record["name"])
def test_a_record_fits_its_definition(record: dict) -> None:  # type: ignore[type-arg]
    """Cells are the published ones, verdicts follow from the values, and runs are those that are planned."""
    pieces = {piece.name: piece for piece in chosen_pieces(artefact(record["name"]), follow=record["follow"])}
    assert record["scale"] == scale_of(record["follow"])
    assert cited(record["note"]) == artefact(record["name"]).note
    for written in record["pieces"]:
        piece = pieces[written["piece"]]
        first = piece.first_runs(written["seeds"] or None)
        planned = {name for run in first for name in (run.id, *run.earlier_ids)}
        if not piece.later:
            assert {run["id"] for run in written["runs"]} <= planned
        for cell in written["cells"][:1]:
            again = chosen_pieces(artefact(record["name"]), follow=record["follow"], cells=cell["cell"])
            assert piece in again, "the command that the page names"
        published = {cell.name: cell for cell in piece.cells}
        for cell in written["cells"]:
            comparison = compare(
                published[cell["cell"]],
                cell["ours"]["values"],
                comparable=record["scale"] == "full",
                exact=piece.exact,
            )
            assert finite(comparison.as_json()) == cell, "python -m engram.papers.renew"
        if piece.per_run:
            assert [run["seed"] for run in written["runs"]] == sorted(run["seed"] for run in written["runs"])
            assert all(len(cell["ours"]["values"]) == len(written["runs"]) for cell in written["cells"])


def test_what_differs_is_explained() -> None:
    for record in everything():
        known = {name for names in explained(record).values() for name in names}
        differing = {
            cell["cell"]
            for piece in record["pieces"]
            for cell in piece["cells"]
            if cell["verdict"] == "differs"
        }
        assert differing <= known, record["name"]


def test_figures_keep_what_they_draw() -> None:
    for record in everything():
        if artefact(record["name"]).draw is not None:
            assert all(len(curve["y"]) > 1 for panel in record["panels"] for curve in panel["curves"])
            assert record["panels"], record["name"]


def test_a_random_classifier_comes_out_to_the_printed_digits() -> None:
    """4.16 and 6.66 are cut off in the paper, so that a cell may be a hundredth too low."""
    for name in ("001-table1", "001-table2"):
        [record] = recorded(name)
        for piece in record["pieces"]:
            for cell in piece["cells"]:
                assert abs(cell["difference"]) < 0.05, cell


def test_runs_from_before_a_correction_are_said_to_be() -> None:
    before = {record["name"] for record in everything() if corrections(record)}
    assert before == {"003-table1", "003-figure3"}
    [change] = corrections(recorded("003-table1")[0])
    assert "crops are padded with black" in change
