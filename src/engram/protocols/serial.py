"""The executor that runs one experiment after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from engram.core.errors import InputError
from engram.core.files import read_json
from engram.core.folder import PROBES, RESULT, TRACE, Reading
from engram.core.trace import Trace
from engram.protocols.drive import Failure, Result
from engram.run.checkpoint import execute
from engram.run.experiment import Experiment
from engram.run.loop import Diverged, Progress

Follow = Callable[[Experiment], Callable[[Progress], None]]
"""Told that an experiment begins, gives what is called after each of its updates."""


class Serial:
    """Runs experiments one by one into a folder; what is there already is read, not run again.

    A run whose loss is no number any more is a failure. Anything else that is wrong (data that are not there,
    a field that cannot be) would be wrong in every run, and is raised.

    Args:
        out: Where runs are kept, each in a folder that its experiment names.
        data: Where data sets are looked for first.
        device: Where to compute.
        strict: Whether to stop a method that reads what it should not.
        follow: Watches runs.

    Example:
        >>> import tempfile
        >>> from engram.run.recipe import experiment
        >>> execute_all = Serial(Path(tempfile.mkdtemp()))
        >>> planned = experiment("split-digits", "finetune", updates=2, evaluation={"every": 100})
        >>> [found] = execute_all([planned])
        >>> found.experiment is planned, len(found.values["metrics"]) > 0
        (True, True)
    """

    def __init__(
        self,
        out: Path,
        *,
        data: Path | None = None,
        device: str = "cpu",
        strict: bool = False,
        follow: Follow | None = None,
    ) -> None:
        self.out, self.data, self.device, self.strict, self.follow = out, data, device, strict, follow

    def __call__(self, experiments: Sequence[Experiment]) -> list[Result | Failure]:
        """What came out of each."""
        return [self.run(experiment) for experiment in experiments]

    def run(self, experiment: Experiment) -> Result | Failure:
        """What came out of one."""
        follow = None if self.follow is None else self.follow(experiment)
        try:
            execute(
                experiment,
                self.out / experiment.id,
                data=self.data,
                device=self.device,
                strict=self.strict,
                follow=follow,
            )
        except Diverged as error:
            return Failure(experiment, str(error))
        return read_result(experiment, self.out / experiment.id)


def read_result(experiment: Experiment, folder: Path) -> Result:
    """The result of an experiment whose run is finished, from its folder."""
    return Result(
        experiment,
        read_json(folder / RESULT),
        Trace.load(folder / TRACE),
        _readings(folder / PROBES),
    )


def _readings(path: Path) -> tuple[Reading, ...]:
    if not path.is_file():
        return ()
    import polars as pl

    try:
        frame = pl.read_parquet(path).select("step", "learning", "task", "name", "value")
    except (OSError, pl.exceptions.PolarsError) as error:
        raise InputError(f"cannot read the probes {path}: {str(error).splitlines()[0]}") from error
    return tuple(frame.iter_rows())
