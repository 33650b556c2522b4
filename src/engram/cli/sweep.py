"""`engram sweep`: many runs from one file, on all cores."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from engram.cli.options import Data, Device, Json, Out, Plugin, Strict, load_own, start_computing
from engram.cli.output import INTERRUPTED, fail, print_json, stderr, stdout
from engram.core.errors import InputError

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

    from engram.engine.experiment import Experiment
    from engram.executors.processes import Row
    from engram.protocols.sweep_file import Plan

SHOWN = ("ACC", "FORG", "min-ACC", "WC-ACC")


def sweep(
    file: Annotated[Path, typer.Argument(help="A TOML file with options of `engram run`; lists are grids.")],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be run, and run nothing.")
    ] = False,
    jobs: Annotated[
        int | None, typer.Option(help="Runs at a time, one thread each; one a core unless given.")
    ] = None,
    plugin: Plugin = None,
    data: Data = None,
    out: Out = Path("runs"),
    device: Device = "cpu",
    strict: Strict = False,
    json: Json = False,
) -> None:
    """Run every combination in FILE that has not been run yet; exit 1 if any of them fails."""
    if jobs is not None and jobs < 1:
        raise InputError(f"jobs={jobs} cannot be used: give 1 or more")
    start_computing(None, device)
    from engram.executors.sweep import run_sweep, seconds_left, survey

    load_own(plugin)
    plan = read_plan(file)
    rows = survey(plan.experiments, out)
    if not json:
        describe(plan, rows, seconds_left(rows, jobs))
    if not dry_run:
        with sweep_bar() as bar:
            watching = Watcher(bar, len(rows))
            try:
                rows = run_sweep(
                    plan.experiments,
                    out,
                    jobs=jobs,
                    data=data,
                    device=device,
                    plugin=plugin,
                    strict=strict,
                    ended=watching.ended,
                    follow=watching.follow,
                )
            except KeyboardInterrupt:
                bar.stop()
                done = watching.counts["done"]
                fail(
                    f"interrupted: {done} of {len(rows)} runs are finished and kept in {out}; "
                    "the same command goes on from there",
                    code=INTERRUPTED,
                )
    if json:
        print_json(as_json(plan, rows, seconds_left(rows, jobs)))
    elif not dry_run:
        print_groups(rows)
        print_failures(rows)
    if not dry_run and any(row.status == "failed" for row in rows):
        raise typer.Exit(1)


def read_plan(file: Path) -> Plan:
    """The experiments of a file; mistakes are named with the file and their keys."""
    from engram.protocols.sweep_file import expand, read_sweep

    table = read_sweep(file)
    try:
        return expand(table)
    except InputError as error:
        raise InputError(f"{file}: {error}") from error


def describe(plan: Plan, rows: Sequence[Row], seconds: float | None) -> None:
    """What will be run, what is there already, and what is left out; on stderr."""
    from rich.table import Table

    table = Table("scenario", "setting", "method", box=None, header_style="bold")
    for column in ("runs", "done", "failed", "missing"):
        table.add_column(column, justify="right")
    found: dict[tuple[str, str, str], Counter[str]] = {}
    for row in rows:
        planned = row.experiment
        setting: str = planned.scenario.setting.kind
        key = (planned.scenario.name, setting, planned.method)
        found.setdefault(key, Counter())[row.status] += 1
    for key, counts in found.items():
        numbers = (counts.total(), counts["done"], counts["failed"], counts["missing"])
        table.add_row(*key, *(str(number or "–") for number in numbers))
    stderr.print(table)
    for skipped in plan.skipped:
        stderr.print(f"left out: {skipped.what}: {skipped.why}", soft_wrap=True, markup=False)
    if plan.repeated:
        stderr.print(f"asked for more than once and run once: {plan.repeated}")
    done = sum(row.status == "done" for row in rows)
    left = "unknown until the first runs are done" if seconds is None else f"about {duration(seconds)}"
    stderr.print(f"{len(rows)} runs, {done} done; time left: {left}")


class Watcher:
    """Shows how far all runs together are."""

    def __init__(self, bar: Bar, runs: int) -> None:
        self.bar = bar
        self.counts: Counter[str] = Counter()
        self.shares: dict[str, float] = {}
        self.line = bar.add_task("sweep", total=runs, news="")

    def ended(self, row: Row) -> None:
        """Take note of a run that ended; a failure is said at once."""
        self.counts[row.status] += 1
        self.shares.pop(row.experiment.id, None)
        if row.failure is not None:
            stderr.print(f"failed: {row.experiment.id}: {row.failure.reason}", soft_wrap=True, markup=False)
        self._show()

    def follow(self, experiment: Experiment, share: float) -> None:
        """Take note of how far a run is."""
        self.shares[experiment.id] = share
        self._show()

    def _show(self) -> None:
        news = f"{len(self.shares)} under way"
        if failed := self.counts["failed"]:
            news += f", {failed} failed"
        self.bar.update(self.line, completed=self.counts.total() + sum(self.shares.values()), news=news)


def sweep_bar() -> Bar:
    """Runs that ended, time left, and what is under way, on stderr."""
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    return Bar(
        TextColumn("{task.description}"),
        BarColumn(bar_width=30),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[news]}"),
        console=stderr,
        # Runs are long and differ: a speed over half a minute would jump.
        speed_estimate_period=600,
    )


def as_json(plan: Plan, rows: Sequence[Row], seconds: float | None) -> dict[str, Any]:
    """The sweep as `--json` prints it."""
    counts = Counter(row.status for row in rows)
    return {
        "runs": [
            {
                "id": row.experiment.id,
                "scenario": row.experiment.scenario.name,
                "setting": row.experiment.scenario.setting.kind,
                "method": row.experiment.method,
                "seed": row.experiment.seed,
                "folder": str(row.folder),
                "status": row.status,
                "metrics": None if row.result is None else row.result["metrics"],
                "failure": None
                if row.failure is None
                else {"kind": row.failure.kind, "reason": row.failure.reason},
            }
            for row in rows
        ],
        "skipped": [{"what": skipped.what, "why": skipped.why} for skipped in plan.skipped],
        "repeated": plan.repeated,
        "counts": {status: counts[status] for status in ("done", "failed", "missing")},
        "seconds_left": seconds,
    }


def print_groups(rows: Sequence[Row]) -> None:
    """The table of all finished runs, over seeds, in percent."""
    from rich.table import Table

    from engram.metrics.intervals import over_seeds
    from engram.metrics.registry import users_metrics
    from engram.results.store import find_runs, group_runs

    folders = [row.folder for row in rows if row.status == "done"]
    if not folders:
        return
    table = Table("mean ± SD (n − 1) in %", box=None, header_style="bold")
    shown = (*SHOWN, *users_metrics())
    for column in (*shown, "seeds"):
        table.add_column(column, justify="right")
    for group in group_runs(find_runs(folders)):
        cells = []
        for name in shown:
            over = over_seeds([run.metrics.get(name, float("nan")) for run in group.runs])
            spread = "" if over.sd != over.sd else f" ± {100 * over.sd:.2f}"
            cells.append("–" if over.mean != over.mean else f"{100 * over.mean:.2f}{spread}")
        table.add_row(group.label, *cells, str(len(group.runs)))
    stdout.print(table)


def print_failures(rows: Sequence[Row]) -> None:
    """The runs that failed, each with its reason and where to read more."""
    from engram.executors.processes import FAILURE

    failed = [row for row in rows if row.failure is not None]
    for row in failed:
        assert row.failure is not None
        stdout.print(f"failed: {row.folder / FAILURE}: {row.failure.reason}", soft_wrap=True, markup=False)
    if failed:
        stdout.print(f"{len(failed)} of {len(rows)} runs failed; the same command tries them again")


def duration(seconds: float) -> str:
    """A time as people say it.

    Example:
        >>> duration(42), duration(600), duration(9000)
        ('42 s', '10 min', '2.5 h')
    """
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
