"""What a sweep asks for: a few lines that stand for many experiments.

A sweep is a table of the options of `engram run`, in a TOML file or as a dictionary. Where an option has a
list, every value of it is tried, with every value of the others:

    scenario = "split-digits"
    setting = ["task", "class"]
    seeds = 3                              # 0, 1, 2; or a list of seeds
    updates = 100

    [[run]]
    method = ["finetune", "independent"]

    [[run]]
    method = ["er", "ewc"]
    lr = [0.1, 0.01]
    set.ewc.strength = [1, 100]            # a field of one method; `set.FIELD` is one of every method here

What stands above the first `[[run]]` holds for all of them; a file without any is a single one. Experiments
that are equal are run once. Where a product has combinations that make no sense, because the method needs to
know what the setting hides or the scenario is not to be had in the setting, these are left out and listed; a
`[[run]]` of which nothing is left is a mistake. Everything is checked before anything is run, and all
mistakes are named together.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

from engram.core.errors import InputError, unknown_name
from engram.core.schema import Option
from engram.engine.check import check_needs
from engram.engine.options import all_options
from engram.engine.recipe import experiment
from engram.methods import METHODS, traits_of
from engram.methods.fields import validate_fields
from engram.models.spec import MODELS, option_of
from engram.record.experiment import Experiment
from engram.scenarios import benchmark

OPTIONS: dict[str, Option] = {
    "scenario": Option("scenario", "scenario", str, None, "A scenario: see `engram list scenarios`"),
    "method": Option("method", "method", str, None, "A method: see `engram list methods`"),
    **all_options(),
}
"""The options of `engram run` that say what is computed; users' own networks may have more."""

_ELSEWHERE = ("data", "out", "jobs", "device", "plugin")
_NAMES = {"scenario": benchmark, "method": METHODS.__getitem__, "model": MODELS.__getitem__}

Grid = dict[str, tuple[Any, ...]]
"""For every name, the values that are tried."""


@dataclass(frozen=True, slots=True)
class Skipped:
    """A combination that makes no sense.

    Attributes:
        what: Method, scenario and setting.
        why: One line.
    """

    what: str
    why: str


@dataclass(frozen=True, slots=True)
class Plan:
    """The experiments that a sweep stands for.

    Attributes:
        experiments: Each once, in the order of the file; seeds change fastest.
        skipped: What was left out, because it makes no sense.
        repeated: How many experiments were asked for more than once.
    """

    experiments: tuple[Experiment, ...]
    skipped: tuple[Skipped, ...] = ()
    repeated: int = 0


