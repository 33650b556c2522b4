"""The job that all contestants do: its constants and its data.

Split-Fashion-MNIST in the class setting: experience replay with 2,000 remembered samples, 256 new and 256
remembered samples per update, a network 784-400-400-10, SGD with rate .01 and momentum .9, one pass over each
of five tasks, and after every update an evaluation on 1,000 test samples of every task seen so far.

This file needs only the standard library and NumPy: contestants import it too.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

TASKS, CLASSES = 5, 10
BATCH, MEMORY, MEMORY_BATCH, ASKED = 256, 2000, 256, 1000
WIDTHS = (784, 400, 400, CLASSES)
LR, MOMENTUM, NEW_WEIGHT = 0.01, 0.9, 0.3
MEAN, STD = 0.2860, 0.3530
SAMPLES = 12_000
"""Training samples of each task."""
WHOLE_TASK = -(-SAMPLES // BATCH)
"""Updates of each task."""

Arrays = Mapping[str, NDArray[np.uint8]]
PARTS = ("x_train", "y_train", "x_test", "y_test")


def flops(task: int, updates: int) -> int:
    """Floating-point operations of the matrix products while learning one task, evaluation included.

    A layer with k inputs and n outputs takes 2·m·n·k for m samples forward, and twice as much backward,
    except that the first layer needs no gradient of its inputs.
    """
    forward = sum(2 * k * n for k, n in pairwise(WIDTHS))
    learned = 3 * forward - 2 * WIDTHS[0] * WIDTHS[1]
    new = min(updates * BATCH, SAMPLES)
    remembered = updates * MEMORY_BATCH if task else 0
    evaluated = updates * ASKED * (task + 1)
    return (new + remembered) * learned + evaluated * forward


def write_arrays(arrays: Arrays, folder: Path) -> None:
    """Write the data for contestants: as arrays, and as the files that torchvision expects."""
    raw = folder / "FashionMNIST" / "raw"
    raw.mkdir(parents=True)
    for part in PARTS:
        np.save(folder / f"{part}.npy", arrays[part])
    for part, name in (("train", "train"), ("test", "t10k")):
        (raw / f"{name}-images-idx3-ubyte").write_bytes(idx(arrays[f"x_{part}"]))
        (raw / f"{name}-labels-idx1-ubyte").write_bytes(idx(arrays[f"y_{part}"]))


def read_arrays(folder: Path) -> dict[str, NDArray[np.uint8]]:
    """The data that `write_arrays` wrote."""
    return {part: np.load(folder / f"{part}.npy", allow_pickle=False) for part in PARTS}


def idx(array: NDArray[np.uint8]) -> bytes:
    """Bytes in the format of MNIST's files.

    Example:
        >>> idx(np.array([7, 8], np.uint8))
        b'\\x00\\x00\\x08\\x01\\x00\\x00\\x00\\x02\\x07\\x08'
    """
    return bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">i4").tobytes() + array.tobytes()
