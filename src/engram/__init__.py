"""engram measures what a neural network remembers while it keeps learning.

    import engram

    run = engram.run("split-digits", "er", seed=0)    # train, and evaluate after every update
    run.metrics["min-ACC"]                             # every metric, computed from the trace
    watch = engram.Evaluator(test_sets)                # the same in your own loop

The names below are imported when they are first used, so `import engram` is instant.
"""

from typing import TYPE_CHECKING

from engram.core.lazy import lazy_package

if TYPE_CHECKING:
    from engram.api import compare, gate, load, report, run, sweep, zoom
    from engram.core.errors import InputError
    from engram.core.trace import Trace
    from engram.core.values import Batch, TaskInfo
    from engram.datasets.register import dataset
    from engram.engine.recipe import experiment
    from engram.evaluation import right, score
    from engram.evaluation.evaluator import Evaluator
    from engram.methods import method
    from engram.methods.base import Learner, Method, Terms
    from engram.metrics import metric
    from engram.models import Pretrained, model
    from engram.record.experiment import Experiment
    from engram.record.recorder import Recorder
    from engram.record.run import Run
    from engram.results.runs import Runs
    from engram.scenarios.named import scenario
    from engram.scenarios.values import Scenario

__version__ = "0.1.0"

__all__ = [
    "Batch",
    "Evaluator",
    "Experiment",
    "InputError",
    "Learner",
    "Method",
    "Pretrained",
    "Recorder",
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
    "gate",
    "load",
    "method",
    "metric",
    "model",
    "report",
    "right",
    "run",
    "scenario",
    "score",
    "sweep",
    "zoom",
]

__getattr__, __dir__ = lazy_package(
    __name__,
    {
        "engram.api": ("compare", "gate", "load", "report", "run", "sweep", "zoom"),
        "engram.core.errors": ("InputError",),
        "engram.core.trace": ("Trace",),
        "engram.core.values": ("Batch", "TaskInfo"),
        "engram.datasets.register": ("dataset",),
        "engram.engine.recipe": ("experiment",),
        "engram.evaluation": ("right", "score"),
        "engram.evaluation.evaluator": ("Evaluator",),
        "engram.methods": ("method",),
        "engram.methods.base": ("Learner", "Method", "Terms"),
        "engram.metrics": ("metric",),
        "engram.models": ("Pretrained", "model"),
        "engram.record.experiment": ("Experiment",),
        "engram.record.recorder": ("Recorder",),
        "engram.record.run": ("Run",),
        "engram.results.runs": ("Runs",),
        "engram.scenarios.named": ("scenario",),
        "engram.scenarios.values": ("Scenario",),
    },
    list_modules=False,
)
