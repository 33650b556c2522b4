"""The facts of a protocol card, measured from what the method was given and what it kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from engram.core.dataset_info import DATASETS
from engram.datasets.accounting import Ledger
from engram.record.card import (
    TOLERANCE,
    Card,
    Constraint,
    Fact,
    ForbiddenRead,
    Measured,
    Part,
    Read,
    Reader,
    Relation,
    Verdict,
    growth,
    selection_facts,
)
from engram.scenarios.preparation import statistics_of
from engram.scenarios.values import Normalise, Scenario, Source

if TYPE_CHECKING:
    from engram.record.account import Account

LEARNER: tuple[Reader, ...] = ("training", "end of task", "method")
"""The readers that learn from what they read."""

PLACES = ("updates", "boundaries", "answers")
"""Where work is done: in `observe`, in `begin_task` and `end_task`, and in `predictor`."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """The measurements that the facts of a run are derived from.

    Attributes:
        scenario: The scenario.
        ledger: The record of what the method was given.
        account: What was kept, and what it cost.
        reads: What each reader was given, over the whole run.
    """

    scenario: Scenario
    ledger: Ledger
    account: Account
    reads: tuple[Read, ...]

    @property
    def tasks_together(self) -> int:
        """The largest number of tasks that are learned together."""
        return max(len(tasks) for tasks in self.scenario.phases)

    @property
    def opened(self) -> bool:
        """Whether the method opened a whole data set by itself."""
        return any(read.what == "data set" for read in self.ledger.forbidden)

    @property
    def kept_samples(self) -> int:
        """Samples kept after the last task."""
        return self.account.kept_samples[-1] if self.account.kept_samples else 0

    def samples(
        self, when: Relation, *, parts: tuple[Part, ...] = ("train",), readers: tuple[Reader, ...] = LEARNER
    ) -> int:
        """How many samples of earlier, current or later tasks the learner was given."""
        return sum(
            read.samples
            for read in self.reads
            if read.reader in readers and read.when == when and read.part in parts
        )

    @property
    def did(self) -> tuple[ForbiddenRead, ...]:
        """What the method did although it should not, besides reading."""
        return tuple(act for act in self.ledger.forbidden if act.is_act)

    def phase_size(self, phase: int) -> int:
        """How many training samples a phase has; 0 where none was handed out."""
        return self.ledger.sizes.get(("train", self.scenario.phases[phase]), 0)

    def passes(self, when: Relation | None = None, *, readers: tuple[Reader, ...] = LEARNER) -> float:
        """How often the learner was given the samples of a task; the maximum over tasks."""
        ledger = self.ledger
        by_tasks: dict[tuple[int, ...], float] = {}
        for (phase, reader, part, tasks), samples in ledger.samples.items():
            if part == "train" and reader in readers and when in (None, ledger.relation(phase, tasks)):
                by_tasks[tasks] = by_tasks.get(tasks, 0.0) + samples / ledger.sizes[part, tasks]
        return max(by_tasks.values(), default=0.0)


def make_card(scenario: Scenario, ledger: Ledger, account: Account) -> Card:
    """The card of a run, measured; choices of protocols are added later (`Card.with_choices`).

    Args:
        scenario: The scenario.
        ledger: The record of what the method was given.
        account: What was kept, and what it cost.
    """
    evidence = Evidence(scenario, ledger, account, reads_of(ledger))
    return Card(
        (*selection_facts(()), *(measure(evidence) for measure in FACTS)),
        tuple(judge(evidence) for judge in CONSTRAINTS),
        evidence.reads,
        dict(ledger.forbidden),
    )


def reads_of(ledger: Ledger) -> tuple[Read, ...]:
    """What each reader was given of each part of earlier, current and later tasks, over the whole run."""
    totals: dict[tuple[Reader, Part, Relation], tuple[set[int], int]] = {}
    for (phase, reader, part, tasks), samples in ledger.samples.items():
        key = (reader, part, ledger.relation(phase, tasks))
        before, count = totals.get(key, (set(), 0))
        totals[key] = before | set(tasks), count + samples
    return tuple(Read(*key, tuple(sorted(tasks)), samples) for key, (tasks, samples) in totals.items())


# Facts ----------------------------------------------------------------------------------------------


def _test_data(evidence: Evidence) -> Fact:
    """Whether the learner read test or validation data."""
    samples = sum(read.samples for read in evidence.reads if read.reader == "method" and read.part != "train")
    reached_for = any(read.what in ("test", "validation") for read in evidence.ledger.forbidden)
    return Fact("test data", bool(samples or reached_for or evidence.opened), {"samples": samples})


def _identity_in_training(evidence: Evidence) -> Fact:
    """Whether batches named their task, or the method read a task's identity."""
    batches, reads = evidence.ledger.named_batches, evidence.ledger.identity_reads
    return Fact("identity in training", bool(batches or reads), {"batches": batches, "reads": reads})


