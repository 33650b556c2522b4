"""Completion: the names that the value of an argument or option may have.

Names are looked up when the tab key is pressed; nothing heavy is imported for that.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

Names = Callable[[], Iterable[str]]
"""A function that returns the names to complete a value with."""


def completion(names: Names) -> Callable[[str], list[str]]:
    """What typer calls to complete a value; of several values with commas, the last one.

    Example:
        >>> completion(lambda: ("er", "ewc", "gem"))("gem,e")
        ['gem,er', 'gem,ewc']
    """

    def complete(incomplete: str) -> list[str]:
        before, comma, last = incomplete.rpartition(",")
        return [f"{before}{comma}{name}" for name in names() if name.startswith(last)]

    return complete


def scenario_names() -> list[str]:
    """The benchmarks.

    Example:
        >>> scenario_names()[:2]
        ['split-digits', 'permuted-digits']
    """
    from engram.scenarios.catalogue import BENCHMARKS

    return list(BENCHMARKS)


def method_names() -> list[str]:
    """The methods, those of installed packages included."""
    from engram.methods import METHODS

    return list(METHODS)


def model_names() -> list[str]:
    """The networks."""
    from engram.models import MODELS

    return list(MODELS)


def metric_names() -> list[str]:
    """The metrics."""
    from engram.metrics import METRICS

    return list(METRICS)


def dataset_names() -> list[str]:
    """The data sets."""
    from engram.core.dataset_info import DATASETS

    return list(DATASETS)


def artefact_names() -> list[str]:
    """The tables and figures that were reproduced.

    Example:
        >>> "002-table2" in artefact_names()
        True
    """
    from importlib.resources import files

    recorded = (files("engram.papers") / "recorded").iterdir()
    names = (re.match(r"\d+-[a-z]+\d+", file.name) for file in recorded)
    return sorted({name[0] for name in names if name is not None})


COMPLETED: dict[str, Names] = {
    "scenario": scenario_names,
    "method": method_names,
    "methods": method_names,
    "model": model_names,
    "metric": metric_names,
    "dataset": dataset_names,
    "upstream": dataset_names,
    "setting": lambda: ("task", "domain", "class"),
    "classes": lambda: ("known", "unknown"),
    "optimizer": lambda: ("sgd", "adam", "adamw", "adagrad", "rmsprop"),
    "device": lambda: ("cpu", "cuda", "mps"),
    "on": lambda: ("test", "train"),
    "tasks": lambda: ("seen", "all"),
    "select_on": lambda: ("test", "validation"),
}
"""How the value of a parameter is completed, by the name of the parameter."""
