"""The words that tables use: what `engram explain` says about them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from engram.metrics.scores import MEANINGS


@dataclass(frozen=True, slots=True)
class Term:
    """One word.

    Attributes:
        title: Its heading.
        meaning: What it means.
        lines: Details by label.
    """

    title: str
    meaning: str
    lines: dict[str, str]


TERMS: Final[dict[str, Term]] = {
    "interval": Term(
        "interval: the 95 % interval of a mean over seeds",
        "Where the mean over all possible seeds lies: intervals computed like this include it in about 95"
        " % of cases. It speaks of other seeds, not of other test data.",
        {
            "logit": (
                "metrics that have a lowest and a highest value, such as accuracies: mean ± t(0.975, n−1)"
                " · SD/√n on the logit scale (delta method). It never leaves the range of the metric. "
                "Near 0 and 1 it covers in 93 to 95 % of cases with 3 to 10 seeds, the t interval in 88 "
                "to 94 %."
            ),
            "t": (
                "metrics without bounds, and differences: mean ± t(0.975, n−1) · SD/√n. Differences are "
                "cut off at what is possible."
            ),
            "bootstrap": (
                "BCa, with `engram compare --bootstrap`: needs 10 seeds, because with fewer it covers too"
                " rarely (five: 89 to 91 %)."
            ),
            "all seeds equal": (
                "an SD of 0 would be an interval without width: one seed is taken to have differed by one"
                " test sample."
            ),
            "one seed": "no interval.",
        },
    ),
    "sign-flip": Term(
        "sign-flip: a test of paired differences",
        "The share of all 2^n ways to choose the signs of the differences whose sum is at least as far "
        "from 0 as the observed one. With n seeds p is at least 2 / 2^n, so six seeds are needed for "
        "0.05.",
        {
            "assumes": (
                "that the differences are symmetric about 0 if the methods are equally good; nothing else"
                " about their distribution."
            ),
            "breaks": (
                "if one method is a little better on most seeds and collapses on a few, with equal means:"
                " it then finds a difference in 11 to 53 % of cases. Look at the single seeds."
            ),
            "seeds": "exact up to 20; with more, 50,000 random signs with seed 0.",
        },
    ),
    "t-test": Term(
        "t-test: a test of paired differences",
        "t = mean / (SD/√n), two-sided with n − 1 degrees of freedom. Two seeds suffice, but only if "
        "differences are normal.",
        {
            "assumes": "that the differences are normal.",
            "few test samples": (
                "accuracies are multiples of 1/m for m test samples, so a few differences may be equal by"
                " chance. Two methods that differ by k samples disagree on at least k, each of which "
                "could have gone the other way: the SD of a difference d is at least √(d/m), and at least"
                " 1/m."
            ),
        },
    ),
    "holm": Term(
        "holm: p-values corrected for several tests",
        "The smallest of m p-values is multiplied by m, the next by m − 1, and so on. Among all tests of "
        "a table, the probability of any finding that is not there is then at most the level.",
        {
            "pairs": "m is k(k−1)/2 for k methods, and k − 1 with `engram compare --baseline METHOD`.",
        },
    ),
    "exploratory": Term(
        "exploratory: a metric that does not decide",
        "Looking for a difference in four metrics finds one that is not there in about 15 % of cases. One"
        " metric is therefore the primary one (the first --metric, or ACC); what the others show is to be"
        " tested on new seeds.",
        {
            "--together": "corrects for the pairs of all metrics, so that each may decide.",
        },
    ),
    "looks": Term(
        "looks: a comparison that is repeated with more seeds",
        "Whoever tests, adds seeds and tests again has two chances of a finding that is not there: about "
        "8 % instead of 5 % for 6 and then 12 seeds, 10 % for three looks. `engram compare` keeps a log "
        "(compared.json beside the runs) and says when a comparison was extended.",
        {
            "--more-seeds 6,12": (
                "a plan, made before the first look. Each look has a level of its own (0.0056 and "
                "0.0444): what the spending function of Lan and DeMets (1983) allows by then, minus what "
                "it allowed before. Together they are at most 5 %."
            ),
            "not a look": "a comparison with too few seeds to find anything spends nothing.",
        },
    ),
    "churn": Term(
        "churn: the share of samples whose result changed between two moments",
        "Samples that were lost (right before, wrong now) or gained (wrong before, right now), divided by "
        "all samples. Two models with the same accuracy may differ in many samples. `engram flips` shows it "
        "for two moments of a run.",
        {
            "lost": "negative flips; their share is the negative flip rate, NFR.",
            "answers": (
                "the share of samples that are answered differently, also where both answers are wrong: "
                "at least the churn of right and wrong. Needs `--answers`."
            ),
            "example": "right right wrong wrong, then right wrong wrong right: one lost, one gained, 2/4.",
            "source": "Yan et al. (2021) for negative flips; Milani Fard et al. (2016) for churn.",
        },
    ),
    "dormant units": Term(
        "dormant units: the share of units that hardly ever respond",
        "A unit is dormant if its mean absolute activation is at most 1 % of the mean over the units of its "
        "layer. Their number grows where a network loses its plasticity.",
        {
            "recorded": (
                "with `engram run --plasticity`: of the last hidden layer, on the test set of the task just "
                "learned."
            ),
            "example": "mean activations 2, 0, 2, 0: two of four units, 0.5.",
            "source": "Sokar et al. (2023), Definition 3.1.",
        },
    ),
    "effective rank": Term(
        "effective rank: in how many directions features vary",
        "exp(−Σ p ln p), with the singular values of the features divided by their sum as p. Between 1 and "
        "the number of features; low where a network loses its plasticity.",
        {
            "recorded": (
                "with `engram run --plasticity`: of the last hidden layer, on the test set of the task just "
                "learned."
            ),
            "example": "three equal singular values: exp(ln 3) = 3.",
            "source": "Roy and Vetterli (2007).",
        },
    ),
    "score": Term(
        "score: a number per sample instead of right or wrong, such as a loss",
        "Recorded by `engram.Evaluator(score=…)` and `engram.Recorder`. Metrics of right and wrong answers "
        "are not defined for scores; those below are, in the unit of the score.",
        MEANINGS,
    ),
}
TERMS.update(dict.fromkeys(MEANINGS, TERMS["score"]))
"""The terms by name."""
