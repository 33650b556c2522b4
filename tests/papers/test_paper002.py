"""Paper 002: its tables and figures from made-up results, its set-up, and a quick piece on real data."""

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.papers.made_up import failed

from engram.engine.where import Where
from engram.executors import Execute
from engram.executors.serial import Serial
from engram.models import build
from engram.papers import paper002
from engram.papers.catalogue import artefact
from engram.papers.plans import quick
from engram.papers.published import cells
from engram.papers.values import Piece
from engram.protocols.drive import drive
from engram.record.experiment import Experiment
from engram.record.run import Run
from engram.scenarios.values import ClassSetting

STRENGTH_OF_BEST = 100.0
STRENGTH_OF_WORST = 10000.0


def made_up(score: Callable[[Experiment], float]) -> Execute:
    """Final averages from the experiment, falling evenly from 1 over the tasks."""

    def execute(experiments: Sequence[Experiment]) -> list[Run]:
        runs: list[Run] = []
        for planned in experiments:
            tasks, final = len(planned.scenario.phases), score(planned)
            averages = [1 - (1 - final) * done / tasks for done in range(1, tasks + 1)]
            metrics = {"AA": final, "AvgAcc": final}
            runs.append(Run(planned=planned, stored=metrics, by_task={"AA": averages}))
        return runs

    return execute


def by_strength(planned: Experiment) -> float:
    """Best at 100, worst at 10,000; a little better with every seed."""
    strength = planned.settings.get("strength", 1.0)
    scores = {1.0: 0.6, 10.0: 0.7, STRENGTH_OF_BEST: 0.8, 1000.0: 0.65, STRENGTH_OF_WORST: 0.5}
    return scores[strength] + 0.01 * planned.seed


def piece_of(name: str, piece: str) -> Piece:
    return next(candidate for candidate in artefact(name).pieces if candidate.name == piece)


def returned(name: str, execute: Execute, seeds: int = 1) -> dict[str, Any]:
    return {piece.name: drive(piece.plan(range(seeds)), execute) for piece in artefact(name).pieces}


def test_a_cell_of_tables_2_to_4_gets_one_value_a_seed_in_percent() -> None:
    [cell] = piece_of("002-table2", "Split MNIST/class/EWC/AvgAcc").cells
    piece = piece_of("002-table2", "Split MNIST/class/EWC/AvgAcc")
    values = drive(piece.plan([0, 1]), made_up(lambda planned: 0.25 + 0.5 * planned.seed))
    assert values == {cell: [25.0, 75.0]}
    assert (cell.method, cell.mean) == ("EWC", 19.80)


def test_a_failed_seed_leaves_no_value() -> None:
    piece = artefact("002-table2").pieces[0]

    def execute(experiments: Sequence[Experiment]) -> list[Run]:
        good, bad = experiments
        return [
            Run(planned=good, stored={"AvgAcc": 0.5}),
            failed(bad, "diverged"),
        ]

    assert drive(piece.plan([0, 1]), execute) == {piece.cells[0]: [50.0]}


@pytest.mark.parametrize(
    ("benchmark", "row", "strengths"),
    [
        ("Split MNIST", "L2", (0.01, 0.5, 100)),
        ("Split MNIST", "EWC", (100, 100, 600)),
        ("Split MNIST", "Online EWC", (400, 700, 100)),
        ("Split MNIST", "SI", (300, 3000, 600)),
        ("Split MNIST", "MAS", (1, 10000, 1)),
        ("Permuted MNIST", "L2", (0.001, 0.02, 0)),
        ("Permuted MNIST", "EWC", (500, 150, 10)),
        ("Permuted MNIST", "Online EWC", (500, 250, 50)),
        ("Permuted MNIST", "SI", (1, 10, 0.3)),
        ("Permuted MNIST", "MAS", (0.01, 0.1, 0.003)),
    ],
)
def test_strengths_are_those_of_the_scripts(
    benchmark: str, row: str, strengths: tuple[float, float, float]
) -> None:
    planned = [paper002.as_published(row, benchmark, setting, 0) for setting in ("task", "domain", "class")]
    assert tuple(each.settings["strength"] for each in planned) == strengths


def test_training_is_as_published() -> None:
    split = paper002.as_published("Adam", "Split MNIST", "class", 0)
    assert (split.optimizer.name, split.optimizer.lr, split.optimizer.reset) == ("adam", 0.001, False)
    assert (split.batch_size, split.epochs, split.model.hidden) == (128, 4, (400, 400))
    permuted = paper002.as_published("Adagrad", "Permuted MNIST", "domain", 0)
    assert (permuted.optimizer.name, permuted.optimizer.lr) == ("adagrad", 0.001)
    assert (permuted.batch_size, permuted.epochs, permuted.model.hidden) == (128, 10, (1000, 1000))
    memories = [
        paper002.as_published(row, benchmark, "class", 0).settings["memory"]
        for benchmark in paper002.BENCHMARKS
        for row in ("Naive rehearsal", "Naive rehearsal-C")
    ]
    assert memories == [1100, 4400, 4000, 16000]
    fishers = [
        paper002.as_published("EWC", "Permuted MNIST", setting, 0).settings["fisher"]
        for setting in ("task", "domain", "class")
    ]
    assert fishers == ["sample", "batch-scaled", "sample"]


