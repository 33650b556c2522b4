"""Functions whose parameters are put together, as typer reads them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable

Verb = Callable[..., None]
"""A function that typer makes a command of."""


def option(name: str, annotation: object, default: object) -> inspect.Parameter:
    """A keyword parameter: typer makes an option of it.

    Example:
        >>> str(option("json", bool, False))
        'json: bool = False'
    """
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def with_parameters(verb: Verb, parameters: Iterable[inspect.Parameter]) -> Verb:
    """The same function, which from now on declares these parameters.

    Example:
        >>> def verb(**options: object) -> None: ...
        >>> str(inspect.signature(with_parameters(verb, [option("json", bool, False)])))
        '(*, json: bool = False)'
    """
    # `inspect.signature` would follow it to the function that is wrapped.
    verb.__dict__.pop("__wrapped__", None)
    signature = inspect.Signature(list(parameters))
    verb.__dict__["__signature__"] = signature
    verb.__annotations__ = {name: parameter.annotation for name, parameter in signature.parameters.items()}
    return verb
