"""Who read which data while which task was learned, counted when data are handed out."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from contextvars import ContextVar, Token
from dataclasses import replace
from typing import Literal, TypeVar, final

from engram.core.errors import InputError
from engram.core.jsons import JsonMapping, JsonObject
from engram.core.values import Heads, TaskInfo
from engram.record.card import ForbiddenRead, Part, Reader, Relation
from engram.scenarios.values import Scenario, TaskSetting

T = TypeVar("T")
Key = tuple[int, Reader, Part, tuple[int, ...]]
NAMED = 8
"""So many files, processes and addresses are named; the others are counted together."""


class Forbidden(InputError):
    """A method read what the stream does not hand to it."""


class Ledger:
    """The account of one run: who was handed how many samples of which tasks, and what was known.

    Everything that any stream hands out inside `reading` is recorded. Samples are counted by batch. By
    default everything is only recorded; a strict ledger stops a method at the first thing that it must not
    read: test or validation data, a later task, an earlier task, task identity where the setting hides it, or
    a data set that it opens itself; and at the first thing that it must not do (`engram.datasets.outside`).

    Args:
        scenario: What is streamed.
        method: The method's name, for messages.
        strict: Whether to stop a method that reads what it should not.

    Attributes:
        phase: The phase being learned.
        samples: Samples that were handed out, by phase, reader, part and tasks.
        sizes: How many samples a part of some tasks has.
        units: For each phase, how many output units its first batch named.
        told: How often the method was told that a task begins.
        named_batches: Batches that said which task they belong to.
        identity_reads: How often the method read a task's identity.
        answers_by_task: Whether evaluations used task identity, to choose among units or networks.
        forbidden: What the method read or did although it should not, and how often.
        whole: Whether the account covers the run from its beginning.

    Example:
        >>> from engram.datasets.stream import Stream
        >>> from engram.scenarios import split
        >>> stream = Stream(split("digits", setting="class"))
        >>> ledger = Ledger(stream.scenario, method="mine")
        >>> with ledger.reading("method"):
        ...     first = next(stream.phase(1).in_order(16))
        >>> ledger.samples
        {(0, 'method', 'train', (1,)): 16}
        >>> [read.describe() for read in ledger.forbidden]
        ['training data of task 2 before it began']
    """

    def __init__(self, scenario: Scenario, *, method: str, strict: bool = False) -> None:
        self.scenario, self.method, self.strict = scenario, method, strict
        self.phase = 0
        self.samples: dict[Key, int] = {}
        self.sizes: dict[tuple[Part, tuple[int, ...]], int] = {}
        self.units: dict[int, int] = {}
        self.told = self.named_batches = self.identity_reads = 0
        self.answers_by_task = False
        self.forbidden: dict[ForbiddenRead, int] = {}
        self.whole = True
        self._stopped = False

    def reading(self, reader: Reader) -> AbstractContextManager[None]:
        """Within this context, data are read by `reader`."""
        return _ReadingContext(self, reader)

    def handed(self, batches: Iterable[T], reader: Reader) -> Iterator[T]:
        """The same batches, read by `reader` no matter who asks for the next one."""
        remaining = iter(batches)
        while True:
            with _ReadingContext(self, reader):
                batch = next(remaining, None)
            if batch is None:
                return
            yield batch

    def enter(self, reader: Reader, part: Part, tasks: tuple[int, ...], samples: int, size: int) -> None:
        """Record that samples are handed out; `samples` is 0 where data are only opened."""
        if samples:
            key = (self.phase, reader, part, tasks)
            self.samples[key] = self.samples.get(key, 0) + samples
            self.sizes[part, tasks] = size
        if reader == "method":
            relation = self.relation(self.phase, tasks)
            if part != "train":
                self.refuse(ForbiddenRead(part, tasks))
            elif relation != "current":
                self.refuse(ForbiddenRead(part, tasks, when=relation))

    def note_heads(self, reader: Reader, heads: Heads) -> None:
        """Record what a training batch gives away besides its samples."""
        if reader != "training":
            return
        self.named_batches += len(heads) > 1
        if self.phase not in self.units:
            self.units[self.phase] = len({unit for head in heads for unit in head})

    def note_identity(self) -> None:
        """Record that a method reads which task it learns."""
        self.identity_reads += 1
        self._refuse_identity("task identity")

    def note_answers(self, answers: Iterable[tuple[int, ...]]) -> None:
        """Record the output units among which evaluations look for the answers to each task's samples."""
        self.answers_by_task |= len(set(answers)) > 1

    def note_route(self) -> None:
        """Record that a method has one network per task, and that evaluations tell it which one to use."""
        self.answers_by_task = True
        self._refuse_identity("task identity at test time")

    def note_opened(self, dataset: str) -> None:
        """Record that a method opens a data set by itself, with everything that is in it."""
        self.refuse(ForbiddenRead("data set", dataset=dataset))

    def refuse(self, read: ForbiddenRead) -> None:
        """Record something that a method must not read or do; a strict ledger stops the method there."""
        if read.note and read not in self.forbidden:
            several = sum(known.what == read.what for known in self.forbidden) >= NAMED
            read = replace(read, note="… and others") if several else read
        self.forbidden[read] = self.forbidden.get(read, 0) + 1
        if self.strict:
            self._stopped = True
            raise Forbidden(refusal(self.method, [read]))

    def check(self, *, all_of_it: bool = False) -> None:
        """Stop a method that went on although it was stopped; with `all_of_it`, whatever was recorded."""
        if self._stopped or (all_of_it and self.strict and self.forbidden):
            raise Forbidden(refusal(self.method, self.forbidden))

    def relation(self, phase: int, tasks: tuple[int, ...]) -> Relation:
        """What tasks are to a phase: all learned in it, all learned by its end, or some still to come."""
        current = set(self.scenario.phases[phase])
        before = {task for earlier in self.scenario.phases[:phase] for task in earlier}
        if not set(tasks) <= current | before:
            return "later"
        return "current" if set(tasks) <= current else "earlier"

    def state_dict(self) -> JsonObject:
        """The whole account, as plain values."""
        return {
            "phase": self.phase,
            "told": self.told,
            "named_batches": self.named_batches,
            "identity_reads": self.identity_reads,
            "answers_by_task": self.answers_by_task,
            "whole": self.whole,
            "samples": [[*key[:3], list(key[3]), count] for key, count in self.samples.items()],
            "sizes": [[part, list(tasks), size] for (part, tasks), size in self.sizes.items()],
            "units": dict(self.units),
            "forbidden": [[read.as_json(), times] for read, times in self.forbidden.items()],
        }

    def load_state_dict(self, state: JsonMapping | None) -> None:
        """Continue an account; None leaves a gap, so that it does not cover the whole run any more."""
        if state is None:
            self.whole = False
            return
        self.phase, self.told, self.whole = state["phase"], state["told"], state["whole"]
        self.named_batches, self.identity_reads = state["named_batches"], state["identity_reads"]
        self.answers_by_task = state["answers_by_task"]
        self.samples = {
            (phase, reader, part, tuple(tasks)): count
            for phase, reader, part, tasks, count in state["samples"]
        }
        self.sizes = {(part, tuple(tasks)): size for part, tasks, size in state["sizes"]}
        self.units = dict(state["units"])
        self.forbidden = {ForbiddenRead.of_json(read): times for read, times in state["forbidden"]}

    def _refuse_identity(self, what: Literal["task identity", "task identity at test time"]) -> None:
        if not isinstance(self.scenario.setting, TaskSetting):
            self.refuse(ForbiddenRead(what, setting=self.scenario.setting.kind))


