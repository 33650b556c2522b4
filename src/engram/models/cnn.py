"""The small convolutional network of the 78-task queue."""

from torch import nn

from engram.models.image_input import Convolutions, image_shape, output_shape
from engram.models.network import Network


def cnn(shape: tuple[int, ...], n_units: int) -> Network:
    """Four 5×5 convolutions and a dense layer of 256 (Hsu et al.).

    10, 20, 40 and 70 channels, max-pooling after the first two, no padding in the third. On 28×28 grey
    images with 78 heads of two units these are the published 297 018 parameters.

    Example:
        >>> net = cnn((1, 28, 28), 156)
        >>> sum(p.numel() for p in net.parameters())
        297018
    """
    # Two poolings and an unpadded 5×5 convolution leave nothing of fewer than 20 pixels.
    image = image_shape("cnn", shape, smallest=20)
    layers = Convolutions(
        nn.Conv2d(image[0], 10, 5, padding=2),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2),
        nn.Conv2d(10, 20, 5, padding=2),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2),
        nn.Conv2d(20, 40, 5),
        nn.ReLU(inplace=True),
        nn.Conv2d(40, 70, 5, padding=2),
        nn.ReLU(inplace=True),
        nn.Flatten(1),
    )
    layers.extend([nn.Linear(output_shape(layers, image)[0], 256), nn.ReLU(inplace=True)])
    return Network(layers, nn.Linear(256, n_units))
