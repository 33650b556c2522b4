"""What a command is about to do, in words: runs, updates, evaluations, and about how long it takes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from engram.cli.output import stderr
from engram.core.jsons import JsonMapping
from engram.core.words import counted, duration

if TYPE_CHECKING:
    from engram.record.experiment import Experiment

_LOOKED_AT = 20


@dataclass(frozen=True, slots=True)
class Forecast:
    """What runs will take.

    Attributes:
        runs: How many are to be run, finished ones not counted.
        finished: How many are finished already.
        updates: How many updates the runs make, in all.
        evaluations: How many evaluations they make, in all.
        seconds: About how long they take one after the other; None where that is not known.
        measured: Whether the time is judged by finished runs of the same kind, not by a formula.
        exact: Whether the numbers of updates and evaluations are known exactly.
    """

    runs: int
    finished: int
    updates: int
    evaluations: int
    seconds: float | None
    measured: bool
    exact: bool = True

    def text(self, *, jobs: int = 1) -> str:
        """The forecast in words.

        Args:
            jobs: Parallel runs.

        Example:
            >>> Forecast(5, 0, 11_250, 11_255, 40.0, measured=False).text()
            '11,250 updates, 11,255 evaluations, about 40 s (a rough estimate)'
            >>> Forecast(1, 2, 100, 101, 600.0, measured=True).text()
            '100 updates, 101 evaluations, about 10 min (as finished runs took); 2 runs are finished already'
            >>> Forecast(0, 1, 0, 0, 0.0, measured=True).text()
            'nothing: 1 run is finished already'
            >>> Forecast(1, 0, 45, 46, None, measured=False, exact=False).text()
            'about 45 updates, about 46 evaluations'
        """
        already = f"{counted(self.finished, 'run')} {'is' if self.finished == 1 else 'are'} finished already"
        if not self.runs:
            return f"nothing: {already}"
        about = "" if self.exact else "about "
        parts = [
            f"{about}{counted(self.updates, 'update')}",
            f"{about}{counted(self.evaluations, 'evaluation')}",
        ]
        if self.seconds is not None:
            how = "as finished runs took" if self.measured else "a rough estimate"
            parts.append(f"about {duration(self.seconds / min(jobs, self.runs))} ({how})")
        return ", ".join(parts) + (f"; {already}" if self.finished else "")


def forecast(experiments: Sequence[Experiment], out: Path | None = None, *, again: bool = False) -> Forecast:
    """What experiments will take, judged by finished runs in `out`, or else by a formula.

    Args:
        experiments: What is to be run.
        out: Where runs are kept; those that are finished are not run again.
        again: Whether these are run again, too.

    Example:
        >>> from engram.engine.recipe import experiment
        >>> plan = forecast([experiment("split-digits", "er", seed=seed) for seed in range(2)])
        >>> plan.runs, plan.updates, plan.evaluations, plan.measured
        (2, 900, 902, False)
    """
    from engram.core.files import is_file
    from engram.core.folder import RESULT

    left = [
        planned for planned in experiments if again or out is None or not is_file(out / planned.id / RESULT)
    ]
    times = [_measured_seconds(planned, out) if out is not None else None for planned in left]
    measured = bool(left) and all(seconds is not None for seconds in times)
    if not measured:
        times = [estimated_seconds(planned) for planned in left]
    return Forecast(
        runs=len(left),
        finished=len(experiments) - len(left),
        updates=sum(updates_of(planned) for planned in left),
        evaluations=sum(evaluations_of(planned) for planned in left),
        seconds=None if None in times else sum(seconds for seconds in times if seconds is not None),
        measured=measured,
        exact=all(_knows_updates(planned) for planned in left),
    )


def updates_of(planned: Experiment) -> int:
    """About how many updates a run makes, judged by the sizes of complete data sets."""
    from engram.papers.sizes import updates_of as judged_by_sizes

    return judged_by_sizes(planned)


def _knows_updates(planned: Experiment) -> bool:
    """Whether the number of updates is set, and does not follow from the sizes of the tasks."""
    phases = range(len(planned.scenario.phases))
    return all(planned.steps(1, phase=phase) == planned.steps(10**9, phase=phase) for phase in phases)


def evaluations_of(planned: Experiment) -> int:
    """About how many evaluations a run makes.

    Example:
        >>> from engram.engine.recipe import experiment
        >>> evaluations_of(experiment("split-digits", "er", updates=6, evaluation={"every": 4}))
        11
    """
    phases = len(planned.scenario.phases)
    updates = updates_of(planned) / phases
    # The end of a task is evaluated whatever the schedule says.
    per_phase = -(-updates // planned.evaluation.every_in(max(1, int(updates))))
    return int(phases * per_phase) + planned.evaluation.before


def estimated_seconds(planned: Experiment) -> float | None:
    """About how long a run takes on one core of this machine, by a formula; None where sizes are unknown.

    Counts the multiplications of the network, and nothing that a method does besides; it may well be wrong by
    a factor of two.
    """
    from engram.core.dataset_info import DATASETS
    from engram.papers.needs import OVERHEAD, operations, rate

    if planned.updates is None and not all(
        DATASETS[task.source.dataset].train for task in planned.scenario.tasks
    ):
        return None
    return operations(planned) * OVERHEAD / rate()


def _measured_seconds(planned: Experiment, out: Path) -> float | None:
    """How long a run takes, judged by finished runs that differ in seed or length alone."""
    from engram.core.files import read_json
    from engram.core.folder import EXPERIMENT, RESULT

    pattern = f"{planned.scenario.name}-{planned.scenario.setting.kind}-{planned.method}-s*"
    times = []
    for folder in sorted(out.glob(pattern))[:_LOOKED_AT]:
        if not (folder / RESULT).is_file() or not (folder / EXPERIMENT).is_file():
            continue
        if not _costs_the_same(read_json(folder / EXPERIMENT), planned):
            continue
        result = read_json(folder / RESULT)
        seconds = result["seconds"]
        times.append(
            updates_of(planned) * seconds["train"] / max(1, result["updates"])
            + evaluations_of(planned) * seconds["evaluate"] / max(1, result["evaluations"])
        )
    return sum(times) / len(times) if times else None


def _costs_the_same(written: JsonMapping, planned: Experiment) -> bool:
    """Whether updates and evaluations of a recorded run cost as much as those of a planned one."""
    from engram.core.folder import finite

    ours = finite(planned.as_json())
    same = all(written.get(key) == ours.get(key) for key in ("model", "batch_size", "settings", "augment"))
    fields = ("subset", "tasks", "losses", "gradients", "transfer")
    theirs = written.get("evaluation", {})
    return same and all(theirs.get(key) == ours["evaluation"].get(key) for key in fields)


def describe_run(
    experiments: Sequence[Experiment],
    out: Path | None = None,
    *,
    start: str = "",
    jobs: int = 1,
    chosen: JsonMapping | None = None,
    again: bool = False,
) -> dict[str, str]:
    """What `engram run` is about to do, defaults included, by short labels.

    Args:
        experiments: The experiment, once per seed.
        out: Where runs are kept.
        start: The weights that it starts from, in words.
        jobs: Parallel runs.
        chosen: The options that were set; those that change nothing are named.
        again: Whether finished runs are run again.

    Example:
        >>> from engram.engine.recipe import experiment
        >>> rows = describe_run([experiment("split-digits", "ewc", epochs=1, seed=seed) for seed in range(5)])
        >>> rows["training"], rows["evaluation"]
        ('sgd lr=0.05 momentum=0.8, batches of 32, 1 epoch',
         'every update, on all test samples of each task, about 71')
        >>> rows["seeds"], rows["scenario"]
        ('5 seeds, 0 to 4', 'split-digits, 5 tasks, class setting')
    """
    from engram.engine.describe import description
    from engram.engine.effects import without_effect

    idle = without_effect(experiments[0], chosen or {})
    rows = {
        **description(experiments[0]),
        "start": start,
        "seeds": _seeds([planned.seed for planned in experiments]),
        "no effect": "; ".join(f"{name}: {reason}" for name, reason in idle.items()),
        "to do": forecast(experiments, out, again=again).text(jobs=jobs),
    }
    return {label: text for label, text in rows.items() if text}


def print_description(rows: dict[str, str]) -> None:
    """Print what is about to be done on stderr."""
    for label, text in rows.items():
        stderr.print(f"{label:>10}  {text}", soft_wrap=True, markup=False)


def _seeds(seeds: Iterable[int]) -> str:
    ordered = sorted(seeds)
    if len(ordered) == 1:
        return f"1 seed, {ordered[0]}"
    if ordered == list(range(ordered[0], ordered[-1] + 1)):
        return f"{counted(len(ordered), 'seed')}, {ordered[0]} to {ordered[-1]}"
    return f"{counted(len(ordered), 'seed')}, {', '.join(map(str, ordered))}"