def read_sweep(path: Path) -> dict[str, Any]:
    """The table in a TOML file; a missing or broken file is one clear line."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from error
    except ValueError as error:
        raise InputError(f"{path} is not TOML: {error}") from error


def expand(table: Mapping[str, Any]) -> Plan:
    """The experiments that a table stands for, all of them checked.

    Example:
        >>> plan = expand({
        ...     "scenario": "split-digits",
        ...     "method": ["er", "independent"],
        ...     "setting": ["task", "class"],
        ...     "set": {"er": {"memory": [100, 500]}},
        ...     "seeds": 3,
        ... })
        >>> len(plan.experiments), plan.skipped[0].what
        (15, 'independent on split-digits (class)')
        >>> expand({"scenario": "split-digits", "method": "er", "lr": [0.1, -1], "set": {"memori": 3}})
        Traceback (most recent call last):
        engram.core.errors.InputError: lr must be above 0..., got -1...; method er has no field 'memori': ...
    """
    mistakes: list[str] = []
    shared, own = _blocks(table, mistakes)
    blocks = [shared.with_own(block) for block in own]
    # Where a method's name is wrong, that its fields are not used is no second mistake.
    if not mistakes:
        mistakes += shared.unused_fields(*(block.methods for block in blocks))
        for part, block in zip(own, blocks, strict=True):
            mistakes += part.unused_fields(block.methods)
    gathered = _Gathered(mistakes)
    for block in blocks:
        gathered.take(block)
    if mistakes:
        raise InputError("; ".join(dict.fromkeys(mistakes)))
    experiments = tuple(gathered.experiments.values())
    return Plan(experiments, tuple(gathered.skipped), gathered.count - len(experiments))


def _blocks(table: Mapping[str, Any], mistakes: list[str]) -> tuple[_Block, list[_Block]]:
    """What holds for all runs, and what each `[[run]]` says."""
    tables = table.get("run", [{}])
    if not isinstance(tables, list) or not all(isinstance(part, Mapping) for part in tables):
        raise InputError("run must be written as [[run]], once for each group of runs")
    shared = _Block.of({key: value for key, value in table.items() if key != "run"}, "", mistakes)
    own = [
        _Block.of(part, f"[[run]] {number}: " if "run" in table else "", mistakes)
        for number, part in enumerate(tables, start=1)
    ]
    return shared, own


class _Gathered:
    """The experiments of all blocks, each once, and what was left out."""

    def __init__(self, mistakes: list[str]) -> None:
        self.mistakes = mistakes
        self.experiments: dict[str, Experiment] = {}
        self.skipped: dict[Skipped, None] = {}
        self.count = 0

    def take(self, block: _Block) -> None:
        """Add the experiments of a block; one of which nothing is left is a mistake."""
        if missing := [key for key in ("scenario", "method") if key not in block.options]:
            if not self.mistakes:
                self.mistakes.append(f"{block.where}{missing[0]} is missing: name one, or several in a list")
            return
        before = self.count, len(self.skipped)
        for planned in block.experiments(self.mistakes):
            if isinstance(planned, Skipped):
                self.skipped[planned] = None
            else:
                self.count += 1
                self.experiments[planned.id] = planned
        if not self.mistakes and before[0] == self.count:
            reasons = "; ".join(dict.fromkeys(skipped.why for skipped in list(self.skipped)[before[1] :]))
            self.mistakes.append(f"{block.where}nothing is left to run: {reasons}")


@dataclass(frozen=True, slots=True)
class _Block:
    """Options of which every combination is wanted.

    Attributes:
        where: What its mistakes begin with.
        options: The values of each option.
        fields: The values of fields that every method here has.
        method_fields: The values of fields of single methods.
        seeds: The seeds.
    """

    where: str
    options: Grid
    fields: Grid
    method_fields: dict[str, Grid]
    seeds: tuple[int, ...] | None = None

    @classmethod
    def of(cls, table: Mapping[str, Any], where: str, mistakes: list[str]) -> _Block:
        """Read a table; what is wrong is added to the mistakes and left out."""
        entries = {key.replace("-", "_"): value for key, value in table.items()}
        block = cls(where, {}, {}, {})
        with _noting(mistakes, where):
            block = replace(block, seeds=_seeds(entries.pop("seeds", None), entries.pop("first_seed", None)))
        block._take_fields(entries.pop("set", {}), mistakes)
        for key, value in entries.items():
            with _noting(mistakes, where):
                block.options[key] = _option(key, value)
        return block

    def _take_fields(self, fields: Any, mistakes: list[str]) -> None:
        """Read `set`: fields of every method here, and tables with fields of single methods."""
        if not isinstance(fields, Mapping):
            mistakes.append(f"{self.where}set must be written as set.FIELD = VALUE, got {fields!r}")
            return
        for key, value in fields.items():
            if isinstance(value, Mapping):
                with _noting(mistakes, f"{self.where}set.{key}: "):
                    METHODS[key]
                    self.method_fields[key] = dict(_field(name, item) for name, item in value.items())
            else:
                with _noting(mistakes, f"{self.where}set."):
                    self.fields.update([_field(key, value)])

    def with_own(self, own: _Block) -> _Block:
        """What holds for all, and what holds here: the latter where both say something."""
        every = {name: self.method_fields.get(name, {}) for name in (*self.method_fields, *own.method_fields)}
        return _Block(
            own.where,
            {**self.options, **own.options},
            {**self.fields, **own.fields},
            {name: {**grid, **own.method_fields.get(name, {})} for name, grid in every.items()},
            self.seeds if own.seeds is None else own.seeds,
        )

    @property
    def methods(self) -> tuple[str, ...]:
        """The methods that are run."""
        return self.options.get("method", ())

    def unused_fields(self, *methods: tuple[str, ...]) -> list[str]:
        """The mistake of setting fields of a method that is not among those that are run."""
        unused = [name for name in self.method_fields if not any(name in group for group in methods)]
        return [f"{self.where}set.{name}: no run here has the method {name}" for name in unused]

    def experiments(self, mistakes: list[str]) -> Iterator[Experiment | Skipped]:
        """Every combination."""
        for chosen in _combinations(self.options):
            grid = {**self.fields, **self.method_fields.get(chosen["method"], {})}
            for fields in _combinations(grid):
                for seed in self.seeds or (0,):
                    with _noting(mistakes, self.where):
                        yield _experiment(chosen, fields, seed=seed)


def _experiment(chosen: Mapping[str, Any], fields: dict[str, Any], *, seed: int) -> Experiment | Skipped:
    """One combination as an experiment, or why it makes no sense."""
    scenario, method, setting = chosen["scenario"], chosen["method"], chosen.get("setting")
    known = benchmark(scenario)
    what = f"{method} on {scenario} ({setting or known.setting_names[0]})"
    if setting is not None and setting not in known.setting_names:
        return Skipped(what, f"{scenario} is only to be had in the settings {', '.join(known.setting_names)}")
    rest = {name: value for name, value in chosen.items() if name not in ("scenario", "method")}
    try:
        return experiment(scenario, method, settings=fields, seed=seed, **rest)
    except InputError as error:
        if _lacks_what_it_needs(Experiment(known.scenario(setting), method, settings=fields)):
            return Skipped(what, str(error))
        raise


def _lacks_what_it_needs(planned: Experiment) -> bool:
    """Whether the setting hides what the method needs to know; nothing is said about other mistakes."""
    method, kind = METHODS[planned.method], planned.scenario.setting.kind
    usual = benchmark(planned.scenario.name).recipe.fields(planned.method, kind)
    try:
        settings = validate_fields(planned.method, method, {**usual, **planned.settings})
    except InputError:
        return False
    try:
        check_needs(planned, traits_of(method).needed(settings))
    except InputError:
        return True
    return False


def _option(key: str, value: Any) -> tuple[Any, ...]:
    """The values of an option, checked as far as it can be done one by one."""
    if key in _ELSEWHERE:
        raise InputError(f"{key} is no part of a sweep: give it on the command line, as --{key}")
    option = OPTIONS.get(key) or option_of(key)
    if option is None:
        raise unknown_name("key", key, (*OPTIONS, "seeds", "first_seed", "set", "run"))
    if option.kind is tuple and isinstance(value, list) and all(type(item) is int for item in value):
        # Here a list of numbers is a single value: the widths of one network.
        value = [value]
    return tuple(_checked(option, item) for item in _several(key, value))


def _checked(option: Option, value: Any) -> Any:
    """One value of an option."""
    if option.name in _NAMES:
        _NAMES[option.name](OPTIONS[option.name].check(value))
        return value
    if option.kind is Path:
        return OPTIONS[option.name].check(value, text=True)
    checked = option.check(value)
    if checked is None:
        # What stands for everything is said as it is written: None would leave the option open.
        return 0
    return float(checked) if option.kind is float else checked


def _field(name: str, value: Any) -> tuple[str, tuple[Any, ...]]:
    """A field of a method, and its values, which only the method can check."""
    return name.replace("-", "_"), _several(name, value)


def _several(key: str, value: Any) -> tuple[Any, ...]:
    """The values that are tried: those of a list, or the only one."""
    if value == []:
        raise InputError(f"{key} = [] has nothing to try: give at least one value, or leave it out")
    return tuple(value) if isinstance(value, list) else (value,)


def _seeds(seeds: Any, first: Any) -> tuple[int, ...] | None:
    """The seeds: so many from the first on, or those listed; None where nothing is said."""
    if isinstance(seeds, list):
        if not seeds or first is not None or any(type(seed) is not int or seed < 0 for seed in seeds):
            raise InputError(f"seeds must be whole numbers from 0 on, without first_seed, got {seeds}")
        return tuple(seeds)
    count, start = 1 if seeds is None else seeds, 0 if first is None else first
    if type(count) is not int or count < 1:
        raise InputError(f"seeds must be at least 1, or a list of seeds, got {count!r}")
    if type(start) is not int or start < 0:
        raise InputError(f"first_seed must be at least 0, got {start!r}")
    return None if seeds is None and first is None else tuple(range(start, start + count))


def _combinations(grid: Mapping[str, tuple[Any, ...]]) -> Iterator[dict[str, Any]]:
    """Every choice of one value for every name; the last name changes fastest."""
    return (dict(zip(grid, values, strict=True)) for values in product(*grid.values()))


@contextmanager
def _noting(mistakes: list[str], where: str) -> Iterator[None]:
    """Add what is wrong to the mistakes, and go on."""
    try:
        yield
    except InputError as error:
        mistakes.append(f"{where}{error}")
