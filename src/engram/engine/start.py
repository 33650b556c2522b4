"""Weights to start from, read and checked before anything is trained."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from engram.core.dataset_info import DATASETS
from engram.core.errors import InputError
from engram.datasets.transforms import prepared_shape
from engram.models import ModelSpec, build
from engram.models.weights import load_weights, sha256_of
from engram.record.experiment import Experiment, Start
from engram.record.weights import weights_in
from engram.scenarios.values import Scenario


def start_from(file: Path) -> Start:
    """A start from a file of weights, or from those that a run kept in its folder.

    A file that has not changed is read once.

    Raises:
        InputError: The file cannot be read.
    """
    file = weights_in(file) if file.is_dir() else file
    try:
        status = file.stat()
    except OSError:
        return Start(sha256_of(file), file)
    return Start(_sha256(file.absolute(), status.st_mtime_ns, status.st_size), file.absolute())


def weights_file(start: Start) -> Path:
    """The file that a start reads its weights from.

    Raises:
        InputError: It is not known, because a run records only the hash of its weights.
    """
    if start.file == Path():
        raise InputError(
            f"the run starts from weights with sha256 {start.sha256[:12]}…, whose file it does not record: "
            "create the experiment again with weights=FILE"
        )
    return start.file


def check_start(experiment: Experiment) -> str:
    """Refuse weights that do not fit the experiment's network, and return what becomes of its head.

    Raises:
        InputError: The file cannot be read, or does not fit.
    """
    start = experiment.start
    if start is None:
        return ""
    scenario = experiment.scenario
    shape, file = sample_shape(scenario), weights_file(start)
    return _head(experiment.model, shape, scenario.n_units, file, start.sha256)


def sample_shape(scenario: Scenario) -> tuple[int, ...]:
    """The shape of one prepared sample, as far as it is known without loading data.

    Example:
        >>> from engram.scenarios import split
        >>> sample_shape(split("digits", setting="class"))
        (1, 8, 8)
    """
    first = scenario.tasks[0]
    return prepared_shape(DATASETS[first.source.dataset].shape, first.transforms)


@lru_cache(maxsize=64)
def _sha256(file: Path, _changed: int, _size: int) -> str:
    return sha256_of(file)


@lru_cache(maxsize=64)
def _head(model: ModelSpec, shape: tuple[int, ...], n_units: int, file: Path, sha256: str) -> str:
    return load_weights(build(model, shape=shape, n_units=n_units, seed=0), file, sha256=sha256)
