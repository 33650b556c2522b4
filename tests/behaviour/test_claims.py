"""Over seeds, methods do what their papers claim; paired seeds, small sizes."""

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from engram.engine.loop import run
from engram.engine.recipe import experiment
from engram.engine.where import Where
from engram.methods import METHODS, traits_of
from engram.scenarios import SettingName

pytestmark = pytest.mark.slow

SEEDS = 5
ENDS_ONLY = {"every": 10**9, "subset": None, "before": False}
TEST_SAMPLES = 355  # of all ten digits
ALL = list(METHODS)
REHEARSAL = [name for name in METHODS if traits_of(name).family == "rehearsal"]
PRIORS = [name for name in METHODS if traits_of(name).family == "prior"]


@cache
def accuracy(seed: int, scenario: str, method: str, setting: SettingName, **options: Any) -> float:
    """ACC of one seed."""
    settings = {name: value for name, value in options.items() if name != "data"}
    planned = experiment(scenario, method, setting=setting, seed=seed, evaluation=ENDS_ONLY, **settings)
    return run(planned, Where(out=None, data=options.get("data"))).metrics["ACC"]


def accuracies(*of: str, seeds: int = SEEDS, **options: Any) -> NDArray[np.float64]:
    """ACC of each seed."""
    return np.array([accuracy(seed, *of, **options) for seed in range(seeds)])


@pytest.mark.parametrize("method", REHEARSAL)
def test_rehearsal_beats_fine_tuning_by_far_in_the_class_setting(method: str) -> None:
    gain = accuracies("split-digits", method, "class") - accuracies("split-digits", "finetune", "class")
    assert gain.min() > 0.4


@pytest.mark.parametrize("method", PRIORS)
def test_no_prior_does(method: str) -> None:
    gain = accuracies("split-digits", method, "class") - accuracies("split-digits", "finetune", "class")
    assert gain.max() < 0.1


@pytest.mark.parametrize("method", ["ewc", "si", "mas", "lwf"])
def test_priors_and_distillation_beat_fine_tuning_in_the_task_setting(method: str, real_data: Path) -> None:
    """With Adam, the set-up and the strengths of Hsu et al. (2018), in one epoch."""
    gain = accuracies("split-mnist-002", method, "task", data=real_data, epochs=1) - accuracies(
        "split-mnist-002", "finetune", "task", data=real_data, epochs=1
    )
    assert gain.min() > 0


def leads_of_offline(
    setting: SettingName, hidden: tuple[int, ...] | None, among: Sequence[str], seeds: int = SEEDS
) -> dict[str, float]:
    """By how much offline is above each of some methods, in the mean over paired seeds."""
    # Named only where it is not the benchmark's own, so that other tests' runs are used again.
    network = {} if hidden is None else {"hidden": hidden}
    best, *others = (
        accuracies("split-digits", name, setting, seeds=seeds, **network) for name in ("offline", *among)
    )
    return {name: float((best - other).mean()) for name, other in zip(among, others, strict=True)}


@pytest.mark.parametrize(("setting", "hidden"), [("class", None), ("domain", None), ("task", (400, 400))])
def test_offline_is_best(setting: SettingName, hidden: tuple[int, ...] | None) -> None:
    """Of all methods, in every setting; in the task setting with a larger network.

    That of De Lange et al. and Hsu et al. has two layers of 400 units, and with it offline is best in all
    three settings; with the benchmark's own, smaller network in class (.974, next .956) and domain (.986,
    next .977). Five seeds cannot tell apart what is one test sample of 355: what comes as near is compared
    over twenty. Over thirty offline has .9957, independent .9949 (p = .02) and lwf .9941 (p = .004).
    """
    rivals = rivals_in(setting)
    leads = leads_of_offline(setting, hidden, rivals)
    close = [name for name in rivals if abs(leads[name]) < 1 / TEST_SAMPLES]
    leads |= leads_of_offline(setting, hidden, close, seeds=20)
    assert min(leads.values()) > 0, leads


def test_with_the_smaller_network_only_independent_is_above_offline_in_the_task_setting() -> None:
    """By half a test sample: there is little to gain from other tasks with two digits to tell apart."""
    leads = leads_of_offline("task", None, rivals_in("task"))
    above = {name: lead for name, lead in leads.items() if lead <= 0}
    assert set(above) <= {"independent"}
    assert min(above.values(), default=0.0) > -2 / TEST_SAMPLES


def rivals_in(setting: SettingName) -> list[str]:
    rivals = [name for name in ALL if name != "offline" and allowed(name, setting)]
    assert len(rivals) >= 23
    return rivals


def allowed(method: str, setting: SettingName) -> bool:
    return setting == "task" or "task identity" not in traits_of(method).needs


def test_gem_falls_deeper_than_er(real_data: Path) -> None:
    """De Lange et al. (2023): GEM has the lower min-ACC on Split-MNIST."""
    lowest: dict[str, list[float]] = {"er": [], "gem": []}
    for method, values in lowest.items():
        for seed in range(SEEDS):
            planned = experiment("split-mnist", method, seed=seed, epochs=1, evaluation={"subset": 200})
            values.append(run(planned, Where(out=None, data=real_data)).metrics["min-ACC"])
    assert np.mean(lowest["gem"]) < np.mean(lowest["er"])
