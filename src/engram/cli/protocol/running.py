"""How a protocol's plan is carried out: the executor, runs that are made again, and runs that fail."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engram.cli.output import fail, stderr
from engram.cli.run import Follower, progress_bar
from engram.cli.run import make_way as set_aside
from engram.cli.run import take_back as restore

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

    from engram.cli.protocol.request import ProtocolRequest
    from engram.engine.experiment import Experiment
    from engram.engine.loop import Progress
    from engram.protocols.drive import Executor, Failure, Plan, Result


@dataclass(frozen=True, slots=True)
class Conclusion:
    """What a plan came to.

    Attributes:
        result: What the protocol found, as JSON.
        failures: The runs that failed and were not run again with success.
    """

    result: dict[str, Any]
    failures: tuple[Failure, ...]


def carry_out(request: ProtocolRequest, plan: Plan[Any]) -> Conclusion:
    """Run a plan to its end, and record its choices beside the runs that it chose."""
    from engram.core.folder import finite
    from engram.protocols.drive import drive
    from engram.protocols.selection import record_choices

    failures: dict[str, Failure] = {}
    out = request.options.out
    execute = noting_failures(again_at_most_once(executor(request), out, request.options.again), failures)
    outcome = drive(plan, execute)
    names = {"protocol": request.protocol, "scenario": request.scenario, "method": request.method}
    result = finite({**names, **outcome.as_json()})
    record_choices(result, out)
    return Conclusion(result, tuple(failures.values()))


def executor(request: ProtocolRequest) -> Executor:
    """What runs experiments, one or several at a time, with progress on stderr."""
    from engram.executors.parallel import Parallel
    from engram.executors.serial import Serial

    options = request.options

    def run_some(experiments: Sequence[Experiment]) -> Sequence[Result | Failure]:
        with progress_bar() as bar:
            if request.jobs == 1:
                serial = Serial(
                    options.out,
                    data=options.data,
                    device=options.device,
                    strict=options.strict,
                    follow=partial(_follow, bar),
                )
                return serial(experiments)
            line = bar.add_task("runs", total=len({planned.id for planned in experiments}), news="")
            parallel = Parallel(
                options.out,
                jobs=request.jobs,
                data=options.data,
                device=options.device,
                plugin=options.plugin,
                strict=options.strict,
                ended=lambda row: bar.update(line, advance=1, news=row.experiment.label),
            )
            return parallel(experiments)

    return run_some


def again_at_most_once(execute: Executor, out: Path, again: bool) -> Executor:
    """The same executor; with `again` it repeats runs that exist, which are kept until that is done.

    A plan may ask for the same run several times: it is repeated once.
    """
    met: set[str] = set()

    def run_some(experiments: Sequence[Experiment]) -> Sequence[Result | Failure]:
        before: dict[Path, Path] = {}
        try:
            for name in dict.fromkeys(planned.id for planned in experiments):
                folder = out / name
                if name not in met and (aside := set_aside(folder, again=again)) is not None:
                    before[folder] = aside
                met.add(name)
            results = execute(experiments)
        except BaseException:
            for folder, aside in before.items():
                restore(folder, aside)
            raise
        # Whatever came out now, even a failure, is what this command has to report.
        for aside in before.values():
            shutil.rmtree(aside)
        return results

    return run_some


def noting_failures(execute: Executor, failures: dict[str, Failure]) -> Executor:
    """The same executor, which notes the runs that failed by their ids."""
    from engram.protocols.drive import Failure

    def run_and_note(experiments: Sequence[Experiment]) -> Sequence[Result | Failure]:
        results = execute(experiments)
        for result in results:
            if isinstance(result, Failure):
                failures[result.experiment.id] = result
            else:
                failures.pop(result.experiment.id, None)
        return results

    return run_and_note


def report_failures(failures: Collection[Failure]) -> None:
    """Print which runs failed and why; exit with 1 if one failed for another reason than divergence.

    That a run diverges says something about its fields, which are then not chosen.
    """
    for failure in failures:
        stderr.print(f"failed: {failure.experiment.id}: {failure.reason}", soft_wrap=True, markup=False)
    others = sum(not failure.diverged for failure in failures)
    if others:
        runs = "1 run failed" if others == 1 else f"{others} runs failed"
        fail(
            f"{runs}, which may have changed the choice: run the same command again to retry",
            code=1,
        )


def _follow(bar: Bar, experiment: Experiment) -> Callable[[Progress], None]:
    for line in bar.task_ids:
        bar.update(line, visible=False)
    line = bar.add_task(f"{experiment.method} seed {experiment.seed}", total=None, news="")
    return Follower(bar, line)
