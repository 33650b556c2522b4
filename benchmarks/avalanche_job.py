"""The job done by Avalanche 0.6, in the environment that `benchmarks.avalanche_env` creates.

`python -m benchmarks.avalanche_job NAME DATA UPDATES MADE` is started by `benchmarks.job` and works in
turns.
"""

from __future__ import annotations

import io
import sys
import time
from functools import partial
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.data import TensorDataset

from benchmarks.turns import Lap, play
from benchmarks.work import (
    ASKED,
    BATCH,
    LR,
    MEAN,
    MEMORY,
    MEMORY_BATCH,
    MOMENTUM,
    STD,
    TASKS,
    WIDTHS,
    read_arrays,
)


def documented(folder: Path) -> tuple[Any, Any]:
    """The streams that Avalanche's documentation starts from: samples are read one by one."""
    classic = import_module("avalanche.benchmarks.classic")
    benchmark = classic.SplitFMNIST(TASKS, fixed_class_order=list(range(WIDTHS[-1])), dataset_root=folder)
    return [experience.dataset for experience in benchmark.train_stream], [
        experience.dataset.subset(range(ASKED)) for experience in benchmark.test_stream
    ]


def tensors(folder: Path) -> tuple[Any, Any]:
    """The same streams from tensors that are in memory and normalised already."""
    utils = import_module("avalanche.benchmarks.utils")
    arrays = read_arrays(folder)
    streams: dict[str, list[Any]] = {"train": [], "test": []}
    for part, stream in streams.items():
        x = torch.from_numpy(arrays[f"x_{part}"])[:, None].float().div_(255).sub_(MEAN).div_(STD)
        y = torch.from_numpy(arrays[f"y_{part}"].astype(np.int64))
        for task in range(TASKS):
            rows = torch.nonzero(y // 2 == task).squeeze(1)[: ASKED if part == "test" else None]
            attributes = [
                utils.DataAttribute(y[rows].tolist(), "targets"),
                utils.DataAttribute([0] * len(rows), "targets_task_labels", use_in_getitem=True),
            ]
            stream.append(
                utils.make_avalanche_dataset(TensorDataset(x[rows], y[rows]), data_attributes=attributes)
            )
    return streams["train"], streams["test"]


STREAMS = {"avalanche-documented": documented, "avalanche-tensors": tensors}
# Evaluation batch size: 100 in the documentation's examples; with tensors a whole task, which is faster.
ASKED_AT_ONCE = {"avalanche-documented": 100, "avalanche-tensors": ASKED}


def shown() -> Any:
    """What Avalanche measures and shows by default; its output is discarded here."""
    text_logging = import_module("avalanche.logging.text_logging")
    evaluator = import_module("avalanche.training.plugins.evaluation").default_evaluator()
    evaluator.loggers = [text_logging.TextLogger(file=io.StringIO())]
    return evaluator


def silent() -> Any:
    """Only the accuracies."""
    accuracy = import_module("avalanche.evaluation.metrics").accuracy_metrics(experience=True, stream=True)
    return import_module("avalanche.training.plugins").EvaluationPlugin(accuracy, loggers=[])


EVALUATORS = {"avalanche-documented": shown, "avalanche-tensors": silent}


class Stopwatch:
    """A plugin that ends a task after some updates, and times them with their evaluations."""

    def __init__(self, updates: int) -> None:
        self.updates = updates
        self.done = 0
        self.started = self.seconds = 0.0

    def before_training_epoch(self, strategy: Any, **rest: Any) -> None:
        """A task's updates begin."""
        self.done, self.started = 0, time.perf_counter()

    def after_training_iteration(self, strategy: Any, **rest: Any) -> None:
        """An update was made and evaluated."""
        self.done += 1
        if self.done == self.updates:
            self.seconds = time.perf_counter() - self.started
            strategy.stop_training()


def job(lap: Lap, *, name: str, data: Path, updates: int, made: int) -> None:
    """Naive training with the replay and the evaluation plugin, evaluated after every update.

    Only the first `made` updates of each task are made, and their time is extrapolated to all.
    """
    plugins = import_module("avalanche.training.plugins")
    supervised = import_module("avalanche.training.supervised")
    memory = import_module("avalanche.training.storage_policy").ClassBalancedBuffer(MEMORY)
    evaluator = EVALUATORS[name]()
    train, test = STREAMS[name](data)
    benchmark = import_module("avalanche.benchmarks").benchmark_from_datasets(train=train, test=test)
    layers: list[nn.Module] = [nn.Flatten()]
    for size, width in pairwise(WIDTHS):
        layers += [nn.Linear(size, width), nn.ReLU()]
    model = nn.Sequential(*layers[:-1])
    strategy = supervised.Naive(
        model=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=LR, momentum=MOMENTUM),
        criterion=nn.CrossEntropyLoss(),
        train_mb_size=BATCH,
        train_epochs=1,
        eval_mb_size=ASKED_AT_ONCE[name],
        plugins=[plugins.ReplayPlugin(MEMORY, batch_size_mem=MEMORY_BATCH, storage_policy=memory)],
        evaluator=evaluator,
        eval_every=1,
        peval_mode="iteration",
    )
    stopwatch = Stopwatch(made)
    # After the evaluation plugin, so that it stops after the evaluation of the last update.
    strategy.plugins.append(stopwatch)
    lap()
    for task, learned in enumerate(benchmark.train_stream):
        started = time.perf_counter()
        strategy.train(learned, eval_streams=[benchmark.test_stream[: task + 1]])
        spent = time.perf_counter() - started
        lap(instead=spent + stopwatch.seconds * (updates / made - 1))


if __name__ == "__main__":
    name, folder, updates, made = sys.argv[1:]
    named = partial(job, name=name, data=Path(folder))
    play(partial(named, updates=int(updates), made=int(made)), rehearsal=partial(named, updates=2, made=2))
