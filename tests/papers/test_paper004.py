"""Pfülb & Gepperth (2019): which runs are asked for, what is read from them, and what figures show."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.papers.made_up import failed
from tests.protocols.made_up import Recorder, with_curve

from engram.core.trace import Trace
from engram.engine.check import complete
from engram.engine.loop import run
from engram.engine.probing import balance_name
from engram.engine.where import Where
from engram.executors.serial import Serial
from engram.models import ModelSpec, build
from engram.papers.catalogue import artefact
from engram.papers.paper004.figures import curves
from engram.papers.paper004.interpretations import CODE, FOLLOWED, SMALL, TEXT, TOPOLOGIES, planned
from engram.papers.paper004.tables import counted, flags, forgets
from engram.papers.plans import quick
from engram.papers.published import Cell, cells
from engram.papers.values import Piece, Values
from engram.protocols.drive import drive
from engram.record.experiment import EvaluationSpec, Experiment
from engram.record.run import Run
from engram.record.tables import Tables
from engram.scenarios import joint, slt
from engram.scenarios.values import Permute

# What is left of D1 when D2 is learned, right after its first update and at its end.
LEFT = {"D5-5a": (0.9, 0.2), "D5-5d": (0.7, 0.3), "D5-5f": (0.8, 0.1)}
BASELINE = {"D5-5a": 0.95, "D5-5d": 0.9, "D5-5f": 0.85}


def code_of(experiment: Experiment) -> str:
    return "-".join(experiment.scenario.name.split("-")[1:3])


def made_up(experiment: Experiment) -> Run:
    """Wide layers and the smaller rate are best on D1, the rate .0001 on D2."""
    scenario, code = experiment.scenario, code_of(experiment)
    if scenario.phases == joint(scenario).phases:
        height = BASELINE.get(code, 0.9)
        return with_curve(experiment, [(1, 1, {0: 0.3, 1: 0.3}), (2, 1, {0: height, 1: height})])
    width = sum(experiment.model.hidden) if experiment.model.name != "conv" else 0
    on_first = 0.5 + width / 10_000 + (0.1 if experiment.optimizer.lr == 0.001 else 0.0)
    curve: list[tuple[int, int, Mapping[int, float]]] = [(1, 0, {0: 0.4}), (2, 0, {0: on_first})]
    if len(scenario.phases) == 1:
        return with_curve(experiment, curve)
    rate = experiment.by_phase[1].lr if experiment.by_phase else None
    early, late = LEFT.get(code, (0.6, 0.5))
    on_second = 0.9 if rate in (1e-4, None) else 0.7
    curve += [(3, 1, {0: early, 1: 0.1}), (4, 1, {0: late, 1: on_second})]
    balances = tuple(
        (4, 1, None, balance_name(place / 100), 0.5 + 0.3 * (place == 40) + 0.1 * (place == 60))
        for place in range(101)
    )
    return with_curve(experiment, curve, balances if experiment.evaluation.balances else ())


def piece_of(table: str, name: str, follow: str | None = None) -> Piece:
    reproduced = artefact(f"004-{table}")
    pieces = reproduced.pieces if follow is None else reproduced.others[follow]
    return next(piece for piece in pieces if piece.name == name)


def by_metric(values: Values) -> dict[str, list[float]]:
    return {cell.metric: [round(value, 6) for value in numbers] for cell, numbers in values.items()}


@pytest.mark.parametrize("table", ["1", "3", "4", "5"])
def test_every_number_belongs_to_one_piece(table: str) -> None:
    reproduced = artefact(f"004-table{table}")
    for pieces in (
        reproduced.pieces,
        *(reproduced.others[name] for name in ("text", "code") if name in reproduced.others),
    ):
        covered = Counter(cell for piece in pieces for cell in piece.cells)
        assert covered == Counter(cells("004", table))


def test_the_small_reading_has_what_one_computer_can_do() -> None:
    pieces = artefact("004-table3").others["small"]
    covered = Counter(cell for piece in pieces for cell in piece.cells)
    assert max(covered.values()) == 1
    assert {cell.benchmark for cell in covered} == {"Devanagari", "MNIST", "FashionMNIST"}
    dense = {cell.method for cell in covered if cell.scenario == "DP10-10"}
    assert dense == {"FC", "D-FC", "LWTA", "EWC"}
    assert {cell.method for cell in covered} == dense | {"CONV", "D-CONV"}
    codes = {code_of(run) for piece in pieces for run in piece.first_runs()}
    assert codes == {"D5-5a", "D5-5d", "D5-5f", "D9-1a", "D9-1b", "DP10-10"}
    convolved = {code_of(run) for p in pieces if p.name.endswith("CONV") for run in p.first_runs()}
    assert convolved == {"D5-5a", "D9-1b"}
    assert "CONV" in pieces[-1].name


def test_the_search_is_the_papers() -> None:
    assert len(TOPOLOGIES) == len(set(TOPOLOGIES)) == 36
    runs = piece_of("table3", "MNIST/D5-5/FC").first_runs()
    assert len(runs) == 8 * 72
    assert {run.optimizer.lr for run in runs} == {0.01, 0.001}
    assert {run.optimizer.momentum for run in runs} == {0.99}
    assert {(run.batch_size, run.epochs) for run in runs} == {(100, 10)}
    assert all(len(run.scenario.phases) == 1 for run in runs)
    assert len(piece_of("table3", "MNIST/D9-1/CONV").first_runs()) == 3 * 2
    assert len(piece_of("table3", "MNIST/DP10-10/LWTA").first_runs()) == 72


def test_models_are_the_papers() -> None:
    fc, dropout = planned("FC", "D5-5a", "svhn"), planned("D-FC", "D5-5a", "svhn")
    assert fc.model.dropout_input == fc.model.dropout_hidden == 0.0
    assert (dropout.model.dropout_input, dropout.model.dropout_hidden) == (0.2, 0.5)
    assert planned("LWTA", "D5-5a", "mnist").model.name == "lwta"
    assert planned("D-CONV", "D5-5a", "mnist").model.dropout_hidden == 0.5
    assert planned("D-CONV", "D5-5a", "mnist", interpretation=CODE).model.dropout_hidden == 0.2
    ewc = planned("EWC", "D5-5a", "mnist")
    assert (ewc.optimizer.name, ewc.model.init, ewc.settings["label"]) == (
        "adam",
        "truncated-normal-.1",
        "true",
    )
    assert planned("EWC", "D5-5a", "mnist", interpretation=TEXT).optimizer.momentum == 0.99
    imm = planned("wtIMM mode", "D5-5a", "mnist")
    assert (imm.optimizer.name, imm.optimizer.momentum, imm.settings["l2_transfer"]) == ("sgd", 0.0, 0.0)
    assert imm.settings["weight_transfer"]
    assert not planned("wtIMM mode", "D5-5a", "mnist", interpretation=TEXT).settings["weight_transfer"]


def test_the_second_task_is_permuted_unless_the_code_is_followed() -> None:
    def permuted(experiment: Experiment) -> list[bool]:
        tasks = experiment.scenario.tasks
        return [any(isinstance(step, Permute) for step in task.transforms) for task in tasks]

    assert permuted(planned("FC", "DP10-10", "mnist")) == [False, True]
    assert permuted(planned("FC", "DP10-10", "mnist", interpretation=CODE)) == [False, False]
    small = artefact("004-table3").others["small-code"]
    assert {run.scenario.name.split("-")[1] for piece in small for run in piece.first_runs()} == {"DP10"}
    assert all(permuted(run) == [False, False] for piece in small for run in piece.first_runs())


def test_numbers_are_the_lowest_over_the_streams() -> None:
    execute = Recorder(made_up)
    table3 = drive(piece_of("table3", "MNIST/D5-5/FC", "small").plan([0]), execute)
    # Best: (0.7 + 0.1) / 2 right after the first update is less than (0.3 + 0.9) / 2 at the end.
    assert by_metric(table3) == {"q best": [0.5], "q last": [0.5]}
    table5 = drive(piece_of("table5", "MNIST/D5-5/FC", "small").plan([0]), execute)
    assert by_metric(table5) == {"baseline accuracy": [0.85], "Omega_all": [round(0.5 / 0.85, 6)]}


def test_the_best_on_the_first_task_goes_on_with_the_best_rate_for_the_second() -> None:
    execute = Recorder(made_up)
    drive(piece_of("table3", "Devanagari/D5-5/EWC", "small").plan([0]), execute)
    search, rates, final = execute.rounds
    assert len(search) == 3 * 4
    assert {run.by_phase[1].lr for run in rates} == {1e-3, 1e-4, 1e-5}
    # λ = 1/ε2 with a factor ½ in front of the sum.
    assert all(run.settings["strength"] == pytest.approx(0.5 / (run.by_phase[1].lr or 0)) for run in rates)
    assert {run.model.hidden for run in rates} == {(200, 200, 200)}
    assert {run.optimizer.lr for run in rates} == {0.001}
    chosen = [run for run in final if run.by_phase]
    assert {run.by_phase[1].lr for run in chosen} == {1e-4}
    assert {run.id for run in chosen} < {run.id for run in rates}
    # Where all rates learn the second task equally well the first is taken, unless the union decides.
    assert len(final) == 2 * 3


def test_one_search_is_enough_for_both_ways_to_merge() -> None:
    execute = Recorder(made_up)
    values = drive(piece_of("table4", "MNIST/D9-1/wtIMM", "small").plan([0]), execute)
    assert {cell.method: numbers for cell, numbers in values.items()} == {
        "wtIMM mode": [pytest.approx(0.8)],
        "wtIMM mean": [pytest.approx(0.8)],
    }
    planned = [run for some in execute.rounds for run in some]
    first = Counter(run.method for run in planned if len(run.scenario.phases) == 1)
    # Two streams: 4 candidates of one, the winner of the other; the joint baseline is one phase as well.
    assert first == {"imm-mean": 2 * 4 + 2, "imm-mode": 2 + 2}
    assert not any(phase.lr for run in planned for phase in run.by_phase)
    assert {run.model.hidden for run in planned if run.method == "imm-mode"} == {(200, 200, 200)}


def test_a_stream_without_a_result_leaves_the_number_open() -> None:
    def failing(experiment: Experiment) -> Run:
        if code_of(experiment) == "D5-5f" and len(experiment.scenario.phases) == 2:
            return failed(experiment, "the loss became nan")
        return made_up(experiment)

    values = drive(piece_of("table3", "MNIST/D5-5/FC", "small").plan([0]), Recorder(failing))
    assert by_metric(values) == {"q best": [], "q last": []}


def test_each_seed_has_its_own_number() -> None:
    values = drive(piece_of("table3", "MNIST/D9-1/D-FC", "small").plan([0, 1]), Recorder(made_up))
    assert {len(numbers) for numbers in values.values()} == {2}


def cell(table: str, **wanted: str) -> Cell:
    return next(cell for cell in cells("004", table) if wanted.items() <= asdict(cell).items())


def test_flags_are_those_of_the_paper() -> None:
    hard = cell("3", benchmark="MNIST", scenario="D5-5", method="FC", metric="q best")
    one_class = cell("3", benchmark="MNIST", scenario="D9-1", method="FC", metric="q best")
    easy = cell("3", benchmark="MNIST", scenario="DP10-10", method="FC", metric="q best")
    last = cell("3", benchmark="MNIST", scenario="D5-5", method="FC", metric="q last")
    assert [forgets(cell) for cell in (hard, one_class, easy, last)] == [True, True, False, None]
    assert forgets(one_class, 0.91) is False
    by_cell = flags({hard: [0.4, 0.7], one_class: [0.8], last: [0.1], easy: []})
    assert by_cell == {hard: (True, False), one_class: (True, True)}


def test_data_sets_are_counted() -> None:
    def count(experiment: Experiment) -> Run:
        trace = Trace()
        sizes = [30] * 9 + [10] if experiment.evaluation.on == "train" else [5] * 10
        for task, size in enumerate(sizes):
            trace.add(step=1, learning=task, task=task, right=np.ones(size, dtype=np.bool_))
        return Run(planned=experiment, tables=Tables(trace))

    values = drive(piece_of("table1", "MNIST").plan([0, 1]), Recorder(count))
    assert by_metric(values) == {
        "n_train": [280],
        "n_test": [50],
        "class imbalance train (percentage points)": [round(100 * 20 / 280, 6)],
        "class imbalance test (percentage points)": [0],
    }


def test_classes_of_digits_are_counted(tmp_path: Path) -> None:
    [run] = Serial(Where(out=tmp_path))([counted("digits", "test")])
    assert run.failure is None
    sizes = dict(zip(run.trace.task, run.trace.total, strict=True))
    assert len(sizes) == 10
    assert sum(sizes.values()) == 355


def test_phases_of_any_length_are_measured_equally_often() -> None:
    base = complete(
        Experiment(
            slt("D9-1a", "digits"),
            "finetune",
            model=ModelSpec(hidden=(8,)),
            batch_size=10,
            epochs=3,
            evaluation=EvaluationSpec(points=12, per_epoch=True, before=False, subset=None),
        )
    )
    trace = run(base).trace
    often = Counter(learning for learning, task in zip(trace.learning, trace.task, strict=True) if task == 0)
    # 390 updates of D1 and 45 of D2: every 32nd and every 3rd, from the first of each epoch on.
    assert often == {0: 3 * 5, 1: 3 * 5}
    assert "points" not in replace(base, evaluation=EvaluationSpec()).as_json()["evaluation"]
    assert base.id != replace(base, evaluation=replace(base.evaluation, points=13)).id


def test_the_initial_weights_of_ewc() -> None:
    spec = ModelSpec(hidden=(300,), init="truncated-normal-.1")
    network = build(spec, shape=(784,), n_units=10, seed=0)
    weights = network.head.weight.detach()
    assert weights.abs().max() <= 0.2
    assert 0.08 < float(weights.std()) < 0.1
    assert all(torch.equal(p, torch.full_like(p, 0.1)) for p in network.parameters() if p.ndim == 1)


def test_curves_run_over_the_epochs_of_both_tasks() -> None:
    experiment = planned("FC", "D5-5a", "mnist", interpretation=SMALL)
    run = made_up(experiment)
    assert run.failure is None
    shown = curves(run, 0.95)
    assert shown.first == [(5, 0.4), (10, pytest.approx(0.68)), (15, 0.9), (20, 0.2)]
    assert shown.second == [(15, 0.1), (20, 0.9)]
    assert shown.union == [(15, 0.5), (20, 0.55)]


def test_a_task_begins_where_the_other_ended_and_not_where_it_was_last_measured() -> None:
    """D1 has 10 updates and D2 5, measured at 1, 6, 11 and 13."""
    experiment = planned("FC", "D9-1b", "mnist", interpretation=SMALL)
    curve = [(1, 0, {0: 0.4}), (6, 0, {0: 0.8}), (11, 1, {0: 0.7, 1: 0.1}), (13, 1, {0: 0.5, 1: 0.9})]
    run = with_curve(experiment, curve)
    shown = curves(replace(run, updates=15), 0.95)
    assert [place for place, _ in shown.first] == pytest.approx([1, 6, 12, 16])
    assert [place for place, _ in shown.second] == pytest.approx([12, 16])


@pytest.mark.parametrize(
    ("figure", "names"),
    [
        ("figure4", ("EWC D9-1b Devanagari", "test: D1 ∪ D2", "baseline, highest")),
        ("figure6", ("wtIMM D5-5f Devanagari", "mean-IMM", "mode-IMM", "alpha")),
    ],
)
@pytest.mark.parametrize("follow", [None, "small"])
def test_figures_show_curves(figure: str, names: tuple[str, ...], follow: str | None) -> None:
    reproduced = artefact(f"004-{figure}")
    pieces = reproduced.pieces if follow is None else reproduced.others[follow]
    assert reproduced.draw is not None
    returned = {piece.name: drive(piece.plan([0]), Recorder(made_up)) for piece in pieces}
    text = reproduced.draw(returned).html()
    page = text.encode().decode("unicode_escape", errors="ignore") if "\\u222a" in text else text
    for name in names:
        assert name in page or name in text


def test_each_network_of_imm_is_shown_on_its_own_task() -> None:
    piece = artefact("004-figure6").others["small"][0]
    shown = drive(piece.plan([0]), Recorder(made_up))
    assert [place for place, _ in shown.first] == [5, 10]
    assert [place for place, _ in shown.second] == [15, 20]
    assert len(shown.balances["mode-IMM"]) == 101


def test_a_figure_says_what_failed() -> None:
    reproduced = artefact("004-figure6")
    assert reproduced.draw is not None
    piece = reproduced.others["small"][0]
    returned = drive(
        piece.plan([0]),
        Recorder(lambda planned: failed(planned, "nan")),
    )
    assert returned is None
    assert "its runs failed" in reproduced.draw({piece.name: returned}).html()


def test_readings_differ_where_the_paper_and_its_code_do() -> None:
    assert FOLLOWED.options("EWC").tie_strength
    assert FOLLOWED.options("wtIMM mean").later_rates == ()
    assert TEXT.options("wtIMM mean").later_rates == (1e-3, 1e-4, 1e-5)
    assert (TEXT.options("FC").choose_by, TEXT.options("FC").start) == ("union", "best")


@pytest.mark.slow
def test_a_piece_really_runs(tmp_path: Path, real_data: Path) -> None:
    piece = piece_of("table3", "MNIST/DP10-10/FC", "small")
    values = drive(quick(piece.plan([0])), Serial(Where(out=tmp_path, data=real_data)))
    numbers = by_metric(values)
    assert 0.1 < numbers["q last"][0] <= numbers["q best"][0] < 1
