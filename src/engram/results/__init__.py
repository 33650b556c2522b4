"""Finished runs: loading, querying, comparing and reporting them."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engram.results.report import write_report
    from engram.results.runs import RunGroup, Runs, find_runs, group_runs

__all__ = ["RunGroup", "Runs", "find_runs", "group_runs", "write_report"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'engram.results' has no attribute {name!r}")
    module = "report" if name == "write_report" else "runs"
    attribute: object = getattr(import_module(f"engram.results.{module}"), name)
    return attribute


def __dir__() -> list[str]:
    return sorted(__all__)
