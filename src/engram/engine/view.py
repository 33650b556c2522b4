"""Evaluating a run from outside it: at any update, on any of its samples, or on samples that it never saw."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal, cast

from engram.core.seeds import Seeds
from engram.datasets.files import Reading
from engram.engine.build import make_evaluator
from engram.engine.other_tests import other_tests
from engram.engine.state import RunState
from engram.evaluation.evaluator import Evaluator
from engram.methods.base import as_learner
from engram.record.samples import TASK, Samples
from engram.record.tables import Tables
from engram.record.test_data import TestData
from engram.scenarios.values import TaskSetting

_Part = Literal["test", "train", "validation"]


class View:
    """An evaluator that is asked when it suits, beside that of a run.

    Args:
        evaluator: The evaluator.
        tasks: The number of the task that each of its test sets belongs to.
        part: What is evaluated: a part of the run's data, or the name of other data.
        everything: Whether tasks are evaluated before they are learned.
    """

    def __init__(self, evaluator: Evaluator, tasks: Sequence[int], *, part: str, everything: bool) -> None:
        self.evaluator, self.tasks, self.part, self.everything = evaluator, tuple(tasks), part, everything

    def look(self, state: RunState) -> None:
        """Evaluate the network as it is, unless that was done after this update."""
        scenario, evaluator = state.scenario, self.evaluator
        phase = min(state.place.phase, len(scenario.phases) - 1)
        met = dict.fromkeys(task for tasks in scenario.phases[: phase + 1] for task in tasks)
        places = {task: place for place, task in enumerate(self.tasks)}
        wanted = self.tasks if self.everything else [task for task in met if task in places]
        evaluator.step, evaluator.seen = state.place.step, [places[task] for task in wanted]
        answers = scenario.answers(phase)
        evaluator.look(units=[answers[task] for task in self.tasks], schedule=evaluator.schedule)
        learning = scenario.phases[phase][-1]
        with state.ledger.reading("evaluation"):
            evaluator.end(state.method.predictor, learning=learning)
        learner = as_learner(state.method.method)
        if learner is not None and learner.split_gradients and state.place.step:
            parts = {**learner.gradient_norms, **learner.loss_parts}
            evaluator.note((state.place.step, learning, None, name, value) for name, value in parts.items())

    @property
    def latest(self) -> dict[int, float]:
        """The latest accuracy of each task."""
        return {self.tasks[place]: value for place, value in self.evaluator.latest.items()}

    @property
    def sizes(self) -> tuple[int, ...]:
        """How many samples the test set of each task has; 0 where it has none."""
        known = dict(zip(self.tasks, self.evaluator.sizes, strict=True))
        return tuple(known.get(task, 0) for task in range(1 + max(self.tasks)))

    @property
    def test_data(self) -> tuple[TestData, ...]:
        """The fingerprint of each test set; empty where some tasks have none."""
        return self.evaluator.test_data if self.tasks == tuple(range(len(self.tasks))) else ()

    def tables(self) -> Tables:
        """All measurements so far, by the numbers of the tasks."""
        recorded = self.evaluator.tables()
        trace, answers, samples = recorded.trace, recorded.answers, recorded.samples
        return Tables(
            replace(trace, task=[self.tasks[place] for place in trace.task]),
            readings=[
                (step, learning, None if place is None else self.tasks[place], name, value)
                for step, learning, place, name, value in recorded.readings
            ],
            samples=None if samples is None else self._renumbered(samples),
            answers=replace(answers, task=[self.tasks[place] for place in answers.task]),
        )

    def _renumbered(self, samples: Samples) -> Samples:
        import polars as pl

        numbers = pl.Series(TASK, [self.tasks[place] for place in samples.frame[TASK]], dtype=pl.Int32)
        return Samples(samples.frame.with_columns(numbers))


def own_view(state: RunState, *, samples: str, part: str) -> View:
    """A view of a run on its own data.

    Args:
        state: The state of the run.
        samples: `own` for the samples that the run is evaluated on, `all` for all of them.
        part: `test`, `train` or `validation`.
    """
    experiment = state.experiment
    spec = replace(
        experiment.evaluation,
        on=cast(_Part, part),
        subset=None if samples == "all" else experiment.evaluation.subset,
        samples=None if samples == "all" else experiment.evaluation.samples,
        redraw=False,
        per_epoch=False,
        full_ends=False,
        losses=True,
        answers=True,
    )
    planned = replace(experiment, evaluation=spec)
    evaluator = make_evaluator(planned, state.stream, Seeds.of(experiment.seed))
    tasks = range(len(experiment.scenario.tasks))
    return View(evaluator, tasks, part=part, everything=spec.tasks == "all")


def other_view(path: Path, state: RunState, how: Reading, *, data: Path | None) -> View:
    """A view of a run on samples that are no part of its data; tasks are evaluated from the beginning.

    Raises:
        InputError: The samples cannot be read, or are not like those of the run.
    """
    tests = other_tests(path, state.stream, how, data=data)
    evaluator = Evaluator(
        list(tests.values()),
        losses=True,
        answers=True,
        ids=[samples.index.tolist() for samples in tests.values()],
        shuffle=not isinstance(state.scenario.setting, TaskSetting),
        seed=Seeds.of(state.experiment.seed).evaluation,
    )
    return View(evaluator, list(tests), part=path.name, everything=True)
