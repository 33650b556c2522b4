"""The record of evaluations in half precision: how many answers were checked, and how many were wrong."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Literal, TypeAlias, get_args

from engram.core.errors import unknown_name
from engram.core.jsons import JsonMapping, JsonObject

Precision: TypeAlias = Literal["full", "half-checked", "auto"]
"""In which precision networks are evaluated: full; half, with answers in doubt asked again in full; or the
second where it is faster."""


_COUNTS = ("evaluations", "answers", "asked_again", "compared", "compared_answers", "wrong")


def check_precision(precision: str) -> None:
    """Refuse a word that is not one of `Precision`.

    Example:
        >>> check_precision("half")
        Traceback (most recent call last):
        engram.core.errors.InputError: unknown precision 'half'...
    """
    if precision not in get_args(Precision):
        raise unknown_name("precision", precision, get_args(Precision))


@dataclass(frozen=True, slots=True)
class HalfChecked:
    """What was done in half precision, and what comparisons with full precision found.

    Attributes:
        wanted: `half-checked` or `auto`.
        evaluations: Evaluations in half precision, those that were also made in full precision included.
        answers: Answers in these.
        asked_again: Answers among them that were asked again in full precision.
        compared: Evaluations that were made in both precisions; full precision was recorded.
        compared_answers: Answers in these.
        wrong: Answers among them that half precision, checked, would have recorded wrong.
        factor: The safety factor at the end; it is doubled where a comparison finds a wrong answer.
        why: Why evaluations were made in full precision; empty if none was, besides comparisons.

    Example:
        >>> record = HalfChecked("auto", 100, 5000, 200, 2, 100, 0, 4.0)
        >>> HalfChecked.of_json(record.as_json()) == record
        True
        >>> print(record)
        half precision in 100 evaluations, 4.00 % of 5,000 answers asked again; 2 made in both, 0 of 100 ...
    """

    wanted: str
    evaluations: int = 0
    answers: int = 0
    asked_again: int = 0
    compared: int = 0
    compared_answers: int = 0
    wrong: int = 0
    factor: float = 0.0
    why: str = ""

    def since(self, before: HalfChecked) -> HalfChecked:
        """What was done since an earlier record.

        Example:
            >>> HalfChecked("auto", 7, 70).since(HalfChecked("auto", 5, 50)).answers
            20
        """
        counts = {name: getattr(self, name) - getattr(before, name) for name in _COUNTS}
        return replace(self, **counts)

    def as_json(self) -> JsonObject:
        """What `result.json` says."""
        return asdict(self)

    @classmethod
    def of_json(cls, value: JsonMapping) -> HalfChecked:
        """Read what `as_json` gave."""
        return cls(
            wanted=str(value["wanted"]),
            evaluations=int(value["evaluations"]),
            answers=int(value["answers"]),
            asked_again=int(value["asked_again"]),
            compared=int(value["compared"]),
            compared_answers=int(value["compared_answers"]),
            wrong=int(value["wrong"]),
            factor=float(value["factor"]),
            why=str(value["why"]),
        )

    def __str__(self) -> str:
        """One line for `-v`."""
        if not self.evaluations:
            return f"full precision: {self.why or 'nothing was evaluated'}"
        share = 100 * self.asked_again / self.answers
        also = f"; some evaluations in full precision: {self.why}" if self.why else ""
        return (
            f"half precision in {self.evaluations:,} evaluations, {share:.2f} % of {self.answers:,} answers "
            f"asked again; {self.compared:,} made in both, {self.wrong:,} of {self.compared_answers:,} "
            f"answers differed (safety factor {self.factor:g}){also}"
        )
