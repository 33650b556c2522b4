"""What is recorded of a model while it learns, and what follows from it: metrics, the run, its files."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

from engram.core.errors import InputError
from engram.core.folder import Reading
from engram.core.jsons import JsonMapping
from engram.core.trace import Trace
from engram.record.answers import Answers
from engram.record.choices import choices_of
from engram.record.run import Run, Seconds
from engram.record.samples import Samples
from engram.record.tables import Tables
from engram.record.test_data import TestData

if TYPE_CHECKING:
    from engram.metrics.extremes import Extremes
    from engram.metrics.history import Phases
    from engram.metrics.summary import Measurement


class Learned(TypedDict):
    """What metrics need to know besides the trace."""

    ends: Trace | None
    classes_seen: Sequence[int] | None
    phases: Phases


class Recording(ABC):
    """The evaluations of a model so far, and what was being learned at each of them.

    An `Evaluator` adds to it what it measures itself, a `Recorder` what it is told.

    Args:
        classes: How many different classes are in use after each task, for RAA and RAF.

    Attributes:
        trace: Every evaluation.
        ends: Those on full test sets at task ends.
        answered: What was answered, where that is recorded.
        readings: What probes measured.
        step: Updates so far.
        seconds: How long evaluations took.
        evaluations: How many there were.
        seen: The tasks that are evaluated.
        learned: The tasks for each value of `learning`.
        updated: The step of the last update for each value of `learning`.
    """

    def __init__(self, *, classes: Sequence[int] | None = None) -> None:
        self.classes = list(classes) if classes is not None else None
        self.trace, self.ends = Trace(), Trace()
        self.answered = Answers()
        self.readings: list[Reading] = []
        self.step = 0
        self.seconds = 0.0
        self.evaluations = 0
        self.seen: list[int] = []
        self.learned: dict[int, tuple[int, ...]] = {}
        self.updated: dict[int, int] = {}

    # What the two kinds know each in its own way ----------------------------------------------------

    @property
    @abstractmethod
    def names(self) -> list[str]:
        """The names of the tasks; a number stands for a task without one."""

    @property
    @abstractmethod
    def sizes(self) -> tuple[int, ...]:
        """How many samples the whole test set of each task has."""

    @property
    def redrawn(self) -> bool:
        """Whether samples were drawn again for every evaluation."""
        return False

    @property
    def fingerprints(self) -> tuple[TestData, ...]:
        """The fingerprint of each test set; empty where the inputs are not known."""
        return ()

    @abstractmethod
    def samples(self) -> Samples | None:
        """Who the test samples are; None where bits do not belong to fixed samples."""

    def doubts(self) -> list[str]:
        """What makes the metrics doubtful."""
        return []

    # Results ----------------------------------------------------------------------------------------

    def accuracies(self) -> dict[int, float]:
        """The latest accuracy of each task."""
        latest: dict[int, float] = {}
        for row in range(max(0, len(self.trace) - len(self.sizes)), len(self.trace)):
            if self.trace.step[row] == self.trace.step[-1]:
                latest[self.trace.task[row]] = self.trace.correct[row] / self.trace.total[row]
        return latest

    def metrics(self) -> dict[str, float]:
        """All metrics that can be computed from the trace, by name; NaN where one is undefined.

        A warning says where a task's last update was not evaluated, so that metrics at task ends use an
        earlier one.
        """
        measured = self._measured()
        self._warn_of_doubts()
        return measured.final

    def extremes(self) -> Extremes:
        """min-ACC, WF10 and the other extremes, corrected for the bias of subsets, with 95 % intervals.

        See `engram.metrics.extremes.estimate_extremes`. This takes longer than `metrics`: about 0.4 s for
        2,400 evaluations of five tasks.
        """
        from engram.metrics.extremes import estimate_extremes

        self._check_evaluated()
        return estimate_extremes(
            self.trace, sizes=dict(enumerate(self.sizes)), redrawn=self.redrawn, **self._learned()
        )

    def save(self, folder: str | Path, *, label: str | None = None, seed: int = 0) -> Run:
        """Write the same files as `engram run`, which `engram report` and other commands read.

        Args:
            folder: Where to write them; its name is the run's id.
            label: What people call the run (default: the name of the folder).
            seed: The seed that the model was trained with; runs are paired by it.
        """
        place = Path(folder)
        description = {"id": place.name, "label": label or place.name, "seed": seed, "tasks": self.names}
        return self.run(description=description).save(place)

    def run(self, *, description: JsonMapping, train_seconds: float = 0.0) -> Run:
        """The finished run, as it was recorded.

        Args:
            description: What the run is: `id` and `label` at least, and `seed` if there is one.
            train_seconds: How long training took.
        """
        from engram.metrics.summary import Measurement

        evaluated = len(self.trace) > 0
        measured = Measurement({}, {}, {}, {})
        if evaluated:
            measured = self._measured(tolerant=True, description=description)
        for reason in measured.failed.values():
            warnings.warn(f"{reason}; the run is kept without it", stacklevel=2)
        self._warn_of_doubts()
        return Run(
            description=description,
            finished=True,
            stored=measured.final,
            by_task=measured.by_task,
            why=self.reservations(measured),
            estimates=self.extremes() if evaluated else None,
            sizes=self.sizes,
            classes=None if self.classes is None else tuple(self.classes),
            phases=dict(self.learned),
            test_data=self.fingerprints,
            updates=self.step,
            evaluations=self.evaluations,
            seconds=Seconds(train_seconds, self.seconds),
            tables=self.tables(),
        )

    def tables(self) -> Tables:
        """All measurements so far."""
        return Tables(
            self.trace,
            ends=self.ends,
            readings=self.readings,
            samples=self.samples(),
            answers=self.answered,
        )

    def note(self, readings: Iterable[Reading], *, seconds: float = 0.0) -> None:
        """Record what a probe measured, and how long that took."""
        self.readings += readings
        self.seconds += seconds

    def reservations(self, measured: Measurement) -> dict[str, str]:
        """Why metrics are undefined or left out, and which of them do not count everything."""
        return dict(measured.why)

    # ------------------------------------------------------------------------------------------------

    def _measured(self, *, tolerant: bool = False, description: JsonMapping | None = None) -> Measurement:
        from engram.metrics.summary import summarise

        self._check_evaluated()
        return summarise(
            self.trace,
            tolerant=tolerant,
            choices=choices_of(description or {}),
            redrawn=self.redrawn,
            **self._learned(),
        )

    def _check_evaluated(self) -> None:
        if not len(self.trace):
            raise InputError("nothing was evaluated yet: call the evaluator after an update first")

    def _warn_of_doubts(self) -> None:
        for doubt in self.doubts():
            warnings.warn(doubt, stacklevel=4)

    def _learned(self) -> Learned:
        return {
            "ends": self.ends if len(self.ends) else None,
            "classes_seen": None if self.classes is None else self.classes[: len(self.learned)],
            "phases": [self.learned.get(learning, (learning,)) for learning in range(len(self.sizes))],
        }

    def _meet(self, learning: int, tasks: Sequence[int]) -> None:
        """Note what is being learned, the first time that it is."""
        for task in self.learned.setdefault(learning, tuple(tasks)):
            if task not in self.seen:
                self.seen.append(task)
