"""The work of a method, wherever it does it: in updates, at boundaries of tasks, and before answers."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cache
from typing import Literal, TypeVar, final

import torch
from torch.utils._python_dispatch import _get_current_dispatch_mode

from engram.engine.operations import Operations, counting_operations
from engram.methods.base import Learner
from engram.methods.state import State
from engram.record.account import Done, PhaseWork

T = TypeVar("T")
Place = Literal["updates", "boundaries", "answers"]
Stretch = Literal["start", "batch", "backward", "after"]
"""What a stretch of work begins with: the call itself, a batch, a backward pass, the end of all batches."""

FIRST, EVERY = 8, 64
"""Operations are counted in the first stretches of each kind, and then in one of so many."""


@dataclass(slots=True)
class Tally:
    """The stretches of one kind.

    Attributes:
        times: How many there were.
        counted: In how many of them operations were counted.
        flops: Operations in those.
        samples: Samples learned from in those.
    """

    times: int = 0
    counted: int = 0
    flops: int = 0
    samples: int = 0

    def scaled(self, amount: int) -> int:
        """What the counted stretches have, scaled to all of them."""
        return round(amount * self.times / self.counted) if self.counted else 0


class Work:
    """The work in one phase.

    Backward passes are all counted. Operations and samples are counted in some updates; and at boundaries and
    before answers in some stretches, from one batch or backward pass to the next: the first 8, then every
    64th. They are scaled to all updates and stretches. So counting costs little, and gives the same numbers
    again.

    Attributes:
        backward_passes: By place.
        tallies: The stretches by place and by what they begin with.
        update: The updates.
        last_update: The operations of the update that was counted last.
        answer_flops: Operations of the costliest answer.
        begin_flops: Operations at boundaries before the first update; None until then.

    Example:
        >>> work = Work()
        >>> weight = torch.ones(3, requires_grad=True)
        >>> with work.at("answers"):
        ...     for _ in range(100):
        ...         (weight * weight).sum().backward()
        >>> done = work.done(updates=0).for_answers
        >>> done.backward_passes, done.flops > 100 * 6
        (100, True)
    """

    def __init__(self) -> None:
        self.backward_passes: dict[Place, int] = {"updates": 0, "boundaries": 0, "answers": 0}
        self.tallies: dict[tuple[Place, Stretch], Tally] = {}
        self.update = Tally()
        self.last_update = 0
        self.answer_flops = 0
        self.begin_flops: int | None = None
        self._uncounted = _Uncounted(self, "updates")
        _count_backward_passes()

    def at(self, place: Place, *, count: bool = True) -> AbstractContextManager[None]:
        """Count what is inside as work at this place; in updates, all of it or backward passes only."""
        return _Call(self, place) if count else self._uncounted

    def handed(self, batches: Iterable[T]) -> Iterator[T]:
        """The same batches; getting them is not the method's work, and each begins a new stretch."""
        call = _UNDER_WAY.call
        if not isinstance(call, _Call):
            yield from batches
            return
        remaining = iter(batches)
        while True:
            call.stop()
            batch = next(remaining, None)
            call.begin("after" if batch is None else "batch")
            if batch is None:
                return
            yield batch

    def done(self, *, updates: int) -> PhaseWork:
        """All work of the phase, which has had this many updates."""
        update = self.update
        return PhaseWork(
            updates,
            Done(self.backward_passes["updates"], update.scaled(update.flops), update.scaled(update.samples)),
            self._done("boundaries"),
            self._done("answers"),
            self.answer_flops,
            self.begin_flops,
        )

    def begun(self) -> None:
        """What was done at boundaries so far was done before the first update."""
        self.begin_flops = self._done("boundaries").flops

    def _done(self, place: Place) -> Done:
        tallies = [tally for (where, _), tally in self.tallies.items() if where == place]
        return Done(
            self.backward_passes[place],
            sum(tally.scaled(tally.flops) for tally in tallies),
            sum(tally.scaled(tally.samples) for tally in tallies),
        )

    def state_dict(self) -> State:
        """What was counted, as plain values."""
        return {
            "backward_passes": dict(self.backward_passes),
            "tallies": [[*key, *_numbers(tally)] for key, tally in self.tallies.items()],
            "update": _numbers(self.update),
            "answer_flops": self.answer_flops,
            "begin_flops": self.begin_flops,
        }

    @classmethod
    def of_state(cls, state: State) -> Work:
        """Continue from what was counted."""
        work = cls()
        work.backward_passes = dict(state["backward_passes"])
        work.tallies = {(place, begun): Tally(*numbers) for place, begun, *numbers in state["tallies"]}
        work.update = Tally(*state["update"])
        work.answer_flops = int(state["answer_flops"])
        work.begin_flops = state.get("begin_flops")
        return work


