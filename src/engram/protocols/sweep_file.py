"""Sweep files: a few lines that describe many experiments.

A sweep is a table of the options of `engram run`, in a TOML file or as a dictionary. If an option has a list
of values, every value is combined with every value of the others:

    scenario = "split-digits"
    setting = ["task", "class"]
    seeds = 3                              # 0, 1, 2; or a list of seeds
    updates = 100

    [[run]]
    method = ["finetune", "independent"]

    [[run]]
    method = ["er", "ewc"]
    lr = [0.1, 0.01]
    set.ewc.strength = [1, 100]            # a field of one method; `set.FIELD` applies to every method here

Options above the first `[[run]]` apply to all of them; a file without `[[run]]` is a single group. Equal
experiments are run once. Combinations that are not possible, because the method needs to know what the
setting hides or the scenario does not support the setting, are skipped and listed; a `[[run]]` of which
nothing is left is an error. Everything is checked before anything is run, and all errors are reported
together.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from engram.core.errors import InputError, unknown_name
from engram.core.jsons import Json, JsonMapping, JsonObject
from engram.core.limits import MOST_RUNS, MOST_SEEDS
from engram.core.schema import Option
from engram.engine.check import check_needs, warn_redrawn
from engram.engine.composed import check_scenario_name, find_benchmark
from engram.engine.options import all_options
from engram.engine.recipe import experiment
from engram.methods import METHODS, traits_of
from engram.methods.fields import validate_fields
from engram.models.from_file import check_model_name
from engram.models.spec import option_of
from engram.protocols.candidates import combinations
from engram.record.experiment import Experiment
from engram.record.parallel import ParallelPlan
from engram.scenarios.named import Benchmark

OPTIONS: dict[str, Option] = {
    "scenario": Option("scenario", "scenario", str, None, "A scenario: see `engram list scenarios`"),
    "method": Option("method", "method", str, None, "A method: see `engram list methods`"),
    **all_options(),
}
"""The options of `engram run` that decide what is computed; users' own networks may have more."""

_ELSEWHERE = ("data", "out", "jobs", "device", "plugin")
_NAMES = {"scenario": check_scenario_name, "method": METHODS.__getitem__, "model": check_model_name}

_LISTS = ("order", "features", "angles")
"""Options whose value is a list; several values are a list of lists."""

Grid = dict[str, tuple[Json, ...]]
"""For every name, the values to try."""


@dataclass(frozen=True, slots=True)
class Skipped:
    """A combination that is not possible.

    Attributes:
        what: Method, scenario and setting.
        why: The reason, in one line.
    """

    what: str
    why: str


@dataclass(frozen=True, slots=True)
class Row:
    """One combination, as it is written in the file.

    Attributes:
        options: The options of `engram run`, with `scenario` and `method`.
        fields: The fields of the method.
        seed: The seed.
    """

    options: JsonMapping
    fields: JsonObject
    seed: int


