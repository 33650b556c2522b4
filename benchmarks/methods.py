"""The cost of every method: time of an update relative to fine-tuning, and bytes that it keeps.

All registered methods learn the same made-up tasks with a network 1024-400-400; then each makes some updates
in turn, on one thread. Times are CPU time, which other processes hardly affect.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice

import numpy as np
import torch

from benchmarks.report import Options, Report, figure, ratios
from engram.core.errors import InputError
from engram.core.values import Batch, OptimizerSpec
from engram.datasets import arrays
from engram.engine.check import complete
from engram.engine.loop import run_steps
from engram.engine.observers import Step
from engram.methods import METHODS
from engram.methods.importance import diagonal_fisher
from engram.models import build
from engram.models.spec import ModelSpec
from engram.record.experiment import Experiment
from engram.scenarios import SettingName, split

SETTINGS: tuple[SettingName, ...] = ("class", "task", "domain")
SHAPE, HIDDEN, CLASSES_PER_TASK, BATCH = (1, 32, 32), (400, 400), 2, 128
UPDATES_PER_TURN, WARM_UP, BATCHES_PER_TASK = 5, 3, 10
REFERENCE = "finetune"
PRIORS, PRIOR_TARGET = ("ewc", "online-ewc", "si", "l2", "mas"), 1.5
FISHER_SAMPLES, FISHER_TARGET = 12_000, 3.0
"""The size of a task of Split MNIST, and the target for its Fisher information, in passes of training."""


@dataclass(slots=True)
class Learning:
    """A method in the middle of its last task.

    Attributes:
        setting: The setting that it learns in.
        steps: Makes one update after the other.
        seconds: Processor time of an update, turn by turn.
        kept: The bytes that the method keeps.
    """

    setting: SettingName
    steps: Iterator[Step]
    seconds: list[float] = field(default_factory=list)
    kept: int = 0

    def turn(self, *, counts: bool) -> None:
        """Make a few updates."""
        started = time.process_time()
        *_, last = islice(self.steps, UPDATES_PER_TURN)
        if counts:
            self.seconds.append((time.process_time() - started) / UPDATES_PER_TURN)
        assert last.method is not None
        self.kept = last.method.kept_bytes()


def measure(options: Options) -> list[Report]:
    """Let every method learn some tasks, and time further updates in turns."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    turns = options.rounds + WARM_UP
    learners: dict[str, Learning] = {}
    shown = Report(f"Methods after {options.tasks} tasks: time of an update against {REFERENCE}")
    data = made_up_data((options.tasks + 1) * CLASSES_PER_TASK)
    for name in METHODS:
        try:
            learners[name] = learning(name, data, updates=turns * UPDATES_PER_TURN)
        except InputError as error:
            shown.remarks.append(f"{name} is left out: {error}")
    for turn in range(turns):
        for learner in learners.values():
            learner.turn(counts=turn >= WARM_UP)
    torch.set_num_threads(before)
    plain = learners[REFERENCE].seconds
    for name, learner in learners.items():
        note = f"{learner.kept / 1e6:,.2f} MB kept; {learner.setting} setting"
        target = PRIOR_TARGET if name in PRIORS else None
        shown.figures.append(figure(name, ratios(learner.seconds, plain), note=note, target=target))
    shown.remarks.append("CPU time on one thread; what a method does at task ends does not count")
    return [shown, importance(options)]


def importance(options: Options) -> Report:
    """The Fisher information of each sample of a task, against one pass of training over the task."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    network = build(ModelSpec("mlp", hidden=HIDDEN), shape=SHAPE, n_units=CLASSES_PER_TASK, seed=0)
    optimizer = torch.optim.Adam(network.parameters(), lr=0.001)
    draw = torch.Generator().manual_seed(0)
    heads = (tuple(range(CLASSES_PER_TASK)),)
    batches = [
        Batch(
            torch.randn(BATCH, *SHAPE, generator=draw),
            torch.randint(CLASSES_PER_TASK, (BATCH,), generator=draw),
            heads=heads,
        )
        for _ in range(FISHER_SAMPLES // BATCH)
    ]

    def one_pass() -> None:
        for batch in batches:
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(network(batch.x), batch.y).backward()
            optimizer.step()

    def timed(work: Callable[[], object]) -> float:
        started = time.process_time()
        work()
        return time.process_time() - started

    rounds = [
        (timed(lambda: diagonal_fisher(network, batches)), timed(one_pass)) for _ in range(options.rounds)
    ]
    torch.set_num_threads(before)
    fisher, passes = zip(*rounds, strict=True)
    shown = Report(f"Fisher information of each of {FISHER_SAMPLES:,} samples, against a pass of training")
    shown.figures.append(figure("per-sample Fisher / one pass", ratios(fisher, passes), target=FISHER_TARGET))
    return shown


def learning(name: str, data: str, *, updates: int) -> Learning:
    """A method that has learned all tasks but the last, in the first setting that it accepts."""
    refused: InputError | None = None
    for setting in SETTINGS:
        planned = Experiment(
            split(data, CLASSES_PER_TASK, setting=setting),
            name,
            model=ModelSpec("mlp", hidden=HIDDEN),
            optimizer=OptimizerSpec("sgd", lr=0.01, momentum=0.9),
            batch_size=BATCH,
            updates=updates,
        )
        try:
            planned = complete(planned)
        except InputError as error:
            refused = error
            continue
        steps = run_steps(planned, watch=False)
        earlier = updates * (len(planned.scenario.phases) - 1)
        for _ in islice(steps, earlier):
            pass
        return Learning(setting, steps)
    assert refused is not None
    raise refused


def made_up_data(classes: int) -> str:
    """Noise with a pattern for each class."""
    draw = np.random.default_rng(0)
    y = np.repeat(np.arange(classes), BATCHES_PER_TASK * BATCH // CLASSES_PER_TASK)
    patterns = draw.normal(size=(classes, *SHAPE))
    x = (patterns[y] + draw.normal(size=(len(y), *SHAPE))).astype(np.float32)
    return arrays("made-up", x, y, x[::BATCH], y[::BATCH])
