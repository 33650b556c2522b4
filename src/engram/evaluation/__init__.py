"""Watching a network while it learns: the evaluator, and probes that measure a live network."""

from typing import TYPE_CHECKING

from engram.core.lazy import lazy_package

if TYPE_CHECKING:
    from engram.evaluation.evaluator import Evaluator
    from engram.evaluation.samples import EvaluationSet, ItemSet, TensorSet
    from engram.evaluation.schedule import Schedule

__all__ = ["EvaluationSet", "Evaluator", "ItemSet", "Schedule", "TensorSet"]

__getattr__, __dir__ = lazy_package(
    __name__,
    {
        ".evaluator": ("Evaluator",),
        ".samples": ("EvaluationSet", "ItemSet", "TensorSet"),
        ".schedule": ("Schedule",),
    },
)
