"""001: the printed digits of the random classifier, and the streams of the figures."""

import math
from decimal import ROUND_DOWN, ROUND_HALF_UP, Decimal

import pytest
from tests.protocols.made_up import Recorder

from engram.papers.catalogue import artefact
from engram.papers.published import cells
from engram.protocols.drive import drive
from engram.record.experiment import Experiment
from engram.record.run import Run

CURVES = ("AA", "AF", "RAA", "RAF")


def made_up(planned: Experiment) -> Run:
    """Every metric is k / 10 after task k, AF and RAF beginning with the second."""
    tasks = len(planned.scenario.tasks)
    values = {name: [(k + 1) / 1000 for k in range(tasks)] for name in CURVES}
    for name in ("AF", "RAF"):
        values[name][0] = math.nan
    return Run(planned=planned, stored={"AA": 0.5}, by_task=values)


@pytest.mark.parametrize("table", ["1", "2"])
def test_the_random_classifier_is_exact(table: str) -> None:
    recorder = Recorder(made_up)
    [piece] = artefact(f"001-table{table}").pieces
    values = drive(piece.plan([0]), recorder)
    assert recorder.rounds == [[]]
    assert set(values) == set(piece.cells) == set(cells("001", table))
    for cell, [value] in values.items():
        printed = Decimal(f"{cell.mean:g}")
        unit = Decimal(1).scaleb(int(printed.as_tuple().exponent))
        ours = Decimal(repr(round(value, 9)))
        ways = {ours.quantize(unit, rounding) for rounding in (ROUND_HALF_UP, ROUND_DOWN)}
        assert printed in ways, cell.name
        assert value == pytest.approx(cell.mean, abs=0.04)


def test_only_two_numbers_are_cut_off_instead_of_rounded() -> None:
    [piece] = artefact("001-table2").pieces
    values = drive(piece.plan([0]), Recorder(made_up))
    cut = [
        cell.mean for cell, [value] in values.items() if abs(value - cell.mean) > 0.0051 and cell.mean < 10
    ]
    assert cut == [4.16, 6.66]


def test_the_coefficients_are_those_of_the_reference() -> None:
    [piece] = artefact("001-figure2").pieces
    coefficients = drive(piece.plan([0]), Recorder(made_up))
    assert coefficients[20]["β (forgetting)"][1] == pytest.approx(0.273446, abs=1e-6)
    assert coefficients[20]["β (forgetting)"][9] == pytest.approx(0.637910, abs=1e-6)
    assert coefficients[100]["β (forgetting)"][49] == pytest.approx(0.592289, abs=1e-6)
    assert coefficients[100]["γ (accuracy)"][24] == pytest.approx(0.25)
    draw = artefact("001-figure2").draw
    assert draw is not None
    text = draw({"coefficients": coefficients}).html()
    assert "K = 20" in text and "K = 100" in text and "γ (accuracy)" in text


@pytest.mark.parametrize("name", ["001-figure3", "001-figure4"])
@pytest.mark.parametrize("reading", [None, "small"])
def test_streams_are_shown_once_and_drawn(name: str, reading: str | None) -> None:
    figure = artefact(name)
    pieces = figure.pieces if reading is None else figure.others[reading]
    recorder = Recorder(made_up)
    returned = {piece.name: drive(piece.plan([0, 1]), recorder) for piece in pieces}
    assert len(returned) == (6 if reading is None else 3)
    for planned in (planned for experiments in recorder.rounds for planned in experiments):
        assert planned.scenario.passes == 1 and planned.batch_size == 10
        assert planned.optimizer.lr == 0.01 and planned.optimizer.momentum == 0.9
        assert planned.optimizer.weight_decay == 1e-4
        assert planned.evaluation.subset is None and planned.evaluation.every > 10**6
        assert planned.model.name == ("resnet18" if reading is None else "slim-resnet18")
        tasks = {"split-cifar100": 10, "split-tiny-imagenet": 100}[planned.scenario.name]
        assert len(planned.scenario.tasks) == tasks
        if planned.method == "er":
            assert planned.settings["memory"] == 2000 and planned.settings["policy"] == "reservoir"
            assert planned.settings["memory_batch"] == (64 if reading is None else 10)
        if planned.method == "gdumb":
            assert planned.settings["memory"] == 2000
            assert planned.settings["epochs"] == (30 if reading is None else 16)
    assert figure.draw is not None
    text = figure.draw(returned).html()
    for word in ("finetune", "ER", "GDumb", "CIFAR100", *(("RAA",) if name == "001-figure3" else ("RAF",))):
        assert word in text
    assert ("Tiny ImageNet" in text.split("<script")[0]) == (reading is None)


def test_figures_3_and_4_share_their_runs() -> None:
    runs = [
        [planned.id for piece in artefact(name).pieces for planned in piece.first_runs()]
        for name in ("001-figure3", "001-figure4")
    ]
    assert runs[0] == runs[1]
