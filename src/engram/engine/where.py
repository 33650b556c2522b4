"""Where and how experiments are run: one value, handed on unchanged."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from engram.core.errors import InputError


@dataclass(frozen=True, slots=True, kw_only=True)
class Where:
    """Everything about running that does not change what is computed.

    Attributes:
        out: Where runs are kept, each in a folder that its experiment names; None keeps them in memory.
        data: Where data sets are looked for first.
        device: Where to compute: `cpu`, `cuda` or `mps`.
        plugin: A Python file that registers methods and the like, for worker processes to load as well.
        strict: Whether to stop a method that reads what it should not.
        jobs: Parallel runs; None for one per core.
        checkpoint_seconds: How much work may be lost at most; infinite for no checkpoints.

    Example:
        >>> Where(jobs=0)
        Traceback (most recent call last):
        engram.core.errors.InputError: jobs must be at least 1, got 0
    """

    out: Path | None = Path("runs")
    data: Path | None = None
    device: str = "cpu"
    plugin: Path | None = None
    strict: bool = False
    jobs: int | None = None
    checkpoint_seconds: float = 30.0

    def __post_init__(self) -> None:
        if self.jobs is not None and self.jobs < 1:
            raise InputError(f"jobs must be at least 1, got {self.jobs}")
        if not self.checkpoint_seconds > 0:
            raise InputError(f"checkpoint_seconds must be above 0, got {self.checkpoint_seconds}")

    @property
    def folder(self) -> Path:
        """The folder of runs.

        Raises:
            InputError: Runs are kept in memory.
        """
        if self.out is None:
            raise InputError("runs need a folder here: name one with out=…")
        return self.out

    @property
    def keeps_checkpoints(self) -> bool:
        """Whether a killed run can be resumed."""
        return self.out is not None and math.isfinite(self.checkpoint_seconds)
