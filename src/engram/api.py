"""The front door: run, sweep, load, compare and report, from Python."""

from __future__ import annotations

import signal
import warnings
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from engram.core.jsons import Json, JsonMapping

if TYPE_CHECKING:
    from engram.engine.observers import Observer
    from engram.executors import Machines
    from engram.record.experiment import Experiment
    from engram.record.half_checked import Precision
    from engram.record.run import Run
    from engram.results.compare import CompareOptions, RunComparison
    from engram.results.gate import Gate
    from engram.results.runs import Runs
    from engram.scenarios.values import Scenario

PathLike = str | Path


def run(
    scenario: PathLike | Scenario | Experiment,
    method: str | type | None = None,
    *,
    out: PathLike | None = None,
    data: PathLike | None = None,
    device: str = "cpu",
    precision: Precision = "full",
    parallel: str | int = "off",
    strict: bool = False,
    checkpoint_every: float | None = None,
    track: str | Sequence[str] = (),
    save_weights: str | None = None,
    keep_checkpoints: str | int | None = None,
    observers: Sequence[Observer] = (),
    **options: Json,
) -> Run:
    """Train a method on a scenario, evaluate it while it learns, and return the run.

    Args:
        scenario: A benchmark's name, a `Scenario`, or a whole experiment (without method and options): an
            `Experiment`, or the path of the `experiment.json` of a run.
        method: A method's name, or a method class.
        out: The folder to write the run to while it is trained: a finished run is read from there, and an
            interrupted one resumes. By default the run is kept in memory only; `run.save` writes it.
        data: The folder that is searched for data sets first.
        device: Where to compute: `cpu`, `cuda` or `mps`.
        precision: `half-checked` evaluates in half precision and asks answers in doubt again, to the same
            bits; `auto` does so where it is faster.
        parallel: Evaluate in this many processes, forked from this one, while learning goes on, to the same
            bits; `auto` does so where it is faster; `skip` and `skip:N` leave out evaluations while they are
            busy. See docs/how-to/parallel.md.
        strict: Whether to stop a method that reads or does what it must not.
        checkpoint_every: The most work that may be lost if the run is killed, in seconds (default: 30, or as
            many as are needed for checkpoints to take at most 3 % of the time).
        track: Trackers that log the run: `tensorboard`, `mlflow` or `wandb`, with `:` and where to log.
        save_weights: Keep weights in the run's folder, `final` or after all `tasks`; `run.model()` gives the
            network back.
        keep_checkpoints: Keep checkpoints in the run's folder for `engram.zoom`, at the end of all `tasks`,
            or also every N updates.
        observers: Notified of every step of the run.
        options: Everything that `engram.experiment` takes: `seed`, `epochs`, `model`, `lr`, `settings`, …

    Raises:
        InputError: The experiment cannot be run, or the run failed; in the latter case the error has an
            attribute `run` with everything that was measured.

    Example:
        >>> import engram
        >>> run = engram.run("split-digits", "er", seed=0, updates=20)
        >>> 0 < run.metrics["min-ACC"] < run.metrics["ACC"] < 1
        True
    """
    from engram.core.stopping import Stopped
    from engram.engine.check import warn_redrawn
    from engram.engine.execute import execute, run_in_memory
    from engram.engine.failures import RunFailed
    from engram.engine.where import Where
    from engram.record.failure import FailureKind
    from engram.record.parallel import ParallelPlan

    planned = _planned(scenario, method, options)
    if ParallelPlan.of(parallel).skips:
        planned = planned.skipping()
    warn_redrawn([planned])
    where = Where(
        out=_path(out),
        data=_path(data),
        device=device,
        precision=precision,
        parallel=str(parallel),
        strict=strict,
        checkpoint_seconds=checkpoint_every,
        save_weights=save_weights,
        keep_checkpoints=keep_checkpoints,
    )
    observers = [*observers, *_trackers(track)]
    try:
        if out is None:
            return run_in_memory(planned, where, observers)
        return execute(planned, where, observers)
    except RunFailed as error:
        if error.failure.kind is FailureKind.CRASHED and error.__cause__ is not None:
            # A bug in a user's method: the original traceback helps most.
            raise error.__cause__ from None
        raise
    except Stopped as stopped:
        if stopped.number == signal.SIGINT:
            raise
        # As the signal would have done, but with a checkpoint.
        raise SystemExit(stopped.code) from None


