"""The evaluator: decides when to evaluate, measures and records. It works in any PyTorch training loop."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from typing import TYPE_CHECKING, NotRequired, Protocol, TypedDict, runtime_checkable

import numpy as np
import torch
from torch import Tensor, nn

from engram.core.errors import InputError
from engram.core.folder import Reading
from engram.core.jsons import Json, JsonObject
from engram.core.trace import COLUMNS, Trace
from engram.evaluation.dense import scorer
from engram.evaluation.fingerprint import fingerprint
from engram.evaluation.guard import Guard, same_randomness
from engram.evaluation.judge import Judge, Sought
from engram.evaluation.samples import EvaluationSet, Questions, as_evaluation_set, chunks, draw
from engram.evaluation.schedule import Schedule
from engram.evaluation.snapshot import Change
from engram.metrics.extremes import REDRAW_WARNING
from engram.record.answers import Answers
from engram.record.recording import Recording
from engram.record.samples import PerTask, Samples, TaskSamples, by_task, checked_ids, checked_slices
from engram.record.test_data import TestData, other_tasks

if TYPE_CHECKING:
    from engram.metrics.summary import Measurement

CompetingUnits = Sequence[Sequence[int] | None]
"""For each task, the output units that compete for the answer; None for all."""

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
    answered: NotRequired[dict[str, Tensor]]


class Evaluator(Recording):
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
        units: For each task, the output units that compete for the answer; None for all units. A network
            with a single output, evaluated on labels 0 and 1, is read as the logit of class 1.
        answers: Also record what was answered, for churn and confusion.
        ids: For each test set, the names of its samples (default: their positions); the run keeps them, with
            the labels.
        slices: For each test set, columns with one value per sample, by name; the run keeps them.
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
        units: CompetingUnits | None = None,
        answers: bool = False,
        ids: PerTask[Sequence[object]] | None = None,
        slices: PerTask[Mapping[str, Sequence[object]]] | None = None,
        full_ends: bool = False,
        losses: bool = False,
        classes: Sequence[int] | None = None,
        shuffle: bool = False,
    ) -> None:
        super().__init__(classes=classes)
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
        self.units = _competing(units, len(self.sets))
        self.answers = answers
        self._known = _known_samples(self.sets, self.names, ids, slices)
        self.judge = Judge([test_set.y for test_set in self.sets])
        self.shuffle = seed if shuffle else None
        self.answering: Callable[[], AbstractContextManager[object]] = nullcontext
        self.generator = torch.Generator().manual_seed(seed)
        self.index = [draw(len(test_set.y), subset, self.generator) for test_set in self.sets]
        if tasks == "all":
            self.seen = list(range(len(self.sets)))
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
        self._begin(learning, together)
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
        self._begin(learning, together)
        self._evaluate(model, learning, curve=True, full=False)

    def end(self, model: nn.Module | Callable[[], nn.Module], *, learning: int) -> None:
        """End a task: evaluates unless its last update was evaluated already."""
        done = bool(self.trace.step) and self.trace.step[-1] == self.step
        if not done or self.full_ends:
            self._evaluate(model, learning, curve=not done, full=self.full_ends)

    @cached_property
    def test_data(self) -> tuple[TestData, ...]:
        """The fingerprints of the test sets, which tell whether two runs were evaluated on the same data."""
        chosen = [None if self.redraw else index for index in self.index]
        return tuple(fingerprint(test_set, rows) for test_set, rows in zip(self.sets, chosen, strict=True))

    @property
    def fingerprints(self) -> tuple[TestData, ...]:
        """The same, as a run keeps them."""
        return self.test_data

    @property
    def names(self) -> list[str]:
        """The names of the tasks; a number stands for a task without one."""
        return [str(number) for number in range(len(self.sets))]

    @property
    def sizes(self) -> tuple[int, ...]:
        """How many samples the whole test set of each task has."""
        return tuple(len(test_set.y) for test_set in self.sets)

    @property
    def redrawn(self) -> bool:
        """Whether samples are drawn again for every evaluation."""
        return self.redraw

    def samples(self) -> Samples | None:
        """The samples that bits belong to: those drawn, or all where task ends are evaluated on all.

        None where samples are drawn again for every evaluation, unless task ends are evaluated on all.
        """
        if self.redraw and not self.full_ends:
            return None
        tasks = {}
        for task, (known, index) in enumerate(zip(self._known, self.index, strict=True)):
            drawn = np.zeros(self.sizes[task], dtype=np.bool_)
            drawn[[] if self.redraw else index.numpy()] = True
            rows = np.arange(len(drawn)) if self.full_ends else np.flatnonzero(drawn)
            tasks[task] = known.chosen(rows.tolist(), drawn[rows].tolist())
        return Samples.of(tasks)

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

    @property
    def self_changes(self) -> tuple[Change, ...]:
        """What modules have changed in themselves in evaluations; it was restored."""
        return tuple(self._guard.changes)

    def look(self, *, units: CompetingUnits | None, schedule: Schedule) -> None:
        """Change the competing output units and the schedule of the evaluations that follow."""
        self.units, self.schedule = units, schedule

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
            "answered": _packed_answers(self.answered),
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
        self.answered = _unpacked_answers(state.get("answered"))
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

    def doubts(self) -> list[str]:
        """What makes the metrics doubtful: ends that were not evaluated, outputs that may be misread."""
        silent = [learning for learning in self.stale if learning not in self._passed_over]
        stale = [_stale_end(silent, per_epoch=self.schedule.per_epoch)] if silent else []
        return [*stale, *([self.judge.doubt] if self.judge.doubt else [])]

    def reservations(self, measured: Measurement) -> dict[str, str]:
        """Why metrics are undefined or left out, and which of them use evaluations before a task's end."""
        from engram.metrics.registry import computed

        reason = _stale_end(self.stale, per_epoch=self.schedule.per_epoch) if self.stale else ""
        defined = computed()
        ends = [name for name in measured.final if name in defined and "curve" not in defined[name].needs]
        return {**dict.fromkeys(ends if reason else (), reason), **measured.why}

    def _begin(self, learning: int, together: Sequence[int] | None) -> None:
        tasks = self.learned.get(learning, tuple(together) if together is not None else (learning,))
        for task in tasks:
            if not 0 <= task < len(self.sets):
                raise InputError(
                    f"learning={task} has no test set: there are {len(self.sets)}, counted from 0"
                )
        self._meet(learning, tasks)

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
        competing = [None if self.units is None else self.units[task] for task in questions.tasks]
        sought: Sought = [None if units is None else tuple(units) for units in competing]
        right = torch.empty(questions.total, dtype=torch.bool)
        losses = torch.empty(questions.total) if self.losses else None
        answered = torch.empty(questions.total, dtype=torch.int64) if self.answers else None
        convolved = any(isinstance(module, nn.Conv2d) for module in network.modules())
        size = questions.rows_in(CHUNK_BYTES_CONVOLVED if convolved else CHUNK_BYTES)
        for part in chunks(questions.total, size):
            x, y = questions.read(part)
            with self.answering():
                logits = _scores(network, x, questions, part, self.judge, sought)
            for place, rows in questions.spans(part, sought):
                right[part][rows] = self.judge.right(logits[rows], y[rows], sought[place])
                if answered is not None:
                    answered[part][rows] = self.judge.answers(logits[rows], sought[place]).cpu()
                if losses is not None:
                    losses[part][rows] = self.judge.loss(logits[rows], y[rows], sought[place])
        bits = questions.in_order(right).numpy()
        losses = None if losses is None else questions.in_order(losses)
        given = None if answered is None or into is not self.trace else questions.in_order(answered).numpy()
        for task, (start, stop) in zip(questions.tasks, questions.bounds, strict=True):
            into.add(step=self.step, learning=learning, task=task, right=bits[start:stop])
            if given is not None:
                self.answered.add(step=self.step, learning=learning, task=task, answers=given[start:stop])
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


