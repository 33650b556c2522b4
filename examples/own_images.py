"""Learn a folder of images of your own, one folder per class, with a network of your own."""

import math
import tempfile
from pathlib import Path

import numpy as np
from PIL import Image
from torch import nn

import engram


def draw_images(folder: Path) -> None:
    """Stripes and dots, two classes each, 16 pixels wide."""
    draw = np.random.default_rng(0)
    for number, name in enumerate(("rows", "columns", "dots", "plain")):
        (folder / name).mkdir(parents=True)
        for count in range(20):
            pixels = draw.integers(0, 60, (16, 16), dtype=np.uint8)
            pixels[:: 2 if number in (0, 2) else 99, :: 2 if number in (1, 2) else 1] += 150
            Image.fromarray(pixels).save(folder / name / f"{count}.png")


def net(shape: tuple[int, ...], n_units: int) -> nn.Module:
    """Any module that ends with a linear layer."""
    return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(shape), 32), nn.ReLU(), nn.Linear(32, n_units))


def main(folder: Path) -> None:
    draw_images(folder / "shapes")
    run = engram.run(f"split:{folder / 'shapes'}", "er", model=net, epochs=10)
    print(f"accuracy {run.metrics['ACC']:.2f} after {run.updates} updates on {run.scenario}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        main(Path(place))