def test_table_4_runs_both_numbers_of_classes() -> None:
    pieces = artefact("002-table4").pieces
    for piece in pieces:
        [planned] = piece.first_runs(1)
        known = piece.cells[0].setting == "known #classes"
        setting = planned.scenario.setting
        assert isinstance(setting, ClassSetting) and setting.classes_known is known
    unknown = {p.first_runs(1)[0].id for p in pieces if p.cells[0].setting != "known #classes"}
    class_column = {
        piece.first_runs(1)[0].id
        for name in ("002-table2", "002-table3")
        for piece in artefact(name).pieces
        if piece.cells[0].scenario == "class"
    }
    assert unknown <= class_column


@pytest.mark.parametrize(
    ("name", "piece", "digest"),
    [
        ("002-table2", "Split MNIST/class/EWC/AvgAcc", "1f0d619d34e1"),
        ("002-table2", "Split MNIST/task/DGR/AvgAcc", "626a02d98c44"),
        ("002-table3", "Permuted MNIST/domain/Naive rehearsal/AvgAcc", "6800033fc661"),
        ("002-table4", "Permuted MNIST/class/SI/known #classes/AvgAcc", "40a41c2cf198"),
    ],
)
def test_runs_keep_their_names(name: str, piece: str, digest: str) -> None:
    """Runs that were made and recorded are found again under these names."""
    [planned] = piece_of(name, piece).first_runs(1)
    assert planned.digest == digest


def changed(name: str, follow: str) -> dict[str, tuple[Experiment, Experiment]]:
    """The pieces whose runs are others under another reading: usual, and as followed."""
    usual, other = artefact(name).pieces, artefact(name).others[follow]
    assert [piece.cells for piece in usual] == [piece.cells for piece in other]
    runs = {
        one.name: (one.first_runs(1)[0], two.first_runs(1)[0]) for one, two in zip(usual, other, strict=True)
    }
    return {name: pair for name, pair in runs.items() if pair[0].id != pair[1].id}


def test_following_the_code_changes_rehearsal_and_one_rate() -> None:
    table2, table3 = changed("002-table2", "code"), changed("002-table3", "code")
    assert {name.split("/")[2] for name in table2} == {"Naive rehearsal", "Naive rehearsal-C"}
    assert len(table2) == 6
    usual, coded = table3.pop("Permuted MNIST/task/SGD/AvgAcc")
    assert (usual.optimizer.lr, coded.optimizer.lr) == (0.001, 0.01)
    assert {coded.settings["mode"] for _, coded in [*table2.values(), *table3.values()]} == {"concat"}
    # 8,800 remembered beside 12,000 new samples, and 48,000 beside 60,000: so many of 128 are new.
    assert table2["Split MNIST/class/Naive rehearsal-C/AvgAcc"][1].batch_size == round(128 * 12 / 20.8)
    assert table3["Permuted MNIST/class/Naive rehearsal-C/AvgAcc"][1].batch_size == round(128 * 6 / 10.8)
    assert len(changed("002-table4", "code")) == 8


def test_copied_rows_can_be_run_in_the_papers_own_set_up() -> None:
    for name in ("002-table2", "002-table3"):
        others = changed(name, "one-setup")
        assert len(others) == 9
        for copied, own in others.values():
            assert copied.method == own.method
            assert (copied.scenario.name.endswith("-2018"), own.scenario.name.endswith("-002")) == (
                True,
                True,
            )


@pytest.mark.parametrize(("table", "network"), [("5", "MLP"), ("6", "CNN")])
def test_queue_tables_take_the_best_and_the_worst_strength_at_every_tenth_task(
    table: str, network: str
) -> None:
    by_piece = returned(f"002-table{table}", made_up(by_strength), seeds=2)
    values = {
        cell: numbers for values_of_piece in by_piece.values() for cell, numbers in values_of_piece.items()
    }
    assert set(values) == set(cells("002", table))
    for cell, numbers in values.items():
        final = {"best": 0.8, "worst": 0.5}.get(cell.method.split("(")[-1].rstrip(")"), 0.6)
        done = int(cell.setting.split()[-1]) / 78
        expected = [100 * (1 - (1 - final - 0.01 * seed) * done) for seed in (0, 1)]
        assert numbers == pytest.approx(expected)
        assert cell.setting.startswith(network)


