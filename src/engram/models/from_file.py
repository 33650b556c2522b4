"""Networks from a user's own script: `FILE.py:FACTORY`, wherever a network's name is expected."""

from __future__ import annotations

import copy
import hashlib
import inspect
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from torch import nn

from engram.core.errors import InputError, unknown_name
from engram.core.plugins import run_script
from engram.models.spec import MODELS, Model, accept_model


def names_a_file(model: str) -> bool:
    """Whether a network is given as `FILE.py:FACTORY`.

    Example:
        >>> names_a_file("nets/mine.py:small"), names_a_file("mlp")
        (True, False)
    """
    file, sign, factory = model.rpartition(":")
    return bool(sign and factory) and file.endswith(".py")


def model_from_file(text: str) -> str:
    """Register the network that `FILE.py:FACTORY` names, and return its name, `FILE.FACTORY-DIGEST`.

    The factory is a function of the shape of a sample and the number of output units, a function without
    parameters, or a module. Its last layer must be linear; it is replaced if it has another number of units.
    The digest is that of the file, so that networks of different files are different experiments.

    Raises:
        InputError: The file cannot be run, or has no such factory.

    Example:
        >>> import tempfile
        >>> script = Path(tempfile.mkdtemp()) / "nets.py"
        >>> _ = script.write_text("from torch import nn\\n\\ndef small(shape, n_units):\\n"
        ...     "    return nn.Sequential(nn.Flatten(), nn.Linear(shape[0], n_units))\\n")
        >>> model_from_file(f"{script}:small")
        'nets.small-23df1c80'
    """
    file, _, factory = text.rpartition(":")
    path = Path(file).expanduser().absolute()
    if not path.is_file():
        raise InputError(f"the model {file} does not exist: name a Python file")
    digest = hashlib.sha256(path.read_bytes()).hexdigest()[:8]
    name = f"{re.sub(r'[^A-Za-z0-9._+-]+', '-', f'{path.stem}.{factory}')}-{digest}"
    if name in MODELS:
        return name
    module = run_script(path, what="model", digest=f"_{digest}")
    public = [name for name, value in vars(module).items() if callable(value) and not name.startswith("_")]
    if not hasattr(module, factory):
        raise unknown_name(f"factory in {path.name}", factory, public)
    model = accept_model(name, _made_by(getattr(module, factory), text), head=None)
    MODELS.add_own(name, replace(model, source=f"{path}:{factory}"), origin=module.__name__)
    return name


def check_model_name(name: str) -> None:
    """Refuse a name that no network has; one that is given as `FILE.py:FACTORY` is registered.

    Raises:
        InputError: There is no such network.
    """
    if names_a_file(name):
        model_from_file(name)
    else:
        MODELS[name]


def _made_by(factory: object, text: str) -> Callable[..., nn.Module]:
    """What makes the module, as a function of the shape of a sample and the number of output units."""
    if isinstance(factory, nn.Module):
        given = factory

        def copied(shape: tuple[int, ...], n_units: int) -> nn.Module:
            return copy.deepcopy(given)

        copied.__doc__ = f"{type(given).__name__}, from a file."
        return copied
    if not callable(factory):
        raise InputError(f"{text} is neither a module nor a function that makes one, but {factory!r}")
    make: Callable[..., nn.Module] = factory
    required = [
        parameter
        for parameter in inspect.signature(make).parameters.values()
        if parameter.default is inspect.Parameter.empty
        and parameter.kind not in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    ]
    if required:
        return make

    def alone(shape: tuple[int, ...], n_units: int) -> nn.Module:
        return make()

    alone.__doc__ = make.__doc__
    return alone


def checked_module(model: Model, module: object) -> nn.Module:
    """What a factory returned, if it is a module.

    Raises:
        InputError: It is not.
    """
    if not isinstance(module, nn.Module):
        raise InputError(
            f"model {model.name} must be an nn.Module, its factory returned {type(module).__name__}"
        )
    return module
