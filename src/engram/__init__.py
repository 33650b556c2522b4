"""engram measures what a neural network remembers while it keeps learning.

The names below are imported when they are first used, so `import engram` is instant. Data sets are in
`engram.datasets`, scenarios in `engram.scenarios`, metrics in `engram.metrics`, and `engram.engine.loop.run`
runs an experiment.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from engram.core.errors import InputError
    from engram.core.values import Batch, TaskInfo
    from engram.engine.experiment import Experiment
    from engram.engine.recipe import experiment
    from engram.evaluation.evaluator import Evaluator
    from engram.methods import method
    from engram.methods.base import Learner, Terms
    from engram.metrics import metric
    from engram.models import Pretrained, model

__version__ = "0.1.0"

_HOMES = {
    "Batch": "engram.core.values",
    "Evaluator": "engram.evaluation.evaluator",
    "Experiment": "engram.engine.experiment",
    "InputError": "engram.core.errors",
    "Learner": "engram.methods.base",
    "Pretrained": "engram.models",
    "TaskInfo": "engram.core.values",
    "Terms": "engram.methods.base",
    "experiment": "engram.engine.recipe",
    "method": "engram.methods",
    "metric": "engram.metrics",
    "model": "engram.models",
}

__all__ = [
    "Batch",
    "Evaluator",
    "Experiment",
    "InputError",
    "Learner",
    "Pretrained",
    "TaskInfo",
    "Terms",
    "__version__",
    "experiment",
    "method",
    "metric",
    "model",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'engram' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
