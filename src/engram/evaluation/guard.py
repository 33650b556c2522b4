"""Context managers that keep an evaluation from changing a network or the global random states."""

from __future__ import annotations

import random
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import lru_cache

import numpy as np
import torch
from torch import nn

from engram.core.errors import InputError
from engram.evaluation.snapshot import METHODS, Change, Snapshot


class SelfChange(UserWarning):
    """A module changes itself in evaluation; what it changes is restored."""


@contextmanager
def same_randomness() -> Iterator[None]:
    """Restore the global random states (torch, NumPy, random) on exit, whatever was drawn inside.

    Example:
        >>> with same_randomness():
        ...     inside = torch.rand(1)
        >>> bool(torch.rand(1) == inside)
        True
    """
    cuda = torch.cuda.is_available() and torch.cuda.is_initialized()
    on_gpu = torch.cuda.get_rng_state_all() if cuda else []
    on_mps = torch.mps.get_rng_state() if torch.backends.mps.is_available() else None
    on_cpu, numpy_state, python_state = torch.get_rng_state(), np.random.get_state(), random.getstate()  # noqa: NPY002
    try:
        yield
    finally:
        torch.set_rng_state(on_cpu)
        np.random.set_state(numpy_state)  # noqa: NPY002
        random.setstate(python_state)
        if cuda:
            torch.cuda.set_rng_state_all(on_gpu)
        if on_mps is not None:
            torch.mps.set_rng_state(on_mps)


@contextmanager
def evaluating(module: nn.Module, parts: Sequence[nn.Module] | None = None) -> Iterator[None]:
    """Evaluation mode, without gradients and without compiling; nothing is restored.

    Inference mode is not used: a tensor that the module caches in it could not be used in training. Compiled
    modules are computed eagerly: a new batch size would make PyTorch compile again, and differently.

    Args:
        module: The module.
        parts: All its modules and itself, if none does anything else when its mode is set; None to ask it.

    Example:
        >>> norm = nn.BatchNorm1d(2)
        >>> with evaluating(norm):
        ...     norm.training, torch.is_grad_enabled()
        (False, False)
    """
    with ExitStack() as stack:
        stack.enter_context(torch.no_grad())
        if "torch._dynamo" in sys.modules:
            stack.enter_context(torch.compiler.set_stance("force_eager"))
        if parts is None:
            module.eval()
        for part in parts or ():
            vars(part)["training"] = False
        yield


@contextmanager
def untouched(module: nn.Module) -> Iterator[None]:
    """Put the module in evaluation mode without gradients; all of it is restored on exit.

    See `engram.evaluation.snapshot.Snapshot` for what is restored: more than modes and buffers, because a
    user's own module may change anything in evaluation mode.

    Raises:
        InputError: The module changed something that cannot be restored.

    Example:
        >>> norm = nn.BatchNorm1d(2)
        >>> with untouched(norm):
        ...     norm.training, torch.is_grad_enabled()
        (False, False)
        >>> norm.training
        True
    """
    before = Snapshot(module)
    try:
        with evaluating(module):
            yield
    finally:
        before.restore()
        before.forget_writes()


