"""The specification of a network, as a value, so that experiments can be compared and repeated."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

from pydantic import Field

from engram.core.errors import InputError, unknown_name
from engram.core.jsons import JsonMapping, JsonObject
from engram.core.registry import Registry
from engram.core.schema import INTERNAL, Called, Option, Since, options_of
from engram.models.options import (
    Competing,
    Convolutional,
    Convolutions1d,
    Dense,
    Embedding,
    NoOptions,
    Recurrent,
    Residual,
)

if TYPE_CHECKING:
    from torch import nn

    from engram.models.network import Network

Shape = tuple[int, ...]
Make = Callable[..., "nn.Module"]
"""From the shape of one sample, the number of output units and the model's options to a module."""


@dataclass(frozen=True, slots=True)
class Pretrained:
    """What a pretrained network was trained on, and how its inputs were normalised.

    Attributes:
        on: The data set whose classes the original head has; empty if unknown.
        mean: The mean of each channel, for pixels from 0 to 1; with three, every image is converted to
            colour. Empty to use the normalisation of the benchmark.
        std: The standard deviation of each channel.
    """

    on: str = ""
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if len(self.mean) != len(self.std) or len(self.mean) not in (0, 1, 3) or 0 in self.std:
            raise InputError(
                f"mean and std must have one or three values each, std not 0, got {self.mean} and {self.std}"
            )


@dataclass(frozen=True, slots=True)
class Model:
    """A network that people can name.

    Attributes:
        name: Its name.
        make: The function that makes it, or its location as `"module:function"`.
        options: What declares its options: a dataclass, or the function itself.
        pretrained: What it was trained on, if it comes with weights.
        head: The name of its last, linear layer, if `make` returns any module; None for the linear layer
            registered last.
        init_std: The standard deviation of `init="truncated-normal"` (default: 1/√(inputs of a unit)).
        source: The file and the factory that it comes from, as `FILE:FACTORY`, if it is not registered.
    """

    name: str
    make: str | Make
    options: type | Make = NoOptions
    pretrained: Pretrained | None = None
    head: str | None = "fc"
    init_std: float | None = None
    source: str = ""

    @property
    def declared(self) -> tuple[Option, ...]:
        """Its options."""
        return options_of(self.options)

    @property
    def description(self) -> str:
        """The first line of its docstring."""
        return (self.function.__doc__ or "").strip().partition("\n")[0]

    @property
    def function(self) -> Make:
        """The function that makes it."""
        if not isinstance(self.make, str):
            return self.make
        from importlib import import_module

        module, _, name = self.make.partition(":")
        function: Make = getattr(import_module(module), name)
        return function

    def build(self, spec: ModelSpec, shape: Shape, n_units: int) -> Network:
        """The network with the options of a specification; weights are drawn from PyTorch's generator."""
        from engram.models.network import Network

        values = {option.field: spec.options[option.name] for option in self.declared}
        chosen = {"options": self.options(**values)} if isinstance(self.options, type) else values
        # A network without options does not take the argument.
        module = self.function(shape, n_units, **({} if self.options is NoOptions else chosen))
        if isinstance(self.make, str):
            assert isinstance(module, Network)
            return module
        if self.source:
            from engram.models.from_file import checked_module
            from engram.models.values import wrapped

            module = wrapped(checked_module(self, module), shape)
        network = module if isinstance(module, Network) else Network.wrap(module, head=self.head)
        return network.with_units(self.name, shape, n_units)


_OURS = (
    Model("mlp", "engram.models.mlp:mlp", Dense),
    Model("lwta", "engram.models.lwta:lwta", Competing),
    Model("cnn", "engram.models.cnn:cnn"),
    Model("conv", "engram.models.conv:conv", Convolutional, init_std=0.1),
    Model("slim-resnet18", "engram.models.resnet:slim_resnet18", Residual),
    Model("resnet18", "engram.models.resnet:resnet18", Residual),
    Model("resnet50", "engram.models.resnet:resnet50", Residual),
    Model(
        "efficientnet-lite0",
        "engram.models.efficientnet_lite0:efficientnet_lite0",
        pretrained=Pretrained("imagenet", mean=(127 / 255,) * 3, std=(128 / 255,) * 3),
    ),
)
_OUR_NAMES = tuple(model.name for model in _OURS)

