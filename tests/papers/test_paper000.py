"""De Lange et al. (2023): which runs are asked for, what is read from them, and what figures show."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from tests.papers.made_up import failed
from tests.protocols.made_up import Recorder

from engram.core.folder import Reading
from engram.core.trace import COLUMNS, Trace
from engram.engine.recipe import experiment
from engram.engine.where import Where
from engram.executors.serial import Serial
from engram.metrics.summary import summarise
from engram.papers.catalogue import artefact
from engram.papers.paper000 import ARTEFACTS
from engram.papers.paper000.evaluations import (
    FOLLOWED,
    OVER_THE_RUN,
    SUBSETS_ONCE,
    subsampled,
    thinned,
    watched,
)
from engram.papers.paper000.runs import RATES, finetuned, other, replayed
from engram.papers.plans import quick
from engram.papers.published import Cell, cells
from engram.protocols.drive import drive
from engram.record.experiment import Experiment
from engram.record.run import Run
from engram.record.tables import Tables

EPOCH = 12
SAMPLES = 60
DIPS = {0: 0.7, 3: 0.3, 10: 0.5}
"""How right earlier tasks are after some updates of a new one."""


@cache
def history(tasks: int, updates: int, seed: int) -> Trace:
    """Each task is half right for an epoch, then nothing, then rises; it dips when the next ones begin."""
    trace, step = Trace(), 0
    chance = np.random.default_rng(seed)
    for learning in range(tasks):
        for number in range(updates + (learning == 0)):
            step += not (learning == 0 and number == 0)
            for task in range(learning + 1):
                if task == learning:
                    level = 0.5 if number < EPOCH else min(0.95, 0.05 * (number - EPOCH))
                else:
                    level = DIPS.get(number, 0.9)
                right = chance.random(10 if tasks > 5 else SAMPLES) < level
                trace.add(step=step, learning=learning, task=task, right=right)
    return trace


def made_up(planned: Experiment) -> Run:
    """A run that dips when tasks begin; the highest learning rate of fine-tuning diverges, .01 is best."""
    if planned.method == "finetune" and planned.optimizer.lr == 0.1:
        return failed(planned, "the loss became nan")
    tasks = len(planned.scenario.tasks)
    updates = 30 if tasks > 5 else planned.updates or planned.epochs * EPOCH
    trace = history(tasks, updates, planned.seed)
    metrics = dict(summarise(trace, windows=()).final)
    metrics["WC-ACC"] = {0.01: 0.5, 0.001: 0.4, 0.0001: 0.3}.get(planned.optimizer.lr, 0.2)
    readings: tuple[Reading, ...] = ()
    if planned.evaluation.gradients:
        learned = dict(zip(trace.step, trace.learning, strict=True))
        names = [f"{part}-{what}" for part in ("plasticity", "stability") for what in ("gradient", "loss")]
        readings = tuple(
            (step, learning, None, name, 0.0 if not learning and name.startswith("s") else 1 / step)
            for step, learning in learned.items()
            if step
            for name in names
        )
    return Run(planned=planned, stored=metrics, tables=Tables(trace, readings=readings))


def values_of(
    name: str, piece_name: str, seeds: int = 2, reading: str | None = None
) -> dict[Cell, list[float]]:
    table = artefact(name)
    pieces = table.pieces if reading is None else table.others[reading]
    piece = next(candidate for candidate in pieces if candidate.name == piece_name)
    return dict(drive(piece.plan(range(seeds)), Recorder(made_up)))


# What is asked for --------------------------------------------------------------------------------


@pytest.mark.parametrize("table", ["1", "2", "3", "4", "5", "6"])
def test_every_number_belongs_to_one_piece(table: str) -> None:
    reproduced = artefact(f"000-table{table}")
    wanted = Counter(cells("000", table) + (cells("000", "text(sec3.3)") if table == "2" else ()))
    for pieces in (reproduced.pieces, *reproduced.others.values()):
        assert Counter(cell for piece in pieces for cell in piece.cells) == wanted


def test_all_runs_can_be_planned_without_data() -> None:
    for reproduced in ARTEFACTS:
        for pieces in (reproduced.pieces, *reproduced.others.values()):
            for piece in pieces:
                assert len(piece.first_runs(1)) >= 1, (reproduced.name, piece.name)
                assert piece.seeds == 5


def test_settings_are_those_of_the_paper() -> None:
    rates = {"MNIST": 0.01, "CIFAR10": 0.1, "Mini-Imagenet": 0.1, "Mini-DomainNet": 0.1}
    weights = {"MNIST": 0.3, "CIFAR10": 0.7, "Mini-Imagenet": 0.5, "Mini-DomainNet": 0.3}
    memories = {"MNIST": 2000, "CIFAR10": 1000, "Mini-Imagenet": 10000, "Mini-DomainNet": 1000}
    batches = {"MNIST": 256, "CIFAR10": 256, "Mini-Imagenet": 128, "Mini-DomainNet": 128}
    for name, rate in rates.items():
        planned = replayed(name, 0)
        assert planned.optimizer.lr == rate and planned.optimizer.momentum == 0.9
        assert planned.settings["weight"] == weights[name] and planned.settings["memory"] == memories[name]
        assert planned.settings["memory_batch"] == planned.batch_size == batches[name]
        assert planned.evaluation.every == 1 and planned.evaluation.before
        assert (planned.epochs, planned.updates) == ((2, 300) if name == "Mini-DomainNet" else (10, None))
    assert other("gem", "MNIST", 0).optimizer.lr == 0.01
    assert other("gem", "CIFAR10", 0).optimizer.lr == 0.001
    assert other("gem", "CIFAR10", 0).settings["memory"] == 200
    lwf = other("lwf", "Mini-DomainNet", 0)
    assert (lwf.optimizer.lr, lwf.settings["temperature"], lwf.settings["weight"]) == (0.01, 2.0, 1.0)
    plain = finetuned("Rotated-MNIST", "domain", 0)
    assert len(plain.scenario.tasks) == 20 and plain.evaluation.redraw and plain.evaluation.full_ends
    assert not finetuned("MNIST", "class", 0, SUBSETS_ONCE).evaluation.redraw


def test_runs_are_shared_between_tables_and_figures() -> None:
    def ids(name: str, piece: str) -> list[str]:
        chosen = next(candidate for candidate in artefact(name).pieces if candidate.name == piece)
        return [planned.id for planned in chosen.first_runs()]

    first = ids("000-table4", "MNIST/ER")
    assert len(first) == len(set(first)) == 5
    assert ids("000-table5", "MNIST/ER/test") == first
    for figure in ("000-figure2", "000-figure3", "000-figure7", "000-figure9"):
        assert ids(figure, "MNIST/ER") == first
    assert ids("000-figure3", "MNIST/GEM") == ids("000-figure7", "MNIST/GEM")
    assert ids("000-table3", "MNIST/class/finetune") == ids("000-figure5", "MNIST/class/finetune")
    assert ids("000-table1", "Mini-Imagenet/ER") == ids("000-table2", "Mini-Imagenet/ER/test")
    assert ids("000-table6", "Mini-DomainNet/domain/LwF") == ids("000-figure4", "Mini-DomainNet/LwF")
    assert not set(ids("000-table5", "MNIST/ER/train")) & set(first)


@pytest.mark.parametrize(("name", "searched"), [("MNIST/class", 5), ("Mini-DomainNet/domain", 1)])
def test_the_learning_rate_is_searched_and_the_best_one_reported(name: str, searched: int) -> None:
    recorder = Recorder(made_up)
    piece = next(
        candidate for candidate in artefact("000-table3").pieces if candidate.name == f"{name}/finetune"
    )
    values = drive(piece.plan(range(5)), recorder)
    first, chosen = recorder.rounds
    assert Counter(planned.optimizer.lr for planned in first) == dict.fromkeys(RATES, searched)
    assert [planned.optimizer.lr for planned in chosen] == [0.01] * 5
    assert piece.later * len(first) >= len(
        {planned.id for planned in chosen} - {planned.id for planned in first}
    )
    assert all(len(numbers) == 5 for numbers in values.values())


# What is read -------------------------------------------------------------------------------------


def test_table_3_takes_acc_from_full_test_sets_and_the_rest_from_the_curve() -> None:
    values = {
        cell.metric: numbers for cell, numbers in values_of("000-table3", "MNIST/class/finetune").items()
    }
    runs = [made_up(replace(finetuned("MNIST", "class", seed))) for seed in range(2)]
    for number, run in enumerate(runs):
        assert run.failure is None
        assert values["ACC"][number] == pytest.approx(100 * run.metric("ACC-pooled"))
        assert values["FORG"][number] == pytest.approx(100 * run.metric("FORG"))
        final = summarise(run.trace).final
        for name in ("WC-ACC", "min-ACC", "WF10", "WF100", "WP10", "WP100"):
            assert values[name][number] == pytest.approx(100 * final[name])


def lowest(run: Run, kept: set[int]) -> float:
    """min-ACC by hand, over the evaluations at these steps."""
    minima: dict[int, float] = {}
    trace = run.trace
    for row in range(len(trace)):
        task = trace.task[row]
        if trace.step[row] in kept and trace.learning[row] > task:
            accuracy = trace.correct[row] / trace.total[row]
            minima[task] = min(accuracy, minima.get(task, 1.0))
    return 100 * float(np.mean(list(minima.values())))


def test_table_4_counts_updates_within_epochs() -> None:
    values = values_of("000-table4", "MNIST/ER", seeds=1)
    by_period = {
        cell.setting.split(";")[0]: numbers for cell, numbers in values.items() if cell.metric == "min-ACC"
    }
    run = made_up(replayed("MNIST", 0))
    assert run.failure is None
    steps = sorted(set(run.trace.step) - {0})
    for period in (1, 10, 100, 1000):
        kept = {step for step in steps if (step - 1) % EPOCH % period == 0}
        assert by_period[f"rho={period}"] == pytest.approx([lowest(run, kept)])
    assert by_period["rho=1"] < by_period["rho=10"] < by_period["rho=100"] == by_period["rho=1000"]


def test_table_4_can_be_read_over_the_run() -> None:
    values = values_of("000-table4", "MNIST/ER", seeds=1, reading="over-the-run")
    by_period = {
        cell.setting.split(";")[0]: numbers for cell, numbers in values.items() if cell.metric == "min-ACC"
    }
    run = made_up(replayed("MNIST", 0))
    assert run.failure is None
    ends = {EPOCH * 10 * task for task in range(1, 6)}
    for period in (10, 100):
        kept = {step for step in set(run.trace.step) - {0} if step % period == 0} | ends
        assert by_period[f"rho={period}"] == pytest.approx([lowest(run, kept)])
    assert by_period["rho=1000"] == pytest.approx([lowest(run, ends)])


def test_table_5_looks_at_subsets_and_at_training_data() -> None:
    values = values_of("000-table5", "MNIST/ER/test")
    by_setting = {cell.setting: numbers for cell, numbers in values.items() if cell.metric == "min-ACC"}
    assert len(by_setting) == 3
    # The made-up test sets have fewer than 100 samples: every subset is the whole.
    assert len({tuple(numbers) for numbers in by_setting.values()}) == 1
    recorder = Recorder(made_up)
    piece = next(
        candidate for candidate in artefact("000-table5").pieces if candidate.name == "MNIST/ER/train"
    )
    assert len(drive(piece.plan([0]), recorder)) == 6
    [[planned]] = recorder.rounds
    assert planned.evaluation.on == "train" and planned.evaluation.subset == 1000


def test_wp_of_the_released_code_can_be_had() -> None:
    ours = values_of("000-table4", "MNIST/ER")
    theirs = values_of("000-table4", "MNIST/ER", reading="released-code")
    plastic = [cell for cell in ours if cell.metric.startswith("WP")]
    assert any(theirs[cell] != ours[cell] for cell in plastic)
    assert all(min(np.subtract(ours[cell], theirs[cell])) >= -1e-9 for cell in plastic)


# What is derived instead of run -------------------------------------------------------------------


Digits = Callable[..., Run]


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Digits:
    """Real runs on Split-Digits, with this evaluation."""
    execute = Serial(Where(out=tmp_path_factory.mktemp("runs")))

    def run(**evaluation: object) -> Run:
        options = {"subset": None, **evaluation}
        planned = experiment("split-digits", "er", batch_size=64, epochs=2, evaluation=options, seed=3)
        [run] = execute([planned])
        assert run.failure is None
        return run

    return run


def same(one: Trace, two: Trace) -> bool:
    return all(getattr(one, name) == getattr(two, name) for name in COLUMNS)


@pytest.mark.parametrize("per_epoch", [True, False])
@pytest.mark.parametrize("every", [4, 1000])
def test_a_longer_period_follows_from_the_shortest(digits: Digits, every: int, *, per_epoch: bool) -> None:
    finest = digits()
    really = digits(every=every, per_epoch=per_epoch)
    assert same(thinned(finest.trace, finest.experiment, every, per_epoch=per_epoch), really.trace)
    assert len(really.trace) < len(finest.trace)


@pytest.mark.parametrize("redraw", [True, False])
@pytest.mark.parametrize("subset", [20, 50])
def test_subsets_follow_from_all_samples(digits: Digits, subset: int, *, redraw: bool) -> None:
    everything = digits()
    really = digits(subset=subset, redraw=redraw)
    assert same(subsampled(everything, subset, redraw=redraw), really.trace)
    assert subsampled(really, 5, redraw=redraw) is really.trace


def test_both_together(digits: Digits) -> None:
    everything = digits()
    reading = replace(OVER_THE_RUN, redraw=False)
    assert same(watched(everything, reading, subset=20, every=5), digits(subset=20, every=5).trace)
    assert not same(watched(everything, FOLLOWED, subset=20, every=5), digits(subset=20, every=5).trace)


def test_the_parts_of_a_loss_are_recorded(digits: Digits) -> None:
    run = digits(gradients=True)
    parts: dict[str, dict[int, float]] = {}
    for step, learning, _, name, value in run.readings:
        parts.setdefault(name, {})[step] = value
        if name == "stability-loss":
            assert (value == 0) == (learning == 0)
    assert parts["plasticity-loss"].keys() == parts["stability-loss"].keys() == set(run.trace.step) - {0}
    # Half of ten equally likely classes' loss, to begin with: the weight of the new samples is .5.
    assert parts["plasticity-loss"][1] == pytest.approx(0.5 * np.log(10), abs=0.15)


# Figures ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("000-figure2", ("ρ = 1", "ρ = 10", "ρ = 100", "task ends", "Mini-DomainNet")),
        ("000-figure3", ("GEM", "ER", "Accuracy of task 4", "the first 50 updates of task 5")),
        ("000-figure4", ("LwF", "ER", "the first 50 updates of task 4")),
        ("000-figure5", ("class-incremental", "task-incremental", "domain-incremental", "Rotated-MNIST")),
        ("000-figure6", ("EWC", "finetune", "Accuracy of task 4")),
        ("000-figure7", ("GEM", "ER", "stability")),
        ("000-figure8", ("GEM", "ER", "Accuracy of task 4")),
        ("000-figure9", ("L plasticity", "L stability", "CIFAR10")),
    ],
)
def test_figures_are_drawn(name: str, words: tuple[str, ...]) -> None:
    figure = artefact(name)
    assert figure.draw is not None
    returned = {piece.name: drive(piece.plan([0, 1]), Recorder(made_up)) for piece in figure.pieces}
    text = figure.draw(returned).html()
    for word in words:
        assert word in text, word


@pytest.mark.slow
def test_table_4_really_runs(tmp_path: Path, real_data: Path) -> None:
    piece = next(candidate for candidate in artefact("000-table4").pieces if candidate.name == "MNIST/ER")
    values = drive(quick(piece.plan([0])), Serial(Where(out=tmp_path, data=real_data)))
    assert set(values) == set(piece.cells)
    assert all(0 <= numbers[0] <= 100 for numbers in values.values())
