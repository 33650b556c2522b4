"""The runs: experience replay, fine-tuning, GEM, LwF and EWC, evaluated after each update."""

from __future__ import annotations

from collections.abc import Sequence

from engram.engine.recipe import experiment
from engram.papers.paper000.evaluations import FOLLOWED, SUBSET, Interpretation
from engram.papers.plans import Plan, Runs
from engram.protocols.grid import grid
from engram.record.experiment import Experiment
from engram.scenarios import SettingName

SEEDS = 5
RATES = (0.1, 0.01, 0.001, 0.0001)
STREAMS = {
    "MNIST": "split-mnist",
    "CIFAR10": "split-cifar10",
    "Mini-Imagenet": "split-mini-imagenet",
    "Mini-DomainNet": "mini-domainnet",
    "Permuted-MNIST": "permuted-mnist",
    "Rotated-MNIST": "rotated-mnist",
    "Digits": "digits-domains",
}
"""The names of the streams in the paper, and their names here."""

SEARCHED_WITH_ONE_SEED = ("Mini-Imagenet", "Mini-DomainNet")
"""Streams whose learning rate is searched with one seed; the best one is then run with all seeds."""

SPLIT = ("MNIST", "CIFAR10", "Mini-DomainNet")
"""Streams for which a figure shows the parts of the updates of ER."""


def _evaluation(interpretation: Interpretation) -> dict[str, int | bool]:
    return {"subset": SUBSET, "redraw": interpretation.redraw, "full_ends": True}


def replayed(benchmark: str, seed: int, interpretation: Interpretation = FOLLOWED) -> Experiment:
    """A run of ER with the settings that the paper selected, evaluated after each update.

    Where test sets are small, all of their samples are evaluated; subsets are derived from that.

    Example:
        >>> planned = replayed("MNIST", 3)
        >>> planned.optimizer.lr, planned.settings["weight"], planned.evaluation.subset, planned.seed
        (0.01, 0.3, None, 3)
    """
    samples = _evaluation(interpretation) if benchmark == "Mini-DomainNet" else {"subset": None}
    return experiment(
        STREAMS[benchmark], "er", evaluation={**samples, "gradients": benchmark in SPLIT}, seed=seed
    )


def on_training_data(benchmark: str, seed: int, interpretation: Interpretation = FOLLOWED) -> Experiment:
    """The same run, evaluated on training samples.

    Example:
        >>> on_training_data("MNIST", 0).evaluation.on
        'train'
    """
    samples = {"subset": SUBSET, "redraw": interpretation.redraw, "on": "train"}
    return experiment(STREAMS[benchmark], "er", evaluation=samples, seed=seed)


def finetuned(
    benchmark: str, setting: SettingName, seed: int, interpretation: Interpretation = FOLLOWED
) -> Experiment:
    """A run of fine-tuning, evaluated after each update; its learning rate is searched later.

    Example:
        >>> planned = finetuned("MNIST", "task", 0)
        >>> planned.model.hidden, planned.batch_size, planned.epochs, planned.optimizer.momentum
        ((400, 400), 256, 10, 0.9)
    """
    return experiment(
        STREAMS[benchmark], "finetune", setting=setting, evaluation=_evaluation(interpretation), seed=seed
    )


def other(
    method: str,
    benchmark: str,
    seed: int,
    interpretation: Interpretation = FOLLOWED,
    *,
    parts: bool = False,
) -> Experiment:
    """A run of GEM, LwF or EWC with the settings that the paper selected, evaluated after each update.

    Args:
        method: The name of the method here.
        benchmark: The name of the stream in the paper.
        seed: The run's seed.
        interpretation: How evaluations are interpreted.
        parts: Whether to record the plasticity and stability parts of each update.

    Example:
        >>> planned = other("gem", "MNIST", 0)
        >>> planned.settings["memory"], planned.settings["margin"], planned.optimizer.lr
        (400, 0.5, 0.01)
        >>> planned = other("ewc", "Mini-DomainNet", 0)
        >>> planned.settings["strength"], planned.optimizer.lr, planned.updates
        (1.0, 0.01, 300)
    """
    evaluation = {**_evaluation(interpretation), "gradients": parts}
    return experiment(STREAMS[benchmark], method, evaluation=evaluation, seed=seed)


def searched(
    benchmark: str,
    setting: SettingName,
    seeds: Sequence[int],
    interpretation: Interpretation = FOLLOWED,
    *,
    metric: str = "WC-ACC",
) -> Plan[Runs]:
    """Fine-tuning with the learning rate that maximises the mean of a metric on test data."""
    search_seeds = 1 if benchmark in SEARCHED_WITH_ONE_SEED else None
    bases = [finetuned(benchmark, setting, seed, interpretation) for seed in seeds]
    outcome = yield from grid(bases, {"lr": RATES}, metric=metric, search_seeds=search_seeds)
    return outcome.results


def runs_after_search(benchmark: str) -> float:
    """The number of runs after a search, as a multiple of its first runs."""
    return 1.0 if benchmark in SEARCHED_WITH_ONE_SEED else 0.0