def _numbers(tally: Tally) -> list[int]:
    return [tally.times, tally.counted, tally.flops, tally.samples]


class _Uncounted:
    """An update of which only backward passes are counted."""

    def __init__(self, work: Work, place: Place) -> None:
        self.work, self.place = work, place
        self.outer: _Uncounted | None = None

    def __enter__(self) -> None:
        self.outer, _UNDER_WAY.call = _UNDER_WAY.call, self
        self.work.update.times += 1

    def __exit__(self, *_: object) -> None:
        _UNDER_WAY.call = self.outer

    def backward(self) -> None:
        """A backward pass begins."""
        self.work.backward_passes[self.place] += 1


@final
class _Call(_Uncounted):
    """One call of a method under way."""

    def __init__(self, work: Work, place: Place) -> None:
        super().__init__(work, place)
        self.counting: Operations | None = None
        self.tally = Tally()
        self.stretches: dict[Stretch, int] = {}
        # A mode that the method's own code has entered must be left before ours.
        self.outside = _get_current_dispatch_mode()

    def __enter__(self) -> None:
        self.outer, _UNDER_WAY.call = _UNDER_WAY.call, self
        self.begin("start")

    def __exit__(self, *_: object) -> None:
        before = self.work.update.flops
        self.stop()
        super().__exit__()
        if self.place == "updates":
            self.work.last_update = self.work.update.flops - before
        elif self.place == "answers":
            self.work.answer_flops = max(self.work.answer_flops, self.flops())

    def backward(self) -> None:
        """A backward pass begins, and with it a stretch; an update is one stretch."""
        super().backward()
        if self.place != "updates":
            self.stop()
            self.begin("backward")

    def begin(self, stretch: Stretch) -> None:
        """Begin a stretch, and count its operations if it is its turn."""
        self.tally, counted = self.work.update, True
        if self.place != "updates":
            self.tally = self.work.tallies.setdefault((self.place, stretch), Tally())
            counted = self.tally.times < FIRST or self.tally.times % EVERY == 0
        self.tally.times += 1
        self.stretches[stretch] = self.stretches.get(stretch, 0) + 1
        if counted and _get_current_dispatch_mode() is self.outside:
            self.counting = counting_operations()
            self.counting.__enter__()  # type: ignore[no-untyped-call]

    def stop(self) -> None:
        """End the stretch, if its operations are counted."""
        counting = self.counting
        if counting is None or _get_current_dispatch_mode() is not counting:
            return
        counting.__exit__(None, None, None)  # type: ignore[no-untyped-call]
        self.counting = None
        self.tally.counted += 1
        self.tally.flops += counting.flops
        self.tally.samples += counting.samples

    def flops(self) -> int:
        """The operations of this call, if its stretches are like those that were counted."""
        total = 0.0
        for stretch, times in self.stretches.items():
            tally = self.work.tallies[self.place, stretch]
            total += times * tally.flops / max(tally.counted, 1)
        return round(total)


class _UnderWay(threading.local):
    """The call under way in one thread."""

    def __init__(self) -> None:
        self.call: _Uncounted | None = None


_UNDER_WAY = _UnderWay()


@cache
def _count_backward_passes() -> None:
    """From now on, PyTorch tells us of every backward pass; there is no hook for that."""
    autograd = vars(torch.autograd)
    run: Callable[..., object] = autograd["_engine_run_backward"]

    def counted(*arguments: object, **options: object) -> object:
        call = _UNDER_WAY.call
        if call is not None and torch._C._current_graph_task_id() == -1 and not _for_watchers():
            call.backward()
        return run(*arguments, **options)

    autograd["_engine_run_backward"] = counted


def _for_watchers() -> bool:
    """Whether a backward pass is made only because somebody watches gradients: where `observe` makes one."""
    gradient_of = sys._getframe(3)
    before = gradient_of.f_back
    return gradient_of.f_code is _GRADIENT_OF and before is not None and before.f_code is _OBSERVE


_GRADIENT_OF, _OBSERVE = Learner._gradient_of.__code__, Learner.observe.__code__
