"""A network at one moment: everything in it that can change."""

from __future__ import annotations

import random
import sys
from array import array
from collections import OrderedDict, deque
from collections.abc import Collection, Iterable, Iterator
from enum import Enum
from functools import lru_cache, partial
from io import BytesIO, StringIO
from itertools import chain, count, cycle, islice
from logging import Filterer
from types import (
    BuiltinFunctionType,
    FunctionType,
    GeneratorType,
    MemberDescriptorType,
    MethodType,
    ModuleType,
    NoneType,
)
from typing import NamedTuple, TypeAlias, cast
from weakref import ProxyTypes, ReferenceType

import numpy as np
import torch
from torch import Tensor, nn
from torch.amp import GradScaler
from torch.nn.parameter import is_lazy
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from torch.quasirandom import SobolEngine
from torch.utils.data import DataLoader, Dataset

from engram.core.errors import InputError
from engram.evaluation.functions import defaults_of
from engram.evaluation.restoring import (
    SMALL,
    Attributes,
    ClassAttributes,
    Closure,
    Empty,
    Entries,
    InMemoryFile,
    Items,
    Lost,
    Members,
    Part,
    Progress,
    Slots,
    has_attributes,
)
from engram.evaluation.restoring_tensors import Numbers, RandomState, Uninitialised, Values
from engram.evaluation.scripted import ScriptedAttributes
from engram.evaluation.settings import Settings

DEPTH = 10
"""How deeply containers and objects in an attribute of a module are looked into."""

_CONSTANT: frozenset[type] = frozenset(
    {
        *(int, float, complex, bool, str, bytes, NoneType, range, slice, type, torch.Size),
        *(torch.dtype, torch.device, torch.layout, torch.memory_format),
        ModuleType,
    }
)
"""Types whose values cannot change."""

_NOT_LOOKED_INTO = ("torch", "numpy", "lightning", "pytorch_lightning", "accelerate")
"""Libraries whose objects, other than modules, tensors and generators, are no state of a network. A network
may know its trainer, and a compiled one its compiler."""

_METHODS_AND_VALUES = ("engram.methods", "engram.core.values")
"""Modules of engram whose objects may be part of a network; evaluators and what they record are not."""

_OF_TORCH = (Optimizer, LRScheduler, GradScaler, SobolEngine)
"""Classes of PyTorch that are looked into nevertheless: a network may adapt itself in evaluation."""

_OPEN = ("types", "collections", "argparse", "queue", "weakref", "_thread", "_weakrefset")
"""Modules of the standard library whose objects may be part of a network."""


class Change(NamedTuple):
    """A change that a module made to itself.

    Attributes:
        path: Where the module is in the network; empty for the network itself.
        kind: The name of its class.
        part: The parameter, buffer or attribute that changed.
    """

    path: str
    kind: str
    part: str

    @property
    def module(self) -> str:
        """The module by its place and class, for messages.

        Example:
            >>> Change("encoder.pool", "RunningMax", "n").module, Change("", "Net", "n").module
            ('encoder.pool (RunningMax)', 'Net')
        """
        return f"{self.path} ({self.kind})" if self.path else self.kind


class _Owner(NamedTuple):
    """The module that a part belongs to: whether all is copied, and whether its class is known."""

    path: str
    kind: str
    full: bool
    known: bool


