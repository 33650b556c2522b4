"""What finished runs say: the folders they left, questions to them, and the report."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from engram.results.report import write_report
    from engram.results.store import Run, RunGroup, find_runs, group_runs, load_run, unfinished_runs

__all__ = ["Run", "RunGroup", "find_runs", "group_runs", "load_run", "unfinished_runs", "write_report"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'engram.results' has no attribute {name!r}")
    module = "report" if name == "write_report" else "store"
    return getattr(import_module(f"engram.results.{module}"), name)
