"""engram measures what a neural network remembers while it keeps learning.

    import engram

    run = engram.run("split-digits", "er", seed=0)    # train, and evaluate after every update
    run.metrics["min-ACC"]                             # every metric, computed from the trace
    watch = engram.Evaluator(test_sets)                # the same in your own loop

The names below are imported when they are first used, so `import engram` is instant.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from engram.api import compare, load, report, run, sweep
    from engram.core.errors import InputError
    from engram.core.trace import Trace
    from engram.core.values import Batch, TaskInfo
    from engram.datasets.register import dataset
    from engram.engine.recipe import experiment
    from engram.evaluation.evaluator import Evaluator
    from engram.methods import method
    from engram.methods.base import Learner, Method, Terms
    from engram.metrics import metric
    from engram.models import Pretrained, model
    from engram.record.experiment import Experiment
    from engram.record.run import Run
    from engram.results.runs import Runs
    from engram.scenarios.named import scenario
    from engram.scenarios.values import Scenario

__version__ = "0.1.0"

_HOMES = {
    "Batch": "engram.core.values",
    "Evaluator": "engram.evaluation.evaluator",
    "Experiment": "engram.record.experiment",
    "InputError": "engram.core.errors",
    "Learner": "engram.methods.base",
    "Method": "engram.methods.base",
    "Pretrained": "engram.models",
    "Run": "engram.record.run",
    "Runs": "engram.results.runs",
    "Scenario": "engram.scenarios.values",
    "TaskInfo": "engram.core.values",
    "Terms": "engram.methods.base",
    "Trace": "engram.core.trace",
    "compare": "engram.api",
    "dataset": "engram.datasets.register",
    "experiment": "engram.engine.recipe",
    "load": "engram.api",
    "method": "engram.methods",
    "metric": "engram.metrics",
    "model": "engram.models",
    "report": "engram.api",
    "run": "engram.api",
    "scenario": "engram.scenarios.named",
    "sweep": "engram.api",
}

__all__ = [
    "Batch",
    "Evaluator",
    "Experiment",
    "InputError",
    "Learner",
    "Method",
    "Pretrained",
    "Run",
    "Runs",
    "Scenario",
    "TaskInfo",
    "Terms",
    "Trace",
    "__version__",
    "compare",
    "dataset",
    "experiment",
    "load",
    "method",
    "metric",
    "model",
    "report",
    "run",
    "scenario",
    "sweep",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'engram' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
