"""Residual networks: the slim ResNet-18 of continual learning, ResNet-18 and ResNet-50."""

import re
from collections.abc import Sequence
from functools import partial

from torch import Tensor, nn

from engram.models.image_input import Convolutions, image_shape
from engram.models.network import Network
from engram.models.options import Residual


class ResidualBlock(nn.Module):
    """Layers beside a shortcut: the sum of both, rectified."""

    expansion = 1

    def __init__(self, residual: nn.Module, shortcut: nn.Module) -> None:
        super().__init__()
        self.residual = residual
        self.shortcut = shortcut
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        """The input plus what the layers add to it."""
        out: Tensor = self.relu(self.residual(x) + self.shortcut(x))
        return out


class BasicBlock(ResidualBlock):
    """Two 3×3 convolutions beside a shortcut."""

    def __init__(self, channels: int, width: int, stride: int) -> None:
        residual = nn.Sequential(
            _conv(channels, width, kernel=3, stride=stride),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            _conv(width, width, kernel=3),
            nn.BatchNorm2d(width),
        )
        super().__init__(residual, _shortcut(channels, width, stride))


class Bottleneck(ResidualBlock):
    """A 3×3 convolution between two 1×1 ones, beside a shortcut; the 3×3 one has the stride."""

    expansion = 4

    def __init__(self, channels: int, width: int, stride: int) -> None:
        wide = width * self.expansion
        residual = nn.Sequential(
            _conv(channels, width, kernel=1),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            _conv(width, width, kernel=3, stride=stride),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            _conv(width, wide, kernel=1),
            nn.BatchNorm2d(wide),
        )
        super().__init__(residual, _shortcut(channels, wide, stride))


def slim_resnet18(shape: tuple[int, ...], n_units: int, options: Residual) -> Network:
    """ResNet-18 with 20, 40, 80 and 160 channels, 1.1 million weights (De Lange et al., after GEM).

    Features are averaged over squares of 4×4: 160 of them for images of 32 pixels, 640 for 84, 1440 for 96.

    Example:
        >>> slim_resnet18((3, 84, 84), 10, Residual()).width
        640
    """
    image = image_shape("slim-resnet18", shape)
    layers = _layers(BasicBlock, (2, 2, 2, 2), first=20, stem=options.stem, channels=image[0])
    # Small images leave less than one square, which is averaged as a whole.
    height, width = (_side_after(side, options.stem) for side in image[1:])
    square = min(4, height), min(4, width)
    layers.extend([nn.AvgPool2d(square), nn.Flatten(1)])
    return Network(layers, nn.Linear(160 * (height // square[0]) * (width // square[1]), n_units))


def resnet18(shape: tuple[int, ...], n_units: int, options: Residual) -> Network:
    """ResNet-18: 64 to 512 channels, globally averaged to 512 features.

    Example:
        >>> net = resnet18((3, 224, 224), 1000, Residual(stem="224"))
        >>> sum(p.numel() for p in net.parameters())
        11689512
    """
    return _globally_pooled(
        "resnet18", BasicBlock, (2, 2, 2, 2), stem=options.stem, shape=shape, n_units=n_units
    )


def resnet50(shape: tuple[int, ...], n_units: int, options: Residual) -> Network:
    """ResNet-50: 256 to 2048 channels, globally averaged to 2048 features.

    Example:
        >>> net = resnet50((3, 224, 224), 1000, Residual(stem="224"))
        >>> sum(p.numel() for p in net.parameters())
        25557032
    """
    return _globally_pooled(
        "resnet50", Bottleneck, (3, 4, 6, 3), stem=options.stem, shape=shape, n_units=n_units
    )


def _globally_pooled(
    name: str,
    block: type[BasicBlock] | type[Bottleneck],
    depths: Sequence[int],
    *,
    stem: str,
    shape: tuple[int, ...],
    n_units: int,
) -> Network:
    channels, _, _ = image_shape(name, shape)
    layers = _layers(block, depths, first=64, stem=stem, channels=channels)
    layers.extend([nn.AdaptiveAvgPool2d(1), nn.Flatten(1)])
    network = Network(layers, nn.Linear(64 * 8 * block.expansion, n_units))
    network.renamed = partial(name_in_torchvision, depths, stem)
    return network


def name_in_torchvision(depths: Sequence[int], stem: str, name: str) -> str:
    """The name in this network of the weight that torchvision's ResNets call `name`.

    Example:
        >>> name_in_torchvision((3, 4, 6, 3), "224", "layer2.0.downsample.1.bias")
        'features.7.shortcut.1.bias'
        >>> name_in_torchvision((3, 4, 6, 3), "224", "fc.weight")
        'head.weight'
    """
    first, _, rest = name.partition(".")
    if first in _OUTSIDE_BLOCKS:
        return f"{_OUTSIDE_BLOCKS[first]}.{rest}"
    match = re.fullmatch(r"layer([1-4])\.(\d+)\.(?:downsample\.(.+)|(conv|bn)([1-3])\.(.+))", name)
    if match is None:
        return name
    stage, number, shortcut, kind, place, last = match.groups()
    block = f"features.{(3 if stem == '32' else 4) + sum(depths[: int(stage) - 1]) + int(number)}"
    if shortcut is not None:
        return f"{block}.shortcut.{shortcut}"
    # Every convolution is followed by its norm and, except for the last, by a ReLU.
    return f"{block}.residual.{3 * (int(place) - 1) + (kind == 'bn')}.{last}"


_OUTSIDE_BLOCKS = {"conv1": "features.0", "bn1": "features.1", "fc": "head"}


def _layers(
    block: type[BasicBlock] | type[Bottleneck],
    depths: Sequence[int],
    *,
    first: int,
    stem: str,
    channels: int,
) -> Convolutions:
    """Stem and stages; every stage after the first halves the resolution and doubles the channels."""
    if stem == "32":
        layers: list[nn.Module] = [
            _conv(channels, first, kernel=3),
            nn.BatchNorm2d(first),
            nn.ReLU(inplace=True),
        ]
    else:
        layers = [
            _conv(channels, first, kernel=7, stride=2),
            nn.BatchNorm2d(first),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, stride=2, padding=1),
        ]
    channels = first
    for stage, depth in enumerate(depths):
        width = first * 2**stage
        for number in range(depth):
            layers.append(block(channels, width, 2 if stage and number == 0 else 1))
            channels = width * block.expansion
    return Convolutions(*layers)


def _side_after(side: int, stem: str) -> int:
    """Height or width after stem and stages: each halving rounds up."""
    for _ in range(3 if stem == "32" else 5):
        side = -(-side // 2)
    return side


def _conv(channels: int, width: int, *, kernel: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(channels, width, kernel, stride=stride, padding=kernel // 2, bias=False)


def _shortcut(channels: int, width: int, stride: int) -> nn.Module:
    if stride == 1 and channels == width:
        return nn.Identity()
    return nn.Sequential(_conv(channels, width, kernel=1, stride=stride), nn.BatchNorm2d(width))
