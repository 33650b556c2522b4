"""Functions whose parameters are put together, as typer reads them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from functools import wraps

Verb = Callable[..., None]
"""A function that typer makes a command of."""


def option(name: str, annotation: object, default: object = inspect.Parameter.empty) -> inspect.Parameter:
    """A keyword parameter, as typer reads it: an option, or whatever the annotation declares.

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


def with_spread(
    verb: Verb, name: str, parameters: Sequence[inspect.Parameter], build: Callable[..., object]
) -> Verb:
    """A verb with several parameters in place of one.

    Args:
        verb: The function.
        name: The parameter that is replaced.
        parameters: What replaces it.
        build: Makes the value of the replaced parameter from the values of these, by keyword.

    Example:
        >>> def verb(size: tuple[int, int], scale: int = 2) -> None:
        ...     print(size, scale)
        >>> sides = [option("width", int), option("height", int, 3)]
        >>> spread = with_spread(verb, "size", sides, lambda width, height=3: (width, height))
        >>> list(inspect.signature(spread).parameters)
        ['width', 'height', 'scale']
        >>> spread(width=4)
        (4, 3) 2
    """
    spread: list[inspect.Parameter] = []
    for parameter in inspect.signature(verb, eval_str=True).parameters.values():
        keyword = parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        spread += parameters if parameter.name == name else [keyword]
    names = {parameter.name for parameter in parameters}

    @wraps(verb)
    def spread_verb(**values: object) -> None:
        parts = {key: values.pop(key) for key in [*values] if key in names}
        verb(**values, **{name: build(**parts)})

    return with_parameters(spread_verb, spread)
