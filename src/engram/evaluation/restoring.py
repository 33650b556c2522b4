"""The parts of a network as they were: whether they have changed, and how to restore them."""

from __future__ import annotations

import pickle
import warnings
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from io import BytesIO, StringIO
from itertools import count, islice
from operator import is_, length_hint
from types import FunctionType, GeneratorType, MemberDescriptorType
from typing import ClassVar, Protocol, TypeAlias
from weakref import WeakKeyDictionary

import numpy as np
import torch

from engram.evaluation.functions import function_in, remembers, shared_variables

SMALL = 2**14
"""Tensors and arrays of at most so many elements, and containers of so many entries, are always copied."""

SAMPLED = 1024
"""How many values of larger ones are compared at least, where they are not copied."""

_Contents: TypeAlias = tuple[dict[str, object], tuple[str, ...], dict[str, object]]
_PLAIN = (int, float, complex, bool, str, bytes, torch.Size, torch.dtype, torch.device)


class Lost(Exception):
    """What was there before is not known any more."""


class Part(Protocol):
    """One part of a network, as it was."""

    @property
    def large(self) -> bool:
        """Whether it is so large that it is not always copied."""

    def changed(self) -> Sequence[str]:
        """The names of what differs now; empty if nothing does."""

    def restore(self) -> None:
        """Make it what it was.

        Raises:
            Lost: There is no copy, or it cannot be set.
        """


class Attributes:
    """The attributes of an object, and its class; `label` names them unless it is None."""

    large = False

    def __init__(self, thing: object, label: str | None) -> None:
        self.thing, self.label, self.kind = thing, label, type(thing)
        self.values = dict(vars(thing))

    def changed(self) -> Sequence[str]:
        """The names of attributes that were set, replaced or deleted."""
        names = differences(vars(self.thing), self.values)
        if type(self.thing) is not self.kind:
            names = [*names, "class"]
        return names if self.label is None or not names else [self.label]

    def restore(self) -> None:
        """Set all attributes, and the class."""
        if type(self.thing) is not self.kind:
            self.thing.__class__ = self.kind
        attributes = vars(self.thing)
        attributes.clear()
        attributes.update(self.values)


def has_attributes(thing: object) -> bool:
    """Whether an object has attributes in a dictionary of its own, whatever its `__getattr__` says.

    Example:
        >>> has_attributes(Exception()), has_attributes(1)
        (True, False)
    """
    try:
        return isinstance(type(thing).__getattribute__(thing, "__dict__"), dict)
    except AttributeError:
        return False


class Slots:
    """The attributes of an object that has `__slots__`."""

    large = False

    def __init__(self, thing: object, slots: Mapping[str, MemberDescriptorType], label: str) -> None:
        self.thing, self.slots, self.label = thing, slots, label
        self.values = self._now()

    def _now(self) -> dict[str, object]:
        """Their values, past the object's own `__getattr__`."""
        values = {}
        for name, slot in self.slots.items():
            with suppress(AttributeError):
                values[name] = slot.__get__(self.thing)
        return values

    def changed(self) -> Sequence[str]:
        """The label, if any attribute differs."""
        return [self.label] if differences(self._now(), self.values) else ()

    def restore(self) -> None:
        """Set all attributes, also those of frozen dataclasses."""
        for name in self._now().keys() - self.values.keys():
            self.slots[name].__delete__(self.thing)
        for name, value in self.values.items():
            self.slots[name].__set__(self.thing, value)


class ClassAttributes:
    """The attributes of a class.

    Attributes:
        data: The names of those that are data, not functions or descriptors.
        functions: The methods that can remember something, in defaults or attributes.
    """

    large = False
    _known: ClassVar[WeakKeyDictionary[type, _Contents]] = WeakKeyDictionary()

    def __init__(self, kind: type) -> None:
        self.kind = kind
        known = self._known.get(kind)
        if known is None or not _identical(vars(kind), known[0]):
            values = dict(vars(kind))
            data = tuple(name for name, value in values.items() if _is_data(name, value))
            functions = {name: function_in(value) for name, value in values.items()}
            remembering = {name: function for name, function in functions.items() if remembers(function)}
            known = values, data, remembering
            self._known[kind] = known
        self.values, self.data, self.functions = known

    def changed(self) -> Sequence[str]:
        """The names of data that differ."""
        names = differences(vars(self.kind), self.values)
        return [name for name in names if _is_data(name, self.values.get(name, vars(self.kind).get(name)))]

    def restore(self) -> None:
        """Set the data that differ."""
        for name in self.changed():
            if name in self.values:
                type.__setattr__(self.kind, name, self.values[name])
            else:
                type.__delattr__(self.kind, name)


