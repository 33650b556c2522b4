"""Several evaluator processes that take snapshots in turn; what they answer is handed out in order."""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from multiprocessing.connection import wait
from typing import Generic, TypeVar, cast

import torch

from engram.evaluation.parallel.places import Places
from engram.evaluation.parallel.process import Process, Raised

BUFFERS = 3
"""Buffers per evaluator: one that it reads, and those that wait for it."""
DEATHS = 3
"""Evaluators that end in a row, with no answer between them, after which no other is started."""
POLL_SECONDS = 1.0

Job = TypeVar("Job")
Answer = TypeVar("Answer")


@dataclass(eq=False)
class Ticket(Generic[Job, Answer]):
    """A snapshot that was handed in: its buffer, what is to be done, and the answer when there is one."""

    buffer: int
    job: Job
    answer: Answer | Raised | None = None


class Crew(Generic[Job, Answer]):
    """Evaluator processes, and the snapshots that they have not answered yet: at most one per buffer.

    An evaluator that dies is replaced, and its snapshots are handed to others. If several die in a row, what
    is left is done in this process, and a warning says so. An error that one raises is found again in this
    process, so that it is raised here as it would have been without evaluators.

    Args:
        work: Does a job on a buffer: called in the evaluators, and here where they cannot.
        processes: How many evaluators.
        buffers: How many buffers there are.

    Attributes:
        replaced: Evaluators that ended before their time.
        broken: Whether too many did; no snapshots are taken any more then.

    Example:
        >>> crew = Crew(lambda buffer, job: (buffer, job * job), processes=2, buffers=4)
        >>> for job in (1, 2, 3):
        ...     crew.hand_in(crew.free_buffer(), job)
        >>> list(crew.drained())
        [(1, (0, 1)), (2, (1, 4)), (3, (2, 9))]
        >>> crew.end()
    """

    def __init__(self, work: Callable[[int, Job], Answer], *, processes: int, buffers: int) -> None:
        self._work = work
        self._places = Places.of(processes, threads=torch.get_num_threads())
        self._free = deque(range(buffers))
        self._tickets: deque[Ticket[Job, Answer]] = deque()
        self._busy: dict[Process, deque[Ticket[Job, Answer]]] = {}
        self._deaths = self.replaced = 0
        self.broken = False
        for _ in range(processes):
            self._start()

    def __len__(self) -> int:
        """Snapshots without an answer that was handed out."""
        return len(self._tickets)

    @property
    def pids(self) -> list[int]:
        """The processes."""
        return [process.pid for process in self._busy]

    @property
    def oldest(self) -> Job | None:
        """The job whose answer is handed out next; None if there is none."""
        return self._tickets[0].job if self._tickets else None

    @property
    def newest(self) -> Job | None:
        """The job whose answer is handed out last; None if there is none."""
        return self._tickets[-1].job if self._tickets else None

    def free_buffer(self) -> int | None:
        """A buffer that a snapshot can be written to; None while all are in use, or if the crew is broken."""
        self._look()
        return None if self.broken or not self._free else self._free[0]

    def hand_in(self, buffer: int, job: Job) -> None:
        """Take a snapshot that was written to `buffer`, which `free_buffer` named."""
        self._free.remove(buffer)
        ticket: Ticket[Job, Answer] = Ticket(buffer, job)
        self._tickets.append(ticket)
        self._send(ticket)

    def ready(self) -> Iterator[tuple[Job, Answer]]:
        """The answers that are there, in order; those after one that is missing have to wait for it."""
        self._look()
        while self._tickets and (self.broken or self._tickets[0].answer is not None):
            yield self._next()

    def one(self) -> Iterator[tuple[Job, Answer]]:
        """The next answer; waits for it. Nothing where nothing was handed in."""
        while self._tickets and self._tickets[0].answer is None and not self.broken:
            self._look(POLL_SECONDS)
        if self._tickets:
            yield self._next()

    def drained(self) -> Iterator[tuple[Job, Answer]]:
        """All answers, in order; waits for them."""
        while self._tickets:
            yield from self.one()

    def end(self) -> None:
        """End the processes; snapshots without an answer are forgotten."""
        self._tickets.clear()
        for process in self._busy:
            with suppress(OSError, ValueError):
                process.pipe.send(None)
        for process in self._busy:
            process.end()
        self._busy.clear()
        self.broken = True

    # ------------------------------------------------------------------------------------------------

    def _next(self) -> tuple[Job, Answer]:
        """The oldest snapshot with its answer, which is found here if there is none; its buffer is free."""
        ticket = self._tickets[0]
        try:
            if ticket.answer is None or isinstance(ticket.answer, Raised):
                ticket.answer = self._work(ticket.buffer, ticket.job)
        except Exception:
            # As without evaluators: nothing that came later was measured.
            self.end()
            raise
        self._tickets.popleft()
        self._free.append(ticket.buffer)
        return ticket.job, ticket.answer

    def _start(self) -> None:
        pipes = [process.pipe for process in self._busy]
        cores = None if self._places is None else self._places.evaluators
        self._busy[Process(self._answer, pipes, cores=cores)] = deque()

    def _answer(self, question: object) -> object:
        buffer, job = cast("tuple[int, Job]", question)
        return self._work(buffer, job)

    def _send(self, ticket: Ticket[Job, Answer]) -> None:
        """Hand a snapshot to the evaluator that has the fewest; one that is gone is noticed later."""
        if self._busy:
            process = min(self._busy, key=lambda process: len(self._busy[process]))
            self._busy[process].append(ticket)
            with suppress(OSError):
                process.pipe.send((ticket.buffer, ticket.job))

    def _look(self, seconds: float = 0.0) -> None:
        """Take the answers that are there, or wait for one; replace evaluators that ended."""
        if self.broken or not self._tickets:
            return
        pipes = {process.pipe: process for process in self._busy}
        with nullcontext() if self._places is None or not seconds else self._places.waiting():
            full = wait(list(pipes), timeout=seconds)
        for pipe in full:
            self._receive(pipes[pipe])  # type: ignore[index]
        for process in list(self._busy):
            if process.gone():
                self._replace(process)

    def _receive(self, process: Process) -> None:
        try:
            while process.pipe.poll():
                answer = process.pipe.recv()
                self._busy[process].popleft().answer = answer
                self._deaths = 0
        except (EOFError, OSError):
            process.kill()
        except BaseException:
            # Interrupted in the middle of a message: the rest of it cannot be read.
            process.kill()
            raise

    def _replace(self, process: Process) -> None:
        process.kill()
        orphans = self._busy.pop(process)
        self._deaths += 1
        self.replaced += 1
        if self._deaths >= DEATHS:
            self._give_up()
            return
        self._start()
        for ticket in orphans:
            self._send(ticket)

    def _give_up(self) -> None:
        for process in self._busy:
            process.end()
        self._busy.clear()
        self.broken = True
        warnings.warn(
            f"{DEATHS} evaluator processes in a row ended before they answered, so networks are evaluated in "
            "line from now on: memory may be short",
            stacklevel=2,
        )
