"""`engram run`: a method on a scenario, over seeds."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from engram.cli.options import RunOptions, with_run_options
from engram.cli.output import INTERRUPTED, fail, print_json, stderr, stdout
from engram.core.errors import InputError
from engram.core.files import is_file
from engram.core.folder import RESULT

if TYPE_CHECKING:
    from rich.progress import Progress as Bar
    from rich.progress import TaskID

    from engram.engine.experiment import Experiment
    from engram.engine.loop import Progress

SHOWN = ("ACC", "FORG", "min-ACC", "WC-ACC", "WF10", "WP10", "AA", "AF", "RAA", "RAF")


@with_run_options
def run(
    scenario: Annotated[str, typer.Argument(help="A benchmark: see `engram list scenarios`.")],
    method: Annotated[str, typer.Argument(help="A method: see `engram list methods`.")],
    *,
    options: RunOptions,
) -> None:
    """Run METHOD on SCENARIO, evaluate it while it learns, and summarise over seeds."""
    from engram.scenarios import benchmark

    options.check()
    if options.plugin is None:
        # Before anything heavy is imported; a plugin may bring a scenario of its own.
        benchmark(scenario)
    options.start()
    experiments = options.experiments(scenario, method)
    if not options.json:
        describe(experiments[0])
    out = options.out
    results = run_all(
        experiments,
        out=out,
        data=options.data,
        device=options.device,
        again=options.again,
        strict=options.strict,
    )
    folders = [out / experiment.id for experiment in experiments]
    if options.json:
        print_json(as_json(results, folders))
        return
    page = write_page(folders, out / f"{scenario}-{method}.html")
    print_summary(results)
    print_account(results[-1]["account"])
    stdout.print(f"report: {page}", soft_wrap=True)


def run_all(
    experiments: list[Experiment],
    *,
    out: Path,
    data: Path | None,
    device: str,
    again: bool,
    strict: bool = False,
) -> list[dict[str, Any]]:
    """Run experiments one after the other with a progress bar; what exists already is read."""
    from engram.engine.checkpoint import execute
    from engram.executors.processes import failure_of

    results = []
    with progress_bar() as bar:
        for experiment in experiments:
            folder = out / experiment.id
            before = make_way(folder, again=again)
            line = bar.add_task(f"{experiment.method} seed {experiment.seed}", total=None, news="")
            follow = Follower(bar, line)
            try:
                results.append(
                    execute(experiment, folder, data=data, device=device, strict=strict, follow=follow)
                )
            except BaseException as error:
                if before is not None:
                    take_back(folder, before)
                if not isinstance(error, KeyboardInterrupt):
                    if (said := failure_of(error)).kind == "memory":
                        raise InputError(f"{said.reason}: give a smaller network or batch") from error
                    raise
                bar.stop()
                done = len(results)
                fail(
                    f"interrupted: {done} of {len(experiments)} runs are finished and kept in {out}; "
                    "the same command goes on from there",
                    code=INTERRUPTED,
                )
            if before is not None:
                take_back(folder, before)
            bar.update(line, total=1, completed=1, news="done")
    return results


def make_way(folder: Path, *, again: bool) -> Path | None:
    """Make a run's folder ready: `again` moves a finished run where nobody looks for runs, and says where.

    What a command that was killed has left there is put back first. What is not finished is removed.
    """
    aside = folder.with_name(f".{folder.name}.before")
    if is_file(aside / RESULT):
        take_back(folder, aside)
    if not again:
        return None
    for useless in (aside, *([] if is_file(folder / RESULT) else [folder])):
        shutil.rmtree(useless, ignore_errors=True)
    if not folder.exists():
        return None
    folder.replace(aside)
    return aside


def take_back(folder: Path, aside: Path) -> None:
    """Put a run back in its place, unless a new one came to its end there: what is whole is worth more."""
    if is_file(folder / RESULT):
        shutil.rmtree(aside)
    else:
        shutil.rmtree(folder, ignore_errors=True)
        aside.replace(folder)


def progress_bar() -> Bar:
    """Task, step, accuracies and time left, on stderr."""
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    return Bar(
        TextColumn("{task.description}"),
        BarColumn(bar_width=20),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[news]}"),
        console=stderr,
        transient=False,
    )


class Follower:
    """Shows where a run is, a few times a second."""

    def __init__(self, bar: Bar, line: TaskID) -> None:
        self.bar, self.line = bar, line
        self.shown = 0.0

    def __call__(self, progress: Progress) -> None:
        """Take note of an update."""
        import time

        now = time.monotonic()
        if now - self.shown < 0.2 and progress.step < progress.steps:
            return
        self.shown = now
        latest = " ".join(f"{100 * value:.0f}" for value in progress.accuracies.values())
        news = f"task {progress.learning + 1}  accuracy {latest}"
        self.bar.update(self.line, total=progress.steps, completed=progress.step, news=news)


def describe(experiment: Experiment) -> None:
    """Print what will be run, defaults included."""
    from engram.engine.describe import description

    rows = description(experiment)
    if experiment.start is not None:
        from engram.engine.start import check_start

        start = experiment.start
        rows["start"] = f"{start.file.name} (sha256 {start.sha256[:12]}…), {check_start(experiment)}"
    for name, text in rows.items():
        stderr.print(f"{name:>10}  {text}", soft_wrap=True, markup=False)


def as_json(results: list[dict[str, Any]], folders: list[Path]) -> dict[str, Any]:
    """The runs and their summary, as `--json` prints them."""
    runs = [
        {
            "id": result["id"],
            "seed": result["seed"],
            "folder": str(folder),
            "metrics": result["metrics"],
            "updates": result["updates"],
            "evaluations": result["evaluations"],
            "seconds": result["seconds"],
            "account": result["account"],
        }
        for result, folder in zip(results, folders, strict=True)
    ]
    return {"runs": runs, "summary": summary(results)}


def summary(results: list[dict[str, Any]]) -> dict[str, Any]:
    """Mean, SD and 95 % interval of every metric over seeds; null where undefined."""
    from engram.core.folder import finite
    from engram.metrics.intervals import over_seeds

    found = {}
    for name in results[0]["metrics"]:
        values = [result["metrics"].get(name) for result in results]
        over = over_seeds([value for value in values if value is not None])
        found[name] = finite(over.as_json())
    return found


def print_summary(results: list[dict[str, Any]]) -> None:
    """The table over seeds, in percent."""
    from rich.table import Table

    table = Table("metric", box=None, header_style="bold")
    for column in ("mean", "SD (n − 1)", "95 % interval", "seeds"):
        table.add_column(column, justify="right")
    for name, over in summary(results).items():
        if name in SHOWN and over["mean"] is not None:
            low, high = over["ci95"]
            interval = "–" if low is None else f"{100 * low:.2f} … {100 * high:.2f}"
            spread = "–" if over["sd"] is None else f"{100 * over['sd']:.2f}"
            table.add_row(name, f"{100 * over['mean']:.2f}", spread, interval, str(over["n"]))
    stdout.print(table)


def print_account(account: dict[str, Any]) -> None:
    """What the method kept and what an update cost, after the first and after the last task."""
    from rich.filesize import decimal

    kept, flops = account["kept_bytes"], account["flops"]
    stdout.print(
        f"kept beyond {account['parameters']:,} weights: {decimal(kept[0])} after the first task, "
        f"{decimal(kept[-1])} after the last",
        soft_wrap=True,
    )
    if flops:
        stdout.print(
            f"one update: {flops[0] / 1e6:,.1f} MFLOP in the first task, {flops[-1] / 1e6:,.1f} in the last",
            soft_wrap=True,
        )


def write_page(folders: list[Path], page: Path) -> Path:
    """The report of these runs."""
    from engram.results.report import write_report
    from engram.results.store import find_runs

    write_report(find_runs(folders), page)
    return page