def test_queue_is_trained_as_published() -> None:
    si = paper002.in_queue("SI", "MLP", 0)
    assert (si.optimizer.name, si.optimizer.lr, si.batch_size, si.epochs) == ("adam", 0.001, 128, 10)
    assert (si.model.name, si.model.hidden, si.scenario.setting.kind) == ("mlp", (256, 256), "task")
    adagrad = paper002.in_queue("Adagrad", "CNN", 0)
    assert (adagrad.optimizer.name, adagrad.optimizer.lr, adagrad.model.name) == ("adagrad", 0.001, "cnn")
    for network, parameters in (("MLP", 306_844), ("CNN", 297_018)):
        planned = paper002.in_queue("Adam", network, 0)
        built = build(planned.model, shape=(1, 28, 28), n_units=planned.scenario.n_units, seed=0)
        assert sum(weights.numel() for weights in built.parameters()) == parameters


def test_a_zero_head_is_another_experiment_and_the_usual_one_keeps_its_name() -> None:
    usual = paper002.in_queue("SI", "MLP", 0)
    zero = paper002.in_queue("SI", "MLP", 0, zero_head=True)
    assert usual.id != zero.id
    assert "zero_head" not in usual.as_json()["model"]
    assert zero.as_json()["model"]["zero_head"] is True
    one, other = (build(planned.model, shape=(1, 28, 28), n_units=4, seed=0) for planned in (usual, zero))
    assert all(not weights.any() for weights in other.head.parameters())
    assert all(weights.any() for weights in one.head.parameters())
    pairs = zip(one.features.parameters(), other.features.parameters(), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)


def lines(name: str, returned_values: dict[str, paper002.AverageCurves]) -> list[dict[str, list[float]]]:
    """What a figure's page draws: for each panel, the heights of its curves by their names."""
    draw = artefact(name).draw
    assert draw is not None
    text = draw(returned_values).html()
    written = re.search(r'<script type="application/json" id="figures">(.*?)</script>', text, re.S)
    assert written is not None
    panels = json.loads(written[1]).values()
    return [{trace["name"]: trace["y"] for trace in panel["data"]} for panel in panels]


def test_the_queue_comparison_draws_every_line_and_the_published_rings() -> None:
    by_piece = returned("002-figure3", made_up(by_strength))
    dense, convolutional = lines("002-figure3", by_piece)
    names = ["Adam", "SI (best), λ = 100", "SI (worst), λ = 10000", "Online EWC (best), λ = 100"]
    names += ["Online EWC (worst), λ = 10000", "Adagrad"]
    assert [name for name in dense if "published" not in name] == names
    assert len(dense["Adam"]) == 78
    assert dense["SI (worst), λ = 10000"][-1] == pytest.approx(50)
    assert dense["SI (worst), published"][-1] == 66.33
    assert convolutional["SI (worst), published"][-1] == 51.87


def test_a_panel_for_each_start_of_the_heads_and_a_line_for_each_strength() -> None:
    panels = lines("002-figure4", returned("002-figure4", made_up(by_strength)))
    assert len(panels) == 4
    for panel in panels:
        assert list(panel) == ["λ = 1", "λ = 10", "λ = 100", "λ = 1000", "λ = 10000"]
        assert panel["λ = 100"][-1] == pytest.approx(80)


def test_a_panel_for_each_strength_and_a_line_for_each_start_of_the_heads() -> None:
    execute = made_up(lambda planned: by_strength(planned) - 0.2 * planned.model.zero_head)
    panels = lines("002-figure5", returned("002-figure5", execute))
    assert len(panels) == 10
    assert panels[2]["zero heads"][-1] == pytest.approx(60)
    assert panels[2]["random heads"][-1] == pytest.approx(80)


def test_a_strength_that_fails_is_left_out_of_its_figure() -> None:
    def execute(experiments: Sequence[Experiment]) -> list[Run]:
        runs = made_up(by_strength)(experiments)
        return [
            failed(run.experiment, "diverged") if run.experiment.settings["strength"] == 1000 else run
            for run in runs
        ]

    by_piece = returned("002-figure4", execute)
    assert by_piece["SI/zero heads"]["1000"] == []
    assert "λ = 1000" not in lines("002-figure4", by_piece)[0]


def test_figures_share_their_runs_with_the_tables() -> None:
    def runs(name: str) -> set[str]:
        return {planned.id for piece in artefact(name).pieces for planned in piece.first_runs(1)}

    assert runs("002-table5") | runs("002-table6") == runs("002-figure3")
    assert runs("002-figure4") == runs("002-figure5")
    assert len(runs("002-figure4") & runs("002-table5")) == 2 * len(paper002.STRENGTHS)


@pytest.mark.slow
def test_a_quick_piece_runs_end_to_end(tmp_path: Path, real_data: Path) -> None:
    piece = piece_of("002-table2", "Split MNIST/class/Naive rehearsal/AvgAcc")
    coded = artefact("002-table2").others["code"][artefact("002-table2").pieces.index(piece)]
    serial = Serial(Where(out=tmp_path, data=real_data))
    for reading in (piece, coded):
        [[value]] = drive(quick(reading.plan([0])), serial).values()
        assert 20 < value < 100
    assert len(list(tmp_path.iterdir())) == 2
