"""Revisions: changes of what experiments compute under fields that stay the same.

An id stands for one result. Where a correction changes the results of some experiments, it gets an entry
here: the experiments that it applies to get another id, and all others keep theirs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engram.record.experiment import Experiment


@dataclass(frozen=True, slots=True)
class Revision:
    """A change of what some experiments compute.

    Attributes:
        name: What is written in `experiment.json` where it applies.
        change: What is different since, for people to read.
        applies: Whether it changes the results of an experiment.
    """

    name: str
    change: str
    applies: Callable[[Experiment], bool]


def revisions_of(experiment: Experiment) -> tuple[Revision, ...]:
    """The revisions that apply to an experiment, oldest first.

    Example:
        >>> from engram.engine.recipe import experiment
        >>> [[r.name for r in revisions_of(experiment("split-digits", "imm-mean", setting=setting))]
        ...  for setting in ("class", "task")]
        [[], ['own-heads']]
    """
    return tuple(revision for revision in REVISIONS if revision.applies(experiment))


def _own_heads(experiment: Experiment) -> bool:
    separate = experiment.scenario.setting.kind == "task" and len(experiment.scenario.tasks) > 1
    return experiment.method == "imm-mean" and separate


def _black_crops(experiment: Experiment) -> bool:
    augments = experiment.augment or (
        experiment.method == "gdumb" and experiment.settings.get("augment") is True
    )
    steps = [step for task in experiment.scenario.tasks for step in task.transforms]
    return augments and any(step.kind == "normalise" and any(step.mean) for step in steps)


REVISIONS = (
    Revision(
        "own-heads",
        "imm-mean averages the output units of a head among the networks that trained it",
        _own_heads,
    ),
    Revision(
        "black-crops",
        "crops are padded with black, which was the mean colour where images are normalised",
        _black_crops,
    ),
)
"""All revisions, in the order in which they were made. Entries are added at the end, and never removed."""
