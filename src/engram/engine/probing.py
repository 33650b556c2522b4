"""Measurements at the ends of tasks: transfer to the next task, upstream accuracy, merged networks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol, cast

import numpy as np
import torch
from torch import nn

from engram.core.errors import InputError
from engram.core.folder import Reading
from engram.core.seeds import Seeds
from engram.core.values import Batch
from engram.datasets.stream import Stream, TaskData
from engram.engine.guarded import Guarded
from engram.engine.retained import network_of
from engram.engine.upstream import Upstream
from engram.evaluation.evaluator import Routes
from engram.evaluation.guard import same_randomness
from engram.evaluation.kshot import Examples, draw_shots, features_of, linear_probe, tuned_probe
from engram.evaluation.plasticity import plasticity
from engram.methods import traits_of
from engram.metrics.diversity import feature_diversity
from engram.record.experiment import Experiment, TransferSpec
from engram.scenarios.values import Scenario

CHUNK = 1024


class _Merging(Protocol):
    def curve(self, batches: Iterable[Batch]) -> list[tuple[float, float]]: ...


def check_probes(experiment: Experiment) -> None:
    """Refuse measurements that are not possible, before anything is trained."""
    spec = experiment.evaluation
    if spec.balances and not traits_of(experiment.method).merges:
        raise InputError(
            f"method {experiment.method} does not merge networks and has no balance: use imm-mean or imm-mode"
        )
    if spec.transfer is not None and spec.transfer.tuned_lrs and not experiment.scenario.held_out:
        raise InputError(
            "k-shot fine-tuning is chosen on validation samples, and there are none: "
            "hold out a share of the training samples"
        )


def probe_name(shots: int) -> str:
    """The name of the reading of a linear probe.

    Example:
        >>> probe_name(5)
        'Fwt 5'
    """
    return f"Fwt {shots}"


def probe_loss_name(shots: int) -> str:
    """The name of the reading of what a linear probe's training left: see `engram.evaluation.kshot.Probed`.

    Example:
        >>> probe_loss_name(5)
        'Fwt 5 loss'
    """
    return f"Fwt {shots} loss"


def tuned_name(shots: int, *, lr: float, epochs: int, on: str) -> str:
    """The name of the reading of a fine-tuned copy, evaluated on `test` or `validation` samples.

    Example:
        >>> tuned_name(5, lr=0.01, epochs=50, on="test")
        'Fwt* 5 lr=0.01 epochs=50 test'
    """
    return f"Fwt* {shots} lr={lr:g} epochs={epochs} {on}"


def balance_name(balance: float) -> str:
    """The name of the reading of a merged network.

    Example:
        >>> balance_name(0.25)
        'balance 0.25'
    """
    return f"balance {balance:.2f}"


UPSTREAM, UPSTREAM_START = "upstream", "upstream start"
"""The names of the readings of upstream accuracy: at the end of a task, and of the pretrained start."""


def readings_at_end(
    experiment: Experiment,
    stream: Stream,
    method: Guarded,
    *,
    phase: int,
    step: int,
    upstream: Upstream | None = None,
) -> list[Reading]:
    """The measurements that the experiment asks for at the end of a phase; the method is not changed."""
    spec, scenario = experiment.evaluation, experiment.scenario
    learning, last = scenario.phases[phase][-1], phase + 1 == len(scenario.phases)
    readings: list[Reading] = []
    with same_randomness():
        if spec.transfer is not None and not last:
            network = _represented(method, learning)
            for task in scenario.phases[phase + 1]:
                generator = _generator(experiment.seed, task)
                measured = _transfer(network, stream, spec.transfer, task, generator)
                readings += [(step, learning, task, name, value) for name, value in measured]
        if spec.plasticity:
            network = _represented(method, learning)
            for task in scenario.phases[phase]:
                seen = plasticity(network, stream.test(task))
                readings += [(step, learning, task, name, value) for name, value in seen.items()]
        if upstream is not None:
            if phase == 0:
                readings.append((0, learning, None, UPSTREAM_START, upstream.accuracy()))
            now = upstream.accuracy(_represented(method, learning))
            readings.append((step, learning, None, UPSTREAM, now))
        if spec.balances and last:
            questions = list(_questions(stream, scenario, phase))
            with method.at_work():
                curve = cast(_Merging, method.method).curve(questions)
            readings += [(step, learning, None, balance_name(alpha), value) for alpha, value in curve]
    return readings


def _represented(method: Guarded, learning: int) -> nn.Module:
    """The network whose features are probed."""
    network = method.predictor()
    if isinstance(network, Routes):
        network = network.route(learning)
    if not hasattr(network, "features"):
        # A classifier around a network (nearest means, masks) uses its features.
        trained = network_of(method.method)
        return network if trained is None else trained
    return network


def _generator(seed: int, task: int) -> torch.Generator:
    """The same samples and initial heads for every method that is run with this seed."""
    drawn = np.random.SeedSequence([Seeds.of(seed).evaluation, task]).generate_state(1, np.uint64)[0]
    return torch.Generator().manual_seed(int(drawn >> 1))


def _transfer(
    network: nn.Module, stream: Stream, spec: TransferSpec, task: int, generator: torch.Generator
) -> Iterator[tuple[str, float]]:
    train, test = stream.train(task), stream.test(task)
    shots = draw_shots(train.y, max(spec.shots), generator=generator)
    features = features_of(network, train, shots.rows)
    evaluated = Examples(features_of(network, test), _counted(test))
    labels = _counted(train)[shots.rows]
    yield "FDiv", feature_diversity(evaluated.x.double().numpy(), test.y.numpy())
    for k in spec.shots:
        few = shots.rank < k
        trained_on = Examples(features[few], labels[few])
        probed = linear_probe(
            trained_on,
            evaluated,
            lr=spec.lr,
            epochs=spec.epochs,
            batch_size=spec.batch_size,
            generator=generator,
        )
        yield probe_name(k), probed.accuracy
        yield probe_loss_name(k), probed.loss
    if not spec.tuned_lrs:
        return
    inputs = train.rows(shots.rows)
    validation = stream.validation(task)
    evaluated_on = [
        Examples(part.rows(torch.arange(len(part))), _counted(part)) for part in (test, validation)
    ]
    for k in spec.shots:
        few = shots.rank < k
        for lr in spec.tuned_lrs:
            trained_on = Examples(inputs[few], labels[few])
            tuned = tuned_probe(
                network,
                trained_on,
                evaluated_on,
                lr=lr,
                epochs=spec.tuned_epochs,
                batch_size=spec.batch_size,
                generator=generator,
            )
            for epochs, accuracies in tuned.items():
                for on, value in zip(("test", "validation"), accuracies, strict=True):
                    yield tuned_name(k, lr=lr, epochs=epochs, on=on), value


def _counted(data: TaskData) -> torch.Tensor:
    """A task's labels, numbered from 0 among its own units."""
    units = torch.tensor(sorted(set(data.units)))
    return torch.searchsorted(units, data.y)


def _questions(stream: Stream, scenario: Scenario, phase: int) -> Iterator[Batch]:
    """The test samples of all tasks learned so far, with the output units of their task."""
    answers = scenario.answers(phase)
    for task in sorted({task for tasks in scenario.phases[: phase + 1] for task in tasks}):
        test = stream.test(task)
        for rows in torch.arange(len(test)).split(CHUNK):
            x = test.rows(rows).to(stream.device)
            yield Batch(x, test.y[rows].to(stream.device), heads=(answers[task],))
