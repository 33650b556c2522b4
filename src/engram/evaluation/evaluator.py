"""The evaluator: decides when to evaluate, measures and records. It works in any PyTorch training loop."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, NotRequired, Protocol, TypedDict, runtime_checkable

import numpy as np
import torch
from torch import Tensor, nn

from engram.core.errors import InputError
from engram.core.folder import Reading
from engram.core.jsons import Json, JsonMapping, JsonObject
from engram.core.trace import COLUMNS, Trace
from engram.evaluation.dense import scorer
from engram.evaluation.fingerprint import fingerprint
from engram.evaluation.guard import Guard, same_randomness
from engram.evaluation.judge import Judge, Sought
from engram.evaluation.samples import EvaluationSet, Questions, as_evaluation_set, chunks, draw
from engram.evaluation.schedule import Schedule
from engram.evaluation.snapshot import Change
from engram.metrics.extremes import REDRAW_WARNING
from engram.record.choices import choices_of
from engram.record.run import Run, Seconds
from engram.record.tables import Tables
from engram.record.test_data import TestData, other_tasks

if TYPE_CHECKING:
    from engram.metrics.extremes import Extremes
    from engram.metrics.history import Phases
    from engram.metrics.summary import Measurement

Answers = Sequence[Sequence[int] | None]
CHUNK_BYTES = 2**23
CHUNK_BYTES_CONVOLVED = 2**20
"""Smaller, because the activations of convolutions are much larger than their inputs and should stay in the
cache."""


@runtime_checkable
class Routes(Protocol):
    """A network that answers every task with a network of its own."""

    def route(self, task: int) -> nn.Module:
        """The network that answers for a task."""


class Counts(TypedDict):
    """How much an evaluator has done."""

    step: int
    seconds: float
    evaluations: int


class Learned(TypedDict):
    """What metrics need to know besides the trace."""

    ends: Trace | None
    classes_seen: Sequence[int] | None
    phases: Phases


class EvaluatorState(TypedDict):
    """Everything that an evaluator has recorded, as tensors and plain values."""

    plain: Counts
    seen: list[int]
    learned: list[tuple[int, list[int]]]
    updated: NotRequired[list[tuple[int, int]]]
    test_data: NotRequired[list[JsonObject]]
    index: list[Tensor]
    gathered: list[int]
    readings: list[Reading]
    generator: Tensor
    trace: dict[str, Tensor]
    ends: dict[str, Tensor]


class Evaluator:
    """Evaluates a network after its updates, without changing it.

    Call it after every update with the task being learned; it evaluates when an evaluation is due. Tasks are
    numbered in the order of their test sets. All tasks are evaluated in one forward pass.

    Args:
        test_sets: One per task: `(inputs, labels)`, a `DataLoader`, or a map-style data set.
        every: Evaluate after every `every` updates.
        per_epoch: Restart the count of updates in every epoch, as the code of De Lange et al. (2023) does;
            each call then needs `epoch_step`.
        subset: How many samples of each task to evaluate on, drawn once; None for all.
        redraw: Draw a new subset for every evaluation, as the code of De Lange et al. does. This adds noise
            that looks like dips, which cannot be corrected afterwards, and a warning says so.
        seed: Seed for drawing the subsets; no global random state is used.
        tasks: `seen` evaluates the tasks learned so far, `all` every task.
        answers: For each task, the output units that compete for the answer; None for all units. A network
            with a single output, evaluated on labels 0 and 1, is read as the logit of class 1.
        full_ends: At the end of a task, also evaluate on all samples, besides the subsets.
        losses: Also record the mean loss of each task.
        classes: How many different classes are in use after each task, for RAA and RAF.
        shuffle: Show the network the samples of all tasks in a shuffled order, so that the place of a sample
            does not tell its task. What is recorded is in the order of the test sets either way.

    Example:
        >>> task = torch.eye(2), torch.tensor([0, 1])
        >>> watch = Evaluator([task], every=1)
        >>> net = nn.Linear(2, 2)
        >>> watch(net, learning=0)
        True
        >>> sorted(watch.accuracies()) == [0]
        True
    """

    def __init__(
        self,
        test_sets: Sequence[object],
        *,
        every: int = 1,
        per_epoch: bool = False,
        subset: int | None = None,
        redraw: bool = False,
        seed: int = 0,
        tasks: str = "seen",
        answers: Answers | None = None,
        full_ends: bool = False,
        losses: bool = False,
        classes: Sequence[int] | None = None,
        shuffle: bool = False,
    ) -> None:
        if not test_sets:
            raise InputError("there is nothing to evaluate: give one test set per task")
        if subset is not None and subset < 1:
            raise InputError(f"subset must be at least 1, or None for all samples, got {subset}")
        if tasks not in ("seen", "all"):
            raise InputError(f"tasks must be 'seen' or 'all', got {tasks!r}")
        self.sets: list[EvaluationSet] = [as_evaluation_set(data) for data in test_sets]
        for number, test_set in enumerate(self.sets):
            if len(test_set.y) == 0:
                raise InputError(f"the test set of task {number} is empty: give it samples, or leave it out")
        largest = max(len(test_set.y) for test_set in self.sets)
        if redraw and (subset is None or subset >= largest):
            raise InputError(
                "redraw draws a new subset for every evaluation, and all samples are used: set subset below "
                f"{largest}, or leave redraw out"
            )
        if redraw:
            warnings.warn(REDRAW_WARNING, stacklevel=2)
        self.schedule = Schedule(every, per_epoch)
        self.subset, self.redraw = subset, redraw
        self.full_ends, self.losses = full_ends, losses
        self.answers = _competing(answers, len(self.sets))
        self.judge = Judge([test_set.y for test_set in self.sets])
        self.shuffle = seed if shuffle else None
        self.answering: Callable[[], AbstractContextManager[object]] = nullcontext
        self.classes = list(classes) if classes is not None else None
        self.trace, self.ends = Trace(), Trace()
        self.readings: list[Reading] = []
        self.step = 0
        self.seconds = 0.0
        self.evaluations = 0
        self.generator = torch.Generator().manual_seed(seed)
        self.index = [draw(len(test_set.y), subset, self.generator) for test_set in self.sets]
        self.seen: list[int] = list(range(len(self.sets))) if tasks == "all" else []
        self.learned: dict[int, tuple[int, ...]] = {}
        self.updated: dict[int, int] = {}
        self._passed_over: set[int] = set()
        self._questions: Questions | None = None
        self._gathered: list[int] = []
        self._guard = Guard()

    def __call__(
        self,
        model: nn.Module | Callable[[], nn.Module],
        *,
        learning: int,
        last: bool = False,
        epoch_step: int | None = None,
        together: Sequence[int] | None = None,
    ) -> bool:
        """Count an update, and evaluate if an evaluation is due; returns whether it was.

        Args:
            model: The network, from inputs to the scores of all output units; or a function that makes it,
                which is called only if an evaluation is due.
            learning: The task being learned.
            last: Whether this was the task's last update, which is always evaluated.
            epoch_step: The number of the update in its epoch, from 0 (only for `per_epoch`).
            together: The tasks being learned, if several are learned at once.
        """
        if learning not in self.updated or self.updated[learning] != self.step:
            self._notice_end()
        self.step += 1
        self._meet(learning, together)
        self.updated[learning] = self.step
        due = self.schedule.due(self.step, epoch_step=epoch_step, last=last)
        if last and not due:
            self._passed_over.add(learning)
        if due or (last and self.full_ends):
            self._evaluate(model, learning, curve=due, full=last and self.full_ends)
        return due

    def before(
        self,
        model: nn.Module | Callable[[], nn.Module],
        *,
        learning: int = 0,
        together: Sequence[int] | None = None,
    ) -> None:
        """Evaluate before the first update."""
        self._meet(learning, together)
        self._evaluate(model, learning, curve=True, full=False)

    def end(self, model: nn.Module | Callable[[], nn.Module], *, learning: int) -> None:
        """End a task: evaluates unless its last update was evaluated already."""
        done = bool(self.trace.step) and self.trace.step[-1] == self.step
        if not done or self.full_ends:
            self._evaluate(model, learning, curve=not done, full=self.full_ends)

    def accuracies(self) -> dict[int, float]:
        """The latest accuracy of each task."""
        latest: dict[int, float] = {}
        for row in range(max(0, len(self.trace) - len(self.sets)), len(self.trace)):
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

    @cached_property
    def test_data(self) -> tuple[TestData, ...]:
        """The fingerprints of the test sets, which tell whether two runs were evaluated on the same data."""
        chosen = [None if self.redraw else index for index in self.index]
        return tuple(fingerprint(test_set, rows) for test_set, rows in zip(self.sets, chosen, strict=True))

    @property
    def stale(self) -> tuple[int, ...]:
        """The values of `learning` whose last update was not evaluated."""
        seen: dict[int, int] = {}
        for trace in (self.trace, self.ends):
            seen |= {
                learning: max(step, seen.get(learning, 0))
                for learning, step in zip(trace.learning, trace.step, strict=True)
            }
        return tuple(learning for learning, step in self.updated.items() if seen.get(learning, -1) < step)

    def extremes(self) -> Extremes:
        """min-ACC, WF10 and the other extremes, corrected for the bias of subsets, with 95 % intervals.

        See `engram.metrics.extremes.estimate_extremes`. This takes longer than `metrics`: about 0.4 s for
        2,400 evaluations of five tasks.
        """
        from engram.metrics.extremes import estimate_extremes

        self._check_evaluated()
        sizes = {task: len(test_set.y) for task, test_set in enumerate(self.sets)}
        return estimate_extremes(self.trace, sizes=sizes, redrawn=self.redraw, **self._learned())

    def _measured(
        self, *, tolerant: bool = False, choices: Sequence[Sequence[int]] | None = None
    ) -> Measurement:
        from engram.metrics.summary import summarise

        self._check_evaluated()
        return summarise(
            self.trace, tolerant=tolerant, choices=choices, redrawn=self.redraw, **self._learned()
        )

    def _check_evaluated(self) -> None:
        if not len(self.trace):
            raise InputError("nothing was evaluated yet: call the evaluator after an update first")

    def _learned(self) -> Learned:
        return {
            "ends": self.ends if len(self.ends) else None,
            "classes_seen": None if self.classes is None else self.classes[: len(self.learned)],
            "phases": [self.learned.get(learning, (learning,)) for learning in range(len(self.sets))],
        }

    def save(self, folder: str | Path, *, label: str | None = None, seed: int = 0) -> Run:
        """Write the same files as `engram run`, which `engram report` and other commands read."""
        place = Path(folder)
        description = {
            "id": place.name,
            "label": label or place.name,
            "seed": seed,
            "tasks": [str(number) for number in range(len(self.sets))],
        }
        return self.run(description=description).save(place)

    def run(self, *, description: JsonMapping, train_seconds: float = 0.0) -> Run:
        """The finished run, as this evaluator recorded it.

        Args:
            description: What the run is: `id` and `label` at least, and `seed` if there is one.
            train_seconds: How long training took.
        """
        from engram.metrics.summary import Measurement

        evaluated = len(self.trace) > 0
        measured = Measurement({}, {}, {}, {})
        if evaluated:
            measured = self._measured(tolerant=True, choices=choices_of(description))
        for reason in measured.failed.values():
            warnings.warn(f"{reason}; the run is kept without it", stacklevel=2)
        self._warn_of_doubts()
        return Run(
            description=description,
            finished=True,
            stored=measured.final,
            by_task=measured.by_task,
            why=self._reservations(measured),
            estimates=self.extremes() if evaluated else None,
            sizes=tuple(len(test_set.y) for test_set in self.sets),
            classes=None if self.classes is None else tuple(self.classes),
            phases=dict(self.learned),
            test_data=self.test_data,
            updates=self.step,
            evaluations=self.evaluations,
            seconds=Seconds(train_seconds, self.seconds),
            tables=self.tables(),
        )

    @property
    def self_changes(self) -> tuple[Change, ...]:
        """What modules have changed in themselves in evaluations; it was restored."""
        return tuple(self._guard.changes)

    def tables(self) -> Tables:
        """All measurements so far."""
        return Tables(self.trace, ends=self.ends, readings=self.readings)

    def look(self, *, answers: Answers | None, schedule: Schedule) -> None:
        """Change the competing output units and the schedule of the evaluations that follow."""
        self.answers, self.schedule = answers, schedule

    def note(self, readings: Iterable[Reading], *, seconds: float = 0.0) -> None:
        """Record what a probe measured, and how long that took."""
        self.readings += readings
        self.seconds += seconds

    def __repr__(self) -> str:
        """The test sets, the schedule, and the latest accuracies."""
        sizes = [len(index) for index in self.index]
        samples = f"{sizes[0]}" if len(set(sizes)) == 1 else f"{min(sizes)} to {max(sizes)}"
        latest = ", ".join(f"task {task} {value:.3f}" for task, value in self.accuracies().items())
        return (
            f"<Evaluator of {len(self.sets)} test sets, {samples} samples each, {self.schedule}: "
            f"{self.evaluations} evaluations in {self.step} updates{f'; {latest}' if latest else ''}>"
        )

    def state_dict(self) -> EvaluatorState:
        """Everything recorded so far, as tensors and plain values."""
        return {
            "plain": {"step": self.step, "seconds": self.seconds, "evaluations": self.evaluations},
            "seen": list(self.seen),
            "learned": [(learning, list(tasks)) for learning, tasks in self.learned.items()],
            "updated": list(self.updated.items()),
            "test_data": [task.as_json() for task in self.test_data],
            "index": list(self.index),
            "gathered": [] if self._questions is None or self.redraw else self._questions.tasks,
            "readings": list(self.readings),
            "generator": self.generator.get_state(),
            "trace": _packed(self.trace),
            "ends": _packed(self.ends),
        }

    def load_state_dict(self, state: EvaluatorState) -> None:
        """Continue from a recorded state."""
        self._refuse_other_data(state.get("test_data", ()))
        plain = state["plain"]
        self.step, self.seconds, self.evaluations = plain["step"], plain["seconds"], plain["evaluations"]
        self.seen = list(state["seen"])
        if any(not torch.equal(*pair) for pair in zip(self.index, state["index"], strict=True)):
            self.index = list(state["index"])
            del self.test_data
        self.learned = {learning: tuple(tasks) for learning, tasks in state["learned"]}
        self.updated = dict(state.get("updated", ()))
        if self.schedule.per_epoch:
            self._passed_over = set(self.updated)
        self.readings = [(*reading,) for reading in state["readings"]]
        self.generator.set_state(state["generator"])
        self.trace, self.ends = _unpacked(state["trace"]), _unpacked(state["ends"])
        self._gathered = list(state.get("gathered", ()))

    def gather_again(self, device: torch.device) -> None:
        """Gather the samples that were gathered when the state was saved, before the next evaluation does."""
        if self._gathered:
            self._questions = self._gather(
                self.index, self._gathered, device=device, hold=self._holds(self._gathered)
            )

    # ----------------------------------------------------------------------------------------------

    def _refuse_other_data(self, recorded: Sequence[Mapping[str, Json]]) -> None:
        """Refuse to continue a record that was made on other test sets."""
        changed = other_tasks([TestData.of_json(task) for task in recorded], self.test_data)
        if changed:
            raise InputError(
                f"the test data of task {changed[0]} are not those that the evaluations so far were made on: "
                "continue with the same test data, or begin again"
            )

    def _notice_end(self) -> None:
        """Warn, when another task begins, if the last update of the task before was not evaluated."""
        ended = [learning for learning, step in self.updated.items() if step == self.step]
        evaluated = max((trace.step[-1] for trace in (self.trace, self.ends) if len(trace)), default=-1)
        if ended and evaluated < self.step and ended[0] not in self._passed_over:
            warnings.warn(_stale_end(ended, per_epoch=self.schedule.per_epoch), stacklevel=3)

    def _warn_of_doubts(self) -> None:
        """Warn of what makes the metrics doubtful."""
        silent = [learning for learning in self.stale if learning not in self._passed_over]
        if silent:
            warnings.warn(_stale_end(silent, per_epoch=self.schedule.per_epoch), stacklevel=3)
        if self.judge.doubt:
            warnings.warn(self.judge.doubt, stacklevel=3)

    def _reservations(self, measured: Measurement) -> dict[str, str]:
        """Why metrics are undefined or left out, and which of them use evaluations before a task's end."""
        from engram.metrics.registry import computed

        reason = _stale_end(self.stale, per_epoch=self.schedule.per_epoch) if self.stale else ""
        defined = computed()
        ends = [name for name in measured.final if name in defined and "curve" not in defined[name].needs]
        return {**dict.fromkeys(ends if reason else (), reason), **measured.why}

    def _meet(self, learning: int, together: Sequence[int] | None) -> None:
        self.learned.setdefault(learning, tuple(together) if together is not None else (learning,))
        for task in self.learned[learning]:
            if not 0 <= task < len(self.sets):
                raise InputError(
                    f"learning={task} has no test set: there are {len(self.sets)}, counted from 0"
                )
            if task not in self.seen:
                self.seen.append(task)

    def _evaluate(
        self, model: nn.Module | Callable[[], nn.Module], learning: int, *, curve: bool, full: bool
    ) -> None:
        with same_randomness():
            network = model if isinstance(model, nn.Module) else model()
            # What it takes to make the network is not evaluation.
            started = time.perf_counter()
            device = next((p.device for p in network.parameters()), torch.device("cpu"))
            with self._guard.untouched(network):
                if curve:
                    self._answer(network, learning, self._chosen(device), self.trace)
                    self.evaluations += 1
                if full:
                    everything = [torch.arange(len(test_set.y)) for test_set in self.sets]
                    questions = self._gather(everything, self.seen, device=device, hold=False)
                    self._answer(network, learning, questions, self.ends)
        self.seconds += time.perf_counter() - started

    def _chosen(self, device: torch.device) -> Questions:
        """The chosen samples of all seen tasks, gathered again only when they have changed."""
        if self.redraw:
            self.index = [draw(len(test_set.y), self.subset, self.generator) for test_set in self.sets]
        held = self._questions
        stale = held is None or held.overwritten or held.tasks != self.seen or held.device != device
        if held is None or stale or self.redraw:
            held = self._questions = self._gather(
                self.index, self.seen, device=device, hold=self._holds(self.seen)
            )
        return held

    def _holds(self, tasks: Iterable[int]) -> bool:
        """Whether the inputs of these tasks stay in memory."""
        return self.subset is not None or all(self.sets[task].in_memory for task in tasks)

    def _gather(
        self, index: Sequence[Tensor], tasks: Sequence[int], *, device: torch.device, hold: bool
    ) -> Questions:
        return Questions(self.sets, index, tasks, device=device, hold=hold, shuffle=self.shuffle)

    def _answer(self, network: nn.Module, learning: int, questions: Questions, into: Trace) -> None:
        """Classify all samples in one pass and record which answers are correct."""
        answers = [None if self.answers is None else self.answers[task] for task in questions.tasks]
        sought: Sought = [None if units is None else tuple(units) for units in answers]
        right = torch.empty(questions.total, dtype=torch.bool)
        losses = torch.empty(questions.total) if self.losses else None
        convolved = any(isinstance(module, nn.Conv2d) for module in network.modules())
        size = questions.rows_in(CHUNK_BYTES_CONVOLVED if convolved else CHUNK_BYTES)
        for part in chunks(questions.total, size):
            x, y = questions.read(part)
            with self.answering():
                logits = _scores(network, x, questions, part, self.judge, sought)
            for place, rows in questions.spans(part, sought):
                right[part][rows] = self.judge.right(logits[rows], y[rows], sought[place])
                if losses is not None:
                    losses[part][rows] = self.judge.loss(logits[rows], y[rows], sought[place])
        bits = questions.in_order(right).numpy()
        losses = None if losses is None else questions.in_order(losses)
        for task, (start, stop) in zip(questions.tasks, questions.bounds, strict=True):
            into.add(step=self.step, learning=learning, task=task, right=bits[start:stop])
            if losses is not None and into is self.trace:
                loss = float(losses[start:stop].mean())
                self.readings.append((self.step, learning, task, "loss", loss))


