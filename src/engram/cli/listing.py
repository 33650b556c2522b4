"""`engram list`: the names that people can type, and what they stand for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from engram.cli.options import Plugin, load_own
from engram.cli.output import print_json, stderr, stdout
from engram.core.errors import unknown_name

if TYPE_CHECKING:
    from rich.table import Table

Entry = dict[str, Any]


def list_(
    kind: Annotated[
        str,
        typer.Argument(help="scenarios, models, methods, metrics, datasets or optimizers.", metavar="KIND"),
    ],
    plugin: Plugin = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:
    """List the names of a kind, with what each stands for."""
    plural = kind if kind in _KINDS or f"{kind}s" not in _KINDS else f"{kind}s"
    if plural not in _KINDS:
        raise unknown_name("kind", kind, _KINDS)
    load_own(plugin)
    gather, columns = _KINDS[plural]
    entries = gather()
    if json:
        print_json({plural: entries})
        return
    stdout.print(_table([entry for entry in entries if not entry.get("part_of")], columns))
    if plural in _FOOTNOTES:
        stdout.print(f"\n{_FOOTNOTES[plural]}", markup=False)


def _scenarios() -> list[Entry]:
    from engram.scenarios.build import SLT_CODES
    from engram.scenarios.catalogue import BENCHMARKS, SLT_PATTERN, benchmark

    def entry(name: str, description: str, example: str) -> Entry:
        found = benchmark(example)
        stream = found.scenario()
        return {
            "name": name,
            "description": description or found.description,
            "paper": found.paper,
            "settings": list(found.setting_names),
            "tasks": len(stream.tasks),
            "units": stream.n_units,
            "recipe": asdict(found.recipe),
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
    for line in broken:
        stderr.print(f"left out: {line}", markup=False, soft_wrap=True)
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
    from engram.methods import METHODS
    from engram.methods.base import fields_of, usual_needs

    methods, broken = METHODS.loaded()
    for line in broken:
        stderr.print(f"left out: {line}", markup=False, soft_wrap=True)
    return [
        {
            "name": name,
            "description": _first_line(method),
            "family": method.family,
            "paper": method.paper,
            "needs": list(usual_needs(name, method)),
            "fields": [field._asdict() for field in fields_of(method)],
        }
        for name, method in methods.items()
    ]


def _metrics() -> list[Entry]:
    from engram.metrics.definitions import DEFINITIONS

    return [
        {"name": found.name, "title": found.title, "description": found.meaning, "source": found.source}
        for found in DEFINITIONS
    ]


def _datasets() -> list[Entry]:
    from engram.core.dataset_info import DATASETS

    facts = ("name", "title", "classes", "shape", "train", "test", "part_of")
    infos = (DATASETS[name] for name in DATASETS)
    return [{fact: getattr(info, fact) for fact in facts} for info in infos]


def _optimizers() -> list[Entry]:
    import torch

    from engram.core.values import OptimizerSpec
    from engram.methods.optimizers import OPTIMIZERS, build_optimizer

    entries = []
    for name in OPTIMIZERS:
        made = build_optimizer(OptimizerSpec(name), [torch.nn.Parameter(torch.zeros(1))])
        entries.append({"name": name, "description": f"torch.optim.{type(made).__name__}"})
    return entries


def _first_line(thing: object) -> str:
    return (thing.__doc__ or "").partition("\n")[0]


def _table(entries: list[Entry], columns: tuple[str, ...]) -> Table:
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        numeric = all(isinstance(entry[column], int) for entry in entries)
        table.add_column(
            column, justify="right" if numeric else "left", no_wrap=column == "name", overflow="fold"
        )
    for entry in entries:
        table.add_row(*(escape(_cell(column, entry)) for column in columns))
    return table


def _cell(column: str, entry: Entry) -> str:
    match column, entry[column]:
        case (("fields" | "options"), list(fields)):
            return " ".join(f"{field['name']}={field['default']}" for field in fields)
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


_KINDS: dict[str, tuple[Callable[[], list[Entry]], tuple[str, ...]]] = {
    "scenarios": (_scenarios, ("name", "settings", "tasks", "units", "paper", "description")),
    "models": (_models, ("name", "options", "description")),
    "methods": (_methods, ("name", "family", "paper", "needs", "fields")),
    "metrics": (_metrics, ("name", "description", "source")),
    "datasets": (_datasets, ("name", "title", "classes", "shape", "train", "test")),
    "optimizers": (_optimizers, ("name", "description")),
}
_FOOTNOTES = {
    "scenarios": "The first of the settings is the default.",
    "methods": "Fields are set with --set FIELD=VALUE; `engram explain NAME` says what they do.",
    "datasets": "`engram data` says where each was found or what is missing, and which have parts.",
    "metrics": "`engram explain NAME` has the definition and a worked example.",
}
