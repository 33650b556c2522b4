"""What a network with weights from a file answers to slices of data: the gate's input from weights."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from engram.core.dataset_info import INPUT_KINDS
from engram.core.errors import InputError, unknown_name
from engram.core.jsons import Json, JsonMapping
from engram.core.schema import from_fields
from engram.datasets.files import Reading, read_unlearned
from engram.datasets.formats import Pixels
from engram.datasets.transforms import prepare
from engram.evaluation.answers import answers_of
from engram.models import ModelSpec, build
from engram.models.from_file import model_from_file, names_a_file
from engram.models.kept import Kept, read_kept
from engram.models.network import Network
from engram.models.weights import FROM_FILE, load_weights, units_in
from engram.record.weights import weights_in
from engram.scenarios.values import Transform

LAYOUT = (
    "a file of slices has a table [slices] with a data file per name, and optionally classes, label, "
    "features and inputs for all of them"
)
_HOW = ("label", "features", "inputs")


@dataclass(frozen=True, slots=True)
class Slice:
    """Test samples by name.

    Attributes:
        name: The name of the slice.
        x: The samples, as the file has them.
        y: Their labels: whole numbers or text.
    """

    name: str
    x: Tensor
    y: Pixels


@dataclass(frozen=True, slots=True)
class Slices:
    """Test samples of several slices.

    Attributes:
        slices: The slices.
        classes: The names of the classes in the order of the output units; empty where labels are numbers of
            output units.
    """

    slices: tuple[Slice, ...]
    classes: tuple[str, ...] = ()


def read_slices(path: Path) -> Slices:
    """The slices that a TOML file names; files are looked for beside it.

    Raises:
        InputError: The file or one of the data files cannot be read.

    Example:
        >>> import tempfile
        >>> place = Path(tempfile.mkdtemp())
        >>> np.savez(place / "night.npz", x=np.zeros((3, 4)), y=[0, 1, 1])
        >>> _ = (place / "slices.toml").write_text("[slices]\\nnight = 'night.npz'\\n")
        >>> [(part.name, tuple(part.x.shape)) for part in read_slices(place / "slices.toml").slices]
        [('night', (3, 4))]
    """
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}; {LAYOUT}") from error
    except ValueError as error:
        raise InputError(f"{path} is not TOML: {error}; {LAYOUT}") from error
    named = table.get("slices")
    if not isinstance(named, Mapping) or not named:
        raise InputError(f"{path} has no [slices]: {LAYOUT}")
    for key in table:
        if key not in ("slices", "classes", *_HOW):
            raise unknown_name(f"key of {path.name}", key, ("slices", "classes", *_HOW))
    classes = table.get("classes", [])
    if not isinstance(classes, list):
        raise InputError(f"classes in {path} must be a list of names in the order of the output units")
    shared = {key: table[key] for key in _HOW if key in table}
    slices = tuple(_slice(str(name), entry, shared, path) for name, entry in named.items())
    if len({tuple(part.x.shape[1:]) for part in slices}) > 1:
        listed = ", ".join(f"{part.name} {tuple(part.x.shape[1:])}" for part in slices)
        raise InputError(f"the slices of {path} have samples of different shapes: {listed}")
    return Slices(slices, tuple(map(str, classes)))


def _slice(name: str, entry: Json, shared: JsonMapping, path: Path) -> Slice:
    options = {**shared, **(entry if isinstance(entry, Mapping) else {"file": entry})}
    file = options.pop("file", None)
    for key in options:
        if key not in _HOW:
            raise unknown_name(f"key of the slice {name} in {path.name}", key, ("file", *_HOW))
    if not isinstance(file, str):
        raise InputError(f"the slice {name} in {path} names no file: {LAYOUT}")
    if options.get("inputs") not in (None, *INPUT_KINDS):
        raise unknown_name(f"kind of input of the slice {name}", str(options["inputs"]), INPUT_KINDS)
    how = Reading(**{**options, "features": tuple(map(str, options.get("features", ())))})
    place = path.parent / Path(file).expanduser()
    if not place.exists():
        raise InputError(f"no such file: {place}, the slice {name} of {path}")
    samples = read_unlearned(place, Reading() if place.is_dir() else how)
    return Slice(name, samples.x, samples.y)


def answers_of_weights(
    weights: Path, slices: Slices, model: str | None = None
) -> dict[str, Sequence[object]]:
    """What the network with the weights of a file answers, as the columns of a table of predictions.

    Args:
        weights: The file: safetensors, or a state dict that `torch.save` wrote; or the folder of a run.
        slices: The test samples.
        model: The network, by its name or as `FILE.py:FACTORY` (default: the one that the file names, if a
            run wrote it).

    Raises:
        InputError: The weights cannot be read or do not fit, or a label is unknown.
    """
    path = weights_in(weights) if weights.is_dir() else weights
    kept = read_kept(path)
    steps = _steps(kept, path)
    prepared = {part.name: prepare(part.x, steps) for part in slices.slices}
    classes = slices.classes or (() if kept is None else kept.classes)
    units = {part.name: _units(part, classes) for part in slices.slices}
    shape = tuple(next(iter(prepared.values())).shape[1:])
    most = max(int(y.max()) for y in units.values()) + 1
    network = _network(path, kept, model, shape=shape, n_units=max(most, len(classes)))
    columns = answers_of(network, {name: (x, units[name]) for name, x in prepared.items()})
    if classes:
        columns["label"] = [classes[int(str(unit))] for unit in columns["label"]]
    return columns


def _steps(kept: Kept | None, path: Path) -> tuple[Transform, ...]:
    """How samples are prepared: as in the run that wrote the weights."""
    if kept is None or not kept.transforms:
        return ()
    steps: tuple[Transform, ...] = tuple(
        from_fields(Transform, dict(step), where=str(path))  # type: ignore[arg-type, misc]
        for step in kept.transforms
    )
    return steps


def _units(part: Slice, classes: Sequence[str]) -> Tensor:
    """The output unit of each label."""
    if classes:
        places = {name: unit for unit, name in enumerate(classes)}
        for label in np.unique(part.y).tolist():
            if str(label) not in places:
                raise unknown_name(f"label in the slice {part.name}", str(label), classes)
        return torch.tensor([places[str(label)] for label in part.y.tolist()])
    if not np.issubdtype(part.y.dtype, np.integer):
        raise InputError(
            f"the labels of the slice {part.name} are text: list the classes in the order of the output "
            "units, as in classes = ['cat', 'dog']"
        )
    if part.y.min() < 0:
        raise InputError(f"the labels of the slice {part.name} must be numbers of output units, from 0")
    return torch.from_numpy(part.y.astype(np.int64))


def _network(
    path: Path, kept: Kept | None, model: str | None, *, shape: tuple[int, ...], n_units: int
) -> Network:
    """The network with its weights; it has as many output units as these."""
    if model is None and kept is None:
        raise InputError(f"the weights {path} do not say which network they are of: name it with model")
    name = model_from_file(model) if model is not None and names_a_file(model) else model
    # The weights of a run also say which options the network has.
    known = None if kept is None or name not in (None, kept.model.get("name")) else kept
    spec = ModelSpec(name or "") if known is None else ModelSpec.of_fields(known.model)
    first = build(spec, shape=shape, n_units=n_units, seed=0)
    units = units_in(first, path)
    network = first if units in (None, n_units) else build(spec, shape=shape, n_units=units or 1, seed=0)
    if (head := load_weights(network, path)) != FROM_FILE:
        raise InputError(f"the weights {path} do not fit: {head}")
    if network.head.out_features < n_units:
        raise InputError(
            f"the labels go up to {n_units - 1}, and the network of {path} has {network.head.out_features} "
            "output units"
        )
    return network.eval()