class Snapshot:
    """Everything in a network that can change, as it is now.

    That is: parameters, buffers and their gradients; modes; hooks; the attributes of every module and of its
    class, also inside lists, dictionaries, functions and other objects; random generators among them; and
    PyTorch's global settings, such as the default dtype. What hooks hold, and what methods change outside of
    the network, is not part of it.

    Args:
        network: The network.
        full: Copy all values. Otherwise values of large tensors are copied only in modules whose class is not
            in `known`; for the others only the writes that PyTorch counts are noticed.
        known: Classes of modules that have been looked at before.

    Attributes:
        kinds: The classes of all modules.
        unseen: Of the changes that were restored, those in modules of known classes that would not have been
            noticed without `full`.

    Example:
        >>> network = nn.Sequential(nn.Linear(2, 2), nn.Embedding(3, 2, max_norm=0.1))
        >>> before = Snapshot(network)
        >>> _ = network[1](torch.tensor([0, 1]))
        >>> [(change.module, change.part) for change in before.restore()]
        [('1 (Embedding)', 'weight')]
        >>> before.restore()
        []
    """

    def __init__(self, network: nn.Module, *, full: bool = True, known: Collection[type] = ()) -> None:
        self.kinds: set[type] = set()
        self._full, self._known = full, known
        self._met: dict[int, object] = {}
        self._modes: list[tuple[nn.Module, bool]] = []
        self._parts: list[tuple[_Owner, Part]] = []
        self.unseen: list[Change] = []
        self._module(network, "", 0)
        self._parts.append((_Owner("", type(network).__name__, full=True, known=False), Settings()))

    def restore(self) -> list[Change]:
        """Restore what has changed since, and return it; the modes of modules do not count as changes.

        Raises:
            InputError: Something cannot be restored.
        """
        for module, mode in self._modes:
            _set_mode(module, mode)
        changes: dict[Change, None] = {}
        lost: list[Change] = []
        for owner, part in self._parts:
            if not (names := part.changed()):
                continue
            here = [Change(owner.path, owner.kind, name) for name in names]
            changes.update(dict.fromkeys(here))
            if owner.known and part.large and not (isinstance(part, Values) and part.noticed):
                self.unseen += here
            try:
                part.restore()
            except Lost:
                lost += here
        if lost:
            raise cannot_restore(lost)
        return list(changes)

    def forget_writes(self) -> bool:
        """Set PyTorch's counts of writes back where no bit changed; returns whether there were any.

        Call it after `restore`.
        """
        written = [part for _, part in self._parts if isinstance(part, Values) and part.written]
        for part in written:
            part.forget_writes()
        return bool(written)

    # ----------------------------------------------------------------------------------------------

    def _module(self, module: nn.Module, path: str, depth: int) -> None:
        if id(module) in self._met:
            return
        self._met[id(module)] = module
        kind = type(module)
        known = kind in self._known
        owner = _Owner(path, kind.__name__, self._full or not known, known)
        if kind not in self.kinds:
            self.kinds.add(kind)
            self._class(kind, owner, depth)
        self._modes.append((module, module.training))
        if isinstance(module, torch.jit.ScriptModule):
            self._scripted(module, owner, depth)
            return
        self._parts.append((owner, Attributes(module, None)))
        empty = Empty(module)
        self._parts.append((owner, empty))
        for name, value in vars(module).items():
            kind = type(value)
            if kind in _CONSTANT:
                continue
            if kind in _CLEARED and not value:
                empty.things.append(value)
            elif name in _OWN:
                self._registered(name, value, owner, depth)
            elif name in METHODS and isinstance(value, FunctionType):
                self._function(value, owner, name, depth + 1, method=True)
            elif name.startswith("_") and name.endswith("_hooks") and isinstance(value, dict):
                self._hooks(name, value, owner, depth)
            else:
                self._visit(value, owner, name, depth + 1)

    def _registered(self, name: str, entries: dict[str, object], owner: _Owner, depth: int) -> None:
        """The parameters, buffers or submodules of a module."""
        self._parts.append((owner, Entries(entries, None)))
        for key, value in entries.items():
            if isinstance(value, nn.Module):
                self._module(value, f"{owner.path}.{key}" if owner.path else key, depth)
            elif isinstance(value, Tensor):
                self._tensor(value, owner, key, depth, copied=name == "_buffers")

    def _hooks(self, name: str, hooks: dict[str, object], owner: _Owner, depth: int) -> None:
        """The hooks of a module; a function among them may keep a record for its user."""
        self._met[id(hooks)] = hooks
        self._parts.append((owner, Entries(hooks, name)))
        for hook in hooks.values():
            if not isinstance(hook, _FUNCTIONS):
                self._visit(hook, owner, name, depth + 1)

    def _scripted(self, module: torch.jit.ScriptModule, owner: _Owner, depth: int) -> None:
        """A scripted module, whose attributes are not Python's."""
        attributes = ScriptedAttributes(module, Change(owner.path, owner.kind, "").module)
        self._parts.append((owner, attributes))
        learned = {id(parameter) for parameter in module.parameters(recurse=False)}
        for key, tensor in attributes.tensors():
            if id(tensor) not in self._met:
                self._tensor(tensor, owner, key, depth, copied=id(tensor) not in learned)
        for key, part in module.named_children():
            self._module(part, f"{owner.path}.{key}" if owner.path else key, depth)

    def _class(self, kind: type, owner: _Owner, depth: int) -> None:
        """The data in a module's class and its base classes, except those of PyTorch."""
        for ancestor in kind.__mro__:
            if id(ancestor) in self._met or _library(ancestor.__module__) in ("torch", "builtins"):
                continue
            self._met[id(ancestor)] = ancestor
            attributes = ClassAttributes(ancestor)
            self._parts.append((owner, attributes))
            for name in attributes.data:
                self._visit(attributes.values[name], owner, name, depth + 1)
            for name, function in attributes.functions.items():
                self._function(function, owner, name, depth + 1, method=True)

    def _visit(self, value: object, owner: _Owner, part: str, depth: int) -> None:
        # The class is asked, because proxies and mocks answer `isinstance` for another object.
        kind: type = type(value)
        if kind in _CONSTANT or id(value) in self._met or depth > DEPTH:
            return
        is_function = issubclass(kind, _FUNCTIONS)
        if is_function:
            self._function(value, owner, part, depth)
        if is_function or not value_is_kept(kind):
            return
        self._met[id(value)] = value
        if issubclass(kind, nn.Module):
            self._module_in(cast("nn.Module", value), owner, part, depth)
        elif issubclass(kind, Tensor):
            self._tensor(cast("Tensor", value), owner, part, depth)
        elif issubclass(kind, _CONTAINERS):
            self._container(cast("_Container", value), owner, part, depth)
        elif issubclass(kind, ProxyTypes):
            self._visit(_behind(value), owner, part, depth + 1)
        elif issubclass(kind, _LEAVES):
            if (leaf := _leaf(value, owner, part)) is not None:
                self._parts.append((owner, leaf))
            self._visit(_inside(value), owner, part, depth + 1)
        else:
            self._object(value, owner, part, depth)

    def _function(
        self, function: object, owner: _Owner, part: str, depth: int, *, method: bool = False
    ) -> None:
        """What a function remembers.

        What a method shares with the function in which it was defined is outside of the network, like what
        it finds in global variables, and so is what a bound method is bound to.
        """
        self._met[id(function)] = function
        held: tuple[object, ...] = ()
        if isinstance(function, partial):
            held = (function.func, function.args, function.keywords, vars(function))
        elif isinstance(function, FunctionType) and _library(function.__module__) not in _NOT_LOOKED_INTO:
            attributes = Attributes(function, part)
            self._parts.append((owner, attributes))
            held = (*attributes.values.values(), *defaults_of(function))
            if not method:
                closure = Closure(function, part)
                self._parts.append((owner, closure))
                held += (*closure.values.values(),)
        for item in held:
            self._visit(item, owner, part, depth + 1)

    def _module_in(self, module: nn.Module, owner: _Owner, part: str, depth: int) -> None:
        """A module that is in an attribute but not registered as a submodule."""
        del self._met[id(module)]
        self._module(module, f"{owner.path}.{part}" if owner.path else part, depth)

    def _tensor(self, tensor: Tensor, owner: _Owner, part: str, depth: int, *, copied: bool = False) -> None:
        self._met[id(tensor)] = tensor
        if is_lazy(tensor):
            self._parts.append((owner, Uninitialised(tensor, part)))
            return
        for value in tensor.__dict__.values():
            self._visit(value, owner, part, depth + 1)
        always = copied or tensor.numel() <= SMALL
        values = Values(tensor, part, copied=always or owner.full, large=not always)
        self._parts.append((owner, values))
        if values.grad is not None and owner.full and id(values.grad) not in self._met:
            self._tensor(values.grad, owner, f"{part}.grad", depth)

    def _container(self, value: _Container, owner: _Owner, part: str, depth: int) -> None:
        copied = owner.full or len(value) <= SMALL
        if isinstance(value, dict):
            self._parts.append((owner, Entries(value, part, copied=copied)))
        elif isinstance(value, list | deque):
            self._parts.append((owner, Items(value, part, copied=copied)))
        elif isinstance(value, set) and copied:
            self._parts.append((owner, Members(value, part)))
        if not copied:
            return
        for item in [*dict.keys(value), *dict.values(value)] if isinstance(value, dict) else list(value):
            if type(item) not in _CONSTANT:
                self._visit(item, owner, part, depth + 1)
        if type(value) not in _PLAIN_CONTAINERS:
            self._object(value, owner, part, depth)

    def _object(self, value: object, owner: _Owner, part: str, depth: int) -> None:
        """The attributes of an object that is neither of the above, and of its class."""
        kind: type = type(value)
        if not issubclass(kind, Enum):
            self._class(kind, owner, depth)
        descriptors = _slots(kind)
        if descriptors:
            slots = Slots(value, descriptors, part)
            self._parts.append((owner, slots))
            for item in slots.values.values():
                self._visit(item, owner, part, depth + 1)
        if has_attributes(value):
            attributes = Attributes(value, part)
            self._parts.append((owner, attributes))
            for item in attributes.values.values():
                self._visit(item, owner, part, depth + 1)