def sweep(
    plan: PathLike | JsonMapping,
    *,
    out: PathLike = "runs",
    jobs: int | None = None,
    data: PathLike | None = None,
    device: str = "cpu",
    plugin: PathLike | None = None,
    precision: Precision = "full",
    parallel: str | int = "off",
    strict: bool = False,
    checkpoint_every: float | None = None,
    timeout: float | None = None,
    track: str | Sequence[str] = (),
    save_weights: str | None = None,
    keep_checkpoints: str | int | None = None,
    on: str | Machines | None = None,
    observers: Sequence[Observer] = (),
) -> Runs:
    """Run every combination of options in a sweep file or dictionary, and return the runs.

    Finished runs are read from `out` instead of being run again. With more than one job, runs are distributed
    over worker processes, so a script must call this under `if __name__ == "__main__":`.

    Args:
        plan: A TOML file with options of `engram run`, or the same as a dictionary; lists are grids.
        out: The folder that runs are written to.
        jobs: Parallel runs (default: one per core).
        data: The folder that is searched for data sets first.
        device: Where to compute: `cpu`, `cuda` or `mps`.
        plugin: A Python file that registers methods, models and so on; worker processes load it as well.
        precision: `half-checked` evaluates in half precision and asks answers in doubt again, to the same
            bits; `auto` does so where it is faster.
        parallel: Evaluate in this many processes, forked from this one, while learning goes on, to the same
            bits; `auto` does so where it is faster; `skip` and `skip:N` leave out evaluations while they are
            busy. See docs/how-to/parallel.md.
        strict: Whether to stop a method that reads or does what it must not.
        checkpoint_every: The most work that may be lost if a run is killed, in seconds (default: 30, or as
            many as are needed for checkpoints to take at most 3 % of the time).
        timeout: End a run that completes no update for this many seconds (default: never).
        track: Trackers that log the runs: `tensorboard`, `mlflow` or `wandb`, with `:` and where to log.
        save_weights: Keep weights in each run's folder: `final`, or after all `tasks`.
        keep_checkpoints: Keep checkpoints in each run's folder for `engram.zoom`, at the end of all `tasks`,
            or also every N updates.
        on: `processes`, `serial`, `ray` or `slurm`, or `engram.executors.Machines` with more about them
            (default: processes, or serial with one job).
        observers: Notified of every step of the runs.

    Returns:
        The finished runs; failed ones are in `incomplete`, each with its `failure`.

    Example:
        >>> import tempfile, engram
        >>> table = {"scenario": "split-digits", "method": ["er", "finetune"], "updates": 5}
        >>> engram.sweep(table, out=tempfile.mkdtemp(), jobs=1)
        <Runs: 2 finished: er × 1, finetune × 1>
    """
    from engram.core.plugins import load_plugin
    from engram.engine.where import Where
    from engram.executors import Machines, executor_for
    from engram.protocols.sweep_file import expand, read_sweep
    from engram.results.runs import Runs

    if plugin is not None:
        load_plugin(Path(plugin))
    table = plan if isinstance(plan, Mapping) else read_sweep(Path(plan))
    experiments = expand(table).evaluated(str(parallel)).experiments
    where = Where(
        out=_path(out),
        data=_path(data),
        device=device,
        plugin=_path(plugin),
        precision=precision,
        parallel=str(parallel),
        strict=strict,
        jobs=jobs,
        checkpoint_seconds=checkpoint_every,
        timeout=timeout,
        save_weights=save_weights,
        keep_checkpoints=keep_checkpoints,
    )
    if not isinstance(on, Machines):
        on = Machines(on=on or ("serial" if jobs == 1 else "processes"))
    observers = [*observers, *_trackers(track)]
    runs = executor_for(where, observers, machines=on)(experiments)
    return Runs([run for run in runs if run.finished], incomplete=[run for run in runs if not run.finished])


def load(paths: PathLike | Iterable[PathLike]) -> Runs:
    """Load the runs that `engram run`, `engram.run` or an evaluator saved in one or several folders.

    Runs that failed, were killed, are still running or are damaged are named in warnings; they are in
    `incomplete`.

    Args:
        paths: Run folders, folders that contain run folders, or compact stores, also at any address that
            Polars reads (`s3://bucket/runs`).

    Example:
        >>> import tempfile, engram
        >>> folder = tempfile.mkdtemp()
        >>> _ = engram.run("split-digits", "er", updates=5, out=folder)
        >>> engram.load(folder)[0].metrics.keys() >= {"ACC", "FORG", "min-ACC"}
        True
    """
    from engram.record.incomplete import why_incomplete
    from engram.results.runs import find_runs

    runs = find_runs(paths)
    for run in runs.incomplete:
        warnings.warn(f"left out: {run.folder}: {why_incomplete(run)}", stacklevel=2)
    return runs