_LATER = (
    Model("embedding-mlp", "engram.models.embedding_mlp:embedding_mlp", Embedding),
    Model("gru", "engram.models.recurrent:gru", Recurrent),
    Model("conv1d", "engram.models.recurrent:conv1d", Convolutions1d),
)
"""Networks whose options are not part of other networks' specifications, so that ids stay what they were."""


def accept_model(
    name: str, make: object, *, head: str | None = "fc", pretrained: Pretrained | None = None
) -> Model:
    """A user's function as a model, whose options are the function's parameters beyond the first two.

    Raises:
        InputError: It is not a function, or one of its options has no default or an unusable name.
    """
    import inspect

    if not callable(make):
        raise InputError(f"model {name}: {make!r} is not a function (shape, n_units) that returns a module")
    parameters = list(inspect.signature(make).parameters.values())
    if len(parameters) < 2:
        raise InputError(
            f"model {name}: the function must take the shape of a sample and the number of units"
        )
    for parameter in parameters[2:]:
        if parameter.default is inspect.Parameter.empty:
            raise InputError(f"model {name}: the option {parameter.name!r} needs a default value")
        if parameter.name in ("name", "init", "zero_head", "options", "value"):
            raise InputError(
                f"model {name}: an option cannot be called {parameter.name!r}: choose another name"
            )
    return Model(name, make, make, pretrained, head)


MODELS: Registry[Model] = Registry(
    "model",
    {model.name: model for model in (*_OURS, *_LATER)},
    group="engram.models",
    decorator="@engram.model('name')",
    accept=accept_model,
)


@cache
def shared_options() -> dict[str, Option]:
    """The options of engram's own networks, by name, with the networks that have them.

    Example:
        >>> shared_options()["dropout_input"].models
        ('mlp', 'conv')
    """
    from dataclasses import replace

    options: dict[str, Option] = {}
    for model in _OURS:
        for option in model.declared:
            known = options.setdefault(option.name, option)
            options[option.name] = replace(known, models=(*known.models, model.name))
    return options


def option_of(name: str) -> Option | None:
    """The option of this name that some network has, engram's own or a user's."""
    if name in shared_options():
        return shared_options()[name]
    others = (model for model in MODELS if model not in _OUR_NAMES)
    users = (option for model in others for option in own_options(model).values())
    return next((option for option in users if option.name == name), None)


def check_used(model: str, options: Iterable[str]) -> None:
    """Refuse options that a network does not have.

    Example:
        >>> check_used("mlp", ("hidden", "dropout_hidden"))
        >>> check_used("cnn", ("hidden",))
        Traceback (most recent call last):
        engram.core.errors.InputError: model cnn has no option hidden: it belongs to mlp, lwta
    """
    used = [option.name for option in MODELS[model].declared]
    for name in options:
        if name not in used:
            owners = shared_options()[name].models if name in shared_options() else ()
            other = f"it belongs to {', '.join(owners)}" if owners else f"it has {', '.join(used) or 'none'}"
            raise InputError(f"model {model} has no option {name}: {other}")


Init = Literal["default", "truncated-normal", "truncated-normal-.1"]


