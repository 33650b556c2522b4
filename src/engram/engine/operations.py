"""Counts the floating-point operations of what PyTorch computes, and the samples that are learned from."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

MOVES = frozenset(
    (
        *("empty", "empty_like", "empty_strided", "zeros", "zeros_like", "ones", "ones_like", "full"),
        *("full_like", "new_empty", "new_empty_strided", "new_zeros", "new_ones", "new_full", "arange"),
        *("scalar_tensor", "eye", "rand", "rand_like", "randn", "randn_like", "randint", "randperm"),
        *("random_", "uniform_", "normal_", "clone", "copy", "copy_", "_to_copy", "contiguous", "cat"),
        *("stack", "repeat", "index", "index_select", "index_put", "index_put_", "_index_put_impl_"),
        *("gather", "scatter", "scatter_", "masked_select", "masked_fill", "masked_fill_", "nonzero"),
        *("one_hot", "embedding", "constant_pad_nd", "flip", "roll", "fill", "fill_", "zero_", "resize_"),
        *("set_", "lift_fresh", "_local_scalar_dense", "item", "equal", "select_backward", "where"),
        *("slice_backward", "index_fill_", "masked_scatter_", "unfold_backward", "_unsafe_view"),
        *("_reshape_alias", "reshape", "flatten", "detach", "detach_", "alias", "is_nonzero", "sort"),
        *("argsort", "topk", "unique_consecutive", "_unique2", "searchsorted", "max_pool2d_with_indices"),
    )
)
"""Operations that make, move, order or choose values, and compute none."""

_LAYERS = {
    **dict.fromkeys(("mm", "linear", "convolution", "conv2d", "_convolution"), (0, 1)),
    "addmm": (1, 2),
    "mkldnn_rnn_layer": (5, 1),
}
"""Which arguments of a layer's operation have one row per sample, and its weights."""

Cost = Callable[[Sequence[Any], Mapping[str, Any], Any], int]


class Operations(TorchDispatchMode):
    """While it is active, operations are counted, forwards and backwards.

    Matrix products and convolutions have two operations per product, as in PyTorch's own counter. Everything
    else that computes (sums, activations, penalties, an optimiser's step) has one per value: of the result,
    or of the largest argument if that is larger. Moving and choosing values costs nothing.

    Attributes:
        flops: Operations so far.

    Example:
        >>> with Operations() as counted:
        ...     total = (torch.ones(5, 4) @ torch.ones(4, 3)).sum()
        >>> counted.flops  # 2 · 5 · 4 · 3, and 15 to sum
        135
    """

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # PyTorch would import its compiler to keep it away, which takes a second.
        return False

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.flops = 0
        self._rows: dict[int, int] = {}

    @property
    def samples(self) -> int:
        """How many samples passed forwards through weights that are learned, the most used of them."""
        return max(self._rows.values(), default=0)

    def __torch_dispatch__(
        self,
        func: Any,
        types: Iterable[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> object:
        """Compute, and count."""
        options = kwargs or {}
        result = func(*args, **options)
        cost = _COSTS.get(func)
        if cost is None:
            cost = _COSTS[func] = _cost_of(func)
        self.flops += cost(args, options, result)
        places = _LAYERS.get(func._overloadpacket.__name__)
        if places is not None and torch.is_grad_enabled() and torch._C._current_graph_task_id() == -1:
            samples, weights = (args[place] for place in places)
            if weights.requires_grad:
                key = weights.untyped_storage()._cdata
                self._rows[key] = self._rows.get(key, 0) + len(samples)
        return result


class _BesideCompiler(Operations):
    """The same where PyTorch's compiler is in use, which is kept away from the counting."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return True

    # PyTorch wraps what a class declares itself.
    __torch_dispatch__ = Operations.__torch_dispatch__


def counting_operations() -> Operations:
    """What counts operations in this process.

    Example:
        >>> with counting_operations() as counted:
        ...     total = torch.ones(4) + torch.ones(4)
        >>> counted.flops
        4
    """
    return _BesideCompiler() if "torch._dynamo" in sys.modules else Operations()


_COSTS: dict[Any, Cost] = {}


def _cost_of(func: Any) -> Cost:
    packet = func._overloadpacket
    formula = flop_registry.get(packet)
    if formula is not None:
        return lambda args, options, result: int(formula(*args, **options, out_val=result))
    name = packet.__name__
    if name in MOVES or func.is_view:
        return _nothing
    return _FORMULAS.get(name, _per_value)


def _nothing(args: Sequence[Any], options: Mapping[str, Any], result: Any) -> int:
    return 0


def _linear(args: Sequence[Any], options: Mapping[str, Any], result: Any) -> int:
    return int(2 * result.numel() * args[1].shape[-1])


def _matmul(args: Sequence[Any], options: Mapping[str, Any], result: Any) -> int:
    return int(2 * result.numel() * args[0].shape[-1])


def _conv(args: Sequence[Any], options: Mapping[str, Any], result: Any) -> int:
    return int(2 * result.numel() * args[1][0].numel())


def _recurrent(args: Sequence[Any], options: Mapping[str, Any], result: Any) -> int:
    inputs, weights, between = args[:3]
    return int(2 * inputs.numel() // inputs.shape[-1] * (weights.numel() + between.numel()))


def _recurrent_backward(args: Sequence[Any], options: Mapping[str, Any], result: Any) -> int:
    return 2 * _recurrent(args, options, result)


def _twice(args: Sequence[Any], options: Mapping[str, Any], result: Any) -> int:
    return 2 * _per_value(args, options, result)


def _per_value(args: Sequence[Any], options: Mapping[str, Any], result: Any) -> int:
    return max(_values(result), *map(_values, args), 0)


def _values(value: object) -> int:
    if isinstance(value, Tensor):
        return value.numel()
    if isinstance(value, list | tuple):
        return sum(map(_values, value))
    return 0


_FORMULAS: dict[str, Cost] = {
    "linear": _linear,
    "matmul": _matmul,
    "conv2d": _conv,
    "mkldnn_rnn_layer": _recurrent,
    "mkldnn_rnn_layer_backward": _recurrent_backward,
    "mv": _twice,
    "dot": _twice,
}
