"""The protocol card of a run as facts: what was read, known and kept, and what it cost.

A card stores numbers, enumerations and series. Sentences are made where it is shown (`engram.results.card`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Literal, TypeVar, get_args

from engram.core.errors import InputError
from engram.core.jsons import JsonMapping, JsonObject

Word = TypeVar("Word", bound=str)

CARD_FORMAT = 3
"""The layout of a card in `result.json`. A card without a number has the first format: sentences. The second
has no acts among what is forbidden, and is read like the third."""

TOLERANCE = 0.05
"""Growth up to this share over the second half of a stream is ignored: memories vary by a few samples."""

SELECTION = "selection.json"
"""The file beside a run's result that records the choices that protocols made to end with this run."""

Part = Literal["train", "test", "validation"]
"""The parts of a data set."""

Relation = Literal["earlier", "current", "later"]
"""What the tasks of some samples are to the phase in which they were read."""

Reader = Literal["training", "end of task", "method", "evaluation", "probe"]
"""Who reads: updates, the pass over a task when it ends, the method's own code, evaluations, and probes."""

Verdict = Literal["held", "broken", "unknown"]
VERDICTS: tuple[Verdict, ...] = ("broken", "unknown", "held")
"""The worst first."""

Answer = bool | float | None
"""Yes or no, a number, or None where the question cannot be answered."""

Number = int | float
Measured = Number | str | tuple[Number, ...]
"""A number, a short name, or one number per task."""

Act = Literal[
    "file",
    "environment",
    "process",
    "connection",
    "thread",
    "objects",
    "seed",
    "batch",
    "account",
    "questions",
]
"""What a method must not do: write files or environment variables, start processes or threads, open
connections, search the objects of the process, seed its random generators, change its batch or the account of
what it reads, and keep what it is asked in an evaluation."""

ForbiddenKind = Literal[
    "train", "test", "validation", "data set", "task identity", "task identity at test time", "other", Act
]
"""What a method must not read or do; `other` is what a card of the first format says in a sentence."""

SELECTION_ON_TEST = "selection on test data"
SELECTION_ON_LATER = "selection on later tasks"


@dataclass(frozen=True, slots=True)
class Fact:
    """The answer to one question, with what was counted.

    Attributes:
        name: The question's short name; `engram.results.questions.QUESTIONS` has its text.
        answer: Yes or no, a number, or None where the question cannot be answered.
        measured: What was counted, by name.
        note: The sentence of a card of the first format, shown as it is.
        others: What other runs answered, where a card of several runs has different answers.
    """

    name: str
    answer: Answer
    measured: Mapping[str, Measured] = field(default_factory=dict)
    note: str = ""
    others: tuple[Fact, ...] = ()

    def as_json(self) -> JsonObject:
        """The fact as JSON; what is empty is left out."""
        written: JsonObject = {"name": self.name, "answer": self.answer, "measured": _plain(self.measured)}
        if self.note:
            written["note"] = self.note
        if self.others:
            written["others"] = [fact.as_json() for fact in self.others]
        return written

    @classmethod
    def of_json(cls, written: JsonMapping) -> Fact:
        """What `as_json` gave.

        Example:
            >>> fact = Fact("passes", 3.0, {"updates": 2.0, "task_ends": 1.0})
            >>> Fact.of_json(fact.as_json()) == fact
            True
        """
        answer = written["answer"]
        if not (answer is None or isinstance(answer, bool | int | float)):
            raise TypeError(f"the answer {answer!r} is not yes, no or a number")
        return cls(
            _text(written, "name"),
            answer,
            _measured(written.get("measured", {})),
            _text(written, "note", default=""),
            tuple(cls.of_json(other) for other in written.get("others", ())),
        )


@dataclass(frozen=True, slots=True)
class Constraint:
    """One of the constraints that applications set (Pfülb & Gepperth 2019, section 1.2).

    Attributes:
        name: What it is called there.
        verdict: Held, broken, or unknown where the stream is too short to tell.
        measured: What was counted, by name.
        note: The sentence of a card of the first format, shown as it is.
    """

    name: str
    verdict: Verdict
    measured: Mapping[str, Measured] = field(default_factory=dict)
    note: str = ""

    def as_json(self) -> JsonObject:
        """The constraint as JSON; what is empty is left out."""
        written = {"name": self.name, "verdict": self.verdict, "measured": _plain(self.measured)}
        return {**written, "note": self.note} if self.note else written

    @classmethod
    def of_json(cls, written: JsonMapping) -> Constraint:
        """What `as_json` gave.

        Example:
            >>> constraint = Constraint("causality", "broken", {"later_samples": 12})
            >>> Constraint.of_json(constraint.as_json()) == constraint
            True
        """
        return cls(
            _text(written, "name"),
            _one_of(written, "verdict", VERDICTS),
            _measured(written.get("measured", {})),
            _text(written, "note", default=""),
        )


