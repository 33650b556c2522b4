"""Side by side: when evaluator processes are started, used, and ended."""

from __future__ import annotations

import enum
import os
import sys
import time
import weakref
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import nn

from engram.core.cores import cores
from engram.evaluation.parallel.answered import Answered, Noise
from engram.evaluation.parallel.crew import BUFFERS, Crew
from engram.evaluation.parallel.form import Elsewhere, Form, Key
from engram.evaluation.parallel.pace import Pace
from engram.evaluation.parallel.ring import Ring
from engram.record.parallel import ParallelPlan, ParallelRecord


class Job(NamedTuple):
    """What an evaluator is told besides the weights: updates done, the task being learned, random states."""

    step: int
    learning: int
    noise: Noise | None


class Fate(enum.Enum):
    """What becomes of an evaluation that is due."""

    TAKEN = "taken by an evaluator"
    SKIPPED = "not made, because all evaluators are busy"
    IN_LINE = "made by the learner itself"


class Beside:
    """Decides, evaluation by evaluation, whether an evaluator process makes it while the learner goes on.

    The first evaluation of a stretch is made in line: it prepares the samples and finds errors. Then
    evaluators are forked, each with the samples, the functions and the network. They get snapshots of its
    tensors until anything else changes: the form of the network, the tasks that are evaluated, or settings of
    torch. Then the stretch ends, and the next begins in line.

    Args:
        plan: What is wanted.
        ask: Evaluates a network, here or in an evaluator. Whoever owns the function must outlive this.
        cores: The cores that learner and evaluators may use (default: those of this process).

    Attributes:
        why: Why evaluations are made in line; empty where evaluators make them.
    """

    def __init__(
        self,
        plan: ParallelPlan,
        ask: Callable[[nn.Module, Job], Answered],
        *,
        cores_in_all: int | None = None,
    ) -> None:
        self.plan, self.why = plan, ""
        # The owner holds this, which must not keep it alive.
        self._ask = weakref.WeakMethod(ask)
        self._pace = Pace(cores=cores_in_all or cores(), threads=torch.get_num_threads())
        self._record = ParallelRecord(str(plan))
        self._off = (
            "" if hasattr(os, "fork") and sys.platform == "linux" else "processes are forked on Linux only"
        )
        self._crew: Crew[Job, Answered] | None = None
        self._ring: Ring | None = None
        self._key: Key = ()
        self._stretch: Key = ()
        self._against = ""
        self._finalizer: weakref.finalize[[Crew[Job, Answered], int], Beside] | None = None

    @property
    def record(self) -> ParallelRecord:
        """What was done so far."""
        replaced = self._record.replaced + (0 if self._crew is None else self._crew.replaced)
        return replace(self._record, why=self.why, replaced=replaced)

    @property
    def pids(self) -> list[int]:
        """The evaluator processes."""
        return [] if self._crew is None else self._crew.pids

    @property
    def oldest(self) -> int | None:
        """The update of the oldest snapshot that has no result yet; None if there is none."""
        job = None if self._crew is None else self._crew.oldest
        return None if job is None else job.step

    @property
    def newest(self) -> int | None:
        """The update of the newest snapshot that has no result yet; None if there is none."""
        job = None if self._crew is None else self._crew.newest
        return None if job is None else job.step

    @property
    def active(self) -> bool:
        """Whether there are evaluators now."""
        return self._crew is not None

    def hopeless(self) -> bool:
        """Whether evaluations are made in line whatever the network is; finding out takes no time."""
        if self._crew is None and self.plan.chooses and not self._off:
            self._pace.threads = torch.get_num_threads()
            if self._pace.room < 1:
                self.why = self._pace.choice(copying=0.0)[1]
                return True
        return self._crew is None and bool(self._off)

    def offer(
        self,
        network: nn.Module,
        job: Job,
        stretch: Key,
        record: Callable[[Job, Answered], None],
        *,
        against: str,
    ) -> Fate:
        """Hand an evaluation to an evaluator if there is one for it.

        Args:
            network: The network as it is now.
            job: What goes with it.
            stretch: What must stay the same besides the network's form.
            record: Told of results, in order; the learner may wait here for one.
            against: Why it must be made in line; empty where nothing speaks against evaluators.
        """
        self._pace.came()
        self._against = self._off or against
        self.why = self._against or self.why
        if self._crew is None:
            if stretch != self._stretch:
                self._stretch = stretch
                self._pace.begin()
            return Fate.IN_LINE
        form = None if self._against else self._form(network)
        if form is None or (*form.key, *stretch, *_settings()) != self._key:
            self._stretch = stretch
            return self._leave(record)
        self._tell(self._crew.ready(), record)
        while (buffer := self._crew.free_buffer()) is None:
            if self._crew.broken:
                self._off = self.why = "evaluator processes ended one after the other"
                return self._leave(record)
            if self.plan.skips:
                self._record = replace(self._record, skipped=self._record.skipped + 1)
                self._pace.left()
                return Fate.SKIPPED
            self._tell(self._crew.one(), record)
        self._hand_in(buffer, form, job)
        return self._judged()

    def made_in_line(self, network: nn.Module, seconds: float, stretch: Key) -> None:
        """An evaluation was made in line; start evaluators for those that follow, if it is time.

        Everything that was handed in before must have its result.
        """
        self._pace.evaluated(seconds)
        if not self._off and not self._against and self._crew is None:
            started = time.perf_counter()
            evaluators, self.why = self._chosen(network)
            form = self._form(network) if evaluators else None
            if evaluators and form is not None:
                self._key = (*form.key, *stretch, *_settings())
                self._start(network, form, evaluators)
                self._pace.fork_seconds = (time.perf_counter() - started) / evaluators
        self._pace.left()

    def drain(self, record: Callable[[Job, Answered], None]) -> None:
        """Wait for all results, and tell of them in order."""
        if self._crew is not None:
            self._tell(self._crew.drained(), record)

    def end(self) -> None:
        """End all evaluators; snapshots without a result are forgotten."""
        self._pace.begin()
        if self._crew is not None:
            self._record = replace(self._record, replaced=self._record.replaced + self._crew.replaced)
            if self._finalizer is not None:
                self._finalizer.detach()
            self._crew.end()
        self._crew = self._ring = self._finalizer = None

    def continue_from(self, record: ParallelRecord) -> None:
        """Count on from what was done before a run was resumed."""
        self._record = replace(record, wanted=str(self.plan))

    # ------------------------------------------------------------------------------------------------

    def _form(self, network: nn.Module) -> Form | None:
        try:
            form = Form.of(network)
        except Elsewhere as reason:
            self._off = self.why = str(reason)
            return None
        other = next((tensor.device.type for tensor in form.tensors if not tensor.is_cpu), "")
        if other:
            self._off = self.why = f"the network is on {other}, and evaluators take snapshots on the CPU"
        return None if other else form

    def _leave(self, record: Callable[[Job, Answered], None]) -> Fate:
        """The stretch ends: what was handed in gets its results."""
        self.drain(record)
        self.end()
        return Fate.IN_LINE

    def _tell(self, results: Iterator[tuple[Job, Answered]], record: Callable[[Job, Answered], None]) -> None:
        """Pass results on; where one is an error, what was handed in after it is forgotten."""
        try:
            for job, answer in results:
                record(job, answer)
        except Exception:
            self.end()
            raise

    def _chosen(self, network: nn.Module) -> tuple[int, str]:
        """How many evaluators to start now, and if none why."""
        if self.plan.evaluators is not None:
            return self.plan.evaluators, ""
        evaluators, why = self._pace.choice(copying=0.0)
        # Only now is it worth looking at the network.
        form = self._form(network) if evaluators else None
        if form is None:
            return 0, why or self.why
        trial = Ring(form, 1)
        trial.write(0, form.tensors)
        started = time.perf_counter()
        trial.write(0, form.tensors)
        return self._pace.choice(copying=time.perf_counter() - started)

    def _start(self, network: nn.Module, form: Form, evaluators: int) -> None:
        buffers = BUFFERS * evaluators
        ring = self._ring = Ring(form, buffers)
        ask = self._ask

        def work(buffer: int, job: Job) -> Answered:
            function = ask()
            assert function is not None
            with form.holding(ring.tensors[buffer]):
                return function(network, job)

        self.why = ""
        self._crew = crew = Crew(work, processes=evaluators, buffers=buffers)
        self._finalizer = weakref.finalize(self, _end_if_mine, crew, os.getpid())
        self._record = replace(self._record, evaluators=max(self._record.evaluators, evaluators))

    def _hand_in(self, buffer: int, form: Form, job: Job) -> None:
        assert self._ring is not None
        assert self._crew is not None
        self._ring.write(buffer, form.tensors)
        self._crew.hand_in(buffer, job)
        record, oldest = self._record, self._crew.oldest
        assert oldest is not None
        self._record = replace(
            record, evaluations=record.evaluations + 1, lag=max(record.lag, job.step - oldest.step + 1)
        )

    def _judged(self) -> Fate:
        """The evaluation is taken; if evaluators do not save time, there will be no more of them."""
        if self.plan.chooses and (reason := self._pace.disappoints()):
            self._off = self.why = reason
        self._pace.left()
        return Fate.TAKEN


def _settings() -> Key:
    """Settings of torch that results may depend on, and that evaluators have as they were when forked."""
    return (
        torch.get_num_threads(),
        torch.get_default_dtype(),
        torch.get_float32_matmul_precision(),
        torch.are_deterministic_algorithms_enabled(),
        torch.backends.mkldnn.enabled,
    )


def _end_if_mine(crew: Crew[Job, Answered], owner: int) -> None:
    """End evaluators whose learner is gone; a copy of the learner in another process leaves them alone."""
    if os.getpid() == owner:
        crew.end()
