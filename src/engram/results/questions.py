"""The questions of a protocol card: their wording, how they are measured, and how answers are written."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from engram.record.card import (
    SELECTION_ON_LATER,
    SELECTION_ON_TEST,
    TOLERANCE,
    Answer,
    Card,
    Constraint,
    Fact,
    Number,
    Selected,
    growth,
)

Item = TypeVar("Item", Fact, Constraint)
PAPER = "Pfülb & Gepperth (2019)"
"""The source of the constraints (section 1.2)."""


@dataclass(frozen=True, slots=True)
class Question(Generic[Item]):
    """One question that every card answers, or one constraint that it judges.

    Attributes:
        name: Its short name, as in `engram explain "kept bytes"`.
        question: The question.
        how: How the answer is measured.
        figure: Describes the numbers behind the answer, from the card and the fact.
        number: Formats an answer that is a number.
        unanswered: The text where there is no answer.
    """

    name: str
    question: str
    how: str
    figure: Callable[[Card, Item], str]
    number: Callable[[Number], str] = "{:,}".format
    unanswered: str = "unknown"

    def answer(self, answer: Answer) -> str:
        """An answer as text.

        Example:
            >>> question = QUESTIONS["passes"]
            >>> question.answer(2.791), question.answer(None)
            ('2.79', 'unknown')
        """
        if answer is None:
            return self.unanswered
        if isinstance(answer, bool):
            return "yes" if answer else "no"
        return self.number(answer)


# Sentences about facts ------------------------------------------------------------------------------


def _on_test(card: Card, fact: Fact) -> str:
    if fact.answer is None:
        return "no choice is recorded for this run"
    return _joined(f"{_chosen(choice)} on {' and '.join(choice.parts)} data" for choice in card.choices)


def _on_later(card: Card, fact: Fact) -> str:
    if fact.answer is None:
        return "no choice is recorded for this run"
    return _joined(_chosen(choice) for choice in card.choices if choice.later) or "no selection did"


def _test_data(card: Card, fact: Fact) -> str:
    if not fact.answer:
        return "0 samples"
    kinds = ("test", "validation", "data set")
    return _joined(read.describe() for read in card.forbidden if read.what in kinds)


def _identity_in_training(card: Card, fact: Fact) -> str:
    batches, reads = _number(fact, "batches"), _number(fact, "reads")
    return f"{batches:,} batches named their task; the method read the task identity {_times(reads)}"


def _identity_at_test(card: Card, fact: Fact) -> str:
    return "outputs are selected by task" if fact.answer else "the same units and network for every task"


def _classes(card: Card, fact: Fact) -> str:
    units, classes = _number(fact, "units"), _number(fact, "classes")
    if fact.answer:
        return f"{units} units compete when {classes} classes have been seen"
    return f"{units} units compete in the first task, which has {classes} classes"


def _boundaries(card: Card, fact: Fact) -> str:
    told, phases = _number(fact, "told"), _number(fact, "phases")
    if phases < 2:
        return "there are none: all data is learned as one task"
    return f"the method was told of {told} of {phases} task beginnings"


def _later_data(card: Card, fact: Fact) -> str:
    parts = (_together(fact), _samples(fact, "samples"), *_opened(card))
    return (_joined(parts) if fact.answer else "") or "0 samples"


def _normalisation(card: Card, fact: Fact) -> str:
    return _statistics(fact) or "no statistics of later data"


def _earlier_data(card: Card, fact: Fact) -> str:
    samples, kept = _samples(fact, "samples"), _number(fact, "kept_samples")
    parts = (
        _together(fact),
        f"{samples}, {_number(fact, 'passes'):.2g} passes" if samples else "",
        f"{kept:,} samples kept after the last task" if kept else "",
    )
    return _joined(parts) or "0 samples handed out again, 0 kept"


def _passes(card: Card, fact: Fact) -> str:
    parts = [
        f"{_number(fact, 'updates'):.2g} in updates",
        f"{_number(fact, 'task_ends'):.2g} when a task ends",
    ]
    by_method = _number(fact, "method")
    return ", ".join([*parts, f"{by_method:.2g} by the method itself"] if by_method else parts)


def _by_place(card: Card, fact: Fact) -> str:
    parts = {
        "in updates": _number(fact, "updates"),
        "at task boundaries": _number(fact, "boundaries"),
        "before answers": _number(fact, "answers"),
    }
    if fact.answer is None:
        return "not counted"
    return ", ".join(f"{_short(number)} {place}" for place, number in parts.items() if number) or "none"


def _outside(card: Card, fact: Fact) -> str:
    return _joined(act.describe() for act in card.forbidden if act.is_act) or "it only learned"


def _kept_bytes(card: Card, fact: Fact) -> str:
    after = _row(_series(fact, "after_each_task"))
    return f"after each task: {after}; the network has {_number(fact, 'network'):,} bytes"


def _bytes_grow(card: Card, fact: Fact) -> str:
    return _growth(_series(fact, "after_each_task"), "bytes")


def _update_grows(card: Card, fact: Fact) -> str:
    return _growth(_series(fact, "in_each_task"), "FLOPs")


def _update_time(card: Card, fact: Fact) -> str:
    milliseconds = [round(1000 * seconds, 2) for seconds in _series(fact, "in_each_task")]
    return f"median in each task, in ms: {_row(milliseconds)}" if milliseconds else "not measured"


def note_only(card: Card, item: Fact | Constraint) -> str:
    """The figure of a question that this version of engram does not know: its note."""
    return item.note


# Sentences about constraints ------------------------------------------------------------------------


def _low_memory_footprint(card: Card, constraint: Constraint) -> str:
    if constraint.note:
        return constraint.note
    broken = _joined((_together(constraint), _samples(constraint, "earlier_samples")))
    samples, size = _number(constraint, "kept_samples"), _number(constraint, "kept_bytes")
    return broken or f"{samples:,} samples and {size:,} bytes kept"


def _causality(card: Card, constraint: Constraint) -> str:
    """Why causality is broken; a selection can break it for a card of the first format as well."""
    if constraint.verdict == "held":
        return constraint.note or "0 samples of later tasks"
    chosen = [f"{_chosen(choice)}, judged on later tasks" for choice in card.choices if choice.later]
    if constraint.note:
        return _joined((*chosen, constraint.note))
    tests = _number(constraint, "later_test_samples")
    return _joined(
        (
            *chosen,
            _together(constraint),
            _samples(constraint, "later_samples"),
            *_opened(card),
            _statistics(constraint),
            f"{tests:,} test or validation samples of later tasks" if tests else "",
        )
    )


def _constant_update_complexity(card: Card, constraint: Constraint) -> str:
    if constraint.note:
        return constraint.note
    per_update = growth(_series(constraint, "flops"))
    shares = {"FLOPs per update": per_update, "bytes kept": growth(_series(constraint, "kept_bytes"))}
    for name, unit in (
        ("flops_with_boundaries", "with its share of task boundaries"),
        ("flops_with_answer", "with an answer"),
    ):
        share = growth(_series(constraint, name))
        if share is not None and share > (per_update or 0) + TOLERANCE:
            shares[unit] = share
    figure = ", ".join(f"{unit} {_percent(share)}" for unit, share in shares.items() if share is not None)
    if learned := _number(constraint, "answer_backward_passes"):
        figure = _joined((f"answers are learned when needed, in {learned:,} backward passes", figure))
    time = growth(_series(constraint, "seconds"))
    if time is None:
        return figure or "too few tasks to tell"
    return f"{figure} (median time {_percent(time)})" if figure else f"median time {_percent(time)}"


# Words ----------------------------------------------------------------------------------------------


def _number(item: Fact | Constraint, name: str) -> Number:
    value = item.measured.get(name, 0)
    return value if isinstance(value, int | float) else 0


def _series(item: Fact | Constraint, name: str) -> tuple[Number, ...]:
    value = item.measured.get(name, ())
    return value if isinstance(value, tuple) else ()


def _samples(item: Fact | Constraint, name: str) -> str:
    samples = _number(item, name)
    return f"{samples:,} samples" if samples else ""


def _together(item: Fact | Constraint) -> str:
    tasks = _number(item, "tasks_together")
    return f"{tasks} tasks are learned together" if tasks > 1 else ""


def _statistics(item: Fact | Constraint) -> str:
    later = _number(item, "later_classes")
    if not later:
        return ""
    classes = "class comes" if later == 1 else "classes come"
    return (
        f"normalised with the statistics of all of {item.measured.get('dataset', '')}, of which {later} "
        f"{classes} later"
    )


def _opened(card: Card) -> list[str]:
    return [read.describe() for read in card.forbidden if read.what == "data set"]


def _chosen(choice: Selected) -> str:
    return f"{choice.what} chosen among {choice.candidates}"


def _growth(values: Sequence[Number], unit: str) -> str:
    share = growth(values)
    if share is None:
        return f"{_row(values)} {unit}: too few tasks to tell" if values else "not counted"
    return f"{_row(values)} {unit}: {_percent(share)} over the second half"


def _row(values: Sequence[Number], most: int = 6) -> str:
    """Numbers separated by spaces; of more than `most`, only the first and the last.

    Example:
        >>> _row([7, 7, 7]), _row([1000, 2000]), _row(range(9))
        ('always 7', '1,000 2,000', '0 1 2 … 6 7 8')
    """
    if len(values) > 1 and len(set(values)) == 1:
        return f"always {values[0]:,}"
    shown = [f"{value:,}" for value in values]
    if len(shown) > most:
        shown = [*shown[: most // 2], "…", *shown[-most // 2 :]]
    return " ".join(shown)


def _short(number: Number) -> str:
    """A number with three digits, a large one with a prefix.

    Example:
        >>> _short(2.504), _short(31), _short(1_234_567), _short(8.3e12)
        ('2.5', '31', '1.23 M', '8.3 T')
    """
    for power, prefix in ((12, "T"), (9, "G"), (6, "M")):
        if number >= 10**power:
            return f"{number / 10**power:,.3g} {prefix}"
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"


def _percent(share: float) -> str:
    return "from zero" if math.isinf(share) else f"{100 * share:+.0f} %"


def _times(count: Number) -> str:
    return "once" if count == 1 else f"{count:,} times"


def _joined(parts: Iterable[str]) -> str:
    return "; ".join(part for part in parts if part)


# The tables -----------------------------------------------------------------------------------------


def _by_name(*questions: Question[Item]) -> Mapping[str, Question[Item]]:
    return {question.name: question for question in questions}


_CANDIDATES = "the data that evaluations of the candidates read"
_SECOND_HALF = "the change from the middle to the end of the stream; more than 5 % counts as growth"

QUESTIONS: Mapping[str, Question[Fact]] = _by_name(
    Question(
        SELECTION_ON_TEST,
        "Did selection touch test data?",
        _CANDIDATES,
        _on_test,
        unanswered="none",
    ),
    Question(
        SELECTION_ON_LATER,
        "Did selection see a later task?",
        _CANDIDATES,
        _on_later,
        unanswered="none",
    ),
    Question(
        "test data",
        "Did the learner read test or validation data?",
        "all reads of the stream while the method's code runs",
        _test_data,
    ),
    Question(
        "identity in training",
        "Was task identity used in training?",
        "batches that name one of several heads, and reads of a task's identity by the method",
        _identity_in_training,
    ),
    Question(
        "identity at test",
        "Was task identity used at test time?",
        "the output units and networks that evaluations of each task choose from",
        _identity_at_test,
    ),
    Question(
        "classes",
        "Was the number of classes known in advance?",
        "the output units that the first batch of each task names; the other units of the output layer do "
        "not enter the loss",
        _classes,
    ),
    Question(
        "boundaries",
        "Were task boundaries known?",
        "calls to the method at the beginning of a task",
        _boundaries,
    ),
    Question(
        "later data",
        "Did the learner read data of a later task?",
        "training samples handed to the learner before their task began, or together with an earlier task",
        _later_data,
    ),
    Question(
        "normalisation",
        "Was later data known through normalisation?",
        "the constants of the applied transforms, and the data set from which they were computed",
        _normalisation,
    ),
    Question(
        "earlier data",
        "Was data of earlier tasks used again?",
        "training samples handed to the learner after their task ended, and samples in the tensors and "
        "arrays that the method holds",
        _earlier_data,
    ),
    Question(
        "passes",
        "How many passes over the data?",
        "samples handed to the learner divided by the samples of the task; the maximum over tasks",
        _passes,
        number="{:.3g}".format,
    ),
    Question(
        "network passes",
        "How often is the data of a task learned from?",
        "samples that are computed with gradients, remembered ones included, divided by the samples of the "
        "task; counted in some updates, batches and backward passes, and scaled; the maximum over tasks",
        _by_place,
        number="{:.3g}".format,
    ),
    Question(
        "backward passes",
        "How many backward passes does an update take?",
        "all backward passes of a task, in updates, at its boundaries and before answers, divided by its "
        "updates; the maximum over tasks",
        _by_place,
        number="{:.3g}".format,
    ),
    Question(
        "kept bytes",
        "How many bytes were kept beyond the weights?",
        "the storages that the method holds, except its network and what any optimiser of its kind holds",
        _kept_bytes,
    ),
    Question(
        "bytes grow",
        "Do the kept bytes grow with the number of tasks?",
        _SECOND_HALF,
        _bytes_grow,
    ),
    Question(
        "update grows",
        "Does an update cost more with the number of tasks?",
        _SECOND_HALF,
        _update_grows,
    ),
    Question(
        "work",
        "How many operations does learning a task take?",
        "FLOPs in the last task, element-wise ones included, wherever they are done; counted in some "
        "updates, batches and backward passes, and scaled",
        _by_place,
        number=lambda flops: f"{_short(flops)}FLOP",
    ),
    Question(
        "update time",
        "How long does an update take?",
        "wall-clock time of each update; reported but not judged, because it varies with the machine's load",
        _update_time,
        number=lambda seconds: f"{1000 * seconds:.2f} ms",
    ),
    Question(
        "outside",
        "Did the method do anything besides learning?",
        "files opened for writing, processes, connections, threads and searches through all objects, from "
        "Python's audit events while the method's code runs; seeded generators, changed batches, and what it "
        "holds after evaluations",
        _outside,
    ),
)
"""The questions of a card by name, in the order in which they are shown."""

CONSTRAINTS: Mapping[str, Question[Constraint]] = _by_name(
    Question(
        "low memory footprint",
        "Is the memory footprint low, with data of past tasks neither stored nor used again?",
        f"data of past tasks is neither stored nor used again ({PAPER})",
        _low_memory_footprint,
    ),
    Question(
        "causality",
        "Is it causal, with data of future tasks not used in any way?",
        f"data of future tasks is not used in any way, not even for selection ({PAPER})",
        _causality,
    ),
    Question(
        "constant update complexity",
        "Are the time and memory of an update independent of the number of earlier tasks?",
        f"time and memory of an update do not depend on the number of earlier tasks ({PAPER}): the change in "
        "FLOPs (of an update, at task boundaries, per answer) and bytes over the second half of the stream; "
        "wall-clock time is reported but not judged",
        _constant_update_complexity,
    ),
)
"""The constraints that applications impose, by name."""
