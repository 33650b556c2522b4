"""The protocol card of a run: what was known, what was kept, what it cost. Measured, not declared."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from engram.core.dataset_info import DATASETS
from engram.core.errors import InputError
from engram.record.account import Account
from engram.scenarios.preparation import statistics_of
from engram.scenarios.values import Normalise, Scenario

if TYPE_CHECKING:
    from engram.datasets.accounting import Ledger

LEARNER = ("training", "end of task", "method")
TOLERANCE = 0.05
"""What grows by less over the second half of a stream counts as constant: memories vary by a few samples."""

SELECTION = "selection.json"
"""Beside a run's result: the choices that protocols made to end with it."""

Verdict = Literal["held", "broken", "unknown"]
VERDICTS: tuple[Verdict, ...] = ("broken", "unknown", "held")
"""The worst first."""


@dataclass(frozen=True, slots=True)
class Line:
    """One question and what was found.

    Attributes:
        name: The question's short name.
        question: What is asked.
        answer: Yes, no, or a number.
        figure: What was counted.
        how: How it was measured.
    """

    name: str
    question: str
    answer: str
    figure: str
    how: str


@dataclass(frozen=True, slots=True)
class Constraint:
    """One of the constraints that applications set (004, section 1.2).

    Attributes:
        name: What it is called there.
        verdict: Held, broken, or unknown where the stream is too short to tell.
        figure: What was counted.
        how: What it asks for, and how that was measured.
    """

    name: str
    verdict: Verdict
    figure: str
    how: str


@dataclass(frozen=True, slots=True)
class Read:
    """What one reader was handed of one part of the data, all in all.

    Attributes:
        reader: Who: training, end of task, method, evaluation or probe.
        part: Of train, test or validation data.
        when: Of tasks that were being learned then (`current`), were gone (`earlier`) or had not come yet.
        tasks: Which ones, counted from 0.
        samples: How many samples, each as often as it was handed out.
    """

    reader: str
    part: str
    when: str
    tasks: tuple[int, ...]
    samples: int


@dataclass(frozen=True, slots=True)
class Selected:
    """One choice that a protocol made.

    Attributes:
        what: What was chosen.
        candidates: Among how many.
        parts: The parts of the data that the candidates were judged on.
        later: Whether they were judged on a task that comes after the choice takes effect.
    """

    what: str
    candidates: int
    parts: tuple[str, ...]
    later: bool

    def as_json(self) -> dict[str, Any]:
        """What `selection.json` says of it."""
        return {**asdict(self), "parts": list(self.parts)}

    @classmethod
    def of_json(cls, said: Mapping[str, Any]) -> Selected:
        """What `as_json` gave.

        Example:
            >>> choice = Selected("fields", 4, ("test",), later=True)
            >>> Selected.of_json(choice.as_json()) == choice
            True
        """
        return cls(
            str(said["what"]), int(said["candidates"]), tuple(map(str, said["parts"])), bool(said["later"])
        )