class Closure:
    """The variables that a function shares with the function in which it was defined."""

    large = False

    def __init__(self, thing: FunctionType, label: str) -> None:
        self.thing, self.label = thing, label
        self.values = self._now()

    def _now(self) -> dict[str, object]:
        return dict(shared_variables(self.thing))

    def changed(self) -> Sequence[str]:
        """The label, if a variable was assigned."""
        return [self.label] if differences(self._now(), self.values) else ()

    def restore(self) -> None:
        """Assign all variables."""
        for name, cell in zip(self.thing.__code__.co_freevars, self.thing.__closure__ or (), strict=True):
            if name in self.values:
                cell.cell_contents = self.values[name]
            else:
                del cell.cell_contents


class Empty:
    """The empty containers among the attributes of a module, such as those of its hooks."""

    large = False

    def __init__(self, module: object) -> None:
        self.module = module
        self.things: list[dict[object, object] | list[object] | set[object]] = []

    def changed(self) -> Sequence[str]:
        """The names of those that are not empty any more."""
        if not any(self.things):
            return ()
        names = {id(value): name for name, value in vars(self.module).items()}
        return [names.get(id(thing), "hooks") for thing in self.things if thing]

    def restore(self) -> None:
        """Empty them."""
        for thing in self.things:
            thing.clear()


