"""The convolutional network of the application-oriented study."""

from torch import nn

from engram.models.image_input import Convolutions, image_shape, output_shape
from engram.models.network import Network
from engram.models.options import Convolutional


def conv(shape: tuple[int, ...], n_units: int, options: Convolutional) -> Network:
    """Two 5×5 convolutions with pooling and a dense layer of 1024 (Pfülb & Gepperth's CONV).

    32 and 64 channels; convolutions and poolings keep a started row or column. With `dropout_hidden` it is
    D-CONV, dropout after the dense layer: .5 as in the text (the published code drops .2). `dropout_input`
    drops inputs as well, as the text says and the code does not.

    Example:
        >>> net = conv((1, 28, 28), 10, Convolutional())
        >>> sum(p.numel() for p in net.parameters())
        3274634
    """
    image = image_shape("conv", shape)
    layers = Convolutions(
        nn.Conv2d(image[0], 32, 5, padding=2),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2, ceil_mode=True),
        nn.Conv2d(32, 64, 5, padding=2),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2, ceil_mode=True),
        nn.Flatten(1),
    )
    layers.extend([nn.Linear(output_shape(layers, image)[0], 1024), nn.ReLU(inplace=True)])
    if options.dropout_hidden:
        layers.append(nn.Dropout(options.dropout_hidden))
    if options.dropout_input:
        layers.insert(0, nn.Dropout(options.dropout_input))
    return Network(layers, nn.Linear(1024, n_units))
