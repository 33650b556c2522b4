"""Asking a network about batches, and reading what a user's functions say of its outputs."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
import torch
from torch import Tensor, nn

from engram.core.errors import InputError
from engram.evaluation.batches import Batch, inputs_of

# Outputs and batches are what the user's network and loader make of them; their functions know the types.
Forward: TypeAlias = Callable[[Any, Any], object]
"""How a network is asked: the network and a batch, on its device, to outputs."""

Right: TypeAlias = Callable[[Any, Any], object]
"""What counts as right: outputs and their batch to one bool per sample."""

Score: TypeAlias = Callable[[Any, Any], object]
"""How good an answer is: outputs and their batch to one number per sample."""


@runtime_checkable
class Routes(Protocol):
    """A network that answers every task with a network of its own."""

    def route(self, task: int) -> nn.Module:
        """The network that answers for a task."""


def call(network: nn.Module, batch: Batch) -> object:
    """The outputs of a network for the inputs of a batch; it does not get the labels.

    The entries of a mapping are passed by name, those that the network's `forward` has a parameter for. The
    entries of a tuple are passed in order.

    Raises:
        InputError: The parameters of `forward` and the entries do not fit.

    Example:
        >>> call(nn.Linear(2, 3), {"input": torch.zeros(4, 2), "labels": torch.zeros(4)}).shape
        torch.Size([4, 3])
    """
    inputs = inputs_of(batch)
    if not isinstance(inputs, Mapping):
        return network(*inputs)
    return network(**_named_inputs(network, inputs))


def scores_in(outputs: object) -> Tensor:
    """The tensor of scores in what a network returned: the tensor itself, its `logits`, or the first entry.

    Raises:
        InputError: There is none.

    Example:
        >>> scores_in({"logits": torch.zeros(2, 3), "hidden": torch.ones(2, 8)}).shape
        torch.Size([2, 3])
    """
    if isinstance(outputs, Tensor):
        return outputs
    if isinstance(logits := getattr(outputs, "logits", None), Tensor):
        return logits
    if isinstance(outputs, Mapping):
        tensors = [value for value in outputs.values() if isinstance(value, Tensor)]
        if isinstance(logits := outputs.get("logits", tensors[0] if len(tensors) == 1 else None), Tensor):
            return logits
    if isinstance(outputs, tuple | list) and outputs and isinstance(outputs[0], Tensor):
        return outputs[0]
    name = type(outputs).__name__
    article = "an" if name[0] in "AEIOUaeiou" else "a"
    raise InputError(
        "a network must return a tensor of scores, one row per sample, or have it as `logits`, "
        f"got {article} {name}: say what counts as right with right=, "
        "or how the network is asked with forward="
    )


def bools_of(returned: object, *, samples: int, task: str) -> Tensor:
    """What a `right` function returned, checked: one bool per sample.

    Raises:
        InputError: It is something else.

    Example:
        >>> bools_of([True, False], samples=2, task="0")
        tensor([ True, False])
    """
    values = _tensor(returned)
    if values is not None and values.dtype is torch.bool and values.shape == (samples,):
        return values.cpu()
    raise InputError(
        f"right must return one bool per sample, shape [{samples}], got {_described(returned, values)} for "
        f"task {task}"
    )


def numbers_of(returned: object, *, samples: int, task: str) -> Tensor:
    """What a `score` function returned, checked: one finite number per sample, in 32 bits.

    Raises:
        InputError: It is something else.

    Example:
        >>> numbers_of(torch.tensor([0.5, 2.0]), samples=2, task="0")
        tensor([0.5000, 2.0000])
    """
    values = _tensor(returned)
    if values is None or values.shape != (samples,) or values.is_complex() or values.dtype is torch.bool:
        raise InputError(
            f"score must return one number per sample, shape [{samples}], got {_described(returned, values)} "
            f"for task {task}"
        )
    numbers = values.detach().float().cpu()
    if not bool(numbers.isfinite().all()):
        place = int(torch.nonzero(~numbers.isfinite())[0])
        raise InputError(
            f"score must return finite numbers, got {float(numbers[place]):g} for sample {place} of a batch "
            f"of task {task}: the network may have diverged, or the score is undefined there"
        )
    return numbers


def _named_inputs(network: nn.Module, inputs: Mapping[str, object]) -> dict[str, object]:
    """The entries of a mapping that a network's `forward` takes."""
    original = getattr(network, "_orig_mod", network)
    parameters = inspect.signature(original.forward).parameters.values()
    named = [part for part in parameters if part.kind not in (part.VAR_POSITIONAL, part.VAR_KEYWORD)]
    if not named:
        # It passes on what it gets, as wrappers do; text is for people.
        return {name: value for name, value in inputs.items() if isinstance(value, Tensor)}
    names = {part.name for part in named}
    taken = {name: value for name, value in inputs.items() if name in names}
    lacking = [part.name for part in named if part.default is part.empty and part.name not in taken]
    if lacking or not taken:
        raise InputError(
            f"{type(original).__name__}.forward takes {', '.join(sorted(names))}, but a batch has the inputs "
            f"{', '.join(map(str, inputs)) or '(none)'}: say how the network is asked with forward="
        )
    return taken


def _tensor(returned: object) -> Tensor | None:
    if isinstance(returned, Tensor):
        return returned
    if not isinstance(returned, np.ndarray | Sequence) or isinstance(returned, str):
        return None
    try:
        return torch.as_tensor(returned)
    except (TypeError, ValueError, RuntimeError):
        return None


def _described(returned: object, values: Tensor | None) -> str:
    if values is None:
        return type(returned).__name__
    return f"{str(values.dtype).removeprefix('torch.')} of shape {list(values.shape)}"