def _identity_at_test(evidence: Evidence) -> Fact:
    """Whether evaluations chose output units or networks by task."""
    return Fact("identity at test", evidence.ledger.answers_by_task)


def _classes(evidence: Evidence) -> Fact:
    """Whether units of classes that had not appeared yet took part; measured at the first such phase."""
    phases = [
        (evidence.ledger.units.get(phase, 0), seen)
        for phase, seen in enumerate(evidence.scenario.classes_seen)
    ]
    early = [(units, seen) for units, seen in phases if units > seen]
    units, seen = (early or phases)[0]
    return Fact("classes", bool(early), {"units": units, "classes": seen})


def _boundaries(evidence: Evidence) -> Fact:
    """Whether the method was told of more than the beginning of the stream."""
    told = evidence.ledger.told
    return Fact("boundaries", told > 1, {"told": told, "phases": len(evidence.scenario.phases)})


def _later_data(evidence: Evidence) -> Fact:
    """Whether training data of a task reached the learner before its task began."""
    samples, together = evidence.samples("later"), evidence.tasks_together
    return Fact(
        "later data",
        bool(samples or together > 1 or evidence.opened),
        {"samples": samples, "tasks_together": together},
    )


def _normalisation(evidence: Evidence) -> Fact:
    """Whether normalisation constants are statistics of classes still to come."""
    statistics = later_through_normalisation(evidence.scenario)
    return Fact("normalisation", statistics is not None, _measured_statistics(statistics))


def _earlier_data(evidence: Evidence) -> Fact:
    """Whether training data of earlier tasks were read again or kept."""
    samples, together, kept = evidence.samples("earlier"), evidence.tasks_together, evidence.kept_samples
    return Fact(
        "earlier data",
        bool(samples or kept or together > 1),
        {
            "samples": samples,
            "passes": evidence.passes("earlier"),
            "kept_samples": kept,
            "tasks_together": together,
        },
    )


def _passes(evidence: Evidence) -> Fact:
    """Samples given to the learner per sample of the task."""
    shares = {
        name: evidence.passes(readers=(reader,))
        for name, reader in zip(("updates", "task_ends", "method"), LEARNER, strict=True)
    }
    return Fact("passes", evidence.passes(), shares)


def _network_passes(evidence: Evidence) -> Fact:
    """Samples computed with gradients per sample of the task; the phase with most of them."""
    work = evidence.account.work
    sizes = [evidence.phase_size(phase) for phase in range(len(work))]
    counted = [(phase, size) for phase, size in zip(work, sizes, strict=True) if size]
    shares = [[done.samples / size for done in phase.places] for phase, size in counted]
    return _by_place("network passes", shares)


def _backward_passes(evidence: Evidence) -> Fact:
    """Backward passes per update, wherever they are made; the phase with most of them."""
    work = [phase for phase in evidence.account.work if phase.updates]
    return _by_place(
        "backward passes",
        [[done.backward_passes / phase.updates for done in phase.places] for phase in work],
    )


def _work(evidence: Evidence) -> Fact:
    """Operations of all that the method does in the last task."""
    work = evidence.account.work
    return _by_place("work", [[done.flops for done in work[-1].places]] if work else [])


def _by_place(name: str, phases: Sequence[Sequence[float]]) -> Fact:
    """The phase with the largest sum over updates, boundaries and answers."""
    if not phases:
        return Fact(name, None)
    largest = max(phases, key=sum)
    return Fact(name, sum(largest), dict(zip(PLACES, largest, strict=True)))


def _outside(evidence: Evidence) -> Fact:
    """Whether the method did something besides learning from its batches."""
    return Fact("outside", bool(evidence.did))


def _kept_bytes(evidence: Evidence) -> Fact:
    """Bytes kept beyond the weights, after each task."""
    kept = evidence.account.kept_bytes
    # A weight takes four bytes.
    return Fact(
        "kept bytes",
        kept[-1] if kept else None,
        {"after_each_task": kept, "network": 4 * evidence.account.parameters},
    )


def _bytes_grow(evidence: Evidence) -> Fact:
    """Whether the kept bytes grow with the number of tasks."""
    kept = evidence.account.kept_bytes
    return Fact("bytes grow", _grows(kept), {"after_each_task": kept})


def _update_grows(evidence: Evidence) -> Fact:
    """Whether an update takes more operations with the number of tasks."""
    flops = evidence.account.flops
    return Fact("update grows", _grows(flops), {"in_each_task": flops})


def _update_time(evidence: Evidence) -> Fact:
    """The median time of an update in the last task, in seconds."""
    seconds = evidence.account.update_seconds
    return Fact("update time", seconds[-1] if seconds else None, {"in_each_task": seconds})


FACTS: tuple[Callable[[Evidence], Fact], ...] = (
    _test_data,
    _identity_in_training,
    _identity_at_test,
    _classes,
    _boundaries,
    _later_data,
    _normalisation,
    _earlier_data,
    _passes,
    _network_passes,
    _backward_passes,
    _kept_bytes,
    _bytes_grow,
    _update_grows,
    _work,
    _update_time,
    _outside,
)


