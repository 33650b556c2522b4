"""The executor that runs experiments side by side, in local processes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from engram.engine.experiment import Experiment
from engram.executors.processes import Row
from engram.executors.serial import read_row
from engram.executors.sweep import run_sweep
from engram.protocols.drive import Failure, Result


class Parallel:
    """Runs experiments in processes, each into a folder; what is there already is read, not run again.

    A run that crashes, is killed or runs out of memory is a failure, as is one whose loss is no number any
    more. A script that uses this does so under `if __name__ == "__main__":`, because workers are new
    interpreters.

    Args:
        out: Where runs are kept, each in a folder that its experiment names.
        jobs: How many run at a time; None for one a core.
        data: Where data sets are looked for first.
        device: Where to compute.
        plugin: A Python file that registers methods, for every worker to load.
        strict: Whether to stop a method that reads what it should not; that run is then a failure.
        ended: Called with every run that ended.
        follow: Called a few times a second with an experiment under way, and which share of it is done.
    """

    def __init__(
        self,
        out: Path,
        *,
        jobs: int | None = None,
        data: Path | None = None,
        device: str = "cpu",
        plugin: Path | None = None,
        strict: bool = False,
        ended: Callable[[Row], None] | None = None,
        follow: Callable[[Experiment, float], None] | None = None,
    ) -> None:
        self.out, self.jobs, self.data, self.device = out, jobs, data, device
        self.plugin, self.strict, self.ended, self.follow = plugin, strict, ended, follow

    def __call__(self, experiments: Sequence[Experiment]) -> list[Result | Failure]:
        """What came out of each."""
        rows = run_sweep(
            experiments,
            self.out,
            jobs=self.jobs,
            data=self.data,
            device=self.device,
            plugin=self.plugin,
            strict=self.strict,
            ended=self.ended,
            follow=self.follow,
        )
        return [read_row(row) for row in rows]
