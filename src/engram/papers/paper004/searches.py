"""The search of Algorithm 1, for one model and for the two ways to merge networks."""

from __future__ import annotations

from collections.abc import Sequence

from engram.papers.paper004.interpretations import Interpretation, planned
from engram.papers.plans import Plan, attempted
from engram.protocols.causal import CausalOutcome, causal
from engram.record.experiment import Experiment

MEAN, MODE = "wtIMM mean", "wtIMM mode"


def searched(
    model: str, code: str, dataset: str, seeds: Sequence[int], interpretation: Interpretation
) -> Plan[CausalOutcome | None]:
    """Algorithm 1 for a model on a stream; None if runs that it needs have failed."""
    bases = [planned(model, code, dataset, interpretation=interpretation, seed=seed) for seed in seeds]
    return attempted(causal(bases, interpretation.fields(model), options=interpretation.options(model)))


def merged(
    code: str, dataset: str, seeds: Sequence[int], interpretation: Interpretation
) -> Plan[dict[str, CausalOutcome | None]]:
    """Both ways to merge; they learn the first task in the same way, so they share one search."""
    mean = yield from searched(MEAN, code, dataset, seeds, interpretation)
    mode = None
    if mean is not None:
        chosen = {name: [value] for name, value in mean.candidates[mean.chosen].fields.items()}
        bases = [planned(MODE, code, dataset, interpretation=interpretation, seed=seed) for seed in seeds]
        mode = yield from attempted(causal(bases, chosen, options=interpretation.options(MODE)))
    return {MEAN: mean, MODE: mode}


def outlined(model: str, code: str, dataset: str, interpretation: Interpretation) -> list[Experiment]:
    """The first runs of the search for a model on a stream, one for each cost that they have."""
    grid = interpretation.fields(model)
    few = {name: values if name in _COSTLY else values[:1] for name, values in grid.items()}
    base = planned(model, code, dataset, interpretation=interpretation)
    search = causal([base], few, options=interpretation.options(model))
    try:
        return next(search)
    finally:
        search.close()


_COSTLY = ("hidden", "batch_size", "epochs", "updates")
"""The fields of which the time of a run depends."""