def refusal(method: str, forbidden: Iterable[ForbiddenRead]) -> str:
    """The message about a method that read or did what it should not.

    Example:
        >>> refusal("mine", [ForbiddenRead("test", (0,))])
        'method mine read test data of task 1: a method may read only what the stream hands to it'
        >>> refusal("mine", [ForbiddenRead("process", note="ls")])
        'method mine started the process ls: a method may only learn from what the stream hands to it'
    """
    several = list(forbidden)
    reads = "; ".join(read.describe() for read in several if not read.is_act)
    acts = "; ".join(read.describe() for read in several if read.is_act)
    deeds = " and ".join(part for part in (f"read {reads}" if reads else "", acts) if part)
    rule = "read only" if reads else "only learn from"
    return f"method {method} {deeds}: a method may {rule} what the stream hands to it"


Mark = tuple[Ledger, Reader]


@final
class _ReadingContext:
    """Who reads now; contexts nest, and the innermost counts.

    It is noted twice, so that a method that changes one of the notes is seen.
    """

    __slots__ = ("_entry", "_token")

    def __init__(self, ledger: Ledger, reader: Reader) -> None:
        self._entry = (ledger, reader)
        self._token: Token[Mark | None] | None = None

    def __enter__(self) -> None:
        self._token = _READING.set(self._entry)
        _NOTED.marks.append(self._entry)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        assert self._token is not None
        marks = _NOTED.marks
        same = _READING.get() is self._entry and bool(marks) and marks[-1] is self._entry
        _READING.reset(self._token)
        while marks and marks.pop() is not self._entry:
            pass
        if not same and kind is None:
            self._entry[0].refuse(ForbiddenRead("account"))