@dataclass(frozen=True, init=False)
class ModelSpec:
    """A network's name and its options, which are attributes of this value: `spec.hidden`.

    Every network declares its options: see `engram explain NAME`. Those of engram's own networks are part of
    every specification, even if the network does not use them, because experiment ids depend on them.

    Attributes:
        name: A name of `engram.models.MODELS`.
        init: `default` is PyTorch's, `truncated-normal` that of Pfülb & Gepperth, `truncated-normal-.1` that
            of their EWC: deviation and biases .1.
        zero_head: Start with all weights of the head at 0, whatever `init` is.
        options: The values of the options, by name.
        value: A module, or a function that makes one, given instead of a name; the name then identifies it
            (see `engram.models.values`).

    Example:
        >>> ModelSpec("lwta", hidden=(64,)).block
        2
        >>> ModelSpec(hidden=(400, 0))
        Traceback (most recent call last):
        engram.core.errors.InputError: hidden must be at least 1, got 400,0
    """

    name: Annotated[
        str, Called("model"), Field(description="Network: see `engram list models`; or FILE:FACTORY")
    ]
    init: Annotated[Init, Field(description="Initial weights")]
    zero_head: Annotated[bool, Since("2"), Field(description="Start with the head at 0")]
    options: Annotated[JsonObject, INTERNAL]
    value: Annotated[Any, INTERNAL] = field(compare=False, repr=False)

    def __init__(
        self,
        name: str = "mlp",
        *,
        init: Init = "default",
        zero_head: bool = False,
        options: JsonMapping | None = None,
        value: object = None,
        **more: object,
    ) -> None:
        if init not in get_args(Init):
            raise unknown_name("initialisation", init, get_args(Init))
        values = {**(options or {}), **more}
        declared = {**shared_options(), **own_options(name)}
        for key in values:
            if key not in declared:
                raise unknown_name(f"option of the model {name}", key, declared)
        chosen = {key: option.default for key, option in declared.items()}
        chosen |= {key: declared[key].check(item) for key, item in values.items()}
        for attribute, item in (
            ("name", name),
            ("init", init),
            ("zero_head", zero_head),
            ("options", chosen),
            ("value", value),
        ):
            object.__setattr__(self, attribute, item)

    def __getattr__(self, name: str) -> Any:
        options = self.__dict__.get("options", {})
        if name in options:
            return options[name]
        raise AttributeError(f"model {self.__dict__.get('name')} has no option {name!r}")

    def __hash__(self) -> int:
        return hash((self.name, self.init, self.zero_head, repr(sorted(self.options.items()))))

    def __repr__(self) -> str:
        more = "".join(f", {name}={value!r}" for name, value in self.used().items())
        init = "" if self.init == "default" else f", init={self.init!r}"
        return f"ModelSpec({self.name!r}{more}{init}{', zero_head=True' if self.zero_head else ''})"

    @property
    def model(self) -> Model:
        """The network of this name."""
        if self.value is not None:
            from engram.models.values import model_of

            return model_of(self.name, self.value)
        return MODELS[self.name]

    def used(self) -> JsonObject:
        """The options that the network has.

        Example:
            >>> ModelSpec("lwta", hidden=(64,)).used()
            {'hidden': (64,), 'block': 2}
        """
        known = self.name in MODELS or self.value is not None
        return {option.name: self.options[option.name] for option in self.model.declared} if known else {}

    def described(self) -> str:
        """The options as text: the widths, and all options that differ from their defaults.

        Example:
            >>> ModelSpec("lwta", hidden=(64, 64), block=4).described()
            'hidden=64,64 block=4'
        """
        return " ".join(
            f"{option.name}={option.show(self.options[option.name])}"
            for option in self.model.declared
            if option.name == "hidden" or self.options[option.name] != option.default
        )

    def as_fields(self) -> JsonObject:
        """The specification as `experiment.json` holds it."""
        shared = {name: self.options[name] for name in shared_options()}
        others = {name: value for name, value in self.options.items() if name not in shared}
        later = {"zero_head": True} if self.zero_head else {}
        return {"name": self.name, **shared, "init": self.init, **later, **others}

    @classmethod
    def of_fields(cls, fields: JsonMapping) -> ModelSpec:
        """The inverse of `as_fields`."""
        return cls(**fields)


def own_options(name: str) -> dict[str, Option]:
    """The options of a network that no other shares; none where the name is unknown or cannot be loaded."""
    if name in _OUR_NAMES or name not in MODELS:
        return {}
    try:
        return {option.name: option for option in MODELS[name].declared}
    except InputError:
        # The error is raised again when the network is built.
        return {}
