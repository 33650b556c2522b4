"""`engram protocol`: how an experiment is chosen and compared, as the papers do it."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from engram.cli.options import RunOptions, one_of, with_run_options
from engram.cli.output import fail, print_json, stderr, stdout
from engram.cli.run import Follower, make_way, progress_bar, take_back
from engram.core.errors import InputError, unknown_name
from engram.core.folder import finite

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

    from engram.engine.experiment import Experiment
    from engram.engine.loop import Progress
    from engram.protocols.drive import Executor, Failure, Plan, Result

# Ends of tasks are always evaluated, and no task is learned for so many updates.
AT_TASK_ENDS = 2**31 - 1
# 004 tests a task about so often while it is learned.
MEASURING_POINTS = 90
SHOTS = "5,10,20,100"
REPORT_EVERY = 10
HELD_OUT = 0.2
# Which of the options below mean something to a protocol; the others are refused.
OWN_OPTIONS = {
    "grid": ("metric", "select-on", "held-out", "search-seeds"),
    "causal": ("select-on", "held-out", "later-lr", "choose-by", "start", "tie-strength"),
    "forward-transfer": ("metric", "select-on", "held-out", "shots", "finetune", "upstream"),
    "online": ("metric", "select-on", "held-out"),
    "queue": ("report-every",),
}


@with_run_options(without=("on",))
def protocol(
    name: Annotated[str, typer.Argument(help="grid, causal, forward-transfer, online or queue.")],
    scenario: Annotated[
        str, typer.Argument(help="A benchmark; for causal also a type: slt-D5-5-mnist stands for all eight.")
    ],
    method: Annotated[
        str, typer.Argument(help="A method; for forward-transfer several with commas, for correlations.")
    ],
    *,
    grid: Annotated[
        list[str] | None,
        typer.Option("--grid", help="Values to try: FIELD=a,b,c (hidden=400x400,800x800). May be repeated."),
    ] = None,
    metric: Annotated[
        str | None, typer.Option(help="grid, forward-transfer, online: by what fields are chosen.")
    ] = None,
    select_on: Annotated[
        str | None,
        typer.Option(
            help="Choose on test or validation data; forward-transfer: validation. Queue: always test."
        ),
    ] = None,
    held_out: Annotated[
        float | None, typer.Option(help=f"Share of training samples for validation; {HELD_OUT} unless given.")
    ] = None,
    search_seeds: Annotated[
        int | None, typer.Option(help="grid: how many of the seeds the search uses.")
    ] = None,
    later_lr: Annotated[
        str | None,
        typer.Option(help="causal: rates for later tasks; `first` keeps the first task's (IMM's default)."),
    ] = None,
    choose_by: Annotated[
        str | None,
        typer.Option(help="causal: choose a later rate by its new task (as usual), or by the union of all."),
    ] = None,
    start: Annotated[
        str | None,
        typer.Option(help="causal: go on from the last weights of a task (as usual), or from its best."),
    ] = None,
    tie_strength: Annotated[
        bool, typer.Option("--tie-strength", help="causal: strength = 1 / (2 · second rate), as 004's EWC.")
    ] = False,
    shots: Annotated[
        str | None, typer.Option(help=f"forward-transfer: samples of each class; {SHOTS} unless given.")
    ] = None,
    finetune: Annotated[
        bool, typer.Option("--finetune", help="forward-transfer: also train all weights of a copy.")
    ] = False,
    upstream: Annotated[
        str | None,
        typer.Option(help="forward-transfer: the data set that the start was pretrained on, as imagenet."),
    ] = None,
    report_every: Annotated[
        int | None,
        typer.Option(help=f"queue: report after every so many tasks; {REPORT_EVERY} unless given."),
    ] = None,
    every: Annotated[
        int | None,
        typer.Option(help="Evaluate after every N updates; else at task ends, for causal 90 times a task."),
    ] = None,
    subset: Annotated[int | None, typer.Option(help="Test samples of each task; all unless given.")] = None,
    jobs: Annotated[int, typer.Option(help="Runs at a time, each in a process of its own if several.")] = 1,
    options: RunOptions,
) -> None:
    """Choose and compare METHOD on SCENARIO by a paper's protocol, and keep every run that it needs.

    A run that fails is never chosen; the command then exits with 1, unless only losses became no number.
    """
    if name not in PLANS:
        raise unknown_name("protocol", name, PLANS)
    options.check(subset=subset)
    if jobs < 1:
        raise InputError(f"jobs={jobs} cannot be used: give 1 or more")
    if options.chosen.get("per_epoch") and every is None:
        raise InputError("--per-epoch counts the updates of --every within each epoch: give --every as well")
    fields = values_to_try(grid or [])
    on = one_of("data to select on", select_on or USUAL_DATA.get(name, "test"), ("test", "validation"))
    validated = on == "validation" and (name != "forward-transfer" or bool(fields))
    given = {
        **{"metric": metric, "select-on": select_on, "held-out": held_out, "search-seeds": search_seeds},
        **{"later-lr": later_lr, "choose-by": choose_by, "start": start, "tie-strength": tie_strength},
        **{"shots": shots, "finetune": finetune, "upstream": upstream, "report-every": report_every},
    }
    check_used(name, [option for option, value in given.items() if value is not None and value is not False])
    check_held_out(held_out, used=validated or finetune)
    if name == "online":
        for option in ("epochs", "updates"):
            if option in options.chosen:
                raise InputError(f"the online protocol shows every sample once: leave --{option} out")
    options.start()
    from engram.protocols.drive import drive
    from engram.protocols.grid import MATRIX_METRICS, metric_name
    from engram.protocols.selection import record_choices

    usual = metric_name(metric or USUAL_METRICS.get(name, "ACC"))
    evaluation: dict[str, Any] = {}
    # A metric of the whole curve looks as `engram run` would, everything else at the ends of tasks alone.
    whole_curve = name == "grid" and usual not in MATRIX_METRICS
    if every is not None or not whole_curve:
        evaluation["every"] = AT_TASK_ENDS if every is None else every
    if subset is not None or not whole_curve:
        evaluation["subset"] = subset or None
    asked = Asked(
        scenario=scenario,
        method=method,
        seeded=partial(options.experiments, evaluation=evaluation),
        fields=fields,
        metric=usual,
        select_on=on,
        held_out=HELD_OUT if held_out is None else held_out,
        search_seeds=search_seeds,
        later_lr=later_lr,
        choose_by="new" if choose_by is None else choose_by,
        start="last" if start is None else start,
        tie_strength=tie_strength,
        shots=whole_numbers("shots", SHOTS if shots is None else shots),
        finetune=finetune,
        upstream=upstream,
        report_every=REPORT_EVERY if report_every is None else report_every,
        measured=every is not None,
        data=options.data,
    )
    out = options.out
    execute = executor(
        out,
        data=options.data,
        device=options.device,
        jobs=jobs,
        plugin=options.plugin,
        strict=options.strict,
    )
    failed: dict[str, Failure] = {}
    execute = noting(making_way(execute, out, again=options.again), failed)
    found = drive(PLANS[name](asked), execute)
    result = finite({"protocol": name, "scenario": scenario, "method": method, **found.as_json()})
    record_choices(result, out)
    if name == "forward-transfer":
        result |= {"fewer_samples": scarce_shots(asked)}
    if options.json:
        print_json(result)
    else:
        print_outcome(result)
    report_failures(failed.values())


USUAL_METRICS = {"forward-transfer": "AvgLAcc", "online": "AA", "queue": "AA"}
USUAL_DATA = {"forward-transfer": "validation"}
TRANSFER_NUMBERS = (
    *("AvgFwt", "AvgFwt*", "AvgFDiv", "AvgFgt", "AvgAcc", "AvgLAcc"),
    *("upstream start", "upstream"),
)


def check_used(name: str, given: Iterable[str]) -> None:
    """Refuse options that a protocol would ignore."""
    for option in given:
        if option not in OWN_OPTIONS[name]:
            users = ", ".join(each for each, own in OWN_OPTIONS.items() if option in own)
            raise InputError(
                f"--{option} means nothing to the {name} protocol: leave it out (it is for {users})"
            )


def check_held_out(share: float | None, *, used: bool) -> None:
    """Refuse a share of validation samples that cannot be, or that nothing is chosen on."""
    if share is None:
        return
    if not 0 < share < 1:
        raise InputError(f"held-out={share:g} cannot be used: give a share above 0 and below 1")
    if not used:
        raise InputError(
            "--held-out means nothing where nothing is chosen on validation data: "
            "give --select-on validation, or leave it out"
        )


@dataclass(frozen=True)
class Asked:
    """What was asked for, as far as plans differ in what they take."""

    scenario: str
    method: str
    seeded: Callable[[str, str], list[Experiment]]
    fields: dict[str, list[str]]
    metric: str
    select_on: Any
    held_out: float
    search_seeds: int | None
    later_lr: str | None
    choose_by: Any
    start: Any
    tie_strength: bool
    shots: tuple[int, ...]
    finetune: bool
    upstream: str | None
    report_every: int
    measured: bool
    data: Path | None


def plan_grid(asked: Asked) -> Plan[Any]:
    """The best of a grid."""
    from engram.protocols.grid import grid

    return grid(
        asked.seeded(asked.scenario, asked.method),
        asked.fields,
        metric=asked.metric,
        on=asked.select_on,
        held_out=asked.held_out,
        search_seeds=asked.search_seeds,
    )


def plan_causal(asked: Asked) -> Plan[Any]:
    """Causal selection on one stream, or on all of a type."""
    from engram.protocols.causal import LATER_RATES, CausalOptions, causal, worst_of

    merging = asked.method.startswith("imm-")
    if asked.later_lr is None:
        rates: tuple[float, ...] = () if merging else LATER_RATES
    else:
        rates = () if asked.later_lr == "first" else later_rates(asked.later_lr)
    options = CausalOptions(
        later_rates=rates,
        choose_by=asked.choose_by,
        start=asked.start,
        on=asked.select_on,
        held_out=asked.held_out,
        tie_strength=asked.tie_strength,
    )
    names = streams_of(asked.scenario)
    bases = {
        name: [measured_often(each, asked) for each in asked.seeded(name, asked.method)] for name in names
    }
    if names == [asked.scenario]:
        return causal(bases[asked.scenario], asked.fields, options=options)
    return worst_of(bases, asked.fields, options=options)


def plan_forward_transfer(asked: Asked) -> Plan[Any]:
    """k-shot probing of one or several methods."""
    from engram.engine.experiment import TransferSpec
    from engram.protocols.forward_transfer import TUNED_LRS, forward_transfer

    names = [part.strip() for part in asked.method.split(",") if part.strip()]
    groups = {each: asked.seeded(asked.scenario, each) for each in names}
    return forward_transfer(
        groups,
        asked.fields,
        probe=TransferSpec(shots=asked.shots, tuned_lrs=TUNED_LRS if asked.finetune else ()),
        metric=asked.metric,
        on=asked.select_on,
        held_out=asked.held_out,
        upstream=upstream_of(groups, asked),
    )


def upstream_of(groups: Mapping[str, Sequence[Experiment]], asked: Asked) -> str:
    """The upstream data set; nothing, and a line that says why, where the start or the data do not do.

    Raises:
        InputError: There is no data set of that name.
    """
    from engram.core.dataset_info import DATASETS
    from engram.engine.upstream import open_upstream

    if not asked.upstream or not groups:
        return ""
    _ = DATASETS[asked.upstream]
    first = next(iter(groups.values()))[0]
    planned = replace(first, evaluation=replace(first.evaluation, upstream=asked.upstream))
    try:
        open_upstream(planned, data=asked.data)
    except InputError as error:
        stderr.print(f"upstream accuracy is left out: {error}", soft_wrap=True, markup=False)
        return ""
    return asked.upstream


def scarce_shots(asked: Asked) -> dict[str, int]:
    """For each number of shots that some class does not have, how many samples the smallest class has.

    All samples of such a class train the probe; a line on stderr says so as well.
    """
    from engram.datasets.stream import Stream

    method = next(part.strip() for part in asked.method.split(",") if part.strip())
    scenario = asked.seeded(asked.scenario, method)[0].scenario
    if asked.finetune or (asked.fields and asked.select_on == "validation"):
        scenario = replace(scenario, held_out=scenario.held_out or asked.held_out)
    stream = Stream(scenario, asked.data)
    later = [task for tasks in scenario.phases[1:] for task in tasks]
    least = min(int(stream.train(task).y.unique(return_counts=True)[1].min()) for task in later)
    found = {str(k): least for k in asked.shots if k > least}
    if found:
        stderr.print(
            f"the smallest class has {least} training samples: with {' and '.join(found)} shots all samples "
            "of such a class are used, and AvgFwt is that of fewer shots",
            soft_wrap=True,
            markup=False,
        )
    return found


def plan_online(asked: Asked) -> Plan[Any]:
    """One pass."""
    from engram.protocols.online import online

    return online(
        asked.seeded(asked.scenario, asked.method),
        asked.fields,
        metric=asked.metric,
        on=asked.select_on,
        held_out=asked.held_out,
    )


def plan_queue(asked: Asked) -> Plan[Any]:
    """A long queue."""
    from engram.protocols.queue import queue

    return queue(asked.seeded(asked.scenario, asked.method), asked.fields, every=asked.report_every)


PLANS: dict[str, Callable[[Asked], Plan[Any]]] = {
    "grid": plan_grid,
    "causal": plan_causal,
    "forward-transfer": plan_forward_transfer,
    "online": plan_online,
    "queue": plan_queue,
}


def measured_often(experiment: Experiment, asked: Asked) -> Experiment:
    """The experiment, evaluated about ninety times a task, however long, unless somebody said how often."""
    if asked.measured:
        return experiment
    often = replace(experiment.evaluation, every=1, points=MEASURING_POINTS)
    return replace(experiment, evaluation=often)


def streams_of(scenario: str) -> list[str]:
    """The streams that a name stands for: all of a type of sequential learning task, or the one of that name.

    Example:
        >>> streams_of("slt-D9-1-mnist"), streams_of("split-digits")
        (['slt-D9-1a-mnist', 'slt-D9-1b-mnist', 'slt-D9-1c-mnist'], ['split-digits'])
    """
    from engram.scenarios import SLT_CODES

    of_type = re.fullmatch(r"slt-(D5-5|D9-1)-(.+)", scenario)
    if of_type is None:
        return [scenario]
    return [f"slt-{code}-{of_type[2]}" for code in SLT_CODES if code.startswith(of_type[1])]


def executor(
    out: Path, *, data: Path | None, device: str, jobs: int, plugin: Path | None, strict: bool = False
) -> Executor:
    """What runs experiments, one or several at a time, with progress on stderr."""
    from engram.executors.parallel import Parallel
    from engram.executors.serial import Serial

    def run_some(experiments: Sequence[Experiment]) -> Sequence[Result | Failure]:
        with progress_bar() as bar:
            if jobs == 1:
                follow = partial(_follow, bar)
                return Serial(out, data=data, device=device, strict=strict, follow=follow)(experiments)
            line = bar.add_task("runs", total=len({each.id for each in experiments}), news="")
            several = Parallel(
                out,
                jobs=jobs,
                data=data,
                device=device,
                plugin=plugin,
                strict=strict,
                ended=lambda row: bar.update(line, advance=1, news=row.experiment.label),
            )
            return several(experiments)

    return run_some


def making_way(execute: Executor, out: Path, *, again: bool) -> Executor:
    """The same executor; with `again` it runs anew what is there, which is kept until that is done."""
    met: set[str] = set()

    def run_some(experiments: Sequence[Experiment]) -> Sequence[Result | Failure]:
        before: dict[Path, Path] = {}
        try:
            for folder in [out / name for name in dict.fromkeys(each.id for each in experiments)]:
                if folder.name not in met and (aside := make_way(folder, again=again)) is not None:
                    before[folder] = aside
                met.add(folder.name)
            found = execute(experiments)
        except BaseException:
            for folder, aside in before.items():
                take_back(folder, aside)
            raise
        # Whatever came out now, be it a failure, is what this command found.
        for aside in before.values():
            shutil.rmtree(aside)
        return found

    return run_some


def noting(execute: Executor, failed: dict[str, Failure]) -> Executor:
    """The same executor, which notes the runs that failed by their ids."""
    from engram.protocols.drive import Failure

    def run_and_note(experiments: Sequence[Experiment]) -> Sequence[Result | Failure]:
        found = execute(experiments)
        for each in found:
            if isinstance(each, Failure):
                failed[each.experiment.id] = each
            else:
                failed.pop(each.experiment.id, None)
        return found

    return run_and_note


def report_failures(failed: Collection[Failure]) -> None:
    """Say which runs failed and why; exit with 1 if one did for a reason that is not in its fields."""
    for each in failed:
        stderr.print(f"failed: {each.experiment.id}: {each.reason}", soft_wrap=True, markup=False)
    if all(each.diverged for each in failed):
        return
    fail(
        f"{sum(not each.diverged for each in failed)} of the runs failed, and with them another choice "
        "might have been made: the same command tries them again",
        code=1,
    )


def _follow(bar: Bar, experiment: Experiment) -> Callable[[Progress], None]:
    for line in bar.task_ids:
        bar.update(line, visible=False)
    line = bar.add_task(f"{experiment.method} seed {experiment.seed}", total=None, news="")
    return Follower(bar, line)


def values_to_try(pairs: Sequence[str]) -> dict[str, list[str]]:
    """`FIELD=a,b,c` as it is typed; what is given twice for a field is tried once.

    Example:
        >>> values_to_try(["lr=.1,.01", "batch-size=10", "lr=.001,.1"])
        {'lr': ['.1', '.01', '.001'], 'batch_size': ['10']}
    """
    found: dict[str, list[str]] = {}
    for pair in pairs:
        name, sign, values = pair.partition("=")
        listed = [value.strip() for value in values.split(",") if value.strip()]
        if not sign or not name.strip() or not listed:
            raise InputError(f"--grid {pair!r} cannot be used: write FIELD=a,b,c")
        values_so_far = found.setdefault(name.strip().replace("-", "_"), [])
        values_so_far += [value for value in dict.fromkeys(listed) if value not in values_so_far]
    return found


def later_rates(text: str) -> tuple[float, ...]:
    """Learning rates with commas, as they are typed.

    Example:
        >>> later_rates(".01, 1e-3")
        (0.01, 0.001)
    """
    wrong = InputError(f"later-lr={text!r} cannot be used: give numbers with commas, or first")
    try:
        found = tuple(float(part) for part in text.split(",") if part.strip())
    except ValueError:
        raise wrong from None
    if not found:
        raise wrong
    return found


def whole_numbers(name: str, text: str) -> tuple[int, ...]:
    """Whole numbers with commas, as they are typed."""
    try:
        return tuple(int(part) for part in text.split(",") if part.strip())
    except ValueError:
        raise InputError(f"{name}={text!r} cannot be used: give whole numbers with commas, as 5,10") from None


def print_outcome(result: dict[str, Any]) -> None:
    """The candidates with their scores, the choice, the protocol's own numbers, and its card."""
    from rich.markup import escape
    from rich.table import Table

    from engram.cli.audit import print_card
    from engram.engine.card import Card

    for heading, rows in tables_of(result):
        table = Table(heading, box=None, header_style="bold")
        table.add_column("score", justify="right")
        failures = any(candidate["failures"] for _, candidate in rows)
        if failures:
            table.add_column("failed", overflow="fold")
        for where, candidate in rows:
            fields = " ".join(f"{key}={value}" for key, value in candidate["fields"].items()) or "as it is"
            why = ["; ".join(dict.fromkeys(candidate["failures"]))] if failures else []
            table.add_row(escape(f"{where}{fields}"), _shown(candidate["score"]), *map(escape, why))
        stdout.print(table)
    if "choice" in result:
        stdout.print(f"chosen: {_shown(result['choice'])}", soft_wrap=True, markup=False)
    for key in ("last", "baseline", "omega_all", "forgets", "tasks", "best", "worst", "final", "curves"):
        if key in result:
            found = result[key]
            if result["protocol"] == "queue" and key in ("best", "worst"):
                found = {**found["fields"], "averages": found["averages"]}
            stdout.print(f"{key}: {_shown(found)}", soft_wrap=True, markup=False)
    for name, found in result.get("methods", {result["method"]: result}).items():
        for key in TRANSFER_NUMBERS:
            if found.get(key) not in (None, {}):
                stdout.print(f"{name} {key}: {_shown(found[key])}", soft_wrap=True, markup=False)
    for key, by_shots in result.get("correlations", {}).items():
        for k, found in by_shots.items():
            if found["rho"] is not None:
                stdout.print(
                    f"Spearman's ρ of {key} and AvgFwt with {k} shots: {_shown(found['rho'])} "
                    f"(p = {_shown(found['p'])}, {found['n']} runs)",
                    soft_wrap=True,
                )
    if result["protocol"] == "grid":
        over = result["summary"][result["metric"]]
        stdout.print(f"{result['metric']} on test data: {_shown(over['mean'])} over {over['n']} seeds")
    for name, found in result.get("methods", {result["method"]: result}).items():
        if "card" in found:
            stdout.print(
                f"\nprotocol card of {name}, with what was chosen for it", style="bold", markup=False
            )
            print_card(Card.of_json(found["card"]))


