"""Weights from a file: state dicts written by `torch.save` or safetensors. Nothing else is unpickled."""

from __future__ import annotations

import hashlib
import io
import pickle
import warnings
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from engram.core.errors import InputError
from engram.models.network import Network

HEAD = ("head.weight", "head.bias")
_PREFIXES = ("module.", "_orig_mod.")
_NESTED = ("state_dict", "model")
_SAVE = "save a state dict: torch.save(model.state_dict(), FILE)"


def sha256_of(path: Path) -> str:
    """The hash of a file's content, which is the identity of the weights in it."""
    return hashlib.sha256(_content(path)).hexdigest()


def read_weights(path: Path, *, sha256: str | None = None) -> dict[str, Tensor]:
    """The tensors of a state dict, by name.

    Args:
        path: A file of safetensors, or one that `torch.save` made of a state dict.
        sha256: The expected hash of the file.

    Raises:
        InputError: The file is missing, has another hash, is broken, or is not a state dict.

    Example:
        >>> import tempfile
        >>> place = Path(tempfile.mkdtemp()) / "weights.pt"
        >>> torch.save(torch.nn.Linear(2, 1).state_dict(), place)
        >>> {name: tuple(tensor.shape) for name, tensor in read_weights(place).items()}
        {'weight': (1, 2), 'bias': (1,)}
    """
    content = _content(path)
    if sha256 is not None and hashlib.sha256(content).hexdigest() != sha256:
        raise InputError(f"the weights {path} are not those that the experiment names: restore that file")
    if not content:
        raise InputError(f"the weights {path} are empty: {_SAVE}")
    if path.suffix == ".safetensors" or content[8:9] == b"{":
        return _safetensors(path, content)
    try:
        # The warnings of torch about files that it then refuses do not help users.
        with warnings.catch_warnings(action="ignore"):
            state = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise InputError(
            f"the weights {path} hold pickled objects or are broken, and are not read: {_SAVE}"
        ) from error
    except (RuntimeError, EOFError, ValueError, KeyError, AttributeError, IndexError, OSError) as error:
        raise InputError(f"the weights {path} are broken: {_SAVE}") from error
    for name in _NESTED:
        if isinstance(state, Mapping) and isinstance(state.get(name), Mapping):
            state = state[name]
    if not isinstance(state, Mapping) or not state or not all(isinstance(t, Tensor) for t in state.values()):
        raise InputError(f"the weights {path} are not a state dict: {_SAVE}")
    return {str(name): tensor for name, tensor in state.items()}


def load_weights(network: Network, path: Path, *, sha256: str | None = None) -> str:
    """Load the weights of a network from a file, and report what happened to its head.

    Names are those of the network itself or those that it has elsewhere: where it was made by `Network.wrap`,
    in the module that was wrapped; for ResNet-18 and ResNet-50, in torchvision. All features must fit. A head
    of another size, or none at all, leaves the network's own head unchanged.

    Args:
        network: The network.
        path: The file.
        sha256: The expected hash of the file.

    Returns:
        Whether the head comes from the file, in words.

    Raises:
        InputError: The file cannot be read, or does not fit.

    Example:
        >>> import tempfile
        >>> from engram.models import ModelSpec, build
        >>> place = Path(tempfile.mkdtemp()) / "weights.pt"
        >>> small = ModelSpec(hidden=(8,))
        >>> torch.save(build(small, shape=(4,), n_units=10, seed=0).state_dict(), place)
        >>> load_weights(build(small, shape=(4,), n_units=10, seed=1), place)
        'head from the file'
        >>> load_weights(build(small, shape=(4,), n_units=2, seed=1), place)
        'head left fresh: 10 units in the file, 2 here'
        >>> load_weights(build(ModelSpec(hidden=(9,)), shape=(4,), n_units=2, seed=1), place)
        Traceback (most recent call last):
        engram.core.errors.InputError: the weights ... do not fit: features.1.weight is 8×4 in the file ...
    """
    wanted = network.state_dict()
    tensors = _named_as(wanted, network, read_weights(path, sha256=sha256))
    head = _head_of(tensors, wanted)
    for name in HEAD if head != FROM_FILE else ():
        tensors.pop(name, None)
        wanted.pop(name, None)
    wrong = [name for name in wanted if name in tensors and tensors[name].shape != wanted[name].shape]
    missing = [name for name in wanted if name not in tensors and not name.endswith("num_batches_tracked")]
    strange = [name for name in tensors if name not in wanted]
    if wrong:
        sizes = [_size(tensor) for tensor in (tensors[wrong[0]], wanted[wrong[0]])]
        why = f"{wrong[0]} is {sizes[0]} in the file and {sizes[1]} in the network{_more(wrong, 'differ')}"
    elif missing:
        why = f"{missing[0]} is missing{_more(missing, 'are missing')}"
    elif strange:
        why = f"the network has no {strange[0]}{_more(strange, 'are too many')}"
    elif broken := [name for name in wanted if name in tensors and not tensors[name].isfinite().all()]:
        raise InputError(f"the weights {path} are NaN or infinite in {broken[0]}")
    else:
        network.load_state_dict(tensors, strict=False)
        return head
    raise InputError(f"the weights {path} do not fit: {why}; choose the model that they were trained with")


def units_in(network: Network, path: Path) -> int | None:
    """How many output units the head in a file has; None where the file has none.

    Raises:
        InputError: The file cannot be read.
    """
    weight = _named_as(network.state_dict(), network, read_weights(path)).get(HEAD[0])
    return None if weight is None or weight.dim() != 2 else int(weight.shape[0])


FROM_FILE = "head from the file"


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"cannot read the weights {path}: {error.strerror or error}") from error


def _safetensors(path: Path, content: bytes) -> dict[str, Tensor]:
    try:
        import safetensors
        import safetensors.torch
    except ImportError as error:
        raise InputError(
            f"the weights {path} need the package safetensors: pip install safetensors"
        ) from error
    try:
        return safetensors.torch.load(content)
    except (safetensors.SafetensorError, ValueError, KeyError) as error:
        raise InputError(f"the weights {path} are broken: {_SAVE}") from error


def _named_as(
    wanted: Mapping[str, Tensor], network: Network, tensors: dict[str, Tensor]
) -> dict[str, Tensor]:
    """The tensors under the network's names for them, as far as these are known."""
    for prefix in _PREFIXES:
        if all(name.startswith(prefix) for name in tensors):
            tensors = {name.removeprefix(prefix): tensor for name, tensor in tensors.items()}
    if network.renamed is None or sum(name in wanted for name in tensors) > len(tensors) / 2:
        return tensors
    return {network.renamed(name): tensor for name, tensor in tensors.items()}


def _head_of(tensors: Mapping[str, Tensor], wanted: Mapping[str, Tensor]) -> str:
    """What happens to the head, in words."""
    weight = tensors.get(HEAD[0])
    if weight is None:
        return "head left fresh: none in the file"
    units = wanted[HEAD[0]].shape[0]
    if weight.shape[0] != units:
        return f"head left fresh: {weight.shape[0]} units in the file, {units} here"
    return FROM_FILE


def _size(tensor: Tensor) -> str:
    return "×".join(map(str, tensor.shape)) or "a number"


def _more(names: list[str], what: str) -> str:
    return f" ({len(names) - 1} more {what})" if len(names) > 1 else ""
