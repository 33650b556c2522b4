"""Check that evaluation does not change training: the same run with and without it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

from engram.engine.loop import run_steps
from engram.engine.recipe import experiment
from engram.engine.where import Where
from engram.methods.base import Method
from engram.models.spec import ModelSpec
from engram.record.experiment import Experiment


@dataclass(frozen=True, slots=True)
class Isolation:
    """Digests of the final weights of a run with evaluation and of the same run without it."""

    method: str
    model: str
    updates: int
    watched: str
    unwatched: str

    @property
    def holds(self) -> bool:
        """Whether both are the same, bit for bit."""
        return self.watched == self.unwatched


MODELS = {
    "mlp with dropout": (ModelSpec("mlp", hidden=(64, 64), dropout_hidden=0.5), 300),
    "slim-resnet18 with batch norm": (ModelSpec("slim-resnet18"), 90),
}
"""The networks that are checked by default, and the number of updates of each."""

OWN_UPDATES = 90
"""The number of updates of any other network."""


def check_isolation(
    method: str, model: str, *, scenario: str = "split-digits", data: Path | None = None
) -> Isolation:
    """Train a network a few hundred updates with and without evaluation, and compare all weights.

    Args:
        method: The name of a method.
        model: A name in `MODELS`, or that of any network, such as one that a plugin registers.
        scenario: What it learns: the first three tasks.
        data: Where to search for data sets.

    Example:
        >>> check_isolation("finetune", "mlp with dropout").holds
        True
    """
    spec, updates = MODELS.get(model, (None, OWN_UPDATES))
    # The updates cover three tasks, so what a method does at task boundaries is compared as well.
    planned = experiment(
        scenario,
        method,
        model=model if spec is None else None,
        updates=updates // 3,
        evaluation={"subset": 20, "losses": True},
    )
    planned = replace(
        planned,
        model=planned.model if spec is None else spec,
        # With this batch size no task of Split-Digits ends with a batch of one, which batch norm cannot use.
        batch_size=30,
    )
    return Isolation(
        method,
        model,
        updates,
        watched=_digest_after(planned, updates, data=data, watch=True),
        unwatched=_digest_after(planned, updates, data=data, watch=False),
    )


def weights_digest(method: Method) -> str:
    """A hash of every weight and buffer of a method's network, to the bit."""
    digest = hashlib.sha256()
    for name, tensor in sorted(method.predictor().state_dict().items()):
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


def _digest_after(planned: Experiment, updates: int, *, data: Path | None, watch: bool) -> str:
    steps = run_steps(planned, Where(out=None, data=data), watch=watch)
    *_, last = islice(steps, updates)
    assert last.method is not None
    return weights_digest(last.method)
