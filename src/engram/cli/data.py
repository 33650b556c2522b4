"""`engram data`: which data sets there are, where each was found, and downloading one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from engram.cli.completion import completion, dataset_names
from engram.cli.output import print_json, stdout
from engram.cli.tables import Column, print_table
from engram.core.dataset_info import DATASETS, DatasetInfo
from engram.core.jsons import JsonObject

if TYPE_CHECKING:
    from engram.datasets import Dataset


def data(
    name: Annotated[
        str | None,
        typer.Argument(
            help="Download (if needed) and check this data set; list all without it.",
            autocompletion=completion(dataset_names),
        ),
    ] = None,
    folder: Annotated[
        Path | None,
        typer.Option("--data", metavar="FOLDER", help="Look here first.", show_default=False),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """List data sets and where each was found; or download and check one."""
    if name is None:
        _list(folder, json=json)
    else:
        _check(name, folder, json=json)


def _list(folder: Path | None, *, json: bool) -> None:
    from engram.datasets.find import search_folders

    infos = [DATASETS[name] for name in DATASETS]
    entries = [_entry(info, folder) for info in infos]
    searched = [str(root) for root in search_folders(folder)]
    if json:
        print_json({"searched": searched, "datasets": entries})
        return
    shown = [(info, entry) for info, entry in zip(infos, entries, strict=True) if not info.part_of]
    rows = [
        [
            info.name,
            str(info.classes),
            "×".join(map(str, info.shape)),
            f"{info.train:,} / {info.test:,}" if info.train else "",
            entry["found"] or _how_to_get(entry),
        ]
        for info, entry in shown
    ]
    for row, (info, _) in zip(rows, shown, strict=True):
        parts = [part.name.removeprefix(f"{info.name}-") for part in infos if part.part_of == info.name]
        if parts:
            row[-1] += f"\nparts: {info.name}-… {', '.join(parts)}"
    print_table(
        [
            Column("name"),
            Column("classes", right=True),
            Column("image", right=True),
            Column("train / test", right=True),
            Column("where", below=True),
        ],
        rows,
        dim=[number for number, (_, entry) in enumerate(shown) if not entry["found"]],
    )
    stdout.print(
        "\n".join(["\nsearched:", *(f"    {place}" for place in searched)]), soft_wrap=True, markup=False
    )


def _how_to_get(entry: JsonObject) -> str:
    if entry["fetchable"]:
        return f"not found: `engram data {entry['name']}` downloads it"
    return f"not found: needs {entry['missing']}"


def _entry(info: DatasetInfo, folder: Path | None) -> JsonObject:
    """What is known about a data set without opening it."""
    from engram.datasets.find import locate, missing
    from engram.datasets.sources import PUBLISHED

    entry: JsonObject = {
        "name": info.name,
        "title": info.title,
        "classes": info.classes,
        "shape": list(info.shape),
        "train": info.train or None,
        "test": info.test or None,
        "part_of": info.part_of or None,
        "fetchable": info.name in PUBLISHED,
    }
    if info.name == "digits":
        return {**entry, "found": "embedded (scikit-learn)", "missing": None}
    copy = locate(info.name, folder)
    return {
        **entry,
        "found": str(copy.path) if copy else None,
        "missing": None if copy else missing(info.name),
    }


def _check(name: str, folder: Path | None, *, json: bool) -> None:
    from engram.datasets import load
    from engram.datasets.find import locate

    info = DATASETS[name]
    dataset = load(name, folder)
    copy = None if name == "digits" else locate(name, folder)
    summary = _summary(info, dataset)
    if json:
        print_json({**summary, "found": str(copy.path) if copy else "embedded (scikit-learn)"})
        return
    parts = [f"{info.title}: {copy.path if copy else 'embedded (scikit-learn)'}"]
    for part in ("train", "test"):
        counts = summary["per_class"][part]
        spread = f"{min(counts):,}" if min(counts) == max(counts) else f"{min(counts):,} to {max(counts):,}"
        parts.append(f"{part}: {summary[part]:,} samples, {spread} per class")
    shape = "×".join(map(str, summary["shape"]))
    parts.append(f"{summary['classes']} classes, {shape}, {summary['kept']}")
    if not summary["complete"]:
        parts.append(
            f"differs from the published data set, which has {info.classes} classes"
            + (f", {info.train:,} / {info.test:,} samples" if info.train else "")
        )
    stdout.print("\n".join(parts), soft_wrap=True)


def _summary(info: DatasetInfo, dataset: Dataset) -> JsonObject:
    """What a data set holds, counted."""
    from engram.datasets import InMemory

    count = len(dataset.classes)
    sizes = {"train": len(dataset.train), "test": len(dataset.test)}
    expected = {"train": info.train or sizes["train"], "test": info.test or sizes["test"]}
    return {
        "name": info.name,
        "title": info.title,
        "classes": count,
        "shape": list(dataset.train.shape),
        **sizes,
        "per_class": {
            part: images.labels.bincount(minlength=count).tolist()
            for part, images in (("train", dataset.train), ("test", dataset.test))
        },
        "complete": sizes == expected and count == info.classes,
        "kept": "in memory" if isinstance(dataset.train, InMemory) else "on disk",
    }