@dataclass(frozen=True, slots=True)
class SweepPlan:
    """The experiments of a sweep.

    Attributes:
        experiments: All experiments without repetitions, in the order of the file; seeds change fastest.
        rows: The combination that each of them stands for.
        skipped: The combinations that are not possible.
        repeated: How many repetitions of experiments were left out.
    """

    experiments: tuple[Experiment, ...]
    rows: tuple[Row, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    repeated: int = 0

    def evaluated(self, parallel: str) -> SweepPlan:
        """The plan with evaluator processes: where evaluations may be left out, these are other experiments.

        Example:
            >>> plan = expand({"scenario": "split-digits", "method": "er"})
            >>> plan.evaluated("skip").experiments[0].evaluation.skips, plan.evaluated("2") is plan
            (True, True)
        """
        if not ParallelPlan.of(parallel).skips:
            return self
        return replace(self, experiments=tuple(planned.skipping() for planned in self.experiments))


def read_sweep(path: Path) -> JsonObject:
    """The table in a TOML file; a missing or invalid file raises an `InputError`."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from error
    except ValueError as error:
        raise InputError(f"{path} is not TOML: {error}") from error
    except RecursionError as error:
        raise InputError(f"{path} is nested too deeply for a sweep") from error


def expand(table: JsonMapping) -> SweepPlan:
    """The experiments that a table describes, all of them checked.

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
    shared, groups = _blocks(table, mistakes)
    blocks = [shared.updated(group) for group in groups]
    # If a method's name is wrong, its unused fields are not a second mistake.
    if not mistakes:
        mistakes += shared.unused_fields(*(block.methods for block in blocks))
        for group, block in zip(groups, blocks, strict=True):
            mistakes += group.unused_fields(block.methods)
    if (runs := sum(block.size for block in blocks)) > MOST_RUNS:
        raise InputError(
            f"a sweep must have at most {MOST_RUNS:,} runs, got {runs:,}: divide it into several files"
        )
    gathered = _Gathered(mistakes)
    for block in blocks:
        gathered.take(block)
    if mistakes:
        raise InputError("; ".join(dict.fromkeys(mistakes)))
    experiments = tuple(gathered.experiments.values())
    warn_redrawn(experiments)
    return SweepPlan(
        experiments, tuple(gathered.rows.values()), tuple(gathered.skipped), gathered.count - len(experiments)
    )


def _blocks(table: JsonMapping, mistakes: list[str]) -> tuple[_Block, list[_Block]]:
    """The options above the first `[[run]]`, and those of each `[[run]]`."""
    tables = table.get("run", [{}])
    if not isinstance(tables, list) or not all(isinstance(group, Mapping) for group in tables):
        raise InputError("run must be written as [[run]], once per group of runs")
    shared = _Block.of({key: value for key, value in table.items() if key != "run"}, "", mistakes)
    groups = [
        _Block.of(group, f"[[run]] {number}: " if "run" in table else "", mistakes)
        for number, group in enumerate(tables, start=1)
    ]
    return shared, groups


class _Gathered:
    """The experiments of all blocks without repetitions, and the combinations that were skipped."""

    def __init__(self, mistakes: list[str]) -> None:
        self.mistakes = mistakes
        self.experiments: dict[str, Experiment] = {}
        self.rows: dict[str, Row] = {}
        self.skipped: dict[Skipped, None] = {}
        self.count = 0

    def take(self, block: _Block) -> None:
        """Add the experiments of a block; a block without any is a mistake."""
        if missing := [key for key in ("scenario", "method") if key not in block.options]:
            if not self.mistakes:
                self.mistakes.append(f"{block.where}{missing[0]} is missing: name one, or several in a list")
            return
        before = self.count, len(self.skipped)
        for row, planned in block.experiments(self.mistakes):
            if isinstance(planned, Skipped):
                self.skipped[planned] = None
            else:
                self.count += 1
                self.experiments[planned.id] = planned
                self.rows.setdefault(planned.id, row)
        if not self.mistakes and before[0] == self.count:
            reasons = "; ".join(dict.fromkeys(skipped.why for skipped in list(self.skipped)[before[1] :]))
            self.mistakes.append(f"{block.where}nothing is left to run: {reasons}")


@dataclass(frozen=True, slots=True)
class _Block:
    """Options whose values are combined with each other.

    Attributes:
        where: The prefix of its error messages.
        options: The values of each option.
        fields: The values of fields of all methods in the block.
        method_fields: The values of fields of single methods, by method.
        seeds: The seeds; None if the block does not set them.
    """

    where: str
    options: Grid
    fields: Grid
    method_fields: dict[str, Grid]
    seeds: tuple[int, ...] | None = None

    @classmethod
    def of(cls, table: JsonMapping, where: str, mistakes: list[str]) -> _Block:
        """Read a table; errors are added to the mistakes, and the entry is left out."""
        entries = {key.replace("-", "_"): value for key, value in table.items()}
        block = cls(where, {}, {}, {})
        with _noting(mistakes, where):
            block = replace(block, seeds=_seeds(entries.pop("seeds", None), entries.pop("first_seed", None)))
        block._take_fields(entries.pop("set", {}), mistakes)
        for key, value in entries.items():
            with _noting(mistakes, where):
                block.options[key] = _option(key, value)
        return block

    def _take_fields(self, fields: Json, mistakes: list[str]) -> None:
        """Read `set`: fields of all methods, and tables with fields of single methods."""
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

    def updated(self, group: _Block) -> _Block:
        """These options with those of a group, which take precedence."""
        methods = (*self.method_fields, *group.method_fields)
        shared = {name: self.method_fields.get(name, {}) for name in methods}
        return _Block(
            group.where,
            {**self.options, **group.options},
            {**self.fields, **group.fields},
            {name: {**fields, **group.method_fields.get(name, {})} for name, fields in shared.items()},
            self.seeds if group.seeds is None else group.seeds,
        )

    @property
    def methods(self) -> tuple[str, ...]:
        """The methods of the block."""
        return self.options.get("method", ())

    @property
    def size(self) -> int:
        """How many combinations there are, without making them."""
        shared = math.prod(len(values) for name, values in self.options.items() if name != "method")
        grids = [{**self.fields, **self.method_fields.get(name, {})} for name in self.methods]
        each = sum(math.prod(map(len, grid.values())) for grid in grids)
        return shared * each * len(self.seeds or (0,))

    def unused_fields(self, *methods: tuple[str, ...]) -> list[str]:
        """Error messages for fields of methods that are not run."""
        unused = [name for name in self.method_fields if not any(name in group for group in methods)]
        return [f"{self.where}set.{name}: no run here has the method {name}" for name in unused]

    def experiments(self, mistakes: list[str]) -> Iterator[tuple[Row, Experiment | Skipped]]:
        """Every combination."""
        for chosen in combinations(self.options):
            grid = {**self.fields, **self.method_fields.get(chosen["method"], {})}
            for fields in combinations(grid):
                for seed in self.seeds or (0,):
                    with _noting(mistakes, self.where):
                        yield Row(chosen, fields, seed), _experiment(chosen, fields, seed=seed)


def _experiment(chosen: JsonMapping, fields: JsonObject, *, seed: int) -> Experiment | Skipped:
    """One combination as an experiment, or why it is not possible."""
    scenario, method, setting = chosen["scenario"], chosen["method"], chosen.get("setting")
    known = find_benchmark(scenario, chosen)
    what = f"{method} on {scenario} ({setting or known.setting_names[0]})"
    if setting is not None and setting not in known.setting_names:
        return Skipped(what, f"{scenario} supports only the settings {', '.join(known.setting_names)}")
    rest = {name: value for name, value in chosen.items() if name not in ("scenario", "method")}
    try:
        return experiment(scenario, method, settings=fields, seed=seed, **rest)
    except InputError as error:
        planned = Experiment(known.scenario(setting), method, settings=fields)
        if _lacks_what_it_needs(planned, known):
            return Skipped(what, str(error))
        raise


def _lacks_what_it_needs(planned: Experiment, known: Benchmark) -> bool:
    """Whether the setting hides what the method needs to know; other errors are ignored."""
    method, kind = METHODS[planned.method], planned.scenario.setting.kind
    usual = known.recipe.fields(planned.method, kind)
    try:
        settings = validate_fields(planned.method, method, {**usual, **planned.settings})
    except InputError:
        return False
    try:
        check_needs(planned, traits_of(method).needed(settings))
    except InputError:
        return True
    return False


def _option(key: str, value: Json) -> tuple[Json, ...]:
    """The values of an option, each checked on its own."""
    if key in _ELSEWHERE:
        raise InputError(f"{key} is not part of a sweep: set it on the command line with --{key}")
    option = OPTIONS.get(key) or option_of(key)
    if option is None:
        raise unknown_name("key", key, (*OPTIONS, "seeds", "first_seed", "set", "run"))
    listed = isinstance(value, list) and not any(isinstance(item, list) for item in value)
    if listed and (key in _LISTS or (option.kind is tuple and all(type(item) is int for item in value))):
        # A list of whole numbers is a single value: the widths of one network.
        value = [value]
    return tuple(_checked(option, item) for item in _several(key, value))


def _checked(option: Option, value: Json) -> Json:
    """One value of an option."""
    if option.name in _NAMES:
        _NAMES[option.name](OPTIONS[option.name].check(value))
        return value
    if option.kind is Path:
        return OPTIONS[option.name].check(value, text=True)
    checked = option.check(value)
    if checked is None:
        # 0 stands for everything; None would mean that the option is not set.
        return 0
    return float(checked) if option.kind is float else checked


def _field(name: str, value: Json) -> tuple[str, tuple[Json, ...]]:
    """A field of a method and its values, which the method itself checks."""
    return name.replace("-", "_"), _several(name, value)


def _several(key: str, value: Json) -> tuple[Json, ...]:
    """The values to try: those of a list, or a single one."""
    if value == []:
        raise InputError(f"{key} must have at least one value, got []: add one, or leave it out")
    return tuple(value) if isinstance(value, list) else (value,)


def _seeds(seeds: Json, first: Json) -> tuple[int, ...] | None:
    """The seeds: a number of them from the first on, or a list; None if neither is set."""
    if isinstance(seeds, list):
        if not seeds or first is not None or any(type(seed) is not int or seed < 0 for seed in seeds):
            raise InputError(f"seeds must be whole numbers from 0 on, without first_seed, got {seeds}")
        return tuple(seeds)
    count, start = 1 if seeds is None else seeds, 0 if first is None else first
    if type(count) is not int or count < 1:
        raise InputError(f"seeds must be at least 1, or a list of seeds, got {count!r}")
    if type(start) is not int or start < 0:
        raise InputError(f"first_seed must be at least 0, got {start!r}")
    if count > MOST_SEEDS:
        raise InputError(f"seeds must be at most {MOST_SEEDS}, got {count}: each is a whole run")
    return None if seeds is None and first is None else tuple(range(start, start + count))


@contextmanager
def _noting(mistakes: list[str], where: str) -> Iterator[None]:
    """Add an error to the mistakes, and continue."""
    try:
        yield
    except InputError as error:
        mistakes.append(f"{where}{error}")
