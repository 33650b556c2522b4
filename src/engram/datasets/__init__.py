"""Data sets by name: embedded, found on disk, fetched, or users' own. No torch at import."""

from typing import TYPE_CHECKING

from engram.core.dataset_info import DATASETS, DatasetInfo
from engram.core.lazy import lazy_package

if TYPE_CHECKING:
    from engram.datasets.loading import load
    from engram.datasets.register import arrays, dataset, image_folder, torch_dataset
    from engram.datasets.storage import Dataset, Images, InMemory, OnDisk

__all__ = [
    "DATASETS",
    "Dataset",
    "DatasetInfo",
    "Images",
    "InMemory",
    "OnDisk",
    "arrays",
    "dataset",
    "image_folder",
    "load",
    "torch_dataset",
]

__getattr__, __dir__ = lazy_package(
    __name__,
    {
        ".storage": ("Dataset", "Images", "InMemory", "OnDisk"),
        ".loading": ("load",),
        ".register": ("arrays", "dataset", "image_folder", "torch_dataset"),
    },
)
