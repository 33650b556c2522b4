"""What an evaluator process sends back: what it measured, and what it noticed while it did."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from torch import nn

from engram.evaluation.asker import Asker, Request
from engram.evaluation.checked import CheckedState
from engram.evaluation.guard import same_randomness
from engram.evaluation.measured import Measured
from engram.evaluation.ranks import Team
from engram.evaluation.snapshot import Change

Noise: TypeAlias = tuple[bytes, Any, Any]
"""The states of the global random generators: torch, NumPy and random."""

# Plain arrays: PyTorch would send tensors in shared memory with a name.
Arrays: TypeAlias = tuple[np.ndarray[Any, Any] | None, ...]

_CPU = torch.device("cpu")


class Answered(NamedTuple):
    """One evaluation by an evaluator.

    Attributes:
        measured: For each task, what was measured of its samples.
        seconds: How long that took.
        checked: What was done in half precision; None without.
        changes: What the network changed in itself.
        outputs: What the judge noticed of the outputs; None without a judge.
        process: The process that made it.
    """

    measured: Sequence[tuple[int, Arrays]]
    seconds: float
    checked: CheckedState | None
    changes: tuple[Change, ...]
    outputs: tuple[bool, bool] | None
    process: int

    def taken(self, asker: Asker) -> dict[int, Measured]:
        """What was measured; the asker of this process takes over what that of an evaluator noticed."""
        if self.process != os.getpid():
            if asker.checked is not None and self.checked is not None:
                asker.checked.add(self.checked)
            if asker.judge is not None and self.outputs is not None:
                asker.judge.notice(*self.outputs)
            asker.guard.tell([change for change in self.changes if change not in asker.guard.changes])
        return {
            task: Measured(*(None if part is None else torch.from_numpy(part) for part in parts))
            for task, parts in self.measured
        }


def answered(asker: Asker, network: nn.Module, request: Request, noise: Noise) -> Answered:
    """Evaluate a network as the learner would have done: with its samples, and its random numbers."""
    started = time.perf_counter()
    checked, judge = asker.checked, asker.judge
    before = None if checked is None else checked.record
    with same_randomness():
        _set(noise)
        with asker.untouched(network, _CPU):
            measured = asker.ask(network, request, Team("each"), _CPU)
    return Answered(
        [(task, _arrays(parts)) for task, parts in measured.items()],
        time.perf_counter() - started,
        None if checked is None or before is None else checked.since(before),
        tuple(asker.guard.changes),
        None if judge is None else judge.noticed,
        os.getpid(),
    )


def noise_now() -> Noise:
    """The states of the global random generators, which a network may draw from even in evaluation."""
    return torch.get_rng_state().numpy().tobytes(), np.random.get_state(), random.getstate()  # noqa: NPY002


def _set(noise: Noise) -> None:
    torch.set_rng_state(torch.frombuffer(bytearray(noise[0]), dtype=torch.uint8))
    np.random.set_state(noise[1])  # noqa: NPY002
    random.setstate(noise[2])


def _arrays(measured: Measured) -> Arrays:
    return tuple(None if part is None else part.numpy() for part in measured)
