"""Networks given as values: any `nn.Module`, or a function that makes one.

The name identifies them, because it is part of an experiment's identity:

- A module becomes `CLASS-DIGEST`, where the digest covers its printed structure, the source of those of its
  classes that are not PyTorch's, and the values of all its weights and buffers. A run starts from a copy of
  it, so these weights are what it starts from, whatever the seed.
- A function `(shape, n_units) -> nn.Module` becomes `NAME-DIGEST`, where the digest covers its source. Its
  random weights are drawn with the seed of every run.
"""

from __future__ import annotations

import copy
import hashlib
import inspect
from collections.abc import Callable
from types import FunctionType, MethodType

import torch
from torch import Tensor, nn

from engram.core.errors import InputError
from engram.models.image_input import sample_for
from engram.models.network import Network
from engram.models.spec import Model, ModelSpec


def spec_of(value: nn.Module | Callable[..., nn.Module]) -> ModelSpec:
    """The specification of a network given as a value.

    Raises:
        InputError: It is neither a module nor a function.

    Example:
        >>> spec = spec_of(nn.Sequential(nn.Flatten(), nn.Linear(64, 10)))
        >>> spec.name.startswith("Sequential-")
        True
        >>> spec_of(3)
        Traceback (most recent call last):
        engram.core.errors.InputError: 3 is not a network: give a name, a module, or a function ...
    """
    if isinstance(value, nn.Module):
        return ModelSpec(f"{type(value).__name__}-{_digest_of_module(value)}", value=value)
    if callable(value) and not isinstance(value, type):
        called = getattr(value, "__name__", type(value).__name__).strip("<>")
        return ModelSpec(f"{called}-{_digest_of_function(value)}", value=value)
    raise InputError(
        f"{value!r} is not a network: give a name, a module, or a function (shape, n_units) that makes one"
    )


def model_of(name: str, value: nn.Module | Callable[..., nn.Module]) -> Model:
    """The model that a value stands for."""
    if not isinstance(value, nn.Module):
        return Model(name, value, head=None)

    def make(shape: tuple[int, ...], n_units: int) -> nn.Module:
        return wrapped(copy.deepcopy(value), shape)

    make.__doc__ = f"{type(value).__name__}, given as a value."
    return Model(name, make, head=None)


def wrapped(module: nn.Module, shape: tuple[int, ...]) -> Network:
    """A module as a network, whose last linear layer must be what comes last in it."""
    if isinstance(module, Network):
        return module
    # Its own copy, because wrapping takes the module's last layer away.
    before = _answers(copy.deepcopy(module), shape)
    network = Network.wrap(module, head=None)
    if not torch.equal(_answers(network, shape), before):
        raise InputError(
            f"the last linear layer of {type(module).__name__} is not what computes its scores: let the "
            "module end with a linear layer, or make an engram.models.Network of its features and its head"
        )
    return network


def _answers(module: nn.Module, shape: tuple[int, ...]) -> Tensor:
    """The outputs of a module for two random samples, in evaluation mode; no global generator is used."""
    training = module.training
    samples = sample_for(module, shape, count=2)
    if samples.is_floating_point():
        samples = torch.randn(2, *shape, generator=torch.Generator().manual_seed(0))
    try:
        with torch.no_grad():
            scores: Tensor = module.eval()(samples)
    except (RuntimeError, TypeError, ValueError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(
            f"{type(module).__name__} cannot be used with samples of shape {shape}: {reason}"
        ) from error
    module.train(training)
    return scores


def _digest_of_module(module: nn.Module) -> str:
    digest = hashlib.sha256(repr(module).encode())
    classes = {type(part) for part in module.modules() if not type(part).__module__.startswith("torch.")}
    for kind in sorted(classes, key=lambda kind: kind.__qualname__):
        digest.update(f"{kind.__qualname__} {_source(kind)}".encode())
    for name, tensor in module.state_dict().items():
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()[:8]


def _digest_of_function(function: Callable[..., nn.Module]) -> str:
    written = isinstance(function, FunctionType | MethodType)
    closure = [_plain(cell.cell_contents) for cell in (function.__closure__ if written else None) or ()]
    text = f"{getattr(function, '__qualname__', '')} {_source(function)} {closure}"
    if written:
        text += f" {function.__code__.co_names} {function.__code__.co_varnames}"
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def _source(thing: type | Callable[..., nn.Module]) -> str:
    """The source text of a class or function; if it has none, its compiled code or its printed form."""
    try:
        return inspect.getsource(thing)
    except (OSError, TypeError):
        if not isinstance(thing, FunctionType | MethodType):
            return repr(thing)
        return f"{thing.__code__.co_code!r} {[_plain(part) for part in thing.__code__.co_consts]}"


def _plain(value: object) -> str:
    """A value as text that is the same in every process: the repr of plain values, otherwise the type."""
    return repr(value) if isinstance(value, int | float | str | tuple | None) else type(value).__qualname__
