"""Scenarios by name, each with a recipe: what `@engram.scenario` registers."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TypeVar

from engram.core.errors import InputError
from engram.core.registry import Lazy, Registry
from engram.scenarios.recipe import Recipe
from engram.scenarios.settings import SETTING_NAMES, setting_of
from engram.scenarios.values import Scenario, Setting, SettingName


@dataclass(frozen=True, slots=True)
class Benchmark:
    """A scenario that people can name, and how it is trained.

    Attributes:
        name: What people type.
        description: One line.
        paper: Where it comes from.
        settings: The settings that it supports, with the options of its paper; the first is the default.
        make: Makes the scenario from a setting and a seed.
        recipe: How it is trained.
    """

    name: str
    description: str
    paper: str
    settings: tuple[Setting, ...]
    make: Callable[[Setting, int], Scenario]
    recipe: Recipe = field(default_factory=Recipe)

    @property
    def setting_names(self) -> tuple[SettingName, ...]:
        """The names of its settings, the default first."""
        return tuple(setting.kind for setting in self.settings)

    def scenario(self, setting: Setting | SettingName | None = None, *, seed: int = 0) -> Scenario:
        """The scenario in a setting.

        Args:
            setting: One of `setting_names`, with the options of the benchmark's paper, or a setting with
                other options (default: the first of `settings`).
            seed: Draws what differs from run to run: class orders, permutations. Many benchmarks have
                nothing to draw.

        Example:
            >>> from engram.scenarios import benchmark
            >>> benchmark("split-mnist").scenario("task").n_units
            10
            >>> benchmark("mini-domainnet").scenario("class")
            Traceback (most recent call last):
            engram.core.errors.InputError: mini-domainnet makes no sense in the class setting: ...
        """
        if setting is None:
            chosen = self.settings[0]
        else:
            chosen = setting_of(setting, what=self.name, allowed=self.setting_names)
            if isinstance(setting, str):
                chosen = next(option for option in self.settings if option.kind == chosen.kind)
        return _made(self.make, self.name, chosen, seed)


@lru_cache(maxsize=256, typed=True)
def _made(make: Callable[[Setting, int], Scenario], name: str, setting: Setting, seed: int) -> Scenario:
    """A scenario is a value, so the same one serves all experiments: a table plans thousands."""
    return replace(make(setting, seed), name=name)


BENCHMARKS: Registry[Benchmark] = Registry(
    "scenario",
    home="engram.scenarios.catalogue",
    group="engram.scenarios",
    decorator="@engram.scenario('name')",
    accept="engram.scenarios.named:accept_scenario",
)
"""All scenarios by name but the sequential learning tasks, which `benchmark` makes from their names."""

Make = TypeVar("Make", bound=Callable[..., Scenario])


def scenario(
    name: str,
    *,
    recipe: Recipe | None = None,
    settings: Sequence[Setting | SettingName] = SETTING_NAMES,
    paper: str = "",
) -> Callable[[Make], Make]:
    """Register your own stream of tasks under a name that all commands know (`--plugin FILE`).

    What is decorated is a function that returns a `Scenario`. It may have a parameter `setting`, if the
    stream makes sense in several settings, and a parameter `seed`, if something is drawn for every run.
    The function loads nothing: it names data sets. The first line of its docstring is what `engram list`
    shows.

    Args:
        name: What it is called.
        recipe: How it is trained by default (default: that of `Recipe()`).
        settings: The settings that it supports, the default first; only for a function that has a parameter
            `setting`.
        paper: Where it comes from.

    Example:
        >>> from engram.scenarios import split
        >>> @scenario("test-odd-digits", recipe=Recipe(epochs=3), settings=("task", "class"))
        ... def odd_digits(setting):
        ...     "The odd digits, one at a time."
        ...     return split("digits", 1, setting=setting, order=(1, 3, 5, 7, 9))
        >>> BENCHMARKS["test-odd-digits"].scenario()
        Scenario('test-odd-digits', task setting, 5 tasks, 5 output units)
    """

    def register(function: Make) -> Make:
        entry = Lazy(lambda: made_by(name, function, recipe=recipe, settings=settings, paper=paper))
        BENCHMARKS.add_own(name, entry, origin=function.__module__)
        return function

    return register


def made_by(
    name: str,
    function: Callable[..., Scenario],
    *,
    recipe: Recipe | None = None,
    settings: Sequence[Setting | SettingName] = SETTING_NAMES,
    paper: str = "",
) -> Benchmark:
    """The benchmark that a function stands for.

    Raises:
        InputError: It is not a function of a setting and a seed, or does not return a scenario.
    """
    if not callable(function):
        raise InputError(f"scenario {name}: {function!r} is not a function that returns a Scenario")
    parameters = inspect.signature(function).parameters
    if unknown := [
        parameter.name
        for parameter in parameters.values()
        if parameter.name not in ("setting", "seed") and parameter.default is inspect.Parameter.empty
    ]:
        raise InputError(
            f"scenario {name}: the function has a parameter {unknown[0]!r}: only setting and seed are passed"
        )

    def make(setting: Setting, seed: int) -> Scenario:
        known: dict[str, object] = {"setting": setting, "seed": seed}
        stream = _checked(name, function(**{key: known[key] for key in known if key in parameters}))
        return stream if "setting" in parameters else replace(stream, setting=setting)

    if "setting" in parameters:
        possible = tuple(setting_of(setting, what=name) for setting in settings)
    else:
        # Its only setting is the one that it returns.
        possible = (_checked(name, function(**({"seed": 0} if "seed" in parameters else {}))).setting,)
    description = (inspect.getdoc(function) or "").partition("\n")[0].rstrip(".")
    return Benchmark(name, description, paper, possible, make, recipe or Recipe())


def _checked(name: str, stream: object) -> Scenario:
    if not isinstance(stream, Scenario):
        raise InputError(f"scenario {name}: the function returns {type(stream).__name__}, not a Scenario")
    return stream


def accept_scenario(name: str, function: Callable[..., Scenario]) -> Benchmark:
    """The benchmark that an installed package declares as a function."""
    return made_by(name, function)
