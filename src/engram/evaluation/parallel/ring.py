"""Copies of a network's tensors in memory that processes share: a fixed number of buffers."""

from __future__ import annotations

import mmap
from collections.abc import Sequence

import torch
from torch import Tensor

from engram.evaluation.parallel.form import ALIGNED, Form


class Ring:
    """Buffers for the tensors of networks of one form, in memory that forked processes share.

    The memory has no name: it is gone when the last of the processes is.

    Args:
        form: The form of the networks.
        buffers: How many copies there is room for.

    Attributes:
        size: The bytes of all buffers.

    Example:
        >>> network = torch.nn.Linear(3, 2)
        >>> form = Form.of(network)
        >>> ring = Ring(form, 2)
        >>> ring.write(1, form.tensors)
        >>> torch.equal(ring.tensors[1][0], network.weight), torch.equal(ring.tensors[0][0], network.weight)
        (True, False)
    """

    def __init__(self, form: Form, buffers: int) -> None:
        offsets, end = [], 0
        for tensor in form.tensors:
            # The same place within a line of the cache, so that sums are made in the same order.
            offsets.append(end + (tensor.data_ptr() - end) % ALIGNED)
            end = offsets[-1] + tensor.numel() * tensor.element_size()
        one = -(-max(end, 1) // mmap.PAGESIZE) * mmap.PAGESIZE
        self.size = one * buffers
        memory = torch.frombuffer(mmap.mmap(-1, self.size), dtype=torch.uint8)
        self.tensors: list[tuple[Tensor, ...]] = []
        self._flat: list[list[Tensor]] = []
        for start in range(0, self.size, one):
            pieces = [
                memory[start + offset : start + offset + tensor.numel() * tensor.element_size()]
                for offset, tensor in zip(offsets, form.tensors, strict=True)
            ]
            self._flat.append(pieces)
            self.tensors.append(
                tuple(
                    piece.view(tensor.dtype).as_strided(tensor.shape, tensor.stride())
                    for piece, tensor in zip(pieces, form.tensors, strict=True)
                )
            )

    def write(self, buffer: int, tensors: Sequence[Tensor]) -> None:
        """Copy tensors of the form into a buffer, with one thread: waking others takes longer."""
        for place, tensor in zip(self._flat[buffer], tensors, strict=True):
            if len(place):
                values = tensor.detach().as_strided((tensor.numel(),), (1,)).view(torch.uint8)
                place.numpy()[:] = values.numpy()