def zoom(
    run: Run | PathLike,
    steps: tuple[int, int],
    *,
    every: int = 1,
    samples: str = "own",
    on: PathLike | None = None,
    out: PathLike | None = None,
    data: PathLike | None = None,
    device: str = "cpu",
    weights: PathLike | None = None,
    label: str | None = None,
    features: Sequence[str] = (),
    observers: Sequence[Observer] = (),
) -> Run:
    """Learn a stretch of a finished run again, to the same bits, and evaluate every update of it.

    Learning starts from the last checkpoint that the run kept before the stretch (`keep_checkpoints`), or
    from the beginning. Where the run itself was evaluated in the stretch, answers are compared; a warning
    says so if they differ.

    Args:
        run: The run, or its folder.
        steps: The first and the last update of the stretch; 0 is before the first.
        every: Evaluate after every N updates.
        samples: The samples that the run was evaluated on (`own`), or `all`.
        on: A file or folder of other test samples, or `train`, `test` or `validation` (default: what the run
            was evaluated on).
        out: The folder to write it to, which `engram.load` reads (default: it is kept in memory).
        data: The folder that is searched for data sets first.
        device: Where to compute: `cpu`, `cuda` or `mps`.
        weights: The file of the weights that the run started from, if it started from any.
        label: For a table in `on`, the column that has the labels (default: `label`).
        features: For a table in `on`, the columns that are inputs (default: all others).
        observers: Notified of every update.

    Returns:
        A run with the evaluations of the stretch, and one at the end of each earlier task.
        `engram.record.zoom.Zoom.of` says what was compared.

    Raises:
        InputError: The run cannot be learned again, or the stretch is not a part of it.

    Example:
        >>> import engram
        >>> run = engram.run("split-digits", "er", updates=20, every=10)
        >>> closely = engram.zoom(run, (20, 25), samples="all")
        >>> closely.curve.step.tolist()
        [20, 21, 22, 23, 24, 25]
        >>> bool(closely.curve.accuracy[:, 0].min() <= run.curve.accuracy[run.curve.step == 20, 0])
        True
    """
    from engram.datasets.files import Reading
    from engram.engine.where import Where
    from engram.engine.zoom import Stretch, check_place, save_zoom
    from engram.engine.zoom import zoom as look_again
    from engram.record.zoom import Zoom
    from engram.results.runs import one_run

    first, last = steps
    whole = one_run(run) if isinstance(run, PathLike) else run
    stretch = Stretch(
        first=first,
        last=last,
        every=every,
        samples=samples,
        on=on,
        how=Reading(label=label, features=tuple(features)),
    )
    if out is not None:
        check_place(Path(out), whole)
    where = Where(out=None, data=_path(data), device=device)
    closely = look_again(whole, stretch, where, observers, weights=_path(weights))
    facts = Zoom.of(closely)
    if facts is not None and facts.compared.same is False:
        warnings.warn(facts.verdict(), stacklevel=2)
    return closely if out is None else save_zoom(closely, Path(out))


def compare(
    runs: Iterable[Run] | PathLike, *metrics: str, **options: Unpack[CompareOptions]
) -> RunComparison:
    """Test methods against each other, paired by seed.

    Args:
        runs: Runs of one scenario, or the folder that contains them.
        metrics: The metrics to compare (default: ACC, FORG, min-ACC and WC-ACC). The first one is the primary
            metric; the others are exploratory.
        options: `test` (`sign-flip` or `t`), `baseline`, `more_seeds`, `together` and `bootstrap`; see
            `engram.results.compare.compare_runs`.

    Example:
        >>> import engram
        >>> pairs = [(name, seed) for name in ("er", "l2") for seed in (0, 1)]
        >>> runs = [engram.run("split-digits", name, updates=5, seed=seed) for name, seed in pairs]
        >>> engram.compare(runs, "ACC").seeds
        (0, 1)
    """
    from engram.results.compare import compare_runs

    return compare_runs(_as_runs(runs), metrics=metrics, **options)


def report(runs: Iterable[Run] | PathLike, page: PathLike = "report.html") -> Path:
    """Write one self-contained HTML page about runs, and return its path.

    Args:
        runs: Runs, or the folder that contains them.
        page: The path of the page.

    Example:
        >>> import tempfile, engram
        >>> page = Path(tempfile.mkdtemp()) / "report.html"
        >>> engram.report([engram.run("split-digits", "er", updates=5)], page) == page
        True
    """
    from engram.results.report import write_report

    write_report(_as_runs(runs), Path(page))
    return Path(page)


