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
    from engram.datasets.register import dataset
    from engram.engine.experiment import Experiment
    from engram.engine.recipe import experiment
    from engram.evaluation.evaluator import Evaluator
    from engram.methods import method
    from engram.methods.base import Learner, Terms
    from engram.models import Pretrained, model
    from engram.scenarios.named import scenario
    from engram.scenarios.values import Scenario

__version__ = "0.1.0"

_HOMES = {
    "Batch": "engram.core.values",
    "Evaluator": "engram.evaluation.evaluator",
    "Experiment": "engram.engine.experiment",
    "InputError": "engram.core.errors",
    "Learner": "engram.methods.base",
    "Pretrained": "engram.models",
    "Scenario": "engram.scenarios.values",
    "TaskInfo": "engram.core.values",
    "Terms": "engram.methods.base",
    "dataset": "engram.datasets.register",
    "experiment": "engram.engine.recipe",
    "method": "engram.methods",
    "model": "engram.models",
    "scenario": "engram.scenarios.named",
}

__all__ = [
    "Batch",
    "Evaluator",
    "Experiment",
    "InputError",
    "Learner",
    "Pretrained",
    "Scenario",
    "TaskInfo",
    "Terms",
    "__version__",
    "dataset",
    "experiment",
    "method",
    "model",
    "scenario",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'engram' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
