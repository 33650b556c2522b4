"""Over seeds, methods do what their papers claim; paired seeds, small sizes."""

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from engram.engine.recipe import experiment
from engram.engine.where import Where
from engram.executors.serial import Serial
from engram.methods import METHODS, traits_of
from engram.record.experiment import Experiment
from engram.record.run import Run
from engram.scenarios import SettingName

pytestmark = pytest.mark.slow

SEEDS = 5
ENDS_ONLY = {"every": 10**9, "subset": None, "before": False}
TEST_SAMPLES = 355  # of all ten digits
ALL = list(METHODS)
REHEARSAL = [name for name in METHODS if traits_of(name).family == "rehearsal"]
PRIORS = [name for name in METHODS if traits_of(name).family == "prior"]


@pytest.fixture(scope="module")
def out(common: Path) -> Path:
    """The folder of all runs: each is made once, by whichever test process needs it first."""
    return common / "claims"


def made(planned: Sequence[Experiment], where: Where) -> list[Run]:
    """The runs of some experiments; those that another process is making are waited for."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "waiting for .* being made by")
        runs = Serial(where)(planned)
    assert all(run.finished for run in runs), [run.failure for run in runs]
    return runs


def accuracies(
    out: Path,
    scenario: str,
    methods: Sequence[str],
    setting: SettingName,
    *,
    seeds: int = SEEDS,
    data: Path | None = None,
    **options: Any,
) -> dict[str, NDArray[np.float64]]:
    """ACC of each seed, of each method."""
    planned = [
        experiment(scenario, method, setting=setting, seed=seed, evaluation=ENDS_ONLY, **options)
        for method in methods
        for seed in range(seeds)
    ]
    values = np.array([run.metrics["ACC"] for run in made(planned, Where(out=out, data=data))])
    return dict(zip(methods, values.reshape(len(methods), seeds), strict=True))


def gains(out: Path, scenario: str, method: str, setting: SettingName, **options: Any) -> NDArray[np.float64]:
    """By how much a method is above fine-tuning, with each seed."""
    values = accuracies(out, scenario, [method, "finetune"], setting, **options)
    return values[method] - values["finetune"]


@pytest.mark.parametrize("method", REHEARSAL)
def test_rehearsal_beats_fine_tuning_by_far_in_the_class_setting(method: str, out: Path) -> None:
    assert gains(out, "split-digits", method, "class").min() > 0.4


@pytest.mark.parametrize("method", PRIORS)
def test_no_prior_does(method: str, out: Path) -> None:
    assert gains(out, "split-digits", method, "class").max() < 0.1


@pytest.mark.parametrize("method", ["ewc", "si", "mas", "lwf"])
def test_priors_and_distillation_beat_fine_tuning_in_the_task_setting(
    method: str, real_data: Path, out: Path
) -> None:
    """With Adam, the set-up and the strengths of Hsu et al. (2018), in one epoch."""
    assert gains(out, "split-mnist-002", method, "task", data=real_data, epochs=1).min() > 0


def leads_of_offline(
    out: Path, setting: SettingName, hidden: tuple[int, ...] | None, among: Sequence[str], seeds: int = SEEDS
) -> dict[str, float]:
    """By how much offline is above each of some methods, in the mean over paired seeds."""
    # Named only where it is not the benchmark's own, so that other tests' runs are used again.
    network: dict[str, Any] = {} if hidden is None else {"hidden": hidden}
    values = accuracies(out, "split-digits", ["offline", *among], setting, seeds=seeds, **network)
    return {name: float((values["offline"] - values[name]).mean()) for name in among}


@pytest.mark.parametrize(("setting", "hidden"), [("class", None), ("domain", None), ("task", (400, 400))])
def test_offline_is_best(setting: SettingName, hidden: tuple[int, ...] | None, out: Path) -> None:
    """Of all methods, in every setting; in the task setting with a larger network.

    That of De Lange et al. and Hsu et al. has two layers of 400 units, and with it offline is best in all
    three settings; with the benchmark's own, smaller network in class (.974, next .956) and domain (.986,
    next .977). Five seeds cannot tell apart what is one test sample of 355: what comes as near is compared
    over twenty. Over thirty offline has .9957, independent .9949 (p = .02) and lwf .9941 (p = .004).
    """
    rivals = rivals_in(setting)
    leads = leads_of_offline(out, setting, hidden, rivals)
    close = [name for name in rivals if abs(leads[name]) < 1 / TEST_SAMPLES]
    if close:
        leads |= leads_of_offline(out, setting, hidden, close, seeds=20)
    assert min(leads.values()) > 0, leads


def test_with_the_smaller_network_only_independent_is_above_offline_in_the_task_setting(out: Path) -> None:
    """By half a test sample: there is little to gain from other tasks with two digits to tell apart."""
    leads = leads_of_offline(out, "task", None, rivals_in("task"))
    above = {name: lead for name, lead in leads.items() if lead <= 0}
    assert set(above) <= {"independent"}
    assert min(above.values(), default=0.0) > -2 / TEST_SAMPLES


def rivals_in(setting: SettingName) -> list[str]:
    rivals = [name for name in ALL if name != "offline" and allowed(name, setting)]
    assert len(rivals) >= 23
    return rivals


def allowed(method: str, setting: SettingName) -> bool:
    return setting == "task" or "task identity" not in traits_of(method).needs


def test_gem_falls_deeper_than_er(real_data: Path, out: Path) -> None:
    """De Lange et al. (2023): GEM has the lower min-ACC on Split-MNIST."""
    lowest: dict[str, float] = {}
    for method in ("er", "gem"):
        planned = [
            experiment("split-mnist", method, seed=seed, epochs=1, evaluation={"subset": 200})
            for seed in range(SEEDS)
        ]
        runs = made(planned, Where(out=out, data=real_data))
        lowest[method] = float(np.mean([run.metrics["min-ACC"] for run in runs]))
    assert lowest["gem"] < lowest["er"]