class Entries:
    """The entries of a dictionary; `label` names them, None for their keys."""

    def __init__(self, thing: dict[str, object], label: str | None, *, copied: bool = True) -> None:
        self.thing, self.label, self.length = thing, label, dict.__len__(thing)
        self.large = self.length > SMALL
        self.ordered = isinstance(thing, OrderedDict)
        self.values = self._now() if copied else None
        self.sample = [] if copied else self._sample()

    def _now(self) -> dict[str, object]:
        """The entries in their order, which `move_to_end` changes in an ordered dictionary alone."""
        if not self.ordered:
            return dict(dict.items(self.thing))
        return {key: dict.__getitem__(self.thing, key) for key in OrderedDict.__iter__(self.thing)}

    def _sample(self) -> list[object]:
        return list(islice(dict.values(self.thing), 0, None, 1 + self.length // SAMPLED))

    def changed(self) -> Sequence[str]:
        """The keys, or the label, of entries that differ."""
        if self.values is None:
            same = len(self.thing) == self.length and all(map(_same, self._sample(), self.sample))
            return () if same else [self.label or "entries"]
        now = self._now() if self.ordered else self.thing
        if _identical(now, self.values):
            return ()
        names = differences(now, self.values) or _moved(now, self.values)
        return names if self.label is None or not names else [self.label]

    def restore(self) -> None:
        """Set all entries, in their order, without calling methods of a subclass."""
        if self.values is None:
            raise Lost
        clear: Callable[..., None] = OrderedDict.clear if self.ordered else dict.clear
        put: Callable[..., None] = OrderedDict.__setitem__ if self.ordered else dict.__setitem__
        clear(self.thing)
        for key, value in self.values.items():
            put(self.thing, key, value)


class Items:
    """The items of a list or a queue."""

    def __init__(self, thing: list[object] | deque[object], label: str, *, copied: bool = True) -> None:
        self.thing, self.label, self.length = thing, label, len(thing)
        self.large = self.length > SMALL
        self.step = 1 if copied else 1 + self.length // SAMPLED
        self.values = self._sample()

    def _sample(self) -> list[object]:
        return list(islice(self.thing, 0, None, self.step))

    def changed(self) -> Sequence[str]:
        """The label, if any item differs."""
        same = len(self.thing) == self.length and all(map(_same, self._sample(), self.values))
        return () if same else [self.label]

    def restore(self) -> None:
        """Set all items."""
        if self.step > 1:
            raise Lost
        self.thing.clear()
        self.thing.extend(self.values)


class Members:
    """The members of a set."""

    def __init__(self, thing: set[object], label: str) -> None:
        self.thing, self.label, self.values = thing, label, set(thing)
        self.large = len(thing) > SMALL

    def changed(self) -> Sequence[str]:
        """The label, if the set differs."""
        return () if self.thing == self.values else [self.label]

    def restore(self) -> None:
        """Set the members."""
        self.thing.clear()
        self.thing.update(self.values)


class Progress:
    """How far an iterator or a seed that spawns others has come; it cannot be set back."""

    large = False

    def __init__(self, thing: Iterator[object] | np.random.SeedSequence, label: str) -> None:
        self.thing, self.label = thing, label
        self.values = self._now()

    def _now(self) -> object:
        if isinstance(self.thing, GeneratorType):
            frame = self.thing.gi_frame
            return {} if frame is None else {"line": frame.f_lasti, **frame.f_locals}
        if isinstance(self.thing, np.random.SeedSequence):
            return self.thing.n_children_spawned
        if isinstance(self.thing, count):
            return repr(self.thing)
        if hasattr(self.thing, "__length_hint__"):
            return length_hint(self.thing)
        with warnings.catch_warnings(), suppress(Exception):
            # From Python 3.14 on, where they have no such form, it is not seen how far they have come.
            warnings.simplefilter("ignore", DeprecationWarning)
            return pickle.dumps(self.thing)
        return None

    def changed(self) -> Sequence[str]:
        """The label, if anything was taken from it."""
        now = self._now()
        if isinstance(now, dict) and isinstance(self.values, dict):
            return [self.label] if differences(now, self.values) else ()
        return () if now == self.values else [self.label]

    def restore(self) -> None:
        """Never possible."""
        raise Lost


class InMemoryFile:
    """The content of a file in memory, and the place where it is read or written next."""

    large = False

    def __init__(self, thing: BytesIO | StringIO, label: str) -> None:
        self.thing, self.label = thing, label
        self.values = self._now()

    def _now(self) -> tuple[bytes | str, int] | None:
        return None if self.thing.closed else (self.thing.getvalue(), self.thing.tell())

    def changed(self) -> Sequence[str]:
        """The label, if it was read, written or closed."""
        return () if self._now() == self.values else [self.label]

    def restore(self) -> None:
        """Write the content, and go to the place."""
        if self.thing.closed or self.values is None:
            raise Lost
        content, place = self.values
        self.thing.seek(0)
        self.thing.truncate()
        self.thing.write(content)  # type: ignore[arg-type]
        self.thing.seek(place)


def _is_data(name: str, value: object) -> bool:
    """Whether an attribute of a class is data, and not a function, a descriptor or Python's own."""
    return not (name.startswith("__") or callable(value) or hasattr(value, "__get__"))


def _same(a: object, b: object) -> bool:
    """Whether two values are one object, or equal plain values."""
    if a is b:
        return True
    if type(a) is not type(b):
        return False
    if isinstance(a, tuple) and type(a) is tuple and isinstance(b, tuple):
        return len(a) == len(b) and all(map(_same, a, b))
    return isinstance(a, _PLAIN) and repr(a) == repr(b)


def _identical(now: Mapping[str, object], before: Mapping[str, object]) -> bool:
    """Whether two mappings have the same objects under the same keys, in the same order."""
    if len(now) != len(before):
        return False
    return all(map(is_, now.values(), before.values())) and all(map(is_, now, before))


def differences(now: Mapping[str, object], before: Mapping[str, object]) -> list[str]:
    """The keys whose values are not the same."""
    if _identical(now, before):
        return []
    missing = object()
    keys = {**before, **now}
    different = (key for key in keys if not _same(now.get(key, missing), before.get(key, missing)))
    return [_name(key) for key in different]


def _moved(now: Mapping[str, object], before: Mapping[str, object]) -> list[str]:
    """The keys that have another place in the order, where the keys are the same."""
    return [_name(old) for new, old in zip(now, before, strict=True) if not _same(new, old)]


def _name(key: object) -> str:
    """A key as a name; others than texts may be tensors, which take long to print."""
    return key if isinstance(key, str) else type(key).__name__
