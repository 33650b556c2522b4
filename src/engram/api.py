"""The front door: run, sweep, load, compare and report, from Python."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from engram.engine.observers import Observer
    from engram.metrics.paired import Test
    from engram.record.experiment import Experiment
    from engram.record.run import Run
    from engram.results.compare import RunComparison
    from engram.results.runs import Runs
    from engram.scenarios.values import Scenario

PathLike = str | Path


def run(
    scenario: str | Scenario | Experiment,
    method: str | type | None = None,
    *,
    out: PathLike | None = None,
    data: PathLike | None = None,
    device: str = "cpu",
    strict: bool = False,
    observers: Sequence[Observer] = (),
    **options: Any,
) -> Run:
    """Train a method on a scenario, evaluate it while it learns, and return the run.

    Args:
        scenario: A benchmark's name, a `Scenario`, or a whole `Experiment` (then nothing else describes it).
        method: A method's name, or the class of one.
        out: Where to keep the run while it goes on: a run that is there already is read, and one that was
            killed resumes. By default it is kept in memory; `run.save` writes it.
        data: Where data sets are looked for first.
        device: Where to compute: `cpu`, `cuda` or `mps`.
        strict: Whether to stop a method that reads what it should not.
        observers: Told what happens while it runs.
        options: Everything that `engram.experiment` takes: `seed`, `epochs`, `model`, `lr`, `settings`, …

    Raises:
        InputError: It cannot be run as asked, or it failed: then the error has the
            `run` with what was measured.

    Example:
        >>> import engram
        >>> run = engram.run("split-digits", "er", seed=0, updates=20)
        >>> 0 < run.metrics["min-ACC"] < run.metrics["ACC"] < 1
        True
    """
    from engram.core.errors import InputError
    from engram.engine.execute import execute, run_in_memory
    from engram.engine.failures import RunFailed
    from engram.engine.recipe import experiment
    from engram.engine.where import Where
    from engram.record.experiment import Experiment
    from engram.record.failure import FailureKind

    if isinstance(scenario, Experiment):
        if method is not None or options:
            raise InputError("an Experiment says everything already: leave method and options out")
        planned = scenario
    elif method is None:
        raise InputError("name a method, for example engram.run('split-digits', 'er')")
    else:
        planned = experiment(scenario, method, **options)
    where = Where(out=_path(out), data=_path(data), device=device, strict=strict)
    try:
        if out is None:
            return run_in_memory(planned, where, observers)
        return execute(planned, where, observers)
    except RunFailed as error:
        if error.failure.kind is FailureKind.CRASHED and error.__cause__ is not None:
            # A mistake in somebody's method: its own traceback helps most.
            raise error.__cause__ from None
        raise


def sweep(
    plan: PathLike | Mapping[str, Any],
    *,
    out: PathLike = "runs",
    jobs: int | None = None,
    data: PathLike | None = None,
    device: str = "cpu",
    plugin: PathLike | None = None,
    strict: bool = False,
    observers: Sequence[Observer] = (),
) -> Runs:
    """Run every combination that a sweep file or a table of options stands for, and return the runs.

    Runs that are there already are read. Several jobs are worker processes: a script that asks for them does
    so under `if __name__ == "__main__":`.

    Args:
        plan: A TOML file with options of `engram run`, or the same as a dictionary; lists are grids.
        out: Where runs are kept.
        jobs: Parallel runs; None for one per core.
        data: Where data sets are looked for first.
        device: Where to compute.
        plugin: A Python file that registers methods and the like, for workers to load as well.
        strict: Whether to stop a method that reads what it should not.
        observers: Told what happens while runs go on.

    Returns:
        The finished runs; those that failed are in `incomplete`, each with its `failure`.

    Example:
        >>> import tempfile, engram
        >>> table = {"scenario": "split-digits", "method": ["er", "finetune"], "updates": 5}
        >>> engram.sweep(table, out=tempfile.mkdtemp(), jobs=1)
        <Runs: 2 finished: er × 1, finetune × 1>
    """
    from engram.core.plugins import load_plugin
    from engram.engine.where import Where
    from engram.executors.processes import Processes
    from engram.executors.serial import Serial
    from engram.protocols.sweep_file import expand, read_sweep
    from engram.results.runs import Runs

    if plugin is not None:
        load_plugin(Path(plugin))
    experiments = expand(plan if isinstance(plan, Mapping) else read_sweep(Path(plan))).experiments
    where = Where(
        out=_path(out), data=_path(data), device=device, plugin=_path(plugin), strict=strict, jobs=jobs
    )
    runs = (Serial if jobs == 1 else Processes)(where, observers)(experiments)
    return Runs([run for run in runs if run.finished], incomplete=[run for run in runs if not run.finished])


def load(paths: PathLike | Iterable[PathLike]) -> Runs:
    """The runs in a folder, or in several: those that `engram run`, `engram.run` or an evaluator saved.

    Args:
        paths: Run folders, or folders that hold some.

    Example:
        >>> import tempfile, engram
        >>> folder = tempfile.mkdtemp()
        >>> _ = engram.run("split-digits", "er", updates=5, out=folder)
        >>> engram.load(folder)[0].metrics.keys() >= {"ACC", "FORG", "min-ACC"}
        True
    """
    from engram.results.runs import find_runs

    return find_runs(paths)


def compare(runs: Iterable[Run] | PathLike, *metrics: str, test: Test = "sign-flip") -> RunComparison:
    """Test methods against each other, paired by seed.

    Args:
        runs: Runs, or the folder that they lie in.
        metrics: Which metrics; ACC, FORG, min-ACC and WC-ACC by default.
        test: The test of each pair: `sign-flip` or `t`.

    Example:
        >>> import engram
        >>> pairs = [(name, seed) for name in ("er", "l2") for seed in (0, 1)]
        >>> runs = [engram.run("split-digits", name, updates=5, seed=seed) for name, seed in pairs]
        >>> engram.compare(runs, "ACC").seeds
        (0, 1)
    """
    from engram.results.compare import compare_runs

    return compare_runs(_as_runs(runs), metrics=metrics, test=test)


def report(runs: Iterable[Run] | PathLike, page: PathLike = "report.html") -> Path:
    """Write one self-contained HTML page about runs, and say where it is.

    Args:
        runs: Runs, or the folder that they lie in.
        page: Where to write it.

    Example:
        >>> import tempfile, engram
        >>> page = Path(tempfile.mkdtemp()) / "report.html"
        >>> engram.report([engram.run("split-digits", "er", updates=5)], page) == page
        True
    """
    from engram.results.report import write_report

    write_report(_as_runs(runs), Path(page))
    return Path(page)


def _as_runs(runs: Iterable[Run] | PathLike) -> list[Run]:
    return list(load(runs) if isinstance(runs, PathLike) else runs)


def _path(path: PathLike | None) -> Path | None:
    return None if path is None else Path(path)
