"""The evaluator: decides when to evaluate, measures and records. It works in any PyTorch training loop."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from engram.core.errors import InputError, unknown_name
from engram.core.scores import Scores
from engram.core.trace import Trace
from engram.evaluation.asker import Asker, Request
from engram.evaluation.asking import Forward, Right, Score
from engram.evaluation.asking import Routes as Routes
from engram.evaluation.batch_sets import BatchSet, labels_in, left_out_by, size_of
from engram.evaluation.checked import Checked
from engram.evaluation.fingerprint import fingerprint
from engram.evaluation.guard import same_randomness
from engram.evaluation.judge import Judge
from engram.evaluation.levels import TwoLevels, refuse_other_levels
from engram.evaluation.measured import Evaluation as Evaluation
from engram.evaluation.measured import Measured, Wanted
from engram.evaluation.parallel.beside import Fate
from engram.evaluation.parallel.recording import ParallelRecording
from engram.evaluation.precision import Autocast
from engram.evaluation.ranks import Ranks, Team, check_ranks, whole_network
from engram.evaluation.samples import draw
from engram.evaluation.schedule import Schedule
from engram.evaluation.snapshot import Change
from engram.evaluation.state import (
    VERSION,
    EvaluatorState,
    check_state,
    packed,
    packed_answers,
    packed_scores,
    refuse_other_data,
    refuse_other_record,
    unpacked,
    unpacked_answers,
    unpacked_scores,
)
from engram.evaluation.ways import CompetingUnits, Ways, competing_units, known_samples, read_test_sets
from engram.metrics.arrays import Label
from engram.metrics.extremes import REDRAW_WARNING
from engram.record.half_checked import HalfChecked, Precision, check_precision
from engram.record.run import Run
from engram.record.samples import Column, PerTask, Samples
from engram.record.test_data import TestData
from engram.record.two_level import check_levels

if TYPE_CHECKING:
    from engram.metrics.summary import Measurement


class Evaluator(ParallelRecording):
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
        samples: `two-level` asks 200 of these at every evaluation (`two-level:N` N of them) and all at some,
            for a quarter to a third of the price; see docs/how-to/two-level.md. None asks all every time.
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
        precision: `half-checked` evaluates in bfloat16, and asks answers that are in doubt again in full
            precision, so that the bits are those of `full`; `auto` does so where a short trial finds it
            faster. See docs/how-to/half-precision.md.
        parallel: Evaluate in this many processes, forked from this one, while the loop goes on, to the same
            bits; `auto` does so where it is faster; `skip` and `skip:N` leave out evaluations while all are
            busy. See docs/how-to/parallel.md.
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
        samples: str | None = None,
        redraw: bool = False,
        seed: int = 0,
        tasks: str = "seen",
        units: CompetingUnits | None = None,
        answers: bool = False,
        ids: PerTask[Column] | None = None,
        slices: PerTask[Mapping[str, Column]] | None = None,
        full_ends: bool = False,
        losses: bool = False,
        classes: Sequence[int] | None = None,
        shuffle: bool = False,
        right: Right | None = None,
        score: Score | None = None,
        higher_is_better: bool | None = None,
        forward: Forward | None = None,
        autocast: Autocast = None,
        precision: Precision = "full",
        parallel: str | int = "off",
        ranks: Ranks = "share",
        on_evaluate: Callable[[Evaluation], object] | None = None,
    ) -> None:
        super().__init__(parallel, classes=classes)
        if subset is not None and subset < 1:
            raise InputError(f"subset must be at least 1, or None for all samples, got {subset}")
        if tasks not in ("seen", "all"):
            raise InputError(f"tasks must be 'seen' or 'all', got {tasks!r}")
        check_ranks(ranks)
        check_precision(precision)
        small = check_levels(samples, subset=subset, redraw=redraw, full_ends=full_ends, per_epoch=per_epoch)
        self.ways = Ways.of(right=right, score=score, forward=forward, higher_is_better=higher_is_better)
        self.ways.check(
            units=units, losses=losses, full_ends=full_ends, answers=answers, two_level=small is not None
        )
        self.scores = Scores(self.ways.higher_is_better)
        names, self.sets = read_test_sets(test_sets, classified=self.ways.classified)
        for data in test_sets.values() if isinstance(test_sets, Mapping) else test_sets:
            if line := left_out_by(data):
                warnings.warn(line, stacklevel=2)
        self.named = names is not None
        self._names = [str(number) for number in range(len(self.sets))] if names is None else names
        in_batches = self.ways.own or any(isinstance(data, BatchSet) for data in self.sets)
        if shuffle and in_batches:
            raise InputError(
                "shuffle mixes samples of all tasks, which batches and own functions do not allow"
            )
        self._sizes = tuple(size_of(data) for data in self.sets)
        largest = max(self._sizes)
        if redraw and (subset is None or subset >= largest):
            raise InputError(
                "redraw draws a new subset for every evaluation, and all samples are used: set subset below "
                f"{largest}, or leave redraw out"
            )
        if redraw:
            warnings.warn(REDRAW_WARNING, stacklevel=2)
        self.schedule = Schedule(every, per_epoch)
        self.subset, self.redraw, self.full_ends = subset, redraw, full_ends
        self.units = competing_units(units, len(self.sets))
        self._known = known_samples(self.sets, self.names, ids, slices)
        judge = None
        if self.ways.classified:
            labels = [data.classes() if isinstance(data, BatchSet) else data.y for data in self.sets]
            judge = Judge(labels, names=self.names)
        self.ranks, self.on_evaluate = ranks, on_evaluate
        self.asker = Asker(
            self.sets,
            self.names,
            self.ways,
            judge,
            wanted=Wanted(losses=losses, answers=answers),
            autocast=autocast,
            shuffle=seed if shuffle else None,
            in_batches=in_batches,
            hold=subset is not None,
            checked=None if precision == "full" else Checked(precision),
            choices=1 if small is None else 2,
        )
        self.generator = torch.Generator().manual_seed(seed)
        self.index = [draw(size, subset, self.generator) for size in self.sizes]
        self.levels = None if small is None else TwoLevels.drawn(self.index, small, self.generator)
        self.trace = Trace(anchors=None if small is None else Trace())
        if tasks == "all":
            self.seen = list(range(len(self.sets)))
        self._passed_over: set[int] = set()
        self._gathered: list[list[int]] = []

    def __call__(
        self,
        model: nn.Module | Callable[[], nn.Module],
        *,
        learning: Label,
        last: bool = False,
        epoch_step: int | None = None,
        together: Sequence[Label] | None = None,
    ) -> bool:
        """Count an update, and evaluate if an evaluation is due; returns whether it was, or will be.

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
        self._begin(now, together)
        self.updated[now] = self.step
        due = self.schedule.due(self.step, epoch_step=epoch_step, last=last)
        if last and not due:
            self._passed_over.add(now)
        if due or (last and self.full_ends):
            return self._evaluate(model, now, curve=due, end=last, beside=not last) and due
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
        self._begin(now, together)
        self._evaluate(model, now, curve=True, end=False)

    def end(self, model: nn.Module | Callable[[], nn.Module], *, learning: Label) -> None:
        """End a task: evaluates unless its last update was evaluated already."""
        record, anchors = self._record, self.trace.anchors
        done = bool(record.step) and record.step[-1] == self.step
        open_end = anchors is not None and not (anchors.step and anchors.step[-1] == self.step)
        if not done or self.full_ends or open_end:
            self._evaluate(model, self._number(learning), curve=not done, end=True)

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
        return list(self._names)

    @property
    def sizes(self) -> tuple[int, ...]:
        """How many samples the whole test set of each task has."""
        return self._sizes

    @property
    def labels(self) -> list[Tensor | None]:
        """For each task, the labels of its test set, one per sample; None if there are none of one form."""
        return [labels_in(data) for data in self.sets]

    @property
    def only_scores(self) -> bool:
        """Whether scores are recorded instead of right and wrong answers."""
        return not self.ways.answered

    def called(self, task: int) -> Label:
        """The name of a task, or its number where tasks have no names."""
        return self._names[task] if self.named and 0 <= task < len(self._names) else task

    @property
    def redrawn(self) -> bool:
        """Whether samples are drawn again for every evaluation."""
        return self.redraw

    def samples(self) -> Samples | None:
        """The samples that bits belong to: those drawn, or all where task ends are evaluated on all.

        With two levels these are those asked at anchors, and the small level is drawn. None where samples are
        drawn again for every evaluation, unless task ends are evaluated on all.
        """
        if self.redraw and not self.full_ends:
            return None
        tasks = {}
        for task, known in enumerate(self._known):
            drawn = np.zeros(self.sizes[task], dtype=np.bool_)
            drawn[[] if self.redraw else self._asked_samples[task].numpy()] = True
            rows = np.arange(len(drawn)) if self.full_ends else self.index[task].numpy()
            tasks[task] = known.chosen(rows.tolist(), drawn[rows].tolist())
        return Samples.of(tasks)

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

    @property
    def self_changes(self) -> tuple[Change, ...]:
        """What modules have changed in themselves in evaluations; it was restored."""
        return tuple(self.asker.guard.changes)

    @property
    def precision_record(self) -> HalfChecked | None:
        """What was evaluated in half precision; None where that was not asked for."""
        return None if self.asker.checked is None else self.asker.checked.record

    def save(self, folder: str | Path, *, label: str | None = None, seed: int = 0) -> Run:
        """Write the same files as `engram run`; in distributed training, rank 0 does.

        Args:
            folder: Where to write them; its name is the run's id.
            label: What people call the run (default: the name of the folder).
            seed: The seed that the model was trained with; runs are paired by it.
        """
        if Team(self.ranks).rank == 0:
            return super().save(folder, label=label, seed=seed)
        return self.run(description=self.description(Path(folder), label=label, seed=seed))

    def look(self, *, units: CompetingUnits | None, schedule: Schedule) -> None:
        """Change the competing output units and the schedule of the evaluations that follow."""
        self.units, self.schedule = units, schedule

    def __repr__(self) -> str:
        """The test sets, the schedule, and the latest accuracies."""
        sizes = [len(index) for index in self.index]
        samples = f"{sizes[0]}" if len(set(sizes)) == 1 else f"{min(sizes)} to {max(sizes)}"
        values = self.latest_scores() if self.only_scores else self.accuracies()
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
        self.settle()
        return {
            "version": VERSION,
            "names": self.names if self.named else [],
            "plain": {"step": self.step, "seconds": self.seconds, "evaluations": self.evaluations},
            "seen": list(self.seen),
            "learned": [(learning, list(tasks)) for learning, tasks in self.learned.items()],
            "updated": list(self.updated.items()),
            "test_data": [task.as_json() for task in self.test_data],
            "index": list(self.index),
            "gathered": [] if self.redraw else self.asker.gathered(self._asked_samples),
            "gathered_rest": [] if self.levels is None else self.asker.gathered(self.levels.rest),
            "readings": list(self.readings),
            "generator": self.generator.get_state(),
            "trace": packed(self.trace),
            "levels": None if self.levels is None else self.levels.state_dict(self.trace),
            "ends": packed(self.ends),
            "scores": packed_scores(self.scores),
            "answered": packed_answers(self.answered),
            "checked": None if self.asker.checked is None else self.asker.checked.state_dict(),
            "parallel": self._parallel_state(),
        }

    def load_state_dict(self, state: EvaluatorState) -> None:
        """Continue from a recorded state, with an evaluator that was made in the same way.

        Raises:
            InputError: It is not the state of an evaluator, it was written by a later version, or the
                evaluations in it were made on other test sets. Nothing is changed then.
        """
        check_state(state)
        refuse_other_record(
            state,
            names=self.names if self.named else [],
            only_scores=self.only_scores,
            scored=self.ways.score is not None,
        )
        refuse_other_levels(state.get("levels"), self.levels)
        refuse_other_data(state, self.test_data, called=self.called)
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
        if self.levels is not None and (levels := state.get("levels")) is not None:
            self.shifts = self.levels.load_state_dict(levels, self.index, self.trace, self.learned)
        if state.get("scores"):
            self.scores = unpacked_scores(state["scores"])
        self.answered = unpacked_answers(state.get("answered"))
        if self.asker.checked is not None and (checked := state.get("checked")) is not None:
            self.asker.checked.load_state_dict(checked)
        self._continue_parallel(state.get("parallel"))
        self._gathered = [list(state.get("gathered", ())), list(state.get("gathered_rest", ()))]

    def gather_again(self, device: torch.device) -> None:
        """Gather the samples that were gathered when the state was saved, before the next evaluation does."""
        choices = [self._asked_samples, [] if self.levels is None else self.levels.rest]
        for rows, tasks in zip(choices, self._gathered, strict=False):
            if tasks:
                self.asker.gather(rows, tasks, device)

    # ----------------------------------------------------------------------------------------------

    def _number(self, task: Label) -> int:
        """The number of a task, given by number or name."""
        if not isinstance(task, str):
            return task
        if not self.named or task not in self._names:
            raise unknown_name("task", task, self._names if self.named else ())
        return self._names.index(task)

    def _notice_end(self) -> None:
        """Warn, when another task begins, if the last update of the task before was not evaluated."""
        ended = [learning for learning, step in self.updated.items() if step == self.step]
        evaluated = max(
            (trace.step[-1] for trace in (self.trace, self.ends, self.scores) if len(trace)), default=-1
        )
        if ended and evaluated < self.step and ended[0] not in self._passed_over:
            warnings.warn(self._stale_end(ended), stacklevel=3)

    def doubts(self) -> list[str]:
        """What makes the metrics doubtful: ends that were not evaluated, outputs that may be misread."""
        silent = [learning for learning in self.stale if learning not in self._passed_over]
        stale = [self._stale_end(silent)] if silent else []
        judge = self.asker.judge
        return [*stale, *([judge.doubt] if judge is not None and judge.doubt else [])]

    def reservations(self, measured: Measurement) -> dict[str, str]:
        """Why metrics are undefined or left out, and which of them use evaluations before a task's end."""
        from engram.metrics.registry import computed

        reason = self._stale_end(self.stale) if self.stale else ""
        defined = computed()
        ends = [name for name in measured.final if name in defined and "curve" not in defined[name].needs]
        return {**dict.fromkeys(ends if reason else (), reason), **measured.why}

    def _stale_end(self, learned: Sequence[int]) -> str:
        """That the last updates of some tasks were not evaluated, and what to do."""
        several = len(learned) > 1
        tasks = f"task{'s' * several} {', '.join(str(self.called(task)) for task in learned)}"
        how = "pass last=True with the last update, or call end()"
        if self.schedule.per_epoch:
            how = "set full_ends=True"
        return (
            f"the last update{'s' * several} of {tasks} {'were' if several else 'was'} not evaluated: ACC, "
            f"FORG and other metrics at task ends use an earlier evaluation; {how}"
        )

    def _begin(self, learning: int, together: Sequence[Label] | None) -> None:
        now = (learning,) if together is None else tuple(self._number(task) for task in together)
        tasks = self.learned.get(learning, now)
        for task in tasks:
            if not 0 <= task < len(self.sets):
                raise InputError(
                    f"learning={task} has no test set: there are {len(self.sets)}, counted from 0"
                )
        self._meet(learning, tasks)

    @property
    def _asked_samples(self) -> Sequence[Tensor]:
        """For each task, the samples that are asked at every evaluation."""
        return self.index if self.levels is None else self.levels.small

    def _evaluate(
        self,
        model: nn.Module | Callable[[], nn.Module],
        learning: int,
        *,
        curve: bool,
        end: bool,
        beside: bool = False,
    ) -> bool:
        """Evaluate, or let an evaluator process do it; returns whether that is so, or it was left out."""
        with same_randomness():
            team = Team(self.ranks)
            if not team.evaluates:
                return True
            network = whole_network(model if isinstance(model, nn.Module) else model())
            # What it takes to make the network is not evaluation.
            started = time.perf_counter()
            device = next((p.device for p in network.parameters()), torch.device("cpu"))
            fate = self._offer(network, learning, team, device) if beside else Fate.IN_LINE
            if fate is not Fate.IN_LINE:
                return fate is Fate.TAKEN
            self.settle()
            if not team.alone:
                team.agree(network, device, evaluations=self.evaluations + 1, data=str(self.test_data))
            with self.asker.untouched(network, device):
                if curve:
                    measured = self.asker.ask(network, self._request(learning), team, device)
                    self._add(measured, self.step, learning)
                now = self.learned.get(learning, (learning,))
                if self.levels is not None and self.levels.due(self.trace, now, evaluated=curve, end=end):
                    rest = self.levels.request(learning, self.seen, self.units)
                    others = self.asker.ask(network, rest, team, device) if rest.tasks else {}
                    self.shifts |= self.levels.add_anchor(self.trace, others)
                if end and self.full_ends:
                    whole = Request(learning, tuple(self.seen), self.units)
                    self._add_end(self.asker.ask(network, whole, team, device), learning)
            seconds = time.perf_counter() - started
            self.seconds += seconds
            if curve and team.rank == 0:
                self._tell(self.step, learning)
            if curve and beside:
                self._made_in_line(network, seconds)
        return True

    def _tell(self, step: int, learning: int) -> None:
        """Tell whoever wants to know of the evaluation that was recorded last."""
        if self.on_evaluate is not None:
            accuracies = {} if self.only_scores else self.accuracies()
            self.on_evaluate(Evaluation(step, self.called(learning), accuracies, self.latest_scores()))

    def _request(self, learning: int) -> Request:
        """What a network is asked now, about the chosen samples."""
        if self.redraw:
            self.index = [draw(size, self.subset, self.generator) for size in self.sizes]
        return Request(learning, tuple(self.seen), self.units, self._asked_samples)

    def _add(self, measured: Mapping[int, Measured], step: int, learning: int) -> None:
        """Record what was measured of the chosen samples of each task."""
        self.evaluations += 1
        for task, mine in measured.items():
            row = {"step": step, "learning": learning, "task": task}
            if mine.right is not None:
                self.trace.add(**row, right=mine.right.numpy())
            if mine.scores is not None:
                self.scores.add(**row, values=mine.scores.numpy().copy())
            if mine.answers is not None:
                self.answered.add(**row, answers=mine.answers.numpy())
            if mine.losses is not None:
                self.readings.append((step, learning, task, "loss", float(mine.losses.mean())))

    def _add_end(self, measured: Mapping[int, Measured], learning: int) -> None:
        """Record which of all samples of each task are answered correctly, at the end of a task."""
        for task, mine in measured.items():
            if mine.right is not None:
                self.ends.add(step=self.step, learning=learning, task=task, right=mine.right.numpy())
