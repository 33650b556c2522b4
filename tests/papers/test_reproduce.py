"""Published numbers beside ours: verdicts, runs that are there and runs that are missing, records."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tests.papers.made_up import failed
from torch import Tensor, nn

from engram.core.errors import InputError
from engram.core.files import write_json
from engram.core.folder import FAILURE
from engram.engine.recipe import experiment
from engram.engine.where import Where
from engram.executors.serial import Serial
from engram.models import build
from engram.models.spec import ModelSpec
from engram.papers.needs import forward, operations
from engram.papers.published import Cell
from engram.papers.reproduce import chosen_pieces, finished_runs, record, reproduce, runs_done, survey
from engram.papers.sizes import scaled_down, updates_of
from engram.papers.values import Artefact, Piece, Values, measured, percent
from engram.protocols.drive import Plan
from engram.record.experiment import Experiment
from engram.record.run import Run
from engram.scenarios import split

PRINTED = Cell("999", "1", "Digits", "class", "FT", "", "AvgAcc", 20.0, 1.0, "SD (numpy ddof=0)", "5")


def digits(seed: int) -> Experiment:
    evaluation = {"every": 10**9, "before": False, "subset": None}
    return experiment("split-digits", "finetune", updates=3, evaluation=evaluation, seed=seed)


def piece(name: str = "Digits/class/FT") -> Piece:
    return measured(name, digits, {PRINTED: percent("AvgAcc")}, seeds=2)


def made_up(scores: dict[int, float]) -> "Executor":
    return Executor(scores)


class Executor:
    """Gives each seed its score without any training."""

    def __init__(self, scores: dict[int, float]) -> None:
        self.scores = scores
        self.requests: list[list[str]] = []

    def __call__(self, experiments: Sequence[Experiment]) -> list[Run]:
        self.requests.append([planned.id for planned in experiments])
        return [Run(planned=planned, stored={"AvgAcc": self.scores[planned.seed]}) for planned in experiments]


def test_all_pieces_run_together_and_scaled_down_runs_are_never_compared() -> None:
    run = made_up({0: 0.19, 1: 0.21})
    outcomes = reproduce([piece("a"), piece("b")], run)
    assert [len(requests) for requests in run.requests] == [4]
    assert [outcome.compared[0].verdict for outcome in outcomes] == ["consistent", "consistent"]
    assert outcomes[0].compared[0].values == pytest.approx((19.0, 21.0))
    for scale in ("small", "quick"):
        [cut] = reproduce([piece()], made_up({0: 0.2, 1: 0.2}), scale=scale)
        assert cut.compared[0].verdict == "not compared"
    assert scaled_down(digits(0)).id != digits(0).id


def test_survey_tells_what_is_there_and_runs_nothing(tmp_path: Path) -> None:
    [nothing] = survey([piece()], tmp_path)
    assert (nothing.missing, nothing.compared[0].verdict) == (2, "open")
    assert finished_runs(tmp_path) == set()
    Serial(Where(out=tmp_path))([digits(0)])
    [half] = survey([piece()], tmp_path)
    assert (half.missing, half.seeds, len(half.compared[0].values)) == (1, (0,), 1)
    [whole] = reproduce([piece()], Serial(Where(out=tmp_path)))
    [seen] = survey([piece()], tmp_path)
    assert seen.compared == whole.compared
    assert seen.missing == 0
    there = {*finished_runs(tmp_path), "another"}
    assert runs_done([piece(), piece()], tmp_path, finished=there) == {digits(0).id, digits(1).id}


@pytest.mark.parametrize(
    ("kind", "missing", "failures"),
    [("diverged", 0, 1), ("out of budget", 0, 1), ("bad input", 1, 0), ("crashed", 1, 0), ("killed", 1, 0)],
)
def test_a_run_that_would_fail_again_is_done(kind: str, missing: int, failures: int, tmp_path: Path) -> None:
    """One whose process was killed is not, nor one whose input was wrong: it is run again."""
    Serial(Where(out=tmp_path))([digits(0)])
    failure = {"kind": kind, "reason": "the loss became nan", "details": ""}
    write_json(tmp_path / digits(1).id / FAILURE, failure)
    [outcome] = survey([piece()], tmp_path)
    assert (outcome.missing, len(outcome.failures), len(outcome.compared[0].values)) == (missing, failures, 1)


def test_a_record_names_every_run_and_value(tmp_path: Path) -> None:
    made = Artefact("999-table1", "Digits", (piece(),), ("as the paper says",))
    outcomes = reproduce(made.pieces, Serial(Where(out=tmp_path)))
    kept = record(made, outcomes, scale="full")
    [part] = kept["pieces"]
    assert [run["id"] for run in part["runs"]] == [digits(0).id, digits(1).id]
    assert sum(kept["verdicts"].values()) == len(part["cells"]) == 1
    assert len(part["cells"][0]["ours"]["values"]) == 2
    # Run again elsewhere, the same seeds give the same numbers.
    again = record(made, reproduce(made.pieces, Serial(Where(out=tmp_path / "again"))), scale="full")
    assert again["pieces"][0]["cells"] == part["cells"]


def test_a_failed_run_is_left_out_and_named() -> None:
    def broken(experiments: Sequence[Experiment]) -> list[Run]:
        return [
            failed(planned, "the loss became nan")
            if planned.seed
            else Run(planned=planned, stored={"AvgAcc": 0.2})
            for planned in experiments
        ]

    [outcome] = reproduce([piece()], broken)
    assert outcome.compared[0].values == (20.0,)
    assert [run.failure and run.failure.reason for run in outcome.failures] == ["the loss became nan"]


def test_a_plan_that_cannot_go_on_does_not_stop_the_others() -> None:
    def hopeless(seeds: Sequence[int]) -> Plan[Values]:
        yield [digits(seed) for seed in seeds]
        raise InputError("no candidate has a score")

    stopped, finished = reproduce(
        [Piece("hopeless", hopeless, (PRINTED,), 1), piece()], made_up({0: 0.2, 1: 0.2})
    )
    assert (stopped.stopped, stopped.compared[0].verdict) == ("no candidate has a score", "open")
    assert finished.compared[0].verdict == "consistent"


def test_what_lacks_data_is_left_out_and_the_rest_is_run(tmp_path: Path) -> None:
    def svhn(seed: int) -> Experiment:
        return replace(digits(seed), scenario=split("svhn", setting="class"))

    lacking = measured("SVHN/class/FT", svhn, {PRINTED: percent("AvgAcc")}, seeds=1)
    run = made_up({0: 0.2, 1: 0.2})
    left, finished = reproduce([lacking, piece()], run, data=tmp_path)
    assert left.stopped.startswith("svhn not found") and left.compared[0].verdict == "open"
    assert finished.compared[0].verdict == "consistent"
    assert run.requests == [[digits(0).id, digits(1).id]]
    with pytest.raises(InputError, match="svhn not found"):
        reproduce([lacking], Serial(Where(out=tmp_path, data=tmp_path)), data=tmp_path)


def test_readings_and_filters() -> None:
    made = Artefact("999-table1", "Digits", (piece("a"), piece("b")), others={"code": (piece("c"),)})
    assert [part.name for part in chosen_pieces(made, cells="B")] == ["b"]
    assert [part.name for part in chosen_pieces(made, follow="code")] == ["c"]
    assert len(chosen_pieces(made, cells=PRINTED.name)) == 2, "a cell by the name that is printed"
    for wrong in ({"cells": "x"}, {"cells": "("}, {"follow": "coed"}):
        with pytest.raises(InputError):
            chosen_pieces(made, **wrong)


def test_evaluations_count_as_often_as_they_are_made() -> None:
    plan = experiment("slt-D5-5a-mnist", "finetune")
    often, seldom = (
        operations(replace(plan, evaluation=replace(plan.evaluation, points=points))) for points in (0, 9)
    )
    assert often > 2 * seldom
    assert operations(experiment("split-mnist-002", "dgr")) > 3 * operations(digits(0))


def test_updates_are_counted_without_data() -> None:
    assert updates_of(experiment("split-mnist", "er")) == 2350
    assert updates_of(experiment("permuted-mnist-002", "ewc")) == 46900


@pytest.mark.parametrize(
    ("spec", "shape"),
    [
        (ModelSpec("mlp", hidden=(30, 20)), (1, 8, 8)),
        (ModelSpec("mlp", hidden=()), (1, 8, 8)),
        (ModelSpec("lwta", hidden=(30, 20)), (1, 8, 8)),
        (ModelSpec("cnn"), (1, 28, 28)),
        (ModelSpec("slim-resnet18"), (3, 32, 32)),
    ],
    ids=lambda value: value.name if isinstance(value, ModelSpec) else "",
)
def test_operations_are_counted_without_computing_them(spec: ModelSpec, shape: tuple[int, ...]) -> None:
    counted: list[float] = []

    def count(layer: nn.Module, _: object, output: Tensor) -> None:
        counted.append(2.0 * output[0].numel() * layer.get_parameter("weight")[0].numel())

    network = build(spec, shape=shape, n_units=10, seed=0).eval()
    for layer in network.modules():
        if isinstance(layer, nn.Linear | nn.Conv2d):
            layer.register_forward_hook(count)
    network(torch.zeros(1, *shape))
    assert forward(spec, shape, 10) == sum(counted)
