"""What a user says of test sets and answers: names, how a network is asked, what is right, what is scored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from engram.core.errors import InputError
from engram.evaluation.asking import Forward, Right, Score
from engram.evaluation.batch_sets import TestSet, as_test_set, labels_in, size_of
from engram.record.samples import Column, PerTask, TaskSamples, by_task, checked_ids, checked_slices

CompetingUnits = Sequence[Sequence[int] | None]
"""For each task, the output units that compete for the answer; None for all."""


@dataclass(frozen=True, slots=True)
class Ways:
    """How a network is asked and judged.

    Attributes:
        right: What counts as right; None for the class with the highest score.
        score: How good an answer is; None where no scores are recorded.
        forward: How a network is asked; None for calling it with the inputs.
        higher_is_better: Whether a higher score is better.

    Example:
        >>> Ways.of(right=None, score=lambda output, batch: output, forward=None, higher_is_better=None)
        Traceback (most recent call last):
        engram.core.errors.InputError: say whether a higher score is better: ...
    """

    right: Right | None = None
    score: Score | None = None
    forward: Forward | None = None
    higher_is_better: bool = True

    @classmethod
    def of(
        cls,
        *,
        right: Right | None,
        score: Score | None,
        forward: Forward | None,
        higher_is_better: bool | None,
    ) -> Ways:
        """These functions, checked; a ready score function says itself whether higher is better.

        Raises:
            InputError: One is not a function, or a direction is missing.
        """
        for name, function in (("right", right), ("score", score), ("forward", forward)):
            if function is not None and not callable(function):
                raise InputError(f"{name} must be a function, got {type(function).__name__}")
        if score is None:
            if higher_is_better is not None:
                raise InputError("higher_is_better says which scores are better: give score= as well")
            return cls(right, None, forward)
        better = getattr(score, "higher_is_better", None) if higher_is_better is None else higher_is_better
        if not isinstance(better, bool):
            raise InputError("say whether a higher score is better: higher_is_better=False for a loss")
        return cls(right, score, forward, better)

    def check(
        self, *, units: object, losses: bool, full_ends: bool, answers: bool, two_level: bool = False
    ) -> None:
        """Refuse options that say something of classes where answers are not classes.

        Raises:
            InputError: There is one.
        """
        if not self.classified:
            if units is not None:
                raise InputError("units are those of classes: leave them out with right= and score=")
            if answers:
                raise InputError("answers=True records classes: leave it out with right= and score=")
            if losses:
                raise InputError(
                    "losses are those of classes: use score=engram.score.cross_entropy() instead"
                )
        if full_ends and not self.answered:
            raise InputError("full_ends is for right and wrong answers, not for scores: leave it out")
        if two_level and not self.answered:
            raise InputError(
                "two-level samples are for right and wrong answers, not for scores: leave samples out, or "
                "give right= too"
            )

    @property
    def classified(self) -> bool:
        """Whether answers are classes, judged by the highest score."""
        return self.right is None and self.score is None

    @property
    def answered(self) -> bool:
        """Whether answers are right or wrong, and not only scored."""
        return self.right is not None or self.score is None

    @property
    def own(self) -> bool:
        """Whether code of the user's is run in evaluations."""
        return not self.classified or self.forward is not None


def read_test_sets(test_sets: object, *, classified: bool) -> tuple[list[str] | None, list[TestSet]]:
    """The names of tasks, None where they have none, and their test sets.

    Args:
        test_sets: A list with one test set per task, or a mapping of names to test sets.
        classified: Whether labels must be class numbers.

    Raises:
        InputError: There are none, one cannot be read or is empty, or names repeat.

    Example:
        >>> import torch
        >>> pair = torch.eye(2), torch.tensor([0, 1])
        >>> read_test_sets({"dogs": pair, "cats": pair}, classified=True)[0]
        ['dogs', 'cats']
    """
    if not isinstance(test_sets, Mapping | Sequence) or isinstance(test_sets, str):
        raise InputError(
            "test sets must be a list with one per task, or a dict of names, got a "
            f"{type(test_sets).__name__}: put a single one in brackets"
        )
    if not test_sets:
        raise InputError("there is nothing to evaluate: give one test set per task")
    if not isinstance(test_sets, Mapping):
        return None, [_read(data, str(n), "", classified) for n, data in enumerate(test_sets)]
    names = [str(name) for name in test_sets]
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise InputError(f"names of test sets must differ, got {repeated[0]!r} twice")
    sets = [
        _read(data, name, f"task {name}: ", classified)
        for name, data in zip(names, test_sets.values(), strict=True)
    ]
    return names, sets


def _read(data: object, name: str, prefix: str, classified: bool) -> TestSet:
    try:
        test_set = as_test_set(data, classified=classified)
    except InputError as error:
        raise InputError(f"{prefix}{error}") from error
    if size_of(test_set) == 0:
        raise InputError(f"the test set of task {name} is empty: give it samples, or leave it out")
    return test_set


def known_samples(
    sets: Sequence[TestSet],
    names: Sequence[str],
    ids: PerTask[Column] | None,
    slices: PerTask[Mapping[str, Column]] | None,
) -> list[TaskSamples]:
    """What is known of the samples of each test set, checked."""
    given = [None] * len(sets) if ids is None else by_task(ids, names, "ids")
    columns = [None] * len(sets) if slices is None else by_task(slices, names, "slices")
    known = []
    for number, test_set in enumerate(sets):
        size, of = size_of(test_set), f"test set {names[number]}"
        mine = given[number]
        known.append(
            TaskSamples(
                [str(place) for place in range(size)] if mine is None else checked_ids(mine, size, of),
                _plain_labels(test_set),
                checked_slices(columns[number] or {}, size, of),
            )
        )
    return known


def competing_units(units: CompetingUnits | None, tasks: int) -> CompetingUnits | None:
    """The output units that compete in each task, in ascending order."""
    if units is None:
        return None
    if len(units) != tasks:
        raise InputError(f"units must have one entry per task, got {len(units)} for {tasks} tasks")
    for task, competing in enumerate(units):
        if competing is not None and (not competing or min(competing) < 0):
            raise InputError(
                f"units of task {task} must be output units counted from 0, at least one, "
                f"got {list(competing)}"
            )
    return [None if competing is None else tuple(sorted(set(competing))) for competing in units]


def _plain_labels(data: TestSet) -> list[int] | None:
    """The labels of a test set as class numbers; None where they are something else."""
    labels = labels_in(data)
    if labels is None or labels.ndim != 1 or labels.is_floating_point():
        return None
    return labels.tolist()