def _known_samples(
    sets: Sequence[EvaluationSet],
    names: Sequence[str],
    ids: PerTask[Sequence[object]] | None,
    slices: PerTask[Mapping[str, Sequence[object]]] | None,
) -> list[TaskSamples]:
    """What is known of the samples of each test set, checked."""
    given = [None] * len(sets) if ids is None else by_task(ids, names, "ids")
    columns = [None] * len(sets) if slices is None else by_task(slices, names, "slices")
    known = []
    for number, test_set in enumerate(sets):
        size, of = len(test_set.y), f"test set {names[number]}"
        mine = given[number]
        known.append(
            TaskSamples(
                [str(place) for place in range(size)] if mine is None else checked_ids(mine, size, of),
                test_set.y.tolist(),
                checked_slices(columns[number] or {}, size, of),
            )
        )
    return known


def _competing(units: CompetingUnits | None, tasks: int) -> CompetingUnits | None:
    """The output units that compete in each task, in ascending order."""
    if units is None:
        return None
    if len(units) != tasks:
        raise InputError(f"units must have one entry per task, got {len(units)} for {tasks} tasks")
    for task, competing in enumerate(units):
        if competing is not None and (not competing or min(competing) < 0):
            raise InputError(
                f"units of task {task} must be output units counted from 0, at least one, "
                f"got {list(competing)}"
            )
    return [None if competing is None else tuple(sorted(set(competing))) for competing in units]


def _packed(trace: Trace) -> dict[str, Tensor]:
    numbers = {name: torch.tensor(getattr(trace, name), dtype=torch.int64) for name in COLUMNS[:-1]}
    bits = np.frombuffer(b"".join(trace.bits), dtype=np.uint8)
    return {**numbers, "bits": torch.from_numpy(bits.copy())}


def _unpacked(state: dict[str, Tensor]) -> Trace:
    numbers = {name: state[name].tolist() for name in COLUMNS[:-1]}
    lengths = [(total + 7) // 8 for total in state["total"].tolist()]
    bits = [piece.numpy().tobytes() for piece in state["bits"].split(lengths)] if lengths else []
    return Trace(**numbers, bits=bits)


_ROW = ("step", "learning", "task", "total")


def _packed_answers(answers: Answers) -> dict[str, Tensor]:
    numbers = {name: torch.tensor(getattr(answers, name), dtype=torch.int64) for name in _ROW}
    codes = np.frombuffer(b"".join(answers.codes), dtype=np.uint8)
    lengths = torch.tensor([len(row) for row in answers.codes], dtype=torch.int64)
    return {**numbers, "lengths": lengths, "codes": torch.from_numpy(codes.copy())}


def _unpacked_answers(state: dict[str, Tensor] | None) -> Answers:
    if state is None or not len(state["step"]):
        return Answers()
    numbers = {name: state[name].tolist() for name in _ROW}
    codes = [piece.numpy().tobytes() for piece in state["codes"].split(state["lengths"].tolist())]
    return Answers(**numbers, codes=codes, classes=[None] * len(codes))
