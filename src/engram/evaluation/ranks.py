"""Evaluation in distributed training: every process evaluates its share, and all get the whole."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Literal, TypeAlias, get_args

import torch
from torch import Tensor, nn
from torch import distributed as dist
from torch.nn.parallel import DataParallel, DistributedDataParallel

from engram.core.errors import InputError, unknown_name

Ranks: TypeAlias = Literal["share", "first", "each"]
"""How several processes evaluate; see `engram.Evaluator`."""


def check_ranks(ranks: str) -> None:
    """Refuse a word that is not one of `Ranks`.

    Example:
        >>> check_ranks("shares")
        Traceback (most recent call last):
        engram.core.errors.InputError: unknown choice for ranks 'shares'...
    """
    if ranks not in get_args(Ranks):
        raise unknown_name("choice for ranks", ranks, get_args(Ranks))


class Team:
    """The processes that evaluate together: this one alone, or all of a process group.

    Args:
        ranks: See `Ranks`.

    Example:
        >>> team = Team("share")
        >>> team.size, team.evaluates, team.mine(3)
        (1, True, True)
    """

    def __init__(self, ranks: Ranks = "share") -> None:
        self.ranks = ranks
        together = ranks != "each" and dist.is_available() and dist.is_initialized()
        self.size = dist.get_world_size() if together else 1
        self.rank = dist.get_rank() if together else 0
        self.alone = self.size == 1
        self.leads = ranks == "first"
        """Whether rank 0 evaluates everything."""

    @property
    def evaluates(self) -> bool:
        """Whether this process evaluates anything now."""
        return self.alone or not self.leads or self.rank == 0

    def mine(self, number: int) -> bool:
        """Whether this process evaluates the piece with this number."""
        return self.rank == (0 if self.leads else number % self.size)

    def agree(self, network: nn.Module, device: torch.device, *, evaluations: int, data: str) -> None:
        """Check that all processes hold the same network and the same test data, as shares need.

        Weights are compared in the first evaluation, and in evaluations number 2, 4, 8, …. Buffers, which
        every process may count for itself, are compared in every one: where they differ, those of rank 0
        count, as in `DistributedDataParallel`, and rank 0 evaluates alone.

        Raises:
            InputError: The processes hold different weights or test data.
        """
        if self.alone or self.ranks == "first":
            return
        compared = [] if evaluations & (evaluations - 1) else list(network.parameters())
        digests = [_digest(list(network.buffers())), _digest(compared), _number(data.encode())]
        mine = torch.tensor(digests, device=self._place(device))
        first = mine.clone()
        dist.broadcast(first, src=0)
        differs = (mine != first).to(torch.int64)
        dist.all_reduce(differs, op=dist.ReduceOp.MAX)
        buffers, weights, samples = differs.tolist()
        if samples:
            raise InputError(
                "the test sets of the processes differ: give every process the whole test sets, "
                "without a DistributedSampler; they are shared out by the evaluator"
            )
        if weights:
            raise InputError(
                "the networks of the processes differ: evaluate them one by one with ranks='each', "
                "or that of rank 0 with ranks='first'"
            )
        self.leads = bool(buffers)

    def combine(self, values: Tensor, device: torch.device) -> Tensor:
        """What all processes measured, each its pieces; elsewhere `values` must be 0.

        Floating-point numbers are added as whole numbers, so that every bit stays as it was measured.
        """
        if self.alone or self.ranks == "first":
            return values
        whole = values.to(torch.uint8) if values.dtype is torch.bool else values.view(torch.int32)
        whole = whole.to(self._place(device))
        dist.all_reduce(whole)
        whole = whole.cpu()
        return whole.bool() if values.dtype is torch.bool else whole.view(values.dtype)

    @contextmanager
    def together(self, device: torch.device) -> Iterator[None]:
        """Raise on all processes if something was raised on one, so that none waits for it forever.

        Raises:
            InputError: Another process failed.
        """
        if self.alone or self.ranks == "first":
            yield
            return
        failed = torch.ones(1, dtype=torch.int64, device=self._place(device))
        try:
            yield
            failed.zero_()
        finally:
            mine = bool(failed)
            dist.all_reduce(failed, op=dist.ReduceOp.MAX)
        if failed and not mine:
            raise InputError("the evaluation failed in another process: its message says why")

    @staticmethod
    def _place(device: torch.device) -> torch.device:
        """Where tensors must be to be sent: NCCL sends from GPUs only."""
        return device if dist.get_backend() == "nccl" else torch.device("cpu")


def whole_network(network: nn.Module) -> nn.Module:
    """The network inside `DistributedDataParallel` and the like, which can be asked without other processes.

    Raises:
        InputError: Its weights are spread over several processes.

    Example:
        >>> network = nn.Linear(2, 2)
        >>> whole_network(nn.DataParallel(network)) is network
        True
    """
    inner = getattr(network, "_orig_mod", network)
    while isinstance(inner, DistributedDataParallel | DataParallel):
        network = inner = inner.module
        inner = getattr(inner, "_orig_mod", inner)
    if kind := _sharded(network):
        raise InputError(
            f"the weights of this network are spread over several processes ({kind}), so that no process can "
            "evaluate it: pass a function that returns a network with all weights, as in "
            "watch(lambda: gathered(net), learning=0), or train with DistributedDataParallel"
        )
    return network


_OF_DEEPSPEED = frozenset({"ds_tensor", "ds_status"})
"""What DeepSpeed adds to the parameters that it spreads."""


def _sharded(network: nn.Module) -> str:
    """What spreads the weights of a network over processes; empty where nothing does."""
    for module in network.modules():
        kind: type = type(module)
        if _is_one_of(kind, ("FullyShardedDataParallel", "FSDPModule")):
            return "FSDP"
        for weight in module._parameters.values():
            if weight is None:
                continue
            if not _OF_DEEPSPEED.isdisjoint(vars(weight)):
                return "DeepSpeed ZeRO-3"
            kind = type(weight)
            if _is_one_of(kind, ("DTensor",)):
                return "DTensor"
    return ""


@lru_cache(maxsize=4096)
def _is_one_of(kind: type, names: tuple[str, ...]) -> bool:
    """Whether a class has a name or inherits from a class that has; importing those takes a second."""
    return any(above.__name__ in names for above in kind.__mro__)


def _digest(tensors: Sequence[Tensor]) -> int:
    made = hashlib.blake2b(digest_size=8)
    for tensor in tensors:
        flat = tensor.detach().cpu().contiguous().reshape(-1)
        made.update(flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b"")
    return _number(made.digest())


def _number(content: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(content, digest_size=7).digest(), "big")
