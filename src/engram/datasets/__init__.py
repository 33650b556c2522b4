"""Data sets by name: embedded, found on disk, fetched, or a user's own. No torch at import."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from engram.datasets.images import Dataset, Images, InMemory, OnDisk
    from engram.datasets.loading import load
    from engram.datasets.own import arrays, image_folder, torch_dataset

_HOMES = {
    "Dataset": "images",
    "Images": "images",
    "InMemory": "images",
    "OnDisk": "images",
    "load": "loading",
    "arrays": "own",
    "image_folder": "own",
    "torch_dataset": "own",
}

__all__ = ["Dataset", "Images", "InMemory", "OnDisk", "arrays", "image_folder", "load", "torch_dataset"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'engram.datasets' has no attribute {name!r}")
    return getattr(import_module(f"engram.datasets.{_HOMES[name]}"), name)
