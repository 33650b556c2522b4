"""Who read which data while what was learned: counted when it is handed out, whatever anybody declares."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextvars import ContextVar, Token
from typing import Any, Literal, TypeVar, final

from engram.core.errors import InputError
from engram.core.values import Heads, TaskInfo
from engram.scenarios.values import Scenario, TaskSetting

T = TypeVar("T")
Part = Literal["train", "test", "validation"]
Relation = Literal["earlier", "current", "later"]
Reader = Literal["training", "end of task", "method", "evaluation", "probe"]
"""Batches for updates, the pass that a method is given when a task ends, what a method takes by itself, what
evaluations ask, and what probes at task ends use."""

Key = tuple[int, Reader, Part, tuple[int, ...]]


class Forbidden(InputError):
    """A learner took what the stream does not hand out to it."""


class Ledger:
    """The account of one run: who was handed how many samples of which tasks, and what was known.

    Whatever a stream hands out inside `reading` is entered, whoever made the stream. Counting is by batch.
    In an audit everything is recorded; a strict ledger stops a method at the first thing that it must not
    read: test or validation data, a later task, an earlier task, task identity where the setting hides it, or
    a data set that it opens by itself. Files that a method opens without engram are beyond its sight.

    Args:
        scenario: What is streamed.
        method: The method's name, for messages.
        strict: Whether to stop a method that reads what it should not.

    Attributes:
        phase: The phase being learned.
        samples: Samples that were handed out, by phase, reader, part and tasks.
        sizes: How many samples a part of some tasks has.
        units: For each phase, how many output units were named by its first batch.
        told: How often the learner was told that a task begins.
        named: Batches that said which task they are of.
        asked: How often a method read a task's identity.
        answered: Whether evaluations used task identity, to choose among units or networks.
        forbidden: What a method read although it should not, and how often.
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
        >>> list(ledger.forbidden)
        ['training data of task 2 before they came']
    """

    def __init__(self, scenario: Scenario, *, method: str, strict: bool = False) -> None:
        self.scenario, self.method, self.strict = scenario, method, strict
        self.phase = 0
        self.samples: dict[Key, int] = {}
        self.sizes: dict[tuple[Part, tuple[int, ...]], int] = {}
        self.units: dict[int, int] = {}
        self.told = self.named = self.asked = 0
        self.answered = False
        self.forbidden: dict[str, int] = {}
        self.whole = True

    def reading(self, reader: Reader) -> _Reading:
        """Within this context, data are read by `reader`."""
        return _Reading(self, reader)

    def handed(self, batches: Iterable[T], reader: Reader) -> Iterator[T]:
        """The same batches, read by `reader` whoever asks for the next one."""
        found = iter(batches)
        while True:
            with _Reading(self, reader):
                batch = next(found, None)
            if batch is None:
                return
            yield batch

    def enter(self, reader: Reader, part: Part, tasks: tuple[int, ...], samples: int, size: int) -> None:
        """Take note that samples are handed out; none are where data are only opened."""
        if samples:
            key = (self.phase, reader, part, tasks)
            self.samples[key] = self.samples.get(key, 0) + samples
            self.sizes[part, tasks] = size
        if reader == "method":
            found = self._wrong(part, tasks)
            if found is not None:
                self.refuse(found)

    def note_heads(self, reader: Reader, heads: Heads) -> None:
        """Take note of what a batch gives away besides its samples."""
        if reader != "training":
            return
        self.named += len(heads) > 1
        if self.phase not in self.units:
            self.units[self.phase] = len({unit for head in heads for unit in head})

    def note_identity(self) -> None:
        """A method asks which task it is."""
        self.asked += 1
        self._refuse_identity("task identity")

    def note_answers(self, answers: Iterable[tuple[int, ...]]) -> None:
        """Evaluations seek the answers to each task's samples among these units."""
        self.answered |= len(set(answers)) > 1

    def note_route(self) -> None:
        """A method has another network for every task, and evaluations tell it which one is asked."""
        self.answered = True
        self._refuse_identity("task identity at test time")

    def note_opened(self, dataset: str) -> None:
        """A method opens a data set by itself, with everything that is in it."""
        self.refuse(f"the whole data set {dataset}")

    def refuse(self, what: str) -> None:
        """Record something that a method must not read, or stop it there."""
        self.forbidden[what] = self.forbidden.get(what, 0) + 1
        if self.strict:
            raise Forbidden(refusal(self.method, [what]))

    def relation(self, phase: int, tasks: tuple[int, ...]) -> Relation:
        """What tasks are to a phase: being learned in it, learned before it alone, or still to come."""
        now = set(self.scenario.phases[phase])
        before = {task for each in self.scenario.phases[:phase] for task in each}
        if not set(tasks) <= now | before:
            return "later"
        return "current" if set(tasks) <= now else "earlier"

    def state_dict(self) -> dict[str, Any]:
        """Everything, as plain values."""
        plain = ("phase", "told", "named", "asked", "answered", "whole")
        return {
            **{name: getattr(self, name) for name in plain},
            "samples": [[*key[:3], list(key[3]), count] for key, count in self.samples.items()],
            "sizes": [[part, list(tasks), size] for (part, tasks), size in self.sizes.items()],
            "units": dict(self.units),
            "forbidden": dict(self.forbidden),
        }

    def load_state_dict(self, state: dict[str, Any] | None) -> None:
        """Go on from there; a state that was made without an account leaves a gap that is remembered."""
        if state is None:
            self.whole = False
            return
        for name, value in state.items():
            setattr(self, name, value)
        self.samples = {
            (phase, reader, part, tuple(tasks)): count
            for phase, reader, part, tasks, count in state["samples"]
        }
        self.sizes = {(part, tuple(tasks)): size for part, tasks, size in state["sizes"]}

    def _wrong(self, part: Part, tasks: tuple[int, ...]) -> str | None:
        numbers = ", ".join(str(task + 1) for task in tasks)
        named = f"task {numbers}" if len(tasks) == 1 else f"tasks {numbers}"
        if part != "train":
            return f"{part} data of {named}"
        relation = self.relation(self.phase, tasks)
        if relation == "current":
            return None
        when = "before they came" if relation == "later" else "after they were gone"
        return f"training data of {named} {when}"

    def _refuse_identity(self, what: str) -> None:
        if not isinstance(self.scenario.setting, TaskSetting):
            self.refuse(f"{what}, which the {self.scenario.setting.kind} setting hides")