@dataclass(frozen=True, slots=True)
class Read:
    """What one reader was handed of one part of the data, over the whole run.

    Attributes:
        reader: Who read.
        part: Which part of the data.
        when: Whether its tasks were being learned at that time (`current`), were over, or were still to come.
        tasks: Which tasks, counted from 0.
        samples: How many samples; a sample that was handed out twice counts twice.
    """

    reader: Reader
    part: Part
    when: Relation
    tasks: tuple[int, ...]
    samples: int

    def as_json(self) -> JsonObject:
        """The read as JSON."""
        return {**asdict(self), "tasks": list(self.tasks)}

    @classmethod
    def of_json(cls, written: JsonMapping) -> Read:
        """What `as_json` gave.

        Example:
            >>> read = Read("training", "train", "current", (0, 1), 1200)
            >>> Read.of_json(read.as_json()) == read
            True
        """
        return cls(
            _one_of(written, "reader", get_args(Reader)),
            _one_of(written, "part", get_args(Part)),
            _one_of(written, "when", get_args(Relation)),
            tuple(map(int, written["tasks"])),
            int(written["samples"]),
        )


_ACTS: Mapping[str, str] = {
    "file": "opened the file {} for writing",
    "environment": "set the environment variable {}",
    "process": "started the process {}",
    "connection": "connected to {}",
    "thread": "started a thread",
    "objects": "searched the objects of the process ({})",
    "seed": "seeded the random generator",
    "batch": "changed the samples or labels of its batch",
    "account": "changed the account of what it reads",
    "questions": "kept inputs of evaluations, or what it computed from them ({})",
}


@dataclass(frozen=True, slots=True)
class ForbiddenRead:
    """Something that a method read, or did, although it should not.

    Attributes:
        what: A part of the data, a whole data set, the identity of a task, or an act.
        tasks: The tasks whose data were read, counted from 0.
        when: For training data: whether these tasks were over or were still to come.
        dataset: The name of the data set that was opened.
        setting: The setting that hides the identity of tasks.
        note: The file, process or address of an act; the sentence of a card of the first format.
    """

    what: ForbiddenKind
    tasks: tuple[int, ...] = ()
    when: Relation | None = None
    dataset: str = ""
    setting: str = ""
    note: str = ""

    @property
    def is_act(self) -> bool:
        """Whether it is something that was done, not read."""
        return self.what in _ACTS

    def describe(self) -> str:
        """What was read or done, in words.

        Example:
            >>> ForbiddenRead("train", (1,), "later").describe()
            'training data of task 2 before it began'
            >>> ForbiddenRead("data set", dataset="digits").describe()
            'the whole data set digits'
            >>> ForbiddenRead("file", note="samples.pt").describe()
            'opened the file samples.pt for writing'
        """
        if self.is_act:
            return _ACTS[self.what].format(self.note)
        match self.what:
            case "train":
                several = len(self.tasks) > 1
                before = "before they began" if several else "before it began"
                after = "after they had ended" if several else "after it had ended"
                return f"training data of {_tasks(self.tasks)} {before if self.when == 'later' else after}"
            case "test" | "validation":
                return f"{self.what} data of {_tasks(self.tasks)}"
            case "data set":
                return f"the whole data set {self.dataset}"
            case "other":
                return self.note
            case _:
                return f"{self.what}, which the {self.setting} setting hides"

    def as_json(self) -> JsonObject:
        """The read as JSON; what is empty is left out."""
        written = {name: value for name, value in asdict(self).items() if value}
        return {**written, "tasks": list(self.tasks)} if self.tasks else written

    @classmethod
    def of_json(cls, written: JsonMapping) -> ForbiddenRead:
        """What `as_json` gave.

        Example:
            >>> read = ForbiddenRead("test", (2,))
            >>> ForbiddenRead.of_json(read.as_json()) == read
            True
        """
        return cls(
            _one_of(written, "what", get_args(ForbiddenKind)),
            tuple(map(int, written.get("tasks", ()))),
            _one_of(written, "when", get_args(Relation)) if "when" in written else None,
            _text(written, "dataset", default=""),
            _text(written, "setting", default=""),
            _text(written, "note", default=""),
        )


