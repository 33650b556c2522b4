"""Every protocol with real runs: on Split-Digits always, on MNIST where it is available."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engram.engine.loop import run
from engram.engine.recipe import experiment
from engram.engine.where import Where
from engram.executors.processes import Processes
from engram.executors.serial import Serial
from engram.metrics.curve import Curve
from engram.metrics.matrix import average_accuracy, rescaled_average_accuracy
from engram.protocols.causal import CausalOptions, causal
from engram.protocols.drive import Plan, drive
from engram.protocols.forward_transfer import forward_transfer
from engram.protocols.grid import GridOutcome, grid
from engram.protocols.online import online
from engram.protocols.queue import queue
from engram.record.experiment import Experiment, TransferSpec
from engram.scenarios import prefix

AT_ENDS = 10**6


def bases(
    method: str, scenario: str = "split-digits", *, seeds: int = 1, every: int = AT_ENDS, **options: Any
) -> list[Experiment]:
    evaluation = {"every": every, "subset": None}
    return [
        experiment(scenario, method, evaluation=evaluation, seed=seed, **options) for seed in range(seeds)
    ]


def shortened(experiments: Sequence[Experiment], tasks: int) -> list[Experiment]:
    return [replace(planned, scenario=prefix(planned.scenario, tasks)) for planned in experiments]


def test_grid(tmp_path: Path) -> None:
    planned = bases("er", updates=40, seeds=2)
    outcome = drive(grid(planned, {"lr": ["0.05", "0.0001"]}, on="validation"), Serial(Where(out=tmp_path)))
    assert outcome.choice == {"lr": 0.05}
    assert outcome.candidates[0].score > outcome.candidates[1].score + 0.2
    assert outcome.as_json()["summary"]["ACC"]["n"] == 2
    assert len(list(tmp_path.glob("*/result.json"))) == 2 * 2 + 2


def test_causal(tmp_path: Path) -> None:
    planned = bases("finetune", "slt-D5-5b-digits", every=5, epochs=3)
    options = CausalOptions(later_rates=(0.1, 0.001))
    outcome = drive(causal(planned, {"lr": [0.01, 0.001]}, options=options), Serial(Where(out=tmp_path)))
    assert outcome.choice == {"lr": 0.01, "later_lr": [0.1]}
    assert outcome.last <= outcome.best < outcome.baseline
    assert outcome.best < 0.6 and outcome.baseline > 0.85
    assert outcome.omega_all == pytest.approx(outcome.best / outcome.baseline)


def test_causal_from_the_best_weights_over_several_tasks(tmp_path: Path) -> None:
    planned = shortened(bases("er", updates=12, every=3), 3)
    options = CausalOptions(later_rates=(0.05, 0.0001), start="best", on="validation")
    outcome = drive(causal(planned, {}, options=options), Serial(Where(out=tmp_path)))
    assert len(outcome.rates) == 2 and len(outcome.runs[0].so_far) == 2
    assert outcome.chosen_rates[0] == 0.05


def test_forward_transfer(tmp_path: Path) -> None:
    groups = {
        method: shortened(bases(method, setting="task", updates=20, seeds=2), 3)
        for method in ("finetune", "independent")
    }
    probe = TransferSpec(shots=(1, 20), tuned_lrs=(0.05,), tuned_epochs=(5, 40))
    outcome = drive(forward_transfer(groups, probe=probe), Serial(Where(out=tmp_path)))
    runs = [run for method in outcome.methods.values() for run in method.runs]
    assert all(run.diversity > 0 and run.matrix["AvgLAcc"] > 0.8 for run in runs)
    many, one = (float(np.mean([run.linear[k] for run in runs])) for k in (20, 1))
    assert many > max(0.7, one)
    assert np.mean([run.tuned[20] for run in runs]) > 0.7
    assert outcome.methods["independent"].runs[0].matrix["AvgFgt"] == 0
    assert outcome.correlations["AvgFgt"][20].n == 4


def test_online(tmp_path: Path) -> None:
    outcome = drive(online(bases("er", seeds=2, batch_size=10)), Serial(Where(out=tmp_path)))
    result = outcome.search.results[0]
    assert result.updates == sum(-(-n // 10) for n in (290, 288, 293, 288, 283))
    matrix = Curve.of_trace(run(result.experiment).trace).matrix()
    seeds = [seeded.after_each_task("AA") for seeded in outcome.search.results]
    assert seeds[0] == pytest.approx(average_accuracy(matrix).tolist())
    assert outcome.curves["AA"] == pytest.approx(np.mean(seeds, axis=0).tolist())
    raa = rescaled_average_accuracy(matrix, [2, 4, 6, 8, 10]).tolist()
    assert result.after_each_task("RAA") == pytest.approx(raa)
    assert outcome.final["RAA"] == pytest.approx(outcome.final["AA"])


def test_queue(tmp_path: Path) -> None:
    planned = bases("ewc", setting="task", updates=30)
    outcome = drive(queue(planned, {"strength": ["0", "300"]}, every=3), Serial(Where(out=tmp_path)))
    assert outcome.tasks == (1, 4, 5)
    assert outcome.candidates[outcome.best].score > outcome.candidates[outcome.worst].score
    assert outcome.averages[outcome.best][-1] == pytest.approx(outcome.candidates[outcome.best].score)


@pytest.mark.slow
def test_parallel_runs_give_the_same_outcome(tmp_path: Path) -> None:
    def plan() -> Plan[GridOutcome]:
        return grid(bases("finetune", updates=3), {"lr": ["0.1", "1e9"]})

    serial = drive(plan(), Serial(Where(out=tmp_path / "serial")))
    parallel = drive(plan(), Processes(Where(out=tmp_path / "parallel", jobs=2)))
    assert repr(parallel.candidates) == repr(serial.candidates) and parallel.chosen == serial.chosen == 0
    assert parallel.results[0].trace == serial.results[0].trace


@pytest.mark.slow
def test_protocols_on_mnist(real_data: Path, tmp_path: Path) -> None:
    execute = Serial(Where(out=tmp_path, data=real_data))
    rates = {"lr": ["0.1", "0.0001"]}
    outcome = drive(grid(bases("er", "split-mnist", updates=40), rates, on="validation"), execute)
    assert outcome.choice == {"lr": 0.1}

    planned = bases("finetune", "slt-D5-5a-mnist", updates=150, every=15)
    options = CausalOptions(later_rates=(0.001, 0.00001))
    selected = drive(causal(planned, {"lr": [0.01, 0.001]}, options=options), execute)
    assert 0.3 < selected.best < 0.7 < 0.8 < selected.baseline

    groups = {
        method: shortened(bases(method, "split-mnist", setting="task", updates=40), 3)
        for method in ("finetune", "er")
    }
    transfer = drive(forward_transfer(groups), execute)
    assert all(method.runs[0].linear[100] > 0.85 for method in transfer.methods.values())

    once = drive(online(shortened(bases("er", "split-mnist", batch_size=64), 3)), execute)
    assert once.curves["RAA"][0] < once.curves["AA"][0] and once.final["AA"] > 0.5

    queued = drive(
        queue(bases("ewc", "split-mnist", setting="task", updates=40), {"strength": [1, 1e6]}), execute
    )
    assert queued.tasks == (1, 5) and queued.candidates[queued.best].score > 0.8


@pytest.mark.slow
def test_probing_costs_less_than_an_epoch_of_the_task(real_data: Path) -> None:
    """Probes with the shots of Chen et al. (2023) take less time than a pass over one task."""
    planned = shortened(bases("finetune", "split-mnist", setting="task", epochs=1), 2)[0]
    probed = replace(planned, evaluation=replace(planned.evaluation, transfer=TransferSpec()))
    where = Where(out=None, data=real_data)
    run(planned, where)
    pairs = [(run(planned, where).seconds, run(probed, where).seconds) for _ in range(3)]
    probing = min(b.evaluate for _, b in pairs) - min(a.evaluate for a, _ in pairs)
    epoch = min(a.train for a, _ in pairs) / 2
    assert probing < epoch
