"""Running experiments: how one is made from names, the loop that runs it, checkpoints and observers."""

from typing import TYPE_CHECKING

from engram.core.lazy import lazy_package

if TYPE_CHECKING:
    from engram.engine.loop import run, run_steps
    from engram.engine.observers import Observer, Step, Watcher
    from engram.engine.recipe import experiment
    from engram.engine.where import Where

__all__ = ["Observer", "Step", "Watcher", "Where", "experiment", "run", "run_steps"]

__getattr__, __dir__ = lazy_package(
    __name__,
    {
        ".loop": ("run", "run_steps"),
        ".observers": ("Observer", "Step", "Watcher"),
        ".recipe": ("experiment",),
        ".where": ("Where",),
    },
)
