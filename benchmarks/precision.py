"""Half precision, checked: how many bits are wrong, how many samples are asked again, and the time.

Networks learn as in `engram run`. After every update, all samples are asked in both precisions, and the check
of `engram.evaluation.doubt` is made with several safety factors: with the one in use, samples in doubt are
asked again as in an evaluation; with the others, their answers are looked up. Figures of every set-up are
printed as they come, and added to a CSV file with `--keep`, which is continued if it exists.
"""

from __future__ import annotations

import csv
import sys
import time
from collections import deque
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from itertools import islice, product
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn

from benchmarks.report import Options, Report, Skipped, figure
from engram.core.errors import InputError, NonFinite
from engram.engine.recipe import experiment
from engram.engine.state import RunState
from engram.engine.where import Where
from engram.evaluation.asker import Request
from engram.evaluation.checked import WINDOW
from engram.evaluation.doubt import FACTOR, Margins, Settled, margins_of, settle
from engram.evaluation.guard import evaluating, same_randomness
from engram.evaluation.passes import Passes
from engram.evaluation.samples import Questions, chunks
from engram.models import model
from engram.record.experiment import Experiment

FACTORS = (1.0, 1.5, 2.0, 3.0, FACTOR, 6.0)
METHODS = ("er", "ewc", "gem")
RATES = {"SGD": ("sgd", 0.01), "Adam": ("adam", 0.001), "wild SGD": ("sgd", 0.1)}
TASKS, QUICK_UPDATES = 5, 2


class Plan(NamedTuple):
    """A network, what it learns, and how much of it.

    Attributes:
        model: Its name.
        scenario: What it learns.
        updates: Updates per task, each followed by an evaluation.
        subset: Samples per task that are evaluated, at most.
        batch: Samples per update.
        hidden: Widths of hidden layers; None where they are fixed.
    """

    model: str
    scenario: str
    updates: int
    subset: int
    batch: int = 64
    hidden: tuple[int, ...] | None = None


PLANS = {
    "MLP": Plan("mlp", "split-fashion-mnist", 100, 200, hidden=(400, 400)),
    "small MLP": Plan("mlp", "split-digits", 100, 400, batch=16, hidden=(100, 100)),
    "small CNN with batch norm": Plan("normed-cnn", "split-digits", 50, 400, batch=16),
    "small slim ResNet-18": Plan("slim-resnet18", "split-digits", 20, 400, batch=20),
    "CNN with batch norm": Plan("normed-cnn", "split-fashion-mnist", 15, 100, batch=32),
    "slim ResNet-18": Plan("slim-resnet18", "split-fashion-mnist", 4, 100, batch=16),
}
"""Those on digits (8 × 8 pixels) are cheap, so that many evaluations can be compared."""


@dataclass
class Counts:
    """What was counted over some evaluations; lists have one entry for each safety factor.

    Attributes:
        evaluations: Evaluations.
        answers: Answers in these.
        differing: Answers that differ in half precision, unchecked.
        wrong: Answers that are wrong after the check.
        asked: Answers that were asked again.
        seconds: CPU time of full precision, of half precision, and of half precision with the check.
    """

    evaluations: int = 0
    answers: int = 0
    differing: int = 0
    wrong: list[int] = field(default_factory=lambda: [0] * len(FACTORS))
    asked: list[int] = field(default_factory=lambda: [0] * len(FACTORS))
    seconds: list[float] = field(default_factory=lambda: [0.0, 0.0, 0.0])

    def __add__(self, other: Counts) -> Counts:
        return Counts(
            self.evaluations + other.evaluations,
            self.answers + other.answers,
            self.differing + other.differing,
            [mine + its for mine, its in zip(self.wrong, other.wrong, strict=True)],
            [mine + its for mine, its in zip(self.asked, other.asked, strict=True)],
            [mine + its for mine, its in zip(self.seconds, other.seconds, strict=True)],
        )

    def __str__(self) -> str:
        share = [f"{100 * asked / max(1, self.answers):.2f} %" for asked in self.asked]
        once, checked = (spent / max(1e-9, self.seconds[0]) for spent in self.seconds[1:])
        return (
            f"{self.evaluations:,} evaluations, {self.answers:,} answers, {self.differing:,} differ; left "
            f"wrong {'/'.join(map(str, self.wrong))}, asked again {'/'.join(share)}, "
            f"time {once:.2f}, with the check {checked:.2f}"
        )

    @property
    def cells(self) -> list[object]:
        """The columns of a table."""
        return [self.evaluations, self.answers, self.differing, *self.wrong, *self.asked, *self.seconds]

    @classmethod
    def of_cells(cls, cells: list[str]) -> Counts:
        """Read what `cells` gave."""
        several = len(FACTORS)
        evaluations, answers, differing, *rest = map(int, cells[: 3 + 2 * several])
        seconds = list(map(float, cells[3 + 2 * several :]))
        return cls(evaluations, answers, differing, rest[:several], rest[several:], seconds)


