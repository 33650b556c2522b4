"""Causal model selection: no choice looks at later tasks (Pfülb & Gepperth, 2019, Algorithm 1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Literal

import numpy as np

from engram.core.errors import InputError, unknown_name
from engram.core.jsons import JsonObject
from engram.engine.probing import balance_name
from engram.methods import METHODS, traits_of
from engram.metrics.joint import omega_all
from engram.protocols.candidates import Candidate, Grid, as_tried, best, combinations, grouped, table, varied
from engram.protocols.drive import Plan, finished
from engram.protocols.grid import SelectOn, judged, with_validation
from engram.protocols.pooled import forgetting_threshold, union_accuracy
from engram.protocols.selection import audited, selected
from engram.record.card import Selected
from engram.record.experiment import Experiment, PhaseSpec
from engram.record.failure import FailureKind
from engram.record.run import Run
from engram.scenarios import joint

LATER_RATES = (1e-3, 1e-4, 1e-5)
"""The learning rates that Pfülb & Gepperth (2019) try for the second task."""

ChooseBy = Literal["new", "union"]
StartFrom = Literal["last", "best"]


@dataclass(frozen=True, slots=True)
class Quality:
    """The quality of one run of the choice.

    Attributes:
        run: The run's id.
        best: The highest accuracy on all tasks together while the last one was learned; for methods that
            merge networks, the highest over their balance at the end.
        last: The accuracy on all tasks together at the end.
        baseline: The highest accuracy on all tasks together when they are learned together; if that run
            diverges, the highest before.
        so_far: The highest accuracy on all tasks so far, for each task from the second on.
        threshold: The stream counts as forgotten if `best` is below this accuracy.
        balances: The balances of merged networks and their accuracy on all tasks; only for IMM.
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

    def as_json(self) -> JsonObject:
        """All fields, and Ω_all."""
        return {**asdict(self), "omega_all": self.omega_all}


