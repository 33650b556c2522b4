"""`engram list`: the names that people can type, and what they stand for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Annotated

import typer

from engram.cli.completion import completion
from engram.cli.options import Plugin, load_own
from engram.cli.output import name_broken, print_json, stdout
from engram.cli.tables import Column, print_table
from engram.core.errors import unknown_name
from engram.core.jsons import JsonObject

Entry = JsonObject


def list_(
    kind: Annotated[
        str | None,
        typer.Argument(
            help="scenarios, models, methods, metrics, datasets or optimizers.",
            metavar="KIND",
            autocompletion=completion(kind_names),
        ),
    ] = None,
    plugin: Plugin = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """List scenarios, models, methods, metrics, data sets or optimizers.

    Without KIND, list what can be listed.
    """
    load_own(plugin)
    if kind is None:
        _list_kinds(json=json)
        return
    plural = kind if kind in _KINDS or f"{kind}s" not in _KINDS else f"{kind}s"
    if plural not in _KINDS:
        raise unknown_name("kind", kind, _KINDS)
    gather, columns = _KINDS[plural]
    entries = gather()
    if json:
        print_json({plural: entries})
        return
    _print_entries([entry for entry in entries if not entry.get("part_of")], columns)
    if plural in _FOOTNOTES:
        stdout.print(f"\n{_FOOTNOTES[plural]}", markup=False)


def kind_names() -> list[str]:
    """What can be listed.

    Example:
        >>> kind_names()[:2]
        ['scenarios', 'models']
    """
    return list(_KINDS)


def _list_kinds(*, json: bool) -> None:
    if json:
        print_json({"kinds": list(_KINDS)})
        return
    print_table(
        [Column("kind"), Column("command"), Column("what")],
        [[kind, f"engram list {kind}", _ABOUT[kind]] for kind in _KINDS],
    )
    stdout.print("\n`engram explain NAME` explains any of the names.")


def _scenarios() -> list[Entry]:
    from engram.scenarios.build import SLT_CODES
    from engram.scenarios.catalogue import BENCHMARKS, SLT_PATTERN, benchmark

    def entry(name: str, description: str, example: str) -> Entry:
        known = benchmark(example)
        stream = known.scenario()
        return {
            "name": name,
            "description": description or known.description,
            "paper": known.paper,
            "settings": list(known.setting_names),
            "tasks": len(stream.tasks),
            "units": stream.n_units,
            "recipe": asdict(known.recipe),
        }

    codes = (
        f"Sequential learning tasks {', '.join(SLT_CODES)} on any data set, the last in the domain setting"
    )
    return [
        *(entry(name, "", name) for name in BENCHMARKS),
        entry(SLT_PATTERN, codes, f"slt-{SLT_CODES[0]}-mnist"),
    ]


def _models() -> list[Entry]:
    from engram.models import MODELS

    models, broken = MODELS.loaded()
    name_broken(broken)
    return [
        {
            "name": name,
            "description": model.description,
            "options": [
                {"name": option.name, "default": option.default, "doc": option.description}
                for option in model.declared
            ],
        }
        for name, model in models.items()
    ]


def _methods() -> list[Entry]:
    from engram.methods import METHODS, traits_of
    from engram.methods.fields import fields_of

    methods, broken = METHODS.loaded()
    name_broken(broken)
    return [
        {
            "name": name,
            "description": _first_line(method),
            "family": traits_of(method).family,
            "paper": traits_of(method).paper,
            "needs": list(traits_of(method).usual_needs),
            "fields": [field._asdict() for field in fields_of(method)],
        }
        for name, method in methods.items()
    ]


def _metrics() -> list[Entry]:
    from engram.metrics.explanation import list_metrics

    entries, broken = list_metrics()
    name_broken(broken)
    return entries


def _datasets() -> list[Entry]:
    from engram.core.dataset_info import DATASETS

    infos = (DATASETS[name] for name in DATASETS)
    return [
        {
            "name": info.name,
            "title": info.title,
            "classes": info.classes,
            "shape": info.shape,
            "train": info.train,
            "test": info.test,
            "part_of": info.part_of,
        }
        for info in infos
    ]


def _optimizers() -> list[Entry]:
    import torch

    from engram.core.values import OptimizerSpec
    from engram.methods.optimizers import OPTIMIZERS, build_optimizer

    entries = []
    for name in OPTIMIZERS:
        optimizer = build_optimizer(OptimizerSpec(name), [torch.nn.Parameter(torch.zeros(1))])
        entries.append({"name": name, "description": f"torch.optim.{type(optimizer).__name__}"})
    return entries


def _first_line(thing: object) -> str:
    return (thing.__doc__ or "").partition("\n")[0]


def _print_entries(entries: Sequence[Entry], columns: Sequence[str]) -> None:
    """Print a table; a column in brackets is for wide terminals."""
    names = [name.strip("()") for name in columns]
    print_table(
        [
            Column(name, right=name in _NUMBERS, wide=column.startswith("("))
            for column, name in zip(columns, names, strict=True)
        ],
        [[_cell(name, entry) for name in names] for entry in entries],
    )


def _cell(column: str, entry: Entry) -> str:
    match column, entry[column]:
        case (("fields" | "options"), list(fields)):
            return " ".join(f"{field['name']}={_short(field['default'])}" for field in fields)
        case "settings", list(names):
            return " ".join(names)
        case "shape", shape:
            return "×".join(map(str, shape))
        case _, list(values):
            return ", ".join(values)
        case (("train" | "test"), 0):
            return "?"
        case _, int(number):
            return f"{number:,}"
        case _, text:
            return str(text)


def _short(default: object) -> str:
    """A default value in few characters: `explain` has all digits.

    Example:
        >>> _short(1 / 3), _short(100.0), _short("class-balanced")
        ('0.333333', '100.0', 'class-balanced')
    """
    return f"{default:g}" if isinstance(default, float) and len(str(default)) > 8 else str(default)


_NUMBERS = ("tasks", "units", "classes", "shape", "train", "test")
_KINDS: dict[str, tuple[Callable[[], list[Entry]], tuple[str, ...]]] = {
    "scenarios": (_scenarios, ("name", "settings", "tasks", "(units)", "(paper)", "description")),
    "models": (_models, ("name", "options", "description")),
    "methods": (_methods, ("name", "family", "(paper)", "needs", "fields")),
    "metrics": (_metrics, ("name", "description", "(source)")),
    "datasets": (_datasets, ("name", "title", "classes", "shape", "train", "test")),
    "optimizers": (_optimizers, ("name", "description")),
}
_ABOUT = {
    "scenarios": "benchmarks: streams of tasks with the set-up of their papers",
    "models": "networks",
    "methods": "continual learning methods, with their fields",
    "metrics": "what is computed from accuracies",
    "datasets": "data sets and their sizes",
    "optimizers": "how weights are updated",
}
_FOOTNOTES = {
    "scenarios": "The first setting is the default. `engram explain NAME` shows the recipe and the sizes.",
    "models": "`engram explain NAME` shows the options of a model.",
    "methods": "Set a field with --set FIELD=VALUE; `engram explain NAME` says what it does.",
    "datasets": "`engram data` shows where each was found or what is missing, and which have parts.",
    "metrics": "`engram explain NAME` has the definition and a worked example.",
}