def _scores(
    network: nn.Module, x: Tensor, questions: Questions, part: slice, judge: Judge, sought: Sought
) -> Tensor:
    """The scores of all units; a network with a `route` for every task is evaluated task by task."""
    tasks = questions.tasks
    if not isinstance(network, Routes):
        return judge.scores(scorer(network)(x), samples=len(x), tasks=tasks, sought=sought)
    pieces = []
    for place, rows in questions.spans(part, tasks):
        here = x[rows]
        outputs = scorer(network.route(tasks[place]))(here)
        asked = [tasks[place]]
        pieces.append((rows, judge.scores(outputs, samples=len(here), tasks=asked, sought=[sought[place]])))
    scores = pieces[0][1].new_empty((len(x), *pieces[0][1].shape[1:]))
    for rows, answers in pieces:
        scores[rows] = answers
    return scores


def _stale_end(learned: Sequence[int], *, per_epoch: bool) -> str:
    """That the last updates of some tasks were not evaluated, and what to do."""
    several = len(learned) > 1
    tasks = f"task{'s' * several} {', '.join(map(str, learned))}"
    how = "set full_ends=True" if per_epoch else "pass last=True with the last update, or call end()"
    return (
        f"the last update{'s' * several} of {tasks} {'were' if several else 'was'} not evaluated: ACC, FORG "
        f"and other metrics at task ends use an earlier evaluation; {how}"
    )


def _competing(answers: Answers | None, tasks: int) -> Answers | None:
    """The output units that compete in each task, in ascending order."""
    if answers is None:
        return None
    if len(answers) != tasks:
        raise InputError(f"answers must have one entry per task, got {len(answers)} for {tasks} tasks")
    for task, units in enumerate(answers):
        if units is not None and (not units or min(units) < 0):
            raise InputError(
                f"answers of task {task} must be output units counted from 0, at least one, got {list(units)}"
            )
    return [None if units is None else tuple(sorted(set(units))) for units in answers]


def _packed(trace: Trace) -> dict[str, Tensor]:
    numbers = {name: torch.tensor(getattr(trace, name), dtype=torch.int64) for name in COLUMNS[:-1]}
    bits = np.frombuffer(b"".join(trace.bits), dtype=np.uint8)
    return {**numbers, "bits": torch.from_numpy(bits.copy())}


def _unpacked(state: dict[str, Tensor]) -> Trace:
    numbers = {name: state[name].tolist() for name in COLUMNS[:-1]}
    lengths = [(total + 7) // 8 for total in state["total"].tolist()]
    bits = [piece.numpy().tobytes() for piece in state["bits"].split(lengths)] if lengths else []
    return Trace(**numbers, bits=bits)