@dataclass(frozen=True, slots=True)
class CausalOutcome:
    """The outcome of causal selection on one stream; numbers are means over seeds (the paper uses one).

    Attributes:
        candidates: All that were tried on the first task, with their scores there.
        chosen: The index of the best.
        rates: For each later task, the learning rates that were tried, with their scores.
        chosen_rates: The one chosen for each later task; None if none were tried.
        runs: The quality of the choice, one per seed.
        choices: The data that each choice read.
        ended: The final runs themselves.
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
        """The highest accuracies relative to the baseline, averaged over tasks."""
        return float(np.mean([run.omega_all for run in self.runs]))

    @property
    def forgets(self) -> bool:
        """Whether the stream counts as forgotten (catastrophic forgetting)."""
        return self.best < self.runs[0].threshold

    @property
    def choice(self) -> JsonObject:
        """The fields of the best candidate, and the learning rates of the later tasks."""
        return {**self.candidates[self.chosen].fields, "later_lr": list(self.chosen_rates)}

    def as_json(self) -> JsonObject:
        """All candidates, choices, qualities and runs."""
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
    """Options for where the algorithm, the text and the code of Pfülb & Gepperth (2019) differ.

    Attributes:
        later_rates: Learning rates to try for each later task; if empty, the first task's rate is kept, as
            the code does for IMM.
        choose_by: A later task's rate is chosen by the accuracy on that `new` task (algorithm and code), or
            on the `union` of all tasks so far (text).
        start: A later task starts from the `last` weights of the previous one (code), or from its `best`
            weights over time (paper): the previous task is then learned again, as it was, up to its best
            evaluation.
        on: Choose on `test` data (as published), or on `validation` data.
        held_out: The share of training samples used for validation, if the scenario does not set one.
        tie_strength: Let the method's `strength` follow the rate of the second task, as in the paper's EWC:
            λ = 1/ε with a factor ½ in front of the sum.
    """

    later_rates: tuple[float, ...] = LATER_RATES
    choose_by: ChooseBy = "new"
    start: StartFrom = "last"
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
    fields: Grid,
    *,
    options: CausalOptions | None = None,
) -> Plan[CausalOutcome]:
    """Choose fields on the first task and each later learning rate on its own task, then learn the stream.

    1. Every combination of fields learns the first task; its score is the highest accuracy there over time.
    2. The best one continues. Each later task in turn is learned with every rate, after the tasks before; the
       rate with the highest accuracy over time (on the tasks that `options.choose_by` names) is chosen.
    3. The choice learns the whole stream: `best` and `last` are the highest and the last accuracy on all
       tasks together, samples pooled, while the last task is learned. It also learns all tasks jointly at its
       first rate: the highest accuracy is the baseline, even if that run diverges later. Ω_all is relative to
       the baseline.

    With two tasks and one seed this is Algorithm 1 of Pfülb & Gepperth (2019); with more tasks, Ω_all is the
    mean over tasks (Kemker et al., 2018), and with several seeds, choices are made by mean scores. Where the
    algorithm would load the weights of a task, the task is learned again, to the same bits. For methods that
    merge networks (IMM), `best` is the highest point over the balance at the end. The network has the output
    units of all tasks from the start.

    A stream counts as forgotten if `best` is below the accuracy of knowing only the earlier tasks or only the
    last one; for the sequential learning tasks of the paper, its own limits are used.

    Args:
        bases: The stream, the method and everything that is not chosen, once per seed; how often they are
            evaluated decides what "over time" means (in the paper: about 90 times per task).
        fields: For each field, the values to try; `lr` is the rate of the first task.
        options: How to resolve the paper's ambiguities.

    Example:
        >>> from engram.protocols.drive import drive
        >>> from engram.engine.recipe import experiment
        >>> from engram.core.trace import Trace
        >>> from engram.record.tables import Tables
        >>> def made_up(experiments):
        ...     runs = []
        ...     for planned in experiments:
        ...         trace = Trace()
        ...         for step, tasks in enumerate(planned.scenario.phases, start=1):
        ...             for task in range(max(tasks) + 1):
        ...                 right = np.arange(10) < (9 if task in tasks else 3)
        ...                 trace.add(step=step, learning=tasks[-1], task=task, right=right)
        ...         runs.append(Run(planned=planned, tables=Tables(trace)))
        ...     return runs
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
    """The choices so far.

    Attributes:
        candidates: All that were tried on the first task, with their scores there.
        place: The index of the best.
        winners: The best, once per seed.
        stops: For each seed, after how many updates each task is stopped; None if it is not.
        stopped: The data that the choices of these updates read.
        rates: For each later task, the learning rates that were tried, with their scores.
        chosen_rates: The one chosen for each later task; None if none were tried.
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


def _choose_fields(bases: Sequence[Experiment], fields: Grid, how: CausalOptions) -> Plan[_Chosen]:
    """Learn the first task with every combination of fields, and choose the best."""
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
    """Learn a later task with every rate, after the tasks before it, and choose the best rate."""
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
    """Learn the whole stream with the choice, and all tasks jointly."""
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
    """The data that each choice read."""
    choices = selected("fields", chosen.candidates, phases=chosen.phases) + chosen.stopped
    for phase, tried in enumerate(chosen.rates, start=1):
        choices += selected(f"the rate of task {phase + 1}", tried, phases=chosen.phases, since=phase)
    if quality.balances:
        # The balance of merged networks is chosen after the last task.
        choices += (Selected("the balance", len(quality.balances), ("test",), later=False),)
    return choices


@dataclass(frozen=True, slots=True)
class WorstOutcome:
    """The lowest values over several streams of one type, as in the tables of Pfülb & Gepperth (2019).

    Attributes:
        outcomes: The outcome on each stream, by its name.
    """

    outcomes: dict[str, CausalOutcome]

    @property
    def best(self) -> float:
        """The lowest of the best accuracies."""
        return min(outcome.best for outcome in self.outcomes.values())

    @property
    def last(self) -> float:
        """The lowest of the last accuracies, possibly of another stream."""
        return min(outcome.last for outcome in self.outcomes.values())

    @property
    def forgets(self) -> bool:
        """Whether any stream was forgotten."""
        return any(outcome.forgets for outcome in self.outcomes.values())

    def as_json(self) -> JsonObject:
        """The lowest values, and the outcome on each stream."""
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
    fields: Grid,
    *,
    options: CausalOptions | None = None,
) -> Plan[WorstOutcome]:
    """Causal selection on each of several streams, and the lowest values over them.

    The tables of Pfülb & Gepperth (2019) have the minimum over the streams of a type (eight for D5-5, three
    for D9-1), separately for best and last.

    Args:
        bases: For each stream, by its name, the experiment once per seed.
        fields: As for `causal`.
        options: As for `causal`.
    """
    outcomes = {}
    for name, seeded in bases.items():
        outcomes[name] = yield from causal(seeded, fields, options=options)
    return WorstOutcome(outcomes)


def first_phases(experiment: Experiment, n: int) -> Experiment:
    """The same experiment, ended after `n` phases; up to there, the network is the same to the bit."""
    scenario = experiment.scenario
    return replace(experiment, scenario=replace(scenario, phases=scenario.phases[:n]))


def _retrained(
    experiment: Experiment, rates: Sequence[float | None], stops: Sequence[int | None], how: CausalOptions
) -> Experiment:
    """The experiment with a rate for each task but the first, and a last update for each but the last."""
    stopped = "stop" if _depends_on_length(experiment) else "updates"
    by_phase = tuple(
        PhaseSpec(lr=rate, **{stopped: stop})
        for rate, stop in zip((None, *rates), (*stops, None), strict=True)
    )
    if all(phase == PhaseSpec() for phase in by_phase):
        by_phase = ()
    changed = replace(experiment, by_phase=by_phase)
    rate = rates[0]
    if how.tie_strength and rate is not None:
        changed = varied(changed, {"strength": 1 / (2 * rate)})
    return changed


def _depends_on_length(experiment: Experiment) -> bool:
    """Whether an update depends on how many updates its task has in all.

    If so, learning a task again up to some update must not change that number. Otherwise, planning fewer
    updates gives the same weights, and the ids of such runs are from a time when this was the only way.
    """
    if experiment.optimizer.schedule != "constant" or not METHODS.is_ours(experiment.method):
        return True
    return traits_of(experiment.method).plans_updates


def _check(bases: Sequence[Experiment], how: CausalOptions) -> None:
    if not bases:
        raise InputError("causal selection needs at least one experiment, one per seed")
    scenario = bases[0].scenario
    if len(scenario.phases) < 2:
        raise InputError(f"causal selection needs at least two tasks, and {scenario.name} has one")
    if how.tie_strength and (len(scenario.phases) > 2 or not how.later_rates):
        raise InputError(
            "a strength that follows the rate of the second task needs two tasks, and rates for the second"
        )
    if how.start == "best" and bases[0].evaluation.per_epoch:
        raise InputError(
            "the best weights over time are not defined if evaluations are counted within epochs: "
            "leave per_epoch out"
        )


def _check_later(first: Experiment, how: CausalOptions) -> None:
    """Refuse rates that no later task could use, before the first task is learned."""
    from engram.engine.check import complete

    if how.later_rates and not traits_of(first.method).learner:
        raise InputError(
            f"method {first.method} has one learning rate for all tasks: leave the rates of later tasks out "
            "(on the command line: --later-lr first)"
        )
    for rate in how.later_rates:
        complete(_retrained(first_phases(first, 2), [rate], [None], how))


def _height(result: Run, *, phase: int, tasks: Sequence[int]) -> float:
    return _highest(result, phase, tasks)[1]


def _highest(result: Run, phase: int, tasks: Sequence[int]) -> tuple[int, float]:
    """The step and the value of the highest accuracy on some tasks while a phase is learned."""
    learning = result.experiment.scenario.phases[phase][-1]
    points = union_accuracy(result.trace, learning=learning, tasks=tasks)
    if not points:
        raise InputError(
            f"the run {result.experiment.id} was not evaluated while it learned phase {phase + 1}"
        )
    return max(points, key=lambda point: (point[1], -point[0]))


def _stop(result: Run, phase: int, how: CausalOptions) -> int | None:
    """After how many of its updates a phase is at its best; None if it is learned to its end."""
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
    """The data that the choice of a phase's last update read; empty if it is learned to its end."""
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
    """The highest accuracy of all tasks learned jointly; for a run that diverged, the highest before."""
    failure = together.failure
    if failure is not None and not (failure.kind is FailureKind.DIVERGED and any(together.trace.step)):
        finished(together)
    return _height(together, phase=0, tasks=tasks)
