"""Scenarios that are composed on the spot: `split:letters.npz`, `permuted:mnist`, `domains:a.csv,b.csv`.

What follows the colon is a data set's name, or a user's own file or folder; see `engram.datasets.files`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from engram.core.dataset_info import DATASETS, DatasetInfo, InputKind
from engram.core.errors import InputError, unknown_name
from engram.core.jsons import JsonMapping
from engram.core.values import OptimizerSpec
from engram.engine.data_options import DATA_OPTIONS
from engram.scenarios.build import domains, permuted, rotated, split
from engram.scenarios.catalogue import benchmark
from engram.scenarios.named import Benchmark
from engram.scenarios.recipe import Recipe
from engram.scenarios.settings import setting_of
from engram.scenarios.values import Scenario, Setting, SettingName

KINDS: Final = ("split", "permuted", "rotated", "domains")
"""What a composed scenario may begin with."""

_SETTINGS: Final[dict[str, tuple[SettingName, ...]]] = {
    "split": ("class", "task", "domain"),
    "permuted": ("domain", "task", "class"),
    "rotated": ("domain", "task", "class"),
    "domains": ("domain", "task"),
}
_ONLY: Final[dict[str, tuple[str, ...]]] = {
    "classes_per_task": ("split",),
    "order": ("split",),
    "n_tasks": ("permuted",),
    "angles": ("rotated",),
}
"""The kinds of scenarios that an option is for; all others are for every kind."""

_READING: Final = ("label", "features", "inputs", "test_share", "size")

MODELS_FOR: Final[dict[InputKind, str]] = {
    "image": "mlp",
    "table": "mlp",
    "tokens": "embedding-mlp",
    "series": "gru",
    "volume": "mlp",
}
"""The network for each kind of input, if no other is chosen."""


def is_composed(name: str) -> bool:
    """Whether a scenario's name says from which data it is composed.

    Example:
        >>> is_composed("split:letters.npz"), is_composed("split-digits")
        (True, False)
    """
    return name.partition(":")[0] in KINDS and ":" in name


def check_scenario_name(name: str) -> None:
    """Refuse a name that no scenario has; files are only looked for, not read.

    Raises:
        InputError: There is no such scenario, or no such file.
    """
    if not is_composed(name):
        benchmark(name)
        return
    for source in _sources(name):
        if source not in DATASETS and not Path(source).expanduser().exists():
            raise _unknown_source(source)


def find_benchmark(name: str, chosen: JsonMapping | None = None) -> Benchmark:
    """The scenario of a name, composed from data if the name says so.

    Args:
        name: A benchmark's name, or `split:DATA`, `permuted:DATA`, `rotated:DATA` or `domains:DATA,DATA`.
        chosen: Options by name; those of `OwnDataOptions` are used.

    Raises:
        InputError: A name or a file is unknown, or an option does not fit.

    Example:
        >>> find_benchmark("split:digits", {"classes_per_task": (5,)}).scenario()
        Scenario('split-digits-by-5', class setting, 2 tasks, 10 output units)
        >>> find_benchmark("split-digits", {"n_tasks": 3})
        Traceback (most recent call last):
        engram.core.errors.InputError: n_tasks is for scenarios composed from data, such as permuted:FILE; ...
    """
    options = {
        key: value for key, value in (chosen or {}).items() if key in DATA_OPTIONS and value is not None
    }
    if not is_composed(name):
        known = benchmark(name)
        refuse_data_options(options, name)
        return known
    kind = name.partition(":")[0]
    for option in options:
        if kind not in _ONLY.get(option, KINDS):
            raise InputError(f"{option} is for {_ONLY[option][0]}:DATA, and {name} is not: leave it out")
    infos = [DATASETS[_dataset(source, options)] for source in _sources(name)]
    if kind != "domains" and len(infos) != 1:
        raise InputError(f"{kind}: takes one data set, got {len(infos)}: use domains: for several")
    make = {"split": _split, "permuted": _permuted, "rotated": _rotated, "domains": _domains}[kind]
    first = make(infos, options, setting_of(_SETTINGS[kind][0], what=kind), 0)
    title = " and ".join(info.title for info in infos)
    return Benchmark(
        first.name,
        f"{kind.capitalize()} {title}",
        "",
        tuple(setting_of(setting, what=kind) for setting in _SETTINGS[kind]),
        lambda setting, seed: make(infos, options, setting, seed),
        _recipe(infos),
    )


def refuse_data_options(chosen: JsonMapping, scenario: str) -> None:
    """Refuse options of composed scenarios for one that is not composed.

    Raises:
        InputError: One of them is set.
    """
    for option in DATA_OPTIONS:
        if chosen.get(option) is not None:
            kind = _ONLY.get(option, ("split",))[0]
            raise InputError(
                f"{option} is for scenarios composed from data, such as {kind}:FILE; {scenario} has its own: "
                "leave it out"
            )


def _sources(name: str) -> list[str]:
    sources = [part.strip() for part in name.partition(":")[2].split(",")]
    if not all(sources):
        raise InputError(f"{name} names no data: write a data set's name or a file after the colon")
    # A file's own name may have commas.
    whole = name.partition(":")[2].strip()
    return [whole] if len(sources) > 1 and Path(whole).expanduser().exists() else sources


def _dataset(source: str, options: JsonMapping) -> str:
    """The name of a registered data set, or of the data in a file, which is read and registered."""
    from engram.datasets.files import Reading, own_file

    how = {name: options[name] for name in _READING if name in options}
    if "features" in how:
        how["features"] = tuple(str(name) for name in how["features"])
    if source in DATASETS:
        own = [name for name in how if name != "size"]
        if own:
            raise InputError(f"{own[0]} says how a file is read, and {source} is a data set: leave it out")
        return source
    if not Path(source).expanduser().exists():
        raise _unknown_source(source)
    return own_file(Path(source), Reading(**how))


def _unknown_source(source: str) -> InputError:
    if "/" in source or Path(source).suffix:
        return InputError(f"no such file: {source}")
    return unknown_name("data set or file", source, DATASETS)


def _recipe(infos: Sequence[DatasetInfo]) -> Recipe:
    """How own data are trained: Adam, because nobody has tuned a learning rate for them."""
    return Recipe(
        optimizers=(OptimizerSpec("adam", lr=0.001), OptimizerSpec()),
        epochs=5,
        model=MODELS_FOR[infos[0].inputs],
    )


def infos_of(stream: Scenario) -> list[DatasetInfo]:
    """What is known of the data sets of a stream, as far as they are registered."""
    names = dict.fromkeys(task.source.dataset for task in stream.tasks)
    return [DATASETS[name] for name in names if name in DATASETS]


def usual_model(stream: Scenario) -> str:
    """The network for the inputs of a stream that has no recipe.

    Example:
        >>> usual_model(split("digits", setting="class"))
        'mlp'
    """
    kinds = {info.inputs for info in infos_of(stream)}
    return MODELS_FOR[kinds.pop()] if len(kinds) == 1 else MODELS_FOR["image"]


# Scenarios ------------------------------------------------------------------------------------------


def _split(infos: Sequence[DatasetInfo], options: JsonMapping, setting: Setting, seed: int) -> Scenario:
    [info] = infos
    sizes: tuple[int, ...] = options.get("classes_per_task", (2,))
    per_task = sizes[0] if len(sizes) == 1 else sizes
    order = _order(info, options["order"]) if "order" in options else None
    stream = split(info.name, per_task, setting=setting, order=order)
    changed = (per_task != 2) * f"-by-{'-'.join(map(str, sizes))}" + (order is not None) * "-ordered"
    return _named(stream, f"split-{info.name}{changed}")


def _permuted(infos: Sequence[DatasetInfo], options: JsonMapping, setting: Setting, seed: int) -> Scenario:
    [info] = infos
    stream = permuted(info.name, options.get("n_tasks", 5), setting=setting, seed=seed, identity_first=True)
    return _named(stream, f"permuted-{info.name}")


def _rotated(infos: Sequence[DatasetInfo], options: JsonMapping, setting: Setting, seed: int) -> Scenario:
    [info] = infos
    if info.inputs != "image":
        raise InputError(
            f"only images can be rotated, and {info.name} has {_named_kind(info)}: use permuted:"
        )
    stream = rotated(info.name, options.get("angles", (0, 45, 90, 135)), setting=setting)
    return _named(stream, f"rotated-{info.name}")


def _domains(infos: Sequence[DatasetInfo], options: JsonMapping, setting: Setting, seed: int) -> Scenario:
    if len(infos) < 2:
        raise InputError("domains: takes several data sets with commas, such as domains:a.npz,b.npz")
    first = infos[0]
    for info in infos[1:]:
        if info.class_names != first.class_names:
            raise InputError(
                f"domains must have the same classes: {first.name} has {_listed(first)}, "
                f"{info.name} {_listed(info)}"
            )
    stream = domains([info.name for info in infos], setting=setting, size=options.get("size"))
    names = [info.name for info in infos]
    called = "-".join(names) if len(names) <= 3 else f"{names[0]}-and-{len(names) - 1}-more"
    return _named(stream, f"domains-{called}")


def _named(stream: Scenario, name: str) -> Scenario:
    return replace(stream, name=name)


def _named_kind(info: DatasetInfo) -> str:
    return info.inputs if info.inputs in ("tokens", "series") else f"{info.inputs}s"


def _listed(info: DatasetInfo) -> str:
    names = info.class_names or tuple(map(str, range(info.classes)))
    return ", ".join(names) if len(names) <= 5 else f"{len(names)} ({names[0]}, {names[1]}, …)"


def _order(info: DatasetInfo, order: Sequence[int | str]) -> list[int]:
    """Classes in their order, given by their names or by their numbers from 0; every class once."""
    names = info.class_names or tuple(map(str, range(info.classes)))
    written = [str(entry) for entry in order]
    by_name = set(written) <= set(names)
    by_number = all(isinstance(entry, int) and 0 <= entry < info.classes for entry in order)
    if not by_name and not by_number:
        unknown = next(entry for entry in written if entry not in names)
        raise unknown_name(f"class of {info.name} in order", unknown, names)
    numbers = [names.index(entry) if by_name else int(entry) for entry in written]
    if twice := next((entry for entry in written if written.count(entry) > 1), None):
        raise InputError(f"order names the class {twice} twice: name every class once")
    if missing := [name for number, name in enumerate(names) if number not in numbers]:
        raise InputError(f"order leaves out {', '.join(missing[:5])}: name every class once")
    return numbers
