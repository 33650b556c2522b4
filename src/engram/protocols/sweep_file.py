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
from typing import Any, get_args

from engram.core.errors import InputError, unknown_name
from engram.core.values import OptimizerSpec
from engram.engine.check import check_needs
from engram.engine.recipe import experiment
from engram.methods import METHODS, traits_of
from engram.methods.fields import validate_fields
from engram.methods.optimizers import OPTIMIZERS, check_optimizer
from engram.models import MODELS
from engram.models.spec import STEMS
from engram.record.experiment import Experiment
from engram.scenarios import SettingName, benchmark

OPTIONS: dict[str, type[Any]] = {
    "scenario": str,
    "setting": str,
    "method": str,
    "classes": str,
    "model": str,
    "hidden": tuple,
    "dropout_input": float,
    "dropout_hidden": float,
    "block": int,
    "stem": str,
    "weights": str,
    "optimizer": str,
    "lr": float,
    "momentum": float,
    "weight_decay": float,
    "batch_size": int,
    "epochs": int,
    "updates": int,
    "augment": bool,
    "budget_bytes": int,
    "every": int,
    "subset": int,
    "full_ends": bool,
    "on": str,
    "tasks": str,
    "redraw": bool,
    "per_epoch": bool,
    "losses": bool,
    "gradients": bool,
}
"""The options of `engram run` that say what is computed, and what each of their values is."""