@dataclass(frozen=True, slots=True)
class Card:
    """All questions with their answers, and the constraints.

    Attributes:
        lines: One a question.
        constraints: Low memory footprint, causality and constant update complexity.
        reads: Who was handed what.
        forbidden: What the method read although it should not, and how often.
    """

    lines: tuple[Line, ...]
    constraints: tuple[Constraint, ...]
    reads: tuple[Read, ...] = ()
    forbidden: Mapping[str, int] | None = None

    def line(self, name: str) -> Line:
        """A line by its name."""
        return next(found for found in self.lines if found.name == name)

    def constraint(self, name: str) -> Constraint:
        """A constraint by its name."""
        return next(found for found in self.constraints if found.name == name)

    def as_json(self) -> dict[str, Any]:
        """What `result.json` says."""
        return {
            "constraints": [asdict(found) for found in self.constraints],
            "lines": [asdict(found) for found in self.lines],
            "reads": [{**asdict(found), "tasks": list(found.tasks)} for found in self.reads],
            "forbidden": dict(self.forbidden or {}),
        }

    @classmethod
    def of_json(cls, said: Mapping[str, Any], *, of: str = "this run") -> Card:
        """What `as_json` gave.

        Example:
            >>> card = Card((Line("passes", "How many?", "1.0", "", ""),), ())
            >>> Card.of_json(card.as_json()).line("passes").answer
            '1.0'
        """
        try:
            return cls(
                tuple(Line(**_texts(found)) for found in said["lines"]),
                tuple(Constraint(**_judged(_texts(found))) for found in said["constraints"]),
                tuple(Read(**{**found, "tasks": tuple(found["tasks"])}) for found in said["reads"]),
                dict(said["forbidden"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(
                f"the card of {of} cannot be read ({error}): run it again with --again"
            ) from error

    def selected(self, choices: Sequence[Selected]) -> Card:
        """The same card with what a protocol chose to get this run.

        Example:
            >>> card = Card(selection_lines(()), (Constraint("causality", "held", "", ""),))
            >>> chosen = card.selected([Selected("fields", 4, ("test",), later=True)])
            >>> chosen.line("selection on test data").answer, chosen.constraint("causality").verdict
            ('yes', 'broken')
        """
        new = {line.name: line for line in selection_lines(choices)}
        lines = tuple(new.get(line.name, line) for line in self.lines)
        later = [choice for choice in choices if choice.later]
        if not later:
            return replace(self, lines=lines)
        reason = "; ".join(f"{_chosen(choice)} judged on later tasks" for choice in later)
        constraints = tuple(
            replace(each, verdict="broken", figure=_and(reason, each)) if each.name == "causality" else each
            for each in self.constraints
        )
        return replace(self, lines=lines, constraints=constraints)


def merged(cards: Sequence[Card]) -> Card:
    """The card of several runs: the first one's, every answer that they differ in, and the worst verdicts.

    What was read is added up. A line or a constraint that only some of them have is there as well, so that
    cards of several versions can be put together.

    Example:
        >>> cards = [Card((Line("later", "Later?", answer, "", ""),), ()) for answer in ("no", "yes")]
        >>> merged(cards).line("later").answer
        'no / yes'
    """
    lines: dict[str, list[Line]] = {}
    constraints: dict[str, list[Constraint]] = {}
    reads: dict[tuple[str, str, str], tuple[set[int], int]] = {}
    forbidden: dict[str, int] = {}
    for card in cards:
        for line in card.lines:
            lines.setdefault(line.name, []).append(line)
        for each in card.constraints:
            constraints.setdefault(each.name, []).append(each)
        for read in card.reads:
            tasks, samples = reads.get((read.reader, read.part, read.when), (set(), 0))
            reads[read.reader, read.part, read.when] = tasks | set(read.tasks), samples + read.samples
        for what, times in (card.forbidden or {}).items():
            forbidden[what] = forbidden.get(what, 0) + times
    return Card(
        tuple(_one_line(found) for found in lines.values()),
        tuple(min(found, key=lambda each: VERDICTS.index(each.verdict)) for found in constraints.values()),
        tuple(Read(*key, tuple(sorted(tasks)), samples) for key, (tasks, samples) in reads.items()),
        forbidden,
    )


def _one_line(lines: Sequence[Line]) -> Line:
    """The first line, with all answers where they differ in kind; numbers may differ from seed to seed."""
    answers = dict.fromkeys(line.answer for line in lines)
    plain = {"yes", "no", "none", "unknown"}
    if len(answers) == 1 or not answers.keys() & plain:
        return lines[0]
    figures = dict.fromkeys(line.figure for line in lines if line.figure)
    return replace(lines[0], answer=" / ".join(answers), figure=" / ".join(figures))


def make_card(scenario: Scenario, ledger: Ledger, account: Account) -> Card:
    """The card of a run that nothing was chosen for.

    Args:
        scenario: What was streamed.
        ledger: The account of what was handed out.
        account: What the method kept and spent.
    """
    kept_bytes, kept_samples, flops = account.kept_bytes, account.kept_samples, account.flops
    seconds, parameters = account.update_seconds, account.parameters
    reads = _reads(ledger)
    later = _taken(reads, "later", parts=("train",))
    earlier = _taken(reads, "earlier", parts=("train",))
    peeked = sum(read.samples for read in reads if read.reader == "method" and read.part != "train")
    spied = [what for what in ledger.forbidden if "test data" in what or "validation data" in what]
    together = max((tasks for tasks in scenario.phases), key=len)
    joint = f"{len(together)} tasks are learned together" if len(together) > 1 else ""
    normalised = later_through_normalisation(scenario)
    phases = len(scenario.phases)
    known = [(ledger.units.get(p, 0), seen) for p, seen in enumerate(scenario.classes_seen)]
    early = [(units, seen) for units, seen in known if units > seen]
    opened = [what for what in ledger.forbidden if what.startswith("the whole data set")]
    kept = list(kept_samples)
    lines = (
        *selection_lines(()),
        Line(
            "test data",
            "Did the learner read test or validation data?",
            _yes(bool(peeked or spied or opened)),
            "; ".join([*spied, *opened]) or "0 samples",
            "every read of the stream while the method's own code runs",
        ),
        Line(
            "identity in training",
            "Was task identity used in training?",
            _yes(bool(ledger.named or ledger.asked)),
            f"{ledger.named:,} batches named their task; the method asked for it {ledger.asked:,} times",
            "batches that name one head of several, and reads of a task's identity by the method",
        ),
        Line(
            "identity at test",
            "Was task identity used at test time?",
            _yes(ledger.answered),
            "answers are sought by task" if ledger.answered else "the same units and network for every task",
            "the units and networks that evaluations seek the answers of each task in",
        ),
        Line(
            "classes",
            "Was the number of classes known beforehand?",
            _yes(bool(early)),
            f"{early[0][0]} units compete when {early[0][1]} classes have come"
            if early
            else f"{known[0][0]} units compete in the first task, which has {known[0][1]} classes",
            "the units that the first batch of each task names; the others take no part in the loss, though "
            "the output layer has them",
        ),
        Line(
            "boundaries",
            "Were task boundaries known?",
            _yes(ledger.told > 1),
            f"told {ledger.told} times that a task begins, of {phases}" if phases > 1 else "there is none",
            "calls of the method at the beginning of a task",
        ),
        Line(
            "later data",
            "Did the learner read data of a later task?",
            _yes(bool(later or joint or opened)),
            "; ".join(part for part in (joint, _samples(later), *opened) if part) or "0 samples",
            "training samples handed to the learner before their task came, or with an earlier one",
        ),
        Line(
            "normalisation",
            "Were later data known through normalisation?",
            _yes(bool(normalised)),
            normalised or "no statistics of data that come later",
            "the constants of the transforms that were applied, and whose statistics they are",
        ),
        Line(
            "earlier data",
            "Were data of earlier tasks used again?",
            _yes(bool(earlier or kept[-1:] > [0] or joint)),
            "; ".join(
                part
                for part in (
                    joint,
                    _samples(earlier, _passes(ledger, "earlier")),
                    f"{kept[-1]:,} samples kept after the last task" if kept[-1:] > [0] else "",
                )
                if part
            )
            or "0 samples handed out again, 0 kept",
            "training samples handed out after their task, and samples among the tensors and arrays it holds",
        ),
        _passes_line(ledger),
        Line(
            "kept bytes",
            "How many bytes were kept beyond the weights?",
            f"{kept_bytes[-1]:,}" if kept_bytes else "unknown",
            f"after each task: {_series(kept_bytes)}; the network has {4 * parameters:,}",
            "the tensors and arrays that the method holds besides its network and its optimiser",
        ),
        _growth_line("bytes grow", "Do the kept bytes grow with the number of tasks?", kept_bytes, "bytes"),
        _growth_line("update grows", "Does an update cost more with the number of tasks?", flops, "FLOP"),
        Line(
            "update time",
            "How long does an update take?",
            f"{1000 * seconds[-1]:.2f} ms" if seconds else "unknown",
            f"median in each task, ms: {_series([round(1000 * value, 2) for value in seconds])}",
            "a clock around every update; shown, not judged, because other work disturbs it",
        ),
    )
    future = [part for part in (joint, _samples(later), *opened, normalised) if part]
    spied_later = _taken(reads, "later", parts=("test", "validation"), readers=("method",))
    if spied_later:
        future.append(f"{spied_later:,} test or validation samples of later tasks")
    constraints = (
        Constraint(
            "low memory footprint",
            "broken" if earlier or kept[-1:] > [0] or joint else "held",
            "; ".join(part for part in (joint, _samples(earlier)) if part)
            or f"{(kept or [0])[-1]:,} samples and {(list(kept_bytes) or [0])[-1]:,} bytes kept",
            "data of past tasks are not stored and not used again (004)",
        ),
        Constraint(
            "causality",
            "broken" if future else "held",
            "; ".join(future) or "0 samples of later tasks",
            "data of future tasks are used in no way, not for selection either (004)",
        ),
        _constant(kept_bytes, flops, seconds),
    )
    return Card(lines, constraints, reads, dict(ledger.forbidden))


def selection_lines(choices: Sequence[Selected]) -> tuple[Line, Line]:
    """What the card says of how this run was chosen."""
    on_test = [choice for choice in choices if "test" in choice.parts]
    later = [choice for choice in choices if choice.later]
    how = "what the evaluations of the candidates' runs read"
    none = "no choice is recorded for this run"
    every = "; ".join(f"{_chosen(choice)} on {' and '.join(choice.parts)} data" for choice in choices) or none
    return (
        Line(
            "selection on test data",
            "Did selection touch test data?",
            _yes(bool(on_test)) if choices else "none",
            every,
            how,
        ),
        Line(
            "selection on later tasks",
            "Did selection see a later task?",
            _yes(bool(later)) if choices else "none",
            "; ".join(_chosen(choice) for choice in later) or ("no choice did" if choices else none),
            how,
        ),
    )


def later_through_normalisation(scenario: Scenario) -> str:
    """What normalisation gives away of data that come later; nothing where it gives nothing away.

    The statistics of a whole data set give later tasks away where some of its classes come later.

    Example:
        >>> from engram.scenarios import permuted, split
        >>> later_through_normalisation(split("mnist", setting="class"))
        'normalised with the statistics of all of mnist, of which 8 classes come later'
        >>> later_through_normalisation(permuted("mnist", 3, setting="domain", seed=0))
        ''
    """
    come: set[tuple[str, int]] = set()
    everything = {pair for task in scenario.tasks for pair in _classes(task.source)}
    for tasks in scenario.phases:
        come |= {pair for task in tasks for pair in _classes(scenario.tasks[task].source)}
        for task in tasks:
            of = scenario.tasks[task]
            for step in of.transforms:
                whole = statistics_of(step, of.source.dataset) if isinstance(step, Normalise) else None
                missing = {pair for pair in everything - come if _whole_name(pair[0]) == whole}
                if missing:
                    classes = "class comes" if len(missing) == 1 else "classes come"
                    return (
                        f"normalised with the statistics of all of {whole}, of which {len(missing)} "
                        f"{classes} later"
                    )
    return ""


def growth(values: Sequence[float]) -> float | None:
    """By which share a series with one value a task grew over its second half; None if that cannot be told.

    What a method does for the first time when the second task begins is no growth, so that three tasks are
    needed to see any; two are enough to see none.

    Example:
        >>> growth([0, 10, 10, 10]), growth([10, 20, 30, 40, 50]), growth([7, 7]), growth([0, 7])
        (0.0, 0.6666666666666667, 0.0, None)
    """
    n = len(values)
    if n < 2:
        return None
    middle, last = values[max(1, (n - 1) // 2) if n > 2 else 0], values[-1]
    if last <= middle:
        return 0.0
    if n == 2:
        return None
    return math.inf if middle == 0 else last / middle - 1


def _reads(ledger: Ledger) -> tuple[Read, ...]:
    found: dict[tuple[str, str, str], tuple[set[int], int]] = {}
    for (phase, reader, part, tasks), samples in ledger.samples.items():
        key = (reader, part, ledger.relation(phase, tasks))
        named, before = found.get(key, (set(), 0))
        found[key] = named | set(tasks), before + samples
    return tuple(Read(*key, tuple(sorted(named)), samples) for key, (named, samples) in found.items())


def _taken(
    reads: Iterable[Read], when: str, *, parts: tuple[str, ...], readers: tuple[str, ...] = LEARNER
) -> int:
    return sum(
        read.samples for read in reads if read.reader in readers and read.when == when and read.part in parts
    )


def _passes(ledger: Ledger, when: str | None = None, readers: tuple[str, ...] = LEARNER) -> float:
    """How often the learner was handed the samples of a task, of the task that it was handed most often."""
    by_tasks: dict[tuple[int, ...], float] = {}
    for (phase, reader, part, tasks), samples in ledger.samples.items():
        if part == "train" and reader in readers and when in (None, ledger.relation(phase, tasks)):
            by_tasks[tasks] = by_tasks.get(tasks, 0.0) + samples / ledger.sizes[part, tasks]
    return max(by_tasks.values(), default=0.0)


def _passes_line(ledger: Ledger) -> Line:
    updates, ends, own = (_passes(ledger, readers=(reader,)) for reader in LEARNER)
    shares = [f"{updates:.2g} in updates", f"{ends:.2g} when a task ends"]
    return Line(
        "passes",
        "How many passes over the data?",
        f"{_passes(ledger):.3g}",
        ", ".join([*shares, f"{own:.2g} by the method itself"] if own else shares),
        "samples handed to the learner divided by the samples of the task; the most of any task",
    )


def _growth_line(name: str, question: str, values: Sequence[float], unit: str) -> Line:
    found = growth(values)
    how = "from the middle of the stream to its end; more than 5 % is growth"
    if found is None:
        why = "not counted" if not values else f"{_series(values)} {unit}: too few tasks to tell"
        return Line(name, question, "unknown", why, how)
    return Line(
        name,
        question,
        _yes(found > TOLERANCE),
        f"{_series(values)} {unit}: {_percent(found)} over the second half",
        how,
    )


def _constant(kept_bytes: Sequence[int], flops: Sequence[int], seconds: Sequence[float]) -> Constraint:
    found = {"FLOP an update": growth(flops), "bytes kept": growth(kept_bytes)}
    known = {unit: value for unit, value in found.items() if value is not None}
    verdict: Verdict = "held" if len(known) == len(found) else "unknown"
    if any(value > TOLERANCE for value in known.values()):
        verdict = "broken"
    figure = ", ".join(f"{unit} {_percent(value)}" for unit, value in known.items())
    time = growth(seconds)
    if time is not None:
        figure += f" (median time {_percent(time)})" if figure else f"median time {_percent(time)}"
    return Constraint(
        "constant update complexity",
        verdict,
        figure or "too few tasks to tell",
        "time and memory of an update do not depend on the number of tasks before (004): change of FLOP and "
        "bytes over the second half of the stream; the time is shown, not judged",
    )


def _texts(found: Mapping[str, Any]) -> dict[str, str]:
    """The fields of a line or constraint as they were read; anything but text is an error."""
    for name, value in found.items():
        if not isinstance(value, str):
            raise TypeError(f"its {name} {value!r} is no text")
    return dict(found)


def _judged(found: dict[str, str]) -> dict[str, Any]:
    if found.get("verdict") not in VERDICTS:
        raise ValueError(f"its verdict {found.get('verdict')!r} is none of {', '.join(VERDICTS)}")
    return found


def _classes(source: Any) -> set[tuple[str, int]]:
    return {(source.dataset, number) for number in source.classes}


def _whole_name(dataset: str) -> str:
    return DATASETS[dataset].part_of or dataset


def _yes(found: bool) -> str:
    return "yes" if found else "no"


def _samples(count: int, passes: float | None = None) -> str:
    if not count:
        return ""
    return f"{count:,} samples" + ("" if passes is None else f", {passes:.2g} passes")


def _series(values: Sequence[float], most: int = 6) -> str:
    """Numbers in a row, of many only the first and the last."""
    if len(values) > 1 and len(set(values)) == 1:
        return f"always {values[0]:,}"
    shown = [f"{value:,}" for value in values]
    if len(shown) > most:
        shown = [*shown[: most // 2], "…", *shown[-most // 2 :]]
    return " ".join(shown)


def _percent(share: float) -> str:
    return "from nothing" if math.isinf(share) else f"{100 * share:+.0f} %"


def _chosen(choice: Selected) -> str:
    return f"{choice.what} chosen among {choice.candidates}"


def _and(reason: str, found: Constraint) -> str:
    return f"{reason}; {found.figure}" if found.verdict == "broken" and found.figure else reason
