"""A record whose evaluations may be made by evaluator processes: kept in order, complete when it is read."""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor, nn

from engram.core.errors import InputError
from engram.core.folder import Reading
from engram.core.jsons import JsonObject
from engram.evaluation.asker import Asker, Request
from engram.evaluation.levels import TwoLevels
from engram.evaluation.measured import Measured
from engram.evaluation.parallel.answered import Answered, answered, noise_now
from engram.evaluation.parallel.beside import Beside, Fate, Job
from engram.evaluation.parallel.form import Key
from engram.evaluation.precision import in_force
from engram.evaluation.ranks import Team
from engram.evaluation.ways import CompetingUnits
from engram.record.parallel import MOST_EVALUATORS, Late, ParallelPlan, ParallelRecord
from engram.record.recording import Recording


class ParallelRecording(Recording):
    """A recording that evaluator processes may add to, in the order of updates.

    Args:
        parallel: See `engram.Evaluator`.
        classes: How many different classes are in use after each task.

    Attributes:
        must_stay: Says why a network must be evaluated in this process; empty text if it need not be.
        raised_at: The update whose evaluation failed, later than it was made; None if none did.
    """

    asker: Asker
    units: CompetingUnits | None
    index: Sequence[Tensor]
    redraw: bool
    levels: TwoLevels | None = None
    _beside: Beside | None = None
    _settling = False

    def __init__(self, parallel: str | int, *, classes: Sequence[int] | None = None) -> None:
        super().__init__(classes=classes)
        plan = ParallelPlan.of(parallel)
        self._beside = None if plan.evaluators == 0 else Beside(plan, self._ask_beside)
        self.must_stay: Callable[[nn.Module], str] = _may_leave
        self.raised_at: int | None = None
        self._waiting: deque[tuple[int, list[Reading], float]] = deque()
        self._news: deque[Late] = deque(maxlen=4 * MOST_EVALUATORS)

    def __getstate__(self) -> dict[str, object]:
        """Everything but processes, which a copy starts for itself."""
        self.settle()
        plan = None if self._beside is None else self._beside.plan
        return {**vars(self), "_beside": plan}

    def __setstate__(self, state: dict[str, object]) -> None:
        vars(self).update(state)
        plan = state["_beside"]
        self._beside = Beside(plan, self._ask_beside) if isinstance(plan, ParallelPlan) else None

    @property
    def lag(self) -> int:
        """By how many updates evaluator processes are behind; 0 where everything is recorded."""
        oldest = None if self._beside is None else self._beside.oldest
        return 0 if oldest is None else self.step - oldest + 1

    @property
    def evaluators(self) -> list[int]:
        """The ids of the evaluator processes."""
        return [] if self._beside is None else self._beside.pids

    @property
    def parallel_record(self) -> ParallelRecord | None:
        """What evaluator processes did; None where they were not asked for."""
        if self._beside is None:
            return None
        gaps = np.diff(np.unique(self._record.step))
        if not self._beside.plan.skips or not len(gaps):
            return self._beside.record
        return replace(self._beside.record, period=float(np.mean(gaps)), longest=int(np.max(gaps)))

    def settle(self) -> None:
        """Wait for evaluations that are under way, and record them; reading any record does so first."""
        if self._beside is not None and not self._settling:
            self._beside.drain(self._take)

    def close(self, *, wait: bool = True) -> None:
        """End evaluator processes; later evaluations start new ones.

        Args:
            wait: Whether to wait for evaluations that are under way; otherwise they are forgotten.
        """
        if self._beside is not None:
            if wait:
                self.settle()
            self._beside.end()
            self._waiting.clear()

    def note(self, readings: Iterable[Reading], *, seconds: float = 0.0) -> None:
        """Record what a probe measured, and how long that took, after the evaluations before it."""
        newest = None if self._beside is None else self._beside.newest
        if newest is None:
            super().note(readings, seconds=seconds)
        else:
            self._waiting.append((newest, list(readings), seconds))

    def news(self) -> list[Late]:
        """The results of evaluator processes that were recorded since the last call."""
        news = list(self._news)
        self._news.clear()
        return news

    @abstractmethod
    def _add(self, measured: Mapping[int, Measured], step: int, learning: int) -> None:
        """Record what was measured of the chosen samples of each task."""

    @abstractmethod
    def _tell(self, step: int, learning: int) -> None:
        """Tell whoever wants to know of the evaluation that was recorded last."""

    # ------------------------------------------------------------------------------------------------

    def _offer(self, network: nn.Module, learning: int, team: Team, device: torch.device) -> Fate:
        """Hand an evaluation that is due to an evaluator process, if there is one for it.

        Raises:
            InputError: A number of evaluators was asked for, and there can be none.
        """
        if self._beside is None or self._beside.hopeless():
            return Fate.IN_LINE
        apart = {
            "several processes train together": not team.alone,
            "the network is not on the CPU": device.type != "cpu",
            "two-level samples are chosen by what was answered before": self.levels is not None,
        }
        reasons = {
            **apart,
            "samples are drawn again for every evaluation": self.redraw,
            "autocast is in force": self.asker.autocast is None and in_force(device.type),
            "the network changes itself in evaluation": bool(self.asker.guard.changes),
        }
        against = next((reason for reason, holds in reasons.items() if holds), "")
        if against in apart and not self._beside.plan.chooses:
            raise InputError(f"there can be no evaluator processes, because {against}: leave parallel out")
        job = Job(self.step, learning, noise_now() if self._beside.active else None)
        against = against or self.must_stay(network)
        return self._beside.offer(network, job, self._stretch(), self._take, against=against)

    def _made_in_line(self, network: nn.Module, seconds: float) -> None:
        if self._beside is not None and not self._beside.hopeless():
            self._beside.made_in_line(network, seconds, self._stretch())

    def _stretch(self) -> Key:
        """What evaluator processes know from the time when they were started, besides the network."""
        units = [None if units is None else tuple(units) for units in self.units or ()]
        return tuple(self.seen), *units, id(self.index)

    def _ask_beside(self, network: nn.Module, job: Job) -> Answered:
        """Evaluate a snapshot, in an evaluator process, or here where that failed."""
        request = Request(job.learning, tuple(self.seen), self.units, self.index)
        try:
            assert job.noise is not None
            return answered(self.asker, network, request, job.noise)
        except Exception as error:
            self.raised_at = job.step
            error.add_note(f"in the evaluation after update {job.step}")
            raise

    def _take(self, job: Job, answer: Answered) -> None:
        """Record the result of an evaluator process, and what followed it."""
        self._settling = True
        try:
            self._add(answer.taken(self.asker), job.step, job.learning)
            self.seconds += answer.seconds
            self._news.append(Late(job.step, job.learning, {} if self.only_scores else self.latest))
            self._tell(job.step, job.learning)
            while self._waiting and self._waiting[0][0] == job.step:
                _, readings, seconds = self._waiting.popleft()
                super().note(readings, seconds=seconds)
        finally:
            self._settling = False

    def _parallel_state(self) -> JsonObject | None:
        return None if self._beside is None else self._beside.record.as_json()

    def _continue_parallel(self, done: JsonObject | None) -> None:
        if self._beside is not None and done is not None:
            self._beside.continue_from(ParallelRecord.of_json(done))


def _may_leave(_: nn.Module) -> str:
    """Nothing speaks against evaluating a network in another process."""
    return ""
