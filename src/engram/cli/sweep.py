"""`engram sweep`: many runs from one file, on all cores."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, get_args

import typer

from engram.cli.machines import with_machines
from engram.cli.options import (
    CheckpointEvery,
    Data,
    Device,
    Json,
    KeepCheckpoints,
    Out,
    ParallelOption,
    Plugin,
    PrecisionOption,
    SaveWeights,
    Strict,
    Timeout,
    Track,
    check_data,
    check_seconds,
    load_own,
    precision_of,
    start_computing,
)
from engram.cli.output import fail, print_json, stderr, stdout
from engram.cli.progress import ProgressDisplay
from engram.cli.run import how_to_resume, print_checkpoints, print_parallel, print_precision
from engram.core.errors import InputError
from engram.core.folder import FAILURE, finite
from engram.core.jsons import JsonObject
from engram.core.stopping import exit_code
from engram.core.words import counted, duration
from engram.executors.machines import Machines

if TYPE_CHECKING:
    from engram.engine.observers import Observer
    from engram.engine.where import Where
    from engram.protocols.sweep_file import SweepPlan
    from engram.record.experiment import Experiment
    from engram.record.run import Run

SHOWN = ("ACC", "FORG", "min-ACC", "WC-ACC")


@with_machines
def sweep(
    file: Annotated[Path, typer.Argument(help="A TOML file with options of `engram run`; lists are grids.")],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be run, and run nothing.")
    ] = False,
    done: Annotated[
        bool, typer.Option("--done", help="Show what finished runs say, and run nothing.")
    ] = False,
    emit_commands: Annotated[
        bool,
        typer.Option(
            "--emit-commands",
            help="Print one command per run that is missing, for any scheduler; run nothing.",
        ),
    ] = False,
    jobs: Annotated[
        int | None, typer.Option(help="Parallel runs, one thread each (default: one per core).")
    ] = None,
    *,
    machines: Machines,
    plugin: Plugin = None,
    data: Data = None,
    out: Out = Path("runs"),
    device: Device = "cpu",
    precision: PrecisionOption = "full",
    parallel: ParallelOption = "auto",
    strict: Strict = False,
    checkpoint_every: CheckpointEvery = None,
    timeout: Timeout = None,
    track: Track = None,
    save_weights: SaveWeights = None,
    keep_checkpoints: KeepCheckpoints = None,
    json: Json = False,
) -> None:
    """Run every combination in FILE that has not been run yet; exit 1 if any of them fails.

    Any number of these commands, on any machines that share the folder, may work on it at the same time: each
    run is made by one of them.
    """
    from engram.engine.where import Where
    from engram.executors.forkserver import prepare_workers

    check_seconds(checkpoint_every, timeout)
    check_idle({"--dry-run": dry_run, "--done": done, "--emit-commands": emit_commands}, track)
    where = Where(
        out=out,
        data=data,
        device=device,
        plugin=plugin,
        precision=precision_of(precision),
        parallel=parallel,
        strict=strict,
        jobs=jobs,
        checkpoint_seconds=checkpoint_every,
        timeout=timeout,
        save_weights=save_weights,
        keep_checkpoints=keep_checkpoints,
    )
    machines.check_jobs(jobs)
    makes_runs = not (dry_run or done or emit_commands)
    if makes_runs and machines.on == "processes":
        # While torch is imported here, it is imported there as well.
        prepare_workers()
    check_data(data if machines.local else None)
    # On a cluster the device is that of its nodes.
    start_computing(None, device if machines.local else "cpu")
    from engram.executors.survey import seconds_left, survey
    from engram.interop.trackers import trackers_of

    load_own(plugin)
    plan = read_plan(file).evaluated(parallel)
    runs = survey(plan.experiments, out)
    if emit_commands:
        print_commands(plan, runs, where, json=json)
        return
    if not json:
        describe(plan, runs, seconds_left(runs, jobs))
    others = 0
    if makes_runs:
        done_before = sum(run.finished for run in runs)
        runs, read = run_all(plan.experiments, where, machines, trackers_of(track))
        # What begins on a cluster is not always noticed here.
        others = read - done_before if machines.local else 0
    if json:
        print_json({**as_json(plan, runs, seconds_left(runs, jobs)), "made_by_others": others})
    elif not dry_run:
        print_groups(runs)
        print_precision(runs)
        print_parallel(runs)
        print_checkpoints(runs)
        print_failures(runs)
    if others:
        were = "was" if others == 1 else "were"
        stderr.print(f"{counted(others, 'run')} {were} made by other processes meanwhile")
    if not dry_run and not all(run.finished for run in runs):
        raise typer.Exit(1)


def check_idle(options: Mapping[str, bool], track: Sequence[str] | None = None) -> None:
    """Refuse several options that run nothing, and trackers beside one of them.

    Example:
        >>> check_idle({"--dry-run": True, "--done": True})
        Traceback (most recent call last):
        engram.core.errors.InputError: --dry-run and --done cannot be used together: use one of them
    """
    chosen = [name for name, value in options.items() if value]
    if len(chosen) > 1:
        raise InputError(f"{' and '.join(chosen)} cannot be used together: use one of them")
    if chosen and track:
        raise InputError(f"{chosen[0]} runs nothing: omit --track")


def run_all(
    experiments: Sequence[Experiment], where: Where, machines: Machines, observers: Sequence[Observer] = ()
) -> tuple[list[Run], int]:
    """Run what is missing, with progress on stderr; all runs, and how many of them were not made here."""
    from engram.executors import executor_for

    with ProgressDisplay(len(experiments)) as display:
        try:
            runs = executor_for(where, [display, *observers], machines=machines)(experiments)
        except KeyboardInterrupt:
            display.close()
            done = display.done
            resume = how_to_resume([where.folder / name for name in display.states])
            fail(
                f"interrupted: {done} of {len(experiments)} runs are finished and kept in {where.folder}; "
                f"{resume}",
                code=exit_code(),
            )
    return runs, display.read


def print_commands(plan: SweepPlan, runs: Sequence[Run], where: Where, *, json: bool) -> None:
    """Print one command per run that is not finished; together they make the runs of the sweep."""
    from engram.cli.commands import command_of

    rows = zip(plan.experiments, plan.rows, runs, strict=True)
    lines = [command_of(planned, row, where) for planned, row, run in rows if not run.finished]
    if json:
        print_json({"commands": lines, "done": sum(run.finished for run in runs)})
        return
    for line in lines:
        stdout.print(line, soft_wrap=True, markup=False)


def read_plan(file: Path) -> SweepPlan:
    """The experiments of a file; errors name the file and the key."""
    from engram.protocols.sweep_file import expand, read_sweep

    table = read_sweep(file)
    try:
        return expand(table)
    except InputError as error:
        raise InputError(f"{file}: {error}") from error


def describe(plan: SweepPlan, runs: Sequence[Run], seconds: float | None) -> None:
    """Print on stderr what will be run, what is done already, and what is left out."""
    from rich.table import Table

    table = Table("scenario", "setting", "method", box=None, header_style="bold")
    running = any(run.status == "running" for run in runs)
    for column in ("runs", "done", "failed", *["running"] * running, "missing"):
        table.add_column(column, justify="right")
    by_method: dict[tuple[str, str, str], Counter[str]] = {}
    for run in runs:
        key = (run.scenario, run.setting, run.method)
        by_method.setdefault(key, Counter())[run.status] += 1
    for key, counts in by_method.items():
        missing = counts["missing"] + counts["unfinished"]
        failed = counts["failed"] + counts["damaged"]
        numbers = (counts.total(), counts["done"], failed, *[counts["running"]] * running, missing)
        table.add_row(*key, *(str(number or "–") for number in numbers))
    stderr.print(table)
    for run in runs:
        if run.status == "damaged" and run.failure is not None:
            stderr.print(f"damaged, and to be run again: {run.failure.reason}", soft_wrap=True, markup=False)
    for skipped in plan.skipped:
        stderr.print(f"left out: {skipped.what}: {skipped.why}", soft_wrap=True, markup=False)
    if plan.repeated:
        stderr.print(f"repeated combinations, run once: {plan.repeated}")
    done = sum(run.finished for run in runs)
    if done == len(runs):
        stderr.print("1 run, done" if len(runs) == 1 else f"{len(runs):,} runs, all done")
        return
    left = "unknown until the first runs are done" if seconds is None else f"about {duration(seconds)}"
    stderr.print(f"{counted(len(runs), 'run')}, {done:,} done; time left: {left}")


def as_json(plan: SweepPlan, runs: Sequence[Run], seconds: float | None) -> JsonObject:
    """The sweep as `--json` prints it."""
    from engram.record.run import Status

    counts = Counter(run.status for run in runs)
    return {
        "runs": [
            {
                "id": run.id,
                "scenario": run.scenario,
                "setting": run.setting,
                "method": run.method,
                "seed": run.seed,
                "folder": str(run.folder),
                "status": run.status,
                "metrics": finite(dict(run.metrics)) if run.finished else None,
                "failure": None
                if run.failure is None
                else {"kind": run.failure.kind, "reason": run.failure.reason},
            }
            for run in runs
        ],
        "skipped": [{"what": skipped.what, "why": skipped.why} for skipped in plan.skipped],
        "repeated": plan.repeated,
        "counts": {status: counts[status] for status in get_args(Status)},
        "seconds_left": seconds,
    }


def print_groups(runs: Sequence[Run]) -> None:
    """The table of all finished runs, over seeds, in percent."""
    from rich.table import Table

    from engram.metrics.registry import users_metrics
    from engram.results.runs import group_runs
    from engram.results.summaries import over_runs

    finished = [run for run in runs if run.finished]
    if not finished:
        return
    table = Table("method", box=None, header_style="bold")
    shown = (*SHOWN, *users_metrics())
    for column in (*shown, "seeds"):
        table.add_column(column, justify="right")
    for group in group_runs(finished):
        cells = []
        for name in shown:
            over = over_runs(group.runs, name)
            spread = "" if over.sd != over.sd else f" ± {100 * over.sd:.2f}"
            cells.append("–" if over.mean != over.mean else f"{100 * over.mean:.2f}{spread}")
        table.add_row(group.label, *cells, str(len(group.runs)))
    stdout.print(table)
    stdout.print("mean ± SD (n − 1) over seeds, in percent")


def print_failures(runs: Sequence[Run]) -> None:
    """The runs that failed, each with its reason and where to read more."""
    failed = [run for run in runs if run.failure is not None]
    for run in failed:
        assert run.folder is not None and run.failure is not None
        stdout.print(f"failed: {run.folder / FAILURE}: {run.failure.reason}", soft_wrap=True, markup=False)
    if failed:
        stdout.print(f"{len(failed)} of {len(runs)} runs failed; run the same command again to retry them")
