"""How a protocol's plan is carried out: the executor, runs that are repeated, and runs that fail."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from engram.cli.output import fail, stderr
from engram.core.jsons import JsonObject
from engram.core.leases import Held
from engram.record.aside import forget, restore, set_aside
from engram.record.failure import FailureKind

if TYPE_CHECKING:
    from engram.cli.protocol.request import ProtocolRequest
    from engram.executors import Execute
    from engram.protocols.drive import Plan
    from engram.record.experiment import Experiment
    from engram.record.run import Run


class Outcome(Protocol):
    """What a plan returns."""

    def as_json(self) -> JsonObject:
        """The outcome as JSON."""


@dataclass(frozen=True, slots=True)
class Conclusion:
    """The result of a plan.

    Attributes:
        result: The result of the protocol, as JSON.
        failures: The runs that failed and were not run again with success.
    """

    result: JsonObject
    failures: tuple[Run, ...]


def carry_out(request: ProtocolRequest, plan: Plan[Outcome]) -> Conclusion:
    """Run a plan to its end, and record its choices beside the runs that it chose."""
    from engram.core.folder import finite
    from engram.protocols.drive import drive
    from engram.protocols.selection import record_choices

    failures: dict[str, Run] = {}
    out = request.options.out
    execute = noting_failures(again_at_most_once(executor(request), out, request.options.again), failures)
    outcome = drive(plan, execute)
    names = {"protocol": request.protocol, "scenario": request.scenario, "method": request.method}
    result = finite({**names, **outcome.as_json()})
    record_choices(result, out)
    return Conclusion(result, tuple(failures.values()))


def executor(request: ProtocolRequest) -> Execute:
    """What runs experiments, one or several at a time, with progress on stderr."""
    from engram.cli.progress import ProgressDisplay
    from engram.executors import executor_for

    where = replace(request.options.where(), jobs=request.jobs)
    trackers = request.options.trackers()

    def run_some(experiments: Sequence[Experiment]) -> Sequence[Run]:
        runs = len({planned.id for planned in experiments})
        with ProgressDisplay(runs, name_failures=False) as display:
            return executor_for(where, [display, *trackers], machines=request.machines)(experiments)

    return run_some


def again_at_most_once(execute: Execute, out: Path, again: bool) -> Execute:
    """The same executor; with `again` it repeats runs that exist, which are kept until that is done.

    They are restored unless the new ones finish, or fail as they always would. A plan may ask for the same
    run several times: it is repeated once.
    """
    met: set[str] = set()

    def run_some(experiments: Sequence[Experiment]) -> Sequence[Run]:
        before: set[str] = set()
        try:
            for name in dict.fromkeys(planned.id for planned in experiments):
                # What another process is running now is new anyway.
                with suppress(Held):
                    if name not in met and set_aside(out / name, again=again):
                        before.add(name)
                met.add(name)
            results = execute(experiments)
        except BaseException:
            for name in before:
                restore(out / name)
            raise
        for run in results:
            if run.id not in before:
                continue
            before.discard(run.id)
            if run.finished or (run.failure is not None and run.failure.final):
                forget(out / run.id)
            else:
                # A process that was killed, for example, says nothing about the run: what was there stays.
                restore(out / run.id)
                met.discard(run.id)
        return results

    return run_some


def noting_failures(execute: Execute, failures: dict[str, Run]) -> Execute:
    """The same executor, which notes the runs that failed by their ids."""

    def run_and_note(experiments: Sequence[Experiment]) -> Sequence[Run]:
        runs = execute(experiments)
        for run in runs:
            if run.failure is not None:
                failures[run.id] = run
            else:
                failures.pop(run.id, None)
        return runs

    return run_and_note


def report_failures(failed: Collection[Run]) -> None:
    """Print which runs failed and why; exit with 1 if one failed for another reason than divergence.

    That a run diverges says something about its fields, which are then not chosen.
    """
    others = 0
    for run in failed:
        assert run.failure is not None
        stderr.print(f"failed: {run.id}: {run.failure.reason}", soft_wrap=True, markup=False)
        others += run.failure.kind is not FailureKind.DIVERGED
    if others:
        runs = "1 run failed" if others == 1 else f"{others} runs failed"
        fail(
            f"{runs}, which may have changed the choice: run the same command again to retry",
            code=1,
        )
