"""Chen et al. (2023): which runs are asked for, what is read from them, and what figures show."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.papers.made_up import failed
from tests.protocols.made_up import Recorder

from engram.core.folder import Reading
from engram.datasets.find import locate
from engram.engine.probing import UPSTREAM, UPSTREAM_START, probe_name, tuned_name
from engram.engine.where import Where
from engram.executors.serial import Serial
from engram.papers.catalogue import artefact
from engram.papers.paper003.runs import (
    RESNET18,
    SMALL,
    WEIGHTS_FILE,
    planned,
    pretrained_start,
)
from engram.papers.plans import quick
from engram.papers.published import cells
from engram.papers.values import Piece
from engram.protocols.drive import drive
from engram.protocols.forward_transfer import spearman
from engram.record.experiment import Experiment
from engram.record.run import Run
from engram.record.tables import Tables

# How much each method forgets, how well it transfers and how diverse its features are.
TOLD = {
    "finetune": (-0.3, 0.60, 30.0),
    "lp-ft": (-0.03, 0.80, 90.0),
    "er": (-0.1, 0.70, 50.0),
    "a-gem": (-0.2, 0.65, 40.0),
    "multitask": (-0.05, 0.75, 70.0),
    "fomaml": (-0.01, 0.78, 60.0),
    "independent": (-0.4, 0.67, 20.0),
    "ewc": (-0.15, 0.66, 45.0),
    "l2": (-0.25, 0.62, 35.0),
}


def made_up(experiment: Experiment) -> Run:
    forgot, transfer, diversity = TOLD[experiment.method]
    forgot -= 0.001 * experiment.seed
    metrics = {"AvgFgt": forgot, "AvgAcc": 0.8 + forgot, "AvgLAcc": 0.9}
    if experiment.method == "multitask":
        # On validation data the smallest weight is best.
        metrics["AvgLAcc"] -= 0.1 * experiment.settings["weight"]

    def readings() -> Iterator[Reading]:
        spec = experiment.evaluation.transfer
        if spec is None:
            return
        yield 1, 0, 1, "FDiv", diversity
        for shots in spec.shots:
            yield 1, 0, 1, probe_name(shots), transfer + 0.001 * shots
            for lr in spec.tuned_lrs:
                for epochs in spec.tuned_epochs:
                    good = (lr, epochs) == (0.01, 50)
                    yield 1, 0, 1, tuned_name(shots, lr=lr, epochs=epochs, on="validation"), float(good)
                    value = 1 - transfer if good else 0.0
                    yield 1, 0, 1, tuned_name(shots, lr=lr, epochs=epochs, on="test"), value
        if experiment.evaluation.upstream:
            yield 0, 0, None, UPSTREAM_START, 0.7
            yield 1, 0, None, UPSTREAM, 0.5
            yield 2, 1, None, UPSTREAM, 0.3

    return Run(planned=experiment, stored=metrics, tables=Tables(readings=tuple(readings())))


def piece_of(table: str, name: str, follow: str | None = None) -> Piece:
    reproduced = artefact(f"003-{table}")
    pieces = reproduced.pieces if follow is None else reproduced.others[follow]
    return next(piece for piece in pieces if piece.name == name)


def driven(piece: Piece, seeds: int = 1) -> dict[str, list[float]]:
    values = drive(piece.plan(range(seeds)), Recorder(made_up))
    return {cell.name.rpartition("/")[2]: [round(v, 6) for v in numbers] for cell, numbers in values.items()}


@pytest.mark.parametrize("table", "123456")
def test_every_number_belongs_to_one_piece(table: str) -> None:
    reproduced = artefact(f"003-table{table}")
    covered = Counter(cell for piece in reproduced.pieces for cell in piece.cells)
    assert covered == Counter(cells("003", table))
    assert all(piece.seeds == 5 for piece in reproduced.pieces)


def test_training_is_the_papers() -> None:
    er = planned("CLEAR10", "ER")
    assert (er.model.name, er.model.stem, er.batch_size, er.epochs) == ("resnet50", "224", 128, 100)
    assert (er.settings["memory"], er.optimizer.lr, er.optimizer.schedule) == (10, 0.01, "cosine")
    assert (er.scenario.setting.kind, len(er.scenario.tasks)) == ("domain", 10)
    independent = planned("CLEAR10", "IND")
    assert (independent.scenario.setting.kind, independent.settings["keep"]) == ("domain", False)
    imagenet = planned("Split ImageNet", "FOMAML")
    assert (imagenet.settings["inner_steps"], imagenet.batch_size) == (1, 256)
    assert planned("Split CIFAR-100", "FOMAML").settings["inner_steps"] == 2
    assert planned("Split CIFAR-10", "EWC", interpretation=RESNET18).settings["strength"] == 100
    assert planned("Split CIFAR-10", "L2", interpretation=RESNET18).settings["strength"] == 0.01
    orders = {planned("Split CIFAR-10", "FT", seed).scenario.tasks[0].source.classes for seed in range(5)}
    assert len(orders) > 1


def test_pretrained_rows_start_from_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENGRAM_DATA", str(tmp_path))
    lp_ft = planned("Split CIFAR-100", "LP-FT", init="pretrained")
    assert (lp_ft.epochs, lp_ft.settings["probe_epochs"], lp_ft.optimizer.lr) == (20, 10, 0.001)
    assert lp_ft.model.stem == "224"
    assert lp_ft.start is not None
    assert planned("Split CIFAR-100", "FT").start is None
    (tmp_path / WEIGHTS_FILE).write_bytes(b"weights")
    assert pretrained_start().file == tmp_path / WEIGHTS_FILE
    assert pretrained_start().sha256 != lp_ft.start.sha256
    assert WEIGHTS_FILE in artefact("003-table2").note


def test_numbers_are_read_from_runs() -> None:
    assert driven(piece_of("table2", "Split CIFAR-10/random init/ER (m=50)"), 2) == {
        "AvgFgt": [-10.0, -10.1],
        "AvgFDiv": [50.0, 50.0],
    }
    assert driven(piece_of("table3", "Split ImageNet/random init/FT")) == {
        "AvgAcc": [50.0],
        "AvgLAcc": [90.0],
    }
    assert driven(piece_of("table6", "Split CIFAR-10/random init/EWC (lambda=100)")) == {
        "AvgFgt": [-15.0],
        "AvgFwt^k k=10": [67.0],
        "AvgFwt^k k=20": [68.0],
        "AvgFwt^k k=100": [76.0],
    }


def test_the_weight_of_multitask_is_chosen_on_validation_data() -> None:
    execute = Recorder(made_up)
    drive(piece_of("table3", "Split CIFAR-10/random init/MT").plan([0]), execute)
    tried, *_, probed = execute.rounds
    assert {run.settings["weight"] for run in tried} == {1.0, 0.1, 0.01}
    assert {run.evaluation.on for run in tried} == {"validation"}
    assert [run.settings["weight"] for run in probed] == [0.01]
    assert [run.evaluation.on for run in probed] == ["test"]


def expected(methods: str, value: int, sign: int = 1) -> float:
    rows = [TOLD[method] for method in methods.split()]
    return round(spearman([row[0] for row in rows], [sign * row[value] for row in rows]).rho, 6)


SIX = "finetune er a-gem multitask fomaml independent"


def test_correlations_are_over_methods_and_runs() -> None:
    execute = Recorder(made_up)
    values = drive(piece_of("table1", "Split CIFAR-10/random init").plan([0]), execute)
    assert {round(numbers[0], 6) for numbers in values.values()} == {expected(SIX, 1)}
    assert expected(SIX, 1) < 0.9 < expected(SIX.removesuffix(" independent"), 1)
    assert {run.method for some in execute.rounds for run in some} == set(SIX.split())
    left_out = piece_of("table1", "Split CIFAR-10/random init", "without-ind")
    assert set(map(tuple, driven(left_out).values())) == {(1.0,)}
    pretrained = drive(piece_of("table1", "CLEAR100/pretrained").plan([0]), Recorder(made_up))
    assert {round(numbers[0], 6) for numbers in pretrained.values()} == {
        expected("finetune lp-ft er a-gem multitask fomaml", 1)
    }


def test_diversity_is_correlated_without_ind() -> None:
    values = driven(piece_of("table4", "CLEAR10/random init"), 2)
    assert len(values) == 1
    execute = Recorder(made_up)
    drive(piece_of("table4", "CLEAR10/random init").plan([0]), execute)
    assert "independent" not in {run.method for some in execute.rounds for run in some}


def test_finetuning_is_correlated_at_its_chosen_rate() -> None:
    values = drive(piece_of("table5", "Split CIFAR-10/random init").plan([0]), Recorder(made_up))
    assert {round(numbers[0], 6) for numbers in values.values()} == {expected(SIX, 1, -1)}


def test_a_method_without_a_result_leaves_the_correlation_open() -> None:
    def failing(experiment: Experiment) -> Run:
        return failed(experiment, "nan") if experiment.method == "er" else made_up(experiment)

    values = drive(piece_of("table1", "Split CIFAR-10/random init").plan([0]), Recorder(failing))
    assert all(numbers == [] for numbers in values.values())


def test_the_small_reading_can_be_run_anywhere() -> None:
    small = artefact("003-figure3").others["small"]
    runs = small[0].first_runs()
    assert {run.method for run in runs} == set(SIX.split()) | {"ewc", "l2"}
    assert {run.model.name for run in runs} == {SMALL.network}
    assert {run.epochs for run in runs} == {5}
    assert len({run.seed for run in runs}) == small[0].seeds == 5
    assert {run.optimizer.lr for run in runs if run.method != "ewc"} == {0.1}
    assert {run.optimizer.lr for run in runs if run.method == "ewc"} == {0.01}
    # All tables and figures read the same runs; the correlations are over the methods of the published ones.
    correlated = [
        run.method for run in piece_of("table1", "Split CIFAR-10/random init", "small").first_runs()
    ]
    assert (set(correlated), len(correlated)) == (set(SIX.split()), 30)
    probed = {run.id for run in runs}
    for other in ("table1", "table2", "table3", "table4", "figure1"):
        pieces = artefact(f"003-{other}").others["small"]
        assert {run.id for piece in pieces for run in piece.first_runs()} <= probed


@pytest.mark.parametrize(
    ("figure", "follow", "names"),
    [
        ("figure1", None, ("FOMAML", "IND", "forgetting", "AvgFwt (%)")),
        ("figure1", "small", ("EWC", "L2", "forgetting")),
        ("figure4", None, ("LP-FT", "accuracy on ImageNet")),
        ("figure8", None, ("AvgFwt* (%)",)),
        ("figure11", None, ("ER, m = 50",)),
    ],
)
def test_figures_show_methods(figure: str, follow: str | None, names: tuple[str, ...]) -> None:
    reproduced = artefact(f"003-{figure}")
    pieces = reproduced.pieces if follow is None else reproduced.others[follow]
    assert reproduced.draw is not None
    returned: dict[str, object] = {
        piece.name: drive(piece.plan(range(2)), Recorder(made_up)) for piece in pieces
    }
    text = reproduced.draw(returned).html()
    for name in (*names, *(piece.name for piece in pieces)):
        assert name in text
    assert "Spearman" in text


@pytest.mark.slow
def test_a_piece_really_runs(tmp_path: Path, real_data: Path) -> None:
    if locate("cifar10", real_data) is None:
        pytest.skip("needs cifar10.npz in ENGRAM_DATA")
    piece = piece_of("table2", "Split CIFAR-10/random init/FT", "small")
    values = drive(quick(piece.plan([0])), Serial(Where(out=tmp_path, data=real_data)))
    by_metric = {cell.metric: value for cell, value in values.items()}
    assert -100 < by_metric["AvgFgt"][0] < 100
    assert by_metric["AvgFDiv"][0] > 0
