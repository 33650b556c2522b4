"""Which network: a value, so that experiments can be compared and repeated."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from engram.core.errors import InputError, unknown_name

STEMS = ("32", "224")
INITS = ("default", "truncated-normal", "truncated-normal-.1")


_USED_BY = {
    "hidden": ("mlp", "lwta"),
    "dropout_input": ("mlp", "conv"),
    "dropout_hidden": ("mlp", "conv"),
    "block": ("lwta",),
    "stem": ("slim-resnet18", "resnet18", "resnet50"),
}
"""The networks of engram that have a use for an option."""


def check_used(model: str, options: Iterable[str]) -> None:
    """Refuse options that a network of engram has no use for.

    Example:
        >>> check_used("mlp", ["hidden", "dropout_hidden"])
        >>> check_used("cnn", ["hidden"])
        Traceback (most recent call last):
        engram.core.errors.InputError: model cnn has no hidden: it belongs to mlp, lwta
    """
    for name in options:
        if model not in _USED_BY[name]:
            raise InputError(f"model {model} has no {name}: it belongs to {', '.join(_USED_BY[name])}")


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """A network's name and its options; those that a network has no use for stay at their default.

    Attributes:
        name: A name of `engram.models.MODELS`.
        hidden: Widths of the hidden layers of `mlp` and `lwta`; none makes a linear classifier.
        dropout_input: Share of the inputs that `mlp` and `conv` drop while training.
        dropout_hidden: Share of the hidden units that `mlp` (all layers) and `conv` (dense layer) drop while
            training.
        block: How many units compete in each block of `lwta`.
        stem: First layers of the residual networks: `32` (3×3, stride 1) keeps the resolution of small
            images, `224` (7×7, stride 2, pooling) is for large ones.
        init: `default` is PyTorch's, `truncated-normal` that of Pfülb & Gepperth, `truncated-normal-.1` that
            of their EWC: deviation and biases .1.
        zero_head: Start with all weights of the head at 0, whatever `init` says of the others.

    Example:
        >>> ModelSpec(hidden=(400, 0))
        Traceback (most recent call last):
        engram.core.errors.InputError: hidden widths 400,0 cannot be used: give whole numbers above 0
    """

    name: str = "mlp"
    hidden: tuple[int, ...] = (400, 400)
    dropout_input: float = 0.0
    dropout_hidden: float = 0.0
    block: int = 2
    stem: Literal["32", "224"] = "32"
    init: Literal["default", "truncated-normal", "truncated-normal-.1"] = "default"
    zero_head: bool = False

    def __post_init__(self) -> None:
        if any(width < 1 for width in self.hidden):
            widths = ",".join(map(str, self.hidden))
            raise InputError(f"hidden widths {widths} cannot be used: give whole numbers above 0")
        for field in ("dropout_input", "dropout_hidden"):
            if not 0 <= getattr(self, field) < 1:
                raise InputError(
                    f"{field}={getattr(self, field)} cannot be used: give a number from 0 to below 1"
                )
        if self.block < 2:
            raise InputError(f"block={self.block} cannot be used: at least 2 units must compete")
        if self.stem not in STEMS:
            raise unknown_name("stem", self.stem, STEMS)
        if self.init not in INITS:
            raise unknown_name("initialisation", self.init, INITS)


@dataclass(frozen=True, slots=True)
class Pretrained:
    """What a network with weights of its own was trained on, and how its inputs looked.

    Attributes:
        on: The data set, whose classes its original head has; empty where nobody knows.
        mean: The mean of each channel, pixels being from 0 to 1; three make every image a colour image. Empty
            where a benchmark's own normalisation is as good.
        std: The standard deviations that go with them.
    """

    on: str = ""
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if len(self.mean) != len(self.std) or len(self.mean) not in (0, 1, 3) or 0 in self.std:
            raise InputError(
                f"mean {self.mean} and std {self.std} cannot be used: give one or three of each, std above 0"
            )
