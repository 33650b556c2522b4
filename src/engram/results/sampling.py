"""What the report says about how samples and updates were thinned."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from engram.core.errors import InputError
from engram.metrics.anchored import Levels
from engram.record.run import Run
from engram.record.two_level import missed_by_thinning


def sampling_note(runs: Sequence[Run]) -> str:
    """How the curves of runs were estimated, and what may be missing in them; empty where nothing is to say.

    Example:
        >>> sampling_note([])
        ''
    """
    levels = [levels for run in runs if (levels := levels_of_run(run)) is not None]
    sentences = [_levels_sentence(levels)] if levels else []
    missed = next((text for run in runs if (text := missed_in(run))), "")
    return " ".join([*sentences, *([f"{missed[0].upper()}{missed[1:]}."] if missed else [])])


def levels_of_run(run: Run) -> Levels | None:
    """The two levels of a run's samples; None where there is one, or where its trace cannot be read."""
    try:
        return run.levels
    except InputError:
        return None


def missed_in(run: Run) -> str:
    """What evaluating only some updates may have missed; empty where all were, or where that is unknown."""
    try:
        if run.only_scores or not len(run.trace):
            return ""
        return missed_by_thinning(run.curve.step.tolist(), run.trace.total)
    except InputError:
        return ""


def _levels_sentence(levels: Sequence[Levels]) -> str:
    first, share = levels[0], fmean(level.share for level in levels)
    return (
        f"Two-level samples: {first.small:,} of the {first.whole:,} samples of each task were asked at "
        f"every evaluation, all of them at {first.anchors:,} of {first.evaluations:,} (task ends, after "
        f"switches, at new lows and drops): {share:.2f} of the samples of asking all every time. Accuracies "
        f"are those of all {first.whole:,}: exact where they were asked, estimated in between. Single "
        f"samples are followed among the {first.small:,}."
    )
