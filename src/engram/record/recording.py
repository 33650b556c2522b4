"""What is recorded of a model while it learns, and what follows from it: metrics, the run, its files."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

from engram.core.errors import InputError
from engram.core.folder import Reading
from engram.core.jsons import JsonMapping, JsonObject
from engram.core.scores import Scores
from engram.core.trace import Trace
from engram.metrics.arrays import Label
from engram.record.answers import Answers
from engram.record.aside import replacing
from engram.record.choices import choices_of
from engram.record.half_checked import HalfChecked
from engram.record.parallel import ParallelRecord
from engram.record.result import Seconds
from engram.record.run import Run
from engram.record.samples import Samples
from engram.record.settled import Settled
from engram.record.tables import Tables
from engram.record.test_data import TestData
from engram.record.two_level import missed_by_thinning

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
        scores: The scores of samples, where they are recorded.
        answered: What was answered, where that is recorded.
        readings: What probes measured.
        step: Updates so far.
        seconds: How long evaluations took.
        evaluations: How many there were.
        seen: The tasks that are evaluated.
        learned: The tasks for each value of `learning`.
        updated: The step of the last update for each value of `learning`.
        shifts: Where samples have two levels: for each task, what all of them added to the accuracy of the
            small part when both were asked last.
    """

    trace = Settled[Trace]()
    ends = Settled[Trace]()
    scores = Settled[Scores]()
    answered = Settled[Answers]()
    readings = Settled[list[Reading]]()
    seconds = Settled[float]()
    evaluations = Settled[int]()

    def __init__(self, *, classes: Sequence[int] | None = None) -> None:
        self.classes = list(classes) if classes is not None else None
        self.trace, self.ends = Trace(), Trace()
        self.scores = Scores()
        self.answered = Answers()
        self.readings = []
        self.step = 0
        self.seconds = 0.0
        self.evaluations = 0
        self.seen: list[int] = []
        self.learned: dict[int, tuple[int, ...]] = {}
        self.updated: dict[int, int] = {}
        self.shifts: dict[int, float] = {}

    def settle(self) -> None:
        """Wait for evaluations that are under way, and record them; reading any record does so first."""

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

    @property
    def precision_record(self) -> HalfChecked | None:
        """What was evaluated in half precision; None where that was not asked for."""
        return None

    @property
    def parallel_record(self) -> ParallelRecord | None:
        """What evaluator processes did; None where that was not asked for."""
        return None

    def doubts(self) -> list[str]:
        """What makes the metrics doubtful."""
        return []

    @property
    def only_scores(self) -> bool:
        """Whether scores are recorded instead of right and wrong answers."""
        return False

    def called(self, task: int) -> Label:
        """What a task is called in results: its name or its number."""
        return task

    # Results ----------------------------------------------------------------------------------------

    def accuracies(self) -> dict[Label, float]:
        """The latest accuracy of each task, by its name, or by its number where tasks have no names.

        Raises:
            InputError: Only scores are recorded.
        """
        if self.only_scores:
            raise InputError("there are no accuracies, only scores: see latest_scores(), or give right= too")
        return {self.called(task): value for task, value in self.latest.items()}

    @property
    def latest(self) -> dict[int, float]:
        """The latest accuracy of each task by its number; with two levels, an estimate for all samples."""
        trace, shifts = self.trace, self.shifts
        return {
            task: min(max(trace.correct[row] / trace.total[row] + shifts.get(task, 0.0), 0.0), 1.0)
            for row in self._latest_rows(trace)
            for task in (trace.task[row],)
        }

    def latest_scores(self) -> dict[Label, float]:
        """The latest mean score of each task, by its name, or by its number where tasks have no names."""
        return {
            self.called(self.scores.task[row]): self.scores.mean(row)
            for row in self._latest_rows(self.scores)
        }

    def metrics(self) -> dict[str, float]:
        """All metrics that can be computed from the record, by name; NaN where one is undefined.

        Where scores are recorded, these include the metrics of scores (see `engram.metrics.scores`); where
        nothing else is, there are no others. A warning says where a task's last update was not evaluated, so
        that metrics at task ends use an earlier one. `missed` says what thinned evaluations may have missed.
        """
        measured = self._measured()
        self._warn_of_doubts()
        return measured.final

    @property
    def missed(self) -> str:
        """What evaluating only some updates may have missed; empty where every update was evaluated."""
        return missed_by_thinning(self._record.step, self.trace.total)

    def extremes(self) -> Extremes:
        """min-ACC, WF10 and the other extremes, corrected for the bias of subsets, with 95 % intervals.

        See `engram.metrics.extremes.estimate_extremes`. This takes longer than `metrics`: about 0.4 s for
        2,400 evaluations of five tasks.
        """
        from engram.metrics.extremes import Extremes, estimate_extremes
        from engram.metrics.scores import UNDEFINED

        self._check_evaluated()
        if self.only_scores:
            return Extremes(why=UNDEFINED)
        return estimate_extremes(
            self.trace, sizes=dict(enumerate(self.sizes)), redrawn=self.redrawn, **self._learned()
        )

    def save(self, folder: str | Path, *, label: str | None = None, seed: int = 0) -> Run:
        """Write the same files as `engram run`, which `engram report` and other commands read.

        A run that was saved there before is replaced, and put back if the new one cannot be written.

        Args:
            folder: Where to write them; its name is the run's id.
            label: What people call the run (default: the name of the folder).
            seed: The seed that the model was trained with; runs are paired by it.
        """
        place = Path(folder)
        run = self.run(description=self.description(place, label=label, seed=seed))
        with replacing(place):
            return run.save(place)

    def description(self, folder: Path, *, label: str | None, seed: int) -> JsonObject:
        """What the run in a folder is."""
        name = folder.absolute().name
        return {"id": name, "label": label or name, "seed": seed, "tasks": self.names}

    def run(self, *, description: JsonMapping, train_seconds: float = 0.0) -> Run:
        """The finished run, as it was recorded.

        Args:
            description: What the run is: `id` and `label` at least, and `seed` if there is one.
            train_seconds: How long training took.
        """
        from engram.metrics.summary import Measurement

        evaluated = len(self._record) > 0
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
            precision=self.precision_record,
            parallel=self.parallel_record,
            tables=self.tables(),
        )

    def tables(self) -> Tables:
        """All measurements so far."""
        return Tables(
            self.trace,
            ends=self.ends,
            scores=self.scores,
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
        from engram.metrics.scores import with_scores
        from engram.metrics.summary import summarise

        self._check_evaluated()
        learned, measured = self._learned(), None
        if not self.only_scores:
            called = [str(self.called(task)) for task in range(len(self.sizes))]
            measured = summarise(
                self.trace,
                tolerant=tolerant,
                choices=choices_of(description or {}),
                redrawn=self.redrawn,
                names=called,
                **learned,
            )
        return with_scores(measured, self.scores, phases=learned["phases"])

    @property
    def _record(self) -> Trace | Scores:
        """What every evaluation adds to."""
        return self.scores if self.only_scores else self.trace

    def _latest_rows(self, record: Trace | Scores) -> list[int]:
        """The rows of the last evaluation."""
        last = range(max(0, len(record) - len(self.sizes)), len(record))
        return [row for row in last if record.step[row] == record.step[-1]]

    def _check_evaluated(self) -> None:
        if not len(self._record):
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
