"""Over seeds, methods do what their papers claim; paired seeds, small sizes."""

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from engram.methods import METHODS
from engram.run.loop import run
from engram.run.recipe import experiment
from engram.scenarios import SettingName

pytestmark = pytest.mark.slow

SEEDS = range(5)
ENDS_ONLY = {"every": 10**9, "subset": None, "before": False}
TEST_SAMPLES = 355  # of all ten digits
ALL = list(METHODS)
REHEARSAL = [name for name in METHODS if METHODS[name].family == "rehearsal"]
PRIORS = [name for name in METHODS if METHODS[name].family == "prior"]


@cache
def accuracies(
    scenario: str, method: str, setting: Any, data: Path | None = None, epochs: int | None = None
) -> NDArray[np.float64]:
    """ACC of each seed."""
    found = []
    for seed in SEEDS:
        planned = experiment(
            scenario, method, setting=setting, seed=seed, epochs=epochs, evaluation=ENDS_ONLY
        )
        found.append(run(planned, data=data).evaluator.metrics()["ACC"])
    return np.array(found)


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
    """With Adam, 002's set-up and its strengths."""
    gain = accuracies("split-mnist-002", method, "task", real_data, 2) - accuracies(
        "split-mnist-002", "finetune", "task", real_data, 2
    )
    assert gain.mean() > 0 and (gain > 0).sum() >= 4


@pytest.mark.parametrize("setting", ["class", "domain", "task"])
def test_offline_is_best(setting: SettingName) -> None:
    """Of all methods, but for `independent` in the task setting, which is better by one test sample.

    Means of the five seeds, offline and the best of the others: class .974 and multitask .956; domain .986
    and multitask .977; task .992 and independent .995, then multitask .989. There is nothing to gain from
    other tasks where each has a network of its own and two digits to tell apart; 002 has LwF (99.60) and RtF
    (99.66) above offline (99.52) there. Offline makes 50 passes: with the 10 of a single task it has .954 in
    the domain setting, behind naive-rehearsal-c (.959); with 100 it has .986 again. On Split MNIST with 002's
    network and five times its passes offline has .9975 in the task setting, der++ .9977, all others less.
    """
    best = accuracies("split-digits", "offline", setting)
    rivals = [name for name in ALL if name != "offline" and allowed(name, setting)]
    gains = {name: float((accuracies("split-digits", name, setting) - best).mean()) for name in rivals}
    assert len(gains) >= 23
    above = {name: gain for name, gain in gains.items() if gain >= 0}
    assert set(above) <= ({"independent"} if setting == "task" else set())
    assert max(above.values(), default=0.0) < 2 / TEST_SAMPLES


def allowed(method: str, setting: SettingName) -> bool:
    return setting == "task" or "task identity" not in METHODS[method].needs


def test_gem_falls_deeper_than_er(real_data: Path) -> None:
    """000: GEM has the lower min-ACC on Split-MNIST."""
    lowest: dict[str, list[float]] = {"er": [], "gem": []}
    for method, values in lowest.items():
        for seed in SEEDS:
            planned = experiment("split-mnist", method, seed=seed, epochs=1, evaluation={"subset": 200})
            values.append(run(planned, data=real_data).evaluator.metrics()["min-ACC"])
    assert np.mean(lowest["gem"]) < np.mean(lowest["er"])
