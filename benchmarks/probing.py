"""The cost of k-shot probes with 5, 10, 20 and 100 samples per class, relative to an epoch of training.

Two synthetic tasks of the size of those of Split CIFAR-10, and networks that learn them. Times are CPU time
of one thread, which other processes hardly affect.
"""

from __future__ import annotations

import time

import numpy as np
import torch

from benchmarks.report import Options, Report, figure, ratios
from engram.core.values import OptimizerSpec
from engram.datasets import arrays
from engram.datasets.accounting import Ledger
from engram.datasets.stream import Stream
from engram.engine.account import Meter
from engram.engine.check import complete
from engram.engine.guarded import Guarded
from engram.engine.loop import run_steps
from engram.engine.observers import Step
from engram.engine.probing import readings_at_end
from engram.methods.base import Method
from engram.models.spec import ModelSpec
from engram.record.experiment import EvaluationSpec, Experiment, TransferSpec
from engram.scenarios import split

SHAPE, TASKS, CLASSES_PER_TASK = (3, 32, 32), 2, 2
TRAINED, TESTED, QUICK_SHARE = 5_000, 1_000, 5
"""Images per class, for training and for testing, and the divisor of both in quick runs."""
NETWORKS = {
    "CNN of Hsu et al. (2018)": ModelSpec("cnn"),
    "MLP 400, 400": ModelSpec("mlp", hidden=(400, 400)),
}
TARGET = 1.0


def measure(options: Options) -> list[Report]:
    """Time an epoch of the first task and the probes of the second, in turns."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    share = QUICK_SHARE if options.quick else 1
    data = made_up_data(TRAINED // share, TESTED // share)
    shown = Report(f"Probing the next task, {CLASSES_PER_TASK} classes of {TRAINED // share:,} images")
    for name, network in NETWORKS.items():
        planned = complete(
            Experiment(
                split(data, CLASSES_PER_TASK, setting="task"),
                "finetune",
                model=network,
                optimizer=OptimizerSpec("sgd", lr=0.01),
                batch_size=50,
                evaluation=EvaluationSpec(every=10**9, transfer=TransferSpec()),
            )
        )
        stream = Stream(planned.scenario)
        for task in range(TASKS):
            # Load the data first, as in a run that reaches its first probe.
            assert len(stream.train(task)) and len(stream.test(task))
        epochs, probes = [], []
        for _ in range(options.rounds):
            started = time.process_time()
            last = one_epoch(planned)
            learned = time.process_time()
            assert last.method is not None
            readings_at_end(planned, stream, _guarded(planned, stream, last.method), phase=0, step=last.step)
            epochs.append(learned - started)
            probes.append(time.process_time() - learned)
        shown.figures.append(figure(f"probes / epoch, {name}", ratios(probes, epochs), target=TARGET))
    torch.set_num_threads(before)
    shown.remarks.append("CPU time on one thread; features are computed once for all probes")
    return [shown]


def _guarded(planned: Experiment, stream: Stream, method: Method) -> Guarded:
    """The method as probes get it from a run."""
    network = method.predictor()
    meter = Meter(planned, network, stream.shape)
    meter.begin_phase(0)
    ledger = Ledger(planned.scenario, method=planned.method)
    return Guarded(method, name=planned.method, network=network, ledger=ledger, meter=meter)


def one_epoch(planned: Experiment) -> Step:
    """Learn the first task, and stop before anything is measured at its end."""
    steps = run_steps(planned, watch=False)
    step = next(steps)
    for _ in range(step.steps // TASKS - 1):
        step = next(steps)
    return step


def made_up_data(trained: int, tested: int) -> str:
    """Noise with a pattern for each class."""
    draw = np.random.default_rng(0)
    classes = TASKS * CLASSES_PER_TASK
    patterns = draw.normal(size=(classes, *SHAPE)).astype(np.float32)
    parts: list[np.ndarray] = []
    for images in (trained, tested):
        y = np.repeat(np.arange(classes), images)
        parts += [patterns[y] + draw.normal(size=(len(y), *SHAPE)).astype(np.float32), y]
    return arrays("made-up-images", *parts)
