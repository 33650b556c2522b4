"""Weights as a run keeps them: safetensors, which say inside what they are."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from engram.core.errors import InputError
from engram.core.files import write_whole
from engram.core.jsons import Json, JsonObject

KEY = "engram"
"""The entry of a file's metadata that holds all of ours; one entry, so that its bytes are always the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What a file of weights says about itself.

    Attributes:
        experiment: The id of the experiment.
        model: The specification of the network, as `experiment.json` has it.
        shape: The shape of one sample.
        n_units: Output units.
        phase: How many tasks had been learned, of `phases`.
        phases: How many tasks are learned in all.
        classes: The names of the classes that output units stand for; empty if some stand for several.
        transforms: How samples are prepared, if that is the same in all tasks; else None.
    """

    experiment: str
    model: JsonObject
    shape: tuple[int, ...]
    n_units: int
    phase: int
    phases: int
    classes: tuple[str, ...] = ()
    transforms: tuple[JsonObject, ...] | None = None

    def as_text(self) -> str:
        """As it is written."""
        return json.dumps({name: getattr(self, name) for name in self.__slots__}, sort_keys=True, default=str)

    @classmethod
    def of_text(cls, text: str, *, path: Path) -> Kept:
        """The inverse of `as_text`.

        Raises:
            InputError: It was not written by engram.
        """
        try:
            known: dict[str, Json] = json.loads(text)
            steps = known["transforms"]
            return cls(
                experiment=str(known["experiment"]),
                model=dict(known["model"]),
                shape=tuple(int(side) for side in known["shape"]),
                n_units=int(known["n_units"]),
                phase=int(known["phase"]),
                phases=int(known["phases"]),
                classes=tuple(map(str, known["classes"])),
                transforms=None if steps is None else tuple(map(dict, steps)),
            )
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(f"the weights {path} do not say what they are: {error!r}") from error


def save_weights(path: Path, tensors: dict[str, Tensor], kept: Kept) -> None:
    """Write weights as safetensors, completely or not at all; the same weights give the same bytes.

    Example:
        >>> import tempfile, torch
        >>> place = Path(tempfile.mkdtemp()) / "weights.safetensors"
        >>> about = Kept(experiment="mine", model={"name": "mlp"}, shape=(4,), n_units=2, phase=1, phases=1)
        >>> save_weights(place, {"head.bias": torch.zeros(2)}, about)
        >>> read_kept(place) == about
        True
    """
    import safetensors.torch

    alone = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    content = safetensors.torch.save(alone, {KEY: kept.as_text()})
    write_whole(path, lambda beside: beside.write_bytes(content))


def read_kept(path: Path) -> Kept | None:
    """What a file of weights says about itself; None where it was not written by a run.

    Raises:
        InputError: It cannot be read.
    """
    if path.suffix != ".safetensors":
        return None
    import safetensors

    if not path.is_file():
        raise InputError(f"cannot read the weights {path}: no such file")
    try:
        with safetensors.safe_open(path, "pt") as file:
            text = (file.metadata() or {}).get(KEY)
    except (safetensors.SafetensorError, OSError) as error:
        raise InputError(f"the weights {path} are broken: {error}") from error
    return None if text is None else Kept.of_text(text, path=path)