def tables_of(result: dict[str, Any]) -> Iterator[tuple[str, list[tuple[str, dict[str, Any]]]]]:
    """What was tried: for each table its heading, and rows that say where (if that is not plain) and what.

    Example:
        >>> tried = {"fields": {"lr": 0.1}, "score": 0.9}
        >>> rates = [[{"fields": {"later_lr": 0.01}, "score": 0.8}]]
        >>> found = {"candidates": [{"stream": "mine", **tried}], "streams": {"mine": {"rates": rates}}}
        >>> [(heading, [where for where, _ in rows]) for heading, rows in tables_of(found)]
        [('candidate', ['mine: ']), ('rate of a later task', ['mine, task 2: '])]
    """
    tried = {"": result, **{f"{name}: ": found for name, found in result.get("methods", {}).items()}}
    candidates = [
        (f"{candidate['stream']}: " if "stream" in candidate else where, candidate)
        for where, found in tried.items()
        for candidate in found.get("candidates", [])
    ]
    if candidates:
        yield "candidate", candidates
    rates = [
        (f"{where}task {task}: ", candidate)
        for where, found in {
            "": result,
            **{f"{name}, ": found for name, found in result.get("streams", {}).items()},
        }.items()
        for task, tried_here in enumerate(found.get("rates", []), start=2)
        for candidate in tried_here
        if candidate["fields"] != {"later_lr": None}
    ]
    if rates:
        yield "rate of a later task", rates


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, dict):
        return " ".join(f"{key}={_shown(item)}" for key, item in value.items() if item != []) or "as it is"
    if isinstance(value, list):
        return ", ".join(_shown(item) for item in value)
    return "–" if value is None else str(value)