_WORDS = {str: "text", int: "a whole number", float: "a number", bool: "true or false"}
_EVALUATION = ("every", "full_ends", "on", "tasks", "redraw", "per_epoch", "losses", "gradients")
_CHOICES = {
    "setting": get_args(SettingName),
    "classes": ("known", "unknown"),
    "stem": STEMS,
    "optimizer": OPTIMIZERS,
    "on": ("test", "train"),
    "tasks": ("seen", "all"),
}
_LEAST = {"every": 1, "subset": 0, "epochs": 1, "updates": 1, "batch_size": 1}
_OF_OPTIMIZERS = ("lr", "momentum", "weight_decay")
_ELSEWHERE = ("data", "out", "jobs", "device", "plugin")

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
        engram.core.errors.InputError: lr must be above 0 ..., got -1.0;  method er has no field 'memori': ...
    """
    mistakes: list[str] = []
    tables = table.get("run", [{}])
    if not isinstance(tables, list) or not all(isinstance(each, Mapping) for each in tables):
        raise InputError("run must be written as [[run]], once for each group of runs")
    shared = _Block.of({key: value for key, value in table.items() if key != "run"}, "", mistakes)
    own = [
        _Block.of(each, f"[[run]] {number}: " if "run" in table else "", mistakes)
        for number, each in enumerate(tables, start=1)
    ]
    blocks = [shared.with_own(each) for each in own]
    # Where a method's name is wrong, that its fields are not used is no second mistake.
    if not mistakes:
        mistakes += shared.unused_fields(*(block.methods for block in blocks))
        for each, block in zip(own, blocks, strict=True):
            mistakes += each.unused_fields(block.methods)
    found: dict[str, Experiment] = {}
    skipped: dict[Skipped, None] = {}
    asked = 0
    for block in blocks:
        if missing := [key for key in ("scenario", "method") if key not in block.options]:
            if not mistakes:
                mistakes.append(f"{block.where}{missing[0]} is missing: name one, or several in a list")
            continue
        before = asked, len(skipped)
        for made in block.experiments(mistakes):
            if isinstance(made, Skipped):
                skipped[made] = None
            else:
                asked += 1
                found[made.id] = made
        if not mistakes and before[0] == asked:
            whys = "; ".join(dict.fromkeys(each.why for each in list(skipped)[before[1] :]))
            mistakes.append(f"{block.where}nothing is left to run: {whys}")
    if mistakes:
        raise InputError("; ".join(dict.fromkeys(mistakes)))
    return Plan(tuple(found.values()), tuple(skipped), asked - len(found))


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
        given = {key.replace("-", "_"): value for key, value in table.items()}
        block = cls(where, {}, {}, {})
        with _noting(mistakes, where):
            block = replace(block, seeds=_seeds(given.pop("seeds", None), given.pop("first_seed", None)))
        fields = given.pop("set", {})
        if not isinstance(fields, Mapping):
            mistakes.append(f"{where}set={fields!r} cannot be used: write set.FIELD = VALUE")
            fields = {}
        for key, value in fields.items():
            if isinstance(value, Mapping):
                with _noting(mistakes, f"{where}set.{key}: "):
                    METHODS[key]
                    block.method_fields[key] = dict(_field(name, each) for name, each in value.items())
            else:
                with _noting(mistakes, f"{where}set."):
                    block.fields.update([_field(key, value)])
        for key, value in given.items():
            with _noting(mistakes, where):
                block.options[key] = _option(key, value)
        return block

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
        unused = [name for name in self.method_fields if not any(name in each for each in methods)]
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
    evaluation = {name: chosen[name] for name in _EVALUATION if name in chosen}
    if "subset" in chosen:
        evaluation["subset"] = chosen["subset"] or None
    rest = {
        name: value
        for name, value in chosen.items()
        if name not in ("scenario", "method", "classes", "subset", *_EVALUATION)
    }
    if "classes" in chosen:
        rest["classes_known"] = chosen["classes"] == "known"
    try:
        return experiment(scenario, method, settings=fields, evaluation=evaluation, seed=seed, **rest)
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
    if key not in OPTIONS:
        raise unknown_name("key", key, (*OPTIONS, "seeds", "first_seed", "set", "run"))
    if key == "hidden" and isinstance(value, list) and all(type(width) is int for width in value):
        # Here a list of numbers is a single value: the widths of one network.
        value = [value]
    return tuple(_one(key, each) for each in _several(key, value))


def _field(name: str, value: Any) -> tuple[str, tuple[Any, ...]]:
    """A field of a method, and its values, which only the method can check."""
    return name.replace("-", "_"), _several(name, value)


def _one(key: str, value: Any) -> Any:
    kind = OPTIONS[key]
    if kind is tuple:
        return _widths(value)
    if kind is float and type(value) is int:
        value = float(value)
    if type(value) is not kind:
        raise InputError(f"{key}={value!r} cannot be used: give {_WORDS[kind]}")
    if key in _CHOICES and value not in _CHOICES[key]:
        raise unknown_name(key, value, _CHOICES[key])
    if value < _LEAST.get(key, value):
        raise InputError(f"{key}={value} cannot be used: give {_LEAST[key]} or more")
    if key in _OF_OPTIMIZERS:
        check_optimizer(replace(OptimizerSpec("sgd", lr=0.1), **{key: value}))
    if key == "scenario":
        benchmark(value)
    elif key == "method":
        METHODS[value]
    elif key == "model":
        MODELS[value]
    return value


def _widths(value: Any) -> tuple[int, ...]:
    """Hidden widths: `[400, 400]`, or `"400,400"` as on the command line."""
    parts = value.split(",") if isinstance(value, str) else value
    if isinstance(parts, list) and all(str(part).strip().isdecimal() for part in parts):
        return tuple(int(part) for part in parts)
    raise InputError(f"hidden={value!r} cannot be used: give whole numbers, as [400, 400]")


def _several(key: str, value: Any) -> tuple[Any, ...]:
    """The values that are tried: those of a list, or the only one."""
    if value == []:
        raise InputError(f"{key}=[] has nothing to try: give at least one value, or leave it out")
    return tuple(value) if isinstance(value, list) else (value,)


def _seeds(given: Any, first: Any) -> tuple[int, ...] | None:
    """The seeds: so many from the first on, or those listed; None where nothing is said."""
    if isinstance(given, list):
        if not given or first is not None or any(type(seed) is not int or seed < 0 for seed in given):
            raise InputError(
                f"seeds={given} cannot be used: list whole numbers from 0 on, without first_seed"
            )
        return tuple(given)
    count, start = 1 if given is None else given, 0 if first is None else first
    if type(count) is not int or count < 1:
        raise InputError(f"seeds={count!r} cannot be used: give how many, or a list of them")
    if type(start) is not int or start < 0:
        raise InputError(f"first_seed={start!r} cannot be used: give 0 or more")
    return None if given is None and first is None else tuple(range(start, start + count))


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
