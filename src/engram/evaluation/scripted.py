"""The attributes of scripted modules (TorchScript), which are not Python's."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from engram.core.errors import InputError

_PLAIN = (int, float, complex, bool, str, type(None), torch.device, torch.dtype, torch.Generator)
_NOT_ATTRIBUTES = ("training", "_is_full_backward_hook")
_LINE = re.compile(r"^    (\w+) = ", re.MULTILINE)
_names: WeakKeyDictionary[torch.jit.ScriptModule, tuple[str, ...]] = WeakKeyDictionary()


class ScriptedAttributes:
    """The attributes of a scripted module, with its parameters and buffers, as they were.

    Numbers, texts, lists and dictionaries are copied whenever they are read from a scripted module, and
    tensors are the same objects: what is written into these is noticed and restored as parts of their own.

    Args:
        module: The module.
        what: The module by its place and class, for messages.

    Raises:
        InputError: An attribute is an object of a scripted class, which cannot be copied.
    """

    large = False

    def __init__(self, module: torch.jit.ScriptModule, what: str) -> None:
        self.module = module
        self.values = {name: getattr(module, name) for name in names_of(module)}
        for name, value in self.values.items():
            for part in _parts(value):
                if not isinstance(part, (*_PLAIN, Tensor)) and not _compiled_in(part):
                    raise InputError(
                        f"{what} is scripted, and its {name} is an object of the class "
                        f"{type(part).__name__}, which evaluation could change unnoticed: keep its state in "
                        "numbers, tensors, lists or dictionaries, or evaluate a copy of the network"
                    )

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """All tensors among the attributes, also in lists and dictionaries, by the names of these."""
        for name, value in self.values.items():
            for part in _parts(value):
                if isinstance(part, Tensor):
                    yield name, part

    def changed(self) -> Sequence[str]:
        """The names of attributes that were set, or whose contents differ."""
        return [name for name, value in self.values.items() if not _same(getattr(self.module, name), value)]

    def restore(self) -> None:
        """Set the attributes that differ."""
        for name in self.changed():
            setattr(self.module, name, self.values[name])


def names_of(module: torch.jit.ScriptModule) -> tuple[str, ...]:
    """The names of a scripted module's attributes, parameters and buffers, which never change.

    Example:
        >>> import warnings
        >>> with warnings.catch_warnings(action="ignore"):
        ...     names_of(torch.jit.trace(torch.nn.Linear(2, 2), torch.ones(1, 2)))
        ('weight', 'bias')
    """
    if module not in _names:
        # There is no list of names; in this text each begins a line, and values of tensors are left out.
        text: str = module._c.dump_to_str(False, False, False)
        listed = text.partition("  attributes {\n")[2].partition("\n  methods {\n")[0]
        parts = {name for name, _ in module.named_children()}
        _names[module] = tuple(
            name
            for name in dict.fromkeys(_LINE.findall(listed))
            if name not in _NOT_ATTRIBUTES and name not in parts and hasattr(module, name)
        )
    return _names[module]


def _parts(value: object) -> Iterator[object]:
    """The values in lists, tuples and dictionaries, or the value itself."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _parts(key)
            yield from _parts(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _parts(item)
    else:
        yield value


def _compiled_in(value: object) -> bool:
    """Whether an object is of a class of PyTorch's in C++, such as the weights of a quantised layer."""
    return isinstance(value, torch.ScriptObject) and "torch.classes" in value._type().qualified_name()


def _same(a: object, b: object) -> bool:
    """Whether two values are one tensor, or equal; a NaN equals itself."""
    if type(a) is not type(b):
        return False
    if isinstance(a, Tensor):
        return a is b
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(map(_same, a, b))
    if isinstance(a, dict) and isinstance(b, dict):
        return len(a) == len(b) and _same(list(a), list(b)) and _same(list(a.values()), list(b.values()))
    if isinstance(a, torch.Generator | torch.ScriptObject):
        return True
    return repr(a) == repr(b)
