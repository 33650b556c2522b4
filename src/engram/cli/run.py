"""`engram run`: a method on a scenario, over seeds."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from engram.cli.output import INTERRUPTED, fail, print_json, stderr, stdout
from engram.core.errors import InputError

if TYPE_CHECKING:
    from rich.progress import Progress as Bar
    from rich.progress import TaskID

    from engram.run.experiment import Experiment
    from engram.run.loop import Progress

SHOWN = ("ACC", "FORG", "min-ACC", "WC-ACC", "WF10", "WP10", "AA", "AF", "RAA", "RAF")


def run(
    scenario: Annotated[str, typer.Argument(help="A benchmark: see `engram list scenarios`.")],
    method: Annotated[str, typer.Argument(help="A method: see `engram list methods`.")],
    setting: Annotated[str | None, typer.Option(help="task, domain or class.")] = None,
    classes: Annotated[
        str | None, typer.Option(help="In the class setting: number of classes known or unknown.")
    ] = None,
    model: Annotated[str | None, typer.Option(help="A network: see `engram list models`.")] = None,
    hidden: Annotated[str | None, typer.Option(help="Hidden widths, for example 400,400.")] = None,
    optimizer: Annotated[str | None, typer.Option(help="sgd, adam or adagrad.")] = None,
    lr: Annotated[float | None, typer.Option(help="Learning rate.")] = None,
    momentum: Annotated[float | None, typer.Option(help="Momentum of sgd.")] = None,
    weight_decay: Annotated[float | None, typer.Option(help="L2 weight decay.")] = None,
    epochs: Annotated[int | None, typer.Option(help="Passes over each task's data.")] = None,
    updates: Annotated[int | None, typer.Option(help="Updates of each task, instead of passes.")] = None,
    batch_size: Annotated[int | None, typer.Option(help="New samples in each update.")] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="A field of the method: FIELD=VALUE. May be repeated.")
    ] = None,
    every: Annotated[int, typer.Option(help="Evaluate after every N updates.")] = 1,
    subset: Annotated[int | None, typer.Option(help="Test samples of each task; 0 for all.")] = None,
    full_ends: Annotated[
        bool, typer.Option("--full-ends", help="Also all test samples at task ends.")
    ] = False,
    on: Annotated[str, typer.Option(help="Evaluate on test or train data.")] = "test",
    tasks: Annotated[str, typer.Option(help="Evaluate the tasks seen so far, or all.")] = "seen",
    redraw: Annotated[bool, typer.Option("--redraw", help="Draw the subset anew each time.")] = False,
    per_epoch: Annotated[bool, typer.Option("--per-epoch", help="Count --every within each epoch.")] = False,
    losses: Annotated[bool, typer.Option("--losses", help="Record test losses as well.")] = False,
    gradients: Annotated[
        bool, typer.Option("--gradients", help="Record stability and plasticity gradient norms.")
    ] = False,
    budget_bytes: Annotated[
        int | None, typer.Option(help="Bytes that may be kept beyond the weights; sizes the memory.")
    ] = None,
    plugin: Annotated[
        Path | None, typer.Option(help="A Python file that registers methods of your own.")
    ] = None,
    seeds: Annotated[int, typer.Option(help="How many seeds.")] = 1,
    first_seed: Annotated[int, typer.Option(help="The first seed.")] = 0,
    data: Annotated[Path | None, typer.Option(help="Folder with data sets.")] = None,
    out: Annotated[Path, typer.Option(help="Where runs are kept.")] = Path("runs"),
    threads: Annotated[int | None, typer.Option(help="Threads that compute.")] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda or mps.")] = "cpu",
    again: Annotated[bool, typer.Option("--again", help="Run even what exists already.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Run METHOD on SCENARIO, evaluate it while it learns, and summarise over seeds."""
    from engram.scenarios import benchmark

    benchmark(scenario)
    if seeds < 1:
        raise InputError(f"seeds={seeds} cannot be used: give 1 or more")
    if subset is not None and subset < 0:
        raise InputError(f"subset={subset} cannot be used: give 1 or more, or 0 for all samples")
    if classes not in (None, "known", "unknown"):
        raise InputError(f"classes={classes!r} cannot be used: say known or unknown")
    evaluation: dict[str, Any] = {
        "every": every,
        "full_ends": full_ends,
        "on": one_of("on", on, ("test", "train")),
        "tasks": one_of("tasks", tasks, ("seen", "all")),
        "redraw": redraw,
        "per_epoch": per_epoch,
        "losses": losses,
        "gradients": gradients,
    }
    if subset is not None:
        evaluation["subset"] = subset or None
    start_computing(threads, device)
    from engram.methods import load_plugin
    from engram.run.recipe import experiment

    if plugin is not None:
        load_plugin(plugin)

    experiments = [
        experiment(
            scenario,
            method,
            setting=None if setting is None else one_of("setting", setting, ("task", "domain", "class")),  # type: ignore[arg-type]
            classes_known=None if classes is None else classes == "known",
            model=model,
            hidden=None if hidden is None else widths(hidden),
            optimizer=optimizer,
            lr=lr,
            momentum=momentum,
            weight_decay=weight_decay,
            batch_size=batch_size,
            epochs=epochs,
            updates=updates,
            settings=assignments(set_ or []),
            budget_bytes=budget_bytes,
            evaluation=evaluation,
            seed=seed,
        )
        for seed in range(first_seed, first_seed + seeds)
    ]
    if not json:
        describe(experiments[0])
    results = run_all(experiments, out=out, data=data, device=device, again=again)
    folders = [out / experiment.id for experiment in experiments]
    if json:
        print_json(as_json(results, folders))
        return
    page = write_page(folders, out / f"{scenario}-{method}.html")
    print_summary(results)
    print_account(results[-1]["account"])
    stdout.print(f"report: {page}", soft_wrap=True)


