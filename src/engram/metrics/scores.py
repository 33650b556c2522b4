"""Metrics of scores: what is defined for a number per sample, such as a loss, instead of right or wrong.

Metrics of right and wrong answers are not defined for scores: a mean loss has no range, and no sample is
right. These four are the counterparts of ACC, min-ACC, FORG and WF.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import Final, NamedTuple

import numpy as np

from engram.core.errors import InputError
from engram.core.scores import Scores
from engram.metrics.arrays import Matrix, Vector, mean_of_known
from engram.metrics.curve import largest_drops
from engram.metrics.history import Curve, Phases
from engram.metrics.registry import computed
from engram.metrics.summary import Measurement

WINDOWS = (10, 100)

UNDEFINED = "is defined for right and wrong answers, and only scores were recorded: give right= as well"

MEANINGS: Final = {
    "score": "The mean score of all tasks learned so far, at the end.",
    "score-worst": "The worst mean score that earlier tasks have had since they were learned, on average.",
    "score-FORG": "How much worse the mean score of earlier tasks is than when each was learned, on average.",
    **{
        f"score-WF{window}": "How much worse the mean score of each task became within "
        f"{window} evaluations, on average."
        for window in WINDOWS
    },
}
"""What each metric of scores says. Their unit is that of the score."""


def shown_times(metric: str) -> float:
    """What a metric is multiplied by for people: shares become percentages, scores stay as they are.

    Example:
        >>> shown_times("ACC"), shown_times("score-FORG")
        (100.0, 1.0)
    """
    return 1.0 if metric in MEANINGS else 100.0


def higher_score_is_better(metric: str, scores: Iterable[Scores]) -> bool:
    """Whether higher values of a metric of scores are better.

    Args:
        metric: Its name, one of `MEANINGS`.
        scores: The scores of the runs that are compared.

    Raises:
        InputError: Higher scores are better in some of the runs only.

    Example:
        >>> losses = Scores(higher_is_better=False)
        >>> higher_score_is_better("score", [losses]), higher_score_is_better("score-FORG", [losses])
        (False, False)
    """
    directions = {each.higher_is_better for each in scores}
    if len(directions) > 1:
        raise InputError(
            "higher scores are better in some of the runs and worse in others: compare them apart"
        )
    return metric in ("score", "score-worst") and directions == {True}


_LATER = "undefined until a task is evaluated while a later one is learned"
_WHY = {
    "score": "undefined: no task that was learned was evaluated",
    "score-worst": _LATER,
    "score-FORG": _LATER,
    **dict.fromkeys((f"score-WF{window}" for window in WINDOWS), "undefined: nothing was evaluated"),
}


class ScoreValue(NamedTuple):
    """A metric of scores: its value at the end, and that of each task; NaN where it is undefined."""

    final: float
    by_task: Vector


def summarise_scores(scores: Scores, *, phases: Phases | None = None) -> dict[str, ScoreValue]:
    """The metrics of scores, by name. Tasks are in the order in which they were first learned.

    - `score`: the mean score at the end, averaged over the tasks learned.
    - `score-worst`: the worst mean score that earlier tasks have had since they were learned, averaged.
    - `score-FORG`: by how much the mean score of earlier tasks is worse at the end than when each was
      learned, averaged; below 0 where it is better.
    - `score-WF10`, `score-WF100`: by how much the mean score of each task became worse within 10 or 100
      evaluations at most, averaged over the tasks.

    Args:
        scores: The scores of a run; they say whether higher is better.
        phases: The tasks for each value of `learning`, if several tasks are learned together.

    Example:
        >>> scores = Scores(higher_is_better=False)
        >>> scores.add(step=1, learning=0, task=0, values=np.array([0.5], np.float32))
        >>> for step, losses in [(2, (2.0, 0.75)), (3, (1.0, 0.25))]:
        ...     for task, loss in enumerate(losses):
        ...         scores.add(step=step, learning=1, task=task, values=np.array([loss], np.float32))
        >>> {name: value.final for name, value in summarise_scores(scores).items()}
        {'score': 0.625, 'score-worst': 2.0, 'score-FORG': 0.5, 'score-WF10': 0.75, 'score-WF100': 0.75}
    """
    curve = curve_of_scores(scores, phases)
    means = curve.total
    assert means is not None
    # Above 0 is worse from here on.
    sign = -1.0 if scores.higher_is_better else 1.0
    at_ends = curve.totals()
    assert at_ends is not None
    learning = curve.being_learned()
    earlier = np.logical_or.accumulate(learning, axis=0) & ~learning
    worst = np.fmax.accumulate(np.where(earlier, sign * means, np.nan), axis=0)[-1]
    values = {
        "score": _at_end(at_ends),
        "score-worst": ScoreValue(sign * mean_of_known(worst), sign * worst),
        "score-FORG": _forgotten(sign * at_ends),
    }
    for window in WINDOWS:
        change = largest_drops(-sign * means, window)[-1]
        values[f"score-WF{window}"] = ScoreValue(mean_of_known(change), change)
    return values


def with_scores(
    measured: Measurement | None,
    scores: Scores,
    *,
    phases: Phases | None = None,
    only: Collection[str] | None = None,
) -> Measurement:
    """All metrics of a run: of its right and wrong answers, and of its scores.

    Args:
        measured: The metrics of its right and wrong answers; None where only scores were recorded, and these
            metrics are refused with the reason.
        scores: Its scores; they may be empty.
        phases: The tasks for each value of `learning`, if several tasks are learned together.
        only: The metrics to compute (default: all).

    Example:
        >>> scores = Scores()
        >>> scores.add(step=1, learning=0, task=0, values=np.array([0.5], np.float32))
        >>> measured = with_scores(None, scores)
        >>> measured.final["score"], measured.why["ACC"]
        (0.5, 'is defined for right and wrong answers, and only scores were recorded: give right= as well')
    """
    if measured is None:
        measured = Measurement({}, {}, {}, dict.fromkeys(computed(), UNDEFINED))
    if not len(scores):
        return measured
    values = summarise_scores(scores, phases=phases)
    values = {name: value for name, value in values.items() if only is None or name in only}
    undefined = {name: _WHY[name] for name, value in values.items() if np.isnan(value.final)}
    return replace(
        measured,
        final={**measured.final, **{name: value.final for name, value in values.items()}},
        by_task={**measured.by_task, **{name: value.by_task.tolist() for name, value in values.items()}},
        why={**measured.why, **undefined},
    )


def curve_of_scores(scores: Scores, phases: Phases | None = None) -> Curve:
    """The evaluations of a run as a curve whose totals are mean scores; its accuracies mean nothing."""
    return Curve.of_table(
        step=scores.step,
        learning=scores.learning,
        task=scores.task,
        # The curve is used for its order of tasks and evaluations; only its totals may be any number.
        accuracy=np.zeros(len(scores)),
        total=scores.means(),
        phases=phases,
    )


def _at_end(at_ends: Matrix) -> ScoreValue:
    last = _last(at_ends)
    if last is None:
        return ScoreValue(np.nan, np.full(len(at_ends), np.nan))
    return ScoreValue(mean_of_known(at_ends[last][: last + 1]), at_ends[last])


def _forgotten(worse: Matrix) -> ScoreValue:
    """How much worse each task is after the last one than after itself."""
    last, by_task = _last(worse), np.full(len(worse), np.nan)
    if last is not None:
        by_task[:last] = worse[last, :last] - np.diagonal(worse)[:last]
    return ScoreValue(mean_of_known(by_task), by_task)


def _last(at_ends: Matrix) -> int | None:
    """The row of the last task that was learned."""
    learned = np.flatnonzero(~np.isnan(at_ends).all(axis=1))
    return int(learned[-1]) if learned.size else None
