"""Tensors, arrays and random generators of a network as they were; `restoring.py` has its other parts."""

from __future__ import annotations

import random
from array import array
from collections.abc import Sequence
from typing import TypeAlias, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engram.evaluation.restoring import SAMPLED, SMALL, Lost, differences

_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}

Arrays: TypeAlias = "NDArray[np.generic] | bytearray | array[int]"


class Numbers:
    """The content of an array of NumPy, of an `array.array` or of a `bytearray`."""

    def __init__(self, thing: Arrays, label: str, *, copied: bool) -> None:
        self.thing, self.label, self.copied = thing, label, copied
        self.large = (thing.size if isinstance(thing, np.ndarray) else len(thing)) > SMALL
        self.values = self._sample()

    def _sample(self) -> Arrays:
        if isinstance(self.thing, np.ndarray):
            if self.copied:
                return self.thing.copy()
            return self.thing.reshape(-1)[:: 1 + self.thing.size // SAMPLED].copy()
        return self.thing[:: 1 if self.copied else 1 + len(self.thing) // SAMPLED]

    def changed(self) -> Sequence[str]:
        """The label, if the content differs in any bit."""
        return () if _content(self._sample()) == _content(self.values) else [self.label]

    def restore(self) -> None:
        """Write the content."""
        if not self.copied:
            raise Lost
        if isinstance(self.thing, np.ndarray):
            self.thing[...] = self.values
        else:
            self.thing[:] = self.values  # type: ignore[assignment]


_NumpyGenerators = np.random.Generator | np.random.BitGenerator | np.random.RandomState
Generators = torch.Generator | _NumpyGenerators | random.Random


class RandomState:
    """The state of a random number generator."""

    large = False

    def __init__(self, thing: Generators, label: str) -> None:
        self.thing, self.label = thing, label
        self.values = self._now()

    def _now(self) -> object:
        match self.thing:
            case torch.Generator():
                return self.thing.get_state()
            case np.random.Generator():
                return self.thing.bit_generator.state
            case np.random.BitGenerator():
                return self.thing.state
            case np.random.RandomState():
                return self.thing.get_state(legacy=False)
            case _:
                return self.thing.getstate()

    def changed(self) -> Sequence[str]:
        """The label, if something was drawn or the generator was seeded."""
        return () if _same_state(self._now(), self.values) else [self.label]

    def restore(self) -> None:
        """Set the state."""
        match self.thing:
            case torch.Generator():
                self.thing.set_state(self.values)  # type: ignore[arg-type]
            case np.random.Generator():
                self.thing.bit_generator.state = self.values  # type: ignore[assignment]
            case np.random.BitGenerator():
                self.thing.state = self.values  # type: ignore[assignment]
            case np.random.RandomState():
                self.thing.set_state(self.values)  # type: ignore[arg-type]
            case _:
                self.thing.setstate(self.values)  # type: ignore[arg-type]


class Uninitialised:
    """A parameter or buffer of a lazy module before its first forward pass."""

    large = False

    def __init__(self, thing: Tensor, label: str) -> None:
        self.thing, self.label, self.kind = thing, label, type(thing)
        self.data = thing.data

    def changed(self) -> Sequence[str]:
        """The label, if it was initialised."""
        return () if type(self.thing) is self.kind else [self.label]

    def restore(self) -> None:
        """Make it uninitialised again."""
        self.thing.data = self.data
        self.thing.__class__ = self.kind


class Values:
    """The values of a tensor, whether it is trained, its gradient, its attributes and its hooks.

    With `copied`, all values are compared and can be restored. Otherwise writes that PyTorch counts, other
    writes as far as they change a sample of the values, and replaced memory are noticed, and only the last
    can be restored.
    """

    def __init__(self, thing: Tensor, label: str, *, copied: bool, large: bool = False) -> None:
        self.thing, self.label, self.large = thing, label, large
        self.tracked = not thing.is_inference()
        self.version = thing._version if self.tracked else 0
        self.trained, self.leaf = thing.requires_grad, thing.is_leaf
        self.grad = thing.grad if self.leaf else None
        self.grad_version = 0 if self.grad is None else self.grad._version
        self.attributes, self.hooks = dict(thing.__dict__), _hooks(thing)
        # It keeps the memory in use, so that a new tensor cannot get the same address.
        self.memory = thing.detach()
        self.address = _address(thing)
        strided = thing.layout is torch.strided and not thing.is_meta and not thing.is_nested
        self.values = self.memory.clone() if copied and strided else None
        self.sampled: Tensor | None = None
        if strided and not copied and thing.is_contiguous():
            self.sampled = self.memory.view(-1)[:: 1 + thing.numel() // SAMPLED]
            self.sample = self.sampled.clone()

    @property
    def written(self) -> bool:
        """Whether PyTorch counted a write, even one that changed nothing."""
        return self.tracked and self.thing._version != self.version

    @property
    def lost(self) -> bool:
        """Whether it was written to, and there is no copy."""
        if self.values is not None:
            return False
        unlike = self.sampled is not None and not same_bits(self.sampled, self.sample)
        return self.written or unlike or self.gradient_written

    @property
    def gradient_written(self) -> bool:
        """Whether PyTorch counted a write to its gradient."""
        return self.grad is not None and self.grad._version != self.grad_version

    @property
    def moved(self) -> bool:
        """Whether the tensor has got other memory, another shape or another order of its values."""
        if _address(self.thing) != self.address:
            return True
        if self.thing.is_nested:
            return False
        if self.thing.layout is torch.strided and self.thing.stride() != self.memory.stride():
            return True
        return self.thing.shape != self.memory.shape

    @property
    def replaced(self) -> bool:
        """Whether its gradient, an attribute or a hook was replaced, or whether it is trained was changed."""
        gradient = self.leaf and (not self.thing.is_leaf or self.thing.grad is not self.grad)
        if gradient or self.thing.requires_grad is not self.trained or _hooks(self.thing) != self.hooks:
            return True
        attributes = self.thing.__dict__
        return bool((attributes or self.attributes) and differences(attributes, self.attributes))

    @property
    def noticed(self) -> bool:
        """Whether it shows that something was done, without comparing values."""
        return self.written or self.moved or self.replaced

    def changed(self) -> Sequence[str]:
        """The label, if the values or anything else of it differs."""
        if self.values is None:
            return [self.label] if self.noticed or self.lost else ()
        same = not self.moved and not self.replaced and same_bits(self.memory, self.values)
        return () if same else [self.label]

    def restore(self) -> None:
        """Write the values, and set the rest."""
        if self.lost:
            raise Lost
        with torch.no_grad():
            if self.moved:
                self.thing.data = self.memory
            if self.values is not None and not same_bits(self.memory, self.values):
                _once(self.memory).copy_(_once(self.values, like=self.memory))
        if self.leaf and not self.thing.is_leaf:
            self._detach()
        if self.leaf:
            self.thing.requires_grad_(self.trained)
            self.thing.grad = self.grad
        self.thing.__dict__.clear()
        self.thing.__dict__.update(self.attributes)
        for hooks, before in zip(_hooks_of(self.thing), self.hooks or ({}, {}), strict=True):
            if hooks is not None:
                hooks.clear()
                hooks.update(before)
        self.forget_writes()

    def _detach(self) -> None:
        """Cut a tensor off from the graph that was written into it."""
        if self.thing._is_view():
            raise Lost
        self.thing.detach_()

    def forget_writes(self) -> None:
        """Set PyTorch's count of writes back: a graph that is not backpropagated yet stays valid."""
        if self.written:
            count_of_writes = torch.autograd.grad_mode._unsafe_preserve_version_counter(self.thing)
            count_of_writes.prev_versions = (self.version,)
            count_of_writes.__exit__(None, None, None)


def same_bits(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors have the same type, shape and bits; a NaN equals itself.

    Example:
        >>> same_bits(torch.tensor([torch.nan]), torch.tensor([torch.nan]))
        True
        >>> same_bits(torch.tensor([0.0]), torch.tensor([-0.0]))
        False
    """
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if a.is_complex():
        a, b = torch.view_as_real(a.resolve_conj()), torch.view_as_real(b.resolve_conj())
    a, b, integers = a.resolve_neg(), b.resolve_neg(), _INTEGERS.get(a.element_size())
    if integers is None or a.is_quantized:
        return torch.equal(a, b)
    return torch.equal(a.view(integers), b.view(integers))


def _once(tensor: Tensor, *, like: Tensor | None = None) -> Tensor:
    """An expanded tensor (or one like it) without its repetitions, which cannot be written."""
    for dim, stride in enumerate((tensor if like is None else like).stride()):
        tensor = tensor.narrow(dim, 0, 1) if stride == 0 and tensor.shape[dim] else tensor
    return tensor


def _hooks_of(tensor: Tensor) -> tuple[dict[int, object] | None, ...]:
    """What is called with the gradients of a tensor: before they are accumulated, and after."""
    hooks = tensor._backward_hooks, tensor._post_accumulate_grad_hooks
    return cast("tuple[dict[int, object] | None, ...]", hooks)


def _hooks(tensor: Tensor) -> tuple[dict[int, object], ...] | None:
    """The hooks as they are; None where there are none."""
    before, after = _hooks_of(tensor)
    return (dict(before or ()), dict(after or ())) if before or after else None


def _address(tensor: Tensor) -> int:
    try:
        return tensor.data_ptr()
    except RuntimeError:
        # Sparse tensors and some others have none.
        return 0


def _content(thing: Arrays) -> bytes:
    return bytes(thing) if isinstance(thing, bytearray) else thing.tobytes()


def _same_state(a: object, b: object) -> bool:
    """Whether two states of a generator are equal: numbers, tensors or arrays, also inside dictionaries."""
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return torch.equal(a, b)
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_same_state(a[key], b[key]) for key in a)
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        return np.array_equal(a, b)
    return a == b