def refusal(method: str, found: Iterable[str]) -> str:
    """What is wrong with a method that read these.

    Example:
        >>> refusal("mine", ["test data of task 1"])
        'method mine read test data of task 1: let it read nothing but what the stream hands out to it'
    """
    return f"method {method} read {'; '.join(found)}: let it read nothing but what the stream hands out to it"


@final
class _Reading:
    """Who reads at this moment; contexts nest, and the innermost counts."""

    __slots__ = ("_entry", "_token")

    def __init__(self, ledger: Ledger, reader: Reader) -> None:
        self._entry = (ledger, reader)
        self._token: Token[tuple[Ledger, Reader] | None] | None = None

    def __enter__(self) -> None:
        self._token = _READING.set(self._entry)

    def __exit__(self, *_: object) -> None:
        assert self._token is not None
        _READING.reset(self._token)


_READING: ContextVar[tuple[Ledger, Reader] | None] = ContextVar("reading", default=None)


def enter(
    part: Part, tasks: tuple[int, ...], samples: int, *, size: int = 0, heads: Heads | None = None
) -> None:
    """Take note of samples that are handed out, if anybody keeps an account of it."""
    active = _READING.get()
    if active is not None:
        ledger, reader = active
        ledger.enter(reader, part, tasks, samples, size)
        if heads is not None:
            ledger.note_heads(reader, heads)


def taken(part: Part, tasks: tuple[int, ...]) -> None:
    """Take note that a method reaches for data that it holds, past the batches that are handed out."""
    active = _READING.get()
    if active is not None and active[1] == "method":
        active[0].enter("method", part, tasks, 0, 0)


def opened(dataset: str) -> None:
    """Take note that a data set is opened, or that its parts are reached for, if a method does it."""
    active = _READING.get()
    if active is not None and active[1] == "method":
        active[0].note_opened(dataset)


@final
class WatchedTask(TaskInfo):
    """What may be known of a task, with a note of it when a method asks which task it is."""

    __slots__ = ()

    def __getattribute__(self, name: str) -> Any:
        if name == "identity":
            active = _READING.get()
            if active is not None and active[1] == "method":
                active[0].note_identity()
        return super().__getattribute__(name)


def watched(task: TaskInfo) -> TaskInfo:
    """The same task, watched.

    Example:
        >>> watched(TaskInfo(0, None, (0, 1), samples=9, steps=1, epochs=1, batch_size=9)).samples
        9
    """
    return WatchedTask(**{name: getattr(task, name) for name in TaskInfo.__dataclass_fields__})
