"""Test data that a run never saw: a file or folder of samples, divided into the tasks of its scenario."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from engram.core.dataset_info import DATASETS
from engram.core.errors import InputError, unknown_name
from engram.datasets import load
from engram.datasets.files import KINDS, Reading, fitting, read_unlearned
from engram.datasets.formats import Pixels
from engram.datasets.storage import InMemory
from engram.datasets.stream import Stream, TaskData


def other_tests(
    path: Path, stream: Stream, how: Reading | None = None, *, data: Path | None = None
) -> dict[int, TaskData]:
    """The samples of a file or folder, as test samples of the tasks whose classes they are of.

    A sample is one of every task that has its class: in a permuted or rotated scenario of all tasks, each of
    which prepares it in its own way. Labels are names of classes, or else their numbers.

    Args:
        path: The file or folder, laid out as users' own data are.
        stream: The scenario with its data.
        how: How it is read.
        data: The folder that is searched for data sets first.

    Returns:
        For each task that has samples, by its number: these samples.

    Raises:
        InputError: It cannot be read, or its samples are not like those of the scenario.

    Example:
        >>> import tempfile
        >>> from engram.scenarios import split
        >>> place = Path(tempfile.mkdtemp()) / "new.npz"
        >>> np.savez(place, x=np.zeros((4, 8, 8), np.uint8), y=[0, 1, 7, 0])
        >>> tests = other_tests(place, Stream(split("digits", setting="class")))
        >>> {task: len(samples) for task, samples in tests.items()}
        {0: 3, 3: 1}
    """
    place = path.expanduser()
    if not place.exists():
        raise InputError(f"no such file: {path}; give {KINDS}")
    tests: dict[int, TaskData] = {}
    numbered: dict[str, InMemory] = {}
    for task, wanted in enumerate(stream.scenario.tasks):
        name = wanted.source.dataset
        if name not in numbered:
            numbered[name] = _numbered(place, name, stream.stored_shape(task), how or Reading(), data)
        if np.isin(numbered[name].labels.numpy(), wanted.source.classes).any():
            tests[task] = stream.other(task, numbered[name])
    if not tests:
        raise InputError(f"{path} has no sample of any class that {stream.scenario.name} learns")
    return tests


def _numbered(place: Path, name: str, shape: tuple[int, ...], how: Reading, data: Path | None) -> InMemory:
    """The samples of a file, labelled by the numbers that a data set gives its classes."""
    info = DATASETS[name]
    reading = fitting(place, how)
    if place.is_dir() and how.size is None and len(shape) == 3 and shape[1] == shape[2]:
        reading = replace(reading, size=shape[1])
    elif not place.is_dir() and how.inputs is None:
        reading = replace(reading, inputs=info.inputs)
    samples = read_unlearned(place, reading)
    x, y = samples.x, samples.y
    if samples.names and np.issubdtype(y.dtype, np.integer) and y.min() >= 0 and y.max() < len(samples.names):
        y = np.array(samples.names)[y]
    if tuple(x.shape[1:]) != shape:
        raise InputError(
            f"the samples in {place} have the shape {tuple(x.shape[1:])}, and those of {name} {shape}: give "
            "samples of the same shape"
        )
    if info.bytes != (x.dtype == torch.uint8):
        kinds = ("bytes from 0 to 255 (uint8)", "numbers that are no bytes")
        has, needs = kinds if x.dtype == torch.uint8 else kinds[::-1]
        raise InputError(f"{place} holds {has}, and {name} {needs}: give samples of the same kind")
    return InMemory(x, _numbers(y, info.class_names or load(name, data).classes, place))


def _numbers(labels: Pixels, names: tuple[str, ...], place: Path) -> Tensor:
    """Labels as numbers of classes: by their names if all are names of classes."""
    numbers = {called: number for number, called in enumerate(names)}
    values = [str(label) for label in np.unique(labels).tolist()]
    unknown = [value for value in values if value not in numbers]
    if not unknown:
        return torch.tensor([numbers[str(label)] for label in labels.tolist()])
    if np.issubdtype(labels.dtype, np.integer) and labels.min() >= 0 and labels.max() < len(names):
        return torch.from_numpy(labels.astype(np.int64))
    raise unknown_name(f"class in {place.name}", unknown[0], names)
