"""Half precision, checked: how many bits are wrong, how many samples are asked again, and the time.

Networks learn as in `engram run`. After every update, all samples are asked in both precisions, and the check
of `engram.evaluation.doubt` is made with several safety factors. Figures of every set-up are printed as they
come.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from itertools import islice, product

import torch
from torch import Tensor, nn

from benchmarks.report import Options, Report, Skipped, figure
from engram.core.errors import InputError, NonFinite
from engram.engine.recipe import experiment
from engram.engine.state import RunState
from engram.engine.where import Where
from engram.evaluation.asker import Request
from engram.evaluation.dense import scorer
from engram.evaluation.doubt import Margins, margins_of, settle
from engram.evaluation.guard import evaluating, same_randomness
from engram.evaluation.passes import Passes
from engram.evaluation.samples import Questions, chunks
from engram.models import model
from engram.record.experiment import Experiment

FACTORS = (1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
WINDOW = 8
METHODS = ("er", "ewc", "gem")
RATES = {"SGD": ("sgd", 0.01), "Adam": ("adam", 0.001), "wild SGD": ("sgd", 0.1)}
NETWORKS = {
    "MLP": ("mlp", (400, 400), 100, 400),
    "CNN with batch norm": ("normed-cnn", None, 40, 200),
    "slim ResNet-18": ("slim-resnet18", None, 10, 100),
}
"""The model, its hidden layers, updates per task, and samples per task that are evaluated."""
TASKS, QUICK_UPDATES = 5, 2


@dataclass
class Counts:
    """What was counted over some evaluations; lists have one entry for each safety factor."""

    evaluations: int = 0
    answers: int = 0
    differing: int = 0
    wrong: list[int] = field(default_factory=lambda: [0] * len(FACTORS))
    asked: list[int] = field(default_factory=lambda: [0] * len(FACTORS))
    seconds: list[float] = field(default_factory=lambda: [0.0, 0.0])

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
        return (
            f"{self.evaluations:,} evaluations, {self.answers:,} answers, {self.differing:,} differ; left "
            f"wrong {'/'.join(map(str, self.wrong))}, asked again {'/'.join(share)}, "
            f"time {self.seconds[1] / max(1e-9, self.seconds[0]):.2f}"
        )


def measure(options: Options) -> list[Report]:
    """Run every set-up once in each round, with another seed."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    totals: dict[str, Counts] = {}
    for seed in range(options.rounds):
        for name, method, rate, planned in set_ups(seed, quick=options.quick):
            counted = run_counted(planned, updates=QUICK_UPDATES if options.quick else NETWORKS[name][2])
            totals[name] = totals.get(name, Counts()) + counted
            print(f"seed {seed}, {name}, {method}, {rate}: {counted}", file=sys.stderr, flush=True)
    torch.set_num_threads(before)
    return [shown(name, counts) for name, counts in {**totals, "all": total(totals)}.items()]


def set_ups(seed: int, *, quick: bool) -> Iterator[tuple[str, str, str, Experiment]]:
    """The name of the network, the method, the optimiser, and the experiment."""
    for method, rate, name in product(METHODS, RATES, NETWORKS):
        if quick and (method, rate) != ("er", "SGD"):
            continue
        (network, hidden, _, subset), (optimizer, lr) = NETWORKS[name], RATES[rate]
        planned = experiment(
            "split-fashion-mnist",
            method,
            setting="class",
            model=network,
            hidden=hidden,
            optimizer=optimizer,
            lr=lr,
            momentum=0.9 if optimizer == "sgd" else None,
            batch_size=64,
            seed=seed,
            evaluation={"subset": subset},
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
    counts.seconds = [middle - started, ended - middle]

    def ask(rows: Tensor) -> tuple[Tensor, Tensor]:
        return full.margin[rows], right[rows]

    for place, factor in enumerate(FACTORS):
        known = max(errors[place])
        settled = settle(half, ask, known_error=known, factor=factor, seed=seed)
        if settled.error < float("inf"):
            errors[place].append(settled.error)
        if settled.right is None:
            counts.asked[place] = len(right)
            continue
        counts.wrong[place] = int((settled.right != right).sum())
        counts.asked[place] = int(settled.asked.sum())
    return counts


def everything(passes: Passes) -> tuple[Margins, Tensor]:
    """All samples in full precision, in the pieces in which evaluations ask them."""
    questions = passes.questions
    pieces, right = [], []
    ask = scorer(passes.network)
    for part in chunks(questions.total, passes.rows_at_once):
        x, y = questions.read(part)
        scores = ask(x)
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
        figure("answers that differ in plain bfloat16", [100 * counts.differing / counts.answers], unit="%")
    )
    for place, factor in enumerate(FACTORS):
        report.figures += [
            figure(f"wrong bits left, factor {factor:g}", [float(counts.wrong[place])], unit="bits"),
            figure(f"asked again, factor {factor:g}", [100 * counts.asked[place] / counts.answers], unit="%"),
        ]
    report.figures.append(
        figure("half / full precision, all samples once", [counts.seconds[1] / counts.seconds[0]])
    )
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