_READING: ContextVar[Mark | None] = ContextVar("reading", default=None)


class _Noted(threading.local):
    """The same marks once more, those of one thread."""

    def __init__(self) -> None:
        self.marks: list[Mark] = []


_NOTED = _Noted()


def active() -> Mark | None:
    """Whose account is kept now, and who reads; None outside of runs.

    Example:
        >>> active() is None
        True
    """
    marks = _NOTED.marks
    noted = marks[-1] if marks else None
    mark = _READING.get()
    if mark is noted:
        return mark
    true = noted or mark
    assert true is not None
    if ForbiddenRead("account") not in true[0].forbidden:
        true[0].refuse(ForbiddenRead("account"))
    return true


def enter(
    part: Part, tasks: tuple[int, ...], samples: int, *, size: int = 0, heads: Heads | None = None
) -> None:
    """Record samples that are handed out, if a ledger is active."""
    mark = active()
    if mark is not None:
        ledger, reader = mark
        ledger.enter(reader, part, tasks, samples, size)
        if heads is not None:
            ledger.note_heads(reader, heads)


def taken(part: Part, tasks: tuple[int, ...]) -> None:
    """Record that a method reaches for data past the batches that are handed out, if a ledger is active."""
    mark = active()
    if mark is not None and mark[1] == "method":
        mark[0].enter("method", part, tasks, 0, 0)


def opened(dataset: str) -> None:
    """Record that a method opens a data set or reaches for its parts, if a ledger is active."""
    mark = active()
    if mark is not None and mark[1] == "method":
        mark[0].note_opened(dataset)


_IDENTITY = vars(TaskInfo)["identity"]
_SHOWN = tuple(name for name in TaskInfo.__dataclass_fields__ if name != "identity")


@final
class WatchedTask(TaskInfo):
    """What may be known of a task; it is recorded when a method reads the task's identity.

    Printing, comparing and copying a task do not read it. They show nothing of it either: a comparison that
    did would tell the identity to a method that compares with every number.
    """

    __slots__ = ()

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={getattr(self, name)!r}" for name in _SHOWN)
        return f"TaskInfo({shown})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, WatchedTask):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in _SHOWN)

    def __hash__(self) -> int:
        return hash(tuple(getattr(self, name) for name in _SHOWN))

    def __copy__(self) -> WatchedTask:
        return self

    def __deepcopy__(self, memo: object) -> WatchedTask:
        # It never changes.
        return self

    # A property of the class is read by `object.__getattribute__` as well.
    @property
    def identity(self) -> int | None:
        """The task's number in the task setting, else None."""
        mark = active()
        if mark is not None and mark[1] == "method":
            mark[0].note_identity()
        number: int | None = _IDENTITY.__get__(self)
        return number

    @identity.setter
    def identity(self, number: int | None) -> None:
        _IDENTITY.__set__(self, number)


def watched(task: TaskInfo) -> TaskInfo:
    """The same task; reads of its identity are recorded.

    Example:
        >>> watched(TaskInfo(0, None, (0, 1), samples=9, steps=1, epochs=1, batch_size=9)).samples
        9
    """
    return WatchedTask(**{name: getattr(task, name) for name in TaskInfo.__dataclass_fields__})
