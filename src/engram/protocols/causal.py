"""Causal model selection: nothing is chosen by looking at a task that has not come yet (004, Algorithm 1)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any, Literal

import numpy as np

from engram.core.errors import InputError, unknown_name
from engram.core.trace import Trace
from engram.engine.probing import balance_name
from engram.methods import traits_of
from engram.metrics.matrix import CF_THRESHOLDS, omega_all
from engram.protocols.candidates import Candidate, as_tried, best, combinations, grouped, table, varied
from engram.protocols.drive import Plan, finished
from engram.protocols.grid import SelectOn, judged, with_validation
from engram.protocols.selection import audited, selected
from engram.record.card import Selected
from engram.record.experiment import Experiment, PhaseSpec
from engram.record.failure import FailureKind
from engram.record.run import Run
from engram.scenarios import joint

LATER_RATES = (1e-3, 1e-4, 1e-5)
"""The learning rates that 004 tries for the second task."""

_SLT_NAME = re.compile(rf"slt-({'|'.join(CF_THRESHOLDS)})[a-h]?-")

ChooseBy = Literal["new", "union"]
Start = Literal["last", "best"]


@dataclass(frozen=True, slots=True)
class Quality:
    """What one run of the choice leaves of the stream.

    Attributes:
        run: The run's id.
        best: The highest accuracy on all tasks together while the last one was learned; for methods that
            merge networks, the highest over their balance at the end.
        last: The accuracy on all tasks together at the end.
        baseline: The highest accuracy on all tasks together when they are learned together; where that
            diverges, until then.
        so_far: The highest accuracy on all tasks so far, for each task from the second on.
        threshold: Below which best accuracy the stream counts as forgotten.
        balances: The balance of merged networks and their accuracy on all tasks; for IMM alone.
    """

    run: str
    best: float
    last: float
    baseline: float
    so_far: tuple[float, ...]
    threshold: float
    balances: tuple[tuple[float, float], ...] = ()

    @property
    def omega_all(self) -> float:
        """The highest accuracies after each task from the second on, relative to the baseline, averaged."""
        return omega_all(self.so_far, self.baseline)

    def as_json(self) -> dict[str, Any]:
        """Everything."""
        return {**asdict(self), "omega_all": self.omega_all}


@dataclass(frozen=True, slots=True)
class CausalOutcome:
    """What causal selection found on one stream; numbers are means over seeds, of which 004 has one.

    Attributes:
        candidates: All that were tried on the first task, with their scores there.
        chosen: The place of the best.
        rates: For each later task, the learning rates that were tried, with their scores.
        chosen_rates: The one chosen for each later task; None where none were tried.
        runs: What the choice leaves, one a seed.
        choices: What each choice read.
        ended: These runs themselves.
    """

    candidates: tuple[Candidate, ...]
    chosen: int
    rates: tuple[tuple[Candidate, ...], ...]
    chosen_rates: tuple[float | None, ...]
    runs: tuple[Quality, ...]
    choices: tuple[Selected, ...] = ()
    ended: tuple[Run, ...] = ()

    @property
    def best(self) -> float:
        """The highest accuracy on all tasks together while the last one was learned."""
        return float(np.mean([run.best for run in self.runs]))

    @property
    def last(self) -> float:
        """The accuracy on all tasks together at the end."""
        return float(np.mean([run.last for run in self.runs]))

    @property
    def baseline(self) -> float:
        """The highest accuracy when all tasks are learned together."""
        return float(np.mean([run.baseline for run in self.runs]))

    @property
    def omega_all(self) -> float:
        """What is left, relative to the baseline."""
        return float(np.mean([run.omega_all for run in self.runs]))

    @property
    def forgets(self) -> bool:
        """The flag for catastrophic forgetting."""
        return self.best < self.runs[0].threshold

    @property
    def choice(self) -> dict[str, Any]:
        """The fields of the best candidate, and the learning rates of the later tasks."""
        return {**self.candidates[self.chosen].fields, "later_lr": list(self.chosen_rates)}

    def as_json(self) -> dict[str, Any]:
        """Everything, for a file or for people who compare."""
        return {
            "candidates": [candidate.as_json() for candidate in self.candidates],
            "rates": [[candidate.as_json() for candidate in tried] for tried in self.rates],
            "choice": self.choice,
            "best": self.best,
            "last": self.last,
            "baseline": self.baseline,
            "omega_all": self.omega_all,
            "forgets": self.forgets,
            "runs": [run.as_json() for run in self.runs],
            **audited(self.ended, self.choices),
        }


@dataclass(frozen=True, slots=True)
class CausalOptions:
    """How the places are read in which 004's algorithm, text and code differ.

    Attributes:
        later_rates: Learning rates to try for each later task; none keeps the first task's, as the code does
            for IMM.
        choose_by: A later task's rate is chosen by its accuracy on that `new` task (algorithm and code), or
            on the `union` of all tasks so far (text).
        start: A later task goes on from the `last` weights of the one before (code), or from its `best` ones
            over time (paper): it is then learned only up to its best evaluation.
        on: Choose on `test` data (published), or on `validation` data.
        held_out: The share of training samples for validation, unless the scenario says it.
        tie_strength: Let the method's `strength` follow the rate of the second task as in 004's EWC,
            λ = 1/ε with a factor ½ in front of the sum.
    """

    later_rates: tuple[float, ...] = LATER_RATES
    choose_by: ChooseBy = "new"
    start: Start = "last"
    on: SelectOn = "test"
    held_out: float = 0.2
    tie_strength: bool = False

    def __post_init__(self) -> None:
        for name, value, known in (
            ("way to choose a rate", self.choose_by, ("new", "union")),
            ("start", self.start, ("last", "best")),
            ("data to select on", self.on, ("test", "validation")),
        ):
            if value not in known:
                raise unknown_name(name, value, known)


def causal(
    bases: Sequence[Experiment],
    fields: Mapping[str, Sequence[Any]],
    *,
    options: CausalOptions | None = None,
) -> Plan[CausalOutcome]:
    """Choose fields on the first task, each later learning rate on its own task, and see what is left.

    1. Every combination of fields learns the first task; its score is the highest accuracy there over time.
    2. The best goes on. For each later task in turn every rate learns it, after the tasks before; the rate
       with the highest accuracy over time (on what, `options.choose_by` says) is chosen.
    3. The choice learns the whole stream: `best` and `last` are the highest and the last accuracy on all
       tasks together, samples pooled, while the last task is learned. It also learns all tasks at once at its
       first rate: the highest accuracy is the baseline, also where that run diverges later. Ω_all relates
       the two.

    With two tasks and one seed this is 004's Algorithm 1; Ω_all with more tasks is the mean over tasks
    (Kemker et al.), and several seeds choose by their mean scores. A task is learned again, to the same bits,
    wherever the algorithm would load its weights. For methods that merge networks (IMM), `best` is the
    highest point over the balance at the end. The network has the output units of all tasks from the start.

    A stream counts as forgotten where `best` is below what knowing either the earlier tasks or the last one
    alone would give; the sequential learning tasks of 004 have its own limits.

    Args:
        bases: The stream, the method and everything that is not chosen, with each seed; how often it is
            evaluated decides what "over time" means (004: about 90 times a task).
        fields: For each field the values to try, `lr` being the rate of the first task.
        options: How the paper's ambiguities are read.

    Example:
        >>> from engram.protocols.drive import drive
        >>> from engram.engine.recipe import experiment
        >>> from engram.record.tables import Tables
        >>> def made_up(experiments):
        ...     found = []
        ...     for each in experiments:
        ...         trace = Trace()
        ...         for step, tasks in enumerate(each.scenario.phases, start=1):
        ...             for task in range(max(tasks) + 1):
        ...                 right = np.arange(10) < (9 if task in tasks else 3)
        ...                 trace.add(step=step, learning=tasks[-1], task=task, right=right)
        ...         found.append(Run(planned=each, tables=Tables(trace)))
        ...     return found
        >>> plan = causal([experiment("slt-D5-5a-mnist", "finetune")], {"lr": [0.01, 0.001]})
        >>> outcome = drive(plan, made_up)
        >>> outcome.best, outcome.baseline, round(outcome.omega_all, 3), outcome.forgets
        (0.6, 0.9, 0.667, False)
    """
    how = options or CausalOptions()
    _check(bases, how)
    if how.on == "validation":
        bases = [with_validation(base, how.held_out) for base in bases]
    chosen = yield from _choose_fields(bases, fields, how)
    for phase in range(1, len(bases[0].scenario.phases)):
        yield from _choose_rate(chosen, phase, how)
    return (yield from _learn_all(chosen, how))


@dataclass(slots=True)
class _Chosen:
    """What is chosen so far.

    Attributes:
        candidates: All that were tried on the first task, with their scores there.
        place: The place of the best.
        winners: The best with each seed.
        stops: For each seed, after how many updates each task is stopped; None where it is not.
        stopped: What the choices of these updates read.
        rates: For each later task, the learning rates that were tried, with their scores.
        chosen_rates: The one chosen for each later task; None where none were tried.
    """

    candidates: tuple[Candidate, ...]
    place: int
    winners: Sequence[Experiment]
    stops: list[list[int | None]]
    stopped: tuple[Selected, ...]
    rates: list[tuple[Candidate, ...]] = field(default_factory=list)
    chosen_rates: list[float | None] = field(default_factory=list)

    @property
    def phases(self) -> tuple[tuple[int, ...], ...]:
        """The tasks of each phase of the whole stream."""
        return self.winners[0].scenario.phases


def _choose_fields(
    bases: Sequence[Experiment], fields: Mapping[str, Sequence[Any]], how: CausalOptions
) -> Plan[_Chosen]:
    """Every combination of fields learns the first task."""
    tried = [[varied(base, values) for base in bases] for values in combinations(fields)]
    _check_later(tried[0][0], how)
    runs = yield [judged(first_phases(planned, 1), how.on) for row in tried for planned in row]
    by_candidate = grouped(runs, len(bases))
    score = partial(_height, phase=0, tasks=bases[0].scenario.phases[0])
    candidates = table([as_tried(row[0], fields) for row in tried], by_candidate, score)
    place = best(candidates)
    return _Chosen(
        candidates,
        place,
        winners=tried[place],
        stops=[[_stop(finished(run), 0, how)] for run in by_candidate[place]],
        stopped=_stopping(finished(by_candidate[place][0]), 0, how),
    )


def _choose_rate(chosen: _Chosen, phase: int, how: CausalOptions) -> Plan[None]:
    """Every rate learns a later task, after the tasks before it."""
    phases = chosen.phases
    tried: tuple[float | None, ...] = how.later_rates or (None,)
    runs = yield [
        judged(_retrained(first_phases(winner, phase + 1), [*chosen.chosen_rates, rate], stop, how), how.on)
        for rate in tried
        for winner, stop in zip(chosen.winners, chosen.stops, strict=True)
    ]
    by_rate = grouped(runs, len(chosen.winners))
    tasks = phases[phase] if how.choose_by == "new" else _so_far(phases, phase)
    score = partial(_height, phase=phase, tasks=tasks)
    rates = table([{"later_lr": rate} for rate in tried], by_rate, score)
    place = best(rates)
    chosen.rates.append(rates)
    chosen.chosen_rates.append(tried[place])
    for stop, run in zip(chosen.stops, by_rate[place], strict=True):
        stop.append(_stop(finished(run), phase, how))
    if phase < len(phases) - 1:
        chosen.stopped += _stopping(finished(by_rate[place][0]), phase, how)


def _learn_all(chosen: _Chosen, how: CausalOptions) -> Plan[CausalOutcome]:
    """The choice learns the whole stream, and all tasks at once."""
    final = [
        _retrained(winner, chosen.chosen_rates, stop[:-1], how)
        for winner, stop in zip(chosen.winners, chosen.stops, strict=True)
    ]
    if traits_of(final[0].method).merges:
        final = [replace(planned, evaluation=replace(planned.evaluation, balances=True)) for planned in final]
    together = [replace(winner, scenario=joint(winner.scenario)) for winner in chosen.winners]
    runs = yield [*final, *together]
    whole, joined = grouped(runs, len(final))
    qualities = tuple(_quality(finished(a), b) for a, b in zip(whole, joined, strict=True))
    return CausalOutcome(
        chosen.candidates,
        chosen.place,
        tuple(chosen.rates),
        tuple(chosen.chosen_rates),
        qualities,
        _choices(chosen, qualities[0]),
        tuple(finished(run) for run in whole),
    )


def _choices(chosen: _Chosen, quality: Quality) -> tuple[Selected, ...]:
    """What each choice read."""
    choices = selected("fields", chosen.candidates, phases=chosen.phases) + chosen.stopped
    for phase, tried in enumerate(chosen.rates, start=1):
        choices += selected(f"the rate of task {phase + 1}", tried, phases=chosen.phases, since=phase)
    if quality.balances:
        # The balance of merged networks is read off when all tasks have come.
        choices += (Selected("the balance", len(quality.balances), ("test",), later=False),)
    return choices


@dataclass(frozen=True, slots=True)
class WorstOutcome:
    """The lowest values over several streams of one type, as 004's tables give them.

    Attributes:
        outcomes: What was found on each stream.
    """

    outcomes: dict[str, CausalOutcome]

    @property
    def best(self) -> float:
        """The lowest of the best accuracies."""
        return min(outcome.best for outcome in self.outcomes.values())

    @property
    def last(self) -> float:
        """The lowest of the last accuracies, perhaps of another stream."""
        return min(outcome.last for outcome in self.outcomes.values())

    @property
    def forgets(self) -> bool:
        """Whether any of them was forgotten."""
        return any(outcome.forgets for outcome in self.outcomes.values())

    def as_json(self) -> dict[str, Any]:
        """The lowest values, and everything that was found on each stream."""
        worst = min(self.outcomes.values(), key=lambda outcome: outcome.best)
        ended = [run for outcome in self.outcomes.values() for run in outcome.ended]
        choices = [choice for outcome in self.outcomes.values() for choice in outcome.choices]
        return {
            "best": self.best,
            "last": self.last,
            "baseline": worst.baseline,
            "omega_all": min(outcome.omega_all for outcome in self.outcomes.values()),
            "forgets": self.forgets,
            "choice": {name: outcome.choice for name, outcome in self.outcomes.items()},
            "candidates": [
                {"stream": name, **candidate.as_json()}
                for name, outcome in self.outcomes.items()
                for candidate in outcome.candidates
            ],
            "streams": {name: outcome.as_json() for name, outcome in self.outcomes.items()},
            **audited(ended, choices),
        }


def worst_of(
    bases: Mapping[str, Sequence[Experiment]],
    fields: Mapping[str, Sequence[Any]],
    *,
    options: CausalOptions | None = None,
) -> Plan[WorstOutcome]:
    """Causal selection on each of several streams, and the lowest values over them.

    004's tables hold the minimum over the streams of a type (eight for D5-5, three for D9-1), separately for
    best and last.

    Args:
        bases: The experiment with each seed on each stream, by the stream's name.
        fields: As for `causal`.
        options: As for `causal`.
    """
    outcomes = {}
    for name, seeded in bases.items():
        outcomes[name] = yield from causal(seeded, fields, options=options)
    return WorstOutcome(outcomes)


def first_phases(experiment: Experiment, n: int) -> Experiment:
    """The same experiment, ended after `n` phases; the network is the same, to the bit, up to there."""
    scenario = experiment.scenario
    return replace(experiment, scenario=replace(scenario, phases=scenario.phases[:n]))


def union_accuracy(trace: Trace, *, learning: int, tasks: Sequence[int]) -> list[tuple[int, float]]:
    """The accuracy on several tasks together, samples pooled, at each evaluation while one is learned.

    Evaluations in which one of the tasks was not asked are left out, and so is the one before any update.

    Args:
        trace: What was answered correctly.
        learning: The task being learned.
        tasks: The tasks that are asked.

    Returns:
        Updates done and accuracy, evaluation by evaluation.

    Example:
        >>> trace = Trace()
        >>> trace.add(step=5, learning=1, task=0, right=np.array([True, False, False]))
        >>> trace.add(step=5, learning=1, task=1, right=np.array([True]))
        >>> union_accuracy(trace, learning=1, tasks=(0, 1))
        [(5, 0.5)]
    """
    asked: dict[int, dict[int, tuple[int, int]]] = {}
    rows = zip(trace.step, trace.learning, trace.task, trace.correct, trace.total, strict=True)
    for step, current, task, correct, total in rows:
        if current == learning and task in tasks and step > 0:
            asked.setdefault(step, {})[task] = correct, total
    return [
        (step, sum(right for right, _ in found.values()) / sum(total for _, total in found.values()))
        for step, found in asked.items()
        if len(found) == len(set(tasks))
    ]


def forgetting_threshold(scenario: str, sizes: Sequence[int]) -> float:
    """Below which accuracy on all tasks a stream counts as forgotten.

    For the sequential learning tasks of 004 it is the paper's limit (.5, and .9 for D9-1). For others it is
    what the paper's limits are for those: the larger of the last task's share of all samples and that of the
    tasks before, which knowing only one of the two would give.

    Args:
        scenario: The stream's name.
        sizes: Test samples of each task, in the order in which they are learned.

    Example:
        >>> forgetting_threshold("slt-D9-1b-mnist", [9020, 980]), forgetting_threshold("mine", [30, 70])
        (0.9, 0.7)
    """
    named = _SLT_NAME.match(scenario)
    if named is not None:
        return CF_THRESHOLDS[named[1]]
    share = sizes[-1] / sum(sizes)
    return max(share, 1 - share)


def _retrained(
    experiment: Experiment, rates: Sequence[float | None], stops: Sequence[int | None], how: CausalOptions
) -> Experiment:
    """With a learning rate for each task but the first, each but the last stopped at its best."""
    by_phase = tuple(
        PhaseSpec(lr=rate, updates=stop) for rate, stop in zip((None, *rates), (*stops, None), strict=True)
    )
    if not any(phase.lr is not None or phase.updates is not None for phase in by_phase):
        by_phase = ()
    changed = replace(experiment, by_phase=by_phase)
    rate = rates[0]
    if how.tie_strength and rate is not None:
        changed = varied(changed, {"strength": 1 / (2 * rate)})
    return changed


def _check(bases: Sequence[Experiment], how: CausalOptions) -> None:
    if not bases:
        raise InputError("causal selection needs an experiment: give one a seed")
    scenario = bases[0].scenario
    if len(scenario.phases) < 2:
        raise InputError(f"causal selection needs two tasks or more, and {scenario.name} has one")
    if how.tie_strength and (len(scenario.phases) > 2 or not how.later_rates):
        raise InputError(
            "a strength that follows the rate of the second task needs two tasks, and rates for the second"
        )
    if how.start == "best" and bases[0].evaluation.per_epoch:
        raise InputError(
            "the best weights over time cannot be told where evaluations are counted within epochs: "
            "leave per_epoch out"
        )


def _check_later(first: Experiment, how: CausalOptions) -> None:
    """Refuse what would be wrong with every later task, before the first one is learned."""
    from engram.engine.check import complete

    if how.later_rates and not traits_of(first.method).learner:
        raise InputError(
            f"method {first.method} has one learning rate for all tasks: try none for later tasks "
            "(on the command line: --later-lr first)"
        )
    for rate in how.later_rates:
        complete(_retrained(first_phases(first, 2), [rate], [None], how))


def _height(result: Run, *, phase: int, tasks: Sequence[int]) -> float:
    return _highest(result, phase, tasks)[1]


def _highest(result: Run, phase: int, tasks: Sequence[int]) -> tuple[int, float]:
    """The step and the height of the highest accuracy on some tasks while a phase is learned."""
    learning = result.experiment.scenario.phases[phase][-1]
    points = union_accuracy(result.trace, learning=learning, tasks=tasks)
    if not points:
        raise InputError(
            f"the run {result.experiment.id} was not evaluated while it learned phase {phase + 1}"
        )
    return max(points, key=lambda point: (point[1], -point[0]))


def _stop(result: Run, phase: int, how: CausalOptions) -> int | None:
    """After how many updates of its own a phase is at its best; None where it is learned to its end."""
    if how.start == "last":
        return None
    phases = result.experiment.scenario.phases
    step, _ = _highest(result, phase, phases[phase])
    before = [
        number
        for number, learning in zip(result.trace.step, result.trace.learning, strict=True)
        if phase > 0 and learning == phases[phase - 1][-1]
    ]
    return step - max(before, default=0)


def _stopping(result: Run, phase: int, how: CausalOptions) -> tuple[Selected, ...]:
    """What the choice of where a phase ends read; nothing where it is learned to its end."""
    if how.start == "last":
        return ()
    tasks = result.experiment.scenario.phases[phase]
    points = union_accuracy(result.trace, learning=tasks[-1], tasks=tasks)
    if len(points) < 2:
        return ()
    return (Selected(f"where task {phase + 1} stops", len(points), (how.on,), later=False),)


def _so_far(phases: Sequence[Sequence[int]], phase: int) -> tuple[int, ...]:
    return tuple(dict.fromkeys(task for tasks in phases[: phase + 1] for task in tasks))


def _quality(whole: Run, together: Run) -> Quality:
    scenario = whole.experiment.scenario
    last = len(scenario.phases) - 1
    everything = _so_far(scenario.phases, last)
    points = union_accuracy(whole.trace, learning=scenario.phases[last][-1], tasks=everything)
    so_far = [
        _height(whole, phase=phase, tasks=_so_far(scenario.phases, phase)) for phase in range(1, last + 1)
    ]
    balances = tuple(
        (percent / 100, value)
        for percent in range(101)
        for value in whole.reading(balance_name(percent / 100)).values()
    )
    if balances:
        so_far[-1] = max(value for _, value in balances)
    sizes = dict(zip(whole.trace.task, whole.trace.total, strict=True))
    return Quality(
        run=whole.experiment.id,
        best=so_far[-1],
        last=points[-1][1],
        baseline=_baseline(together, everything),
        so_far=tuple(so_far),
        threshold=forgetting_threshold(scenario.name, [sizes[task] for task in everything]),
        balances=balances,
    )


def _baseline(together: Run, tasks: Sequence[int]) -> float:
    """The highest accuracy of all tasks learned at once; of a run that diverged, what it reached before."""
    failure = together.failure
    if failure is not None and not (failure.kind is FailureKind.DIVERGED and any(together.trace.step)):
        finished(together)
    return _height(together, phase=0, tasks=tasks)
