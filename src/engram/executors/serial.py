"""The executor that runs one experiment after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

from engram.core.errors import InputError
from engram.core.files import read_json, remove_file, write_json
from engram.core.folder import PROBES, RESULT, TRACE, Reading
from engram.core.trace import Trace
from engram.engine.checkpoint import execute
from engram.engine.experiment import Experiment
from engram.engine.loop import Diverged, Progress
from engram.executors.processes import FAILURE, Row, failure_of
from engram.protocols.drive import Failure, Result

Follow = Callable[[Experiment], Callable[[Progress], None]]
"""Told that an experiment begins, gives what is called after each of its updates."""


class Serial:
    """Runs experiments one by one into a folder; what is there already is read, not run again.

    A run whose loss is no number any more is a failure, as is one that crashes or runs out of memory:
    `failure.json` in its folder then has the traceback. What is wrong with the input (data that are not
    there, a field that cannot be) would be wrong in every run, and is raised.

    Args:
        out: Where runs are kept, each in a folder that its experiment names.
        data: Where data sets are looked for first.
        device: Where to compute.
        strict: Whether to stop a method that reads what it should not.
        follow: Watches runs.

    Example:
        >>> import tempfile
        >>> from engram.engine.recipe import experiment
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
        folder = self.out / experiment.id
        remove_file(folder / FAILURE)
        try:
            execute(
                experiment,
                folder,
                data=self.data,
                device=self.device,
                strict=self.strict,
                follow=follow,
            )
        except Diverged as error:
            return read_failure(experiment, folder, str(error))
        except InputError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever a method raises, the other runs go on
            said = failure_of(error)
            kept = {"id": experiment.id, "label": experiment.label, **asdict(said)}
            write_json(folder / FAILURE, kept)
            return read_failure(experiment, folder, said.reason)
        return read_result(experiment, folder)


def read_result(experiment: Experiment, folder: Path) -> Result:
    """The result of an experiment whose run is finished, from its folder."""
    return Result(
        experiment,
        read_json(folder / RESULT),
        Trace.load(folder / TRACE),
        _readings(folder / PROBES),
    )


def read_failure(experiment: Experiment, folder: Path, reason: str) -> Failure:
    """The failure of an experiment whose run ended early, with what its folder holds of it."""
    kept = folder / TRACE
    return Failure(experiment, reason, Trace.load(kept) if kept.is_file() else Trace())


def read_row(row: Row) -> Result | Failure:
    """What became of an experiment that was run, from its folder."""
    if row.failure is None:
        return read_result(row.experiment, row.folder)
    return read_failure(row.experiment, row.folder, row.failure.reason)


def _readings(path: Path) -> tuple[Reading, ...]:
    if not path.is_file():
        return ()
    import polars as pl

    try:
        frame = pl.read_parquet(path).select("step", "learning", "task", "name", "value")
    except (OSError, pl.exceptions.PolarsError) as error:
        raise InputError(f"cannot read the probes {path}: {str(error).splitlines()[0]}") from error
    return tuple(frame.iter_rows())