# Constraints ----------------------------------------------------------------------------------------


def _low_memory_footprint(evidence: Evidence) -> Constraint:
    """Broken where samples of earlier tasks are kept or read again."""
    samples, together, kept = evidence.samples("earlier"), evidence.tasks_together, evidence.kept_samples
    kept_bytes = evidence.account.kept_bytes
    return Constraint(
        "low memory footprint",
        "broken" if samples or kept or together > 1 else "held",
        {
            "earlier_samples": samples,
            "kept_samples": kept,
            "kept_bytes": kept_bytes[-1] if kept_bytes else 0,
            "tasks_together": together,
        },
    )


def _causality(evidence: Evidence) -> Constraint:
    """Broken where data of later tasks were read, or known through normalisation."""
    samples, together = evidence.samples("later"), evidence.tasks_together
    tests = evidence.samples("later", parts=("test", "validation"), readers=("method",))
    statistics = later_through_normalisation(evidence.scenario)
    broken = samples or together > 1 or evidence.opened or tests or statistics
    return Constraint(
        "causality",
        "broken" if broken else "held",
        {
            "later_samples": samples,
            "later_test_samples": tests,
            "tasks_together": together,
            **_measured_statistics(statistics),
        },
    )


def _constant_update_complexity(evidence: Evidence) -> Constraint:
    """Broken where operations or the kept bytes grow; the time is recorded, not judged.

    Operations are those of an update, at the boundary of a task, and of an answer. Where answers are learned,
    what an update costs depends on how often it is asked, and the verdict is at best unknown.
    """
    account = evidence.account
    counted = list(zip(account.flops, account.work, strict=False))
    at_boundaries = [flops + work.at_boundaries.flops / max(1, work.updates) for flops, work in counted]
    with_answer = [flops + work.answer_flops for flops, work in counted]
    learned = sum(phase.for_answers.backward_passes for phase in account.work)
    grows = [_grows(account.flops), _grows(account.kept_bytes)]
    if counted:
        grows += [_grows(at_boundaries) and _grows(_boundary_flops_per_sample(evidence)), _grows(with_answer)]
    verdict: Verdict = "broken" if True in grows else "unknown" if None in grows or learned else "held"
    return Constraint(
        "constant update complexity",
        verdict,
        {
            "flops": account.flops,
            "kept_bytes": account.kept_bytes,
            "seconds": account.update_seconds,
            "flops_with_boundaries": tuple(map(round, at_boundaries)),
            "flops_with_answer": tuple(with_answer),
            "answer_backward_passes": learned,
        },
    )


def _boundary_flops_per_sample(evidence: Evidence) -> list[float]:
    """The operations at the boundaries of each phase per sample, because tasks differ in size."""
    return [
        work.at_boundaries.flops / max(1, evidence.phase_size(phase))
        for phase, work in enumerate(evidence.account.work)
    ]


CONSTRAINTS: tuple[Callable[[Evidence], Constraint], ...] = (
    _low_memory_footprint,
    _causality,
    _constant_update_complexity,
)


# Measuring ------------------------------------------------------------------------------------------


class LaterStatistics(NamedTuple):
    """The statistics of a whole data set, used before all of its classes have appeared."""

    dataset: str
    later_classes: int


def later_through_normalisation(scenario: Scenario) -> LaterStatistics | None:
    """What normalisation reveals of later data; None if it reveals nothing.

    The statistics of a whole data set reveal later tasks if some of its classes appear later.

    Example:
        >>> from engram.scenarios import permuted, split
        >>> later_through_normalisation(split("mnist", setting="class"))
        LaterStatistics(dataset='mnist', later_classes=8)
        >>> later_through_normalisation(permuted("mnist", 3, setting="domain", seed=0)) is None
        True
    """
    missing = {pair for task in scenario.tasks for pair in _classes_of(task.source)}
    for tasks in scenario.phases:
        missing -= {pair for task in tasks for pair in _classes_of(scenario.tasks[task].source)}
        for number in tasks:
            task = scenario.tasks[number]
            for step in task.transforms:
                whole = statistics_of(step, task.source.dataset) if isinstance(step, Normalise) else None
                later = sum(_whole_name(dataset) == whole for dataset, _ in missing)
                if whole is not None and later:
                    return LaterStatistics(whole, later)
    return None


def _measured_statistics(statistics: LaterStatistics | None) -> Mapping[str, Measured]:
    if statistics is None:
        return {"later_classes": 0}
    return {"dataset": statistics.dataset, "later_classes": statistics.later_classes}


def _grows(values: Sequence[float]) -> bool | None:
    share = growth(values)
    return None if share is None else share > TOLERANCE


def _classes_of(source: Source) -> set[tuple[str, int]]:
    return {(source.dataset, number) for number in source.classes}


def _whole_name(dataset: str) -> str:
    return DATASETS[dataset].part_of or dataset