METHODS = frozenset({"forward", "train", "eval"})
"""Methods that may be replaced by functions in attributes of a module."""

_OWN = ("_parameters", "_buffers", "_modules")
_CLEARED = frozenset({dict, OrderedDict, list, set})
_PLAIN_CONTAINERS = (tuple, dict, OrderedDict, list, deque, set, frozenset)
_CONTAINERS = (tuple, dict, list, deque, set, frozenset)
_Container: TypeAlias = (
    tuple[object, ...] | dict[str, object] | list[object] | deque[object] | set[object] | frozenset[object]
)
_ARRAYS = (np.ndarray, bytearray, array)
_RANDOM = (
    *(torch.Generator, np.random.Generator, np.random.BitGenerator, np.random.RandomState),
    random.Random,
)
_ITERABLES: tuple[Iterable[object], ...] = (
    *([], (), {}, {}.values(), {}.items(), set(), range(0), range(2**63), "", b"", bytearray()),
)
_ITERATORS: tuple[type[Iterator[object]], ...] = (
    *(GeneratorType, count, cycle, chain, islice, enumerate, zip),
    *(type(iter(iterable)) for iterable in _ITERABLES),
)
_LEAVES: tuple[type, ...] = (
    *(*_ARRAYS, *_RANDOM, *_ITERATORS),
    *(np.random.SeedSequence, BytesIO, StringIO, ReferenceType),
)
_FUNCTIONS = (FunctionType, MethodType, BuiltinFunctionType, partial)


