"""Metrics of single samples: which were lost, gained, forgotten again and again, never or always known."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from engram.metrics.arrays import Mask, Matrix, Vector
from engram.metrics.registry import metric
from engram.metrics.sample_curve import Fates, SampleCurve
from engram.metrics.sources import SAMPLE_WISE, TONEVA


def share(samples: Mask) -> float:
    """The share of samples that are marked; NaN for none.

    Example:
        >>> share(np.array([True, False, False, False]))
        0.25
    """
    return float(samples.mean()) if samples.size else float("nan")


def negative_flips(before: Mask, after: Mask) -> float:
    """The negative flip rate: the share of samples that were right before and are wrong after.

    Source: Yan et al. (2021), positive-congruent training.

    Example:
        >>> negative_flips(np.array([True, True, False, False]), np.array([True, False, True, False]))
        0.25
    """
    return share(before & ~after)


def positive_flips(before: Mask, after: Mask) -> float:
    """The positive flip rate: the share of samples that were wrong before and are right after.

    Example:
        >>> positive_flips(np.array([True, True, False, False]), np.array([True, False, True, True]))
        0.5
    """
    return share(~before & after)


def churn(before: Mask, after: Mask) -> float:
    """The share of samples whose answer changed between right and wrong: negative plus positive flips.

    Churn of the answers themselves (Cormier et al. 2016) also counts changes from one wrong answer to
    another, which the bits do not show: it is at least as large.

    Example:
        >>> churn(np.array([True, True, False, False]), np.array([True, False, True, False]))
        0.5
    """
    return share(before != after)


def guessed_flips(before: Mask, after: Mask, choices: float) -> float:
    """The share of samples that turn from right to wrong by guessing alone, as expected.

    A sample is known, and then right, or guessed among `choices` answers. Of the samples that are known at
    neither moment, a share of (1 − 1/k) (1 − 1/k') is wrong at both, and 1/k · (1 − 1/k') right only before:
    1 / (k − 1) of the former.

    Args:
        before: Which samples were right before.
        after: Which samples were right after.
        choices: k, among how many answers the earlier one was sought; NaN is returned for fewer than 2.

    Example:
        >>> before, after = np.array([True, False, False, False]), np.array([False, False, False, True])
        >>> guessed_flips(before, after, 3)
        0.25
    """
    return share(~before & ~after) / (choices - 1) if choices > 1 else float("nan")


@metric(
    "SF",
    title="sample-wise forgetting",
    higher_is_better=False,
    bounds=(0, 1),
    source=f"{SAMPLE_WISE}; the negative flip rate of Yan et al. (2021)",
    needs="right",
    family="forgetting of samples",
    aliases=["negative flip rate", "sample-wise forgetting", "NFR"],
    average=True,
)
def sample_forgetting(right: SampleCurve) -> Vector:
    """The share of samples that were right just after their task was learned and are wrong at the end.

    Formula: SF = (1/(T−1)) Σ_{i<T} (1/n_i) |{s : right after task i, wrong at the end}|
    Divisor: n_i, all samples of the task; then the tasks that were evaluated after a later one was learned
    Direction: A task that loses ten samples and gains ten others has FORG 0, but SF above 0.
    NaN: undefined for a single task
    Worked: (2/4 + 1/4) / 2

    Of the same samples, FORG = SF − SBT if no task is learned in two phases: here such a task ends with the
    last of them, there with the first. Only the two evaluations count: a sample that was forgotten and
    learned again in between is not forgotten.

    Example:
        >>> from engram.metrics.examples import worked_samples
        >>> sample_forgetting(worked_samples())
        array([0.5 , 0.25,  nan])
    """
    return _of_pairs(right, lambda column, before, after: negative_flips(before, after))


@metric(
    "SBT",
    title="sample-wise backward transfer",
    higher_is_better=True,
    bounds=(0, 1),
    source=SAMPLE_WISE,
    needs="right",
    family="forgetting of samples",
    aliases=["positive flip rate", "sample-wise backward transfer"],
    average=True,
)
def sample_transfer(right: SampleCurve) -> Vector:
    """The share of samples that were wrong just after their task was learned and are right at the end.

    Formula: SBT = (1/(T−1)) Σ_{i<T} (1/n_i) |{s : wrong after task i, right at the end}|
    Divisor: n_i, all samples of the task; then the tasks that were evaluated after a later one was learned
    Direction: Later tasks helped earlier ones, or the answer was guessed: see SBT-chance.
    NaN: undefined for a single task
    Worked: (0/4 + 1/4) / 2

    Example:
        >>> from engram.metrics.examples import worked_samples
        >>> sample_transfer(worked_samples())
        array([0.  , 0.25,  nan])
    """
    return _of_pairs(right, lambda column, before, after: positive_flips(before, after))


@metric(
    "SF-chance",
    title="sample-wise forgetting beyond guessing",
    higher_is_better=False,
    bounds=(0, 1),
    source=f"{SAMPLE_WISE}, chance-adjusted",
    needs=("right", "choices"),
    family="forgetting of samples",
    average=True,
)
def forgetting_beyond_chance(right: SampleCurve, choices: Matrix) -> Vector:
    """The share of samples that were forgotten, less those that guessing would turn from right to wrong.

    Formula: SF_i − W_i / (k − 1), at least 0; W_i is the share that is wrong at both evaluations, k the
        number of classes among which the answer was sought just after task i was learned
    Divisor: as for SF
    NaN: undefined for a single task, or if the answer was sought among fewer than two classes
    Worked: ((2/4 − 0/4 / (2 − 1)) + (1/4 − 1/4 / (4 − 1))) / 2
    Elsewhere: Harmon et al. derive the expected flips from the two accuracies, as if the two evaluations were
        independent: the product of the shares of errors takes the place of W_i.

    A sample is taken to be known, or guessed with equal chances. In the task setting k counts the classes of
    the task, with masked outputs the classes so far, otherwise all classes. A network that answers everything
    with the newest classes does not guess: the correction is then too large, and SF the number to look at.

    Example:
        >>> from engram.metrics.examples import worked_samples
        >>> choices = np.array([[2, 4, 6], [4, 4, 6], [6, 6, 6]])
        >>> forgetting_beyond_chance(worked_samples(), choices).round(4)
        array([0.5   , 0.1667,     nan])
    """

    def lost(column: int, before: Mask, after: Mask) -> float:
        expected = guessed_flips(before, after, float(choices[column, column]))
        return float(np.maximum(negative_flips(before, after) - expected, 0))

    return _of_pairs(right, lost)


@metric(
    "SBT-chance",
    title="sample-wise backward transfer beyond guessing",
    higher_is_better=True,
    bounds=(0, 1),
    source=f"{SAMPLE_WISE}, chance-adjusted",
    needs=("right", "choices"),
    family="forgetting of samples",
    average=True,
)
def transfer_beyond_chance(right: SampleCurve, choices: Matrix) -> Vector:
    """The share of samples that were gained, less those that guessing would turn from wrong to right.

    Formula: SBT_i − W_i / (k' − 1), at least 0; W_i is the share that is wrong at both evaluations, k' the
        number of classes among which the answer is sought at the end
    Divisor: as for SBT
    NaN: undefined for a single task, or if the answer was sought among fewer than two classes
    Worked: (0/4 + (1/4 − 1/4 / (6 − 1))) / 2

    See SF-chance for what is assumed.

    Example:
        >>> from engram.metrics.examples import worked_samples
        >>> choices = np.array([[2, 4, 6], [4, 4, 6], [6, 6, 6]])
        >>> transfer_beyond_chance(worked_samples(), choices).round(4)
        array([0. , 0.2, nan])
    """
    last = int(np.max(np.flatnonzero(~np.isnan(choices).all(axis=1)), initial=0))

    def gained(column: int, before: Mask, after: Mask) -> float:
        expected = guessed_flips(after, before, float(choices[last, column]))
        return float(np.maximum(positive_flips(before, after) - expected, 0))

    return _of_pairs(right, gained)


@metric(
    "unforgettable",
    title="unforgettable samples",
    higher_is_better=True,
    bounds=(0, 1),
    source=TONEVA,
    needs="right",
    aliases=["forgetting events"],
    average=True,
)
def unforgettable(right: SampleCurve) -> Vector:
    """The share of samples that were learned and then stayed right at every evaluation.

    Formula: (1/T) Σ_i (1/n_i) |{s : right at some evaluation, and no forgetting event}|
    Divisor: n_i, all samples of the task; then all tasks that were learned
    NaN: undefined: nothing was evaluated after the first update
    Worked: (2/4 + 2/4 + 3/4) / 3
    Elsewhere: Toneva et al. look at a training sample whenever it is in a batch; here test samples are looked
        at whenever they are evaluated.

    A forgetting event is a change from right to wrong between two evaluations of a sample, from the first
    update of its task on. The more often it is evaluated, the more events are seen: compare runs with the
    same schedule. `engram samples RUN` lists them.

    Example:
        >>> from engram.metrics.examples import worked_samples
        >>> unforgettable(worked_samples())
        array([0.5 , 0.5 , 0.75])
    """
    return _of_fates(right, lambda fates: share(fates.ever & (fates.forgotten == 0)))


@metric(
    "never-known",
    title="never known samples",
    higher_is_better=False,
    bounds=(0, 1),
    source=TONEVA,
    needs="right",
    aliases=["forgetting events"],
    average=True,
)
def never_known(right: SampleCurve) -> Vector:
    """The share of samples that were wrong at every evaluation since their task began.

    Formula: (1/T) Σ_i (1/n_i) |{s : wrong at every evaluation}|
    Divisor: n_i, all samples of the task; then all tasks that were learned
    Direction: Wrong labels and very hard samples are among them.
    NaN: undefined: nothing was evaluated after the first update
    Worked: (0/4 + 1/4 + 1/4) / 3

    Example:
        >>> from engram.metrics.examples import worked_samples
        >>> never_known(worked_samples())
        array([0.  , 0.25, 0.25])
    """
    return _of_fates(right, lambda fates: share(~fates.ever))


@metric(
    "always-known",
    title="always known samples",
    higher_is_better=True,
    bounds=(0, 1),
    source=TONEVA,
    needs="right",
    aliases=["forgetting events"],
    average=True,
)
def always_known(right: SampleCurve) -> Vector:
    """The share of samples that were right at every evaluation since their task was learned.

    Formula: (1/(T−1)) Σ_{i<T} (1/n_i) |{s : right at the end of task i and at every evaluation since}|
    Divisor: n_i, all samples of the task; then the tasks that were evaluated after a later one was learned
    Direction: At most min-ACC: what all evaluations have in common is no more than the worst of them.
    NaN: undefined for a single task
    Worked: (2/4 + 1/4) / 2

    Example:
        >>> from engram.metrics.examples import worked_samples
        >>> always_known(worked_samples())
        array([0.5 , 0.25,  nan])
    """

    def of_column(column: int) -> float:
        end, fates = right.ends[column], right.fates(column)
        later = end is not None and bool((right.rows[column] > end).any())
        return share(fates.kept) if fates is not None and later else float("nan")

    return np.array([of_column(column) for column in range(len(right.rows))])


def _of_pairs(right: SampleCurve, value: Callable[[int, Mask, Mask], float]) -> Vector:
    """A value per task, from the samples that were right after it was learned and at the end."""
    pairs = [right.ends_of(column) for column in range(len(right.rows))]
    return np.array([np.nan if pair is None else value(i, *pair) for i, pair in enumerate(pairs)])


def _of_fates(right: SampleCurve, value: Callable[[Fates], float]) -> Vector:
    fates = [right.fates(column) for column in range(len(right.rows))]
    return np.array([np.nan if one is None else value(one) for one in fates])
