"""What every other part shares: batches, tasks, traces, registries, seeds, files. No torch at import."""

from typing import TYPE_CHECKING

from engram.core.lazy import lazy_package

if TYPE_CHECKING:
    from engram.core.dataset_info import DATASETS, DatasetInfo
    from engram.core.errors import InputError, NonFinite
    from engram.core.plugins import load_plugin
    from engram.core.registries import METHODS
    from engram.core.registry import Registry
    from engram.core.seeds import Seeds
    from engram.core.trace import Trace
    from engram.core.values import Batch, OptimizerSpec, TaskInfo

__all__ = [
    "DATASETS",
    "METHODS",
    "Batch",
    "DatasetInfo",
    "InputError",
    "NonFinite",
    "OptimizerSpec",
    "Registry",
    "Seeds",
    "TaskInfo",
    "Trace",
    "load_plugin",
]

__getattr__, __dir__ = lazy_package(
    __name__,
    {
        ".dataset_info": ("DATASETS", "DatasetInfo"),
        ".errors": ("InputError", "NonFinite"),
        ".plugins": ("load_plugin",),
        ".registries": ("METHODS",),
        ".registry": ("Registry",),
        ".seeds": ("Seeds",),
        ".trace": ("Trace",),
        ".values": ("Batch", "OptimizerSpec", "TaskInfo"),
    },
)