def _leaf(value: object, owner: _Owner, part: str) -> Part | None:
    """An array, a random generator, an iterator or a file as it is; None where it cannot change."""
    if isinstance(value, _ARRAYS):
        size = value.size if isinstance(value, np.ndarray) else len(value)
        fixed = isinstance(value, np.memmap) or (isinstance(value, np.ndarray) and not value.flags.writeable)
        return None if fixed else Numbers(value, part, copied=owner.full or size <= SMALL)
    if isinstance(value, _RANDOM):
        # The global generators are restored by `same_randomness`.
        shared = value is torch.default_generator or isinstance(value, random.SystemRandom)
        return None if shared else RandomState(value, part)
    if isinstance(value, _ITERATORS):
        return Progress(value, part)
    if isinstance(value, np.random.SeedSequence):
        return Progress(value, part)
    if isinstance(value, BytesIO | StringIO) and not value.closed:
        return InMemoryFile(value, part)
    return None


def _inside(value: object) -> object:
    """The objects in an array, the object behind a weak reference, the seed that a generator spawns from."""
    if isinstance(value, ReferenceType):
        return value()
    if isinstance(value, np.ndarray):
        return value.reshape(-1).tolist() if value.dtype.hasobject else None
    if isinstance(value, np.random.Generator):
        value = value.bit_generator
    return value.seed_seq if isinstance(value, np.random.BitGenerator) else None


def _behind(proxy: object) -> object:
    """The object that a weak proxy stands for; None if it is gone."""
    try:
        # A proxy passes everything on but its class, so this method is bound to the object.
        return cast("MethodType", proxy.__repr__).__self__
    except (AttributeError, ReferenceError):
        return None


@lru_cache(maxsize=4096)
def value_is_kept(kind: type) -> bool:
    """Whether objects of this class can be part of a network's state.

    Example:
        >>> value_is_kept(nn.Linear), value_is_kept(dict), value_is_kept(torch.utils.data.DataLoader)
        (True, True, False)
    """
    if issubclass(kind, (nn.Module, Tensor, *_CONTAINERS, *_OF_TORCH, *_LEAVES, *ProxyTypes)):
        return True
    if issubclass(kind, Dataset | DataLoader | type | ModuleType | Filterer) or _of_evaluation(kind):
        return False
    library = _library(kind.__module__)
    if library in _NOT_LOOKED_INTO or library == "builtins":
        return False
    return library in _OPEN or library not in sys.stdlib_module_names


def _of_evaluation(kind: type) -> bool:
    """Whether objects of a class record evaluations, or are others of engram that are part of no network."""
    modules = [ancestor.__module__ for ancestor in kind.__mro__ if _library(ancestor.__module__) == "engram"]
    return not all(module.startswith(_METHODS_AND_VALUES) for module in modules)


def _library(module: str | None) -> str:
    """The package of a module."""
    return (module or "").partition(".")[0]


@lru_cache(maxsize=4096)
def _slots(kind: type) -> dict[str, MemberDescriptorType]:
    """What reads and sets the slots of a class, by their names."""
    return {
        name: descriptor
        for ancestor in reversed(kind.__mro__)
        if "__slots__" in vars(ancestor)
        for name, descriptor in vars(ancestor).items()
        if isinstance(descriptor, MemberDescriptorType)
    }


def _set_mode(module: nn.Module, mode: bool) -> None:
    """Set the mode of one module, without the method `train`, which may do more."""
    if module.training is mode:
        return
    if "training" in vars(module):
        vars(module)["training"] = mode
    else:
        module.training = mode


def cannot_restore(changes: Collection[Change]) -> InputError:
    """The error for changes that cannot be undone.

    Example:
        >>> print(cannot_restore([Change("pool", "RunningMax", "n")]))
        pool (RunningMax) changes itself in evaluation, and its n cannot be restored: ...
    """
    first = next(iter(changes))
    return InputError(
        f"{first.module} changes itself in evaluation, and its {first.part} cannot be restored: let it "
        "change only where self.training is true, or evaluate a copy of the network"
    )
