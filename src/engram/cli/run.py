"""`engram run`: a method on a scenario, over seeds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from engram.cli.config import with_config
from engram.cli.describe import describe_run, print_description
from engram.cli.output import fail, is_verbose, print_json, stderr, stdout
from engram.cli.progress import ProgressDisplay
from engram.cli.run_options import RunOptions, with_run_options
from engram.core.errors import InputError
from engram.core.files import is_file
from engram.core.folder import RESULT, finite, has_checkpoint
from engram.core.jsons import JsonObject
from engram.core.stopping import StopSignals, exit_code

if TYPE_CHECKING:
    from engram.engine.observers import Observer
    from engram.engine.where import Where
    from engram.record.experiment import Experiment
    from engram.record.run import Run

SHOWN = ("ACC", "FORG", "min-ACC", "WC-ACC", "WF10", "WP10", "AA", "AF", "RAA", "RAF")


@with_config
@with_run_options
def run(
    scenario: Annotated[
        str,
        typer.Argument(
            help="A benchmark (see `engram list scenarios`), or your data: split:FILE, permuted:FILE, "
            "rotated:FILE, domains:FILE,FILE."
        ),
    ],
    method: Annotated[str, typer.Argument(help="A method: see `engram list methods`.")],
    *,
    options: RunOptions,
) -> None:
    """Run METHOD on SCENARIO, evaluate it while it learns, and summarise over seeds.

    Options of scenario, network and training that you leave out have the benchmark's values, those of its
    paper if it has one; they are printed before the run.
    """
    from engram.cli.extremes import print_extremes
    from engram.engine.composed import check_scenario_name
    from engram.metrics.extremes import mean_extremes
    from engram.results.runs import Runs

    options.check()
    if options.plugin is None:
        # Before anything heavy is imported; a plugin may register a scenario.
        check_scenario_name(scenario)
    options.start()
    experiments = options.experiments(scenario, method)
    if not options.json:
        start = start_of(experiments[0])
        described = describe_run(
            experiments, options.out, start=start, chosen=options.chosen, again=options.again
        )
        print_description(described)
    where = options.where()
    runs = run_all(experiments, where, options.trackers(), again=options.again)
    print_sampling(runs)
    if options.json:
        print_json(as_json(runs))
        return
    page = Runs(runs).report(where.folder / f"{experiments[0].scenario.name}-{method}.html")
    print_summary(runs)
    print_extremes(
        mean_extremes([run.extremes for run in runs]),
        {name: over["mean"] for name, over in summary(runs).items() if name in SHOWN},
    )
    print_account(runs[-1])
    print_precision(runs)
    print_parallel(runs)
    print_checkpoints(runs)
    stdout.print(f"report: {page}", soft_wrap=True)


def start_of(experiment: Experiment) -> str:
    """The weights that an experiment starts from, in words; empty for random ones."""
    from engram.engine.start import check_start

    start = experiment.start
    if start is None:
        return ""
    return f"{start.file.name} (sha256 {start.sha256[:12]}…), {check_start(experiment)}"


def run_all(
    experiments: Sequence[Experiment],
    where: Where,
    observers: Sequence[Observer] = (),
    *,
    again: bool = False,
) -> list[Run]:
    """Run experiments one after the other with a progress bar; finished ones are read."""
    from engram.record.aside import restore, set_aside

    runs: list[Run] = []
    with ProgressDisplay(len(experiments), name_failures=False) as display:
        try:
            with StopSignals(wait=False):
                for experiment in experiments:
                    folder = where.folder / experiment.id
                    aside = set_aside(folder, again=again)
                    try:
                        runs.append(_run_one(experiment, where, [display, *observers]))
                    finally:
                        if aside:
                            restore(folder)
        except KeyboardInterrupt:
            display.close()
            left = experiments[len(runs) :]
            resume = how_to_resume([where.folder / experiment.id for experiment in left[:1]])
            if again:
                resume = "what was there before is kept; run the same command again to start again"
            fail(
                f"interrupted: {len(runs)} of {len(experiments)} runs are finished and kept in "
                f"{where.folder}; {resume}",
                code=exit_code(),
            )
    return runs


def _run_one(experiment: Experiment, where: Where, observers: Sequence[Observer]) -> Run:
    """Run an experiment; one that may be ended has a process of its own.

    Raises:
        InputError: It failed, or another process is running it.
    """
    from engram.core.leases import Held, holder_of
    from engram.engine.execute import execute
    from engram.engine.failures import RunFailed, explain_crash
    from engram.executors import Machines, executor_for

    try:
        if where.timeout is None:
            return execute(experiment, where, observers)
    except RunFailed as error:
        raise InputError(explain_crash(error.run)) from error
    folder = where.folder / experiment.id
    if (holder := holder_of(folder)) is not None:
        raise Held(folder, holder)
    [run] = executor_for(where, observers, machines=Machines(on="serial"))([experiment])
    if not run.finished:
        raise InputError(explain_crash(run))
    return run


def how_to_resume(under_way: Sequence[Path]) -> str:
    """What to do after an interruption, and which runs start from the beginning then.

    Args:
        under_way: The folders of the runs that were under way.

    Example:
        >>> how_to_resume([])
        'run the same command again to resume'
        >>> print(how_to_resume([Path("nowhere")]))
        run the same command again to resume; the run under way has no checkpoint, and starts ...
    """
    resume = "run the same command again to resume"
    lost = [folder for folder in under_way if not has_checkpoint(folder) and not is_file(folder / RESULT)]
    if not lost:
        return resume
    if len(under_way) == 1:
        return f"{resume}; the run under way has no checkpoint, and starts from the beginning"
    have, start = ("has", "starts") if len(lost) == 1 else ("have", "start")
    runs = f"{len(lost)} of {len(under_way)} runs under way"
    return f"{resume}; {runs} {have} no checkpoint, and {start} from the beginning"


def as_json(runs: Sequence[Run]) -> JsonObject:
    """The runs and their summary, as `--json` prints them."""
    from engram.record.checkpoints import KeptSize

    shown = ("id", "seed", "metrics", "updates", "evaluations", "seconds", "account", "precision", "parallel")
    kept = [KeptSize.of([run.folder]) for run in runs]
    return {
        "runs": [
            {
                "folder": str(run.folder),
                **{name: value for name, value in finite(run.result()).items() if name in shown},
                "extremes": run.extremes.as_json(),
                **({"checkpoints": {"files": size.files, "bytes": size.size}} if size.files else {}),
            }
            for run, size in zip(runs, kept, strict=True)
        ],
        "summary": summary(runs),
    }


def summary(runs: Sequence[Run]) -> JsonObject:
    """Mean, SD and 95 % interval of every metric over seeds; null where undefined."""
    from engram.results.summaries import over_runs

    return {name: finite(over_runs(runs, name).as_json()) for name in runs[0].metrics}


def print_summary(runs: Sequence[Run]) -> None:
    """The table over seeds, in percent."""
    from rich.table import Table

    from engram.metrics.registry import users_metrics

    shown = (*SHOWN, *users_metrics())
    table = Table("metric", box=None, header_style="bold")
    for column in ("mean", "SD (n − 1)", "95 % interval", "seeds"):
        table.add_column(column, justify="right")
    for name, over in summary(runs).items():
        if name in shown and over["mean"] is not None:
            low, high = over["ci95"]
            interval = "–" if low is None else f"{100 * low:.2f} … {100 * high:.2f}"
            spread = "–" if over["sd"] is None else f"{100 * over['sd']:.2f}"
            table.add_row(name, f"{100 * over['mean']:.2f}", spread, interval, str(over["n"]))
    stdout.print(table)


def print_sampling(runs: Sequence[Run]) -> None:
    """How samples were thinned, and what thinning updates may have missed."""
    from engram.results.sampling import levels_of_run, missed_in

    shares = {str(levels): run.seed for run in runs if (levels := levels_of_run(run)) is not None}
    for text, seed in shares.items():
        stderr.print(f"seed {seed}: {text}", soft_wrap=True, markup=False)
    missed = next((text for run in runs if (text := missed_in(run))), "")
    if missed:
        stderr.print(f"note: {missed}", soft_wrap=True, markup=False)


def print_precision(runs: Sequence[Run]) -> None:
    """With `-v`, what was evaluated in half precision and why not more; wrong answers always."""
    for run in runs:
        record = run.precision
        if record is not None and (is_verbose() or record.wrong):
            stderr.print(f"seed {run.seed}: {record}", soft_wrap=True, markup=False)


def print_parallel(runs: Sequence[Run]) -> None:
    """With `-v`, what evaluator processes did, or why there were none; skipped evaluations always."""
    for run in runs:
        record = run.parallel
        if record is not None and (is_verbose() or record.skipped):
            stderr.print(f"seed {run.seed}: {record}", soft_wrap=True, markup=False)


def print_checkpoints(runs: Sequence[Run]) -> None:
    """What the checkpoints that runs kept take on the disk; nothing where they kept none."""
    from engram.record.checkpoints import KeptSize

    kept = KeptSize.of(run.folder for run in runs)
    if kept.files:
        stderr.print(f"kept: {kept}", soft_wrap=True, markup=False)


def print_account(run: Run) -> None:
    """What the method kept and what an update cost, after the first and after the last task."""
    from rich.filesize import decimal

    account = run.account
    if account is None:
        return
    kept, flops = account.kept_bytes, account.flops
    stdout.print(
        f"kept beyond {account.parameters:,} weights: {decimal(kept[0])} after the first task, "
        f"{decimal(kept[-1])} after the last",
        soft_wrap=True,
    )
    if flops:
        stdout.print(
            f"one update: {flops[0] / 1e6:,.1f} MFLOP in the first task, {flops[-1] / 1e6:,.1f} in the last",
            soft_wrap=True,
        )
