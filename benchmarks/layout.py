"""The effect of channels-last memory layout on convolutional networks.

Updates and evaluations of the same layers in both layouts, in turns. Times are CPU time of one thread,
which other processes hardly affect.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

from benchmarks.report import Options, Report, figure, ratios
from engram.models import ModelSpec, build

NETWORKS = {
    "slim ResNet-18, 20 colour images": ("slim-resnet18", (3, 32, 32), 20),
    "CNN of Hsu et al. (2018), 64 colour images": ("cnn", (3, 32, 32), 64),
    "CNN of Hsu et al. (2018), 128 grey images": ("cnn", (1, 28, 28), 128),
    "CONV of Pfülb & Gepperth (2019), 100 grey images": ("conv", (1, 32, 32), 100),
}
TIMES, QUICK_TIMES, EVALUATED = 10, 3, 500


def measure(options: Options) -> list[Report]:
    """Time updates and evaluations of each network in both layouts."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    shown = Report("Channels last in memory / channels first")
    times = QUICK_TIMES if options.quick else TIMES
    for name, (model, shape, batch) in NETWORKS.items():
        network = build(ModelSpec(model), shape=shape, n_units=10, seed=0)
        first = copy.deepcopy(network)
        first.features = nn.Sequential(*first.features.children())
        x, y = torch.randn(batch, *shape), torch.arange(batch) % 10
        questions = torch.randn(EVALUATED, *shape)
        updates: list[list[float]] = [[], []]
        evaluations: list[list[float]] = [[], []]
        for _ in range(options.rounds):
            for which, laid_out in enumerate((network, first)):
                updates[which].append(_seconds(partial(_update, laid_out, x, y), times))
                evaluations[which].append(_seconds(partial(_evaluate, laid_out, questions), times // 3))
        shown.figures.append(figure(f"update, {name}", ratios(*updates)))
        shown.figures.append(figure(f"evaluation, {name}", ratios(*evaluations)))
    torch.set_num_threads(before)
    shown.remarks.append("CPU time on one thread")
    return [shown]


def _update(network: nn.Module, x: Tensor, y: Tensor) -> None:
    network.train().zero_grad(set_to_none=True)
    nn.functional.cross_entropy(network(x), y).backward()


def _evaluate(network: nn.Module, x: Tensor) -> None:
    with torch.inference_mode():
        network.eval()(x)


def _seconds(work: Callable[[], None], times: int) -> float:
    work()
    started = time.process_time()
    for _ in range(times):
        work()
    return time.process_time() - started