SET_UP = ("seed", "network", "method", "optimiser")
COLUMNS = (
    *SET_UP,
    *("evaluations", "answers", "differing"),
    *(f"wrong k={factor:g}" for factor in FACTORS),
    *(f"asked k={factor:g}" for factor in FACTORS),
    *("seconds full", "seconds half", "seconds half checked"),
)


def measure(options: Options) -> list[Report]:
    """Run every set-up once in each round, with another seed."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    done = read_table(options.keep)
    totals: dict[str, Counts] = {}
    for seed in range(options.rounds):
        for name, method, rate, planned in set_ups(seed, quick=options.quick):
            key = (str(seed), name, method, rate)
            counted = done.get(key)
            if counted is None:
                updates = QUICK_UPDATES if options.quick else PLANS[name].updates
                counted = run_counted(planned, updates=updates)
                add_row(options.keep, key, counted)
                print(f"seed {seed}, {name}, {method}, {rate}: {counted}", file=sys.stderr, flush=True)
            totals[name] = totals.get(name, Counts()) + counted
    torch.set_num_threads(before)
    return [shown(name, counts) for name, counts in {**totals, "all": total(totals)}.items()]


def read_table(path: Path | None) -> dict[tuple[str, ...], Counts]:
    """The set-ups that were counted already."""
    if path is None or not path.exists():
        return {}
    with path.open(newline="", encoding="utf-8") as file:
        header, *rows = csv.reader(file)
    if tuple(header) != COLUMNS:
        raise Skipped(f"{path} has other columns than this benchmark writes: name another file with --keep")
    return {tuple(row[: len(SET_UP)]): Counts.of_cells(row[len(SET_UP) :]) for row in rows}


def add_row(path: Path | None, key: tuple[str, ...], counted: Counts) -> None:
    """Add a set-up to the table."""
    if path is None:
        return
    new = not path.exists()
    with path.open("a", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        if new:
            writer.writerow(COLUMNS)
        cells = [round(cell, 3) if isinstance(cell, float) else cell for cell in counted.cells]
        writer.writerow([*key, *cells])


def set_ups(seed: int, *, quick: bool) -> Iterator[tuple[str, str, str, Experiment]]:
    """The name of the network, the method, the optimiser, and the experiment."""
    for name, method, rate in product(PLANS, METHODS, RATES):
        plan, (optimizer, lr) = PLANS[name], RATES[rate]
        if quick and (method, rate) != ("er", "SGD"):
            continue
        planned = experiment(
            plan.scenario,
            method,
            setting="class",
            model=plan.model,
            hidden=plan.hidden,
            optimizer=optimizer,
            lr=lr,
            momentum=0.9 if optimizer == "sgd" else None,
            batch_size=plan.batch,
            updates=plan.updates,
            seed=seed,
            evaluation={"subset": plan.subset},
        )
        yield name, method, rate, planned


def run_counted(planned: Experiment, *, updates: int) -> Counts:
    """Learn the first updates of five tasks, and ask in both precisions after each.

    A network that diverges ends the run.
    """
    counts, errors = Counts(), [deque([0.0], WINDOW) for _ in FACTORS]
    try:
        state = RunState(planned, Where(out=None))
    except InputError as error:
        raise Skipped(f"data are missing: {error}") from error
    evaluator = state.evaluator
    try:
        for phase in range(TASKS):
            data = state.begin_phase(watch=False)
            evaluator.seen = list(range(phase + 1))
            everything = Request(phase, evaluator.seen, rows=evaluator.index)
            questions = evaluator.asker.chosen(everything, state.stream.device)
            assert isinstance(questions, Questions)
            for batch in islice(state.batches(data), updates):
                state.update(batch.batch, watch=False)
                judge = evaluator.asker.judge
                assert judge is not None
                network = state.method.predictor()
                modes = [(module, module.training) for module in network.modules()]
                with same_randomness(), evaluating(network):
                    passes = Passes(network, questions, judge, [None] * (phase + 1), nullcontext)
                    counts += compared(passes, errors, seed=state.place.step)
                for module, mode in modes:
                    module.training = mode
            state.end_phase(data)
            state.place.next_phase()
    except (NonFinite, FloatingPointError) as error:
        print(f"  ended at step {state.place.step}: {error}", file=sys.stderr)
    return counts


def compared(passes: Passes, errors: list[deque[float]], *, seed: int) -> Counts:
    """One evaluation in both precisions, and the check with every factor."""
    started = time.process_time()
    full, right = everything(passes)
    middle = time.process_time()
    half = passes.half()
    ended = time.process_time()
    counts = Counts(1, len(right), int(((half.margin > 0) != right).sum()))

    def look_up(rows: Tensor) -> tuple[Tensor, Tensor]:
        return full.margin[rows], right[rows]

    counts.seconds = [middle - started, ended - middle, ended - middle]
    for place, factor in enumerate(FACTORS):
        ask = passes.full if factor == FACTOR else look_up
        began = time.process_time()
        settled = settle(half, ask, known_error=max(errors[place]), factor=factor, seed=seed)
        if factor == FACTOR:
            counts.seconds[2] += time.process_time() - began
        if settled.error < float("inf"):
            errors[place].append(settled.error)
        count(counts, place, settled, right)
    return counts


def count(counts: Counts, place: int, settled: Settled, right: Tensor) -> None:
    """Add what was settled with one factor."""
    if settled.right is None:
        counts.asked[place] = len(right)
        return
    counts.wrong[place] = int((settled.right != right).sum())
    counts.asked[place] = int(settled.asked.sum())


def everything(passes: Passes) -> tuple[Margins, Tensor]:
    """All samples in full precision, in the pieces in which evaluations ask them."""
    questions = passes.questions
    pieces, right = [], []
    for part in chunks(questions.total, passes.rows_at_once):
        x, y = questions.read(part)
        scores = passes.scorer(x)
        pieces.append(margins_of(scores, y))
        right.append(passes.judge.right(scores, y))
    margins = Margins(*(torch.cat(column) for column in zip(*pieces, strict=True)))
    return margins, torch.cat(right)


def total(counts: dict[str, Counts]) -> Counts:
    """The sum over all networks."""
    return sum(counts.values(), start=Counts())


def shown(name: str, counts: Counts) -> Report:
    """The figures of one network."""
    report = Report(f"Half precision, {name}: {counts.evaluations:,} evaluations, {counts.answers:,} answers")
    report.figures.append(
        figure(
            "answers that differ in half precision, unchecked",
            [100 * counts.differing / counts.answers],
            unit="%",
        )
    )
    for place, factor in enumerate(FACTORS):
        report.figures += [
            figure(f"wrong bits left, factor {factor:g}", [float(counts.wrong[place])], unit="bits"),
            figure(f"asked again, factor {factor:g}", [100 * counts.asked[place] / counts.answers], unit="%"),
        ]
    for what, spent in zip(("all samples once", "checked"), counts.seconds[1:], strict=True):
        report.figures.append(figure(f"half / full precision, {what}", [spent / counts.seconds[0]]))
    report.remarks.append("CPU time on one thread")
    return report


@model("normed-cnn", head="10")
def normed_cnn(shape: tuple[int, ...], n_units: int) -> nn.Module:
    """Two convolutions with batch norm, and two dense layers."""
    side = shape[1] // 4
    return nn.Sequential(
        nn.Conv2d(shape[0], 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Sequential(nn.Linear(32 * side * side, 100), nn.ReLU()),
        nn.Linear(100, n_units),
    )