def gate(
    old: object,
    new: object,
    data: Mapping[str, object] | PathLike | None = None,
    *,
    model: str | None = None,
    max_drop: float | str | None = None,
    max_flips: float | str | None = None,
    max_worst_slice_drop: float | str | None = None,
    slices: Sequence[str] | None = None,
    min_samples: int | None = None,
    common: bool = False,
    level: float = 0.05,
) -> Gate:
    """Compare an old and a new model sample by sample: did the new one forget something?

    Args:
        old: The old model's answers: the path of a prediction file or run, a `Run`, a polars data frame or
            columns by name (`id`, and `correct`, or `label` and `prediction`; further columns are slices); or
            a network or the path of its weights, which then need `data`.
        new: The same of the new model.
        data: For networks, test sets by name, in any form that `Evaluator` takes; for weights, the path of a
            TOML file that names slices and their data files.
        model: For weights, the network, by its name or as `FILE.py:FACTORY` (default: the one that the
            weights of a run name).
        max_drop: The largest drop of accuracy: a fraction, or a text such as `1pp`. Limits are `safe` (they
            fail unless it is shown that the model keeps them) or end in `:harm` (they fail only if it is
            shown that it does not). Without any limit, this one is 0.01.
        max_flips: The largest share of samples that were right and are wrong now.
        max_worst_slice_drop: The largest drop of any slice or class.
        slices: The columns that are slices (default: all that have no other meaning).
        min_samples: Slices with fewer samples are left out.
        common: Whether samples that only one of the two has are left out, instead of being an error.
        level: One minus the confidence of every statement.

    Example:
        >>> import engram
        >>> old = {"id": range(500), "correct": [1] * 490 + [0] * 10}
        >>> new = {"id": range(500), "correct": [1] * 480 + [0] * 20}
        >>> gate = engram.gate(old, new, max_drop="1pp")
        >>> gate.passed, gate.overall.lost
        (False, 10)
    """
    from engram.core.errors import InputError
    from engram.results.gate import rules_of
    from engram.results.gate.comparing import compare_files

    rules = rules_of(max_drop=max_drop, max_flips=max_flips, max_worst_slice_drop=max_worst_slice_drop)
    if model is not None and not isinstance(data, PathLike):
        raise InputError("model is for weights in files: give data as the path of a file of slices")
    if isinstance(data, PathLike):
        old, new = _answers_of_weights(old, new, Path(data), model)
    elif data is not None:
        from engram.evaluation.answers import answers_of

        old, new = answers_of(old, data), answers_of(new, data)
    elif callable(old) or callable(new):
        raise InputError("networks need test sets: gate(old, new, {'dogs': (x, y)})")
    return compare_files(old, new, rules, slices=slices, min_samples=min_samples, common=common, level=level)


def _answers_of_weights(
    old: object, new: object, data: Path, model: str | None
) -> tuple[Mapping[str, object], Mapping[str, object]]:
    """What two networks answer, whose weights are in files."""
    from engram.core.errors import InputError
    from engram.engine.gating import answers_of_weights, read_slices

    if not isinstance(old, PathLike) or not isinstance(new, PathLike):
        raise InputError("a file of slices is for weights in files: give test sets by name for networks")
    slices = read_slices(data)
    return answers_of_weights(Path(old), slices, model), answers_of_weights(Path(new), slices, model)


def _planned(
    scenario: PathLike | Scenario | Experiment, method: str | type | None, options: JsonMapping
) -> Experiment:
    """The experiment that the arguments of `run` describe."""
    from engram.core.errors import InputError
    from engram.engine.recipe import experiment
    from engram.record.experiment import Experiment

    if isinstance(scenario, PathLike) and Path(scenario).suffix == ".json":
        scenario = _described(Path(scenario))
    if isinstance(scenario, Experiment):
        if method is not None or options:
            raise InputError("an Experiment is complete: leave method and options out")
        return scenario
    if method is None:
        raise InputError("name a method, for example engram.run('split-digits', 'er')")
    return experiment(str(scenario) if isinstance(scenario, Path) else scenario, method, **options)


def _described(path: Path) -> Experiment:
    """The experiment that an `experiment.json` describes."""
    from engram.core.errors import InputError
    from engram.core.files import read_json
    from engram.record.experiment import Experiment

    description = read_json(path)
    if not isinstance(description, dict) or "scenario" not in description:
        raise InputError(f"{path} does not describe an experiment: it must be the experiment.json of a run")
    try:
        return Experiment.of_json(description)
    except InputError as error:
        raise InputError(f"{path}: {error}") from error


def _trackers(track: str | Sequence[str]) -> Sequence[Observer]:
    if not track:
        return ()
    from engram.interop.trackers import trackers_of

    return trackers_of(track)


def _as_runs(runs: Iterable[Run] | PathLike) -> list[Run]:
    return list(load(runs) if isinstance(runs, PathLike) else runs)


def _path(path: PathLike | None) -> Path | None:
    return None if path is None else Path(path)
