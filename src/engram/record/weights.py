"""The network of a finished run, with the weights that the run kept."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from engram.core.errors import Damaged, InputError
from engram.core.files import as_input_error

if TYPE_CHECKING:
    from torch import nn

    from engram.models.network import Network

    NetworkSource: TypeAlias = str | Path | nn.Module | Callable[..., nn.Module]
    """Where a network comes from: a plugin, `FILE.py:FACTORY`, or the network itself."""

FINAL = "weights.safetensors"
"""The weights at the end of a run."""


def task_file(phase: int) -> str:
    """The weights after so many tasks.

    Example:
        >>> task_file(2)
        'weights-task-2.safetensors'
    """
    return f"weights-task-{phase}.safetensors"


def weights_in(folder: Path) -> Path:
    """The file of the weights at the end of the run in a folder.

    Raises:
        InputError: The folder has none.
    """
    if (folder / FINAL).is_file():
        return folder / FINAL
    numbered = {int(path.stem.rpartition("-")[2]): path for path in folder.glob("weights-task-*.safetensors")}
    if not numbered:
        raise InputError(f"{folder} has no weights: run it with --save-weights final, or name a file")
    return numbered[max(numbered)]


def damaged_weights(folder: Path, recorded: Mapping[str, str]) -> list[str]:
    """What is wrong with the weights that a run kept, one line each.

    Args:
        folder: The folder of the run.
        recorded: The files of weights, with their hashes.

    Example:
        >>> damaged_weights(Path("nowhere"), {FINAL: "0123"})
        ['the weights nowhere/weights.safetensors are missing']
    """
    problems = []
    for name, sha256 in recorded.items():
        path = folder / name
        try:
            with as_input_error(f"cannot read the weights {path}"):
                if not path.exists():
                    raise Damaged(f"the weights {path} are missing")
                with path.open("rb") as file:
                    same = hashlib.file_digest(file, "sha256").hexdigest() == sha256
            if not same:
                raise Damaged(f"the weights {path} are damaged: their hash is not the recorded one")
        except InputError as error:
            problems.append(str(error))
    return problems


def network_of(
    folder: Path | None,
    recorded: Mapping[str, str],
    code: object,
    *,
    task: int | None = None,
    source: NetworkSource | None = None,
) -> Network:
    """The network of a run with its weights, in evaluation mode.

    Args:
        folder: The folder of the run.
        recorded: The files of weights that the run kept, with their hashes.
        code: The hashes of the user's own code that the run used, by what it is, if it used any.
        task: The number of tasks that had been learned (default: all).
        source: Where a user's own network comes from: a plugin, `FILE.py:FACTORY`, or the network itself.

    Raises:
        InputError: There are no such weights, they are not what was kept, or the network is not known.
    """
    from engram.models import MODELS, ModelSpec, build
    from engram.models.kept import read_kept
    from engram.models.weights import load_weights

    if folder is None or not recorded:
        raise InputError("the run kept no weights: run it with save_weights='final'")
    path = weights_in(folder) if task is None else folder / task_file(task)
    if path.name not in recorded:
        raise InputError(f"the run kept no {path.name}: it has {', '.join(recorded)}")
    kept = read_kept(path)
    if kept is None:
        raise InputError(f"the weights {path} do not say what they are: the run did not write them")
    value = _load(source)
    name = str(kept.model.get("name", ""))
    if value is None and name not in MODELS:
        raise InputError(
            f"the model {name} of the run is not known here: give its plugin, its FILE.py:FACTORY, or the "
            "network itself, as in run.model('nets.py:small')"
        )
    recorded_code = code.get("model", "") if isinstance(code, Mapping) else ""
    if value is None and recorded_code != MODELS.code_of(name):
        raise InputError(
            f"the model {name} has changed since the run: restore the file that it is written in"
        )
    spec = ModelSpec.of_fields(kept.model)
    if value is not None:
        spec = ModelSpec(name, init=spec.init, zero_head=spec.zero_head, value=value)
    network = build(spec, shape=kept.shape, n_units=kept.n_units, seed=0)
    load_weights(network, path, sha256=recorded[path.name])
    return network.eval()


def _load(source: NetworkSource | None) -> nn.Module | Callable[..., nn.Module] | None:
    """Load a plugin or the file of a network; a network itself is returned."""
    from engram.core.plugins import load_plugin
    from engram.models.from_file import model_from_file, names_a_file

    if source is None or not isinstance(source, str | Path):
        return source
    if names_a_file(str(source)):
        model_from_file(str(source))
    else:
        load_plugin(source)
    return None
