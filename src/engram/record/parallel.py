"""Evaluator processes beside the learner: what is wanted, and the record of what they did."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Final, NamedTuple

from engram.core.errors import InputError
from engram.core.jsons import JsonMapping, JsonObject

MOST_EVALUATORS: Final = 64
WORDS: Final = "auto, off, a number of evaluators, skip or skip:NUMBER"


@dataclass(frozen=True, slots=True)
class ParallelPlan:
    """How networks are evaluated: in line, or by evaluator processes while the learner goes on.

    Attributes:
        evaluators: How many processes; 0 to evaluate in line, None to choose.
        skips: Whether an update is not evaluated while all evaluators are busy; otherwise the learner waits.

    Example:
        >>> ParallelPlan.of("auto"), ParallelPlan.of("skip")
        (ParallelPlan(evaluators=None, skips=False), ParallelPlan(evaluators=1, skips=True))
        >>> print(ParallelPlan.of("skip:3"), ParallelPlan.of("off"), ParallelPlan.of("auto"))
        skip:3 off auto
        >>> ParallelPlan.of("many")
        Traceback (most recent call last):
        engram.core.errors.InputError: parallel must be auto, off, a number of evaluators, skip or ...
    """

    evaluators: int | None = 0
    skips: bool = False

    @classmethod
    def of(cls, word: str | int) -> ParallelPlan:
        """The plan that a word names.

        Raises:
            InputError: There is no such plan.
        """
        first, colon, number = str(word).partition(":")
        if str(word) in ("auto", "off"):
            return cls(None if word == "auto" else 0)
        count = number if colon else ("1" if first == "skip" else first)
        if isinstance(word, bool) or not count.isdecimal() or (colon and first != "skip"):
            raise InputError(f"parallel must be {WORDS}, got {word!r}")
        if not 1 <= int(count) <= MOST_EVALUATORS:
            raise InputError(
                f"parallel must be 1 to {MOST_EVALUATORS} evaluators, or off to evaluate in line, got {count}"
            )
        return cls(int(count), skips=first == "skip")

    @property
    def chooses(self) -> bool:
        """Whether evaluators are used only where that is faster."""
        return self.evaluators is None

    def for_run(self, *, skips: bool) -> ParallelPlan:
        """The plan for one run, whose experiment says whether updates may be skipped.

        Example:
            >>> off, skip = ParallelPlan.of("off"), ParallelPlan.of("skip:2")
            >>> print(off.for_run(skips=True), skip.for_run(skips=False))
            skip 2
        """
        return (
            replace(self, evaluators=self.evaluators or 1, skips=True)
            if skips
            else replace(self, skips=False)
        )

    def __str__(self) -> str:
        if self.skips:
            return "skip" if self.evaluators == 1 else f"skip:{self.evaluators}"
        return "auto" if self.evaluators is None else str(self.evaluators or "off")


class Late(NamedTuple):
    """The result of an evaluation that an evaluator process made: of which update, and the accuracies."""

    step: int
    learning: int
    accuracies: dict[int, float]


@dataclass(frozen=True, slots=True)
class ParallelRecord:
    """What evaluator processes did.

    Attributes:
        wanted: What was asked for: a number, `auto`, or `skip` with a number.
        evaluators: The most that were used at a time.
        evaluations: Evaluations that they made; all others were made in line.
        skipped: Evaluations that were due and were not made, because all evaluators were busy.
        period: Where updates may be skipped, the mean number of updates from one evaluation to the next.
        longest: The largest such number.
        lag: The most updates by which evaluations were behind.
        replaced: Evaluators that ended before their time, and were replaced.
        why: Why evaluations were made in line; empty if only the first ones and those at task ends were.

    Example:
        >>> record = ParallelRecord("skip:2", 2, 90, 10, 1.1, 4, 6)
        >>> ParallelRecord.of_json(record.as_json()) == record
        True
        >>> print(record)
        2 evaluators made 90 evaluations, at most 6 updates behind; 10 were skipped: one evaluation per 1.1...
    """

    wanted: str
    evaluators: int = 0
    evaluations: int = 0
    skipped: int = 0
    period: float | None = None
    longest: int | None = None
    lag: int = 0
    replaced: int = 0
    why: str = ""

    @property
    def kept(self) -> bool:
        """Whether it says more than that a run was evaluated in line, as runs usually are."""
        return self.wanted != "auto" or self.evaluations > 0

    def as_json(self) -> JsonObject:
        """What `result.json` says."""
        return asdict(self)

    @classmethod
    def of_json(cls, value: JsonMapping) -> ParallelRecord:
        """Read what `as_json` gave."""
        period, longest = value["period"], value["longest"]
        return cls(
            wanted=str(value["wanted"]),
            evaluators=int(value["evaluators"]),
            evaluations=int(value["evaluations"]),
            skipped=int(value["skipped"]),
            period=None if period is None else float(period),
            longest=None if longest is None else int(longest),
            lag=int(value["lag"]),
            replaced=int(value["replaced"]),
            why=str(value["why"]),
        )

    def __str__(self) -> str:
        """One line for `-v`."""
        words = f"evaluated in line: {self.why or 'there were too few evaluations'}"
        if self.evaluations:
            several = "s" * (self.evaluators != 1)
            made = f"{self.evaluators} evaluator{several} made {self.evaluations:,} evaluations"
            words = f"{made}, at most {self.lag:,} updates behind"
            words += f"; some in line: {self.why}" if self.why else ""
        if self.period is not None:
            words += (
                f"; {self.skipped:,} were skipped: one evaluation per {self.period:.2f} updates, "
                f"at most {self.longest:,} between two"
            )
        return words + (f"; {self.replaced} evaluators ended and were replaced" if self.replaced else "")
