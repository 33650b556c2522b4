"""Memory that several attributes of a method share, in its state."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from engram.core.errors import InputError

State = dict[str, Any]
"""A complete state, as tensors and plain values."""


class CannotKeep(InputError):
    """A value that cannot be stored in a checkpoint."""


class Pack(NamedTuple):
    """An object, where it was met first, and its state, which is empty while it is being packed."""

    value: object
    name: str
    state: State


class _Span(NamedTuple):
    """The memory of a tensor or an array: its first address, and the one after its last."""

    device: str
    start: int
    stop: int
    pack: Pack

    def overlaps(self, other: _Span) -> bool:
        """Whether the two have memory between the same addresses."""
        return self.device == other.device and self.start < other.stop and other.start < self.stop


class _Weight(NamedTuple):
    """A weight or a buffer: its module, its name there, and its memory."""

    module: Pack
    name: str
    span: _Span

    def view(self, span: _Span) -> State:
        """The state of a tensor that is this weight, or a view of it."""
        tensor, weight = span.pack.value, self.span.pack.value
        assert isinstance(tensor, Tensor) and isinstance(weight, Tensor)
        state: State = {"kind": "weight", "value": self.module.state, "name": self.name, "view": None}
        if tensor is weight:
            return state
        if _form(tensor) != _form(weight) or isinstance(tensor, nn.Parameter):
            raise _cannot_share(span.pack, self.span.pack)
        offset = tensor.storage_offset() - weight.storage_offset()
        return {**state, "view": [*map(list, (tensor.shape, tensor.stride())), offset]}


def refer_to_weights(packs: Iterable[Pack]) -> None:
    """Store the weights and buffers of modules, and views of them, as such."""
    weights: dict[int, list[_Weight]] = {}
    for module in packs:
        if isinstance(module.value, nn.Module):
            for name, tensor in weights_of(module.value).items():
                if (span := _span(Pack(tensor, f"{module.name}.{name}", {}))) is not None:
                    weights.setdefault(_storage(tensor), []).append(_Weight(module, name, span))
    for pack in packs if weights else ():
        if isinstance(pack.value, Tensor) and (span := _span(pack)) is not None:
            near = weights.get(_storage(pack.value), ())
            overlapping = [weight for weight in near if weight.span.overlaps(span)]
            same = [weight for weight in overlapping if weight.span.pack.value is pack.value]
            if overlapping:
                weight = (same or overlapping)[0]
                if not _covered(span, (weight.span for weight in overlapping)):
                    raise _cannot_share(pack, weight.span.pack)
                pack.state.update(weight.view(span))


def _covered(span: _Span, others: Iterable[_Span]) -> bool:
    """Whether all memory of a tensor is that of others."""
    start = span.start
    for other in sorted(others, key=lambda other: other.start):
        if other.start <= start:
            start = max(start, other.stop)
    return start >= span.stop


def weights_of(module: nn.Module) -> dict[str, Tensor]:
    """The weights and buffers of a module, by name.

    Example:
        >>> sorted(weights_of(nn.BatchNorm1d(2, affine=False)))
        ['num_batches_tracked', 'running_mean', 'running_var']
    """
    return {**dict(module.named_parameters()), **dict(module.named_buffers())}


def _storage(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def share_memory(packs: Iterable[Pack]) -> None:
    """Let tensors and arrays that overlap in memory overlap in the state, too."""
    spans = [span for pack in packs if (span := _span(pack)) is not None]
    group: list[_Span] = []
    stop = 0
    for span in sorted(spans, key=lambda span: span[:2]):
        if group and (span.device != group[0].device or span.start >= stop):
            _share(group, stop)
            group, stop = [], 0
        group.append(span)
        stop = max(stop, span.stop)
    if group:
        _share(group, stop)


def _share(group: list[_Span], stop: int) -> None:
    """Replace what is stored of tensors that overlap by views of one copy of the memory that they cover."""
    if len(group) == 1:
        return
    tensors = [_as_tensor(span.pack.value) for span in group]
    first, start = tensors[0], group[0].start
    if first is None:
        raise _cannot_share(*(span.pack for span in group[:2]))
    memory, size = first.new_empty((stop - start) // first.element_size()), first.element_size()
    for span, tensor in zip(group, tensors, strict=True):
        place, rest = divmod(span.start - start, size)
        if tensor is None or rest or _form(tensor) != _form(first):
            raise _cannot_share(group[0].pack, (span if span is not group[0] else group[1]).pack)
        covered = tensor.as_strided(((span.stop - span.start) // size,), (1,))
        memory[place : place + len(covered)] = covered
        span.pack.state.update(value=memory.as_strided(tensor.shape, tensor.stride(), place), shared=True)


def _as_tensor(value: object) -> Tensor | None:
    """A tensor or an array as a tensor of the same memory; None if it is neither, or cannot be shared."""
    if type(value) is Tensor:
        return value.detach()
    if type(value) is np.ndarray:
        with suppress(TypeError, ValueError), warnings.catch_warnings(action="ignore"):
            return torch.from_numpy(value)
    return None


def _form(tensor: Tensor) -> tuple[torch.dtype, bool, bool]:
    return tensor.dtype, tensor.is_conj(), tensor.is_neg()


def _cannot_share(one: Pack, other: Pack) -> CannotKeep:
    return CannotKeep(
        f"{one.name} and {other.name} share memory, which a checkpoint cannot keep: hold a copy instead of "
        "one of them, or give the method state_dict and load_state_dict"
    )


def _span(pack: Pack) -> _Span | None:
    """The memory of a value; None if it has none."""
    value = pack.value
    if pack.state.get("kind") == "weight":
        return None
    if isinstance(value, Tensor) and type(value) in (Tensor, nn.Parameter) and value.layout is torch.strided:
        size, address, device = value.element_size(), value.data_ptr(), str(value.device)
        strides = [size * stride for stride in value.stride()]
    elif isinstance(value, np.ndarray):
        size, address, device, strides = value.itemsize, value.ctypes.data, "cpu", [*value.strides]
    else:
        return None
    if 0 in value.shape or device == "meta":
        return None
    steps = [(n - 1) * stride for n, stride in zip(value.shape, strides, strict=True)]
    below, above = sum(min(0, step) for step in steps), sum(max(0, step) for step in steps)
    return _Span(device, address + below, address + above + size, pack)


def shared_view(value: Tensor, memory: dict[int, Tensor]) -> Tensor:
    """A view like this one of a copy of its memory, which is copied once."""
    address = value.untyped_storage().data_ptr()
    if address not in memory:
        whole = value.untyped_storage().nbytes() // value.element_size()
        memory[address] = value.as_strided((whole,), (1,), 0).clone()
    return memory[address].as_strided(value.shape, value.stride(), value.storage_offset())