def start_computing(threads: int | None, device: str) -> None:
    """Prepare torch: threads, and a device that is really there."""
    from engram.run.threads import prepare_threads

    prepare_threads(threads)
    import torch

    there = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    kind = device.partition(":")[0]
    if not there.get(kind, False):
        known = " or ".join(name for name, found in there.items() if found)
        raise InputError(f"device {device!r} cannot be used on this machine: use {known}")


def run_all(
    experiments: list[Experiment], *, out: Path, data: Path | None, device: str, again: bool
) -> list[dict[str, Any]]:
    """Run experiments one after the other with a progress bar; what exists already is read."""
    from engram.run.checkpoint import execute

    results = []
    with progress_bar() as bar:
        for experiment in experiments:
            folder = out / experiment.id
            if again and folder.exists():
                shutil.rmtree(folder)
            line = bar.add_task(f"{experiment.method} seed {experiment.seed}", total=None, news="")
            follow = Follower(bar, line)
            try:
                results.append(execute(experiment, folder, data=data, device=device, follow=follow))
            except KeyboardInterrupt:
                bar.stop()
                done = len(results)
                fail(
                    f"interrupted: {done} of {len(experiments)} runs are finished and kept in {out}; "
                    "the same command goes on from there",
                    code=INTERRUPTED,
                )
            bar.update(line, total=1, completed=1, news="done")
    return results


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
    fields = " ".join(f"{name}={value}" for name, value in experiment.settings.items())
    optimizer, model = experiment.optimizer, experiment.model
    wide = ",".join(map(str, model.hidden)) if model.name in ("mlp", "lwta") else ""
    subset = experiment.evaluation.subset
    passes = f"{experiment.updates} updates a task" if experiment.updates else f"{experiment.epochs} epochs"
    rows = {
        "scenario": f"{experiment.scenario.name}, {len(experiment.scenario.tasks)} tasks, "
        f"{experiment.scenario.setting.kind} setting",
        "method": f"{experiment.method} {fields}".strip(),
        "model": f"{model.name} {wide}".strip(),
        "training": f"{optimizer.name} lr={optimizer.lr:g} momentum={optimizer.momentum:g}, "
        f"batch {experiment.batch_size}, {'one pass' if experiment.scenario.passes == 1 else passes}",
        "evaluation": f"every {experiment.evaluation.every} updates on "
        f"{'all' if subset is None else subset} {experiment.evaluation.on} samples of each task",
    }
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
        found[name] = finite({"mean": over.mean, "sd": over.sd, "ci95": list(over.ci95), "n": over.n})
    return found


def print_summary(results: list[dict[str, Any]]) -> None:
    """The table over seeds, in percent."""
    from rich.table import Table

    table = Table("metric", box=None, header_style="bold")
    for column in ("mean", "SD", "95 % interval", "seeds"):
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


def one_of(name: str, value: str, known: tuple[str, ...]) -> str:
    """A word that must be one of a few."""
    from engram.core.errors import unknown_name

    if value not in known:
        raise unknown_name(name, value, known)
    return value


def widths(text: str) -> tuple[int, ...]:
    """Hidden widths as they are typed: `400,400`."""
    try:
        return tuple(int(part) for part in text.split(",") if part.strip())
    except ValueError:
        raise InputError(
            f"hidden={text!r} cannot be used: give whole numbers with commas, as 400,400"
        ) from None


def assignments(pairs: list[str]) -> dict[str, str]:
    """`FIELD=VALUE` pairs as they are typed."""
    found = {}
    for pair in pairs:
        name, sign, value = pair.partition("=")
        if not sign or not name:
            raise InputError(f"--set {pair!r} cannot be used: write FIELD=VALUE")
        found[name.strip().replace("-", "_")] = value.strip()
    return found