@dataclass(frozen=True, slots=True)
class Selected:
    """One choice that a protocol made.

    Attributes:
        what: What was chosen.
        candidates: How many candidates there were.
        parts: The parts of the data on which the candidates were judged.
        later: Whether they were judged on a task that comes after the choice takes effect.
    """

    what: str
    candidates: int
    parts: tuple[str, ...]
    later: bool

    def as_json(self) -> JsonObject:
        """The choice as JSON, as in `selection.json`."""
        return {**asdict(self), "parts": list(self.parts)}

    @classmethod
    def of_json(cls, written: JsonMapping) -> Selected:
        """What `as_json` gave.

        Example:
            >>> choice = Selected("fields", 4, ("test",), later=True)
            >>> Selected.of_json(choice.as_json()) == choice
            True
        """
        return cls(
            str(written["what"]),
            int(written["candidates"]),
            tuple(map(str, written["parts"])),
            bool(written["later"]),
        )


@dataclass(frozen=True, slots=True)
class Card:
    """All facts of a run, and the constraints that it held or broke.

    Attributes:
        facts: One per question.
        constraints: Low memory footprint, causality and constant update complexity.
        reads: Who was handed what.
        forbidden: What the method read or did although it should not, and how often.
        choices: What protocols chose to get this run.
    """

    facts: tuple[Fact, ...]
    constraints: tuple[Constraint, ...]
    reads: tuple[Read, ...] = ()
    forbidden: Mapping[ForbiddenRead, int] = field(default_factory=dict)
    choices: tuple[Selected, ...] = ()

    def fact(self, name: str) -> Fact:
        """A fact by the name of its question."""
        return next(fact for fact in self.facts if fact.name == name)

    def constraint(self, name: str) -> Constraint:
        """A constraint by its name."""
        return next(constraint for constraint in self.constraints if constraint.name == name)

    def with_choices(self, choices: Sequence[Selected]) -> Card:
        """The same card with what protocols chose to get this run; the card itself if that is nothing.

        A choice that was judged on a later task breaks causality.

        Example:
            >>> card = Card(selection_facts(()), (Constraint("causality", "held"),))
            >>> chosen = card.with_choices([Selected("fields", 4, ("test",), later=True)])
            >>> chosen.fact("selection on test data").answer, chosen.constraint("causality").verdict
            (True, 'broken')
        """
        if not choices:
            return self
        about_selection = selection_facts(choices)
        names = {fact.name for fact in about_selection}
        constraints = self.constraints
        if any(choice.later for choice in choices):
            constraints = tuple(
                _broken(constraint) if constraint.name == "causality" else constraint
                for constraint in constraints
            )
        return replace(
            self,
            facts=(*about_selection, *(fact for fact in self.facts if fact.name not in names)),
            constraints=constraints,
            choices=tuple(choices),
        )

    def as_json(self) -> JsonObject:
        """The card as JSON, as in `result.json`."""
        return {
            "format": CARD_FORMAT,
            "constraints": [constraint.as_json() for constraint in self.constraints],
            "facts": [fact.as_json() for fact in self.facts],
            "reads": [read.as_json() for read in self.reads],
            "forbidden": [{**read.as_json(), "times": times} for read, times in self.forbidden.items()],
            "choices": [choice.as_json() for choice in self.choices],
        }

    @classmethod
    def of_json(cls, written: object, *, of: str = "this run") -> Card:
        """What `as_json` gave, or a card of the first format.

        Args:
            written: The JSON value.
            of: Whose card it is, for the message where it cannot be read.

        Raises:
            InputError: It is not a card, or one of a format that is newer than this version.

        Example:
            >>> card = Card((Fact("passes", 1.0),), ())
            >>> Card.of_json(card.as_json()) == card
            True
            >>> line = {"name": "passes", "answer": "2.79", "figure": "2.8 in updates"}
            >>> old = {"lines": [line], "constraints": [], "reads": [], "forbidden": {}}
            >>> Card.of_json(old).fact("passes")
            Fact(name='passes', answer=2.79, measured={}, note='2.8 in updates', others=())
        """
        try:
            if not isinstance(written, Mapping):
                raise TypeError("it is not a JSON object")
            version = written.get("format", 1)
            if version == 1:
                return _old_card(written)
            if version not in (2, CARD_FORMAT):
                raise ValueError(f"its format {version!r} is newer than this version of engram")
            return cls(
                tuple(map(Fact.of_json, written["facts"])),
                tuple(map(Constraint.of_json, written["constraints"])),
                tuple(map(Read.of_json, written["reads"])),
                {ForbiddenRead.of_json(read): int(read["times"]) for read in written["forbidden"]},
                tuple(map(Selected.of_json, written["choices"])),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InputError(
                f"the card of {of} cannot be read ({error}): run it again with --again"
            ) from error


def selection_facts(choices: Sequence[Selected]) -> tuple[Fact, Fact]:
    """Whether selection touched test data or a later task; unanswered where no choice is recorded.

    Example:
        >>> [fact.answer for fact in selection_facts([Selected("lr", 3, ("test",), later=False)])]
        [True, False]
    """
    on_test = any("test" in choice.parts for choice in choices)
    on_later = any(choice.later for choice in choices)
    return (
        Fact(SELECTION_ON_TEST, on_test if choices else None),
        Fact(SELECTION_ON_LATER, on_later if choices else None),
    )


def growth(values: Sequence[float]) -> float | None:
    """The share by which a series with one value per task grew over its second half; None if unknown.

    What a method does for the first time when the second task begins is not growth, so that three tasks are
    needed to see growth; two are enough to see that there is none, or as little as is ignored.

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
    if n == 2 and last > (1 + TOLERANCE) * middle:
        return None
    return math.inf if middle == 0 else last / middle - 1


def _broken(constraint: Constraint) -> Constraint:
    """The constraint as broken; what its note said of how it was held is not true any more."""
    note = constraint.note if constraint.verdict == "broken" else ""
    return replace(constraint, verdict="broken", note=note)


def _tasks(tasks: tuple[int, ...]) -> str:
    return ("task " if len(tasks) == 1 else "tasks ") + ", ".join(str(task + 1) for task in tasks)


# Cards of the first format, which had sentences -----------------------------------------------------


def _old_card(written: JsonMapping) -> Card:
    return Card(
        tuple(map(_old_fact, written["lines"])),
        tuple(
            Constraint(_text(old, "name"), _one_of(old, "verdict", VERDICTS), note=_text(old, "figure"))
            for old in written["constraints"]
        ),
        tuple(map(Read.of_json, written["reads"])),
        {ForbiddenRead("other", note=str(what)): int(times) for what, times in written["forbidden"].items()},
    )


def _old_fact(line: JsonMapping) -> Fact:
    """A line of text as a fact; an answer that is no longer given stays in the note."""
    name, text, figure = (_text(line, key) for key in ("name", "answer", "figure"))
    words: dict[str, Answer] = {"yes": True, "no": False, "none": None, "unknown": None}
    if text in words:
        return Fact(name, words[text], note=figure)
    number = text.removesuffix(" ms").replace(",", "")
    try:
        answer = float(number) if "." in number else int(number)
    except ValueError:
        return Fact(name, None, note="; ".join(part for part in (text, figure) if part))
    return Fact(name, answer / 1000 if text.endswith(" ms") else answer, note=figure)


# Reading JSON ---------------------------------------------------------------------------------------


def _text(written: JsonMapping, name: str, *, default: str | None = None) -> str:
    value = written[name] if default is None else written.get(name, default)
    if not isinstance(value, str):
        raise TypeError(f"its {name} {value!r} is not text")
    return value


def _one_of(written: JsonMapping, name: str, known: tuple[Word, ...]) -> Word:
    for word in known:
        if written[name] == word:
            return word
    raise ValueError(f"its {name} {written[name]!r} is none of {', '.join(known)}")


def _plain(measured: Mapping[str, Measured]) -> dict[str, Number | str | list[Number]]:
    return {name: list(value) if isinstance(value, tuple) else value for name, value in measured.items()}


def _measured(written: JsonMapping) -> dict[str, Measured]:
    measured: dict[str, Measured] = {}
    for name, value in written.items():
        numbers = value if isinstance(value, list) else [] if isinstance(value, str) else [value]
        if not all(isinstance(number, int | float) for number in numbers):
            raise TypeError(f"its {name} {value!r} is neither a number, nor a list of numbers, nor text")
        measured[name] = tuple(numbers) if isinstance(value, list) else value
    return measured
