"""The evaluator: decides when to evaluate, measures and records. It works in any PyTorch training loop."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypedDict

import numpy as np
import torch
from torch import Tensor, nn

from engram.core.errors import InputError, unknown_name
from engram.core.folder import Reading
from engram.core.jsons import Json, JsonMapping
from engram.core.scores import Scores
from engram.core.trace import Trace
from engram.evaluation.asking import Forward, Right, Score
from engram.evaluation.asking import Routes as Routes
from engram.evaluation.batch_sets import BatchQuestions, BatchSet, labels_in, size_of
from engram.evaluation.dense import scorer
from engram.evaluation.fingerprint import fingerprint
from engram.evaluation.guard import Guard, same_randomness
from engram.evaluation.judge import Judge, Sought
from engram.evaluation.measured import Measured, ask_in_batches
from engram.evaluation.precision import Autocast, precision
from engram.evaluation.ranks import Ranks, Team, check_ranks, whole_network
from engram.evaluation.samples import Questions, chunks, draw
from engram.evaluation.schedule import Schedule
from engram.evaluation.snapshot import Change
from engram.evaluation.state import (
    VERSION,
    EvaluatorState,
    check_state,
    packed,
    packed_scores,
    unpacked,
    unpacked_scores,
)
from engram.evaluation.ways import Ways, read_test_sets
from engram.metrics.arrays import Label
from engram.metrics.extremes import REDRAW_WARNING
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


class Learned(TypedDict):
    """What metrics need to know besides the trace."""

    ends: Trace | None
    classes_seen: Sequence[int] | None
    phases: Phases


class Evaluation(NamedTuple):
    """One evaluation, as `on_evaluate` is told of it.

    Attributes:
        step: Updates done.
        learning: The task being learned: its name, or its number where tasks have no names.
        accuracies: The accuracy of each task that was evaluated; empty where only scores are recorded.
        scores: The mean score of each task; empty without `score`.
    """

    step: int
    learning: Label
    accuracies: dict[Label, float]
    scores: dict[Label, float]


class Evaluator:
    """Evaluates a network after its updates, without changing it.

    Call it after every update with the task being learned; it evaluates when an evaluation is due. Tasks are
    numbered in the order of their test sets; where these are given by name, the names are used everywhere,
    also for `learning`. See docs/how-to/own-loop.md.

    In distributed training, call it in all processes: each evaluates its share of the batches, and all get
    the whole record, which is that of a single process to the bit. Mixed precision is that of the place where
    it is called, unless `autocast` says otherwise.

    Args:
        test_sets: One per task, in a list or by name in a dict: `(inputs, labels)`, a `DataLoader`, a
            map-style data set of pairs, tuples or mappings, or a mapping of tensors. The last entry of a
            tuple is the labels, as are `labels` or `label` of a mapping.
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
        right: What counts as right, `right(output, batch)` to one bool per sample (default: the class with
            the highest score). `engram.right` has ready ones.
        score: How good an answer is, `score(output, batch)` to one number per sample, such as a loss. It is
            recorded beside the bits if `right` is given too, and instead of them if not. `engram.score` has
            ready ones.
        higher_is_better: Whether a higher score is better; ready scores know it.
        forward: How a network is asked, `forward(network, batch)` (default: it is called with the inputs of
            the batch, those of a mapping by name).
        autocast: A type such as `torch.bfloat16` to evaluate in mixed precision, False to evaluate without;
            None for what is in force where the evaluator is called.
        ranks: In distributed training, `share` for each process its share, `first` for rank 0 alone (other
            processes record nothing and need not call), `each` for each process on its own.
        on_evaluate: Called with an `Evaluation` after each one, for plots of your own; in distributed
            training on rank 0.

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
        test_sets: Sequence[object] | Mapping[str, object],
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
        right: Right | None = None,
        score: Score | None = None,
        higher_is_better: bool | None = None,
        forward: Forward | None = None,
        autocast: Autocast = None,
        ranks: Ranks = "share",
        on_evaluate: Callable[[Evaluation], object] | None = None,
    ) -> None:
        if subset is not None and subset < 1:
            raise InputError(f"subset must be at least 1, or None for all samples, got {subset}")
        if tasks not in ("seen", "all"):
            raise InputError(f"tasks must be 'seen' or 'all', got {tasks!r}")
        check_ranks(ranks)
        self.ways = Ways.of(right=right, score=score, forward=forward, higher_is_better=higher_is_better)
        self.names, self.sets = read_test_sets(test_sets, classified=self.ways.classified)
        self.in_batches = self.ways.own or any(isinstance(test_set, BatchSet) for test_set in self.sets)
        self.ways.check(answers=answers, losses=losses, full_ends=full_ends)
        if shuffle and self.in_batches:
            raise InputError(
                "shuffle mixes the samples of tasks, which batches and own functions do not allow"
            )
        self.sizes = [size_of(test_set) for test_set in self.sets]
        largest = max(self.sizes)
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
        self.judge = None
        if self.ways.classified:
            labels = [data.classes() if isinstance(data, BatchSet) else data.y for data in self.sets]
            self.judge = Judge(labels, names=self.names)
        self.autocast, self.ranks, self.on_evaluate = autocast, ranks, on_evaluate
        self.shuffle = seed if shuffle else None
        self.answering: Callable[[], AbstractContextManager[object]] = nullcontext
        self.classes = list(classes) if classes is not None else None
        self.trace, self.ends = Trace(), Trace()
        self.scores = Scores(self.ways.higher_is_better)
        self.readings: list[Reading] = []
        self.step = 0
        self.seconds = 0.0
        self.evaluations = 0
        self.generator = torch.Generator().manual_seed(seed)
        self.index = [draw(size, subset, self.generator) for size in self.sizes]
        self.seen: list[int] = list(range(len(self.sets))) if tasks == "all" else []
        self.learned: dict[int, tuple[int, ...]] = {}
        self.updated: dict[int, int] = {}
        self._passed_over: set[int] = set()
        self._questions: Questions | BatchQuestions | None = None
        self._gathered: list[int] = []
        self._guard = Guard(own_code=self.ways.own)

    def __call__(
        self,
        model: nn.Module | Callable[[], nn.Module],
        *,
        learning: Label,
        last: bool = False,
        epoch_step: int | None = None,
        together: Sequence[Label] | None = None,
    ) -> bool:
        """Count an update, and evaluate if an evaluation is due; returns whether it was.

        Args:
            model: The network, from inputs to the scores of all output units; or a function that makes it,
                which is called only if an evaluation is due.
            learning: The task being learned, by number or name.
            last: Whether this was the task's last update, which is always evaluated.
            epoch_step: The number of the update in its epoch, from 0 (only for `per_epoch`).
            together: The tasks being learned, if several are learned at once.
        """
        now = self._number(learning)
        if now not in self.updated or self.updated[now] != self.step:
            self._notice_end()
        self.step += 1
        self._meet(now, together)
        self.updated[now] = self.step
        due = self.schedule.due(self.step, epoch_step=epoch_step, last=last)
        if last and not due:
            self._passed_over.add(now)
        if due or (last and self.full_ends):
            self._evaluate(model, now, curve=due, full=last and self.full_ends)
        return due

    def before(
        self,
        model: nn.Module | Callable[[], nn.Module],
        *,
        learning: Label = 0,
        together: Sequence[Label] | None = None,
    ) -> None:
        """Evaluate before the first update."""
        now = self._number(learning)
        self._meet(now, together)
        self._evaluate(model, now, curve=True, full=False)

    def end(self, model: nn.Module | Callable[[], nn.Module], *, learning: Label) -> None:
        """End a task: evaluates unless its last update was evaluated already."""
        record = self._record
        done = bool(record.step) and record.step[-1] == self.step
        if not done or self.full_ends:
            self._evaluate(model, self._number(learning), curve=not done, full=self.full_ends)

    def accuracies(self) -> dict[Label, float]:
        """The latest accuracy of each task, by its name, or by its number where tasks have no names.

        Raises:
            InputError: Only scores are recorded.
        """
        if not self.ways.answered:
            raise InputError(
                "there are no accuracies, only scores: see latest_scores(), or give right= as well"
            )
        return {self._name(task): value for task, value in self.latest.items()}

    @property
    def latest(self) -> dict[int, float]:
        """The latest accuracy of each task by its number."""
        values = {}
        for row in self._latest_rows(self.trace):
            values[self.trace.task[row]] = self.trace.correct[row] / self.trace.total[row]
        return values

    def latest_scores(self) -> dict[Label, float]:
        """The latest mean score of each task, by its name, or by its number where tasks have no names."""
        return {
            self._name(self.scores.task[row]): float(self.scores.values[row].mean(dtype=np.float64))
            for row in self._latest_rows(self.scores)
        }

    def metrics(self) -> dict[str, float]:
        """All metrics that can be computed from the record, by name; NaN where one is undefined.

        With `score` these include the metrics of scores (see `engram.metrics.scores`); where only scores
        are recorded, there are no others. A warning says where a task's last update was not evaluated, so
        that metrics at task ends use an earlier one.
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
    def labels(self) -> list[Tensor | None]:
        """For each task, the labels of its test set, one per sample; None where there are none of one form."""
        return [labels_in(test_set) for test_set in self.sets]

    @property
    def stale(self) -> tuple[int, ...]:
        """The values of `learning` whose last update was not evaluated."""
        seen: dict[int, int] = {}
        for record in (self.trace, self.ends, self.scores):
            seen |= {
                learning: max(step, seen.get(learning, 0))
                for learning, step in zip(record.learning, record.step, strict=True)
            }
        return tuple(learning for learning, step in self.updated.items() if seen.get(learning, -1) < step)

    def extremes(self) -> Extremes:
        """min-ACC, WF10 and the other extremes, corrected for the bias of subsets, with 95 % intervals.

        See `engram.metrics.extremes.estimate_extremes`. This takes longer than `metrics`: about 0.4 s for
        2,400 evaluations of five tasks.
        """
        from engram.metrics.extremes import Extremes, estimate_extremes
        from engram.metrics.scores import UNDEFINED

        self._check_evaluated()
        if not self.ways.answered:
            return Extremes(why=UNDEFINED)
        return estimate_extremes(
            self.trace, sizes=dict(enumerate(self.sizes)), redrawn=self.redraw, **self._learned()
        )

    def _measured(self, *, tolerant: bool = False) -> Measurement:
        from engram.metrics.scores import with_scores
        from engram.metrics.summary import summarise

        self._check_evaluated()
        learned, measured = self._learned(), None
        if self.ways.answered:
            measured = summarise(self.trace, tolerant=tolerant, names=self.names, **learned)
        return with_scores(measured, self.scores, phases=learned["phases"])

    @property
    def _record(self) -> Trace | Scores:
        """What every evaluation adds to."""
        return self.trace if self.ways.answered else self.scores

    def _check_evaluated(self) -> None:
        if not len(self._record):
            raise InputError("nothing was evaluated yet: call the evaluator after an update first")

    def _learned(self) -> Learned:
        return {
            "ends": self.ends if len(self.ends) else None,
            "classes_seen": None if self.classes is None else self.classes[: len(self.learned)],
            "phases": [self.learned.get(learning, (learning,)) for learning in range(len(self.sets))],
        }

    def save(self, folder: str | Path, *, label: str | None = None, seed: int = 0) -> Run:
        """Write the same files as `engram run`, which `engram report` and other commands read.

        In distributed training rank 0 writes them.
        """
        place = Path(folder)
        description = {
            "id": place.name,
            "label": label or place.name,
            "seed": seed,
            "tasks": [str(self._name(task)) for task in range(len(self.sets))],
        }
        run = self.run(description=description)
        return run.save(place) if Team(self.ranks).rank == 0 else run

    def run(self, *, description: JsonMapping, train_seconds: float = 0.0) -> Run:
        """The finished run, as this evaluator recorded it.

        Args:
            description: What the run is: `id` and `label` at least, and `seed` if there is one.
            train_seconds: How long training took.
        """
        from engram.metrics.summary import Measurement

        evaluated = len(self._record) > 0
        measured = self._measured(tolerant=True) if evaluated else Measurement({}, {}, {}, {})
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
            sizes=tuple(self.sizes),
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
        return Tables(self.trace, ends=self.ends, scores=self.scores, readings=self.readings)

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
        values = self.accuracies() if self.ways.answered else self.latest_scores()
        latest = ", ".join(f"task {task} {value:.3f}" for task, value in values.items())
        return (
            f"<Evaluator of {len(self.sets)} test sets, {samples} samples each, {self.schedule}: "
            f"{self.evaluations} evaluations in {self.step} updates{f'; {latest}' if latest else ''}>"
        )

    def state_dict(self) -> EvaluatorState:
        """Everything recorded so far, as tensors and plain values that `torch.save` and safe loading take.

        An evaluator that is made in the same way continues from it: see `load_state_dict`.

        Example:
            >>> test_sets = {"dogs": (torch.eye(2), torch.tensor([0, 1]))}
            >>> watch, net = Evaluator(test_sets), nn.Linear(2, 2)
            >>> _ = watch(net, learning="dogs")
            >>> state = watch.state_dict()               # saved with the weights, and loaded again
            >>> resumed = Evaluator(test_sets)
            >>> resumed.load_state_dict(state)
            >>> _ = resumed(net, learning="dogs")
            >>> resumed.trace.step
            [1, 2]
        """
        return {
            "version": VERSION,
            "names": [] if self.names is None else list(self.names),
            "plain": {"step": self.step, "seconds": self.seconds, "evaluations": self.evaluations},
            "seen": list(self.seen),
            "learned": [(learning, list(tasks)) for learning, tasks in self.learned.items()],
            "updated": list(self.updated.items()),
            "test_data": [task.as_json() for task in self.test_data],
            "index": list(self.index),
            "gathered": [] if self._questions is None or self.redraw else self._questions.tasks,
            "readings": list(self.readings),
            "generator": self.generator.get_state(),
            "trace": packed(self.trace),
            "ends": packed(self.ends),
            "scores": packed_scores(self.scores),
        }

    def load_state_dict(self, state: EvaluatorState) -> None:
        """Continue from a recorded state, with an evaluator that was made in the same way.

        Raises:
            InputError: It is not the state of an evaluator, it was written by a later version, or the
                evaluations in it were made on other test sets. Nothing is changed then.
        """
        check_state(state)
        self._refuse_other_names(state)
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
        self.trace, self.ends = unpacked(state["trace"]), unpacked(state["ends"])
        if state.get("scores"):
            self.scores = unpacked_scores(state["scores"])
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
                f"the test data of task {self._name(changed[0])} are not those that the evaluations so far were made on: "
                "continue with the same test data, or begin again"
            )

    def _refuse_other_names(self, state: EvaluatorState) -> None:
        """Refuse to continue a record with other names of tasks, or one of scores without scores."""
        names = state.get("names") or None
        if "names" in state and names != self.names:
            now = "none" if self.names is None else ", ".join(self.names)
            raise InputError(
                f"the evaluations so far were made of tasks called {', '.join(names or ['0, 1, …'])}, and the "
                f"names are now {now}: continue with the same names, or begin again"
            )
        scored = "scores" in state and len(state["scores"]["step"]) > 0
        answered = len(state["trace"]["step"]) > 0
        if (scored and self.ways.score is None) or (answered and not self.ways.answered):
            kind = "with scores" if scored else "of right and wrong answers"
            raise InputError(
                f"the evaluations so far were made {kind}: continue with the same right= and score=, or begin again"
            )

    def _number(self, task: Label) -> int:
        """The number of a task, given by number or name."""
        if not isinstance(task, str):
            return task
        if self.names is None or task not in self.names:
            raise unknown_name("task", task, self.names or ())
        return self.names.index(task)

    def _name(self, task: int) -> Label:
        """The name of a task, or its number where tasks have no names."""
        return task if self.names is None or not 0 <= task < len(self.names) else self.names[task]

    def _latest_rows(self, record: Trace | Scores) -> list[int]:
        """The rows of the last evaluation."""
        last = range(max(0, len(record) - len(self.sets)), len(record))
        return [row for row in last if record.step[row] == record.step[-1]]

    def _notice_end(self) -> None:
        """Warn, when another task begins, if the last update of the task before was not evaluated."""
        ended = [learning for learning, step in self.updated.items() if step == self.step]
        evaluated = max(
            (trace.step[-1] for trace in (self.trace, self.ends, self.scores) if len(trace)), default=-1
        )
        if ended and evaluated < self.step and ended[0] not in self._passed_over:
            warnings.warn(self._stale_end(ended), stacklevel=3)

    def _stale_end(self, learned: Sequence[int]) -> str:
        return _stale_end([self._name(task) for task in learned], per_epoch=self.schedule.per_epoch)

    def _warn_of_doubts(self) -> None:
        """Warn of what makes the metrics doubtful."""
        silent = [learning for learning in self.stale if learning not in self._passed_over]
        if silent:
            warnings.warn(self._stale_end(silent), stacklevel=3)
        if self.judge is not None and self.judge.doubt:
            warnings.warn(self.judge.doubt, stacklevel=3)

    def _reservations(self, measured: Measurement) -> dict[str, str]:
        """Why metrics are undefined or left out, and which of them use evaluations before a task's end."""
        from engram.metrics.registry import computed

        reason = self._stale_end(self.stale) if self.stale else ""
        defined = computed()
        ends = [name for name in measured.final if name in defined and "curve" not in defined[name].needs]
        return {**dict.fromkeys(ends if reason else (), reason), **measured.why}

    def _meet(self, learning: int, together: Sequence[Label] | None) -> None:
        tasks = (learning,) if together is None else tuple(self._number(task) for task in together)
        self.learned.setdefault(learning, tasks)
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
            team = Team(self.ranks)
            if not team.evaluates:
                return
            network = whole_network(model if isinstance(model, nn.Module) else model())
            # What it takes to make the network is not evaluation.
            started = time.perf_counter()
            device = next((p.device for p in network.parameters()), torch.device("cpu"))
            if not team.alone:
                data = str(self.test_data)
                team.agree(network, device, evaluations=self.evaluations + 1, data=data)
            with self._guard.untouched(network), precision(device, self.autocast):
                if curve:
                    self._answer(network, learning, self._chosen(device), self.trace, team)
                    self.evaluations += 1
                if full:
                    everything = [torch.arange(size) for size in self.sizes]
                    questions = self._gather(everything, self.seen, device=device, hold=False)
                    self._answer(network, learning, questions, self.ends, team)
            self.seconds += time.perf_counter() - started
            if curve and self.on_evaluate is not None and team.rank == 0:
                self.on_evaluate(self._told(learning))

    def _told(self, learning: int) -> Evaluation:
        accuracies = self.accuracies() if self.ways.answered else {}
        return Evaluation(self.step, self._name(learning), accuracies, self.latest_scores())

    def _chosen(self, device: torch.device) -> Questions | BatchQuestions:
        """The chosen samples of all seen tasks, gathered again only when they have changed."""
        if self.redraw:
            self.index = [draw(size, self.subset, self.generator) for size in self.sizes]
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
    ) -> Questions | BatchQuestions:
        plain = [test_set for test_set in self.sets if not isinstance(test_set, BatchSet)]
        if self.in_batches or len(plain) < len(self.sets):
            return BatchQuestions(self.sets, index, tasks, device=device, hold=hold)
        return Questions(plain, index, tasks, device=device, hold=hold, shuffle=self.shuffle)

    def _answer(
        self,
        network: nn.Module,
        learning: int,
        questions: Questions | BatchQuestions,
        into: Trace,
        team: Team,
    ) -> None:
        """Ask about all samples, and record which answers are right, and their scores."""
        device = torch.device(questions.device)
        with team.together(device):
            measured = self._asked(network, questions, team)
        right, scores, losses = measured.combined(team, device)
        bits = None if right is None else questions.in_order(right).numpy()
        losses = None if losses is None else questions.in_order(losses)
        for task, (start, stop) in zip(questions.tasks, questions.bounds, strict=True):
            if bits is not None:
                into.add(step=self.step, learning=learning, task=task, right=bits[start:stop])
            if scores is not None and into is self.trace:
                values = scores[start:stop].numpy().copy()
                self.scores.add(step=self.step, learning=learning, task=task, values=values)
            if losses is not None and into is self.trace:
                loss = float(losses[start:stop].mean())
                self.readings.append((self.step, learning, task, "loss", loss))

    def _asked(self, network: nn.Module, questions: Questions | BatchQuestions, team: Team) -> Measured:
        answers = [None if self.answers is None else self.answers[task] for task in questions.tasks]
        sought: Sought = [None if units is None else tuple(units) for units in answers]
        if isinstance(questions, BatchQuestions):
            names = [str(self._name(task)) for task in range(len(self.sets))]
            with self.answering():
                return ask_in_batches(
                    network,
                    questions,
                    ways=self.ways,
                    judge=self.judge,
                    sought=sought,
                    losses=self.losses,
                    names=names,
                    team=team,
                )
        return self._classified(network, questions, sought, team)

    def _classified(self, network: nn.Module, questions: Questions, sought: Sought, team: Team) -> Measured:
        """Classify all samples in one pass."""
        assert self.judge is not None
        right = torch.zeros(questions.total, dtype=torch.bool)
        losses = torch.zeros(questions.total) if self.losses else None
        convolved = any(isinstance(module, nn.Conv2d) for module in network.modules())
        size = questions.rows_in(CHUNK_BYTES_CONVOLVED if convolved else CHUNK_BYTES)
        for number, part in enumerate(chunks(questions.total, size)):
            if not team.mine(number):
                continue
            x, y = questions.read(part)
            with self.answering():
                logits = _scores(network, x, questions, part, self.judge, sought)
            for place, rows in questions.spans(part, sought):
                right[part][rows] = self.judge.right(logits[rows], y[rows], sought[place])
                if losses is not None:
                    losses[part][rows] = self.judge.loss(logits[rows], y[rows], sought[place])
        return Measured(right, losses=losses)


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


def _stale_end(learned: Sequence[Label], *, per_epoch: bool) -> str:
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
