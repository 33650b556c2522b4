"""The options of scenarios that are composed from data. Nothing heavy is imported: `--help` is fast."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Annotated, Final

from pydantic import Field

from engram.core.dataset_info import INPUT_KINDS
from engram.core.schema import OneOf


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnDataOptions:
    """Options of scenarios that are composed from data: `split:FILE` and so on."""

    classes_per_task: Annotated[
        tuple[Annotated[int, Field(ge=1)], ...] | None,
        Field(description="Classes of each task, or of all: 2 or 2,2,3 (split:)"),
    ] = None
    order: Annotated[
        tuple[int | str, ...] | None,
        Field(description="Classes in the order in which they arrive (split:)"),
    ] = None
    n_tasks: Annotated[int | None, Field(ge=1, description="Number of tasks (permuted:)")] = None
    angles: Annotated[
        tuple[float | int, ...] | None, Field(description="Degrees of every task, such as 0,45,90 (rotated:)")
    ] = None
    label: Annotated[str | None, Field(description="Column of a table that has the labels")] = None
    features: Annotated[
        tuple[int | str, ...] | None,
        Field(description="Columns of a table that are inputs (default: all others)"),
    ] = None
    inputs: Annotated[str | None, OneOf(INPUT_KINDS), Field(description="What samples are")] = None
    test_share: Annotated[
        float | None,
        Field(gt=0, lt=1, description="Share of each class for testing, if a file has no test samples"),
    ] = None
    size: Annotated[
        int | None, Field(ge=1, description="Height and width of images in folders and domains")
    ] = None


DATA_OPTIONS: Final = tuple(item.name for item in fields(OwnDataOptions))
"""The names of these options."""