class Guard:
    """Keeps all evaluations of an evaluator from changing the networks, at little cost.

    A network is looked at completely in its first evaluation, in evaluations number 2, 4, 8, …, and where it
    has modules of a class not seen before. If it changes itself, this is said once in a warning, and from
    then on all its values are copied before every evaluation and restored after it. Otherwise large tensors
    are not copied: a write to one is noticed by PyTorch's own count of writes. Where all modules are
    PyTorch's or engram's and have no hooks, no code of the user's is run, and only the modes are restored.

    Args:
        own_code: Whether functions of the user's, such as `forward`, are run in evaluations.

    Example:
        >>> class Counter(nn.Module):
        ...     calls = 0
        ...     def forward(self, x):
        ...         self.calls += 1
        ...         return x
        >>> counter, guard = Counter(), Guard()
        >>> with warnings.catch_warnings(action="ignore"), guard.untouched(counter):
        ...     _ = counter(torch.ones(1, 1))
        >>> counter.calls, [change.part for change in guard.changes]
        (0, ['calls'])
    """

    def __init__(self, *, own_code: bool = False) -> None:
        self.own_code = own_code
        self.changes: dict[Change, None] = {}
        self._evaluations = 0
        self._wary = False
        self._known: set[type] = set()

    @contextmanager
    def untouched(self, network: nn.Module) -> Iterator[None]:
        """Put the network in evaluation mode without gradients; all of it is restored on exit.

        Raises:
            InputError: The network changed something that cannot be restored, or that earlier evaluations
                may have changed unnoticed.
        """
        self._evaluations += 1
        complete = self._wary or self._evaluations & (self._evaluations - 1) == 0
        modules = None if complete or self.own_code else self._library_modules(network)
        if modules is None:
            with self._watched(network, complete=complete):
                yield
            return
        modes = [module.training for module in modules]
        try:
            with evaluating(network, modules):
                yield
        finally:
            for module, mode in zip(modules, modes, strict=True):
                vars(module)["training"] = mode

    @contextmanager
    def _watched(self, network: nn.Module, *, complete: bool) -> Iterator[None]:
        before = Snapshot(network, full=complete, known=self._known)
        skipped = self._evaluations > 2 and not self._wary
        changes: Sequence[Change] = ()
        try:
            with evaluating(network):
                yield
        finally:
            changes = before.restore()
            # A write that changed no bit may change one the next time.
            self._wary |= before.forget_writes() or bool(changes)
        self._known |= before.kinds
        if skipped and before.unseen:
            raise late(before.unseen[0])
        self.tell(changes)

    def _library_modules(self, network: nn.Module) -> list[nn.Module] | None:
        """All modules, if all are of known classes of PyTorch or engram, without hooks; otherwise None."""
        if nn.modules.module._has_any_global_hook():
            return None
        modules = list(network.modules())
        for module in modules:
            attributes = vars(module)
            kind: type = type(module)
            if kind not in self._known or not _of_library(kind) or not METHODS.isdisjoint(attributes):
                return None
            if attributes["_forward_hooks"] or attributes["_forward_pre_hooks"]:
                return None
        return modules

    def tell(self, changes: Sequence[Change]) -> None:
        """Note what a network changed in itself, and warn of modules that had not done so before."""
        told = {change.module for change in self.changes}
        new = [change for change in changes if change.module not in told]
        self.changes.update(dict.fromkeys(changes))
        if new:
            # The line that called the evaluator.
            warnings.warn(described(new), SelfChange, stacklevel=8)


@lru_cache(maxsize=4096)
def _of_library(kind: type) -> bool:
    return kind.__module__.startswith(("torch.nn.modules.", "engram.models.", "engram.methods."))


def late(change: Change) -> InputError:
    """The error for a change that evaluations before this one may have made unnoticed.

    Example:
        >>> print(late(Change("average", "Average", "weight")))
        average (Average) now changes its weight in evaluation, ...
    """
    return InputError(
        f"{change.module} now changes its {change.part} in evaluation, which it did not do at first, and "
        "recent evaluations may have changed training: let it change only where self.training is true"
    )


def described(changes: Sequence[Change]) -> str:
    """The warning for modules that change themselves, in one line.

    Example:
        >>> print(described([Change("pool", "RunningMax", "n"), Change("pool", "RunningMax", "best")]))
        pool (RunningMax) changes itself in evaluation (n, best): it is restored after every evaluation, ...
    """
    modules: dict[str, list[str]] = {}
    for change in changes:
        modules.setdefault(change.module, []).append(change.part)
    (first, parts), *others = modules.items()
    more = f", and so do {len(others)} other modules" if others else ""
    if len(others) == 1:
        more = f", and so does {others[0][0]}"
    return (
        f"{first} changes itself in evaluation ({', '.join(dict.fromkeys(parts))}){more}: "
        f"{'they are' if others else 'it is'} restored after every evaluation, so training is not affected"
    )
