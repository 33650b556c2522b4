"""Finished runs: loading, querying, comparing and reporting them."""

from typing import TYPE_CHECKING

from engram.core.lazy import lazy_package

if TYPE_CHECKING:
    from engram.results.report import write_report
    from engram.results.runs import RunGroup, Runs, find_runs, group_runs

__all__ = ["RunGroup", "Runs", "find_runs", "group_runs", "write_report"]

__getattr__, __dir__ = lazy_package(
    __name__,
    {".report": ("write_report",), ".runs": ("RunGroup", "Runs", "find_runs", "group_runs")},
)
